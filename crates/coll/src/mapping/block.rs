//! The number of ranks in a block of nodes, and the number of the node after the block.

use wireup_wire::job::Block;

/// Number of ranks that a block places when the list of blocks is applied once.
pub fn block_ranks(block: &Block) -> u64 {
    u64::from(block.nodes) * u64::from(block.ppn)
}

/// The number of the node after the last one of a block.
pub fn end_node(block: &Block) -> u64 {
    u64::from(block.first_node) + u64::from(block.nodes)
}
