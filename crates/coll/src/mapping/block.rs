//! Where a block of nodes ends, in ranks and in nodes.

use wireup_wire::job::Block;

/// Ranks of one pass over a block.
pub fn block_ranks(block: &Block) -> u64 {
    u64::from(block.nodes) * u64::from(block.ppn)
}

/// The node behind the last one of a block.
pub fn end_node(block: &Block) -> u64 {
    u64::from(block.first_node) + u64::from(block.nodes)
}
