//! What the parts of a job work with while the job handles one input: the time, the job's description, and the way
//! out.
//!
//! A part sends frames and asks the driver for actions through [`Cx`], at once. What another part must do is the part's
//! return value, which `Job` handles in the function that has called the part. Failures are the exception: any part may
//! find one, deep inside its own work, so [`Cx`] notes them, and `Job` acts on them after the rest of the input.

use super::facts::Facts;
use super::interface::{Act, Acts, Turn};
use super::profile::Profile;
use super::ranks::Process;
use super::tree::Up;
use crate::io::Output;
use crate::outbox::control_frame;
use crate::time::Instant;
use std::collections::VecDeque;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, NodeId};
use wireup_wire::inter_job::Report;
use wireup_wire::names;
use wireup_wire::peer::{Cause, Departed, Failure, FenceTrace, Note};
use wireup_wire::talk::{Control, JobDown, JobUp};

pub struct Cx<'a> {
    pub now: Instant,
    pub facts: &'a Facts,
    pub turn: &'a Turn<'a>,
    /// Where frames towards the launcher go.
    pub up: Up,
    /// The job's profile, if it has one.
    pub profile: Option<Box<Profile>>,
    acts: &'a mut Acts,
    endings: VecDeque<Ending>,
}

/// A reason to end the job, or a signal for its ranks, that a part has found.
#[derive(Debug)]
pub enum Ending {
    /// A failure. The first one whose cause ends jobs ends this one.
    Fail(Failure),
    /// A failure that happened on no node of the job. It ends the job, and the output waits for no reader.
    FailBy(Failure),
    /// All ranks of the subtree are to end: by SIGTERM, and by SIGKILL after `grace_ns`.
    Kill { grace_ns: u64 },
    /// All local ranks get a signal.
    Signal(i32),
}

impl<'a> Cx<'a> {
    pub fn new(turn: &'a Turn<'a>, facts: &'a Facts, up: Up, acts: &'a mut Acts) -> Cx<'a> {
        Cx { now: turn.now, facts, turn, up, profile: None, acts, endings: VecDeque::new() }
    }

    pub fn output(&mut self, output: Output) {
        self.act(Act::Output(output));
    }

    pub fn act(&mut self, act: Act) {
        self.acts.act(act);
    }

    /// Sends a frame towards the launcher, along the job's tree.
    pub fn up(&mut self, frame: Frame) {
        match self.up {
            Up::Launcher => self.act(Act::ToLauncher(frame)),
            Up::Agent(agent) => self.act(Act::ToAgent(agent, frame)),
            Up::Nowhere => {}
        }
    }

    pub fn control_up(&mut self, message: JobUp) {
        self.up(control_frame(self.facts.id(), &Control::JobUp(message)));
    }

    pub fn for_agent(&mut self, agent: AgentId, frame: Frame) {
        self.act(Act::ToAgent(agent, frame));
    }

    pub fn for_child(&mut self, child: usize, frame: Frame) {
        self.for_agent(self.facts.below[child], frame);
    }

    pub fn for_node(&mut self, node: NodeId, frame: Frame) {
        self.for_agent(self.facts.agent_of(node), frame);
    }

    /// Sends a control message to all children.
    pub fn control_down(&mut self, message: JobDown) {
        let facts = self.facts;
        let frame = control_frame(facts.id(), &Control::JobDown(message));
        facts.below.iter().for_each(|child| self.for_agent(*child, frame.clone()));
    }

    /// A note for the user, along the session's tree.
    pub fn note(&mut self, note: Note) {
        let frame = control_frame(self.facts.id(), &Control::Note(note));
        self.act(Act::NoteUp(frame));
    }

    /// A message of this agent to the root about another job.
    pub fn tell_root(&mut self, report: Report) {
        self.say_to_root(names::Up::Report { agent: self.facts.me, report });
    }

    /// A request or a message about names or other jobs, which the root handles.
    pub fn say_to_root(&mut self, message: names::Up) {
        if self.facts.root {
            return self.act(Act::Names(message));
        }
        let payload = wireup_wire::peer::encode(&message).into();
        self.up(self.facts.frame(wireup_wire::frame::Kind::NamesUp, 0, 0, payload));
    }

    /// Records a complete collective in the profile.
    pub fn trace(&mut self, trace: FenceTrace) {
        if let Some(profile) = &mut self.profile {
            profile.on_collective(trace);
        }
    }

    pub fn fail(&mut self, failure: Failure) {
        self.endings.push_back(Ending::Fail(failure));
    }

    /// A failure of this node but of no single rank.
    pub fn fail_here(&mut self, cause: Cause) {
        self.fail(failure_here(self.facts, cause));
    }

    pub fn fail_rank(&mut self, process: &Process, cause: Cause) {
        let Process { rank, pid, .. } = *process;
        let failure = failure_here(self.facts, cause);
        self.fail(Failure { rank: Some(rank), pid: (pid != 0).then_some(pid), ..failure });
    }

    /// Others wait for a rank that enters no more collectives.
    pub fn fail_departed(&mut self, departed: Departed, cause: Cause) {
        let Departed { node, rank, pid, .. } = departed;
        let host = self.facts.name_of(node);
        self.fail(Failure { node, host, rank: Some(rank), pid: Some(pid), cause });
    }

    /// A failure that happened on no node of the job.
    pub fn fail_by(&mut self, cause: Cause) {
        let failure = Failure { node: NodeId(0), host: String::new(), rank: None, pid: None, cause };
        self.endings.push_back(Ending::FailBy(failure));
    }

    pub fn kill(&mut self, grace_ns: u64) {
        self.endings.push_back(Ending::Kill { grace_ns });
    }

    pub fn signal(&mut self, signal: i32) {
        self.endings.push_back(Ending::Signal(signal));
    }

    /// Removes and returns the oldest reason to end the job.
    pub fn take_ending(&mut self) -> Option<Ending> {
        self.endings.pop_front()
    }
}

fn failure_here(facts: &Facts, cause: Cause) -> Failure {
    Failure { node: facts.own_node(), host: facts.host(), rank: None, pid: None, cause }
}

#[cfg(test)]
impl Cx<'_> {
    /// Lets a part act in a job; returns its result, what it has sent, and what ends the job.
    pub fn bench<T>(facts: &Facts, now: Instant, act: impl FnOnce(&mut Cx<'_>) -> T) -> (T, Vec<Act>, Vec<Ending>) {
        let mut acts = Acts::default();
        let turn = Turn { now, start_by: now, clock: &Default::default(), standing: false, is_linked: &|_| true };
        let mut cx = Cx::new(&turn, facts, facts.tree.up(), &mut acts);
        let result = act(&mut cx);
        let endings = std::mem::take(&mut cx.endings).into();
        (result, acts.drain().collect(), endings)
    }
}
