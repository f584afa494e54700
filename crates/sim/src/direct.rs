//! Direct links between agents, outside the tree: agents listen when they are asked to, and dial each other.

use crate::clock::Event;
use crate::faults::Fault;
use crate::net::{End, Sort};
use crate::world::World;
use wireup_proto::io::Input;
use wireup_wire::ids::AgentId;
use wireup_wire::route::Point;

/// The point where an agent is reached by the transport that all agents have agreed on.
fn point(host: u32) -> Point {
    Point { address: host.to_le_bytes().into(), key: [host as u8; 32] }
}

/// The listening address of an agent.
fn address(host: u32) -> String {
    format!("agent {host}")
}

impl World {
    pub(crate) fn listen(&mut self, host: u32) {
        let delay_ns = self.spec.timing.report.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::AgentListens(host));
    }

    pub(crate) fn on_agent_listens(&mut self, host: u32) {
        if !std::mem::replace(&mut self.hosts[host as usize].listens, true) {
            self.tell_agent(host, Input::Listening { addresses: vec![address(host)] });
        }
    }

    pub(crate) fn open_transport(&mut self, host: u32) {
        let delay_ns = self.spec.timing.spawn.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::TransportOpened(host));
    }

    pub(crate) fn on_transport_opened(&mut self, host: u32) {
        let result = if self.spec.faults.contains(&Fault::NoTransport { agent: host }) {
            Err(format!("agent {host} has no such library"))
        } else {
            Ok(point(host))
        };
        self.tell_agent(host, Input::TransportOpened { result });
    }

    pub(crate) fn dial(&mut self, host: u32, target: AgentId, addresses: &[String], at: Option<Point>) {
        let some_have_none = self.spec.faults.iter().any(|fault| matches!(fault, Fault::NoTransport { .. }));
        let wanted = self.spec.transport.is_agreed_on() && !some_have_none;
        if at != wanted.then(|| point(target.0)) {
            return self.checks.problem(format!("agent {host} dials {target} at {at:?}; point expected: {wanted}"));
        }

        if addresses != [address(target.0)] || !self.hosts[target.index()].listens {
            return self.checks.problem(format!("agent {host} dials {target} at {addresses:?}, not listening"));
        }
        let delay_ns = self.spec.timing.handshake.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::DirectLink(host, target.0));
    }

    pub(crate) fn on_direct_link(&mut self, host: u32, target: u32) {
        if !self.hosts[host as usize].is_alive() {
            return;
        }
        if !self.hosts[target as usize].is_alive() || self.no_dial.contains(&target) {
            let problem = format!("{}: Connection refused", address(target));
            return self.tell_agent(host, Input::DialFailed { agent: AgentId(target), problem });
        }
        let is_between = |link: &u32| self.net.is_direct(*link) && self.other_end(*link, host) == Some(target);
        if self.hosts[host as usize].links.iter().any(is_between) {
            return self.checks.problem(format!("agents {host} and {target} have two direct links"));
        }
        let link = self.net.next_link();
        let ends = [self.hosts[target as usize].new_end(target, link), self.hosts[host as usize].new_end(host, link)];
        self.net.connect(&mut self.clock, ends, Sort::Direct);
    }

    /// The agent at the other end of a link.
    pub(crate) fn other_end(&self, link: u32, host: u32) -> Option<u32> {
        match self.net.ends(link)[1 - self.end_of(link, host)] {
            End::Agent(other, _) => Some(other),
            End::Launcher(_) => None,
        }
    }
}
