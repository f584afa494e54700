//! The context in which the parts of a session work: the agent's id, its links and jobs, and the queue of its outputs.
//!
//! Through [`Cx`] a part (such as `names`) sends frames, passes events to jobs and requests actions of the driver,
//! immediately. If another part must act, the part returns this as its result or stores it in a list; the session
//! carries it out in the function that has called the part.

use crate::clock_offset::ClockOffset;
use crate::io::{LinkId, Output};
use crate::job::{self, AgentCx, FromJob, Job, JobParts, JobTree};
use crate::link::{Links, Routes};
use crate::outbox::control_frame;
use crate::policy::Policy;
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::Tree;
use wireup_wire::frame::{Frame, FrameKind, PeerFrame};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::names::{Answer, Asker, Down};
use wireup_wire::peer::{self, Batch, Cause, Note, PeerError, SessionSpec};
use wireup_wire::relay;
use wireup_wire::session::SessionSnapshot;
use wireup_wire::talk::{Control, JobDown, JobUp};

pub struct Cx {
    pub now: Instant,
    pub me: AgentId,
    pub tree: Tree,
    pub session: SessionSpec,
    pub policy: Policy,
    pub links: Links,
    pub jobs: Jobs,
    /// Time by which agents must have linked; later they count as missing.
    pub start_by: Instant,
    /// The offset of this agent's clock to its parent's, as far as known.
    pub clock: ClockOffset,
    /// Whether the agent was told to leave.
    pub is_leaving: bool,
    /// Hosts that jobs have added to the session, by the id of each host's agent.
    pub added: BTreeMap<AgentId, AddedHost>,
    /// Requests of jobs that have handled an event, and jobs that have ended, in order; the session still has to handle
    /// them.
    pub due: VecDeque<Due>,
    /// Requests of the job that is handling an event.
    from_job: VecDeque<FromJob>,
    /// Answers that were sent to requests about names or other jobs, recorded for tests.
    #[cfg(test)]
    pub answered: Vec<(JobNode, Answer)>,
}

/// A function that returns the state of the session to send to a new agent.
pub type SnapshotOf<'a> = &'a dyn Fn(&Cx) -> SessionSnapshot;

/// An action that the session must carry out after a job has handled an event.
pub enum Due {
    Request(FromJob),
    /// The job has ended on this agent, and is to be forgotten.
    Over(Box<Job>),
}

/// A node of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JobNode {
    pub job: JobId,
    pub agent: AgentId,
}

/// A host that a job has added to the session.
pub struct AddedHost {
    pub name: String,
    pub job: JobId,
}

