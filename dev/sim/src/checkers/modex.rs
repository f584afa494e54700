//! PMIx: a fence delivers what its members had committed, each group has a context id of its own, and no rank receives
//! data that was never committed.

use std::collections::{BTreeMap, BTreeSet};

/// A fence or a group, identical at all of its members.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Call {
    /// Name of the call, unique among all calls.
    pub name: String,
    /// Members of the call, in ascending order; `None`: all ranks of the job.
    pub members: Option<Vec<u32>>,
    pub collect: bool,
    /// Name of the group; `None`: the call is a fence.
    pub group: Option<String>,
}

#[derive(Debug, Default)]
pub struct ModexCheck {
    commits: BTreeMap<u32, u32>,
    /// For each round of a call: the number of commits that each member had made when it entered.
    board: BTreeMap<(String, u32), BTreeMap<u32, u32>>,
    /// For each call and rank: the number of times that the rank has entered the call, and that it was released.
    rounds: BTreeMap<(String, u32), (u32, u32)>,
    contexts: BTreeMap<(String, u32), u64>,
    used: BTreeSet<u64>,
    /// Calls that some member entered with a timeout, so that these calls may end with a timeout error.
    impatient: BTreeSet<String>,
    pub published: BTreeSet<u32>,
    pub events: u64,
    /// Number of times that a server was asked by other nodes for the data of a rank of its node.
    pub wanted: u64,
    /// Number of calls that completed without members that had left, and of calls that timed out.
    pub excused: u32,
    pub timeouts: u32,
    /// Number of fences and groups that completed, counted on each node.
    pub complete: u32,
}

/// Length of a record without padding (bytes).
const RECORD_BYTES: usize = 16;
/// Bit of the rank in a record with padding.
const IS_PADDED: u32 = 1 << 31;

/// The data of a rank's n-th commit: the rank, n, and bytes that only this rank can produce; then, if `bytes` is
/// longer, padding up to that length, which begins with the length and cannot be compressed.
pub fn record(seed: u64, rank: u32, version: u32, bytes: u32) -> Vec<u8> {
    let is_padded = bytes as usize >= RECORD_BYTES + size_of::<u32>();
    let rank_bits = if is_padded { rank | IS_PADDED } else { rank };
    let mut data = [rank_bits.to_le_bytes(), version.to_le_bytes()].concat();
    let mut state = mark(seed, rank, version);
    data.extend_from_slice(&state.to_le_bytes());
    if is_padded {
        data.extend_from_slice(&bytes.to_le_bytes());
        while data.len() < bytes as usize {
            state = crate::rng::mix(state);
            data.extend_from_slice(&state.to_le_bytes());
        }
        data.truncate(bytes as usize);
    }
    data
}

fn mark(seed: u64, rank: u32, version: u32) -> u64 {
    crate::rng::mix(seed ^ (u64::from(rank) << 32 | u64::from(version)))
}

/// The latest record of each rank; `None` if the bytes are not valid records.
pub fn records(seed: u64, bytes: &[u8]) -> Option<BTreeMap<u32, u32>> {
    let (mut known, mut rest) = (BTreeMap::new(), bytes);
    while !rest.is_empty() {
        let number = |at: usize| Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?));
        let (rank, version) = (number(0)? & !IS_PADDED, number(4)?);
        let len = if number(0)? == rank { RECORD_BYTES } else { number(RECORD_BYTES)? as usize };
        let told = u64::from_le_bytes(rest.get(8..RECORD_BYTES)?.try_into().ok()?);
        if told != mark(seed, rank, version) {
            return None;
        }
        let latest: &mut u32 = known.entry(rank).or_default();
        *latest = version.max(*latest);
        rest = rest.get(len.max(RECORD_BYTES)..)?;
    }
    Some(known)
}

impl Call {
    /// The members of the call, in a job of `size` ranks.
    pub fn members(&self, size: u32) -> Box<dyn Iterator<Item = u32> + '_> {
        match &self.members {
            None => Box::new(0..size),
            Some(members) => Box::new(members.iter().copied()),
        }
    }
}

impl ModexCheck {
    pub fn on_commit(&mut self, rank: u32) {
        *self.commits.entry(rank).or_default() += 1;
    }

    pub fn has_committed(&self, rank: u32) -> bool {
        self.commits.contains_key(&rank)
    }

    pub fn on_enter(&mut self, rank: u32, call: &Call, impatient: bool) {
        let round = &mut self.rounds.entry((call.name.clone(), rank)).or_default().0;
        let board = self.board.entry((call.name.clone(), *round)).or_default();
        board.insert(rank, self.commits.get(&rank).copied().unwrap_or(0));
        *round += 1;
        if impatient {
            self.impatient.insert(call.name.clone());
        }
    }

    pub fn has_patience_ended(&self, call: &Call) -> bool {
        self.impatient.contains(&call.name)
    }

    /// Checks the result of a round that all members completed: the result has the data of all members, at least as new
    /// as at the time when each member entered.
    pub fn check_data(
        &self,
        call: &Call,
        known: &BTreeMap<u32, u32>,
        has_left: impl Fn(&u32) -> bool,
    ) -> Result<(), String> {
        // The answer does not say which round it belongs to, so the data of the first round is the minimum.
        let Some(board) = self.board.get(&(call.name.clone(), 0)) else { return Err("no rank has entered it".into()) };
        for (rank, version) in board.iter().filter(|(rank, _)| !has_left(rank)) {
            if known.get(rank).copied().unwrap_or(0) < *version {
                return Err(format!("it lacks what rank {rank} has committed"));
            }
        }
        Ok(())
    }

    /// Records that a round of a group ended for these ranks without the other members.
    pub fn on_excused(&mut self, call: &Call, ranks: &[u32]) {
        for rank in ranks {
            self.rounds.entry((call.name.clone(), *rank)).or_default().1 += 1;
        }
    }

    /// Checks the context id of a group that these ranks have received: all members receive the same one.
    pub fn on_context(&mut self, call: &Call, ranks: &[u32], context: u64) -> Result<(), String> {
        for rank in ranks {
            let round = &mut self.rounds.entry((call.name.clone(), *rank)).or_default().1;
            let known = self.contexts.entry((call.name.clone(), *round)).or_insert(context);
            *round += 1;
            if *known != context {
                return Err(format!("its context is {known} for some and {context} for rank {rank}"));
            }
        }
        let first = ranks.first().map_or(0, |rank| self.rounds[&(call.name.clone(), *rank)].1 - 1);
        let mine = (call.name.clone(), first);
        if !self.used.insert(context) && !self.contexts.iter().any(|(at, of)| *at == mine && *of == context) {
            return Err(format!("its context {context} belongs to another group"));
        }
        if self.contexts.iter().filter(|(_, of)| **of == context).count() > 1 {
            return Err(format!("two groups have the context {context}"));
        }
        Ok(())
    }
}
