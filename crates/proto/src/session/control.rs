//! Dispatches control messages between neighbours in the tree to the parts that handle them.
//!
//! No correct agent sends a message in the wrong direction, or one of standing sessions in a session of one run: they
//! are ignored.

use super::inputs::{agreement, early, heartbeat, launchers, membership, rank_ports, starter};
use super::{Begin, Effect, Effects, Routes, View, placement};
use crate::job::{JobInput, JobTree, agents_of};
use crate::session::starts::{Purpose, Wish};
use std::sync::Arc;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::Control;

/// The origin of a message.
#[derive(Clone, Copy)]
pub struct From {
    /// The child that sent it; `None`: the parent.
    pub branch: Option<AgentId>,
    /// The agent at the other end, if it is a neighbour in the original tree.
    pub neighbour: Option<AgentId>,
}

impl From {
    fn side(self) -> heartbeat::Side {
        self.branch.map_or(heartbeat::Side::Above, heartbeat::Side::Below)
    }
}

pub fn on_control(view: &View<'_>, routes: &Routes, from: From, frame: &Frame, message: Control, fx: &mut Effects) {
    let job = JobId(frame.job);
    let survives = view.policy.survives_losses();
    match (from.branch, message) {
        (None, Control::Launch(spec)) => {
            fx.push(Effect::Starter(starter::Input::NewTime));
            fx.push(Effect::Launch(Arc::from(spec)));
        }
        (None, Control::Spawned(result)) => {
            fx.push(Effect::Launchers(launchers::Input::Spawned { job, result }));
        }
        (None, Control::Shutdown) => fx.push(Effect::Shutdown),
        (None, Control::NotStarted(missing)) => fx.push(Effect::Starter(starter::Input::NotStarted(missing))),
        (None, Control::ClockTell { asked_ns, told_ns }) => fx.push(Effect::ClockTold { asked_ns, told_ns }),
        (None, Control::TimeLeft { left_ns }) => fx.push(Effect::Starter(starter::Input::TimeLeft(left_ns))),
        (None, Control::Probed { agent, asker, problem }) => {
            fx.push(Effect::Starter(starter::Input::Probed { agent, asker, problem }));
        }
        (None, Control::UseTransport { yes }) => fx.push(Effect::Agreement(agreement::Input::Decided(yes))),
        (Some(branch), Control::StartFor { agent, jobs, parent, problem, snapshot }) => {
            let wish = Wish { agent, jobs, purpose: Purpose::Stead { branch, parent, snapshot } };
            fx.push(Effect::Starter(starter::Input::StartFor { wish, branch, problem }));
        }
        (Some(branch), Control::Probe { agent, asker }) => {
            fx.push(Effect::Starter(starter::Input::ProbeFor { branch, agent, asker }));
        }
        (Some(branch), Control::TransportLooked { missing }) => {
            fx.push(Effect::Agreement(agreement::Input::Looked { branch, missing }));
        }
        // A note with job 0 is about the session. In a session of one run the job has number 0 too, so the note may be
        // about the job.
        (Some(branch), Control::Note(note)) if job == JobId(0) => {
            fx.push(Effect::Starter(starter::Input::Note { branch, note }))
        }
        (Some(child), Control::ClockAsk { asked_ns }) => {
            fx.child(child, Control::ClockTell { asked_ns, told_ns: view.now.0 });
        }
        (_, Control::AreYouAlive) => fx.push(Effect::Heartbeat(heartbeat::Input::Asked(from.side()))),
        (_, Control::Alive) => fx.push(Effect::Heartbeat(heartbeat::Input::Answered(from.side()))),
        // Messages that are sent only in standing sessions.
        (None, Control::Start { spec, newest, live }) if survives => {
            on_start(view, routes, frame, *spec, newest, live, fx);
        }
        (None, Control::Over { agents }) if survives => on_over(view, agents, frame, fx),
        (Some(branch), Control::Here(agents)) if survives => {
            fx.push(Effect::Membership(membership::Input::Here { branch, agents }));
        }
        (Some(branch), Control::RankPorts(report)) if survives => {
            fx.push(Effect::RankPorts(rank_ports::Input::Told { branch, report }));
        }
        (Some(branch), Control::Gone(gone)) if survives => {
            fx.push(Effect::Membership(membership::Input::Gone { branch, gone }));
        }
        (None, Control::Log(log)) if survives => fx.push(Effect::Membership(membership::Input::Log(log))),
        // Messages about a job.
        (
            _,
            message @ (Control::Started { .. }
            | Control::Ready
            | Control::StartRanks
            | Control::Failed(_)
            | Control::Departed(_)
            | Control::Done(_)
            | Control::Signal { .. }
            | Control::Resize { .. }
            | Control::Kill { .. }
            | Control::StallAsk { .. }
            | Control::Stall(_)
            | Control::Note(_)
            | Control::Missing(_)
            | Control::Over { .. }),
        ) => view.jobs.on_control(view.tree, from.neighbour, job, message, fx),
        (
            _,
            Control::Launch(_)
            | Control::Shutdown
            | Control::StartFor { .. }
            | Control::NotStarted(_)
            | Control::TimeLeft { .. }
            | Control::Probe { .. }
            | Control::Probed { .. }
            | Control::TransportLooked { .. }
            | Control::UseTransport { .. }
            | Control::ClockAsk { .. }
            | Control::ClockTell { .. }
            | Control::Ended(_)
            | Control::Spawn { .. }
            | Control::Added { .. }
            | Control::Spawned(_)
            | Control::Together { .. }
            | Control::Welcome(_)
            | Control::Refused { .. }
            | Control::Granted
            | Control::AskJobs
            | Control::JobList(_)
            | Control::AskSeats(_)
            | Control::Seats(_)
            | Control::AskNodes
            | Control::Nodes(_)
            | Control::Revive
            | Control::KillJob { .. }
            | Control::EndSession { .. }
            | Control::Start { .. }
            | Control::Here(_)
            | Control::RankPorts(_)
            | Control::Gone(_)
            | Control::Log(_),
        ) => {}
    }
}

/// A job of a standing session arrives from the parent.
fn on_start(
    view: &View<'_>,
    routes: &Routes,
    frame: &Frame,
    spec: JobSpec,
    newest: JobId,
    live: Vec<JobId>,
    fx: &mut Effects,
) {
    // The root has checked the job, so a wrong description is ignored.
    let Ok(mapping) = placement(&spec) else { return };
    let agents = agents_of(&spec, &mapping);
    fx.push(Effect::PassOn(agents.clone(), frame.clone()));
    fx.push(Effect::Early(early::Input::Live { newest, live }));
    if agents.contains(&view.me) && !agents.iter().any(|agent| routes.is_lost(*agent)) {
        let tree = JobTree::of(view.me, view.tree.fanout(), agents);
        let begin = Box::new(Begin { spec: spec.into(), mapping, tree, lost: Vec::new() });
        fx.push(Effect::Early(early::Input::Start { begin, live: None }));
    }
}

/// A job has ended on all of its nodes. An agent that still has it ends it locally.
fn on_over(view: &View<'_>, agents: Vec<AgentId>, frame: &Frame, fx: &mut Effects) {
    let job = JobId(frame.job);
    fx.push(Effect::PassOn(agents, frame.clone()));
    fx.push(Effect::RankPorts(rank_ports::Input::Over(job)));
    fx.push(match view.jobs.has(job) {
        true => Effect::Job(job, JobInput::Abandon),
        false => Effect::Early(early::Input::Over(job)),
    });
}
