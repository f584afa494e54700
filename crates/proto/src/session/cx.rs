//! The context in which the parts of a session work: the agent's id, its links and jobs, and the queue of its outputs.
//!
//! Through [`Cx`] a part (such as `names`) sends frames, passes events to jobs and requests actions of the driver,
//! immediately. If another part must act, the part returns this as its result or stores it in a list; the session
//! carries it out in the function that has called the part.

use crate::clock_offset::ClockOffset;
use crate::io::{LinkId, Output};
use crate::job::{AgentCx, JobTree, Jobs};
use crate::link::{Links, Routes};
use crate::outbox::control_frame;
use crate::policy::Policy;
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::Tree;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Batch, Note, SessionSpec};
use wireup_wire::session::SessionSnapshot;
use wireup_wire::talk::Control;

pub struct Cx {
    pub me: AgentId,
    pub tree: Tree,
    pub session: SessionSpec,
    pub policy: Policy,
    /// What the jobs use as well.
    pub agent: AgentCx,
    pub jobs: Jobs,
    /// Whether the agent was told to leave.
    pub is_leaving: bool,
    /// Hosts that jobs have added to the session, by the id of each host's agent.
    pub added: BTreeMap<AgentId, AddedHost>,
}

/// A function that returns the state of the session to send to a new agent.
pub type SnapshotOf<'a> = &'a dyn Fn(&Cx) -> SessionSnapshot;

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
            me,
            tree: Tree::new(session.agents.len() as u32, session.fanout),
            policy,
            agent: AgentCx {
                now,
                start_by: now + session.start_timeout_ns,
                clock: ClockOffset::of(&session.remote_shell),
                standing: policy.survives_losses(),
                links: Links::new(me, session.links.transport, policy, routes),
                from_jobs: VecDeque::new(),
            },
            jobs: Jobs::default(),
            is_leaving: false,
            added: BTreeMap::new(),
            session,
        }
    }

    pub fn set_now(&mut self, now: Instant) {
        self.agent.now = now;
        self.agent.links.direct.at(now);
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
        self.agent.links.out.push(output);
    }

    pub fn close(&mut self, link: LinkId) {
        self.output(Output::CloseLink { link });
    }

    /// Sends a message about the session on a link.
    pub fn answer(&mut self, link: LinkId, message: impl Into<Control>) {
        self.agent.links.out.send(link, control_frame(JobId(0), &message.into()));
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
        self.agent.links.send_up(control_frame(job, &message));
    }

    pub fn note(&mut self, note: Note) {
        self.up(note);
    }

    /// Sends a message about the session to a child.
    pub fn child(&mut self, agent: AgentId, message: impl Into<Control>) {
        self.agent.links.send_child(agent, control_frame(JobId(0), &message.into()));
    }

    /// Sends a message about the session to all children that are linked or expected.
    pub fn children(&mut self, message: impl Into<Control>) {
        self.agent.links.send_children(&control_frame(JobId(0), &message.into()));
    }

    /// Records that these jobs have no more traffic with peers; acknowledges received frames, so that peers need not
    /// keep them.
    pub fn forget_direct(&mut self, jobs: &[JobId]) {
        self.agent.links.with_direct(|direct| jobs.iter().for_each(|job| direct.forget(*job)));
    }

    /// Sends again the frames that may have been lost on their way through the tree: those to or from `top`, or agents
    /// below it in the original tree.
    pub fn route_again(&mut self, top: AgentId) {
        let is_behind = |agent| self.tree.subtree_contains(top, agent);
        let has_moved = is_behind(self.me);
        self.agent.links.with_direct(|direct| direct.route_again(|peer| has_moved || is_behind(peer)));
    }

    /// Asks the parent for the time of its clock, at most once, and not if both agents share a machine and thus a
    /// clock.
    pub fn ask_clock(&mut self, parent: AgentId) {
        if !self.is_root() && self.agent.clock.is_new() {
            let question = self.agent.clock.ask(parent, self.agent.now);
            self.up(question);
        }
    }

    /// Handles the parent's answer about its clock. Jobs whose trace waited for it may end now.
    pub fn on_clock_told(&mut self, asked_ns: u64, told_ns: u64) {
        if let Some(question) = self.agent.clock.on_told(self.agent.now, asked_ns, told_ns) {
            self.up(question);
        }
        self.jobs.tell_each(&mut self.agent, self.jobs.ids(), |_, _| {});
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
        cx.agent.clock = by_ssh();
        cx.ask_clock(AgentId(0));
        cx.ask_clock(AgentId(0));
        let asked_ns = cx.agent.now.0;
        assert_eq!(cx.outputs().sent(UP), [Control::SessionUp(SessionUp::ClockAsk { asked_ns })]);
        for _ in 1..8 {
            cx.agent.now = cx.agent.now + 10;
            let asked_ns = cx.agent.now.0 - 10;
            cx.on_clock_told(asked_ns, asked_ns + 5);
            assert_eq!(cx.outputs().sent(UP).len(), 1);
        }
        cx.on_clock_told(cx.agent.now.0, cx.agent.now.0);
        assert!(cx.outputs().is_empty(), "no more than eight rounds");
    }

    /// A lost parent does not answer. Jobs wait for an answer, so the new parent must be asked.
    #[test]
    fn another_parent_is_asked_from_the_start() {
        let mut cx = in_session(1).linked();
        cx.agent.clock = by_ssh();
        for _ in 0..2 {
            cx.agent.clock.start_over();
            cx.ask_clock(AgentId(0));
        }
        assert_eq!(cx.outputs().sent(UP).len(), 2);
        cx.agent.clock = ClockOffset::of(&RemoteShell::Local);
        cx.agent.clock.start_over();
        assert!(cx.agent.clock.is_known());
    }

    #[test]
    fn agents_on_one_machine_do_not_request_the_clock() {
        let (mut on_one, mut root) = (one_run(1).linked(), one_run(0).linked());
        on_one.agent.clock = ClockOffset::of(&RemoteShell::Local);
        root.agent.clock = by_ssh();
        for cx in [&mut on_one, &mut root] {
            cx.ask_clock(AgentId(0));
            assert!(cx.outputs().is_empty());
        }
    }
}
