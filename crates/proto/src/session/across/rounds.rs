//! Collectives whose members belong to several jobs. A node enters for all members that it has.
//!
//! Collectives of the same purpose and members follow each other: a node's n-th entrance belongs to the n-th round.

use super::nodes::{Members, Told, agent_of, agents, checked, described, order};
use crate::session::{Cx, JobNode};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::ids::{JobId, Rank};
use wireup_wire::inter_job::{Joined, Joint, Order, OtherJob, Purpose};
use wireup_wire::limits::{ACROSS_ANSWERS_BYTES_MAX, ACROSS_BYTES_MAX, FRAME_PAYLOAD_MAX};
use wireup_wire::names::{Answer, Asker};
use wireup_wire::peer;
use wireup_wire::pmix::{Set, Status};
use wireup_wire::talk::{Control, ToLauncher};

/// The first number for a group of several jobs: numbers that jobs give to their own groups are smaller.
const CONTEXT_BASE: u64 = 1 << 48;

/// Bytes of a message besides data and descriptions, and besides each piece of data. Chosen: more than the encoding
/// adds.
const MESSAGE_BYTES: usize = 4096;
const PIECE_BYTES: usize = 16;

type Key = (Purpose, Members);

#[derive(Default)]
pub struct Rounds {
    open: BTreeMap<Key, VecDeque<Round>>,
    /// Bytes of the data of open rounds, with the names of their members.
    bytes: usize,
    contexts: u64,
    /// Ranks that will enter no more collectives, by job. The keys are all jobs whose agents were asked to report such
    /// ranks.
    departed: BTreeMap<JobId, BTreeSet<Rank>>,
}

#[derive(Default)]
struct Round {
    entered: BTreeMap<JobNode, Entrance>,
}

struct Entrance {
    asker: Asker,
    /// Data of the node; `None`: the data was too long, so the round fails when all nodes have entered.
    data: Option<Bytes>,
}

impl Entrance {
    fn len(&self) -> usize {
        self.data.as_ref().map_or(0, Bytes::len)
    }
}

impl Rounds {
    /// The members on one node have entered.
    pub fn join(&mut self, cx: &mut Cx, told: &mut Told, (at, asker): (JobNode, Asker), joint: Joint) {
        // A job that has ended waits for nothing.
        if cx.jobs.spec(at.job).is_none() {
            return;
        }
        let key = match checked(cx, at, &joint.members) {
            Ok(members) => (joint.purpose, members),
            Err(status) => return cx.answer_job(at, asker, Answer::Failed(status)),
        };
        if !self.open.contains_key(&key) {
            let weight = weight(&key.0, &key.1);
            if self.bytes + weight > ACROSS_BYTES_MAX {
                return cx.answer_job(at, asker, Answer::Failed(Status::Full));
            }
            self.bytes += weight;
        }
        self.watch(cx, &key.1);
        let has_room = self.bytes + joint.data.len() <= ACROSS_BYTES_MAX;
        let entrance = Entrance { asker, data: has_room.then_some(joint.data) };
        self.bytes += entrance.len();
        let rounds = self.open.entry(key.clone()).or_default();
        let at_round = rounds.iter().position(|round| !round.entered.contains_key(&at)).unwrap_or(rounds.len());
        if at_round == rounds.len() {
            rounds.push_back(Round::default());
        }
        rounds[at_round].entered.insert(at, entrance);
        if self.lonely(cx, &key).contains(&at) {
            // The other nodes were told, or will be, that a member on this node is gone.
            self.remove_round(&key, at_round).into_iter().for_each(|round| round.fail(cx, Status::RankGone));
        }
        self.complete(cx, told, &key);
        self.give_up_lonely(cx, &key);
    }

