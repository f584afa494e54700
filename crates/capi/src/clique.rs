//! Which ranks share a node, according to `PMI_process_mapping`.
//!
//! `(vector,(s,n,p),…)`: starting at node `s`, each of `n` nodes has `p` ranks. Blocks are applied in order; if ranks
//! remain, again from the first block with node 0.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wireup_client::number;

/// A block of the mapping: its first node, the number of nodes, and the ranks on each node.
type Block = [u32; 3];

/// The number of a rank's node; `None`: the mapping cannot be read.
pub fn node(mapping: &[u8], rank: u32) -> Option<u32> {
    let mut own = None;
    visit(&blocks(mapping)?, rank.checked_add(1)?, &mut |_, node| own = Some(node))?;
    own
}

/// A rank's node, and how many lower ranks that node has.
pub fn place(mapping: &[u8], rank: u32) -> Option<(u32, u32)> {
    let (own, mut before) = (node(mapping, rank)?, 0);
    visit(&blocks(mapping)?, rank, &mut |_, node| before += u32::from(node == own))?;
    Some((own, before))
}

/// The ranks on the node of `rank`, in ascending order; `None`: the mapping cannot be read.
pub fn ranks_beside(mapping: &[u8], rank: u32, size: u32) -> Option<Vec<u32>> {
    let own = node(mapping, rank)?;
    let mut beside = Vec::new();
    visit(&blocks(mapping)?, size, &mut |rank, node| {
        if node == own {
            beside.push(rank);
        }
    })?;
    Some(beside)
}

/// The ranks with the same place on their nodes as `rank`, in ascending order; `None`: the mapping cannot be read.
pub fn ranks_across(mapping: &[u8], rank: u32, size: u32) -> Option<Vec<u32>> {
    let (_, own) = place(mapping, rank)?;
    let (mut across, mut counts) = (Vec::new(), BTreeMap::<u32, u32>::new());
    visit(&blocks(mapping)?, size, &mut |rank, node| {
        let count = counts.entry(node).or_default();
        if *count == own {
            across.push(rank);
        }
        *count += 1;
    })?;
    Some(across)
}

/// Passes each of the first `size` ranks to `see`, with its node.
fn visit(blocks: &[Block], size: u32, see: &mut dyn FnMut(u32, u32)) -> Option<()> {
    let again = blocks.iter().position(|block| block[0] == 0);
    let (mut rank, mut at) = (0, 0);
    while rank < size {
        let Some(&[first, count, ppn]) = blocks.get(at) else {
            at = again?;
            continue;
        };
        let mut node = 0;
        while node < count && rank < size {
            let end = size.min(rank.saturating_add(ppn));
            while rank < end {
                see(rank, first.wrapping_add(node));
                rank += 1;
            }
            node += 1;
        }
        at += 1;
    }
    Some(())
}

/// Parses the blocks; `None` if the text has another form.
fn blocks(text: &[u8]) -> Option<Vec<Block>> {
    let mut rest = text.strip_prefix(b"(vector")?.strip_suffix(b")")?;
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let inside = rest.strip_prefix(b",(")?;
        let end = inside.iter().position(|byte| *byte == b')')?;
        let mut numbers = inside[..end].split(|byte| *byte == b',').map(number::parse::<u32>);
        let block = [numbers.next()??, numbers.next()??, numbers.next()??];
        if numbers.next().is_some() || block[1] == 0 || block[2] == 0 {
            return None;
        }
        blocks.push(block);
        rest = &inside[end + 1..];
    }
    (!blocks.is_empty()).then_some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(rank: u32, size: u32, text: &[u8]) -> Option<Vec<u32>> {
        ranks_beside(text, rank, size)
    }

    #[test]
    fn mappings_of_common_launchers_are_read() {
        assert_eq!(beside(5, 8, b"(vector,(0,2,4))"), Some([4, 5, 6, 7].into()));
        assert_eq!(beside(1, 4, b"(vector,(0,2,1),(0,2,1))"), Some([1, 3].into()));
        // The blocks repeat from the first block with node 0.
        assert_eq!(beside(2, 7, b"(vector,(0,3,1))"), Some([2, 5].into()));
        assert_eq!(beside(3, 4, b"(vector,(0,1,3),(5,1,1))"), Some([3].into()));
        assert_eq!(beside(2, 3, b"(vector,(0,4000000000,1))"), Some([2].into()));
        assert_eq!((node(b"(vector,(0,1,3),(5,1,1))", 3), node(b"(vector,(0,3,1))", 5)), (Some(5), Some(2)));
    }

    #[test]
    fn a_ranks_place_on_its_node_counts_the_lower_ranks_there() {
        let places = |text: &[u8], size| (0..size).map(|rank| place(text, rank).unwrap()).collect::<Vec<_>>();
        assert_eq!(places(b"(vector,(0,2,2))", 4), [(0, 0), (0, 1), (1, 0), (1, 1)]);
        assert_eq!(places(b"(vector,(0,2,1),(0,2,1))", 4), [(0, 0), (1, 0), (0, 1), (1, 1)]);
        assert_eq!(ranks_across(b"(vector,(0,2,2))", 3, 5), Some([1, 3].into()));
    }

    #[test]
    fn malformed_mappings_are_not_read() {
        for text in
            [&b""[..], b"(vector)", b"(vector,0,1)", b"(vector,(0,0,1))", b"(vector,(0,1)", b"(vector,(1,1,1))", b"x"]
        {
            assert_eq!(beside(1, 2, text), None, "{}", text.escape_ascii());
        }
    }
}
