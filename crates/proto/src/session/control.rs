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
use wireup_wire::talk::{Control, FromLauncher, JobDown, Pulse, SessionDown, SessionUp};

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
    match (from.branch, message) {
        (None, Control::FromLauncher(FromLauncher::Launch(spec))) => on_launch(spec, fx),
        (None, Control::FromLauncher(FromLauncher::Spawned(result))) => {
            fx.push(Effect::Launchers(launchers::Input::Spawned { job, result }));
        }
        (None, Control::SessionDown(message)) => on_session_down(view, routes, frame, message, fx),
        (Some(child), Control::SessionUp(message)) => on_session_up(view, child, message, fx),
        (None, Control::JobDown(JobDown::Over { agents })) if view.policy.survives_losses() => {
            on_over(view, agents, frame, fx);
        }
        (_, Control::JobDown(message)) => view.jobs.on_control_down(from.neighbour, job, message, fx),
        (_, Control::JobUp(message)) => view.jobs.on_control_up(view.tree, from.neighbour, job, message, fx),
        (Some(branch), Control::Note(note)) => {
            fx.push(Effect::Starter(starter::Input::Note { branch, job, note }));
        }
        (_, Control::Pulse(Pulse::AreYouAlive)) => {
            fx.push(Effect::Heartbeat(heartbeat::Input::Asked(from.side())));
        }
        (_, Control::Pulse(Pulse::Alive)) => {
            fx.push(Effect::Heartbeat(heartbeat::Input::Answered(from.side())));
        }
        // The other end cannot hold such a conversation.
        (
            _,
            Control::SessionDown(_)
            | Control::SessionUp(_)
            | Control::FromLauncher(_)
            | Control::ToLauncher(_)
            | Control::Note(_),
        ) => {}
    }
}

fn on_launch(spec: Box<JobSpec>, fx: &mut Effects) {
    fx.push(Effect::Starter(starter::Input::NewTime));
    fx.push(Effect::Launch(Arc::from(spec)));
}

fn on_session_down(view: &View<'_>, routes: &Routes, frame: &Frame, message: SessionDown, fx: &mut Effects) {
    let survives = view.policy.survives_losses();
    match message {
        SessionDown::Launch(spec) => on_launch(spec, fx),
        SessionDown::Shutdown => fx.push(Effect::Shutdown),
        SessionDown::NotStarted(missing) => fx.push(Effect::Starter(starter::Input::NotStarted(missing))),
        SessionDown::ClockTell { asked_ns, told_ns } => fx.push(Effect::ClockTold { asked_ns, told_ns }),
        SessionDown::TimeLeft { left_ns } => fx.push(Effect::Starter(starter::Input::TimeLeft(left_ns))),
        SessionDown::Probed { agent, asker, problem } => {
            fx.push(Effect::Starter(starter::Input::Probed { agent, asker, problem }));
        }
        SessionDown::UseTransport { yes } => fx.push(Effect::Agreement(agreement::Input::Decided(yes))),
        SessionDown::Start { spec, newest, live } if survives => {
            on_start(view, routes, frame, *spec, newest, live, fx);
        }
        SessionDown::Log(log) if survives => fx.push(Effect::Membership(membership::Input::Log(log))),
        // Nobody sends these in a session of one run.
        SessionDown::Start { .. } | SessionDown::Log(_) => {}
    }
}

fn on_session_up(view: &View<'_>, branch: AgentId, message: SessionUp, fx: &mut Effects) {
    let survives = view.policy.survives_losses();
    match message {
        SessionUp::StartFor { agent, jobs, parent, problem, snapshot } => {
            let wish = Wish { agent, jobs, purpose: Purpose::Stead { branch, parent, snapshot } };
            fx.push(Effect::Starter(starter::Input::StartFor { wish, branch, problem }));
        }
        SessionUp::Probe { agent, asker } => {
            fx.push(Effect::Starter(starter::Input::ProbeFor { branch, agent, asker }));
        }
        SessionUp::TransportLooked { missing } => {
            fx.push(Effect::Agreement(agreement::Input::Looked { branch, missing }));
        }
        SessionUp::ClockAsk { asked_ns } => {
            fx.child(branch, Control::SessionDown(SessionDown::ClockTell { asked_ns, told_ns: view.now.0 }));
        }
        SessionUp::Here(agents) if survives => {
            fx.push(Effect::Membership(membership::Input::Here { branch, agents }));
        }
        SessionUp::RankPorts(report) if survives => {
            fx.push(Effect::RankPorts(rank_ports::Input::Told { branch, report }));
        }
        SessionUp::Gone(gone) if survives => {
            fx.push(Effect::Membership(membership::Input::Gone { branch, gone }));
        }
        // Nobody sends these in a session of one run.
        SessionUp::Here(_) | SessionUp::RankPorts(_) | SessionUp::Gone(_) => {}
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
