//! Lays the values of an allgather out for the ranks of this node: one array, each value copied once.
//!
//! Rows of the maximum length where a rank here wants to use the array as it is; else one value behind the other, which is less
//! memory, and which each rank copies in one pass. A value longer than the maximum, from a node where that is larger, makes
//! it packed too: the reader sees that it does not fit, and nothing is cut.

use crate::memory::{Memory, Shared};
use bytes::Bytes;
use wireup_coll::mapping::Mapping;
use wireup_wire::block;
use wireup_wire::shared::rows::Layout;
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
    let mut by_rank: Vec<Option<&[u8]>> = vec![None; count as usize];
    let blocks: Result<Vec<_>, _> = parts.iter().cloned().flat_map(block::blocks).collect();
    let blocks = blocks.map_err(|error| error.to_string())?;
    for block in &blocks {
        let mut values = values::values(&block.bytes);
        for rank in mapping.ranks_of(block.node) {
            let value = values.next().and_then(Result::ok);
            let value = value.ok_or_else(|| format!("node {} gave too few values to an allgather", block.node))?;
            by_rank[rank.index()] = Some(value);
        }
        if values.next().is_some() {
            return Err(format!("node {} gave too many values to an allgather", block.node));
        }
    }
    let whole: Option<Vec<&[u8]>> = by_rank.into_iter().collect();
    let whole = whole.ok_or("not every node has given values to an allgather")?;
    let longest = whole.iter().map(|value| value.len() as u32).max().unwrap_or(0);
    let layout = if rows && longest <= max_len {
        Layout::rows(count, max_len)
    } else {
        Layout::packed(count, longest.max(max_len), whole.iter().map(|value| values::encoded_len(value.len())).sum())
    };
    let shared = memory.share(layout.total_len(), &mut |bytes| {
        let mut builder = layout.build(bytes);
        for (rank, value) in whole.iter().enumerate() {
            builder.place(rank as u32, value);
        }
        builder.finish();
    });
    shared.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Heap;
    use wireup_coll::mapping::by_ppn;
    use wireup_wire::ids::NodeId;
    use wireup_wire::shared::rows::{Form, Rows};

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
