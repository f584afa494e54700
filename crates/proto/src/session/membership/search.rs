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
use crate::session::Cx;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Rejoin;

impl Membership {
    /// The link to the parent broke; or, if this agent has no parent, its link to the root broke before the root had
    /// adopted it. Returns whether the agent leaves: always in a session of one run, where the agent's keeper then ends
    /// what the agent has started; in a standing session if the parent was the root, which counts a child as lost when
    /// the child's link breaks.
    pub fn on_parent_lost(&mut self, cx: &mut Cx) -> bool {
        let was_roots = self.seeking.is_none() && self.linked_to == AgentId(0);
        if !cx.policy.survives_losses() || cx.is_leaving || was_roots {
            return true;
        }
        match &mut self.seeking {
            // The root has told this agent to try again.
            Some(seeking) => {
                seeking.heard = cx.now;
                seeking.link = None;
                seeking.pause(cx.now);
            }
            None => {
                self.seeking = Some(Seeking::new(cx.now));
                self.seek(cx);
            }
        }
        false
    }

    fn seek(&self, cx: &mut Cx) {
        let roster = &cx.links.routes.roster;
        let rejoin = Rejoin { incarnation: roster.incarnation(cx.me), at: roster.at() };
        cx.output(Output::Rejoin { root: self.root.clone(), rejoin });
    }

    /// The root is linked; it has not yet confirmed that it adopts this agent.
    pub fn on_root_reached(&mut self, cx: &Cx, link: LinkId) {
        if let Some(seeking) = &mut self.seeking {
            seeking.on_reached(cx.now, link);
        }
    }

    /// The root cannot be reached at any of its addresses. Returns whether the agent leaves.
    pub fn on_rejoin_failed(&mut self, cx: &Cx) -> bool {
        let Some(seeking) = &mut self.seeking else { return false };
        let gives_up = cx.now >= seeking.heard + REJOIN_NS_MAX;
        if !gives_up {
            seeking.pause(cx.now);
        }
        gives_up
    }

    /// Dials the root again when it is time. If the root has linked and sent nothing, returns that link, which the
    /// caller closes.
    pub fn seek_if_due(&mut self, cx: &mut Cx) -> Option<LinkId> {
        let seeking = self.seeking.as_mut()?;
        seeking.again_at.take_if(|at| *at <= cx.now)?;
        if seeking.link.is_none() {
            self.seek(cx);
        }
        self.seeking.as_ref()?.link
    }
}
