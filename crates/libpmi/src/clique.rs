//! The ranks on this node, according to `PMI_process_mapping`.
//!
//! `(vector,(s,n,p),…)`: starting at node `s`, each of `n` nodes has `p` ranks. Blocks are applied in order; if ranks remain, again from
//! the first block with node 0. Without a mapping that can be parsed, a rank knows only itself.

use crate::codes::{Code, Result, returned};
use crate::state::{Job, answer, given, with_job};
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_capi::ints;

/// First node, nodes, ranks on each.
type Block = [u32; 3];

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_clique_size(size: *mut c_int) -> c_int {
    // SAFETY: C callers follow the rules of `pmi.h`.
    returned(unsafe { answer(size, |job| Ok(clique(job)?.len() as c_int)) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_clique_ranks(ranks: *mut c_int, length: c_int) -> c_int {
    returned(with_job(|job| {
        given(ranks)?;
        let clique = clique(job)?;
        if usize::try_from(length).is_ok_and(|length| length < clique.len()) || length < 0 {
            return Err(Code::INVALID_LENGTH);
        }
        // SAFETY: the caller's array has `length` numbers.
        unsafe { ranks.copy_from_nonoverlapping(clique.as_ptr(), clique.len()) };
        Ok(())
    }))
}

fn clique(job: &mut Job) -> Result<Vec<c_int>> {
    let (rank, size) = (job.rank, job.size);
    let kvsname = job.kvsname()?;
    let text = job.get(&kvsname, b"PMI_process_mapping")?.unwrap_or_default();
    Ok(blocks(&text).and_then(|blocks| ranks_beside(rank, size, &blocks)).unwrap_or_else(|| [rank as c_int].into()))
}

/// Parses the blocks; `None` if the text has another form.
fn blocks(text: &[u8]) -> Option<Vec<Block>> {
    let mut rest = text.strip_prefix(b"(vector")?.strip_suffix(b")")?;
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let inside = rest.strip_prefix(b",(")?;
        let end = inside.iter().position(|byte| *byte == b')')?;
        let mut numbers = inside[..end].split(|byte| *byte == b',').map(ints::parse::<u32>);
        let block = [numbers.next()??, numbers.next()??, numbers.next()??];
        if numbers.next().is_some() || block[1] == 0 || block[2] == 0 {
            return None;
        }
        blocks.push(block);
        rest = &inside[end + 1..];
    }
    (!blocks.is_empty()).then_some(blocks)
}

/// The ranks on the node of `rank`.
fn ranks_beside(rank: u32, size: u32, blocks: &[Block]) -> Option<Vec<c_int>> {
    let again = blocks.iter().position(|block| block[0] == 0);
    let mut nodes = Vec::with_capacity(size as usize);
    let mut at = 0;
    while nodes.len() < size as usize {
        let Some(&[first, count, ppn]) = blocks.get(at) else {
            at = again?;
            continue;
        };
        for node in 0..count {
            let fits = (ppn as usize).min(size as usize - nodes.len());
            nodes.extend(core::iter::repeat_n(first.wrapping_add(node), fits));
            if nodes.len() == size as usize {
                break;
            }
        }
        at += 1;
    }
    let own = *nodes.get(rank as usize)?;
    Some((0..size as c_int).filter(|rank| nodes[*rank as usize] == own).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(rank: u32, size: u32, text: &[u8]) -> Option<Vec<c_int>> {
        ranks_beside(rank, size, &blocks(text)?)
    }

    #[test]
    fn mappings_of_common_launchers_are_read() {
        assert_eq!(beside(5, 8, b"(vector,(0,2,4))"), Some([4, 5, 6, 7].into()));
        assert_eq!(beside(1, 4, b"(vector,(0,2,1),(0,2,1))"), Some([1, 3].into()));
        // The blocks repeat from the first block with node 0.
        assert_eq!(beside(2, 7, b"(vector,(0,3,1))"), Some([2, 5].into()));
        assert_eq!(beside(3, 4, b"(vector,(0,1,3),(5,1,1))"), Some([3].into()));
        assert_eq!(beside(2, 3, b"(vector,(0,4000000000,1))"), Some([2].into()));
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
