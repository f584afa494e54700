//! Lays out the values of an allgather for the ranks of this node: one array, each value copied once.
//!
//! The array has rows of the maximum length if a local rank wants to use it directly; otherwise the values are packed,
//! which takes less memory, and each rank copies them in one pass. It is also packed if a value is longer than the
//! maximum (from a node with a larger one): then the reader detects that it does not fit, and nothing is truncated.

use crate::memory::{Array, Values};
use bytes::Bytes;
use std::cmp::Ordering;
use wireup_coll::mapping::Mapping;
use wireup_wire::block::{self, Block};
use wireup_wire::shared::rows::Layout;
use wireup_wire::values;

/// # Errors
/// A message: a node's values are not one for each of its ranks.
pub fn lay_out(mapping: &Mapping, (max_len, rows): (u32, bool), parts: &[Bytes]) -> Result<Array, String> {
    let gathered = Gathered::check(mapping, parts)?;
    let stride = gathered.longest.max(max_len);
    let layout = if rows && stride == max_len {
        Layout::rows(mapping.job_size(), max_len)
    } else {
        Layout::packed(mapping.job_size(), stride, gathered.packed_len)
    };
    let values = if gathered.in_order {
        Values::InOrder(gathered.nodes.into_iter().map(|node| node.bytes).collect())
    } else {
        Values::ByRank(gathered.by_rank(mapping))
    };
    Ok(Array { layout, values })
}

/// The values of all nodes, checked once.
struct Gathered {
    /// Blocks of values, by node.
    nodes: Vec<Block>,
    /// Whether the ranks of each node precede those of the next: the values are then in rank order.
    in_order: bool,
    longest: u32,
    packed_len: usize,
}

impl Gathered {
    fn check(mapping: &Mapping, parts: &[Bytes]) -> Result<Gathered, String> {
        let plain = |block: Block| Ok(Block { node: block.node, compressed: false, bytes: block.into_plain()? });
        let blocks = parts.iter().cloned().flat_map(block::blocks);
        let nodes: Result<Vec<_>, block::Truncated> = blocks.map(|block| block.and_then(plain)).collect();
        let mut nodes = nodes.map_err(|error| error.to_string())?;
        nodes.sort_unstable_by_key(|block| block.node);
        if let Some(twice) = nodes.windows(2).find(|pair| pair[0].node == pair[1].node) {
            return Err(format!("node {} sent its values for an allgather twice", twice[0].node));
        }
        let (mut in_order, mut longest, mut packed_len, mut before) = (true, 0, 0, 0);
        for block in &nodes {
            let node = block.node;
            let mut count = 0;
            for value in values::values(&block.bytes) {
                let value = value.map_err(|error| error.to_string())?;
                longest = longest.max(value.len() as u32);
                count += 1;
            }
            match count.cmp(&mapping.local_size(node)) {
                Ordering::Less => return Err(format!("node {node} sent too few values for an allgather")),
                Ordering::Greater => return Err(format!("node {node} sent too many values for an allgather")),
                Ordering::Equal => {}
            }
            in_order &= count == 0 || mapping.run_of(node) == Some(before..before + count);
            packed_len += block.bytes.len();
            before += count;
        }
        if before != mapping.job_size() {
            return Err("not every node has sent its values for an allgather".into());
        }
        Ok(Gathered { nodes, in_order, longest, packed_len })
    }

