//! Picks the allgather algorithm from the number of nodes and the total number of bytes.
//!
//! Measured by `wireup bench coll` among 16 and 64 nodes of one machine with two cores, latency of an allgather (ms):
//!
//! ```text
//!   bytes per node            64     1 Ki    4 Ki   16 Ki   64 Ki
//!   16 nodes   tree          0.24    0.26    0.46    2.3     5.6
//!              ring          0.62    0.52    1.3     2.0     4.4
//!              log           0.71    0.87    1.2     1.9     8.7
//!   64 nodes   tree          0.97    1.7    11      23     107
//!              ring          5.1     7.3    17      25     109
//!              log           4.6     6.6    13      54     216
//! ```
//!
//! On one machine a hop costs CPU time; across a network it costs latency, which the ring pays `N - 1` times. The
//! latter was not measured.

use wireup_wire::collective::Algorithm;

/// Number of nodes up to which `TREE_BYTES_MAX_FEW` applies: the tree has one level, and its root sends all blocks to
/// every node.
const FEW_NODES: u32 = 16;
/// Bytes of all nodes together up to which the tree is fastest, with at most `FEW_NODES` nodes; `TREE_BYTES_MAX_MANY`:
/// with more nodes.
const TREE_BYTES_MAX_FEW: u64 = 128 << 10;
const TREE_BYTES_MAX_MANY: u64 = 4 << 20;
/// Bytes per node above which the copies that Bruck makes of each byte cost more than the ring's hops.
const BRUCK_NODE_BYTES_MAX: u64 = 16 << 10;

/// The algorithm for an allgather among `nodes` nodes whose blocks have `bytes` bytes in total; `None`: the root
/// broadcasts the gathered blocks down the tree.
pub fn choose(nodes: u32, bytes: u64) -> Option<Algorithm> {
    let tree_max = match nodes {
        0..=2 => u64::MAX,
        3..=FEW_NODES => TREE_BYTES_MAX_FEW,
        _ => TREE_BYTES_MAX_MANY,
    };
    (bytes > tree_max).then(|| direct(nodes, bytes))
}

/// The algorithm for the case that the root has only the sizes of the blocks, so that the tree cannot broadcast them.
pub fn direct(nodes: u32, bytes: u64) -> Algorithm {
    if bytes / u64::from(nodes.max(1)) <= BRUCK_NODE_BYTES_MAX { Algorithm::BRUCK } else { Algorithm::RING }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_sizes_choose_tree_then_bruck_then_ring() {
        let mut seen = alloc::vec::Vec::new();
        for shift in 0..40 {
            let choice = choose(1024, 1 << shift);
            if seen.last() != Some(&choice) {
                seen.push(choice);
            }
        }
        assert_eq!(seen, [None, Some(Algorithm::BRUCK), Some(Algorithm::RING)]);
        assert_eq!(choose(16, 1 << 20), Some(Algorithm::RING));
        assert_eq!((choose(16, 200 << 10), choose(64, 200 << 10)), (Some(Algorithm::BRUCK), None));
        assert_eq!((choose(2, 1 << 30), direct(2, 1 << 30), direct(0, 0)), (None, Algorithm::RING, Algorithm::BRUCK));
        assert_eq!(choose(u32::MAX, u64::MAX), Some(Algorithm::RING));
    }
}
