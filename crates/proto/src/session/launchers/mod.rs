//! Requests of the launchers that are attached to the root, and their jobs: starting them down the session's tree, and
//! cleaning up after them.
//!
//! Each link has a job number; a launcher's messages about other jobs are refused, except for requests to end them,
//! since all launchers belong to the same user. When a launcher detaches, its job ends, but no other.
//!
//! `Start` is forwarded towards the job's nodes, also by agents outside the job, which keep nothing. It lists the live
//! jobs, so that agents can distinguish frames that are too late from frames that are too early. A job whose nodes are
//! still starting waits (`deferred`).
//!
//! In a session of one run there is one launcher, which acts as the root's parent; nothing is attached. In both kinds
//! of session, a request of a rank for processes goes to the launcher of its job ([`Spawns`]).

mod deferred;
mod loads;
mod ports;
#[cfg(test)]
mod tests;

use super::membership::Nodes;
use super::{Begin, Cx, JobNode, UNKNOWN_NODE, placement};
use crate::io::LinkId;
use crate::job::{Job, JobTree, agents_of};
use crate::outbox::control_frame;
use crate::time::Instant;
use deferred::{DeferredJob, DeferredJobs, Later};
use loads::Loads;
use ports::Ports;
use std::collections::{BTreeMap, VecDeque};
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::Tree;
use wireup_wire::frame::{DownFrame, Frame};
use wireup_wire::ids::{AgentId, JobId, Rank};
use wireup_wire::job::{JobSpec, NodeSpec};
use wireup_wire::limits::{ADDED_HOSTS_MAX, FAMILY_JOBS_MAX, KILLED_BY_LEN_MAX, LISTED_NAME_LEN_MAX};
use wireup_wire::names::{Answer, Asker, NewJob};
use wireup_wire::peer::{Cause, Ended, Failure, MissingAgent, Note};
use wireup_wire::pmi::SpawnRequest;
use wireup_wire::session::{JobEntry, JobState, Welcome};
use wireup_wire::signal::is_fatal;
use wireup_wire::talk::{Control, FromLauncher, JobDown, SessionDown, ToLauncher};

/// The largest valid signal number.
const SIGNAL_MAX: i32 = 64;

#[derive(Default)]
pub struct Launchers {
    /// The last job number that was given to a launcher.
    newest: JobId,
    attached: BTreeMap<LinkId, Attached>,
    /// Jobs in progress, and when they started.
    begun: BTreeMap<JobId, Instant>,
    deferred: DeferredJobs,
    loads: Loads,
    /// Ports that agents have reserved for ranks.
    pub ports: Ports,
    /// Jobs that ranks have asked for.
    pub spawns: Spawns,
    /// The reason for which the session is ending; `None`: it is not ending.
    ending: Option<String>,
    /// Actions that the session must carry out for launchers, in order.
    pub asked: VecDeque<Asked>,
}

struct Attached {
    job: JobId,
    has_launched: bool,
    /// Whether the launcher has asked for a list of the nodes. Requests that arrive in one read get one answer, since a
    /// request has a few bytes, and its answer a few bytes per node or job.
    asks_nodes: bool,
    asks_jobs: bool,
    /// Whether the launcher waits until all nodes are up or known to be missing.
    waits_for_nodes: bool,
}

/// What the agent has to do for the launchers.
pub enum Asked {
    /// Starts all lost agents again.
    Revive,
    /// Gives numbers to the agents of the hosts that this job adds. `link`: the link of its launcher.
    Number { spec: Box<JobSpec>, link: LinkId },
    /// Starts the agents that were added for this job, which waits for them.
    StartAdded(JobId),
    /// Starts a job on this agent, then delivers what its launcher has sent for its ranks before. `live`: the newest
    /// job's number, and the jobs that may still send frames.
    Start { begin: Box<Begin>, live: (JobId, Vec<JobId>), later: Vec<Later> },
}