    /// Each value as a slice of its node's data.
    fn by_rank(&self, mapping: &Mapping) -> Vec<Bytes> {
        let mut whole = vec![Bytes::new(); mapping.job_size() as usize];
        for Block { node, bytes, .. } in &self.nodes {
            let values = values::values(bytes).filter_map(Result::ok).map(|value| bytes.slice_ref(value));
            mapping.ranks_of(*node).zip(values).for_each(|(rank, value)| whole[rank.index()] = value);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_coll::mapping::by_ppn;
    use wireup_wire::ids::NodeId;
    use wireup_wire::shared::rows::{Form, Rows};

    fn laid(mapping: &Mapping, (max_len, rows): (u32, bool), parts: &[Bytes]) -> Result<Vec<u8>, String> {
        let array = lay_out(mapping, (max_len, rows), parts)?;
        let mut out = vec![0xaa; array.byte_len()];
        array.fill(&mut out);
        Ok(out)
    }

    /// Two nodes with the ranks 0, 2 and 1, 3.
    fn gathered(max_len: u32, rows: bool, first: &[&[u8]]) -> Result<Vec<u8>, String> {
        let mapping = Mapping::new(&by_ppn(2, 1, 4), 4, 2).unwrap();
        let mut parts = Vec::new();
        for (node, own) in [(1, &[&b"one"[..], b"three"][..]), (0, first)] {
            let (mut bytes, mut part) = (Vec::new(), Vec::new());
            own.iter().for_each(|value| values::push(&mut bytes, value));
            block::push(&mut part, NodeId(node), false, &bytes);
            parts.push(Bytes::from(part));
        }
        laid(&mapping, (max_len, rows), &parts)
    }

    #[test]
    fn values_are_in_the_order_of_ranks() {
        for (rows, form) in [(true, Form::Rows), (false, Form::Packed)] {
            let shared = gathered(5, rows, &[b"zero", b""]).unwrap();
            let read = Rows::read(&shared).unwrap();
            assert_eq!((read.form(), read.count(), read.stride()), (form, 4, 5));
            let mut buffer = [b'x'; 20];
            read.fill(&mut buffer, 5).unwrap();
            assert_eq!(&buffer, b"zero\0one\0\0\0\0\0\0\0three");
        }
    }

    #[test]
    fn values_of_ranks_placed_by_block_are_in_order() {
        let mapping = Mapping::new(&by_ppn(3, 2, 5), 5, 3).unwrap();
        let mut parts = Vec::new();
        for (node, own) in [(2, &[&b"e"[..]][..]), (0, &[b"a", b"bb"]), (1, &[b"ccc", b""])] {
            let (mut bytes, mut part) = (Vec::new(), Vec::new());
            own.iter().for_each(|value| values::push(&mut bytes, value));
            block::push(&mut part, NodeId(node), false, &bytes);
            parts.push(Bytes::from(part));
        }
        for rows in [true, false] {
            let shared = laid(&mapping, (3, rows), &parts).unwrap();
            let read = Rows::read(&shared).unwrap();
            assert_eq!((read.form() == Form::Rows, read.count()), (rows, 5));
            let mut buffer = [b'x'; 15];
            read.fill(&mut buffer, 3).unwrap();
            assert_eq!(&buffer, b"a\0\0bb\0ccc\0\0\0e\0\0");
        }
        assert!(laid(&mapping, (3, true), &parts[1..]).unwrap_err().contains("not every node"));
        parts.push(parts[0].clone());
        assert!(
            laid(&mapping, (3, true), &parts).unwrap_err().contains("node 2 sent its values for an allgather twice")
        );
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error() {
        let shared = gathered(4, true, &[b"zero", b""]).unwrap();
        let read = Rows::read(&shared).unwrap();
        assert_eq!(read.form(), Form::Packed);
        assert!(read.fill(&mut [0; 16], 4).is_err());
    }

    #[test]
    fn compressed_values_are_unpacked_first() {
        let mapping = Mapping::new(&by_ppn(1, 1, 1), 1, 1).unwrap();
        let (mut values, mut part) = (Vec::new(), Vec::new());
        values::push(&mut values, &[b'a'; 200]);
        let packed = wireup_wire::packed::pack(&values).unwrap();
        block::push(&mut part, NodeId(0), true, &packed);
        let shared = laid(&mapping, (200, true), &[Bytes::from(part)]).unwrap();
        assert_eq!(Rows::read(&shared).unwrap().values().next().unwrap(), Ok(&[b'a'; 200][..]));
        let mut part = Vec::new();
        block::push(&mut part, NodeId(0), true, b"\x07none");
        assert!(laid(&mapping, (200, true), &[Bytes::from(part)]).is_err());
    }

    #[test]
    fn a_node_that_gives_too_little_or_too_much_is_named() {
        assert!(gathered(5, true, &[b"zero"]).unwrap_err().contains("node 0 sent too few"));
        assert!(gathered(5, true, &[b"a", b"b", b"c"]).unwrap_err().contains("node 0 sent too many"));
    }
}
