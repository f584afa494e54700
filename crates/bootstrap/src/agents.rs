//! Collectives of the whole job, made of the allgathers and fences of its server.
//!
//! Values of a server contain no zero bytes: contents are stuffed (COBS), which adds one byte in 254. Every rank computes its own result
//! from all values, which the ranks of a node share. One exchange each, whatever the operation; the bytes that reach a node are those of all
//! ranks, so long contents belong to the peers' engine.

use crate::context::{Error, Operation};
use alloc::vec::Vec;
use wireup_capi::job::{Gathered, Job, MAX_LEN};
use wireup_client::requests::Id;
use wireup_group::Done;
use wireup_group::algorithms::Wanted;
use wireup_wire::shared::rows::Rows;

/// A key and a colour, stuffed.
const SPLIT_LEN_MAX: usize = 8 + 1 + 255 + 2;
/// The longest stuffed run.
const RUN_LEN_MAX: usize = 254;

/// Starts an operation; `None` if it cannot be made of allgathers, or its contents are too long for one.
pub fn start(job: &mut Job, operation: &Operation) -> Option<Id> {
    let (own, len_max): (&[u8], usize) = match operation {
        Operation::Barrier => return fence_waits(job).then(|| job.start_fence()),
        Operation::Broadcast { root, bytes } if *root == job.rank => (bytes, bytes.len()),
        Operation::Broadcast { bytes, .. } => (&[], bytes.len()),
        Operation::Allgather { bytes, len_max } => (bytes, *len_max),
        Operation::Shift(bytes) => (bytes, bytes.len()),
        Operation::Allreduce { bytes, .. } | Operation::Prefix { bytes, .. } => (bytes, bytes.len()),
        Operation::Alltoall(_) => return None,
    };
    let stuffed_max = len_max + len_max / RUN_LEN_MAX + 1;
    (stuffed_max <= MAX_LEN).then(|| job.start_allgather(&stuffed(own), stuffed_max, false))
}

/// Whether a fence is over only when all ranks have started it. Hydra answers at once, and lets gets wait.
pub fn fence_waits(job: &mut Job) -> bool {
    job.server().is_err() || job.server_is_known
}

/// Starts to tell all ranks what group this one wants to be in.
pub fn start_split(job: &mut Job, wanted: &Wanted) -> Id {
    let mut own = wanted.key.to_le_bytes().to_vec();
    if let Some(colour) = &wanted.colour {
        own.push(1);
        own.extend_from_slice(colour);
    }
    job.start_allgather(&stuffed(&own), SPLIT_LEN_MAX, false)
}

/// The ranks of this one's group, in its order; none if it wants no group. Waits until all ranks have told.
pub fn finish_split(job: &mut Job, id: Id, wanted: &Wanted) -> Result<Vec<u32>, Error> {
    let gathered = job.collect(id).map_err(Error::Server)?;
    let all = values(job, &gathered, &all(job.size))?;
    members(&all, wanted).ok_or(Error::Mismatch)
}

/// `None`: a rank has told something else.
fn members(all: &[Vec<u8>], wanted: &Wanted) -> Option<Vec<u32>> {
    let Some(own) = &wanted.colour else { return Some(Vec::new()) };
    let mut members = Vec::new();
    for (rank, value) in (0..).zip(all) {
        let (key, colour) = value.split_first_chunk()?;
        if colour.split_first().is_some_and(|(_, colour)| colour == own) {
            members.push((i64::from_le_bytes(*key), rank));
        }
    }
    members.sort_unstable();
    Some(members.into_iter().map(|(_, rank)| rank).collect())
}

/// Finishes an operation; waits until it is over.
pub fn finish(job: &mut Job, id: Id, operation: &Operation) -> Result<Done, Error> {
    if let Operation::Barrier = operation {
        return job.finish(id).map(|()| Done::Nothing).map_err(Error::Server);
    }
    let gathered = job.collect(id).map_err(Error::Server)?;
    let (rank, size) = (job.rank, job.size);
    let one = |job: &mut Job, of: u32| Ok(values(job, &gathered, &[of])?.pop().unwrap_or_default());
    let done = match operation {
        Operation::Broadcast { root, .. } => Done::Bytes(one(job, *root)?),
        Operation::Shift(_) => Done::Bytes(one(job, (rank + size - 1) % size)?),
        Operation::Allgather { .. } => Done::Rows(values(job, &gathered, &all(size))?),
        Operation::Allreduce { reduce, .. } => Done::Bytes(combined(*reduce, &values(job, &gathered, &all(size))?)?),
        Operation::Prefix { reduce, is_exclusive, .. } => {
            let before: Vec<u32> = (0..rank + u32::from(!is_exclusive)).collect();
            Done::Bytes(combined(*reduce, &values(job, &gathered, &before)?)?)
        }
        Operation::Barrier | Operation::Alltoall(_) => Done::Nothing,
    };
    Ok(done)
}