impl Launchers {
    pub fn is_attached(&self, link: LinkId) -> bool {
        self.attached.contains_key(&link)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deferred.deadline()
    }

    /// Number of entries in all growing tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        self.attached.len()
            + self.begun.len()
            + self.deferred.jobs.len()
            + self.spawns.requests.len()
            + self.loads.jobs.len()
    }

    pub fn attach(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId) {
        self.newest = JobId(self.newest.0 + 1);
        let job = self.newest;
        let attached =
            Attached { job, has_launched: false, asks_nodes: false, asks_jobs: false, waits_for_nodes: false };
        self.attached.insert(link, attached);
        let welcome = Welcome {
            job,
            session: cx.session.name.clone(),
            fanout: cx.session.fanout,
            shared: cx.session.remote_shell.start_method().same_machine,
            by_step: cx.is_by_step(),
            transport: cx.session.links.transport,
            nodes: nodes.own().to_vec(),
        };
        cx.agent.links.out.send(link, control_frame(job, &ToLauncher::Welcome(welcome).into()));
    }

    pub fn on_down(&mut self, cx: &mut Cx, link: LinkId) {
        let jobs = cx.agent.links.owners.jobs_of(link);
        cx.agent.links.owners.forget_link(link);
        for job in self.deferred.ids_where(|deferred| deferred.link == link) {
            self.deferred.jobs.remove(&job);
            self.loads.remove(job);
        }
        self.spawns.forget_link(link);
        if let Some(attached) = self.attached.remove(&link).filter(|attached| !self.begun.contains_key(&attached.job)) {
            self.loads.remove(attached.job);
        }
        cx.jobs.tell_each(&mut cx.agent, jobs, |job, cx| job.on_launcher_gone(cx));
    }

    /// A launcher's link is about to be closed because of this problem: if it has not launched its job, it is told why.
    pub fn refuse_link(&mut self, cx: &mut Cx, link: LinkId, problem: String) {
        if let Some(attached) = self.attached.get(&link).filter(|attached| !attached.has_launched) {
            refuse_launch(cx, link, attached.job, Cause::Launcher { problem });
        }
    }

    /// Whether a launcher may send frames for a job.
    fn is_of(&self, cx: &Cx, link: LinkId, job: JobId) -> bool {
        self.attached.get(&link).is_some_and(|attached| attached.job == job)
            || cx.agent.links.owners.jobs.get(&job) == Some(&link)
    }

    /// Handles a frame of a launcher that is not a control message.
    pub fn on_frame(&mut self, cx: &mut Cx, link: LinkId, kind: DownFrame, frame: Frame) {
        let job = JobId(frame.job);
        if !self.is_of(cx, link, job) {
            return;
        }
        if !self.deferred.jobs.contains_key(&job) {
            return cx.jobs.tell(&mut cx.agent, job, |job, cx| job.on_frame_down(cx, kind, frame));
        }
        if !self.deferred.keep(job, kind, frame) {
            let problem = "it sent more standard input than its credit allows".to_owned();
            self.end_deferred(cx, job, Cause::Launcher { problem });
        }
    }

    pub fn on_said(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId, job: JobId, message: Control) {
        match message {
            Control::FromLauncher(request) => self.on_request(cx, nodes, (link, job), request),
            Control::JobDown(message) if message.may_come_from_launcher() && self.is_of(cx, link, job) => {
                // A message that arrives after the end of its job is ignored, and is not an error.
                if !self.deferred.jobs.contains_key(&job) {
                    cx.jobs.tell(&mut cx.agent, job, |job, cx| job.on_control_down(cx, message));
                } else if self.deferred.on_control(job, message) {
                    self.end_deferred(cx, job, Cause::Killed { by: "its launcher".into() });
                }
            }
            _message => refuse(cx, link, format!("unexpected message about job {job}")),
        }
    }

    fn on_request(&mut self, cx: &mut Cx, nodes: &Nodes, (link, job): (LinkId, JobId), request: FromLauncher) {
        let Some(attached) = self.attached.get_mut(&link) else { return };
        match request {
            FromLauncher::Launch(spec) => self.on_launch(cx, nodes, link, *spec),
            FromLauncher::AskNodes { revive: false } => attached.asks_nodes = true,
            FromLauncher::AskJobs => attached.asks_jobs = true,
            FromLauncher::AskSeats(_) if attached.has_launched => {
                refuse(cx, link, "the job was launched before".into());
            }
            FromLauncher::AskSeats(request) => {
                let seats = self.loads.assign(attached.job, nodes.own(), &request);
                answer(cx, link, ToLauncher::Seats(seats));
            }
            FromLauncher::AskNodes { revive: true } => self.on_revive(cx, link),
            FromLauncher::Spawned(result) => self.spawns.on_result(cx, job, Some(link), result),
            FromLauncher::KillJob { job, signal, by } => self.on_kill_job(cx, link, job, signal, &by),
            FromLauncher::Why { job } => self.on_why(cx, link, job),
            FromLauncher::EndSession { kill } => self.on_end_session(cx, link, kill),
        }
    }

    /// All frames of one read of a launcher's link have been handled: answers its requests for lists.
    pub fn answer_questions(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId) {
        let Some(attached) = self.attached.get_mut(&link) else { return };
        let waits_for_nodes = attached.waits_for_nodes;
        let asks_jobs = std::mem::take(&mut attached.asks_jobs);
        if std::mem::take(&mut attached.asks_nodes) {
            answer(cx, link, ToLauncher::Nodes(nodes.own().to_vec()));
        }
        if asks_jobs {
            self.tell_jobs(cx, link);
        }
        if waits_for_nodes {
            self.tell_if_settled(cx, nodes);
        }
    }

    /// If all nodes are up or known to be missing, answers the launchers that wait for this.
    fn tell_if_settled(&mut self, cx: &mut Cx, nodes: &Nodes) {
        if !nodes.is_settled() {
            return;
        }
        for (link, attached) in &mut self.attached {
            if std::mem::take(&mut attached.waits_for_nodes) {
                answer(cx, *link, ToLauncher::Nodes(nodes.own().to_vec()));
            }
        }
    }

    /// The state of some nodes has changed: starts waiting jobs whose nodes are up, and refuses those that cannot
    /// start.
    pub fn on_nodes_changed(&mut self, cx: &mut Cx, nodes: &Nodes) {
        self.ports.forget_lost(nodes);
        let is_ready = |deferred: &DeferredJob| match agents_for(nodes, &deferred.spec) {
            Ok((_, agents)) => are_up(nodes, &agents),
            Err(_) => true,
        };
        for job in self.deferred.ids_where(is_ready) {
            if let Some(DeferredJob { link, spec, later, .. }) = self.deferred.jobs.remove(&job) {
                self.begin_or_defer(cx, nodes, link, spec, later);
            }
        }
        self.tell_if_settled(cx, nodes);
    }

    /// Sends a note to each launcher whose job has waited for long: the nodes that the job waits for.
    pub fn tell_of_deferred(&mut self, cx: &mut Cx, nodes: &Nodes) {
        for (link, spec) in self.deferred.take_untold(cx.agent.now) {
            let Ok((_, mut agents)) = agents_for(nodes, &spec) else { continue };
            agents.retain(|agent| !nodes.is_up(*agent));
            cx.agent.links.out.send(link, control_frame(spec.job, &Note::Waits { agents }.into()));
        }
    }

    fn on_revive(&mut self, cx: &mut Cx, link: LinkId) {
        if let Some(reason) = &self.ending {
            return refuse(cx, link, format!("the session is being ended: {reason}"));
        }
        if let Some(attached) = self.attached.get_mut(&link) {
            attached.waits_for_nodes = true;
        }
        cx.agent.links.owners.listeners.insert(link);
        self.asked.push_back(Asked::Revive);
    }

    fn tell_jobs(&self, cx: &mut Cx, link: LinkId) {
        let entry = |spec: &JobSpec, agents: Vec<AgentId>, since: Option<&Instant>, state| JobEntry {
            seats: self.loads.order_of(spec.job),
            age_ns: since.map_or(0, |since| cx.agent.now - *since),
            state,
            ..described(cx.tree, spec, agents)
        };
        let begun = cx.jobs.ids().into_iter().filter_map(|id| {
            let (job, spec) = (cx.jobs.get(&id)?, cx.jobs.spec(id)?);
            let state = match job.has_started() {
                _ if job.is_ending() => JobState::Ending,
                true => JobState::Running,
                false => JobState::Starting,
            };
            Some(entry(spec, job.facts.agents(), self.begun.get(&id), state))
        });
        let deferred = self.deferred.jobs.values().map(|DeferredJob { spec, since, .. }| {
            let agents = placement(spec).map(|mapping| agents_of(spec, &mapping));
            entry(spec, agents.unwrap_or_default(), Some(since), JobState::Starting)
        });
        let entries = begun.chain(deferred).collect();
        answer(cx, link, ToLauncher::JobList(entries));
    }

    fn on_end_session(&mut self, cx: &mut Cx, link: LinkId, kill: bool) {
        self.tell_jobs(cx, link);
        if !kill && self.ending.is_none() && !(cx.jobs.is_empty() && self.deferred.jobs.is_empty()) {
            return refuse(cx, link, "the session has jobs".into());
        }
        answer(cx, link, ToLauncher::Decided(Ok(())));
        self.end(cx, Some(link), "it was ended by wireup down".into());
    }

    /// Ends the session: first its jobs, then its agents. `asker`: the launcher that has requested the end; no job from
    /// it can be in transit to the root.
    pub fn end(&mut self, cx: &mut Cx, asker: Option<LinkId>, reason: String) {
        self.ending.get_or_insert_with(|| reason.clone());
        let cause = Cause::SessionEnded { reason };
        // A launch request that is in transit may never be read, so it is refused now.
        let may_launch = |(link, attached): &(&LinkId, &mut Attached)| Some(**link) != asker && !attached.has_launched;
        for (link, attached) in self.attached.iter_mut().filter(may_launch) {
            attached.has_launched = true;
            refuse_launch(cx, *link, attached.job, cause.clone());
        }
        for job in self.deferred.ids_where(|_| true) {
            self.end_deferred(cx, job, cause.clone());
        }
        cx.jobs.tell_each(&mut cx.agent, cx.jobs.ids(), |_, cx| cx.fail_by(cause.clone()));
    }

    /// Whether the agents of the session can leave: the session is ending, and its last job has ended.
    pub fn may_end(&self, cx: &Cx) -> bool {
        self.ending.is_some() && cx.jobs.is_empty()
    }

    fn on_kill_job(&mut self, cx: &mut Cx, link: LinkId, id: JobId, signal: Option<i32>, by: &str) {
        let is_deferred = self.deferred.jobs.contains_key(&id);
        if !cx.jobs.contains_key(&id) && !is_deferred {
            return refuse(cx, link, format!("there is no job {id}; see wireup jobs"));
        }
        let killed = || Cause::Killed { by: line(by, KILLED_BY_LEN_MAX) };
        match signal {
            Some(signal) if !(1..=SIGNAL_MAX).contains(&signal) => {
                return refuse(cx, link, format!("there is no signal {signal}"));
            }
            // The job has no ranks yet that could get the signal.
            Some(signal) if is_deferred && !is_fatal(signal) => {}
            _ if is_deferred => self.end_deferred(cx, id, killed()),
            Some(signal) => {
                cx.jobs.tell(&mut cx.agent, id, |job, cx| job.on_control_down(cx, JobDown::Signal { signal }))
            }
            None => cx.jobs.tell(&mut cx.agent, id, |_, cx| cx.fail_by(killed())),
        }
        answer(cx, link, ToLauncher::Decided(Ok(())));
    }

    /// Asks a job where its ranks wait, for a launcher that is not the job's own.
    fn on_why(&mut self, cx: &mut Cx, link: LinkId, id: JobId) {
        if self.deferred.jobs.contains_key(&id) {
            return refuse(cx, link, format!("job {id} waits for nodes that are starting; none of its ranks runs"));
        }
        if !cx.jobs.contains_key(&id) {
            return refuse(cx, link, format!("there is no job {id}; see wireup jobs"));
        }
        cx.agent.links.owners.watchers.entry(id).or_default().insert(link);
        for message in [JobDown::StallAsk { collective: None }, JobDown::StackAsk] {
            cx.jobs.tell(&mut cx.agent, id, |job, cx| job.on_control_down(cx, message));
        }
    }

    /// Ends a waiting job before it has started.
    fn end_deferred(&mut self, cx: &mut Cx, job: JobId, cause: Cause) {
        if let Some(deferred) = self.deferred.jobs.remove(&job) {
            self.loads.remove(job);
            cx.agent.links.owners.jobs.remove(&job);
            refuse_launch(cx, deferred.link, job, cause);
        }
    }

    /// The newest job's number, and the jobs that may still send frames.
    pub fn live(&self) -> (JobId, Vec<JobId>) {
        let is_to_come = |job: &JobId| !self.begun.contains_key(job);
        let may_launch = self.attached.values().filter(|launcher| !launcher.has_launched).map(|launcher| launcher.job);
        let reserved = may_launch
            .chain(self.deferred.ids_where(|_| true))
            .chain(self.spawns.requests.keys().copied())
            .filter(is_to_come);
        let mut live: Vec<JobId> = self.begun.keys().copied().chain(reserved).collect();
        live.sort_unstable();
        live.dedup();
        (self.newest, live)
    }

    fn on_launch(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId, spec: JobSpec) {
        let Some(attached) = self.attached.get_mut(&link) else { return };
        let id = spec.job;
        if !self.spawns.take_launch(id, link) {
            if self.ending.is_some() && id == attached.job && attached.has_launched {
                // `end` has refused this launch while it was in transit.
                return;
            }
            if id != attached.job || attached.has_launched {
                let problem = match attached.job {
                    own if own == id => format!("job {id} was launched before"),
                    own => format!("job {id} belongs to another launcher; this one has job {own}"),
                };
                return refuse(cx, link, problem);
            }
            attached.has_launched = true;
        }
        // If the job adds hosts, their agents must get numbers first.
        let method = cx.session.remote_shell.start_method();
        let added = spec.nodes.iter().filter(|node| node.agent == AgentId::ADDED).count();
        let problem = match placement(&spec) {
            _ if self.ending.is_some() || added == 0 => {
                return self.begin_or_defer(cx, nodes, link, spec, Vec::new());
            }
            Err(problem) => problem,
            Ok(_) if method.same_machine || method.by_step() => "no hosts can be added to this session".into(),
            Ok(_) if added > ADDED_HOSTS_MAX => format!("a job can add at most {ADDED_HOSTS_MAX} hosts"),
            Ok(_) => return self.asked.push_back(Asked::Number { spec: spec.into(), link }),
        };
        refuse_launch(cx, link, spec.job, Cause::Launcher { problem });
    }

    /// The agents of the hosts that a job adds have got numbers: starts or defers the job.
    pub fn on_numbered(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId, spec: JobSpec) {
        let job = spec.job;
        self.begin_or_defer(cx, nodes, link, spec, Vec::new());
        if self.deferred.jobs.contains_key(&job) {
            self.asked.push_back(Asked::StartAdded(job));
        }
    }

    /// The agents on added hosts whose jobs neither wait nor run any more.
    pub fn unneeded(&self, cx: &Cx, nodes: &Nodes) -> Vec<AgentId> {
        let is_needed = |job: JobId| {
            cx.jobs.contains_key(&job) || self.begun.contains_key(&job) || self.deferred.jobs.contains_key(&job)
        };
        nodes.added().filter(|(_, job)| !is_needed(*job)).map(|(agent, _)| agent).collect()
    }

    /// Starts a job, or lets it wait until the state of all its nodes is known. `later`: what the job's launcher has
    /// already sent for its ranks.
    fn begin_or_defer(&mut self, cx: &mut Cx, nodes: &Nodes, link: LinkId, spec: JobSpec, later: Vec<Later>) {
        let id = spec.job;
        let found = match &self.ending {
            Some(reason) => Err(Cause::SessionEnded { reason: reason.clone() }.into()),
            None => agents_for(nodes, &spec),
        };
        let (mapping, agents) = match found {
            Ok(found) => found,
            Err(failure) => {
                self.loads.remove(id);
                cx.agent.links.owners.jobs.remove(&id);
                return refuse_launch(cx, link, id, failure);
            }
        };
        self.loads.launch(&spec, &mapping);
        cx.agent.links.owners.jobs.insert(id, link);
        if !are_up(nodes, &agents) {
            return self.deferred.defer(link, spec, cx.agent.now, later);
        }
        self.begun.insert(id, cx.agent.now);
        let spec = JobSpec { endpoints: self.ports.allot(&spec, &mapping), ..spec };
        let (newest, live) = self.live();
        cx.agent.links.pass_on(&agents, &start_frame(&spec, newest, live.clone()));
        let tree = JobTree::of_job(&spec, cx.me, &cx.session, agents);
        let begin = Box::new(Begin { spec: spec.into(), mapping, tree, lost: Vec::new() });
        self.asked.push_back(Asked::Start { begin, live: (newest, live), later });
    }

    /// After the loss of agent `top`: sends jobs that have not started everywhere again to `top` and the agents below
    /// it, which may not have received them.
    pub fn start_again(&self, cx: &mut Cx, top: AgentId) {
        for spec in cx.jobs.specs().cloned().collect::<Vec<_>>() {
            let is_open = |job: &&Job| !job.is_ending() && !job.has_started();
            let Some(job) = cx.jobs.get(&spec.job).filter(is_open) else { continue };
            let mut agents = job.facts.agents();
            agents.retain(|agent| cx.tree.subtree_contains(top, *agent));
            if !agents.is_empty() {
                let (newest, live) = self.live();
                cx.agent.links.pass_on(&agents, &start_frame(&spec, newest, live));
            }
        }
    }

    /// A job has ended everywhere. `traces`: the agents that get `JobDown::Over`, because they may still store data of
    /// the job or keep ports for it.
    pub fn on_job_over(&mut self, cx: &mut Cx, job: JobId, traces: Option<Vec<AgentId>>) {
        self.begun.remove(&job);
        self.loads.remove(job);
        cx.agent.links.owners.jobs.remove(&job);
        if let Some(agents) = traces {
            let frame = control_frame(job, &JobDown::Over { agents: agents.clone() }.into());
            cx.agent.links.pass_on(&agents, &frame);
        }
    }

    /// A rank asks for processes: reserves a number for the new job, and forwards the request to the launcher of the
    /// rank's job.
    pub fn on_spawn(&mut self, cx: &mut Cx, parent: JobId, asker: (AgentId, Asker), from: Rank, request: SpawnRequest) {
        // No rank of an ended job waits for an answer.
        let Some(job) = cx.jobs.get(&parent) else { return };
        let link = cx.agent.links.owners.links_of(parent).first().copied();
        let waiting = SpawnWaiting::new(parent, asker, link);
        let problem = match request.check() {
            _ if job.is_ending() => Some("the job is being ended".to_owned()),
            _ if self.spawns.waiting_for(link) >= FAMILY_JOBS_MAX => {
                Some(format!("more than {FAMILY_JOBS_MAX} requests for processes wait"))
            }
            result => result.err().map(|unfit| unfit.to_string()),
        };
        if let Some(problem) = problem {
            return waiting.answer(cx, Err(problem));
        }
        let known = cx.jobs.ids().into_iter().max().unwrap_or_default();
        self.newest = JobId(self.newest.max(known).0 + 1);
        self.spawns.requests.insert(self.newest, waiting);
        let spawn = ToLauncher::Spawn { job: self.newest, from, request: request.into() };
        cx.agent.links.send_up(control_frame(parent, &spawn.into()));
    }
}

