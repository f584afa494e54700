//! Lays the values of an allgather out for the ranks of this node: one array, each value copied once.
//!
//! Rows of the maximum length where a rank here wants to use the array as it is; else one value behind the other, which is less
//! memory, and which each rank copies in one pass. A value longer than the maximum, from a node where that is larger, makes
//! it packed too: the reader sees that it does not fit, and nothing is cut.

use crate::memory::{Memory, Shared};
use bytes::Bytes;
use std::cmp::Ordering;
use wireup_coll::mapping::Mapping;
use wireup_wire::block::{self, Block, Truncated};
use wireup_wire::ids::{NodeId, Rank};
use wireup_wire::shared::rows::{Builder, Form, Layout};
use wireup_wire::values;

/// # Errors
/// In words: a node's values are not one for each of its ranks, or there is no memory.
pub fn build(
    mapping: &Mapping,
    max_len: u32,
    rows: bool,
    parts: &[Bytes],
    memory: &mut dyn Memory,
) -> Result<Shared, String> {
    let count = mapping.job_size();
    let blocks = parts.iter().cloned().flat_map(block::blocks);
    let nodes: Result<Vec<Node>, String> = blocks.map(|block| check(mapping, block)).collect();
    let mut nodes = nodes?;
    nodes.retain(|node| node.count > 0);
    nodes.sort_unstable_by_key(|node| node.first);
    let is_twice = nodes.windows(2).any(|pair| pair[0].node == pair[1].node);
    if is_twice || nodes.iter().map(|node| node.count).sum::<u32>() != count {
        return Err("not every node has given values to an allgather, once".into());
    }
    let longest = nodes.iter().map(|node| node.longest).max().unwrap_or(0);
    let layout = if rows && longest <= max_len {
        Layout::rows(count, max_len)
    } else {
        Layout::packed(count, longest.max(max_len), nodes.iter().map(|node| node.bytes.len()).sum())
    };
    let shared = memory.share(layout.total_len(), &mut |bytes| {
        let mut builder = layout.build(bytes);
        if layout.form() == Form::Rows {
            nodes.iter().for_each(|node| node.place_rows(mapping, &mut builder));
        } else if nodes.iter().all(|node| node.is_run) {
            // As they came.
            nodes.iter().for_each(|node| builder.place_packed(node.count, &node.bytes));
        } else {
            let mut values: Vec<(Rank, &[u8])> = nodes
                .iter()
                .flat_map(|node| mapping.ranks_of(node.node).zip(values::values(&node.bytes).flatten()))
                .collect();
            values.sort_unstable_by_key(|(rank, _)| *rank);
            values.iter().for_each(|(rank, value)| builder.place(rank.0, value));
        }
        builder.finish();
    });
    shared.map_err(|error| error.to_string())
}

/// The values of one node: whole, and one for each of its ranks.
struct Node {
    node: NodeId,
    bytes: Bytes,
    count: u32,
    longest: u32,
    first: Rank,
    /// Its ranks are numbered without a gap.
    is_run: bool,
}

impl Node {
    fn place_rows(&self, mapping: &Mapping, builder: &mut Builder<'_>) {
        // All were read before.
        let values = values::values(&self.bytes).flatten();
        if self.is_run {
            (self.first.0..).zip(values).for_each(|(rank, value)| builder.place(rank, value));
        } else {
            mapping.ranks_of(self.node).zip(values).for_each(|(rank, value)| builder.place(rank.0, value));
        }
    }
}

