//! Collectives built from allgathers and fences of the job's server, and the groups for which wireup's agents carry
//! them out; other servers carry them out only for the whole job.
//!
//! Servers other than wireup's allow no zero bytes in values, so contents are encoded by COBS, which adds a byte for
//! each 254. Each operation is one exchange, from whose values every rank computes its own result; the ranks of a node
//! share the values. Each node receives the values of all members, so long contents should use
//! [`Engine::Peers`](crate::Engine).
//!
//! A group's members are a few runs of consecutive ranks, in ascending order. Messages between members, and collectives
//! that agents cannot carry out, use the ranks' own network, in a group with the same context that is formed when it is
//! first needed. Every member makes the same groups in the same order, so all derive the same contexts without a
//! message.

use crate::error::Error;
use crate::operation::Operation;
use crate::runs::{Run, place_of, size};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wireup_capi::job::{Gathered, Job, MAX_LEN};
use wireup_client::requests::Id;
use wireup_group::algorithms::Wanted;
use wireup_group::{Context, Done, Failure, WORLD, derived};
use wireup_wire::shared::rows::Rows;

/// Maximum length of a contribution to a split (bytes): a key, a marker and a colour.
pub const SPLIT_LEN_MAX: usize = 8 + 1 + 255;
/// Maximum length of a run of non-zero bytes in COBS.
const RUN_LEN_MAX: usize = 254;

/// What a member contributes to an operation, and the length of the longest contribution of any member; `None`: the
/// operation cannot be built from an allgather.
pub fn contribution(operation: &Operation, me: u32) -> Option<(&[u8], usize)> {
    match operation {
        Operation::Barrier => Some((&[], 0)),
        Operation::Broadcast { root, bytes } if *root == me => Some((bytes, bytes.len())),
        Operation::Broadcast { bytes, .. } => Some((&[], bytes.len())),
        Operation::Allgather { bytes, len_max, .. } => Some((bytes, *len_max)),
        Operation::Shift(bytes) => Some((bytes, bytes.len())),
        Operation::Allreduce { bytes, .. } | Operation::Prefix { bytes, .. } => Some((bytes, bytes.len())),
        Operation::Alltoall(_) => None,
    }
}

/// Starts an operation of the whole job; `None`: it cannot be built from an allgather, or its contents are too long for
/// one.
pub fn start(job: &mut Job, operation: &Operation) -> Option<Id> {
    if let Operation::Barrier = operation {
        return fence_waits(job).then(|| job.start_fence());
    }
    let (own, len_max) = contribution(operation, job.rank)?;
    if job.answers_questions() {
        let in_memory = matches!(operation, Operation::Allgather { in_memory: true, .. });
        return (len_max <= MAX_LEN).then(|| job.start_allgather(own, len_max.max(1), in_memory));
    }
    let longest = len_max + len_max / RUN_LEN_MAX + 1;
    (longest <= MAX_LEN).then(|| job.start_allgather(&stuffed(own), longest, false))
}

/// Whether the server completes a fence only when all ranks have started it. Hydra completes a fence at once, and makes
/// gets wait instead.
pub fn fence_waits(job: &mut Job) -> bool {
    job.server().is_err() || job.server_is_known
}

/// A rank's contribution to a split: its key and colour.
pub fn told(wanted: &Wanted) -> Vec<u8> {
    let mut own = wanted.key.to_le_bytes().to_vec();
    if let Some(colour) = &wanted.colour {
        own.push(1);
        own.extend_from_slice(colour);
    }
    own
}

/// The ranks of this rank's new group, in the new group's order; empty if this rank wants no group. Waits for the
/// contributions of all ranks.
pub fn finish_split(job: &mut Job, id: Id, wanted: &Wanted) -> Result<Vec<u32>, Error> {
    let gathered = job.collect(id).map_err(Error::Server)?;
    members(&values(job, &gathered, &all(job.size))?, wanted)
}

