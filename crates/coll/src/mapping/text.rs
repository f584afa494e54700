//! Writes blocks as the text of `PMI_process_mapping`: `(vector,(first_node,nodes,ppn),…)`, only triples.
//!
//! All rounds are written, the last one as far as there are ranks, as Hydra does: Intel MPI counts the ranks of a node
//! in the text as it is, without the wrap-around that MPICH's readers apply. A text that is too long for a value in
//! this form is written with one round, which MPICH repeats.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;
use wireup_wire::job::Block;

/// The text with all rounds; `None` if it has more than `len_max` bytes.
pub fn all_rounds(blocks: &[Block], job_size: u32, len_max: usize) -> Option<Vec<u8>> {
    let mut joined: Vec<Block> = Vec::new();
    let mut left = u64::from(job_size);
    for block in blocks.iter().cycle() {
        if left == 0 {
            break;
        }
        let full = u64::from(block.nodes).min(left / u64::from(block.ppn)) as u32;
        push(&mut joined, Block { nodes: full, ..*block });
        left -= u64::from(full) * u64::from(block.ppn);
        if full < block.nodes {
            push(&mut joined, Block { first_node: block.first_node + full, nodes: 1, ppn: left as u32 });
            left = 0;
        }
        // A triple has at least eight bytes, with its comma.
        if joined.len() > len_max / 8 {
            return None;
        }
    }
    let text = text_of(&joined);
    (text.len() <= len_max).then_some(text)
}

/// The text with one round; `None` if the reader would not repeat it from its first block, which must start at node 0.
pub fn one_round(blocks: &[Block], job_size: u32) -> Option<Vec<u8>> {
    let round_ranks = blocks.iter().fold(0u64, |sum, block| sum.saturating_add(block.ranks()));
    let starts_over = u64::from(job_size) > round_ranks;
    let mut joined = Vec::new();
    needed(blocks, job_size).iter().for_each(|block| push(&mut joined, *block));
    (joined.first()?.first_node == 0).then(|| text_of(&joined[..period(&joined, starts_over)]))
}

fn text_of(blocks: &[Block]) -> Vec<u8> {
    let mut text = String::from("(vector");
    for block in blocks {
        write!(text, ",({},{},{})", block.first_node, block.nodes, block.ppn).expect("writing to a string cannot fail");
    }
    text.push(')');
    text.into_bytes()
}

/// The blocks that receive ranks when the list is first applied; a small job may not reach the last ones.
fn needed(blocks: &[Block], job_size: u32) -> &[Block] {
    let mut placed = 0u64;
    let used = blocks.iter().take_while(|block| {
        let more = placed < u64::from(job_size);
        placed = placed.saturating_add(block.ranks());
        more
    });
    &blocks[..used.count()]
}

/// Appends a block; merges it with the last one if the merged block places the same ranks.
fn push(joined: &mut Vec<Block>, block: Block) {
    match joined.last_mut() {
        _ if block.nodes == 0 || block.ppn == 0 => {}
        Some(last) if last.ppn == block.ppn && last.end_node() == u64::from(block.first_node) => {
            last.nodes += block.nodes;
        }
        Some(last) if (last.nodes, block.nodes) == (1, 1) && last.first_node == block.first_node => {
            last.ppn = last.ppn.saturating_add(block.ppn);
        }
        _ => joined.push(block),
    }
}

/// Length of the shortest prefix whose repetition gives the same ranks. The last repetition may be incomplete, unless
/// the list itself is applied again: then the second pass would start in the wrong place.
fn period(blocks: &[Block], starts_over: bool) -> usize {
    let repeats = |length: usize| blocks.chunks(length).all(|chunk| blocks.starts_with(chunk));
    let fits = |length: usize| !starts_over || blocks.chunks_exact(length).remainder().is_empty();
    (1..blocks.len()).find(|&length| fits(length) && repeats(length)).unwrap_or(blocks.len())
}