fn all(size: u32) -> Vec<u32> {
    (0..size).collect()
}

fn combined(reduce: wireup_group::reduce::Reduce, values: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let Some((first, others)) = values.split_first() else { return Ok(Vec::new()) };
    others.iter().try_fold(first.clone(), |sum, value| reduce.combine(&sum, value)).map_err(|_| Error::Mismatch)
}

/// The contents of these ranks, which are in ascending order.
fn values(job: &mut Job, gathered: &Gathered, ranks: &[u32]) -> Result<Vec<Vec<u8>>, Error> {
    if let Gathered::Array(array) = gathered {
        let array = Rows::read(array).map_err(|_| Error::Mismatch)?;
        let mut wanted = ranks.iter().peekable();
        let all = (0..).zip(array.values()).filter(|(rank, _)| wanted.next_if_eq(&rank).is_some());
        return all.map(|(_, value)| value.ok().and_then(unstuffed).ok_or(Error::Mismatch)).collect();
    }
    let mut contents: Vec<(u32, Option<Vec<u8>>)> = Vec::with_capacity(ranks.len());
    let got = job.values(gathered, ranks, &mut |rank, value| {
        contents.push((rank, unstuffed(value)));
        Ok(())
    });
    got.map_err(Error::Server)?;
    contents.sort_unstable_by_key(|(rank, _)| *rank);
    contents.into_iter().map(|(_, content)| content.ok_or(Error::Mismatch)).collect()
}

/// Without zero bytes: before each run up to a zero, its length and one. A run of 254 bytes has no zero behind it.
fn stuffed(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + content.len() / RUN_LEN_MAX + 1);
    for mut run in content.split(|byte| *byte == 0) {
        while let Some((piece, rest)) = run.split_at_checked(RUN_LEN_MAX) {
            push(piece, &mut out);
            run = rest;
        }
        push(run, &mut out);
    }
    out
}

fn push(piece: &[u8], out: &mut Vec<u8>) {
    out.push(piece.len() as u8 + 1);
    out.extend_from_slice(piece);
}

/// `None`: nobody has stuffed this.
fn unstuffed(mut value: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::with_capacity(value.len());
    while let Some((code, rest)) = value.split_first() {
        let (run, rest) = rest.split_at_checked(usize::from(*code).checked_sub(1)?)?;
        content.extend_from_slice(run);
        if usize::from(*code) <= RUN_LEN_MAX && !rest.is_empty() {
            content.push(0);
        }
        value = rest;
    }
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn members_are_those_of_the_same_colour_by_key_then_by_rank() {
        let wanted = |colour: Option<&[u8]>, key: i64| Wanted { colour: colour.map(<[u8]>::to_vec), key };
        let told = |wanted: &Wanted| {
            let mut value = wanted.key.to_le_bytes().to_vec();
            wanted.colour.iter().for_each(|colour| value.extend([&[1], &colour[..]].concat()));
            value
        };
        let all = [
            wanted(Some(b"a"), 5),
            wanted(Some(b"b"), 0),
            wanted(None, 0),
            wanted(Some(b"a"), -5),
            wanted(Some(b"a"), 5),
        ];
        let values: Vec<Vec<u8>> = all.iter().map(told).collect();
        let of = |rank: usize| members(&values, &all[rank]);
        assert_eq!((of(0), of(1), of(2)), (Some(vec![3, 0, 4]), Some(vec![1]), Some(vec![])));
        assert_eq!(members(&[vec![1; 7]], &all[0]), None);
    }

    #[test]
    fn contents_survive_without_zero_bytes() {
        let mut all: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0, 0], (0..=255).collect(), vec![7; 1000]];
        for len in [1, 253, 254, 255, 508, 509] {
            all.extend([
                vec![0; len],
                vec![9; len],
                [vec![9; len], vec![0]].concat(),
                [vec![0], vec![9; len]].concat(),
            ]);
        }
        for content in all {
            let value = stuffed(&content);
            assert!(
                !value.contains(&0) && value.len() <= content.len() + content.len() / RUN_LEN_MAX + 1,
                "{content:?}"
            );
            assert_eq!(unstuffed(&value), Some(content));
        }
        assert_eq!(unstuffed(&[5, 1]), None);
    }
}
