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

use super::Agent;
use crate::io::{LinkId, Output, Peer};
use crate::outbox::control_frame;
use crate::time::Instant;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{self, Control};
use wireup_wire::route;

/// How long an agent without a parent looks for one (ns). Chosen: some attempts at each of its ancestors.
const REJOIN_NS_MAX: u64 = 5_000_000_000;
/// The pause between two rounds (ns). Chosen: ancestors notice a loss within that, where it is noticed at once.
const PAUSE_NS: u64 = 200_000_000;

/// This agent has no parent.
pub struct Seeking {
    by: Instant,
    again_at: Option<Instant>,
}

impl Seeking {
    pub fn deadline(&self) -> Option<Instant> {
        self.again_at
    }
}

/// Whether a frame tells what `tell_state` tells, or told before it.
fn is_state(frame: &Frame) -> bool {
    let is_of_session = frame.kind == Kind::Control && frame.job == 0;
    is_of_session && matches!(peer::decode(&frame.payload), Ok(Control::Lost { .. } | Control::Return { .. }))
}

impl Agent {
    /// The link to the parent is gone.
    pub(in super::super) fn on_parent_lost(&mut self, now: Instant) {
        let Some(standing) = &mut self.standing else { return self.leave() };
        if self.leaving.is_some() {
            return self.leave();
        }
        standing.seeking = Some(Seeking { by: now + REJOIN_NS_MAX, again_at: None });
        self.seek();
    }

    fn seek(&mut self) {
        let mut ancestors = self.config.kin.ancestors.clone();
        ancestors.retain(|ancestor| !self.links.is_lost(ancestor.agent));
        if ancestors.is_empty() {
            return self.leave();
        }
        self.out.push(Output::Rejoin { ancestors, life: self.links.life(self.config.agent) });
    }

    pub(in super::super) fn on_rejoin_failed(&mut self, now: Instant) {
        let Some(seeking) = self.standing.as_mut().and_then(|standing| standing.seeking.as_mut()) else { return };
        if now >= seeking.by {
            return self.leave();
        }
        seeking.again_at = Some(now + PAUSE_NS);
    }

    pub(super) fn check_seeking(&mut self, now: Instant) {
        let seeking = self.standing.as_mut().and_then(|standing| standing.seeking.as_mut());
        if seeking.is_some_and(|seeking| seeking.again_at.take_if(|at| *at <= now).is_some()) {
            self.seek();
        }
    }

    /// A child of a lost agent is waited for.
    pub(super) fn expect_orphan(&mut self, now: Instant, agent: AgentId) {
        let until = self.rejoin_by(now);
        if let Some(standing) = &mut self.standing {
            standing.orphans.insert(agent, until);
            self.links.expect_child(agent);
        }
    }

    /// An agent that notices its parent's end as late as may be is there by then.
    pub(super) fn rejoin_by(&self, now: Instant) -> Instant {
        now + REJOIN_NS_MAX + self.config.session.node_timeout_ns
    }

    pub(super) fn check_orphans(&mut self, now: Instant) {
        let Some(standing) = &mut self.standing else { return };
        let late: Vec<AgentId> =
            standing.orphans.iter().filter(|(_, until)| **until <= now).map(|(agent, _)| *agent).collect();
        for agent in late {
            self.forget_orphan(agent);
            self.take_place_of(now, agent);
            let problem = "it did not come back after the agent above it was lost".to_owned();
            self.report_lost(now, agent, problem);
        }
    }

    /// An orphan is not waited for any more: what was for those behind it may find another way.
    pub(super) fn forget_orphan(&mut self, agent: AgentId) {
        let Some(standing) = &mut self.standing else { return };
        if standing.orphans.remove(&agent).is_none() {
            return;
        }
        for frame in self.links.forget_child(agent) {
            // What the session says is known to whoever has taken the orphan in, or is said again when it has moved.
            if frame.kind == Kind::Routed
                && let Some((to, _)) = route::ends(&frame)
            {
                self.links.route(to, frame, &mut self.out);
            }
        }
    }

    /// An agent further down asks to be taken in.
    pub(in super::super) fn on_orphan(&mut self, link: LinkId, agent: AgentId, life: u32) {
        if !self.is_standing() {
            return self.turn_away(link);
        }
        let known = self.links.life(agent);
        let is_welcome = self.leaving.is_none()
            && agent != self.config.agent
            && self.tree.subtree_contains(self.config.agent, agent)
            && !self.is_lost(agent)
            && life == known
            && self.links.child(agent).is_none();
        if !is_welcome {
            // Of a life that is not known here yet more will be heard: it may ask again.
            if life <= known {
                self.out.send(link, control_frame(JobId(0), &Control::Lost { agent }));
            }
            return self.turn_away(link);
        }
        if let (Some(standing), Some(links)) = (&mut self.standing, &mut self.links.standing) {
            standing.orphans.remove(&agent);
            links.below.on_linked(agent);
        }
        self.settle_below(&[agent], agent);
        let waiting = self.links.forget_child(agent);
        self.links.on_up(link, Peer::Child(agent), &mut self.out);
        self.starts.on_linked(agent);
        self.children.adopt(agent, super::super::starting::notes_max(self.tree, agent));
        self.tell_state(agent);
        for frame in waiting.into_iter().filter(|frame| !is_state(frame)) {
            self.links.send_child(agent, frame, &mut self.out);
        }
    }

    /// What a child that links may have missed.
    pub(in super::super) fn tell_state(&mut self, child: AgentId) {
        let Some(links) = &self.links.standing else { return };
        let is_there = |agent: &AgentId| !self.links.is_lost(*agent);
        let lives = links.lives.iter().filter(|(agent, _)| is_there(agent));
        let returned = lives.map(|(&agent, &life)| Control::Return { agents: vec![agent], life }).collect::<Vec<_>>();
        let lost = self.links.lost().map(|agent| Control::Lost { agent });
        for message in lost.collect::<Vec<_>>().into_iter().chain(returned) {
            self.links.control_child(child, JobId(0), &message, &mut self.out);
        }
        self.tell_ucx(child);
    }
}
