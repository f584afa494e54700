//! Collectives and requests of PMIx between ranks of several jobs, at the root, which knows all jobs of the session.
//!
//! Requests come up a job's tree as those for names do (`job`). Answers and orders go down the tree of their job.
//!
//! ```text
//!   job A, node 0 ── Join ─►┐                                  job A, node 0 ── Fetch ─► root ── Give ─► job B, node 1
//!   job A, node 1 ── Join ─►┼─ root: all nodes have entered          ▲ ◄──── Fetched ──── │ ◄─── Given ────── │
//!   job B, node 1 ── Join ─►┘      └─ Joined ─► each of them
//! ```
//!
//! If a member has departed without entering, or its job is over, the waiting nodes get the answer `RankGone`.
//!
//! *Collectives whose members belong to several jobs.* A node enters for all members that it has. Collectives of the
//! same purpose and members follow each other: a node's n-th entrance belongs to the n-th round.
//!
//! *Requests for data that a rank of another job has committed.* A request waits until the rank's node answers it, or
//! until the rank's job is over. Data that several nodes request is requested once from the rank's node. The request
//! stays open even if all askers have given up, so that a later one for the same data need not be sent again.

#[cfg(test)]
mod tests;

use super::{Cx, JobNode};
use crate::plan;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{AgentId, JobId, NodeId, Rank};
use wireup_wire::inter_job::{Fetch, Fetched, InterJobReport, Joined, Joint, Order, OtherJob, Parent, Purpose};
use wireup_wire::job::JobSpec;
use wireup_wire::limits::{
    ACROSS_ANSWERS_BYTES_MAX, ACROSS_BYTES_MAX, ACROSS_FETCHES_MAX, FAMILY_JOBS_MAX, FRAME_PAYLOAD_MAX,
};
use wireup_wire::names::{Answer, Asker};
use wireup_wire::peer;
use wireup_wire::pmix::{Set, Status, Wanted};
use wireup_wire::talk::ToLauncher;

/// The first PMIx context id of a group of several jobs: ids that a job gives to its own groups are smaller.
const CONTEXT_BASE: u64 = 1 << 48;

/// Size of a message without its data and job descriptions, and overhead of each piece of its data (bytes). Chosen:
/// more than the encoding adds.
const MESSAGE_BYTES: usize = 4096;
const PIECE_BYTES: usize = 16;

type Key = (Purpose, Members);

#[derive(Default)]
pub struct Across {
    rounds: BTreeMap<Key, VecDeque<Round>>,
    /// Bytes of the data of open rounds, with the names of their members.
    bytes: usize,
    contexts: u64,
    /// Ranks that will enter no more collectives, by job. The keys are all jobs whose agents were asked to report such
    /// ranks.
    departed: BTreeMap<JobId, BTreeSet<Rank>>,
    fetches: BTreeMap<u64, OpenFetch>,
    /// Numbers of the open requests for data, by the node of the rank and the data that is wanted.
    tickets: BTreeMap<(JobNode, Wanted), u64>,
    last_ticket: u64,
    told: Told,
}

#[derive(Default)]
struct Round {
    entered: BTreeMap<JobNode, Entrance>,
}

struct Entrance {
    asker: Asker,
    /// Data of the node; `None`: the data did not fit into the root's limit, so the round fails when all nodes have
    /// entered.
    data: Option<Bytes>,
}

impl Entrance {
    fn len(&self) -> usize {
        self.data.as_ref().map_or(0, Bytes::len)
    }
}

struct OpenFetch {
    of: (JobNode, Wanted),
    callers: Vec<Caller>,
}

struct Caller {
    by: (JobNode, Asker),
    /// Whether the caller's node does not have the description of the requested rank's job yet.
    is_new: bool,
}

impl Across {
    /// An agent answers an order of the root, or reports later what an order has asked it to report.
    pub fn on_report(&mut self, cx: &mut Cx, from: JobNode, report: InterJobReport) {
        match report {
            InterJobReport::Given { ticket, status, blob } => self.on_given(cx, from, ticket, (status, blob)),
            InterJobReport::Ended => {
                let ranks = ranks_on(cx, from);
                self.on_departed(cx, from.job, &ranks);
            }
            InterJobReport::Departed { ranks } => self.on_departed(cx, from.job, &ranks),
            InterJobReport::GaveUp { id } => {
                let by = (from, Asker::Server(id));
                self.withdraw(cx, by);
                self.fetches.values_mut().for_each(|open| open.callers.retain(|caller| caller.by != by));
            }
        }
    }

