//! Maps ranks to nodes, from a list of blocks that is much shorter than the job.
//!
//! A block assigns `ppn` consecutive ranks to each of `nodes` consecutive nodes. Blocks are applied in order; if ranks
//! remain after the last block, the list is applied again from the first, as often as needed. MPICH reads
//! `PMI_process_mapping` in the same way, except that it restarts at the first block *whose node is 0*. So that both
//! readings agree, only a list whose first block starts at node 0 may be applied more than once. A node's ranks have
//! ascending local ranks.
//!
//! Cost: a mapping stores its blocks; a look-up walks them at most once; listing a node's ranks takes O(local ranks +
//! blocks).

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use thiserror::Error;
use wireup_wire::ids::{LocalRank, NodeId, Rank};
use wireup_wire::job::Block;
use wireup_wire::limits::{PPN_MAX, VALUE_LEN_MAX};

mod text;

/// Why blocks do not form a valid placement.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingError {
    #[error("no block to place {job_size} ranks")]
    Empty { job_size: u32 },
    #[error("block {block} has no nodes or no ranks per node")]
    EmptyBlock { block: usize },
    #[error("block {block} reaches node {node}, but the job has {node_count} nodes")]
    NodeOutOfRange { block: usize, node: u64, node_count: u32 },
    #[error("the blocks place {placed} of {job_size} ranks and cannot be applied again: they do not begin at node 0")]
    RanksRemain { placed: u64, job_size: u32 },
    #[error("node {node} gets {ranks} ranks, more than {PPN_MAX}")]
    NodeTooFull { node: u32, ranks: u64 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    blocks: Vec<Block>,
    /// First rank of each block within one round, that is, one pass over the list of blocks.
    starts: Vec<u64>,
    /// The number of ranks that one pass over the blocks places.
    round_ranks: u64,
    job_size: u32,
    /// Whether no node is in two blocks.
    disjoint: bool,
}

impl Mapping {
    /// A mapping that places every rank of `0..job_size` on a node of `0..node_count`.
    pub fn new(blocks: &[Block], job_size: u32, node_count: u32) -> Result<Mapping, MappingError> {
        let mut starts = Vec::with_capacity(blocks.len());
        let (mut round_ranks, mut next_node, mut disjoint) = (0u64, 0u64, true);
        for (index, block) in blocks.iter().enumerate() {
            if block.nodes == 0 || block.ppn == 0 {
                return Err(MappingError::EmptyBlock { block: index });
            }
            let end = block.end_node();
            if end > u64::from(node_count) {
                return Err(MappingError::NodeOutOfRange { block: index, node: end - 1, node_count });
            }
            starts.push(round_ranks);
            // Values above the job size no longer matter; saturating addition keeps them ordered.
            round_ranks = round_ranks.saturating_add(block.ranks());
            disjoint &= u64::from(block.first_node) >= next_node;
            next_node = end;
        }
        if round_ranks < u64::from(job_size) {
            match blocks.first() {
                None => return Err(MappingError::Empty { job_size }),
                Some(first) if first.first_node != 0 => {
                    return Err(MappingError::RanksRemain { placed: round_ranks, job_size });
                }
                Some(_) => {}
            }
        }
        let mapping = Mapping { blocks: blocks.to_vec(), starts, round_ranks, job_size, disjoint };
        mapping.check_fill(node_count)?;
        Ok(mapping)
    }

    pub fn job_size(&self) -> u32 {
        self.job_size
    }

    /// The node and local rank of a rank; `None` if the rank is not in the job.
    pub fn place(&self, rank: Rank) -> Option<(NodeId, LocalRank)> {
        if rank.0 >= self.job_size {
            return None;
        }
        let (round, in_round) = (u64::from(rank.0) / self.round_ranks, u64::from(rank.0) % self.round_ranks);
        let index = self.starts.partition_point(|&start| start <= in_round) - 1;
        let block = &self.blocks[index];
        let offset = in_round - self.starts[index];
        let node = NodeId(block.first_node + (offset / u64::from(block.ppn)) as u32);
        let mut local = offset % u64::from(block.ppn);
        if !self.disjoint {
            local += ranks_in(&self.blocks[..index], node);
        }
        if round > 0 {
            local += round * if self.disjoint { u64::from(block.ppn) } else { ranks_in(&self.blocks, node) };
        }
        Some((node, LocalRank(local as u16)))
    }

    /// The ranks of a node, in ascending order: the position of a rank is its local rank.
    pub fn ranks_of(&self, node: NodeId) -> impl Iterator<Item = Rank> + use<> {
        let job_size = u64::from(self.job_size);
        let runs: Vec<(u64, u64)> = self.runs_of(node).collect();
        let rounds = if runs.is_empty() { 0 } else { job_size.div_ceil(self.round_ranks.max(1)) };
        let round_ranks = self.round_ranks;
        (0..rounds)
            .flat_map(move |round| {
                let base = round * round_ranks;
                let runs = runs.clone();
                runs.into_iter().flat_map(move |(start, end)| (base + start).min(job_size)..(base + end).min(job_size))
            })
            .map(|rank| Rank(rank as u32))
    }

    /// The ranks of a node as one range; `None` if it has none, or if a quick check cannot show that they are
    /// consecutive.
    pub fn run_of(&self, node: NodeId) -> Option<Range<u32>> {
        let job_size = u64::from(self.job_size);
        let mut runs = self.runs_of(node).map(|(start, end)| start.min(job_size) as u32..end.min(job_size) as u32);
        let run = runs.next().filter(|run| !run.is_empty() && self.round_ranks >= job_size)?;
        runs.next().is_none().then_some(run)
    }

