//! Barriers of all ranks, of groups, and split barriers.

use crate::codes::{Code, Result, returned};
use crate::state::{Barrier, Job, With, with_job};
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use wireup_capi::text;
use wireup_client::number;

/// `PMI_GROUP_SELF` and `PMI_GROUP_NODE`: addresses that no array can have. A null pointer is `PMI_GROUP_WORLD`.
const GROUP_SELF: usize = 1;
const GROUP_NODE: usize = 2;

fn end(job: &mut Job) -> Result {
    match &mut job.with {
        With::Singleton(_) => Ok(()),
        With::Server(server) => Ok(server.end_fence()?),
    }
}

fn begin(job: &mut Job) -> Result {
    match &mut job.with {
        With::Singleton(_) => Ok(()),
        With::Server(server) => Ok(server.send_fence(None)?),
    }
}

/// A barrier of all ranks, after any split barrier that was begun before.
pub fn barrier(job: &mut Job) -> Result {
    if let Barrier::UnderWay = job.barrier {
        job.barrier = Barrier::Over(end(job));
    }
    begin(job)?;
    end(job)
}

#[unsafe(no_mangle)]
pub extern "C" fn PMI_Barrier() -> c_int {
    returned(with_job(barrier))
}

/// Begins a barrier, which also makes puts visible; [`PMI_Wait`] ends it.
#[unsafe(no_mangle)]
pub extern "C" fn PMI_Ibarrier() -> c_int {
    returned(with_job(|job| {
        let Barrier::Idle = job.barrier else {
            return Err(Code::FAIL);
        };
        begin(job)?;
        job.barrier = Barrier::UnderWay;
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn PMI_Wait() -> c_int {
    returned(with_job(|job| match core::mem::replace(&mut job.barrier, Barrier::Idle) {
        Barrier::Idle => Err(Code::FAIL),
        Barrier::UnderWay => end(job),
        Barrier::Over(result) => result,
    }))
}

/// A group's barrier, if the server implements PMI 1.2. Otherwise it fails, which MPICH takes to mean that there is no
/// such function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Barrier_group(group: *const c_int, count: c_int, stringtag: *const c_char) -> c_int {
    returned(with_job(|job| {
        if let With::Singleton(_) = job.with {
            return Ok(());
        }
        if job.subversion < 2 {
            return Err(Code::FAIL);
        }
        if group as usize == GROUP_SELF {
            return Ok(());
        }
        // Only one barrier at a time: answers to several would differ only by their tags.
        let Barrier::Idle = job.barrier else {
            return Err(Code::FAIL);
        };
        let mut name = match group as usize {
            0 => b"WORLD".to_vec(),
            GROUP_NODE => b"NODE".to_vec(),
            _ => {
                let count = usize::try_from(count).map_err(|_| Code::INVALID_LENGTH)?;
                // SAFETY: the caller's array has `count` numbers.
                list(unsafe { core::slice::from_raw_parts(group, count) })?
            }
        };
        name.push(b':');
        // SAFETY: a C string or null.
        number::push(unsafe { text::bytes(stringtag) }.map_or(0, tag), &mut name);
        let server = job.server()?;
        server.send_fence(Some(&name))?;
        Ok(server.end_fence()?)
    }))
}

fn list(ranks: &[c_int]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for &rank in ranks {
        number::push_item(usize::try_from(rank).map_err(|_| Code::INVALID_ARG)?, &mut text);
    }
    if text.is_empty() { Err(Code::INVALID_LENGTH) } else { Ok(text) }
}

/// A positive number for a text: its Fowler-Noll-Vo hash.
fn tag(text: &[u8]) -> usize {
    let hash = text.iter().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    (hash >> 1).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barrier_tags_are_positive_and_distinct() {
        assert!(tag(b"") > 0 && tag(b"a") != tag(b"b"));
        assert_eq!(list(&[3, 1]), Ok(b"3,1".to_vec()));
        assert!(list(&[]).is_err() && list(&[-1]).is_err());
    }
}
