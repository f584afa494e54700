//! An agent whose parent is gone: the root is to be its parent.
//!
//! ```text
//!   linked ── link down ──► dials the root ──► Log: it is taken in, with all below it, and hears what it has missed
//!     ▲                      │  ▲    │
//!     └── it is the root's ──┘  │    ├── the link is closed: the root does not know yet that the parent is gone; again after a pause
//!         own child: it leaves  └────┘
//!                                    └── told to leave, or out of reach for too long: it leaves
//! ```
//!
//! The root alone says whether an agent is lost. One that reaches it leaves when it says so. One that does not reach it for some seconds
//! leaves by itself, long before the root stops to wait for those below it.

use super::Membership;
use super::seeking::{REJOIN_NS_MAX, Seeking};
use crate::io::{LinkId, Output};
use crate::session::{Effect, Effects, View};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Orphan;

impl Membership {
    /// In one run the agent leaves, and its keeper ends what it started. A child of the root that has lost its link is lost.
    pub(super) fn on_parent_lost(&mut self, view: &View<'_>, fx: &mut Effects) {
        let was_roots = self.seeking.is_none() && self.linked_to == AgentId(0);
        if !view.policy.survives_losses() || view.is_leaving || was_roots {
            return fx.push(Effect::Leave);
        }
        match &mut self.seeking {
            // Not yet, says the root.
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
        let orphan = Orphan { life: roster.life(view.me), at: roster.at() };
        fx.push(Effect::Do(Output::Rejoin { root: self.root.clone(), orphan }));
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
            // The root has not said a word.
            Some(link) => {
                fx.close(link);
                fx.push(Effect::LinkDown(link, "the root is silent".into()));
            }
            None => self.seek(view, fx),
        }
    }
}
