//! One agent for tests: the test plays its driver and its neighbours.

use super::specs::{T, local, session, standing};
use crate::agent::{Agent, AgentConfig};
use crate::io::{ExitStatus, Input, JobEvent, LinkId, Output, Peer, ShellId, SpawnPlan, Started, Stream};
use crate::job::Born;
use crate::outbox::control_frame;
use crate::time::Instant;
use bytes::Bytes;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use wireup_wire::frame::{Frame, FrameKind};
use wireup_wire::ids::{AgentId, JobId, LocalRank};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{self, Cause, Ended, SessionSpec};
use wireup_wire::talk::{Control, FromLauncher, JobUp, SessionDown, ToLauncher};

/// The link to the parent; at the root of a session of one run, the link to the launcher.
pub const UP: LinkId = LinkId(0);

pub struct TestAgent {
    agent: Agent,
    is_root: bool,
    /// The time of the next input.
    pub now: Instant,
}

impl TestAgent {
    /// Agent `me` as its driver starts it at this time.
    pub fn start(me: u32, session: SessionSpec, now: Instant) -> TestAgent {
        let born = Born { process_ns: now.0, bootstrap_ns: now.0 };
        let mut agent = Agent::new(AgentConfig::new(AgentId(me), session, born));
        agent.begin(now);
        TestAgent { agent, is_root: me == 0, now }
    }

    /// An agent that is linked to its parent; the root of one run is linked to its launcher.
    pub fn linked(me: u32, session: SessionSpec) -> TestAgent {
        let peer = match me {
            0 if session.standing.is_some() => None,
            0 => Some(Peer::Launcher),
            _ => Some(Peer::Parent),
        };
        let mut agent = TestAgent::start(me, session, T);
        if let Some(peer) = peer {
            agent.link_up(UP, peer);
        }
        agent
    }

    /// A linked agent that other agents can dial, which the driver reports before a remote shell can end.
    pub fn new(me: u32, session: SessionSpec) -> TestAgent {
        let mut agent = TestAgent::linked(me, session);
        agent.handle(Input::Listening { result: Ok(vec!["10.0.0.1:5".into()]) });
        agent
    }

    /// An agent of seven in a standing session on one machine, linked to its parent unless it is the root.
    pub fn standing(me: u32) -> TestAgent {
        TestAgent::linked(me, standing(local(session(7))))
    }

    pub fn handle(&mut self, input: Input) -> &mut Self {
        self.agent.handle(self.now, input);
        self
    }

    /// The driver reports an event of a job.
    pub fn event(&mut self, job: JobId, event: JobEvent) -> &mut Self {
        self.handle(Input::Job { job, event })
    }

    pub fn launch(&mut self, spec: impl Into<Arc<JobSpec>>) -> &mut Self {
        self.agent.launch(self.now, spec);
        self
    }

    pub fn tick_at(&mut self, now: Instant) -> &mut Self {
        self.now = now;
        self.handle(Input::Tick)
    }

    /// Sends a tick at the agent's deadline.
    pub fn tick_when_due(&mut self) -> &mut Self {
        self.tick_at(self.deadline().expect("the agent waits for a time"))
    }

    pub fn link_up(&mut self, link: LinkId, peer: Peer) -> &mut Self {
        self.handle(Input::LinkUp { link, peer, local: String::new() })
    }

    pub fn link_down(&mut self, link: LinkId) -> &mut Self {
        self.handle(Input::LinkDown { link, problem: "closed".into() })
    }

    pub fn link_child(&mut self, child: u32) -> LinkId {
        let link = LinkId(100 + child);
        self.link_up(link, Peer::Child { agent: AgentId(child), incarnation: 0 });
        link
    }

    /// Attaches a launcher to the root of a standing session; returns the number of its job.
    pub fn attach(&mut self, link: LinkId) -> u32 {
        let sent = self.link_up(link, Peer::Launcher).sent(link);
        let [Control::ToLauncher(ToLauncher::Welcome(welcome))] = &sent[..] else { panic!("{sent:?}") };
        welcome.job.0
    }

    pub fn receive(&mut self, link: LinkId, job: u32, message: impl Into<Control>) -> &mut Self {
        self.receive_frame(link, control_frame(JobId(job), &message.into()))
    }