impl Cx {
    /// The context of a new agent, which has no links or jobs yet.
    pub fn new(me: AgentId, now: Instant, session: SessionSpec, routes: Routes) -> Cx {
        let policy = Policy::of(&session);
        Cx {
            now,
            me,
            tree: Tree::new(session.agents.len() as u32, session.fanout),
            policy,
            links: Links::new(me, session.links.transport, policy, routes),
            jobs: Jobs::default(),
            start_by: now + session.start_timeout_ns,
            clock: ClockOffset::of(&session.remote_shell),
            is_leaving: false,
            added: BTreeMap::new(),
            due: VecDeque::new(),
            from_job: VecDeque::new(),
            #[cfg(test)]
            answered: Vec::new(),
            session,
        }
    }

    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
        self.links.direct.at(now);
    }

    pub fn is_root(&self) -> bool {
        self.me == AgentId(0)
    }

    /// Whether a batch system starts the agents, by job steps that the root calls.
    pub fn is_by_step(&self) -> bool {
        self.batch().is_some()
    }

    /// The batch system whose job steps start the agents; `None`: agents are started in another way.
    pub fn batch(&self) -> Option<&'static Batch> {
        self.session.remote_shell.start_method().batch.as_ref()
    }

    /// The name of this agent's host.
    pub fn host(&self) -> &str {
        self.host_of(self.me).unwrap_or("its parent")
    }

    /// The name of an agent's host.
    pub fn host_of(&self, agent: AgentId) -> Option<&str> {
        let of_session = self.session.agents.get(agent.index()).map(|agent| agent.host.as_str());
        of_session.or_else(|| self.added.get(&agent).map(|host| host.name.as_str()))
    }

    pub fn is_strictly_below(&self, branch: AgentId, agent: AgentId) -> bool {
        agent != branch && self.tree.subtree_contains(branch, agent)
    }

    pub fn output(&mut self, output: Output) {
        self.links.out.push(output);
    }

    pub fn close(&mut self, link: LinkId) {
        self.output(Output::CloseLink { link });
    }

    /// Sends a message about the session on a link.
    pub fn answer(&mut self, link: LinkId, message: impl Into<Control>) {
        self.links.out.send(link, control_frame(JobId(0), &message.into()));
    }

    /// Sends a message about the session towards the root.
    pub fn up(&mut self, message: impl Into<Control>) {
        self.up_about(JobId(0), message);
    }

    /// Sends a message about a job towards the root; at the root, to the launcher of the job.
    pub fn up_about(&mut self, job: JobId, message: impl Into<Control>) {
        let message = message.into();
        // A note about the start of an agent on an added host goes to the launcher of the job that has added the host.
        let starts = if let Control::Note(note) = &message { note.starts() } else { None };
        let added = starts.and_then(|agent| self.added.get(&agent)).filter(|_| self.policy.has_many_launchers());
        let job = added.map_or(job, |host| host.job);
        self.links.send_up(control_frame(job, &message));
    }

    pub fn note(&mut self, note: Note) {
        self.up(note);
    }

    /// Sends a message about the session to a child.
    pub fn child(&mut self, agent: AgentId, message: impl Into<Control>) {
        self.links.send_child(agent, control_frame(JobId(0), &message.into()));
    }

    /// Sends a message about the session to all children that are linked or expected.
    pub fn children(&mut self, message: impl Into<Control>) {
        self.links.send_children(&control_frame(JobId(0), &message.into()));
    }

    /// Records that these jobs have no more traffic with peers; acknowledges received frames, so that peers need not
    /// keep them.
    pub fn forget_direct(&mut self, jobs: &[JobId]) {
        self.links.with_direct(|direct| jobs.iter().for_each(|job| direct.forget(*job)));
    }

    /// Sends again the frames that may have been lost on their way through the tree: those to or from `top`, or agents
    /// below it in the original tree.
    pub fn route_again(&mut self, top: AgentId) {
        let is_behind = |agent| self.tree.subtree_contains(top, agent);
        let has_moved = is_behind(self.me);
        self.links.with_direct(|direct| direct.route_again(|peer| has_moved || is_behind(peer)));
    }

    /// Asks the parent for the time of its clock, at most once, and not if both agents share a machine and thus a
    /// clock.
    pub fn ask_clock(&mut self, parent: AgentId) {
        if !self.is_root() && self.clock.is_new() {
            let question = self.clock.ask(parent, self.now);
            self.up(question);
        }
    }

    /// Handles the parent's answer about its clock. Jobs whose trace waited for it may end now.
    pub fn on_clock_told(&mut self, asked_ns: u64, told_ns: u64) {
        if let Some(question) = self.clock.on_told(self.now, asked_ns, told_ns) {
            self.up(question);
        }
        self.tell_jobs(self.jobs.ids(), |_, _| {});
    }

    /// Passes an event to a job, by one of its `on_*` functions. Does nothing if the job is not on this agent.
    pub fn tell_job(&mut self, id: JobId, act: impl FnOnce(&mut JobParts, &mut job::Cx<'_>)) {
        let Some(job) = self.jobs.jobs.get_mut(&id) else { return };
        let before = (job.is_ending(), job.is_forced());
        let agent = AgentCx {
            now: self.now,
            start_by: self.start_by,
            clock: &self.clock,
            standing: self.policy.survives_losses(),
            links: &mut self.links,
            from_job: &mut self.from_job,
        };
        let is_over = job.act(agent, act);
        self.jobs.have_changed |= is_over || before != (job.is_ending(), job.is_forced());
        self.due.extend(self.from_job.drain(..).map(Due::Request));
        if is_over {
            self.due.extend(self.jobs.remove(id).map(Box::new).map(Due::Over));
        }
    }

    /// Passes an event to each of these jobs, by one of the `on_*` functions of [`JobParts`].
    pub fn tell_jobs(&mut self, jobs: Vec<JobId>, act: impl Fn(&mut JobParts, &mut job::Cx<'_>)) {
        jobs.into_iter().for_each(|job| self.tell_job(job, &act));
    }

    /// At the root: sends an answer or an order to an agent of a job, about names or other jobs.
    pub fn answer_job(&mut self, at: JobNode, asker: Asker, answer: Answer) {
        #[cfg(test)]
        self.answered.push((at, answer.clone()));
        self.tell_job(at.job, |job, cx| job.on_answer(cx, at.agent, Down { asker, answer }));
    }

    /// Handles a job's frame from a neighbour in its tree, or (`None`) from the launcher. Frames from other agents, and
    /// for jobs that are not here, are too late and ignored.
    ///
    /// # Errors
    /// The frame travels in the other direction of the job's tree.
    pub fn on_job_frame(&mut self, from: Option<AgentId>, frame: Frame) -> Result<(), PeerError> {
        let id = JobId(frame.job);
        let Some(side) = self.jobs.side(id, from) else { return Ok(()) };
        match (side, frame.kind) {
            (Some(child), FrameKind::Up(kind)) => {
                self.tell_job(id, |job, cx| job.on_frame_up(cx, child, kind, frame));
            }
            (None, FrameKind::Down(kind)) if !self.is_root() || kind.may_come_from_launcher() => {
                self.tell_job(id, |job, cx| job.on_frame_down(cx, kind, frame));
            }
            _ => return Err(PeerError::Misdirected),
        }
        Ok(())
    }

    /// Handles a message from a job's parent in its tree, or (`None`) from the launcher.
    ///
    /// # Errors
    /// A child has sent the message, or a launcher has sent one that launchers must not send.
    pub fn on_job_down(&mut self, from: Option<AgentId>, id: JobId, message: JobDown) -> Result<(), PeerError> {
        match self.jobs.side(id, from) {
            None => {}
            Some(None) if !self.is_root() || message.may_come_from_launcher() => {
                self.tell_job(id, |job, cx| job.on_control_down(cx, message));
            }
            Some(_) => return Err(PeerError::Misdirected),
        }
        Ok(())
    }

    /// Handles a message from a job's child in its tree.
    ///
    /// # Errors
    /// The parent or the launcher has sent it.
    pub fn on_job_up(&mut self, from: Option<AgentId>, id: JobId, mut message: JobUp) -> Result<(), PeerError> {
        let Some(side) = self.jobs.side(id, from) else { return Ok(()) };
        let from = side.ok_or(PeerError::Misdirected)?;
        if let JobUp::Missing(missing) = &mut message {
            missing.retain(|missing| self.tree.subtree_contains(from, missing.agent));
        }
        self.tell_job(id, |job, cx| job.on_control_up(cx, from, message));
        Ok(())
    }

    /// Another agent has sent a message for a job that no correct agent sends: the job fails.
    pub fn blame(&mut self, from: AgentId, job: JobId, error: PeerError) {
        self.tell_job(job, |_, cx| {
            let sender = cx.facts.node_of(from).map(|node| cx.facts.name_of(node));
            let sender = sender.unwrap_or_else(|| format!("agent {from}"));
            cx.fail_here(Cause::Pmi { problem: format!("{sender}: {error}") });
        });
    }

    /// Handles a frame that another agent, anywhere in the tree, has sent for a job that is here.
    ///
    /// # Errors
    /// The message is one that no correct agent sends.
    pub fn deliver(&mut self, from: AgentId, frame: Frame) -> Result<(), PeerError> {
        let id = JobId(frame.job);
        match frame.kind {
            FrameKind::Peer(PeerFrame::Modex) => {
                let message = peer::decode(&frame.payload)?;
                self.tell_job(id, |job, cx| {
                    job.serve(cx, |service, cx| service.pmix(cx, |pmix, cx| pmix.on_between(cx, from, message)));
                });
            }
            FrameKind::Peer(PeerFrame::Addresses) => {
                let message = peer::decode(&frame.payload)?;
                self.tell_job(id, |job, cx| {
                    job.serve(cx, |service, cx| service.pmi.on_addresses(cx, from, message));
                });
            }
            FrameKind::Peer(PeerFrame::Relay) => {
                let message = relay::Between::decode(frame.stream, frame.arg, frame.payload)?;
                self.tell_job(id, |job, cx| {
                    job.serve(cx, |service, cx| service.pmi.on_relayed(cx, from, message));
                });
            }
            FrameKind::Peer(PeerFrame::Store) => {
                let message = peer::decode(&frame.payload)?;
                self.tell_job(id, |job, cx| {
                    job.serve(cx, |service, cx| {
                        if let Some(store) = &mut service.store {
                            store.on_between(cx, from, message);
                        }
                    });
                });
            }
            FrameKind::Peer(PeerFrame::Direct) => self.tell_job(id, |job, cx| {
                job.serve(cx, |service, cx| service.on_direct(cx, from, frame));
            }),
            FrameKind::Control => match peer::decode(&frame.payload)? {
                Control::JobDown(message) => return self.on_job_down(Some(from), id, message),
                Control::JobUp(message) => return self.on_job_up(Some(from), id, message),
                // Other control messages are exchanged only between neighbours in the session's tree.
                _message => return Err(PeerError::Misdirected),
            },
            FrameKind::Up(_) | FrameKind::Down(_) => return self.on_job_frame(Some(from), frame),
            FrameKind::Routed | FrameKind::Pair => return Err(PeerError::Misdirected),
        }
        Ok(())
    }
}

/// The jobs of one agent.
///
/// A job's frames travel along its own tree. In a session of one run that is the session's tree; in a standing session
/// it is a tree of the job's nodes, so the frames may come from any agent.
#[derive(Default)]
pub struct Jobs {
    /// Descriptions of all jobs here, and of a job that is about to start.
    specs: BTreeMap<JobId, Arc<JobSpec>>,
    jobs: BTreeMap<JobId, Job>,
    /// Whether a job on this agent has ended, begun to end, or had its ranks killed since the agent last checked what
    /// is due (`Session::look_around`).
    pub have_changed: bool,
}

impl Deref for Jobs {
    type Target = BTreeMap<JobId, Job>;

    fn deref(&self) -> &Self::Target {
        &self.jobs
    }
}

impl Jobs {
    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        self.specs.remove(&id);
        self.jobs.remove(&id)
    }

    pub fn ids(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }

    /// The jobs for which `which` holds.
    pub fn ids_where(&self, which: impl Fn(&Job) -> bool) -> Vec<JobId> {
        self.iter().filter(|(_, job)| which(job)).map(|(id, _)| *id).collect()
    }

    /// The jobs of which a child runs a part.
    pub fn of_child(&self, child: AgentId) -> Vec<JobId> {
        self.ids_where(|job| job.has_child(child))
    }

    pub fn spec(&self, id: JobId) -> Option<&Arc<JobSpec>> {
        self.specs.get(&id)
    }

    pub fn specs(&self) -> impl Iterator<Item = &Arc<JobSpec>> {
        self.specs.values()
    }

    /// Records the description of a job that is about to start.
    pub fn announce(&mut self, spec: Arc<JobSpec>) {
        self.specs.insert(spec.job, spec);
    }

    /// Replaces each job description by the equal one that `share` returns, so that simulated agents share its memory.
    pub fn share_specs(&mut self, mut share: impl FnMut(&Arc<JobSpec>) -> Arc<JobSpec>) {
        for (id, spec) in &mut self.specs {
            *spec = share(spec);
            if let Some(job) = self.jobs.get_mut(id) {
                job.facts.spec = spec.clone();
            }
        }
    }

    pub fn insert(&mut self, id: JobId, job: Job) {
        self.jobs.insert(id, job);
    }

    /// Number of entries in all tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        self.jobs.len() + self.specs.len()
    }

    /// Finds out which neighbour in a job's tree has sent a frame. `Some(None)`: the parent or the launcher;
    /// `Some(Some(_))`: this child; `None`: an agent that is no neighbour, or the job is not here.
    pub fn side(&self, id: JobId, from: Option<AgentId>) -> Option<Option<AgentId>> {
        let job = self.jobs.get(&id)?;
        from.map_or(Some(None), |agent| job.side(agent))
    }
}

