//! An agent whose parent is gone looks for a new one, the next of its ancestors that answers.
//!
//! ```text
//!   linked ── link down ──► seeking ── dials its ancestors, the nearest first ──► linked, a child of that one
//!                             │ nobody answered: again after a pause
//!                             └── out of time, told that it is lost, or no ancestors: it leaves
//! ```
//!
//! The ancestor that lost the agent between the two waits for it, and holds what is for it meanwhile. Others further up may be
//! dialled instead, where that one is gone too or cannot be reached; they tell it. Who is taken for lost already is told so. An
//! agent that was started again is not mistaken for one that comes late: each has the number of its life.

use super::seeking::{PAUSE_NS, REJOIN_NS_MAX, Seeking};
use super::{Membership, next};
use crate::io::{LinkId, Output};
use crate::session::inputs::agreement;
use crate::session::inputs::membership::{Input, Next};
use crate::session::{Effect, Effects, View};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Control, MissingAgent};

impl Membership {
    /// The link to the parent is gone. In one run the agent leaves, and its keeper ends what it started.
    pub(super) fn on_parent_lost(&mut self, view: &View<'_>, fx: &mut Effects) {
        if !view.policy.survives_losses() || view.is_leaving {
            return fx.push(Effect::Leave);
        }
        self.routes.is_adopted = true;
        self.seeking = Some(Seeking { by: view.now + REJOIN_NS_MAX, again_at: None });
        self.seek(view, fx);
    }

    fn seek(&self, view: &View<'_>, fx: &mut Effects) {
        let mut ancestors = self.ancestors.clone();
        ancestors.retain(|ancestor| !self.routes.is_lost(ancestor.agent));
        fx.push(match ancestors.is_empty() {
            true => Effect::Leave,
            false => Effect::Do(Output::Rejoin { ancestors, life: self.routes.life(view.me) }),
        });
    }

    pub(super) fn on_rejoin_failed(&mut self, view: &View<'_>, fx: &mut Effects) {
        let Some(seeking) = &mut self.seeking else { return };
        if view.now >= seeking.by {
            return fx.push(Effect::Leave);
        }
        seeking.again_at = Some(view.now + PAUSE_NS);
    }

    pub(super) fn check(&self, view: &View<'_>, fx: &mut Effects) {
        for (&agent, _) in self.orphans.iter().filter(|(_, until)| **until <= view.now) {
            fx.push(next(Next::ForgetOrphan(agent)));
            fx.push(Effect::Membership(Input::TakePlaceOf(agent)));
            let problem = "it did not come back after the agent above it was lost".to_owned();
            fx.push(Effect::Membership(Input::ReportLost(MissingAgent { agent, problem })));
        }
        fx.push(next(Next::CheckSeeking));
    }

    pub(super) fn check_seeking(&mut self, view: &View<'_>, fx: &mut Effects) {
        let is_due = |seeking: &mut Seeking| seeking.again_at.take_if(|at| *at <= view.now).is_some();
        if self.seeking.as_mut().is_some_and(is_due) {
            self.seek(view, fx);
        }
    }

    /// An orphan is not waited for any more: what was for those behind it may find another way.
    pub(super) fn forget_orphan(&mut self, agent: AgentId, fx: &mut Effects) {
        if self.orphans.remove(&agent).is_some() {
            fx.push(Effect::Reroute(agent));
        }
    }

    pub(super) fn on_orphan(&mut self, view: &View<'_>, link: LinkId, agent: AgentId, life: u32, fx: &mut Effects) {
        let known = self.routes.life(agent);
        let is_welcome = !view.is_leaving
            && view.is_strictly_below(view.me, agent)
            && !self.is_lost(agent)
            && life == known
            && view.neighbours.child(agent).is_none();
        if !view.policy.survives_losses() {
            return fx.close(link);
        }
        if !is_welcome {
            // Of a life that is not known here yet more will be heard: it may ask again.
            if life <= known {
                fx.answer(link, &Control::Lost { agent });
            }
            return fx.close(link);
        }
        self.orphans.remove(&agent);
        self.routes.below.on_linked(agent);
        self.settle_below(&[agent], agent, fx);
        fx.push(Effect::TakeIn(link, agent));
    }

    /// What a child that links may have missed.
    pub(super) fn tell_state(&self, view: &View<'_>, child: AgentId, fx: &mut Effects) {
        if !view.policy.survives_losses() {
            return;
        }
        self.routes.lost().for_each(|agent| fx.child(child, Control::Lost { agent }));
        for (agent, life) in self.routes.lives().filter(|(agent, _)| !self.routes.is_lost(*agent)) {
            fx.child(child, Control::Return { agents: vec![agent], life });
        }
        fx.push(Effect::Agreement(agreement::Input::Tell(child)));
    }
}