/// The members of this rank's new group, from the contributions of all.
pub fn members(all: &[Vec<u8>], wanted: &Wanted) -> Result<Vec<u32>, Error> {
    let Some(own) = &wanted.colour else { return Ok(Vec::new()) };
    let mut members = Vec::new();
    for (rank, value) in (0..).zip(all) {
        let (key, colour) = value.split_first_chunk().ok_or(Error::Mismatch)?;
        if colour.split_first().is_some_and(|(_, colour)| colour == own) {
            members.push((i64::from_le_bytes(*key), rank));
        }
    }
    members.sort_unstable();
    Ok(members.into_iter().map(|(_, rank)| rank).collect())
}

/// Finishes an operation of the whole job; waits until it is complete.
pub fn finish(job: &mut Job, id: Id, operation: &Operation) -> Result<Done, Error> {
    if let Operation::Barrier = operation {
        return job.finish(id).map(|()| Done::Nothing).map_err(Error::Server);
    }
    let gathered = job.collect(id).map_err(Error::Server)?;
    result(operation, (job.rank, job.size), &mut |members| values(job, &gathered, members))
}

/// Finishes an operation of a group, once its members' values have arrived.
pub fn finish_gather(gather: &[u8], operation: &Operation, (me, size): (u32, u32)) -> Result<Done, Error> {
    let all = gathered(gather, size)?;
    result(operation, (me, size), &mut |members| {
        Ok(members.iter().map(|member| all[*member as usize].clone()).collect())
    })
}

pub fn gathered(gather: &[u8], size: u32) -> Result<Vec<Vec<u8>>, Error> {
    if gather.is_empty() {
        return Ok(vec![Vec::new(); size as usize]);
    }
    let rows = Rows::read(gather).map_err(|_| Error::Mismatch)?;
    let all: Vec<Vec<u8>> = rows.values().map_while(|value| Some(value.ok()?.to_vec())).collect();
    if all.len() == size as usize { Ok(all) } else { Err(Error::Mismatch) }
}

type Values<'v> = &'v mut dyn FnMut(&[u32]) -> Result<Vec<Vec<u8>>, Error>;