    /// A job has ended everywhere: ends the collectives and requests that involve it.
    pub fn on_job_over(&mut self, cx: &mut Cx, job: JobId) {
        self.departed.remove(&job);
        let concerned = self.rounds.keys().filter(|(_, members)| members.iter().any(|(its, _)| *its == job));
        for key in concerned.cloned().collect::<Vec<_>>() {
            while let Some(round) = self.remove_round(&key, 0) {
                round.fail(cx, Status::RankGone);
            }
        }
        self.fetches.values_mut().for_each(|open| open.callers.retain(|caller| caller.by.0.job != job));
        self.tickets.retain(|(of, _), _| of.job != job);
        let is_of = |(_, open): &(u64, OpenFetch)| open.of.0.job == job;
        let (over, open): (BTreeMap<_, _>, _) = std::mem::take(&mut self.fetches).into_iter().partition(is_of);
        self.fetches = open;
        over.into_values().flat_map(|open| open.callers).for_each(|caller| caller.refuse(cx, Status::RankGone));
        self.told.on_job_over(cx, job);
    }

    /// Number of entries in all tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        let fetches = self.fetches.len() + self.tickets.len();
        self.rounds.len() + self.departed.len() + fetches + self.told.size()
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Collectives whose members belong to several jobs.
impl Across {
    /// The ranks of a node enter a collective of several jobs.
    pub fn on_join(&mut self, cx: &mut Cx, (at, asker): (JobNode, Asker), joint: Joint) {
        // No rank of an ended job waits for an answer.
        if cx.jobs.spec(at.job).is_none() {
            return;
        }
        let key = match checked(cx, at, &joint.members) {
            Ok(members) => (joint.purpose, members),
            Err(status) => return cx.jobs.answer(&mut cx.agent, at, asker, Answer::Failed(status)),
        };
        if !self.rounds.contains_key(&key) {
            let weight = weight(&key.0, &key.1);
            if self.bytes + weight > ACROSS_BYTES_MAX {
                return cx.jobs.answer(&mut cx.agent, at, asker, Answer::Failed(Status::Full));
            }
            self.bytes += weight;
        }
        self.watch(cx, &key.1);
        let has_room = self.bytes + joint.data.len() <= ACROSS_BYTES_MAX;
        let entrance = Entrance { asker, data: has_room.then_some(joint.data) };
        self.bytes += entrance.len();
        let rounds = self.rounds.entry(key.clone()).or_default();
        let at_round = rounds.iter().position(|round| !round.entered.contains_key(&at)).unwrap_or(rounds.len());
        if at_round == rounds.len() {
            rounds.push_back(Round::default());
        }
        rounds[at_round].entered.insert(at, entrance);
        if self.lonely(cx, &key).contains(&at) {
            // A member on this node has departed: the other nodes have got, or will get, the same failure for this
            // round.
            self.remove_round(&key, at_round).into_iter().for_each(|round| round.fail(cx, Status::RankGone));
        }
        self.complete(cx, &key);
        self.give_up_lonely(cx, &key);
    }

    /// Ends the first round if all nodes have entered it; a later round is never complete before the first. Returns
    /// whether the round has ended.
    fn complete(&mut self, cx: &mut Cx, key: &Key) -> bool {
        let Some(round) = self.rounds.get(key).and_then(VecDeque::front) else { return false };
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
            specs.iter().for_each(|spec| self.told.note(spec, at));
            let others = specs.iter().zip(&jobs).filter(|(spec, _)| spec.job != at.job);
            let jobs = others.map(|(_, job)| job.clone()).collect();
            cx.jobs.answer(&mut cx.agent, at, asker, Answer::Joined(Joined { context, data: data.clone(), jobs }));
        }
        let connected = match key.0 {
            Purpose::Connect => true,
            Purpose::Disconnect => false,
            Purpose::Fence | Purpose::Group(_) => return true,
        };
        let jobs: Vec<JobId> = key.1.iter().map(|(job, _)| *job).collect();
        jobs.iter().for_each(|job| cx.up_about(*job, ToLauncher::Together { jobs: jobs.clone(), connected }));
        true
    }