/// The problem of a job that names an unknown node. No correct launcher sends such a job.
pub const UNKNOWN_NODE: &str = "the job names a node that the session does not have";

/// The placement of a job's ranks.
///
/// # Errors
/// What is wrong with the description, for the user: no correct launcher sends it.
pub fn placement(spec: &JobSpec) -> Result<Mapping, String> {
    if spec.apps.is_empty() || spec.apps.iter().any(|app| app.argv.is_empty() || app.ranks == 0) {
        return Err("a program of the job has no ranks or no name".into());
    }
    let mut agents: Vec<AgentId> = spec.nodes.iter().map(|node| node.agent).collect();
    agents.sort_unstable();
    if let Some(twice) = agents.windows(2).find(|pair| pair[0] == pair[1] && pair[0] != AgentId::ADDED) {
        return Err(format!("the job names node {} twice", twice[0]));
    }
    Mapping::new(&spec.blocks, spec.job_size(), spec.nodes.len() as u32).map_err(|error| error.to_string())
}

/// What is needed to start a job on this agent.
pub struct Begin {
    pub spec: Arc<JobSpec>,
    pub mapping: Mapping,
    pub tree: JobTree,
    /// Children that should run a part of the job but were lost before it was launched.
    pub lost: Vec<AgentId>,
}

