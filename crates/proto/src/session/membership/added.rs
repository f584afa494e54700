//! Adds hosts to those of the session for a job, and releases them after it: at the root.
//!
//! ```text
//!   Launch names hosts to add ──► Number ──► the job waits ──► StartAdded: Return ↓ to all
//!   the agents are up ──► the job begins
//!   the job neither waits nor runs ──► Release: Lost ↓ to all; the numbers are free again
//! ```
//!
//! An added agent is a child of the root, without children. It serves one job, and leaves with it (`launchers/jobs`).
//! In a session of one run it is started with its job, as all others are, without a log; so its number is not used
//! again.

use super::{LiveOf, Membership, lease_ns};
use crate::io::LinkId;
use crate::outbox::control_frame;
use crate::session::inputs::{launchers, starter};
use crate::session::{Effect, Effects, View};
use std::sync::Arc;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::MissingAgent;
use wireup_wire::talk::{Control, SessionDown, ToLauncher};

const JOB_OVER: &str = "the job that it was added for is over";

impl Membership {
    pub(super) fn number(&mut self, spec: Arc<JobSpec>, link: Option<LinkId>, fx: &mut Effects) {
        let Some(writer) = &mut self.writer else { return };
        let mut spec = Arc::unwrap_or_clone(spec);
        let mut agents = Vec::new();
        for node in spec.nodes.iter_mut().filter(|node| node.agent == AgentId::ADDED) {
            // The run may use only some nodes of its session, and the added host may be another one of them.
            node.agent = writer.nodes.own_agent(&node.name).unwrap_or_else(|| {
                let agent = writer.nodes.add(&node.name, spec.job);
                fx.push(Effect::Starter(starter::Input::Added { agent, host: node.name.clone() }));
                agent
            });
            agents.push(node.agent);
        }
        let (job, spec, told) = (spec.job, Arc::new(spec), Control::ToLauncher(ToLauncher::Added { agents }));
        match link {
            None => {
                fx.push(Effect::Up(job, told));
                fx.push(Effect::Launch(spec));
            }
            Some(link) => {
                fx.push(Effect::Send(link, control_frame(job, &told)));
                fx.push(Effect::Launchers(launchers::Input::Numbered { link, spec }));
            }
        }
    }

    pub(super) fn start_added(&mut self, view: &View<'_>, live: LiveOf<'_>, job: JobId, fx: &mut Effects) {
        let Some(writer) = &self.writer else { return };
        let of_job = writer.nodes.added().filter(|(_, of)| *of == job);
        let agents: Vec<AgentId> = of_job.map(|(agent, _)| agent).collect();
        if !agents.is_empty() {
            self.bring_back(view, live, agents, fx);
        }
    }

    pub(super) fn release(&mut self, view: &View<'_>, live: LiveOf<'_>, agents: Vec<AgentId>, fx: &mut Effects) {
        let Some(writer) = &mut self.writer else { return };
        let has_log = view.policy.survives_losses();
        // Without incarnations a number belongs to one agent only.
        agents.iter().for_each(|agent| writer.nodes.remove(*agent, has_log));
        if has_log {
            let lost = |agent| MissingAgent { agent, problem: JOB_OVER.into() };
            return self.lose(view, live, agents.into_iter().map(lost).collect(), lease_ns(view), fx);
        }
        for agent in agents {
            match view.neighbours.child(agent) {
                Some(_) => fx.child(agent, Control::SessionDown(SessionDown::Shutdown)),
                None => fx.push(Effect::Starter(starter::Input::Lost(agent))),
            }
        }
    }
}