    /// Asks the agents of these jobs to report ranks that will enter no more collectives, unless they were asked
    /// before.
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

    /// Some ranks of a job will enter no more collectives: ends the rounds that wait for them.
    fn on_departed(&mut self, cx: &mut Cx, job: JobId, ranks: &[Rank]) {
        let Some(departed) = self.departed.get_mut(&job) else { return };
        departed.extend(ranks);
        let concerned = self.rounds.keys().filter(|(_, members)| members.iter().any(|(its, _)| *its == job));
        for key in concerned.cloned().collect::<Vec<_>>() {
            self.give_up_lonely(cx, &key);
        }
    }

    /// The nodes with a member that will enter no more collectives.
    fn lonely(&self, cx: &Cx, key: &Key) -> BTreeSet<JobNode> {
        let mut lonely = BTreeSet::new();
        for (job, set) in &key.1 {
            let (Some(spec), Some(departed)) = (cx.jobs.spec(*job), self.departed.get(job)) else { continue };
            let gone = departed.iter().filter(|rank| set.contains(**rank)).filter_map(|rank| agent_of(spec, *rank));
            lonely.extend(gone.map(|agent| JobNode { job: *job, agent }));
        }
        lonely
    }

    /// Ends the rounds that a departed member has not entered.
    fn give_up_lonely(&mut self, cx: &mut Cx, key: &Key) {
        let absent = self.lonely(cx, key);
        let is_lonely = |round: &Round| absent.iter().any(|place| !round.entered.contains_key(place));
        while let Some(at) = self.rounds.get(key).and_then(|rounds| rounds.iter().position(is_lonely)) {
            let round = self.remove_round(key, at).expect("its position was found");
            round.fail(cx, Status::RankGone);
        }
    }

    /// Withdraws the entrance of a node that has stopped waiting. Each later entrance of the node moves to the round
    /// before, since a node's n-th entrance belongs to the n-th round.
    fn withdraw(&mut self, cx: &mut Cx, (at, asker): (JobNode, Asker)) {
        let is_its = |round: &Round| round.entered.get(&at).is_some_and(|entrance| entrance.asker == asker);
        let found =
            self.rounds.iter().find_map(|(key, rounds)| rounds.iter().position(is_its).map(|at| (key.clone(), at)));
        let Some((key, first)) = found else { return };
        let Some(rounds) = self.rounds.get_mut(&key) else { return };
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
        while self.complete(cx, &key) {}
    }

    fn remove_round(&mut self, key: &Key, at: usize) -> Option<Round> {
        let rounds = self.rounds.get_mut(key)?;
        let round = rounds.remove(at)?;
        if rounds.is_empty() {
            self.rounds.remove(key);
            self.bytes -= weight(&key.0, &key.1);
        }
        self.bytes -= round.entered.values().map(Entrance::len).sum::<usize>();
        Some(round)
    }
}

impl Round {
    /// The data of all nodes that have entered; `None`: the data of some node was too long and was dropped.
    fn data(&self) -> Option<Vec<Bytes>> {
        let all = self.entered.values().map(|entrance| entrance.data.clone()).collect::<Option<Vec<_>>>()?;
        Some(all.into_iter().filter(|data| !data.is_empty()).collect())
    }

    fn fail(self, cx: &mut Cx, status: Status) {
        for (at, Entrance { asker, .. }) in self.entered {
            cx.jobs.answer(&mut cx.agent, at, asker, Answer::Failed(status));
        }
    }
}

/// Bytes that a collective's name and its list of members take in memory.
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

