//! Searches for a new parent: an agent that has lost its parent asks the root to adopt it.
//!
//! ```text
//!   linked ── link down ──► dials the root ──► Log: adopted, with its subtree; it gets the entries that it lacks
//!     ▲                      │  ▲    │
//!     └── it is the root's ──┘  │    ├── link closed: the root does not know yet that the parent is gone;
//!         own child: it leaves  └────┘   again after a pause
//!                                    └── told to leave, or the root is unreachable for too long: it leaves
//! ```
//!
//! Only the root decides whether an agent is lost. An agent that reaches the root leaves when the root says so. One
//! that cannot reach it for some seconds leaves by itself, long before the root stops waiting for the agents below it.

use super::{Membership, REJOIN_NS_MAX, Seeking};
use crate::io::{LinkId, Output};
use crate::session::{Effect, Effects, View};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Rejoin;

impl Membership {
    /// In a session of one run the agent leaves, and its keeper ends what it started. A child of the root that has lost
    /// its link is lost.
    pub(super) fn on_parent_lost(&mut self, view: &View<'_>, fx: &mut Effects) {
        let was_roots = self.seeking.is_none() && self.linked_to == AgentId(0);
        if !view.policy.survives_losses() || view.is_leaving || was_roots {
            return fx.push(Effect::Leave);
        }
        match &mut self.seeking {
            // The root has told this agent to try again.
            Some(seeking) => {
                seeking.heard = view.now;
                seeking.link = None;
                seeking.pause(view.now);
            }
            None => {
                self.seeking = Some(Seeking::new(view.now));
                self.seek(view, fx);
            }
        }
    }

    fn seek(&self, view: &View<'_>, fx: &mut Effects) {
        let roster = &self.routes.roster;
        let rejoin = Rejoin { incarnation: roster.incarnation(view.me), at: roster.at() };
        fx.push(Effect::Output(Output::Rejoin { root: self.root.clone(), rejoin }));
    }

    pub(super) fn on_root_reached(&mut self, view: &View<'_>, link: LinkId) {
        if let Some(seeking) = &mut self.seeking {
            seeking.on_reached(view.now, link);
        }
    }

    pub(super) fn on_rejoin_failed(&mut self, view: &View<'_>, fx: &mut Effects) {
        let Some(seeking) = &mut self.seeking else { return };
        if view.now >= seeking.heard + REJOIN_NS_MAX {
            return fx.push(Effect::Leave);
        }
        seeking.pause(view.now);
    }

    pub(super) fn seek_if_due(&mut self, view: &View<'_>, fx: &mut Effects) {
        let Some(seeking) = &mut self.seeking else { return };
        if seeking.again_at.take_if(|at| *at <= view.now).is_none() {
            return;
        }
        match seeking.link {
            // The root has not sent anything.
            Some(link) => {
                fx.close(link);
                fx.push(Effect::LinkDown(link, "the root does not answer".into()));
            }
            None => self.seek(view, fx),
        }
    }
}
