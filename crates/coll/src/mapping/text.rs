//! Writes blocks as the text of `PMI_process_mapping`, as short as triples allow.

use super::{block_ranks, end_node};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;
use wireup_wire::job::Block;

/// `(vector,(first_node,nodes,ppn),…)`. While ranks remain, the reader applies the triples again from the first one at node 0, so a
/// repeated prefix is written only once.
pub fn process_mapping(blocks: &[Block], job_size: u32) -> Vec<u8> {
    let round_ranks = blocks.iter().fold(0u64, |sum, block| sum.saturating_add(block_ranks(block)));
    let starts_over = u64::from(job_size) > round_ranks;
    let blocks = joined(needed(blocks, job_size));
    let wraps = blocks.first().is_some_and(|first| first.first_node == 0);
    let shown = if wraps { period(&blocks, starts_over) } else { blocks.len() };
    let mut text = String::from("(vector");
    for block in &blocks[..shown] {
        write!(text, ",({},{},{})", block.first_node, block.nodes, block.ppn).expect("writing to a string cannot fail");
    }
    text.push(')');
    text.into_bytes()
}

/// The blocks that place ranks in the first pass.
fn needed(blocks: &[Block], job_size: u32) -> &[Block] {
    let mut placed = 0u64;
    let used = blocks.iter().take_while(|block| {
        let more = placed < u64::from(job_size);
        placed = placed.saturating_add(block_ranks(block));
        more
    });
    &blocks[..used.count()]
}

/// Joins adjacent blocks with the same number of ranks per node.
fn joined(blocks: &[Block]) -> Vec<Block> {
    let mut joined: Vec<Block> = Vec::with_capacity(blocks.len());
    for block in blocks {
        match joined.last_mut() {
            Some(last) if last.ppn == block.ppn && end_node(last) == u64::from(block.first_node) => {
                last.nodes += block.nodes;
            }
            _ => joined.push(*block),
        }
    }
    joined
}

/// Length of the shortest prefix whose repetition gives the same ranks. The last repetition may be incomplete, unless the list itself is
/// applied again: then the second pass would start in the wrong place.
fn period(blocks: &[Block], starts_over: bool) -> usize {
    let repeats = |length: usize| blocks.chunks(length).all(|chunk| blocks.starts_with(chunk));
    let fits = |length: usize| !starts_over || blocks.chunks_exact(length).remainder().is_empty();
    (1..blocks.len()).find(|&length| fits(length) && repeats(length)).unwrap_or(blocks.len())
}