    /// A launcher, or the parent, starts a job.
    pub fn receive_launch(&mut self, link: LinkId, spec: JobSpec) -> &mut Self {
        let (job, spec) = (spec.job.0, spec.into());
        match self.is_root {
            true => self.receive(link, job, FromLauncher::Launch(spec)),
            false => self.receive(link, job, SessionDown::Launch(spec)),
        }
    }

    pub fn receive_frame(&mut self, link: LinkId, frame: Frame) -> &mut Self {
        self.handle(Input::LinkBytes { link, bytes: Bytes::copy_from_slice(&frame.header()) });
        self.handle(Input::LinkBytes { link, bytes: frame.payload })
    }

    /// The first rank of the node has started.
    pub fn rank_started(&mut self, job: u32) -> &mut Self {
        let local = LocalRank(0);
        self.event(JobId(job), JobEvent::RankStarted { local, result: Ok(Started { pid: 1, spawn_ns: 1, exec_ns: 1 }) })
    }

    pub fn rank_exited(&mut self, job: u32, local: u16, status: ExitStatus) -> &mut Self {
        self.event(JobId(job), JobEvent::RankExited { local: LocalRank(local), status, out_of_memory: false })
    }

    /// A rank has ended, and so have its output streams.
    pub fn rank_ended(&mut self, job: u32, local: u16, status: ExitStatus) -> &mut Self {
        let (job, local) = (JobId(job), LocalRank(local));
        self.event(job, JobEvent::RankExited { local, status, out_of_memory: false });
        for stream in [Stream::Out, Stream::Err] {
            self.event(job, JobEvent::StdioClosed { local, stream });
        }
        self
    }

    pub fn shell_ended(&mut self, shell: ShellId, code: u8, stderr: &str) -> &mut Self {
        self.handle(Input::ShellEnded { shell, end: Ok((ExitStatus::Exited(code), stderr.into())) })
    }

    /// Everything that the agent has requested since the last call.
    pub fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.agent.poll()).collect()
    }

    /// The messages among the outputs; drops the other outputs.
    pub fn sent(&mut self, link: LinkId) -> Vec<Control> {
        self.outputs().sent(link)
    }
}

impl Deref for TestAgent {
    type Target = Agent;

    fn deref(&self) -> &Agent {
        &self.agent
    }
}

impl DerefMut for TestAgent {
    fn deref_mut(&mut self) -> &mut Agent {
        &mut self.agent
    }
}

/// Queries of a list of outputs, for tests.
pub trait Look {
    /// The control messages on a link.
    fn sent(&self, link: LinkId) -> Vec<Control>;
    fn closes(&self, link: LinkId) -> bool;
    /// The remote shells that are started in order to start agents, each with its agent.
    fn calls(&self) -> Vec<(ShellId, u32)>;
    /// The remote shells that are started in order to probe hosts.
    fn probes(&self) -> Vec<ShellId>;
    fn plan(&self) -> Option<&SpawnPlan>;
    fn spawns(&self) -> bool {
        self.plan().is_some()
    }
}

impl Look for [Output] {
    fn sent(&self, to: LinkId) -> Vec<Control> {
        let message = |output: &Output| match output {
            Output::Send { link, frame } if *link == to && frame.kind == FrameKind::Control => {
                Some(peer::decode(&frame.payload).expect("our own message"))
            }
            _ => None,
        };
        self.iter().filter_map(message).collect()
    }

    fn closes(&self, link: LinkId) -> bool {
        self.contains(&Output::CloseLink { link })
    }

    fn calls(&self) -> Vec<(ShellId, u32)> {
        let call = |output: &Output| match output {
            Output::StartAgent { shell, agent, bootstrap: Some(_), .. } => Some((*shell, agent.0)),
            _ => None,
        };
        self.iter().filter_map(call).collect()
    }

    fn probes(&self) -> Vec<ShellId> {
        let probe = |output: &Output| match output {
            Output::StartAgent { shell, bootstrap: None, .. } => Some(*shell),
            _ => None,
        };
        self.iter().filter_map(probe).collect()
    }

    fn plan(&self) -> Option<&SpawnPlan> {
        self.iter().find_map(|output| if let Output::Spawn(plan) = output { Some(&**plan) } else { None })
    }
}

/// The reason of the first failure in these messages.
pub fn cause(messages: &[Control]) -> Option<&Cause> {
    messages.iter().find_map(|message| match message {
        Control::JobUp(JobUp::Failed(failure))
        | Control::ToLauncher(ToLauncher::Ended(Ended { failure: Some(failure), .. })) => Some(&failure.cause),
        _ => None,
    })
}