#[cfg(test)]
mod tests {
    use crate::clock_offset::ClockOffset;
    use crate::testing::{Look, UP, in_session, one_run};
    use wireup_wire::ids::AgentId;
    use wireup_wire::peer::RemoteShell;
    use wireup_wire::talk::{Control, SessionUp};

    fn by_ssh() -> ClockOffset {
        ClockOffset::of(&RemoteShell::Ssh(Vec::new()))
    }

    #[test]
    fn the_clock_is_requested_again_after_each_answer() {
        let mut cx = one_run(1).linked();
        cx.clock = by_ssh();
        cx.ask_clock(AgentId(0));
        cx.ask_clock(AgentId(0));
        let asked_ns = cx.now.0;
        assert_eq!(cx.outputs().sent(UP), [Control::SessionUp(SessionUp::ClockAsk { asked_ns })]);
        for _ in 1..8 {
            cx.now = cx.now + 10;
            let asked_ns = cx.now.0 - 10;
            cx.on_clock_told(asked_ns, asked_ns + 5);
            assert_eq!(cx.outputs().sent(UP).len(), 1);
        }
        cx.on_clock_told(cx.now.0, cx.now.0);
        assert!(cx.outputs().is_empty(), "no more than eight rounds");
    }

    /// A lost parent does not answer. Jobs wait for an answer, so the new parent must be asked.
    #[test]
    fn another_parent_is_asked_from_the_start() {
        let mut cx = in_session(1).linked();
        cx.clock = by_ssh();
        for _ in 0..2 {
            cx.clock.start_over();
            cx.ask_clock(AgentId(0));
        }
        assert_eq!(cx.outputs().sent(UP).len(), 2);
        cx.clock = ClockOffset::of(&RemoteShell::Local);
        cx.clock.start_over();
        assert!(cx.clock.is_known());
    }

    #[test]
    fn agents_on_one_machine_do_not_request_the_clock() {
        let (mut on_one, mut root) = (one_run(1).linked(), one_run(0).linked());
        on_one.clock = ClockOffset::of(&RemoteShell::Local);
        root.clock = by_ssh();
        for cx in [&mut on_one, &mut root] {
            cx.ask_clock(AgentId(0));
            assert!(cx.outputs().is_empty());
        }
    }
}