    /// Ends the first round if all nodes have entered it. No later one can be complete before. Returns whether it has
    /// ended.
    fn complete(&mut self, cx: &mut Cx, told: &mut Told, key: &Key) -> bool {
        let Some(round) = self.open.get(key).and_then(VecDeque::front) else { return false };
        if !agents(cx, &key.1).iter().all(|place| round.entered.contains_key(place)) {
            return false;
        }
        let Some(round) = self.remove_round(key, 0) else { return false };
        let specs: Vec<_> = key.1.iter().filter_map(|(job, _)| cx.jobs.spec(*job).cloned()).collect();
        let jobs: Vec<OtherJob> = specs.iter().map(|spec| described(spec)).collect();
        let places = round.entered.len();
        let Some(data) = round.data().filter(|data| fits(data, &jobs, places)) else {
            round.fail(cx, Status::Full);
            return true;
        };
        self.contexts += 1;
        let context = CONTEXT_BASE + self.contexts;
        for (at, Entrance { asker, .. }) in round.entered {
            specs.iter().for_each(|spec| told.note(spec, at));
            let others = specs.iter().zip(&jobs).filter(|(spec, _)| spec.job != at.job);
            let jobs = others.map(|(_, job)| job.clone()).collect();
            cx.answer_job(at, asker, Answer::Joined(Joined { context, data: data.clone(), jobs }));
        }
        let connected = match key.0 {
            Purpose::Connect => true,
            Purpose::Disconnect => false,
            Purpose::Fence | Purpose::Group(_) => return true,
        };
        let jobs: Vec<JobId> = key.1.iter().map(|(job, _)| *job).collect();
        jobs.iter().for_each(|job| {
            cx.up_about(*job, Control::ToLauncher(ToLauncher::Together { jobs: jobs.clone(), connected }))
        });
        true
    }

    /// Asks the agents of these jobs to report ranks that depart, unless they were asked before.
    fn watch(&mut self, cx: &mut Cx, members: &Members) {
        for (job, _) in members {
            if self.departed.contains_key(job) {
                continue;
            }
            self.departed.insert(*job, BTreeSet::new());
            let spec = cx.jobs.spec(*job).cloned();
            let nodes = spec.iter().flat_map(|spec| &spec.nodes);
            nodes.for_each(|node| order(cx, JobNode { job: *job, agent: node.agent }, Order::TellDeparted));
        }
    }

    /// Ranks of a job enter no more collectives: nobody waits for them.
    pub fn on_departed(&mut self, cx: &mut Cx, job: JobId, ranks: &[Rank]) {
        let Some(departed) = self.departed.get_mut(&job) else { return };
        departed.extend(ranks);
        let concerned = self.open.keys().filter(|(_, members)| members.iter().any(|(its, _)| *its == job));
        for key in concerned.cloned().collect::<Vec<_>>() {
            self.give_up_lonely(cx, &key);
        }
    }

    /// The nodes that have a member which will enter no more collectives.
    fn lonely(&self, cx: &Cx, key: &Key) -> BTreeSet<JobNode> {
        let mut lonely = BTreeSet::new();
        for (job, set) in &key.1 {
            let (Some(spec), Some(departed)) = (cx.jobs.spec(*job), self.departed.get(job)) else { continue };
            let gone = departed.iter().filter(|rank| set.contains(**rank)).filter_map(|rank| agent_of(spec, *rank));
            lonely.extend(gone.map(|agent| JobNode { job: *job, agent }));
        }
        lonely
    }

    /// Ends the rounds that a departed member has not entered and will not.
    fn give_up_lonely(&mut self, cx: &mut Cx, key: &Key) {
        let absent = self.lonely(cx, key);
        let is_lonely = |round: &Round| absent.iter().any(|place| !round.entered.contains_key(place));
        while let Some(at) = self.open.get(key).and_then(|rounds| rounds.iter().position(is_lonely)) {
            let round = self.remove_round(key, at).expect("its position was found");
            round.fail(cx, Status::RankGone);
        }
    }

