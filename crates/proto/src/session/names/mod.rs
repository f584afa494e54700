//! The names that the ranks of all jobs of the session have published, and the look-ups that wait for names: at the
//! root.
//!
//! Requests come up a job's tree (`job`), from PMI and PMIx alike; answers go back to the same job. A name
//! exists once in each scope: of a node, of a job, of the session. It ends with its publisher's job. Look-ups that wait
//! are answered as soon as enough of their names exist, in order of arrival.

use super::{Cx, JobNode};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::{AgentId, JobId, Rank};
use wireup_wire::limits::{NAMES_BYTES_MAX, NAMES_OF_JOB_BYTES_MAX, PMIX_ASKS_MAX};
use wireup_wire::names::{Answer, Ask, Asker, Found, Item, Keep, Publisher, Range, Refusal, Up};

/// Bytes that a name counts towards the limits in addition to its text and value, also in a look-up. A look-up counts
/// at least this much.
const NAME_OVERHEAD: usize = 128;

#[derive(Default)]
pub struct Names {
    names: BTreeMap<(Scope, Bytes), Entry>,
    waiting: Waiting,
    room: Room,
}

/// The ranks that can look up a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Scope {
    Node(AgentId),
    Job(JobId),
    Session,
}

struct Entry {
    at: JobNode,
    nspace: String,
    from: Rank,
    keep: Keep,
    value: wireup_wire::names::Value,
}

type AddressedAnswer = (JobNode, Asker, Answer);

fn scope(range: Range, at: JobNode) -> Scope {
    match range {
        Range::Node => Scope::Node(at.agent),
        Range::Job => Scope::Job(at.job),
        Range::Session => Scope::Session,
    }
}

impl Entry {
    fn cost(&self, name: &Bytes) -> usize {
        NAME_OVERHEAD + name.len() + self.value.len()
    }
}

impl LookUp {
    fn cost(&self) -> usize {
        NAME_OVERHEAD * self.names.len().max(1) + self.names.iter().map(Bytes::len).sum::<usize>()
    }

    fn refused(&self, refusal: Refusal) -> AddressedAnswer {
        (self.at, self.asker, Answer::Refused(refusal))
    }
}

impl Names {
    pub fn on_message(&mut self, cx: &mut Cx, job: JobId, message: Up) {
        match message {
            Up::Ask { agent, asker, from, ask } => self.serve(cx, JobNode { job, agent }, asker, from, ask),
            Up::Left { rank } => self.on_left(job, rank),
            // Reports are handled by `session/across`.
            Up::Report { .. } => {}
        }
    }

    /// Refuses look-ups that have waited for too long.
    pub fn on_tick(&mut self, cx: &mut Cx) {
        self.take_late(cx.agent.now).into_iter().for_each(|told| answer(cx, told));
    }

    fn serve(&mut self, cx: &mut Cx, at: JobNode, asker: Asker, from: Rank, ask: Ask) {
        // No rank of an ended job waits for an answer.
        let Some(spec) = cx.jobs.spec(at.job) else { return };
        match ask {
            Ask::Publish { items, range, keep } => {
                let names: Vec<_> = items.iter().map(|item| item.name.clone()).collect();
                let told = self.publish(at, (&spec.nspace, from), items, range, keep);
                answer(cx, (at, asker, told));
                self.take_found(&names).into_iter().for_each(|told| answer(cx, told));
            }
            Ask::LookUp { names, range, wait, timeout_s } => {
                let until = cx.agent.now.until(timeout_s);
                let told = self.look_up(LookUp { at, asker, names, range, wait, until });
                told.into_iter().for_each(|told| answer(cx, told));
            }
            Ask::Withdraw { names, range, by } => {
                let told = self.withdraw(at, from, &names, range, by);
                answer(cx, (at, asker, told));
            }
            // Requests for processes go to the job's launcher; requests about other jobs are handled by
            // `session/across`.
            Ask::Spawn(_) | Ask::Join(_) | Ask::Fetch(_) => {}
        }
    }

    fn publish(
        &mut self,
        at: JobNode,
        (nspace, from): (&str, Rank),
        items: Vec<Item>,
        range: Range,
        keep: Keep,
    ) -> Answer {
        let scope = scope(range, at);
        if items.iter().any(|item| self.names.contains_key(&(scope, item.name.clone()))) {
            return Answer::Refused(Refusal::Taken);
        }
        let cost = items.iter().map(|item| NAME_OVERHEAD + item.name.len() + item.value.len()).sum();
        if !self.room.reserve(at.job, cost) {
            return Answer::Refused(Refusal::Full);
        }
        for Item { name, value } in items {
            let entry = Entry { at, nspace: nspace.into(), from, keep, value };
            // If a request has the same name twice, the last value is kept.
            if let Some(before) = self.names.insert((scope, name.clone()), entry) {
                self.room.free(at.job, before.cost(&name));
            }
        }
        Answer::Done
    }

