//! One agent of a session: routes each input to the part that owns it.
//!
//! ```text
//!                 launcher or parent  (up)
//!                        │ ▲
//!   LinkBytes ──► Links ─┴─┴─► Job ◄── ClientBytes, StdioBytes, Child* (this node's ranks)
//!                        │ ▲
//!                     children  (down)
//! ```
//!
//! The root is an agent like any other. A one-shot run is a session with one job; the differences between the two are
//! in `Policy`.

use crate::io::{Input, LinkId, Output, Peer};
use crate::job::Job;
use crate::link::Arrived;
use crate::pmi_server::kvs::PairMemory;
use crate::session::shell_calls::{Purpose, Wish};
pub use crate::session::{AgentConfig, Holds};
use crate::session::{Session, Side};
use crate::time::Instant;
use bytes::Bytes;
use std::sync::Arc;
use wireup_wire::frame::{DownFrame, Frame, FrameKind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{self, Cause, Note, PeerError, SessionSpec};
use wireup_wire::session::NodeState;
use wireup_wire::talk::{Control, FromLauncher, JobDown, SessionDown, SessionUp};

pub struct Agent {
    session: Session,
}

impl Agent {
    pub fn new(config: AgentConfig) -> Self {
        Agent { session: Session::new(config) }
    }

    /// At the root: the state of each node of the session. Empty at other agents.
    pub fn nodes(&self) -> &[NodeState] {
        self.session.nodes()
    }

    pub fn session(&self) -> &SessionSpec {
        &self.session.cx.session
    }

    /// In a standing session: starts this agent's children without waiting for a job. Otherwise does nothing.
    pub fn begin(&mut self, now: Instant) {
        if self.session.cx.policy.starts_all_agents() {
            self.session.cx.set_now(now);
            self.session.begin();
            self.session.finish(false);
        }
    }

    /// Starts a job from the bootstrap message.
    pub fn launch(&mut self, now: Instant, spec: impl Into<Arc<JobSpec>>) {
        self.session.cx.set_now(now);
        self.session.on_launch(spec.into());
        self.session.finish(false);
    }

    /// Passes one event at time `now` to the agent. Never blocks.
    pub fn handle(&mut self, now: Instant, input: Input) {
        if self.session.leaving.has_left() {
            return;
        }
        self.session.cx.set_now(now);
        let may_concern_all = self.on_input(input);
        self.session.finish(may_concern_all);
    }

    /// The next action for the driver; call until `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.session.cx.agent.links.out.pop()
    }

    /// Time at which `handle` must be called with `Input::Tick` if no other input arrives before.
    pub fn deadline(&self) -> Option<Instant> {
        self.session.deadline()
    }

    /// Replaces the description of each job by an equal one. The agents of the simulator share these descriptions,
    /// because each lists all nodes of a job.
    pub fn share_specs(&mut self, share: impl FnMut(&Arc<JobSpec>) -> Arc<JobSpec>) {
        self.session.cx.jobs.share_specs(share);
    }

    /// Bytes of output buffered here, for the simulator's checkers.
    pub fn held_output_bytes(&self) -> usize {
        self.session.cx.jobs.values().map(Job::held_output_bytes).sum()
    }

    /// The memory that pairs of fences have taken here in each job, for the simulator's costs.
    pub fn pair_memory(&self) -> impl Iterator<Item = PairMemory> {
        self.session.cx.jobs.values().map(Job::pair_memory)
    }

    /// Number of collectives in progress here, for the simulator's checkers.
    pub fn open_exchanges(&self) -> usize {
        self.session.cx.jobs.values().map(Job::open_exchanges).sum()
    }

    /// What this agent stores, for the simulator's checkers: the number of entries in tables that grow and shrink with
    /// jobs, and the bytes of frames that wait or are kept.
    pub fn holds(&self) -> Holds {
        self.session.holds()
    }

    /// Passes an input to the part of the agent that handles it. Returns whether the whole agent must be checked
    /// afterwards: not for an event of a job, unless `Jobs::have_changed` says so.
    fn on_input(&mut self, input: Input) -> bool {
        let session = &mut self.session;
        let cx = &mut session.cx;
        match input {
            Input::Job { job, event } => {
                cx.jobs.tell(&mut cx.agent, job, |job, cx| job.on_event(cx, event));
                return false;
            }
            Input::LinkBytes { link, bytes } => self.on_bytes(link, bytes),
            Input::LinkUp { link, peer, local } => session.on_link_up(link, peer, local),
            Input::LinkDown { link, problem } => session.on_link_down(link, problem),
            Input::Listening { result } => cx.agent.links.with_direct(|direct| direct.on_listening(result)),
            Input::DialFailed { agent: Some(agent), problem } => {
                cx.agent.links.with_direct(|direct| direct.on_dial_failed(agent, problem));
            }
            Input::TransportOpened { result } => session.agreement.on_opened(cx, result),
            Input::ShellEnded { shell, end: Ok((status, stderr)) } => {
                session
                    .start(|child_starts, cx, snapshot| child_starts.on_exited(cx, snapshot, shell, status, &stderr));
            }
            Input::ShellEnded { shell, end: Err(error) } => {
                session.start(|child_starts, cx, snapshot| child_starts.on_failed(cx, snapshot, shell, error));
            }
            Input::StepTold { shell, agent, problem } => {
                session.start(|child_starts, cx, _| child_starts.on_step_told(cx, shell, agent, problem));
            }
            Input::ParentReached { address, took_ns, failed } => {
                if cx.session.verbose {
                    cx.note(Note::Dialled { agent: cx.me, address, took_ns, failed });
                }
            }
            Input::StepNotSealed { problem } => cx.note(Note::NotSealed { problem }),
            Input::ToldToEnd { signal } => {
                session.leaving.on_told_to_end();
                cx.jobs.tell_each(&mut cx.agent, cx.jobs.ids(), |_, cx| cx.fail_here(Cause::ToldToEnd { signal }));
            }
            Input::RankPortsReserved { result } => {
                session.report_ports(|ports, cx| ports.on_reserved(cx, result));
            }
            Input::RankPortsRenewed { job } => session.report_ports(|ports, cx| ports.on_renewed(cx, job)),
            Input::DialFailed { agent: None, .. } => {
                if session.membership.on_rejoin_failed(cx) {
                    session.leaving.leave(cx);
                }
            }
            Input::EndSession { reason } => {
                session.serve_launchers(|launchers, cx, _| launchers.end(cx, None, reason));
            }
            Input::Tick => session.on_tick(),
        }
        true
    }

    /// Handles the frames in bytes that were received on a link.
    fn on_bytes(&mut self, link: LinkId, mut bytes: Bytes) {
        let problem = loop {
            let Some(reader) = self.session.cx.agent.links.reader(link) else { break None };
            let handled = match reader.next(&mut bytes) {
                Ok(Some(frame)) => self.on_frame(link, frame).map_err(|error| error.to_string()),
                Ok(None) => break None,
                Err(error) => Err(error.to_string()),
            };
            match handled {
                Ok(()) => self.session.serve_jobs(),
                Err(problem) => break Some(problem),
            }
        };
        let session = &mut self.session;
        let Some(problem) = problem else {
            return session.serve_launchers(|launchers, cx, nodes| launchers.answer_questions(cx, nodes, link));
        };
        session.serve_launchers(|launchers, cx, _| launchers.refuse_link(cx, link, problem.clone()));
        session.cx.close(link);
        session.on_link_down(link, problem.into());
    }

    /// Passes a frame to the part that handles it.
    fn on_frame(&mut self, link: LinkId, frame: Frame) -> Result<(), PeerError> {
        let cx = &mut self.session.cx;
        let Some(peer) = cx.agent.links.peer(link) else { return Ok(()) };
        let branch = match peer {
            Peer::Child { agent, .. } => Some(agent),
            Peer::Launcher if cx.policy.has_many_launchers() => return self.on_launcher_frame(link, frame),
            Peer::Parent | Peer::Launcher => None,
            Peer::Direct(agent) => {
                let arrived = cx.agent.links.on_direct_frame(link, agent, frame);
                return self.session.on_arrived(arrived);
            }
            // An agent that has lost its parent becomes a child when it is adopted; until then its frames are ignored.
            Peer::Rejoin { .. } => return Ok(()),
        };
        let neighbour = cx.agent.links.agent_at(peer);
        match (frame.kind, neighbour) {
            (FrameKind::Routed, _) => {
                if let Some(arrived) = cx.agent.links.on_routed(branch, frame)? {
                    // The agent at the other end of the link has only forwarded the frame: an error in it does not
                    // close the link.
                    let _ = self.session.on_arrived(arrived);
                }
                Ok(())
            }
            (FrameKind::Control, _) => {
                let message: Control = peer::decode(&frame.payload)?;
                self.on_control(branch, neighbour, &frame, message)
            }
            // Orders of the root (`NamesDown`) are answered even after the job has ended here.
            (FrameKind::Peer(_) | FrameKind::Down(DownFrame::NamesDown), Some(from)) => {
                let job = JobId(frame.job);
                self.session.on_arrived(Arrived { from, job, frame: Some(frame) })
            }
            (FrameKind::Up(_) | FrameKind::Down(_), _) => cx.jobs.on_frame(&mut cx.agent, neighbour, frame),
            // A frame that was queued for this agent before the root adopted it is dropped.
            (FrameKind::Peer(_), None) if !cx.is_root() => Ok(()),
            (FrameKind::Peer(_), None) | (FrameKind::Pair, _) => Err(PeerError::Misdirected),
        }
    }

    fn on_launcher_frame(&mut self, link: LinkId, frame: Frame) -> Result<(), PeerError> {
        if !self.session.launchers.is_attached(link) {
            return Ok(());
        }
        match frame.kind {
            FrameKind::Control => {
                let (job, message) = (JobId(frame.job), peer::decode(&frame.payload)?);
                self.session.serve_launchers(|launchers, cx, nodes| launchers.on_said(cx, nodes, link, job, message));
            }
            FrameKind::Down(kind) if kind.may_come_from_launcher() => {
                self.session.serve_launchers(|launchers, cx, _| launchers.on_frame(cx, link, kind, frame));
            }
            _ => return Err(PeerError::Misdirected),
        }
        Ok(())
    }

    /// Handles a control message of child `branch` or (`None`) of the parent. `neighbour`: the agent at the other end,
    /// if it is a neighbour in the original tree.
    ///
    /// # Errors
    /// No correct agent sends this message in this direction, or it exists only in standing sessions and this is a
    /// session of one run.
    fn on_control(
        &mut self,
        branch: Option<AgentId>,
        neighbour: Option<AgentId>,
        frame: &Frame,
        message: Control,
    ) -> Result<(), PeerError> {
        let session = &mut self.session;
        let cx = &mut session.cx;
        let (job, side) = (JobId(frame.job), branch.map_or(Side::Above, Side::Below));
        // The root has a launcher instead of a parent.
        let is_launcher = branch.is_none() && cx.is_root();
        match (branch, message) {
            (None, Control::FromLauncher(FromLauncher::Launch(spec))) if is_launcher => session.on_job_sent(spec),
            (None, Control::FromLauncher(FromLauncher::Spawned(result))) if is_launcher => {
                session.launchers.spawns.on_result(cx, job, None, result);
            }
            (None, Control::SessionDown(message)) if !is_launcher || message == SessionDown::Shutdown => {
                return self.on_session_down(frame, message);
            }
            (Some(child), Control::SessionUp(message)) => return self.on_session_up(child, message),
            (None, Control::JobDown(JobDown::Over { agents })) if cx.policy.survives_losses() => {
                session.on_over(agents, frame);
            }
            (_, Control::JobDown(message)) => return cx.jobs.on_control_down(&mut cx.agent, neighbour, job, message),
            (_, Control::JobUp(message)) => return cx.jobs.on_control_up(&mut cx.agent, neighbour, job, message),
            (Some(branch), Control::Note(note)) => session.child_starts.on_note(cx, branch, (job, note)),
            (_, Control::AreYouAlive) => session.heartbeat.on_asked(cx, side),
            (_, Control::Alive) => session.heartbeat.on_answered(cx, side),
            (_, _message) => return Err(PeerError::Misdirected),
        }
        Ok(())
    }

    fn on_session_down(&mut self, frame: &Frame, message: SessionDown) -> Result<(), PeerError> {
        let session = &mut self.session;
        let cx = &mut session.cx;
        let survives = cx.policy.survives_losses();
        match message {
            SessionDown::Launch(spec) => session.on_job_sent(spec),
            SessionDown::Shutdown => session.leaving.on_shutdown(cx),
            SessionDown::NotStarted(missing) => {
                session.start(|child_starts, cx, _| child_starts.on_not_started(cx, missing))
            }
            SessionDown::ClockTell { asked_ns, told_ns } => cx.on_clock_told(asked_ns, told_ns),
            SessionDown::TimeLeft { left_ns } => session.child_starts.on_time_left(cx, left_ns),
            SessionDown::Probed { agent, asker, problem } => {
                session.start(|child_starts, cx, _| child_starts.on_probed_above(cx, agent, asker, problem));
            }
            SessionDown::UseTransport { yes } => session.agreement.on_decided(cx, yes),
            SessionDown::Start { spec, newest, live } if survives => session.on_start(frame, *spec, newest, &live),
            SessionDown::Log(log) if survives => session.on_log(log),
            SessionDown::Start { .. } | SessionDown::Log(_) => return Err(PeerError::Misdirected),
        }
        Ok(())
    }

    fn on_session_up(&mut self, branch: AgentId, message: SessionUp) -> Result<(), PeerError> {
        let session = &mut self.session;
        let cx = &mut session.cx;
        let survives = cx.policy.survives_losses();
        match message {
            SessionUp::StartFor { agent, jobs, parent, problem, snapshot } => {
                let wish = Wish { agent, jobs, purpose: Purpose::Stead { branch, parent, snapshot } };
                session.start(|child_starts, cx, _| child_starts.on_start_for(cx, branch, wish, problem));
            }
            SessionUp::Probe { agent, asker } => {
                session.start(|child_starts, cx, _| child_starts.on_probe_for(cx, branch, agent, asker));
            }
            SessionUp::TransportLooked { missing } => session.agreement.on_looked(cx, branch, missing),
            SessionUp::ClockAsk { asked_ns } => {
                cx.child(branch, SessionDown::ClockTell { asked_ns, told_ns: cx.agent.now.0 });
            }
            SessionUp::Here(agents) if survives => session.on_here(branch, agents),
            SessionUp::RankPorts(report) if survives => {
                session.report_ports(|ports, cx| ports.on_told(cx, branch, report));
            }
            SessionUp::Gone(gone) if survives => {
                session.decide(|membership, cx, live| membership.on_gone(cx, live, branch, gone));
            }
            SessionUp::Here(_) | SessionUp::RankPorts(_) | SessionUp::Gone(_) => return Err(PeerError::Misdirected),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