fn answer(cx: &mut Cx, link: LinkId, message: ToLauncher) {
    cx.answer(link, message);
}

fn refuse(cx: &mut Cx, link: LinkId, problem: String) {
    answer(cx, link, ToLauncher::Decided(Err(problem)));
}

fn refuse_launch(cx: &mut Cx, link: LinkId, job: JobId, failure: impl Into<Failure>) {
    let ended = ToLauncher::Ended(Ended { failure: Some(failure.into()), done: Default::default() });
    cx.agent.links.out.send(link, control_frame(job, &ended.into()));
}

/// The frame that sends a job's description to the agents that run it.
fn start_frame(spec: &JobSpec, newest: JobId, live: Vec<JobId>) -> Frame {
    control_frame(spec.job, &SessionDown::Start { spec: Box::new(spec.clone()), newest, live }.into())
}

fn are_up(nodes: &Nodes, agents: &[AgentId]) -> bool {
    agents.iter().all(|agent| nodes.is_up(*agent))
}

/// The placement of a job and its agents; or why the job cannot start.
fn agents_for(nodes: &Nodes, spec: &JobSpec) -> Result<(Mapping, Vec<AgentId>), Failure> {
    let refused = |problem| Cause::Launcher { problem };
    let of = |agent, cause: Cause| Failure { host: nodes.host(agent).to_owned(), ..cause.into() };
    if !nodes.have_all(spec) {
        return Err(refused(UNKNOWN_NODE.into()).into());
    }
    let mapping = placement(spec).map_err(refused)?;
    let agents = agents_of(spec, &mapping);
    for &agent in &agents {
        if let Some(problem) = nodes.problem(agent).filter(|_| nodes.is_own(agent)) {
            return Err(of(agent, Cause::AgentLost { agent, problem: problem.to_owned() }));
        }
    }
    // Added hosts that cannot be used are reported together, when no agent of the job is starting any more.
    let missing = |agent: &AgentId| {
        let problem = nodes.problem(*agent)?.to_owned();
        Some(MissingAgent { agent: *agent, problem })
    };
    let missing: Vec<MissingAgent> = agents.iter().filter_map(missing).collect();
    match missing.first() {
        Some(&MissingAgent { agent, .. }) if !agents.iter().any(|agent| nodes.is_starting(*agent)) => {
            Err(of(agent, Cause::AgentsMissing { missing }))
        }
        _ => Ok((mapping, agents)),
    }
}

