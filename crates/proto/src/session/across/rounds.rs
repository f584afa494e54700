//! Collectives whose members belong to several jobs. A node enters for all members that it has.
//!
//! Collectives of the same purpose and members follow each other: a node's n-th entrance belongs to the n-th round.

use super::members::{Members, agent_of, agents, checked};
use super::place::{Place, answer, order};
use super::told::Told;
use crate::session::{Effect, Effects, View, described};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::across::{Joined, Joint, Order, OtherJob, Purpose};
use wireup_wire::ids::{JobId, Rank};
use wireup_wire::limits::ACROSS_BYTES_MAX;
use wireup_wire::names::{Answer, Asker};
use wireup_wire::peer::Control;
use wireup_wire::pmix::Status;

/// Numbers of groups begin here: those that jobs give to groups of their own are smaller.
const CONTEXT_BASE: u64 = 1 << 48;

#[derive(Default)]
pub struct Rounds {
    open: BTreeMap<(Purpose, Members), VecDeque<Round>>,
    /// Data of open rounds.
    bytes: usize,
    contexts: u64,
    /// Jobs whose agents tell which ranks enter no more collectives, and those ranks.
    departed: BTreeMap<JobId, BTreeSet<Rank>>,
}

#[derive(Default)]
struct Round {
    entered: BTreeMap<Place, (Asker, Bytes)>,
}

impl Rounds {
    /// The members on one node have entered.
    pub fn join(
        &mut self,
        view: &View<'_>,
        told: &mut Told,
        (at, asker): (Place, Asker),
        joint: Joint,
        fx: &mut Effects,
    ) {
        // A job that is not there any more waits for nothing.
        if view.jobs.spec(at.job).is_none() {
            return;
        }
        let members = match checked(view, at, &joint.members) {
            Ok(members) if self.bytes + joint.data.len() <= ACROSS_BYTES_MAX => members,
            Ok(_) => return answer(at, asker, Answer::Failed(Status::Full), fx),
            Err(status) => return answer(at, asker, Answer::Failed(status), fx),
        };
        self.watch(view, &members, fx);
        self.bytes += joint.data.len();
        let key = (joint.purpose, members);
        let rounds = self.open.entry(key.clone()).or_default();
        let at_round = rounds.iter().position(|round| !round.entered.contains_key(&at)).unwrap_or(rounds.len());
        if at_round == rounds.len() {
            rounds.push_back(Round::default());
        }
        rounds[at_round].entered.insert(at, (asker, joint.data));
        self.complete(view, told, &key, fx);
        self.give_up_lonely(view, &key, fx);
    }

    /// Ends the first round if all nodes have entered it. No later one can be complete before.
    fn complete(&mut self, view: &View<'_>, told: &mut Told, key: &(Purpose, Members), fx: &mut Effects) {
        let Some(round) = self.open.get(key).and_then(VecDeque::front) else { return };
        if !agents(view, &key.1).iter().all(|place| round.entered.contains_key(place)) {
            return;
        }
        let Some(Round { entered }) = self.take(key, 0) else { return };
        let (purpose, members) = key;
        self.contexts += 1;
        let context = CONTEXT_BASE + self.contexts;
        let data: Vec<Bytes> = entered.values().map(|(_, data)| data.clone()).filter(|data| !data.is_empty()).collect();
        for (at, (asker, _)) in entered {
            let specs = members.iter().filter_map(|(job, _)| view.jobs.spec(*job));
            let jobs: Vec<OtherJob> = specs.filter(|spec| told.is_news(spec, at)).map(|spec| described(spec)).collect();
            answer(at, asker, Answer::Joined(Joined { context, data: data.clone(), jobs }), fx);
        }
        let connected = match purpose {
            Purpose::Connect => true,
            Purpose::Disconnect => false,
            Purpose::Fence | Purpose::Group(_) => return,
        };
        let jobs: Vec<JobId> = members.iter().map(|(job, _)| *job).collect();
        jobs.iter().for_each(|job| fx.push(Effect::Up(*job, Control::Together { jobs: jobs.clone(), connected })));
    }

    /// Asks the agents of these jobs to tell which ranks depart, unless that was done.
    fn watch(&mut self, view: &View<'_>, members: &Members, fx: &mut Effects) {
        for (job, _) in members {
            if self.departed.contains_key(job) {
                continue;
            }
            self.departed.insert(*job, BTreeSet::new());
            let nodes = view.jobs.spec(*job).map(|spec| spec.nodes.as_slice()).unwrap_or_default();
            nodes.iter().for_each(|node| order(Place { job: *job, agent: node.agent }, Order::TellDeparted, fx));
        }
    }

    /// These ranks enter no more collectives: nobody waits for them.
    pub fn on_departed(&mut self, view: &View<'_>, job: JobId, ranks: &[Rank], fx: &mut Effects) {
        let Some(departed) = self.departed.get_mut(&job) else { return };
        departed.extend(ranks);
        let concerned = self.open.keys().filter(|(_, members)| members.iter().any(|(its, _)| *its == job));
        for key in concerned.cloned().collect::<Vec<_>>() {
            self.give_up_lonely(view, &key, fx);
        }
    }

    /// Ends the rounds that a departed member has not entered and will not.
    fn give_up_lonely(&mut self, view: &View<'_>, key: &(Purpose, Members), fx: &mut Effects) {
        let mut absent: BTreeSet<Place> = BTreeSet::new();
        for (job, set) in &key.1 {
            let (Some(spec), Some(departed)) = (view.jobs.spec(*job), self.departed.get(job)) else { continue };
            let gone = departed.iter().filter(|rank| set.contains(**rank)).filter_map(|rank| agent_of(spec, *rank));
            absent.extend(gone.map(|agent| Place { job: *job, agent }));
        }
        let is_lonely = |round: &Round| absent.iter().any(|place| !round.entered.contains_key(place));
        while let Some(at) = self.open.get(key).and_then(|rounds| rounds.iter().position(is_lonely)) {
            let round = self.take(key, at).expect("its position was found");
            round.give_up(fx);
        }
    }

    /// A node does not wait any more: it has not entered.
    pub fn withdraw(&mut self, (at, asker): (Place, Asker)) {
        let bytes = &mut self.bytes;
        self.open.retain(|_, rounds| {
            for round in rounds.iter_mut() {
                if round.entered.get(&at).is_some_and(|(its, _)| *its == asker)
                    && let Some((_, data)) = round.entered.remove(&at)
                {
                    *bytes -= data.len();
                }
            }
            rounds.retain(|round| !round.entered.is_empty());
            !rounds.is_empty()
        });
    }

    fn take(&mut self, key: &(Purpose, Members), at: usize) -> Option<Round> {
        let rounds = self.open.get_mut(key)?;
        let round = rounds.remove(at)?;
        if rounds.is_empty() {
            self.open.remove(key);
        }
        self.bytes -= round.entered.values().map(|(_, data)| data.len()).sum::<usize>();
        Some(round)
    }

    pub fn on_job_over(&mut self, job: JobId, fx: &mut Effects) {
        self.departed.remove(&job);
        let concerned = self.open.keys().filter(|(_, members)| members.iter().any(|(its, _)| *its == job));
        for key in concerned.cloned().collect::<Vec<_>>() {
            while let Some(round) = self.take(&key, 0) {
                round.give_up(fx);
            }
        }
    }

    pub fn size(&self) -> usize {
        self.open.len() + self.departed.len()
    }
}

impl Round {
    fn give_up(self, fx: &mut Effects) {
        for (at, (asker, _)) in self.entered {
            answer(at, asker, Answer::Failed(Status::RankGone), fx);
        }
    }
}
