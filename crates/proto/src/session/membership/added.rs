//! Hosts that jobs add to those of the session: at the root.
//!
//! ```text
//!   Launch names hosts to add ──► Number ──► the job waits ──► StartAdded: Return ↓ to all ──► its agents are up: the job begins
//!                                                                 the job is over: Lost ↓ to all; the numbers are free again
//! ```
//!
//! An added agent is a child of the root, without children. It serves one job, and leaves when no job that waits or runs needs it. In a
//! session of one run it is started with its job, as all others are, without a log; so its number is not used again.

use super::{LiveOf, Membership, lease_ns};
use crate::io::LinkId;
use crate::outbox::control_frame;
use crate::session::inputs::membership::Input;
use crate::session::inputs::{launchers, starter};
use crate::session::{Effect, Effects, View};
use std::sync::Arc;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Control, MissingAgent};

const JOB_OVER: &str = "the job that it was added for is over";

impl Membership {
    pub(super) fn number(&mut self, view: &View<'_>, spec: Arc<JobSpec>, link: Option<LinkId>, fx: &mut Effects) {
        let Some(writer) = &mut self.writer else { return };
        let mut spec = Arc::unwrap_or_clone(spec);
        let mut agents = Vec::new();
        for node in spec.nodes.iter_mut().filter(|node| node.agent == AgentId::ADDED) {
            node.agent = writer.nodes.add(&node.name, spec.job, view.policy.survives_losses());
            agents.push(node.agent);
            fx.push(Effect::Starter(starter::Input::Added { agent: node.agent, host: node.name.clone() }));
        }
        let (job, spec, told) = (spec.job, Arc::new(spec), Control::Added { agents });
        match link {
            None => {
                fx.push(Effect::Up(job, told));
                fx.push(Effect::Launch(spec));
            }
            Some(link) => {
                fx.push(Effect::Send(link, control_frame(job, &told)));
                fx.push(Effect::Launchers(launchers::Input::Numbered { link, spec }));
                fx.push(Effect::Membership(Input::StartAdded(job)));
            }
        }
    }

    pub(super) fn start_added(&mut self, view: &View<'_>, live: LiveOf<'_>, job: JobId, fx: &mut Effects) {
        let Some(writer) = self.writer.as_ref().filter(|_| live().1.contains(&job)) else { return };
        let of_job = writer.nodes.added().filter(|(_, of)| *of == job);
        let agents = of_job.map(|(agent, _)| agent).collect();
        self.bring_back(view, live, agents, fx);
    }

    pub(super) fn release_added(&mut self, view: &View<'_>, live: LiveOf<'_>, fx: &mut Effects) {
        let Some(writer) = self.writer.as_mut().filter(|writer| writer.nodes.added().next().is_some()) else { return };
        let has_log = view.policy.survives_losses();
        let needed = if has_log { live().1 } else { view.jobs.ids() };
        let over = writer.nodes.added().filter(|(_, job)| !needed.contains(job));
        let over: Vec<AgentId> = over.map(|(agent, _)| agent).collect();
        over.iter().for_each(|agent| writer.nodes.remove(*agent));
        if has_log {
            let lost = |agent| MissingAgent { agent, problem: JOB_OVER.into() };
            self.lose(view, live, over.into_iter().map(lost).collect(), lease_ns(view), fx);
        } else {
            over.into_iter().for_each(|agent| fx.child(agent, Control::Shutdown));
        }
    }
}
