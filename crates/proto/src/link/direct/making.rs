//! Offers, makes and loses links, and sends frames through the tree meanwhile.

use super::peer::{BEGIN, Peer, State, about, acknowledged, numbered, offer};
use super::{AGAIN_NS, Dial, Direct, EXPLAIN_NS, peer};
use crate::io::LinkId;
use crate::outbox::Outbox;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::limits::ROUTED_BYTES_MAX;
use wireup_wire::route::{Endpoint, Point};

impl Direct {
    /// Whether the driver must listen: returns `true` once, when there is first a peer to offer an endpoint to.
    pub fn wants_to_listen(&mut self) -> bool {
        let wanted = self.addresses.is_none()
            && !self.is_undecided
            && self.peers.values().any(|peer| peer.state == State::Unasked);
        wanted && !std::mem::replace(&mut self.asked_to_listen, true)
    }

    /// Starts a link that will be needed, before there is a frame for it.
    pub fn prepare(&mut self, agent: AgentId, job: JobId) {
        peer(&mut self.peers, self.ways, agent).jobs.insert(job);
        self.release(agent);
    }

    /// Sends the frames that may go through the tree while there is no link; the first one carries our endpoint.
    pub(super) fn release(&mut self, agent: AgentId) {
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        let mut endpoint = None;
        if peer.state == State::Unasked {
            let Some(addresses) = self.addresses.as_ref().filter(|_| !self.is_undecided) else { return };
            peer.state = State::Offered;
            let failed = peer.failed_here.clone();
            endpoint = Some(Endpoint { addresses: addresses.clone(), point: self.point.clone(), failed });
        }
        while let Some(first) = peer.waiting.front()
            && (peer.is_late || peer.routed_bytes + first.wire_len() <= ROUTED_BYTES_MAX)
        {
            peer.routed_bytes += first.wire_len();
            let frame = peer.waiting.pop_front().expect("the queue is not empty");
            self.routed.push_back(peer.route(self.me, agent, frame, endpoint.take()));
        }
        if peer.waiting.is_empty() {
            peer.waiting_since = None;
        }
        if endpoint.is_some() {
            let job = peer.jobs.first().copied().unwrap_or_default();
            self.routed.extend(endpoint.map(|endpoint| offer(self.me, agent, job, endpoint)));
        }
    }

    /// Other agents can dial this agent at these addresses.
    pub fn on_listening(&mut self, addresses: Vec<String>) {
        self.addresses = Some(addresses);
        for agent in self.unasked() {
            self.release(agent);
        }
    }

    /// The agents have agreed whether to use the transport; `point` is this agent's address if they do.
    pub fn on_decided(&mut self, point: Option<Point>) {
        self.point = point;
        self.is_undecided = false;
        for agent in self.unasked() {
            self.release(agent);
        }
    }

    /// This agent cannot be dialled. It can still dial peers that send their endpoints.
    pub fn on_listen_failed(&mut self, problem: &str) {
        for agent in self.unasked() {
            let problem = format!("{problem}; so other agents cannot connect to it");
            self.go_by_tree(agent, Some(problem), true);
        }
        // The driver may listen successfully on the next request.
        self.asked_to_listen = false;
    }

    fn unasked(&self) -> Vec<AgentId> {
        let unasked = self.peers.iter().filter(|(_, peer)| peer.state == State::Unasked);
        unasked.map(|(agent, _)| *agent).collect()
    }

    /// A peer's endpoint arrived; returns the peer to dial, if any.
    pub fn on_endpoint(&mut self, from: AgentId, endpoint: Endpoint, job: JobId) -> Option<Dial> {
        let me = self.me;
        let peer = peer(&mut self.peers, self.ways, from);
        peer.jobs.insert(job);
        let Endpoint { addresses, point, failed } = endpoint;
        let is_answer = failed.is_some();
        peer.failed_there = peer.failed_there.take().or(failed);
        let dials = match peer.state {
            State::Unasked => true,
            // An agent that could not dial the peer tells the peer so, and the peer dials.
            State::Offered => is_answer || (from < me && peer.failed_here.is_none()),
            // If the peer says that it has no link, this end must close its own.
            State::Up(link) => {
                if is_answer && addresses.is_empty() {
                    self.closing.push(link);
                    self.go_by_tree(from, None, false);
                }
                return None;
            }
            State::Routed if peer.lost.is_some() => {
                self.send_again(from);
                return None;
            }
            State::Dialling | State::Routed => return None,
        };
        if addresses.is_empty() || (is_answer && peer.failed_here.is_some()) {
            // The agent that failed last sends the note.
            let problem = peer.failed_there.clone().filter(|_| peer.failed_here.is_none());
            self.go_by_tree(from, problem, false);
            return None;
        }
        if !dials {
            return None;
        }
        peer.state = State::Dialling;
        self.release(from);
        Some(Dial { agent: from, addresses, point })
    }

