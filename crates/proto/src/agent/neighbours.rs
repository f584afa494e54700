//! Links come and go: who is at the other end, and whose business that is.

use super::Agent;
use crate::io::{LinkId, Peer};
use crate::job::{Job, JobInput};
use crate::time::Instant;

impl Agent {
    pub(super) fn on_link_up(&mut self, now: Instant, link: LinkId, peer: Peer, local: String) {
        if let Peer::Child(agent) = peer {
            if !self.is_expected(agent) {
                // A second dial, or one after its time: whoever that is, it is not needed.
                return self.turn_away(link);
            }
            self.links.on_up(link, peer, &mut self.out);
            return self.on_child_up(now, agent, local);
        }
        if let Peer::Orphan { agent, life } = peer {
            return self.on_orphan(link, agent, life);
        }
        if matches!(peer, Peer::Direct(agent) if !self.links.direct.expects(agent)) {
            return self.turn_away(link);
        }
        self.links.on_up(link, peer, &mut self.out);
        if peer == Peer::Launcher && self.is_standing() {
            return self.on_launcher_up(link);
        }
        if peer == Peer::Parent {
            self.on_parent_up();
            self.tell_all_jobs(now, || JobInput::Linked);
            if self.jobs.values().any(Job::is_profiled) {
                self.ask_clock(now);
            }
        }
    }

    pub(super) fn on_link_down(&mut self, now: Instant, link: LinkId, problem: String) {
        match self.links.on_down(link) {
            None => {}
            Some(Peer::Launcher) if self.is_standing() => self.on_launcher_down(now, link),
            Some(Peer::Parent) => self.on_parent_lost(now),
            Some(Peer::Launcher) => self.leave(),
            // It was not taken in.
            Some(Peer::Orphan { .. }) => {}
            Some(Peer::Child(agent)) => self.on_child_link_down(now, agent, problem),
            Some(Peer::Direct(agent)) => self.links.on_direct_lost(agent, link, &problem, &mut self.out),
        }
    }
}
