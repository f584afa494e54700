//! An agent is lost: it is named, its jobs end, and the tree closes around it.
//!
//! ```text
//!   its parent:  Missing ↑ ──► the root: Lost ↓ to all ──► each: ends its jobs with that agent, forgets it, and sends again what
//!       │                         │                         went through the tree by way of it
//!       │                         └── Start ↓ again, of jobs that have nodes behind it
//!       └── takes its children's place: those that were there dial it (`orphans`), others it starts itself
//! ```
//!
//! A broken link counts as a lost agent, whatever is the case: two agents that do not hear each other cannot both go on, and the one
//! further down is the one that is told to leave when it is heard again. What is said of a loss is said again over every new link
//! up, until the root has told it to all. Numbers of frames (`link/window`) keep what is sent twice from coming twice.

use super::{Membership, adopt_children_of, next};
use crate::job::JobInput;
use crate::session::inputs::membership::{Input, Next};
use crate::session::inputs::{launchers, starter};
use crate::session::{Effect, Effects, Keeper, View, Whom};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Cause, Control, MissingAgent};

impl Membership {
    pub(super) fn report_lost(&mut self, view: &View<'_>, missing: MissingAgent, fx: &mut Effects) {
        if view.is_root() {
            return self.confirm_lost(view, missing, fx);
        }
        if self.routes.is_lost(missing.agent) {
            return;
        }
        self.reported.insert(missing.agent, missing.problem.clone());
        if view.neighbours.has_up() {
            fx.up(Control::Missing(vec![missing]));
        }
    }

    /// The root hears of a loss and tells everybody.
    fn confirm_lost(&mut self, view: &View<'_>, missing: MissingAgent, fx: &mut Effects) {
        let MissingAgent { agent, problem } = missing;
        if !self.nodes.as_mut().is_some_and(|nodes| nodes.on_lost(agent, &problem)) {
            return;
        }
        let cause = Cause::AgentLost { agent, problem };
        let jobs = view.jobs.ids_where(|job| job.has_agent(agent));
        fx.jobs(jobs, || JobInput::AgentFailed { agent, cause: cause.clone() });
        fx.push(Effect::Membership(Input::Lost(agent)));
        fx.push(Effect::Launchers(launchers::Input::StartAgain(Whom::Behind(agent))));
        fx.push(Effect::Launchers(launchers::Input::TellIfSettled));
    }

    pub(super) fn on_lost(&mut self, view: &View<'_>, agent: AgentId, fx: &mut Effects) {
        if agent == view.me {
            // The others go on without this one.
            return fx.push(Effect::Leave);
        }
        self.routes.below.forget(agent);
        self.reported.remove(&agent);
        self.orphans.remove(&agent);
        if !self.routes.lose(agent) {
            return;
        }
        fx.push(Effect::Children(Control::Lost { agent }));
        if view.neighbours.has_child(agent) {
            // Its link may work, but somebody cannot do without another one.
            fx.push(Effect::Starter(starter::Input::Lost(agent)));
            fx.push(Effect::Cut(agent));
            fx.push(Effect::Membership(Input::TakePlaceOf(agent)));
        } else if view.is_below_here(agent) && self.routes.keeper(view.neighbours, agent) == Keeper::Nobody {
            // It was linked to somebody further up, who does not start those that return while this agent is there.
            adopt_children_of(view, agent, fx);
        }
        fx.jobs(view.jobs.ids(), || JobInput::AgentLost(agent));
        fx.push(Effect::LoseDirect(agent));
        fx.push(Effect::RouteAgain(Whom::Behind(agent)));
    }

    /// Some that a lost child had adopted may have been lost before, and nobody else knows.
    pub(super) fn await_behind(&mut self, view: &View<'_>, lost: AgentId) {
        let until = rejoin_by(view);
        let routes = &self.routes;
        let is_awaited =
            |agent: &AgentId| !routes.is_lost(*agent) && routes.branch_of(view.neighbours, *agent).is_none();
        for agent in routes.below.behind(lost).filter(is_awaited) {
            self.orphans.entry(agent).or_insert(until);
        }
    }

    /// One of those that were drawn below a lost agent, or below this one.
    pub(super) fn adopt(&mut self, view: &View<'_>, child: AgentId, lost: AgentId, fx: &mut Effects) {
        let was_here = self.routes.below.branches_of(child).next().is_some();
        if self.is_lost(child) {
            adopt_children_of(view, child, fx);
        } else if view.neighbours.has_child(child) || self.routes.branch_of(view.neighbours, child).is_some() {
            // It is this agent's already, or another child's.
        } else if was_here {
            // A child of a lost agent is waited for.
            self.orphans.insert(child, rejoin_by(view));
            fx.push(Effect::Expect(child));
        } else if self.routes.keeper(view.neighbours, child) == Keeper::Above {
            // It is another's, or what is above it is.
        } else if !view.is_leaving {
            if lost != view.me {
                fx.push(Effect::Starter(starter::Input::Extend));
            }
            start_child(child, fx);
        }
    }
}

/// A child is started, and other children need not wait for it.
pub(super) fn start_child(child: AgentId, fx: &mut Effects) {
    fx.push(Effect::Starter(starter::Input::Start(child)));
    fx.push(next(Next::TellOthers { agents: vec![child], branch: Some(child) }));
}

/// An agent that notices its parent's end as late as may be is there by then.
pub(super) fn rejoin_by(view: &View<'_>) -> crate::time::Instant {
    view.now + super::seeking::REJOIN_NS_MAX + view.session.node_timeout_ns
}
