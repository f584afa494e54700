//! Picks an allgather's algorithm by the number of nodes and the bytes of all of them.

/// The ways of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    Tree,
    Ring,
    Bruck,
}

/// Up to `nodes_max` nodes and `bytes_max` bytes of all nodes together, take `choice`.
struct Row {
    nodes_max: u32,
    bytes_max: u64,
    choice: Choice,
}

/// The first row that fits counts; beyond the last it is the ring. The numbers are chosen, not measured: below 1 MiB the
/// hops of the tree cost more than its bytes, and its links are there already; up to 64 MiB a ring's `N - 1` hops cost
/// more than the copies that Bruck makes of each byte.
const TABLE: &[Row] = &[
    Row { nodes_max: u32::MAX, bytes_max: 1 << 20, choice: Choice::Tree },
    Row { nodes_max: u32::MAX, bytes_max: 64 << 20, choice: Choice::Bruck },
];

/// The algorithm for `bytes` of blocks from `nodes` nodes together.
pub fn choose(nodes: u32, bytes: u64) -> Choice {
    let row = TABLE.iter().find(|row| nodes <= row.nodes_max && bytes <= row.bytes_max);
    row.map_or(Choice::Ring, |row| row.choice)
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
        assert_eq!(seen, [Choice::Tree, Choice::Bruck, Choice::Ring]);
        assert_eq!(choose(u32::MAX, u64::MAX), Choice::Ring);
        assert_eq!(choose(1, 0), Choice::Tree);
    }
}