    /// Withdraws the entrance of a node that has stopped waiting. Each later entrance of the node moves to the round
    /// before, since a node's n-th entrance belongs to the n-th round.
    pub fn withdraw(&mut self, cx: &mut Cx, told: &mut Told, (at, asker): (JobNode, Asker)) {
        let is_its = |round: &Round| round.entered.get(&at).is_some_and(|entrance| entrance.asker == asker);
        let found =
            self.open.iter().find_map(|(key, rounds)| rounds.iter().position(is_its).map(|at| (key.clone(), at)));
        let Some((key, first)) = found else { return };
        let Some(rounds) = self.open.get_mut(&key) else { return };
        let mut later = None;
        for round in rounds.iter_mut().skip(first).rev() {
            let entrance = round.entered.remove(&at);
            round.entered.extend(later.map(|entrance| (at, entrance)));
            later = entrance;
        }
        self.bytes -= later.as_ref().map_or(0, Entrance::len);
        // Only the last round can be empty: whoever has entered a round has entered the rounds before it.
        if rounds.back().is_some_and(|round| round.entered.is_empty()) {
            let last = rounds.len() - 1;
            self.remove_round(&key, last);
        }
        while self.complete(cx, told, &key) {}
    }

    fn remove_round(&mut self, key: &Key, at: usize) -> Option<Round> {
        let rounds = self.open.get_mut(key)?;
        let round = rounds.remove(at)?;
        if rounds.is_empty() {
            self.open.remove(key);
            self.bytes -= weight(&key.0, &key.1);
        }
        self.bytes -= round.entered.values().map(Entrance::len).sum::<usize>();
        Some(round)
    }

    pub fn on_job_over(&mut self, cx: &mut Cx, job: JobId) {
        self.departed.remove(&job);
        let concerned = self.open.keys().filter(|(_, members)| members.iter().any(|(its, _)| *its == job));
        for key in concerned.cloned().collect::<Vec<_>>() {
            while let Some(round) = self.remove_round(&key, 0) {
                round.fail(cx, Status::RankGone);
            }
        }
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn size(&self) -> usize {
        self.open.len() + self.departed.len()
    }
}

impl Round {
    /// The data of all nodes that have entered; `None`: the data of some node was too long.
    fn data(&self) -> Option<Vec<Bytes>> {
        let all = self.entered.values().map(|entrance| entrance.data.clone()).collect::<Option<Vec<_>>>()?;
        Some(all.into_iter().filter(|data| !data.is_empty()).collect())
    }

    fn fail(self, cx: &mut Cx, status: Status) {
        for (at, Entrance { asker, .. }) in self.entered {
            cx.answer_job(at, asker, Answer::Failed(status));
        }
    }
}

/// Bytes of the names of a collective and of its members.
fn weight(purpose: &Purpose, members: &Members) -> usize {
    let name = match purpose {
        Purpose::Group(name) => name.len(),
        Purpose::Fence | Purpose::Connect | Purpose::Disconnect => 0,
    };
    let ranks = |set: &Set| match set {
        Set::All => 0,
        Set::Ranks(ranks) => size_of_val(&ranks[..]),
    };
    name + members.iter().map(|(_, set)| size_of_val(set) + ranks(set)).sum::<usize>()
}

/// Whether the result of a collective fits into a frame, and one copy of it for each of `places` nodes fits into the
/// memory that the root may use for answers.
fn fits(data: &[Bytes], jobs: &[OtherJob], places: usize) -> bool {
    let data: usize = data.iter().map(|data| data.len() + PIECE_BYTES).sum();
    let jobs: usize = jobs.iter().map(|job| peer::encode(job).len()).sum();
    let message = data + jobs + MESSAGE_BYTES;
    message <= FRAME_PAYLOAD_MAX && message.saturating_mul(places) <= ACROSS_ANSWERS_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_must_fit_into_a_frame_and_into_memory() {
        let data = |len: usize| [Bytes::from(vec![0; len])];
        assert!(fits(&data(1 << 20), &[], 4000));
        assert!(!fits(&data(1 << 20), &[], 5000));
        assert!(!fits(&data(FRAME_PAYLOAD_MAX - 100), &[], 1));
    }

    #[test]
    fn names_and_lists_of_ranks_have_weight() {
        let members = vec![(JobId(1), Set::Ranks(vec![Rank(0); 1000])), (JobId(2), Set::All)];
        let fence = weight(&Purpose::Fence, &members);
        assert!(fence >= 4000);
        assert_eq!(weight(&Purpose::Group("abc".into()), &members), fence + 3);
    }
}