fn check(mapping: &Mapping, block: Result<Block, Truncated>) -> Result<Node, String> {
    let Block { node, bytes, .. } = block.map_err(|error| error.to_string())?;
    let (mut count, mut longest) = (0, 0);
    for value in values::values(&bytes) {
        let value = value.map_err(|error| error.to_string())?;
        (count, longest) = (count + 1, longest.max(value.len() as u32));
    }
    let run = mapping.run_of(node);
    let first = run.as_ref().map(|run| Rank(run.start)).or_else(|| mapping.ranks_of(node).next()).unwrap_or_default();
    let ranks = run.as_ref().map_or_else(|| mapping.local_size(node), |run| run.end - run.start);
    match count.cmp(&ranks) {
        Ordering::Less => Err(format!("node {node} gave too few values to an allgather")),
        Ordering::Greater => Err(format!("node {node} gave too many values to an allgather")),
        Ordering::Equal => Ok(Node { node, bytes, count, longest, first, is_run: run.is_some() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Heap;
    use wireup_coll::mapping::by_ppn;
    use wireup_wire::shared::rows::Rows;

    /// Two nodes, ranks 0, 2 and 1, 3.
    fn gathered(max_len: u32, rows: bool, first: &[&[u8]]) -> Result<Shared, String> {
        let mapping = Mapping::new(&by_ppn(2, 1, 4), 4, 2).unwrap();
        let mut parts = Vec::new();
        for (node, own) in [(1, &[&b"one"[..], b"three"][..]), (0, first)] {
            let (mut bytes, mut part) = (Vec::new(), Vec::new());
            own.iter().for_each(|value| values::push(&mut bytes, value));
            block::push(&mut part, NodeId(node), false, &bytes);
            parts.push(Bytes::from(part));
        }
        build(&mapping, max_len, rows, &parts, &mut Heap)
    }

    #[test]
    fn values_lie_in_the_order_of_ranks() {
        for (rows, form) in [(true, Form::Rows), (false, Form::Packed)] {
            let shared = gathered(5, rows, &[b"zero", b""]).unwrap();
            let read = Rows::read(shared.bytes()).unwrap();
            assert_eq!((read.form(), read.count(), read.stride()), (form, 4, 5));
            let mut buffer = [b'x'; 20];
            read.fill(&mut buffer, 5).unwrap();
            assert_eq!(&buffer, b"zero\0one\0\0\0\0\0\0\0three");
        }
    }

    #[test]
    fn nodes_in_a_row_give_the_same() {
        let mapping = Mapping::new(&by_ppn(3, 2, 5), 5, 3).unwrap();
        let parts: Vec<Bytes> = [(2, &[&b"4"[..]][..]), (0, &[b"0", b""]), (1, &[b"two", b"3"])]
            .map(|(node, own)| {
                let (mut bytes, mut part) = (Vec::new(), Vec::new());
                own.iter().for_each(|value| values::push(&mut bytes, value));
                block::push(&mut part, NodeId(node), false, &bytes);
                Bytes::from(part)
            })
            .into();
        for rows in [true, false] {
            let shared = build(&mapping, 3, rows, &parts, &mut Heap).unwrap();
            let mut buffer = [b'x'; 15];
            Rows::read(shared.bytes()).unwrap().fill(&mut buffer, 3).unwrap();
            assert_eq!(&buffer, b"0\0\0\0\0\0two3\0\x004\0\0");
        }
        let twice = [parts[0].clone(), parts[1].clone(), parts[1].clone(), parts[2].clone()];
        for parts in [&parts[..2], &twice] {
            assert!(build(&mapping, 3, true, parts, &mut Heap).unwrap_err().contains("not every node"));
        }
    }

    #[test]
    fn what_does_not_fit_is_not_cut() {
        let shared = gathered(4, true, &[b"zero", b""]).unwrap();
        let read = Rows::read(shared.bytes()).unwrap();
        assert_eq!(read.form(), Form::Packed);
        assert!(read.fill(&mut [0; 16], 4).is_err());
    }

    #[test]
    fn a_node_that_gives_too_little_or_too_much_is_named() {
        assert!(gathered(5, true, &[b"zero"]).unwrap_err().contains("node 0 gave too few"));
        assert!(gathered(5, true, &[b"a", b"b", b"c"]).unwrap_err().contains("node 0 gave too many"));
    }
}
