//! Links between agents: agents listen when they are asked to, and dial each other.

use crate::agents::AgentProcess;
use crate::clock::Event;
use crate::fault_injection::Fault;
use crate::net::Sort;
use crate::world::{Pending, World};
use wireup_proto::io::{Input, Peer};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Rejoin;
use wireup_wire::route::Point;

/// Time for which a driver waits for an answer (ns).
const DIAL_NS_MAX: u64 = 5_000_000_000;

/// The outcome of a dial.
enum Answer {
    /// This process accepts the dial.
    Accepts(u32),
    Refused,
    Silence,
}

/// The point where an agent is reached by the transport that all agents have agreed on.
fn point(host: u32) -> Point {
    Point { address: host.to_le_bytes().into(), key: [host as u8; 32] }
}

/// The host in an address, and the number of the process among those that were started there.
fn parse(address: &str) -> Option<(u32, u32)> {
    let address = address.strip_prefix("agent ")?;
    match address.split_once(" start ") {
        Some((host, start)) => Some((host.parse().ok()?, start.parse().ok()?)),
        None => Some((address.parse().ok()?, 1)),
    }
}

fn refused(target: AgentId) -> String {
    format!("agent {target}: Connection refused")
}

impl World {
    pub(crate) fn listen(&mut self, agent: u32) {
        self.cx.after(self.cx.spec.timing.report, Event::AgentListens(agent));
    }

    pub(crate) fn on_agent_listens(&mut self, agent: u32) {
        if !std::mem::replace(&mut self.agents[agent].listens, true) {
            // The name of a process is also the address where it listens.
            let addresses = vec![self.agents.name(agent)];
            self.tell_agent(agent, Input::Listening { result: Ok(addresses) });
        }
    }

    pub(crate) fn open_transport(&mut self, agent: u32) {
        self.cx.after(self.cx.spec.timing.spawn, Event::TransportOpened(agent));
    }

    pub(crate) fn on_transport_opened(&mut self, agent: u32) {
        let host = self.agents[agent].host;
        let result = if self.cx.spec.faults.contains(&Fault::NoTransport { agent: host }) {
            Err(format!("agent {host} has no such library"))
        } else {
            Ok(point(host))
        };
        self.tell_agent(agent, Input::TransportOpened { result });
    }

    /// The answer to a dial of this process. Without an address, it dials the newest process of the host.
    fn answer(&self, agent: u32, target: Option<(u32, Option<u32>)>) -> Answer {
        let Some((host, start)) = target.filter(|(host, _)| (*host as usize) < self.agents.hosts.len()) else {
            return Answer::Refused;
        };
        if self.agents.is_walled_off(&self.cx, self.agents[agent].host, host) || self.agents.is_off(&self.cx, host) {
            return Answer::Silence;
        }
        let is_it = |at: &u32| start.is_none_or(|start| self.agents[*at].start == start);
        match self.agents.running_at(host).into_iter().rfind(is_it) {
            None => Answer::Refused,
            Some(listener) if self.agents[listener].is_stopped() => Answer::Silence,
            Some(listener) => Answer::Accepts(listener),
        }
    }

    /// A new agent dials its parent. One that has no parent to link to exits at once.
    pub(crate) fn on_agent_link(&mut self, agent: u32) {
        let AgentProcess { host, step, ref dials, .. } = self.agents[agent];
        if !self.agents[agent].is_running() {
            return;
        }
        let target = dials.as_deref().and_then(parse);
        let parent = self.agents.hosts[host as usize].parent;
        if !self.cx.spec.is_standing && target.map(|(host, _)| host) != parent {
            let problem = format!("{} dials {dials:?}, not its parent", self.agents.name(agent));
            return self.cx.problem(problem);
        }
        match self.answer(agent, target.map(|(host, start)| (host, Some(start)))) {
            Answer::Refused => {
                if step.is_some() {
                    // A step starts its tasks whatever happens to the others. The job may have ended by now without the
                    // output of this agent's ranks.
                    self.jobs.expect_losses(&self.cx);
                }
                self.kill_agent(agent);
            }
            Answer::Silence => self.later(DIAL_NS_MAX, Pending::GivesUp { agent }),
            Answer::Accepts(parent) => {
                self.agent_call_links(host);
                let incarnation = self.agents[agent].incarnation;
                let child = Peer::Child { agent: AgentId(host), incarnation };
                self.link_up(parent, agent, child);
            }
        }
    }

    /// A link between a parent and a child.
    fn link_up(&mut self, parent: u32, child: u32, as_child: Peer) {
        let link = self.connect(parent, child, [as_child, Peer::Parent], Sort::Tree);
        self.agents[child].up = Some(link);
    }

