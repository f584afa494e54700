//! Picks an allgather's algorithm by the number of nodes and the bytes of all of them.

use super::Algorithm;

/// The ways of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    Tree,
    Direct(Algorithm),
}

/// Fits up to `nodes_max` nodes and `bytes_max` bytes of all nodes together.
struct Row {
    nodes_max: u32,
    bytes_max: u64,
    choice: Choice,
}

/// The first row that fits counts; beyond the last it is the ring. The numbers are chosen, not measured: below 1 MiB the
/// hops of the tree cost more than its bytes, and its links are there already; up to 64 MiB a ring's `N - 1` hops cost
/// more than the copies that the logarithmic way makes of each byte.
const TABLE: &[Row] = &[
    Row { nodes_max: u32::MAX, bytes_max: 1 << 20, choice: Choice::Tree },
    Row { nodes_max: u32::MAX, bytes_max: 64 << 20, choice: Choice::Direct(Algorithm::Log) },
];

/// The way for `bytes` of blocks from `nodes` nodes together.
pub fn choose(nodes: u32, bytes: u64) -> Choice {
    fitting(nodes, bytes).next().unwrap_or(Choice::Direct(Algorithm::Ring))
}

/// The same where the tree cannot be taken.
pub fn direct_choice(nodes: u32, bytes: u64) -> Algorithm {
    let mut direct = fitting(nodes, bytes).filter_map(|choice| match choice {
        Choice::Tree => None,
        Choice::Direct(algorithm) => Some(algorithm),
    });
    direct.next().unwrap_or(Algorithm::Ring)
}

fn fitting(nodes: u32, bytes: u64) -> impl Iterator<Item = Choice> {
    let fits = move |row: &&Row| nodes <= row.nodes_max && bytes <= row.bytes_max;
    TABLE.iter().filter(fits).map(|row| row.choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_go_from_the_tree_over_the_logarithm_to_the_ring() {
        let mut seen = alloc::vec::Vec::new();
        for shift in 0..40 {
            let choice = choose(64, 1 << shift);
            if seen.last() != Some(&choice) {
                seen.push(choice);
            }
            if let Choice::Direct(algorithm) = choice {
                assert_eq!(direct_choice(64, 1 << shift), algorithm);
            }
        }
        assert_eq!(seen, [Choice::Tree, Choice::Direct(Algorithm::Log), Choice::Direct(Algorithm::Ring)]);
        assert_eq!(choose(u32::MAX, u64::MAX), Choice::Direct(Algorithm::Ring));
        assert_eq!(choose(1, 0), Choice::Tree);
        assert_eq!(direct_choice(64, 0), Algorithm::Log);
    }
}