/// Requests for data that a rank of another job has committed.
impl Across {
    /// A rank asks for data of another job.
    pub fn on_fetch(&mut self, cx: &mut Cx, (at, asker): (JobNode, Asker), fetch: Fetch) {
        let Fetch { nspace, wanted, is_new } = fetch;
        // No rank of an ended job waits for an answer.
        if cx.jobs.spec(at.job).is_none() {
            return;
        }
        let Some(spec) = job_named(cx, &nspace).filter(|spec| spec.job != at.job) else {
            return cx.jobs.answer(&mut cx.agent, at, asker, Answer::Failed(Status::NotFound));
        };
        let caller = Caller { by: (at, asker), is_new };
        let Some(wanted) = wanted else { return caller.tell(cx, &mut self.told, spec.job, Bytes::new()) };
        let Some(agent) = agent_of(spec, wanted.rank) else {
            return cx.jobs.answer(&mut cx.agent, at, asker, Answer::Failed(Status::NotFound));
        };
        let of = (JobNode { job: spec.job, agent }, wanted);
        if let Some(open) = self.tickets.get(&of).and_then(|ticket| self.fetches.get_mut(ticket)) {
            return open.callers.push(caller);
        }
        if self.fetches.len() >= ACROSS_FETCHES_MAX {
            return cx.jobs.answer(&mut cx.agent, at, asker, Answer::Failed(Status::Full));
        }
        self.last_ticket += 1;
        order(cx, of.0, Order::Give { ticket: self.last_ticket, wanted: of.1.clone() });
        self.tickets.insert(of.clone(), self.last_ticket);
        self.fetches.insert(self.last_ticket, OpenFetch { of, callers: vec![caller] });
    }

    /// The node of a rank has answered an order to give data: answers all callers that want this data.
    fn on_given(&mut self, cx: &mut Cx, from: JobNode, ticket: u64, (status, blob): (Status, Bytes)) {
        if self.fetches.get(&ticket).is_none_or(|open| open.of.0 != from) {
            return;
        }
        let Some(OpenFetch { of, callers }) = self.fetches.remove(&ticket) else { return };
        self.tickets.remove(&of);
        for caller in callers {
            match status {
                Status::Ok => caller.tell(cx, &mut self.told, from.job, blob.clone()),
                status => caller.refuse(cx, status),
            }
        }
    }
}

impl Caller {
    fn tell(self, cx: &mut Cx, told: &mut Told, of: JobId, blob: Bytes) {
        let spec = cx.jobs.spec(of).filter(|_| self.is_new);
        let job = spec.map(|spec| {
            told.note(spec, self.by.0);
            described(spec)
        });
        cx.jobs.answer(&mut cx.agent, self.by.0, self.by.1, Answer::Fetched(Fetched { blob, job }));
    }

    fn refuse(self, cx: &mut Cx, status: Status) {
        cx.jobs.answer(&mut cx.agent, self.by.0, self.by.1, Answer::Failed(status));
    }
}

/// The members of a collective: the set of ranks of each job, in ascending order of the jobs.
pub type Members = Vec<(JobId, Set)>;

/// Finds the job with this namespace, if the job uses PMIx and is not being ended. The job may be about to start.
pub fn job_named<'v>(cx: &'v Cx, nspace: &str) -> Option<&'v Arc<JobSpec>> {
    let spec = cx.jobs.specs().find(|spec| spec.nspace == nspace)?;
    let is_there = cx.jobs.get(&spec.job).is_none_or(|job| !job.is_ending());
    (is_there && spec.options.pmi.flavour.has_pmix()).then_some(spec)
}

/// Checks the members that an agent names for a collective that the agent's node enters, and returns them.
///
/// # Errors
/// A named job does not exist, or the agent names members that no correct agent would name.
pub fn checked(cx: &Cx, at: JobNode, named: &[(String, Set)]) -> Result<Members, Status> {
    if named.len() > FAMILY_JOBS_MAX {
        return Err(Status::BadParam);
    }
    let mut members = Members::new();
    for (nspace, set) in named {
        let spec = job_named(cx, nspace).ok_or(Status::NotFound)?;
        let size = spec.job_size();
        let set = match set {
            Set::All => Set::All,
            Set::Ranks(ranks) => {
                let is_in_order = ranks.is_sorted_by(|one, next| one < next);
                if !is_in_order || ranks.last().is_none_or(|last| last.0 >= size) {
                    return Err(Status::BadParam);
                }
                if ranks.len() == size as usize { Set::All } else { set.clone() }
            }
        };
        members.push((spec.job, set));
    }
    members.sort_unstable();
    let is_once = members.is_sorted_by(|one, next| one.0 < next.0);
    let is_member = agents(cx, &members).contains(&at);
    if is_once && is_member { Ok(members) } else { Err(Status::BadParam) }
}

