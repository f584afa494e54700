//! `PMIX_Ring`: the values of both neighbours.
//!
//! If the server has a ring, this is one round trip. Slurm's server and ours have one, and both set `PMI_JOBID`. Other servers may end the
//! job when they receive an unknown command, so the ring is not requested without that variable. In that case, and if the server refuses,
//! the ring is a put, a fence and two gets, in rank order.

use crate::state::{Job, given, is_refusal, required, with_job};
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use wireup_capi::codes::{Code, Result, returned};
use wireup_capi::{ints, text};
use wireup_client::escape::{double, halve};
use wireup_wire::limits::VALUE_LEN_MAX;
use wireup_wire::pmi::Request;

struct Ring {
    position: u32,
    left: Vec<u8>,
    right: Vec<u8>,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMIX_Ring(
    value: *const c_char,
    rank: *mut c_int,
    ranks: *mut c_int,
    left: *mut c_char,
    right: *mut c_char,
    maxvalue: c_int,
) -> c_int {
    // SAFETY: C callers follow the rules of `pmix_ext.h` for pointers; null pointers are checked.
    returned(with_job(|job| unsafe {
        let value = required(value)?;
        given(left)?;
        given(right)?;
        if value.len() > VALUE_LEN_MAX {
            return Err(Code::INVALID_VAL_LENGTH);
        }
        let ring = ring(job, value)?;
        text::set(rank, ring.position as c_int);
        text::set(ranks, job.size as c_int);
        let whole = text::write(&ring.left, left, maxvalue) & text::write(&ring.right, right, maxvalue);
        if whole { Ok(()) } else { Err(Code::INVALID_LENGTH) }
    }))
}

fn ring(job: &mut Job, value: &[u8]) -> Result<Ring> {
    if job.size == 1 {
        return Ok(Ring { position: 0, left: value.to_vec(), right: value.to_vec() });
    }
    if job.server_is_known {
        match of_the_server(job, value) {
            Ok(Some(ring)) => return Ok(ring),
            Ok(None) => {}
            Err(code) => return Err(code),
        }
    }
    of_gets(job, value)
}

/// `None` if the server has no ring.
fn of_the_server(job: &mut Job, value: &[u8]) -> Result<Option<Ring>> {
    let mut sent = Vec::new();
    double(value, &mut sent);
    let (mut ring, mut plain) = (None, Vec::new());
    let asked = job.server()?.call(&Request::Ring { count: 1, left: &sent, right: &sent }, &mut |fields| {
        let mut side = |name| fields.get(name).map(|text| halve(text, &mut plain).to_vec());
        if let (Some(left), Some(right), Some(position)) =
            (side("ring-left"), side("ring-right"), fields.get("ring-count").and_then(ints::parse))
        {
            ring = Some(Ring { position, left, right });
        }
    });
    match asked {
        Err(failure) if is_refusal(failure) => Ok(None),
        Err(failure) => Err(failure.into()),
        Ok(()) => ring.ok_or(Code::OTHER).map(Some),
    }
}

fn of_gets(job: &mut Job, value: &[u8]) -> Result<Ring> {
    let (rank, size) = (job.rank, job.size);
    let (left_rank, right_rank) = ((rank + size - 1) % size, (rank + 1) % size);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let id = job.start_allgather(value, VALUE_LEN_MAX, false);
    let gathered = job.collect(id)?;
    job.values(&gathered, &[left_rank, right_rank], &mut |rank, value| {
        // In a job of two, both neighbours are the same rank.
        if rank == left_rank {
            left = value.to_vec();
        }
        if rank == right_rank {
            right = value.to_vec();
        }
        Ok(())
    })?;
    Ok(Ring { position: rank, left, right })
}