    pub(crate) fn dial(&mut self, agent: u32, target: AgentId, addresses: Vec<String>, at: Option<Point>) {
        let some_have_none = self.cx.spec.faults.iter().any(|fault| matches!(fault, Fault::NoTransport { .. }));
        let wanted = self.cx.spec.transport.is_agreed_on() && !some_have_none;
        if at != wanted.then(|| point(target.0)) {
            let name = self.agents.name(agent);
            return self.cx.problem(format!("{name} dials {target} at {at:?}; point expected: {wanted}"));
        }
        let mut processes = self.agents.hosts[target.index()].processes.iter();
        let listens = processes.any(|at| self.agents[*at].listens);
        if !self.cx.spec.is_standing && (addresses != [format!("agent {target}")] || !listens) {
            let name = self.agents.name(agent);
            return self.cx.problem(format!("{name} dials {target} at {addresses:?}, not listening"));
        }
        let delay_ns = self.cx.draw(self.cx.spec.timing.handshake);
        self.later(delay_ns, Pending::Dials { agent, target, address: addresses.into_iter().next() });
    }

    pub(crate) fn on_dials(&mut self, agent: u32, target: AgentId, address: Option<String>) {
        let at = match &address {
            Some(address) => parse(address).map(|(host, start)| (host, Some(start))),
            None => Some((target.0, None)),
        };
        let listener = match self.answer(agent, at) {
            Answer::Accepts(listener) if !self.cx.spec.faults.contains(&Fault::NoDial { agent: target.0 }) => listener,
            Answer::Silence => {
                let input = Input::DialFailed { agent: Some(target), problem: "no answer in time".into() };
                return self.later(DIAL_NS_MAX, Pending::Hears { agent, input });
            }
            Answer::Accepts(_) | Answer::Refused => {
                return self.tell_agent(agent, Input::DialFailed { agent: Some(target), problem: refused(target) });
            }
        };
        let is_between = |link: &u32| self.net.is_direct(*link) && self.net.other_end(*link, agent) == Some(listener);
        if self.agents[agent].links.iter().any(is_between) {
            let names = (self.agents.name(agent), self.agents.name(listener));
            return self.cx.problem(format!("{} and {} have two direct links", names.0, names.1));
        }
        let peers = [Peer::Direct(AgentId(self.agents[agent].host)), Peer::Direct(target)];
        self.connect(listener, agent, peers, Sort::Direct);
    }

    /// An agent that has lost its parent dials the root.
    pub(crate) fn rejoin(&mut self, agent: u32, root: Vec<String>, rejoin: Rejoin) {
        if !self.cx.spec.is_standing {
            return self.cx.problem(format!("{} looks for a new parent in a single run", self.agents.name(agent)));
        }
        self.membership.on_rejoin(&mut self.cx, &self.agents, agent);
        let delay_ns = self.cx.draw(self.cx.spec.timing.handshake);
        self.later(delay_ns, Pending::Rejoins { agent, root: root.into_iter().next(), rejoin });
    }

    pub(crate) fn on_rejoins(&mut self, agent: u32, root: Option<String>, rejoin: Rejoin) {
        let target = root.as_deref().and_then(parse).map(|(host, start)| (host, Some(start)));
        let fails = |problem: &str| Input::DialFailed { agent: None, problem: problem.into() };
        match self.answer(agent, target) {
            Answer::Refused => self.tell_agent(agent, fails("Connection refused")),
            Answer::Silence => {
                self.membership.on_silent(agent);
                self.later(DIAL_NS_MAX, Pending::Hears { agent, input: fails("no answer in time") });
            }
            Answer::Accepts(root) => {
                self.membership.on_reached(agent);
                let host = AgentId(self.agents[agent].host);
                self.link_up(root, agent, Peer::Rejoin { agent: host, rejoin });
            }
        }
    }

    fn connect(&mut self, listener: u32, dialler: u32, peers: [Peer; 2], sort: Sort) -> u32 {
        let link = self.net.next_link();
        let ends = [listener, dialler].map(|agent| self.agents[agent].new_end(agent, link));
        self.net.connect(&mut self.cx.clock, ends, peers, sort)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_host_and_a_process() {
        assert_eq!(parse("agent 7"), Some((7, 1)));
        assert_eq!(parse("agent 7 start 2"), Some((7, 2)));
        assert_eq!((parse("agent x"), parse("agent 7 start x"), parse("10.0.0.1:1")), (None, None, None));
    }
}
