//! Timeouts: frames that waited too long, and reports to the user or to jobs.

use super::peer::Peer;
use super::{Broken, Direct};
use crate::time::Instant;
use wireup_wire::ids::AgentId;
use wireup_wire::limits::DIRECT_WAIT_NS_MAX;

impl Direct {
    pub fn deadline(&self) -> Option<Instant> {
        let due = |peer: &Peer| {
            let waits = peer.waiting_since.map(|since| since + DIRECT_WAIT_NS_MAX);
            let note = peer.note.as_ref().map(|(at, _)| *at);
            let broken = peer.broken.as_ref().map(|_| Instant(0));
            let again = peer.lost.as_ref().map(|(at, _)| *at);
            waits.into_iter().chain(note).chain(broken).chain(again).min()
        };
        self.peers.values().filter_map(due).min()
    }

    /// Frames that have waited long enough go through the tree.
    pub fn on_tick(&mut self) {
        let (me, now) = (self.me, self.now);
        let is_due = |peer: &Peer| peer.lost.as_ref().is_some_and(|(at, _)| *at <= now);
        let lost: Vec<AgentId> = self.peers.iter().filter(|(_, peer)| is_due(peer)).map(|(agent, _)| *agent).collect();
        for agent in lost {
            let problem = self.peers.get_mut(&agent).and_then(|peer| peer.lost.take()).map(|(_, problem)| problem);
            self.tell_failed(agent, problem);
            self.send_again(agent);
        }
        for (&agent, peer) in &mut self.peers {
            if peer.waiting_since.is_some_and(|since| since + DIRECT_WAIT_NS_MAX <= now) {
                peer.waiting_since = None;
                peer.is_late = true;
                for frame in std::mem::take(&mut peer.waiting) {
                    self.routed.push_back(peer.route(me, agent, frame, None));
                }
            }
        }
    }

    /// Peers that are reached only through the tree, and why; each is returned once.
    pub fn take_notes(&mut self) -> Vec<(AgentId, String)> {
        let now = self.now;
        let due = |(agent, peer): (&AgentId, &mut Peer)| {
            let (_, problem) = peer.note.take_if(|(at, _)| *at <= now)?;
            (!peer.jobs.is_empty()).then_some((*agent, problem))
        };
        self.peers.iter_mut().filter_map(due).collect()
    }

    /// Peers whose jobs cannot continue.
    pub fn take_broken(&mut self) -> Vec<Broken> {
        let broken = |(&agent, peer): (&AgentId, &mut Peer)| {
            let problem = peer.broken.take()?;
            Some(Broken { agent, problem, jobs: peer.jobs.iter().copied().collect() })
        };
        self.peers.iter_mut().filter_map(broken).collect()
    }
}