    /// Withdraws names of a publisher; with no names, all names of that publisher in this range.
    fn withdraw(&mut self, at: JobNode, from: Rank, names: &[Bytes], range: Range, by: Publisher) -> Answer {
        let scope = scope(range, at);
        let before = self.names.len();
        self.retain(|(its, name), entry| {
            let is_by = entry.at.job == at.job && (by == Publisher::Job || entry.from == from);
            !(*its == scope && is_by && (names.is_empty() || names.contains(name)))
        });
        if names.is_empty() || self.names.len() < before { Answer::Done } else { Answer::Refused(Refusal::NotFound) }
    }

    /// A rank has ended: removes the names that it has published with `Keep::Rank`.
    fn on_left(&mut self, job: JobId, rank: Rank) {
        self.retain(|_, entry| !(entry.at.job == job && entry.from == rank && entry.keep == Keep::Rank));
    }

    /// A job has ended everywhere: removes its names and look-ups.
    pub fn on_job_over(&mut self, job: JobId) {
        self.retain(|_, entry| entry.at.job != job);
        for number in self.waiting.of_job(job) {
            self.give_up(number);
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(&(Scope, Bytes), &Entry) -> bool) {
        let room = &mut self.room;
        self.names.retain(|at, entry| {
            let kept = keep(at, entry);
            if !kept {
                room.free(entry.at.job, entry.cost(&at.1));
            }
            kept
        });
    }

    /// Looks up names, or starts to wait for them.
    fn look_up(&mut self, mut lookup: LookUp) -> Option<AddressedAnswer> {
        // Each name is looked up once: an answer is never longer than all names of the session.
        let mut seen = BTreeSet::new();
        lookup.names.retain(|name| seen.insert(name.clone()));
        if let Some(answer) = self.found(&lookup) {
            return Some((lookup.at, lookup.asker, answer));
        }
        if lookup.wait == 0 {
            return Some(lookup.refused(Refusal::NotFound));
        }
        if self.waiting.all.len() >= PMIX_ASKS_MAX || !self.room.reserve(lookup.at.job, lookup.cost()) {
            return Some(lookup.refused(Refusal::Full));
        }
        self.waiting.push(lookup);
        None
    }

    /// Removes the look-ups that can be answered now that these names were published; returns their answers.
    fn take_found(&mut self, names: &[Bytes]) -> Vec<AddressedAnswer> {
        let mut told = Vec::new();
        for number in self.waiting.that_want(names) {
            let Some(lookup) = self.waiting.all.get(&number).cloned() else { continue };
            if let Some(answer) = self.found(&lookup) {
                self.give_up(number);
                told.push((lookup.at, lookup.asker, answer));
            }
        }
        told
    }

    /// Removes the look-ups that have waited for too long; returns their answers.
    fn take_late(&mut self, now: Instant) -> Vec<AddressedAnswer> {
        let late = self.waiting.late(now).into_iter().filter_map(|number| self.give_up(number));
        late.map(|lookup| lookup.refused(Refusal::TimedOut)).collect()
    }

    /// Removes a waiting look-up, and frees its bytes.
    fn give_up(&mut self, number: u64) -> Option<LookUp> {
        let lookup = self.waiting.remove(number)?;
        self.room.free(lookup.at.job, lookup.cost());
        Some(lookup)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.due.first().map(|(until, _)| *until)
    }

    /// Number of names and look-ups, for the simulator's checkers.
    pub fn size(&self) -> usize {
        self.names.len() + self.waiting.all.len()
    }

    /// The answer to a look-up, if at least as many of its names exist as it waits for. Removes names that are kept
    /// only until they are first read.
    fn found(&mut self, lookup: &LookUp) -> Option<Answer> {
        let there: Vec<_> = lookup.names.iter().filter_map(|name| self.find(lookup, name)).collect();
        let enough = (lookup.wait as usize).min(lookup.names.len()).max(1);
        if there.len() < enough {
            return None;
        }
        let mut found = Vec::new();
        for at in there {
            let Some(entry) = self.names.get(&at) else { continue };
            let item = Item { name: at.1.clone(), value: entry.value.clone() };
            found.push(Found { nspace: entry.nspace.clone(), rank: entry.from, item });
            if entry.keep == Keep::FirstRead {
                self.retain(|its, _| *its != at);
            }
        }
        Some(Answer::Found(found))
    }

    /// Finds the entry of a name for a look-up, among the entries that the asking rank can see. A narrow scope takes
    /// precedence over a wide one.
    fn find(&self, lookup: &LookUp, name: &Bytes) -> Option<(Scope, Bytes)> {
        let LookUp { at: JobNode { job, agent }, range, .. } = *lookup;
        let is_meant = |entry: &Entry| match range {
            Range::Node => entry.at.agent == agent,
            Range::Job => entry.at.job == job,
            Range::Session => true,
        };
        let scopes = [Scope::Node(agent), Scope::Job(job), Scope::Session];
        scopes.map(|scope| (scope, name.clone())).into_iter().find(|at| self.names.get(at).is_some_and(is_meant))
    }
}

fn answer(cx: &mut Cx, (at, asker, answer): AddressedAnswer) {
    cx.jobs.answer(&mut cx.agent, at, asker, answer);
}

/// Limits the bytes of the names and look-ups of each job, and of all jobs together.
#[derive(Default)]
struct Room {
    /// Bytes used by each job that uses some.
    of_jobs: BTreeMap<JobId, usize>,
    used: usize,
}

impl Room {
    /// Reserves bytes for a job. Returns `false` if fewer bytes are left.
    fn reserve(&mut self, job: JobId, bytes: usize) -> bool {
        let of_job = self.of_jobs.get(&job).copied().unwrap_or(0) + bytes;
        if of_job > NAMES_OF_JOB_BYTES_MAX || self.used + bytes > NAMES_BYTES_MAX {
            return false;
        }
        if bytes > 0 {
            self.of_jobs.insert(job, of_job);
            self.used += bytes;
        }
        true
    }