    pub fn local_size(&self, node: NodeId) -> u32 {
        let Some(rounds) = u64::from(self.job_size).checked_div(self.round_ranks) else { return 0 };
        let rest = u64::from(self.job_size) % self.round_ranks;
        let of_rest: u64 = self.runs_of(node).map(|(start, end)| end.min(rest) - start.min(rest)).sum();
        (rounds * ranks_in(&self.blocks, node) + of_rest) as u32
    }

    /// The value of `PMI_process_mapping`, `(vector,(0,2,4))`. It contains only triples, because older libraries read
    /// nothing else.
    ///
    /// All rounds are written if they fit into a PMI value, otherwise one round, which the reader repeats. `None`: one
    /// round is too long as well, which takes some hundred changes of ranks per node along the node list; a PMI client
    /// then finds the ranks on its node by host name.
    pub fn process_mapping(&self) -> Option<Vec<u8>> {
        // One byte is for the terminating NUL in the client's buffer.
        let len_max = VALUE_LEN_MAX - 1;
        text::all_rounds(&self.blocks, self.job_size, len_max)
            .or_else(|| text::one_round(&self.blocks, self.job_size).filter(|text| text.len() <= len_max))
    }

    /// The runs of ranks that one pass over the list of blocks assigns to a node.
    fn runs_of(&self, node: NodeId) -> impl Iterator<Item = (u64, u64)> {
        self.blocks.iter().zip(&self.starts).filter(move |(block, _)| holds(block, node)).map(move |(block, start)| {
            let first = start + u64::from(node.0 - block.first_node) * u64::from(block.ppn);
            (first, first + u64::from(block.ppn))
        })
    }

    /// Checks that no node has more ranks than a `LocalRank` can count, in O(blocks + nodes).
    fn check_fill(&self, node_count: u32) -> Result<(), MappingError> {
        let Some(rounds) = u64::from(self.job_size).checked_div(self.round_ranks) else { return Ok(()) };
        let rest = u64::from(self.job_size) % self.round_ranks;
        let mut steps = vec![0i128; node_count as usize + 1];
        let mut add = |first: u64, end: u64, ranks: u64| {
            steps[first as usize] += i128::from(ranks);
            steps[end as usize] -= i128::from(ranks);
        };
        for (block, &start) in self.blocks.iter().zip(&self.starts) {
            let (first, ppn) = (u64::from(block.first_node), u64::from(block.ppn));
            add(first, block.end_node(), rounds * ppn);
            let left = rest.saturating_sub(start).min(block.ranks());
            let full = left / ppn;
            add(first, first + full, ppn);
            if left % ppn > 0 {
                add(first + full, first + full + 1, left % ppn);
            }
        }
        let mut ranks = 0;
        for (node, step) in steps.iter().take(node_count as usize).enumerate() {
            ranks += step;
            if ranks > i128::from(PPN_MAX) {
                return Err(MappingError::NodeTooFull { node: node as u32, ranks: ranks as u64 });
            }
        }
        Ok(())
    }
}

fn holds(block: &Block, node: NodeId) -> bool {
    block.first_node <= node.0 && u64::from(node.0) < block.end_node()
}

/// The number of ranks that one pass over `blocks` assigns to a node.
fn ranks_in(blocks: &[Block], node: NodeId) -> u64 {
    blocks.iter().filter(|block| holds(block, node)).map(|block| u64::from(block.ppn)).sum()
}

/// Fills one node after another up to its slots. Nodes without slots stay empty; if ranks remain after the last node,
/// filling starts again at the first.
pub fn by_slot(slots: &[u32], job_size: u32) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut left = job_size;
    for (node, &slots) in slots.iter().enumerate() {
        if left == 0 {
            break;
        }
        push_run(&mut blocks, node as u32, slots);
        left = left.saturating_sub(slots);
    }
    blocks
}

/// Divides the ranks evenly among `nodes` nodes, in consecutive runs; the first nodes get one more if there is a
/// remainder.
pub fn evenly(nodes: u32, job_size: u32) -> Vec<Block> {
    let Some(share) = job_size.checked_div(nodes) else { return Vec::new() };
    let larger = job_size % nodes;
    let mut blocks = Vec::new();
    if larger > 0 {
        blocks.push(Block { first_node: 0, nodes: larger, ppn: share + 1 });
    }
    if share > 0 {
        blocks.push(Block { first_node: larger, nodes: nodes - larger, ppn: share });
    }
    blocks
}

/// One rank per node in turn (round robin).
pub fn by_node(nodes: u32, job_size: u32) -> Vec<Block> {
    by_ppn(nodes, 1, job_size)
}

/// Places `ppn` consecutive ranks on each node in turn; if ranks remain, it starts again at the first node.
pub fn by_ppn(nodes: u32, ppn: u32, job_size: u32) -> Vec<Block> {
    match job_size.div_ceil(ppn.max(1)).min(nodes) {
        _ if ppn == 0 => Vec::new(),
        0 => Vec::new(),
        nodes => vec![Block { first_node: 0, nodes, ppn }],
    }
}

/// Appends a node with `ppn` ranks to a list of blocks, extending the last block if possible.
pub fn push_run(blocks: &mut Vec<Block>, node: u32, ppn: u32) {
    match blocks.last_mut() {
        _ if ppn == 0 => {}
        Some(last) if last.ppn == ppn && last.end_node() == u64::from(node) => last.nodes += 1,
        _ => blocks.push(Block { first_node: node, nodes: 1, ppn }),
    }
}

#[cfg(test)]
mod tests;
