//! Picks an allgather's algorithm by the number of nodes and the bytes of all of them.

use wireup_wire::collective::Algorithm;

/// Up to `bytes_max` bytes of all nodes together, for up to `nodes_max` nodes, take `algorithm`; `None`: the tree.
struct Row {
    nodes_max: u32,
    bytes_max: u64,
    algorithm: Option<Algorithm>,
}

/// The first row that fits counts; beyond the last it is the ring. The numbers are chosen, not measured: below 1 MiB the
/// hops of the tree cost more than its bytes, and its links are there already; up to 64 MiB a ring's `N - 1` hops cost
/// more than the copies that Bruck makes of each byte.
const TABLE: &[Row] = &[
    Row { nodes_max: 2, bytes_max: u64::MAX, algorithm: None },
    Row { nodes_max: u32::MAX, bytes_max: 1 << 20, algorithm: None },
    Row { nodes_max: u32::MAX, bytes_max: 64 << 20, algorithm: Some(Algorithm::Bruck) },
];

/// The algorithm for `bytes` of blocks from `nodes` nodes together; `None`: broadcast down the tree what was gathered up it.
pub fn choose(nodes: u32, bytes: u64) -> Option<Algorithm> {
    let row = TABLE.iter().find(|row| nodes <= row.nodes_max && bytes <= row.bytes_max);
    row.map_or(Some(Algorithm::Ring), |row| row.algorithm)
}

/// The same where the bytes are not at the root, so that the tree is not to be had.
pub fn direct(nodes: u32, bytes: u64) -> Algorithm {
    choose(nodes, bytes).unwrap_or(Algorithm::Bruck)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_go_from_tree_over_bruck_to_ring() {
        let mut seen = alloc::vec::Vec::new();
        for shift in 0..40 {
            let choice = choose(64, 1 << shift);
            if seen.last() != Some(&choice) {
                seen.push(choice);
            }
        }
        assert_eq!(seen, [None, Some(Algorithm::Bruck), Some(Algorithm::Ring)]);
        assert_eq!(choose(u32::MAX, u64::MAX), Some(Algorithm::Ring));
        assert_eq!((choose(2, 1 << 30), direct(2, 1 << 30)), (None, Algorithm::Bruck));
    }
}