/// Computes a member's result. `values` returns the values of the given members, which must be in ascending order.
fn result(operation: &Operation, (me, size): (u32, u32), values: Values<'_>) -> Result<Done, Error> {
    let mut one = |of: u32| Ok(values(&[of])?.pop().unwrap_or_default());
    let done = match operation {
        Operation::Broadcast { root, .. } => Done::Bytes(one(*root)?),
        Operation::Shift(_) => Done::Bytes(one((me + size - 1) % size)?),
        Operation::Allgather { .. } => Done::Rows(values(&all(size))?),
        Operation::Allreduce { reduce, .. } => Done::Bytes(combined(*reduce, &values(&all(size))?)?),
        Operation::Prefix { reduce, is_exclusive, .. } => {
            let before: Vec<u32> = (0..me + u32::from(!is_exclusive)).collect();
            Done::Bytes(combined(*reduce, &values(&before)?)?)
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

/// The values that these ranks contributed to an allgather; `ranks` must be in ascending order.
fn values(job: &mut Job, gathered: &Gathered, ranks: &[u32]) -> Result<Vec<Vec<u8>>, Error> {
    if let Gathered::Array(array) = gathered {
        let array = Rows::read(array).map_err(|_| Error::Mismatch)?;
        let mut wanted = ranks.iter().peekable();
        let all = (0..).zip(array.values()).filter(|(rank, _)| wanted.next_if_eq(&rank).is_some());
        return all.map(|(_, value)| value.map(<[u8]>::to_vec).map_err(|_| Error::Mismatch)).collect();
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

/// Encodes bytes without zeros (COBS): each run of non-zero bytes follows a byte with the run's length plus one. No
/// zero is implied after a run of 254 bytes.
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

/// Decodes what `stuffed` has encoded; `None`: the value is malformed.
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

/// The context from which the contexts of groups of the whole job are derived. It differs from [`WORLD`], because the
/// ranks' network numbers its groups separately.
pub const JOB: Context = !WORLD;

/// The context of the group of all ranks for the secondary library of this name: the same on all ranks, and different
/// for each name.
pub fn named(name: &[u8]) -> Context {
    name.iter().fold(JOB, |of, byte| derived(of, u32::from(*byte), u32::MAX))
}

/// Added to the numbers of groups that are made here from another group: the ranks' network derives contexts from the
/// same group with lower numbers.
const CHILDREN: u32 = 1 << 31;

#[derive(Default)]
pub struct AgentGroups {
    by_context: BTreeMap<Context, AgentGroup>,
    /// `children`: number of groups made from the whole job; `defined`: number of all groups defined at the server.
    children: u32,
    defined: u32,
}

impl AgentGroups {
    /// # Errors
    /// There is no such group: it was freed.
    pub fn get(&mut self, context: Context) -> Result<&mut AgentGroup, Error> {
        self.by_context.get_mut(&context).ok_or(Error::Group(Failure::NoGroup))
    }

    /// The context from which a new group derives its own, and the new group's number; `of`: the group that it is made
    /// from (`None`: the whole job).
    pub fn origin(&mut self, of: Option<Context>) -> Result<(Context, u32), Error> {
        let Some(context) = of else {
            self.children += 1;
            return Ok((JOB, CHILDREN | self.children));
        };
        let group = self.get(context)?;
        group.children += 1;
        Ok((context, CHILDREN | group.children))
    }

    /// Defines a group of ranks at the server, and keeps it under `context`.
    pub fn define(&mut self, job: &mut Job, context: Context, runs: Vec<Run>) -> Result<(), Error> {
        let group = AgentGroup::new(self.defined, job.rank, runs).ok_or(Error::Mismatch)?;
        self.defined += 1;
        let set = job.server().and_then(|server| server.set_group(group.number, &group.runs, context));
        set.map_err(Error::Server)?;
        self.by_context.insert(context, group);
        Ok(())
    }

    /// Defines a group that the ranks' network has made of `size` consecutive ranks; `me`: this rank's place in it.
    pub fn adopt(&mut self, job: &mut Job, context: Context, (me, size): (u32, u32)) -> Result<(), Error> {
        let first = job.rank.checked_sub(me).ok_or(Error::Mismatch)?;
        self.define(job, context, [(first, first + (size - 1))].into())?;
        self.get(context)?.is_formed = true;
        Ok(())
    }

    /// Removes a group. Returns whether the ranks' network has the group too.
    pub fn free(&mut self, job: &mut Job, context: Context) -> bool {
        self.by_context.remove(&context).is_some_and(|group| {
            // If the server is gone, the next wait reports that.
            let _ = job.server().and_then(|server| server.free_group(group.number));
            group.is_formed
        })
    }
}

pub struct AgentGroup {
    /// The server's number for the group.
    pub number: u32,
    /// This rank's place among the members.
    pub me: u32,
    pub runs: Vec<Run>,
    /// Number of groups that were made from this one.
    children: u32,
    /// Whether the ranks' network has the group too.
    is_formed: bool,
}

impl AgentGroup {
    /// `None`: this rank is not a member.
    pub fn new(number: u32, rank: u32, runs: Vec<Run>) -> Option<AgentGroup> {
        let me = place_of(&runs, rank)?;
        Some(AgentGroup { number, me, runs, children: 0, is_formed: false })
    }

    pub fn size(&self) -> u32 {
        size(&self.runs)
    }

    /// The members if the ranks' network does not have the group yet, which the caller must then form there; otherwise
    /// `None`.
    pub fn unformed(&mut self) -> Option<Vec<Run>> {
        (!core::mem::replace(&mut self.is_formed, true)).then(|| self.runs.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_those_of_the_same_colour_by_key_then_by_rank() {
        let wanted = |colour: Option<&[u8]>, key: i64| Wanted { colour: colour.map(<[u8]>::to_vec), key };
        let all = [
            wanted(Some(b"a"), 5),
            wanted(Some(b"b"), 0),
            wanted(None, 0),
            wanted(Some(b"a"), -5),
            wanted(Some(b"a"), 5),
        ];
        let values: Vec<Vec<u8>> = all.iter().map(told).collect();
        let of = |rank: usize| members(&values, &all[rank]);
        assert_eq!((of(0), of(1), of(2)), (Ok(vec![3, 0, 4]), Ok(vec![1]), Ok(vec![])));
        assert_eq!(members(&[vec![1; 7]], &all[0]), Err(Error::Mismatch));
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