    /// # Panics
    /// If the job has reserved fewer bytes.
    fn free(&mut self, job: JobId, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let of_job = self.of_jobs.get_mut(&job).expect("a job frees only what it has taken");
        *of_job -= bytes;
        self.used -= bytes;
        if *of_job == 0 {
            self.of_jobs.remove(&job);
        }
    }

    #[cfg(test)]
    fn used(&self) -> usize {
        assert_eq!(self.of_jobs.values().sum::<usize>(), self.used);
        self.used
    }

    #[cfg(test)]
    fn is_unused(&self) -> bool {
        self.used == 0 && self.of_jobs.is_empty()
    }
}

/// A look-up, and where to send the answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookUp {
    pub at: JobNode,
    pub asker: Asker,
    pub names: Vec<Bytes>,
    pub range: Range,
    /// The number of names that must exist before the look-up is answered; 0: answered at once.
    pub wait: u32,
    pub until: Option<Instant>,
}

#[derive(Default)]
pub struct Waiting {
    /// Look-ups by number, in order of arrival.
    all: BTreeMap<u64, LookUp>,
    by_name: BTreeSet<(Bytes, u64)>,
    due: BTreeSet<(Instant, u64)>,
    next: u64,
}

impl Waiting {
    pub fn push(&mut self, lookup: LookUp) {
        let number = self.next;
        self.next += 1;
        self.by_name.extend(lookup.names.iter().map(|name| (name.clone(), number)));
        self.due.extend(lookup.until.map(|until| (until, number)));
        self.all.insert(number, lookup);
    }

    pub fn remove(&mut self, number: u64) -> Option<LookUp> {
        let lookup = self.all.remove(&number)?;
        for name in &lookup.names {
            self.by_name.remove(&(name.clone(), number));
        }
        if let Some(until) = lookup.until {
            self.due.remove(&(until, number));
        }
        Some(lookup)
    }

    /// Numbers of the look-ups that wait for one of these names, in order of arrival.
    pub fn that_want(&self, names: &[Bytes]) -> BTreeSet<u64> {
        let of = |name: &Bytes| self.by_name.range((name.clone(), 0)..=(name.clone(), u64::MAX));
        names.iter().flat_map(of).map(|(_, number)| *number).collect()
    }

    pub fn of_job(&self, job: JobId) -> Vec<u64> {
        self.all.iter().filter(|(_, lookup)| lookup.at.job == job).map(|(number, _)| *number).collect()
    }

    /// Numbers of the look-ups that have waited for too long.
    pub fn late(&self, now: Instant) -> Vec<u64> {
        self.due.iter().take_while(|(until, _)| *until <= now).map(|(_, number)| *number).collect()
    }

    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &LookUp> {
        let names: usize = self.all.values().map(|lookup| lookup.names.len()).sum();
        assert_eq!((self.by_name.len(), self.due.len() <= self.all.len()), (names, true));
        self.all.values()
    }
}

#[cfg(test)]
mod tests;