    /// Dialling a peer failed.
    pub fn on_dial_failed(&mut self, agent: AgentId, problem: String) {
        let Some(peer) = self.peers.get_mut(&agent).filter(|peer| peer.state == State::Dialling) else { return };
        let there = peer.failed_there.clone();
        peer.failed_here = Some(problem.clone());
        match there {
            // The peer could not dial this agent either.
            Some(there) => self.go_by_tree(agent, Some(format!("{problem}; in the other direction: {there}")), true),
            None => {
                peer.state = State::Unasked;
                self.release(agent);
            }
        }
    }

    /// Gives up a link: waiting frames go through the tree.
    ///
    /// `note`: text for the user; `tell`: whether the peer is told not to wait for a link.
    fn go_by_tree(&mut self, agent: AgentId, note: Option<String>, tell: bool) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        peer.state = State::Routed;
        peer.waiting_since = None;
        if let Some(problem) = &note {
            peer.note.get_or_insert((now, problem.clone()));
        }
        if tell {
            self.tell_failed(agent, note);
        }
        self.send_again(agent);
    }

    pub(super) fn tell_failed(&mut self, agent: AgentId, problem: Option<String>) {
        let Some(peer) = self.peers.get(&agent) else { return };
        let failed = Some(problem.unwrap_or_else(|| "no link".into()));
        let job = peer.jobs.first().copied().unwrap_or_default();
        self.routed.push_back(offer(self.me, agent, job, Endpoint { failed, ..Endpoint::default() }));
    }

    /// Whether a link with this agent is expected.
    pub fn expects(&self, agent: AgentId) -> bool {
        self.peers.get(&agent).is_some_and(|peer| matches!(peer.state, State::Offered | State::Dialling))
    }

    /// Messages sent through the tree to these peers may be lost: sends them again.
    pub fn route_again(&mut self, peers: impl Fn(AgentId) -> bool) {
        for (&agent, peer) in self.peers.iter().filter(|(agent, _)| peers(**agent)) {
            let job = peer.jobs.first().copied().unwrap_or_default();
            if peer.state == State::Offered {
                let endpoint = Endpoint {
                    addresses: self.addresses.clone().unwrap_or_default(),
                    point: self.point.clone(),
                    failed: peer.failed_here.clone(),
                };
                self.routed.push_back(offer(self.me, agent, job, endpoint));
            }
            let before = peer.window.received();
            self.routed.extend(before.map(|before| acknowledged(self.me, agent, job, before)));
            let frames = peer.window.routed();
            self.routed.extend(frames.into_iter().map(|(number, frame)| numbered(self.me, agent, number, frame)));
        }
    }

    pub fn on_link_up(&mut self, agent: AgentId, link: LinkId, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        peer.state = State::Up(link);
        peer.waiting_since = None;
        out.send(link, about(BEGIN, peer.window.next() as u32));
        for frame in std::mem::take(&mut peer.waiting) {
            peer.send_on(link, frame, out);
        }
    }

    /// A link broke.
    pub fn on_lost(&mut self, agent: AgentId, link: LinkId, problem: &str) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&agent).filter(|peer| peer.state == State::Up(link)) else { return };
        let problem = format!("their link broke: {problem}");
        peer.state = State::Routed;
        peer.note.get_or_insert((now + EXPLAIN_NS, problem.clone()));
        peer.lost = Some((now + AGAIN_NS, problem));
    }

    /// Sends everything through the tree: first the frames that may be lost, then those that wait.
    pub(super) fn send_again(&mut self, agent: AgentId) {
        let me = self.me;
        let Some(peer) = self.peers.get_mut(&agent) else { return };
        peer.lost = None;
        let kept = peer.window.take_kept();
        self.routed.extend(kept.into_iter().map(|(number, frame)| numbered(me, agent, number, frame)));
        for frame in std::mem::take(&mut peer.waiting) {
            self.routed.push_back(peer.route(me, agent, frame, None));
        }
    }

    /// An agent is permanently lost: drops everything for it and from it.
    pub fn lose(&mut self, agent: AgentId) {
        if let Some(Peer { state: State::Up(link), .. }) = self.peers.remove(&agent) {
            self.closing.push(link);
        }
        self.routed.retain(|(_, routed)| routed.to != agent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::peer::AgentTransport;

    /// The peer sends its endpoint again when the path through the tree has changed. If both dialled then, each might
    /// close the other's link.
    #[test]
    fn after_a_dial_in_vain_only_the_peer_dials() {
        let endpoint = || Endpoint { addresses: vec!["there".into()], ..Endpoint::default() };
        let mut direct = Direct::new(AgentId(5), AgentTransport::Auto, true);
        direct.on_listening(vec!["here".into()]);
        assert!(direct.on_endpoint(AgentId(0), endpoint(), JobId(1)).is_some());
        direct.on_dial_failed(AgentId(0), "no answer in time".into());
        assert_eq!(direct.on_endpoint(AgentId(0), endpoint(), JobId(1)), None);
    }
}