pub fn agents(cx: &Cx, members: &Members) -> BTreeSet<JobNode> {
    let specs = members.iter().filter_map(|(job, set)| Some((cx.jobs.spec(*job)?, set)));
    specs
        .flat_map(|(spec, set)| agents_of(spec, set).into_iter().map(|agent| JobNode { job: spec.job, agent }))
        .collect()
}

fn agents_of(spec: &JobSpec, set: &Set) -> BTreeSet<AgentId> {
    let Some(mapping) = mapping(spec) else { return BTreeSet::new() };
    let agent = |node: NodeId| spec.nodes.get(node.index()).map(|node| node.agent);
    match set {
        Set::All => {
            let nodes = (0..spec.nodes.len() as u32).map(NodeId).filter(|node| mapping.local_size(*node) > 0);
            nodes.filter_map(agent).collect()
        }
        Set::Ranks(ranks) => {
            ranks.iter().filter_map(|rank| mapping.place(*rank)).filter_map(|(node, _)| agent(node)).collect()
        }
    }
}

pub fn agent_of(spec: &JobSpec, rank: Rank) -> Option<AgentId> {
    let (node, _) = mapping(spec)?.place(rank).filter(|_| rank.0 < spec.job_size())?;
    spec.nodes.get(node.index()).map(|node| node.agent)
}

pub fn ranks_on(cx: &Cx, JobNode { job, agent }: JobNode) -> Vec<Rank> {
    let Some(spec) = cx.jobs.spec(job) else { return Vec::new() };
    let node = spec.nodes.iter().position(|node| node.agent == agent).map(|at| NodeId(at as u32));
    let ranks = mapping(spec).zip(node).map(|(mapping, node)| mapping.ranks_of(node).collect());
    ranks.unwrap_or_default()
}

fn mapping(spec: &JobSpec) -> Option<Mapping> {
    Mapping::new(&spec.blocks, spec.job_size(), spec.nodes.len() as u32).ok()
}

/// Describes a job for the PMIx servers of other jobs.
pub fn described(spec: &JobSpec) -> OtherJob {
    OtherJob {
        nspace: spec.nspace.clone(),
        nodes: spec.nodes.iter().map(|node| (node.agent, node.name.clone())).collect(),
        blocks: spec.blocks.clone(),
        apps: spec.apps.iter().map(plan::described).collect(),
        universe: spec.options.pmi.universe_size,
        parent: spec.spawned.as_ref().map(|by| Parent { nspace: by.nspace.clone(), rank: by.rank }),
    }
}

pub fn order(cx: &mut Cx, at: JobNode, order: Order) {
    cx.jobs.answer(&mut cx.agent, at, Asker::Agent, Answer::Order(order));
}

/// For each job, the nodes of other jobs that have its description. When the job is over, each of them gets
/// `Order::Forget`, so that its PMIx server forgets the job.
#[derive(Default)]
pub struct Told {
    of: BTreeMap<JobId, Known>,
}

struct Known {
    nspace: String,
    by: BTreeSet<JobNode>,
}

impl Told {
    /// Records that a node gets the description of a job.
    pub fn note(&mut self, spec: &JobSpec, to: JobNode) {
        if spec.job != to.job {
            let new = || Known { nspace: spec.nspace.clone(), by: BTreeSet::new() };
            self.of.entry(spec.job).or_insert_with(new).by.insert(to);
        }
    }

    pub fn on_job_over(&mut self, cx: &mut Cx, job: JobId) {
        self.of.retain(|_, known| {
            known.by.retain(|place| place.job != job);
            !known.by.is_empty()
        });
        let Some(Known { nspace, by }) = self.of.remove(&job) else { return };
        by.into_iter().for_each(|place| order(cx, place, Order::Forget { nspace: nspace.clone() }));
    }

    pub fn size(&self) -> usize {
        self.of.len()
    }
}