/// The entry of a job in a list of jobs, as far as the job's description determines it.
fn described(tree: Tree, spec: &JobSpec, agents: Vec<AgentId>) -> JobEntry {
    let (added, nodes): (Vec<AgentId>, _) = agents.into_iter().partition(|agent| tree.is_beside(*agent));
    let is_added = |node: &&NodeSpec| added.contains(&node.agent);
    let program = spec.apps.first().and_then(|app| app.argv.first()).map(Vec::as_slice).unwrap_or_default();
    let program = String::from_utf8_lossy(&program[..program.len().min(LISTED_NAME_LEN_MAX)]);
    JobEntry {
        job: spec.job,
        parent: spec.spawned.as_ref().map(|spawned| spawned.by),
        nspace: beginning(&spec.nspace, LISTED_NAME_LEN_MAX).to_owned(),
        program: beginning(&program, LISTED_NAME_LEN_MAX).to_owned(),
        ranks: spec.job_size(),
        nodes,
        added: spec.nodes.iter().filter(is_added).map(|node| node.name.clone()).collect(),
        seats: None,
        age_ns: 0,
        state: JobState::Starting,
    }
}

/// A prefix of `text`, at most `len_max` bytes, cut between two characters.
fn beginning(text: &str, len_max: usize) -> &str {
    let mut end = text.len().min(len_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A prefix of `text`, at most `len_max` bytes, with line breaks and control characters replaced by spaces.
fn line(text: &str, len_max: usize) -> String {
    let is_of_line = |letter: char| !letter.is_control() && !matches!(letter, '\u{2028}' | '\u{2029}');
    beginning(text, len_max).chars().map(|letter| if is_of_line(letter) { letter } else { ' ' }).collect()
}

/// Tracks jobs that ranks have asked for: from the request until the rank is answered.
///
/// ```text
///            Spawn ↓ the launcher of the rank's job            Spawned ↑
///   asked ───────────────────────► Offered ─────────────────────────────► answered
///                                     │ Launch ↑                             ▲ Spawned ↑: all run, or why not
///                                     └─────────► Launched ──────────────────┘
/// ```
///
/// The root only numbers the jobs. The launcher knows the environment, the nodes and what else runs on them: it makes a
/// job of the request and launches it as any other. If the launcher exits, its jobs end, and nobody waits for an
/// answer.
#[derive(Default)]
pub struct Spawns {
    /// Ranks that wait for the answer to a request for processes, by the number that is reserved for the new job.
    requests: BTreeMap<JobId, SpawnWaiting>,
}

/// A rank that waits for an answer.
struct SpawnWaiting {
    state: SpawnState,
    at: JobNode,
    asker: Asker,
    /// The launcher's link; `None`: the session is of one run.
    link: Option<LinkId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SpawnState {
    Offered,
    Launched,
}

impl Spawns {
    /// Number of ranks' requests that this launcher has not answered yet.
    fn waiting_for(&self, link: Option<LinkId>) -> usize {
        self.requests.values().filter(|request| request.link == link).count()
    }

    /// Returns `true` once for each job that was offered to this launcher because a rank has asked for it.
    fn take_launch(&mut self, job: JobId, link: LinkId) -> bool {
        let offered = |request: &&mut SpawnWaiting| request.state == SpawnState::Offered && request.link == Some(link);
        let request = self.requests.get_mut(&job).filter(offered);
        request.map(|request| request.state = SpawnState::Launched).is_some()
    }

    /// Handles a launcher's answer, which goes to the rank. An answer that nobody waits for is ignored.
    pub fn on_result(&mut self, cx: &mut Cx, job: JobId, link: Option<LinkId>, result: Result<NewJob, String>) {
        if self.requests.get(&job).is_some_and(|request| request.link == link)
            && let Some(request) = self.requests.remove(&job)
        {
            request.answer(cx, result);
        }
    }

    fn forget_link(&mut self, link: LinkId) {
        self.requests.retain(|_, request| request.link != Some(link));
    }
}

impl SpawnWaiting {
    fn new(job: JobId, (agent, asker): (AgentId, Asker), link: Option<LinkId>) -> SpawnWaiting {
        SpawnWaiting { state: SpawnState::Offered, at: JobNode { job, agent }, asker, link }
    }

    fn answer(self, cx: &mut Cx, result: Result<NewJob, String>) {
        let answer = result.map_or_else(|problem| Answer::NotSpawned { problem }, Answer::Spawned);
        cx.jobs.answer(&mut cx.agent, self.at, self.asker, answer);
    }
}
