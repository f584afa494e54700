//! Links between agents: agents listen when they are asked to, and dial each other.

use crate::agents::AgentProcess;
use crate::calls::Calls;
use crate::cx::{Cx, Pending};
use crate::fault_injection::Fault;
use crate::hosts::Agents;
use crate::membership::Membership;
use crate::net::{Net, Sort};
use wireup_proto::io::{Input, Peer};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Rejoin;
use wireup_wire::route::Point;

/// Longest time for which a driver waits for an answer to its dial (ns).
const DIAL_NS_MAX: u64 = 5_000_000_000;

/// The outcome of a dial.
enum Answer {
    /// This process accepts the connection.
    Accepts(u32),
    Refused,
    Silence,
}

/// The endpoint of an agent in the transport that all agents have agreed on.
fn point(host: u32) -> Point {
    Point { address: host.to_le_bytes().into(), key: [host as u8; 32] }
}

/// The host in an address, and the number of the process among those started on that host.
fn parse(address: &str) -> Option<(u32, u32)> {
    let address = address.strip_prefix("agent ")?;
    match address.split_once(" start ") {
        Some((host, start)) => Some((host.parse().ok()?, start.parse().ok()?)),
        None => Some((address.parse().ok()?, 1)),
    }
}

impl Agents {
    /// Makes the driver of an agent listen for other agents. `None`: the driver listens already.
    pub fn on_listens(&mut self, agent: u32) -> Option<Input> {
        let was_listening = std::mem::replace(&mut self[agent].listens, true);
        (!was_listening).then(|| Input::Listening { result: Ok(vec![self.name(agent)]) })
    }

    pub fn on_transport_opened(&self, cx: &Cx, agent: u32) -> Input {
        let host = self[agent].host;
        let is_missing = cx.spec.faults.contains(&Fault::NoTransport { agent: host });
        let result = if is_missing { Err(format!("agent {host} has no such library")) } else { Ok(point(host)) };
        Input::TransportOpened { result }
    }

    /// The answer to a dial of this process. `target`: host and process of the address; without a process, the newest
    /// process of the host.
    fn answer(&self, cx: &Cx, agent: u32, target: Option<(u32, Option<u32>)>) -> Answer {
        let Some((host, start)) = target.filter(|(host, _)| (*host as usize) < self.hosts.len()) else {
            return Answer::Refused;
        };
        if self.is_walled_off(cx, self[agent].host, host) || self.is_off(cx, host) {
            return Answer::Silence;
        }
        let is_it = |at: &u32| start.is_none_or(|start| self[*at].start == start);
        match self.running_at(host).into_iter().rfind(is_it) {
            None => Answer::Refused,
            Some(listener) if self[listener].is_stopped() => Answer::Silence,
            Some(listener) => Answer::Accepts(listener),
        }
    }

    /// A new agent dials its parent. Returns false if there is no parent to link to: then the agent exits at once.
    pub fn on_dials_parent(&mut self, cx: &mut Cx, net: &mut Net, calls: &mut Calls, agent: u32) -> bool {
        let AgentProcess { host, incarnation, ref dials, .. } = self[agent];
        let target = dials.as_deref().and_then(parse);
        if !cx.spec.is_standing && target.map(|(host, _)| host) != self.hosts[host as usize].parent {
            cx.problem(format!("{} dials {dials:?}, not its parent", self.name(agent)));
            return true;
        }
        match self.answer(cx, agent, target.map(|(host, start)| (host, Some(start)))) {
            Answer::Refused => return false,
            Answer::Silence => cx.later(DIAL_NS_MAX, Pending::GivesUp { agent }),
            Answer::Accepts(parent) => {
                calls.on_linked(host);
                self.link_up(cx, net, parent, agent, Peer::Child { agent: AgentId(host), incarnation });
            }
        }
        true
    }

    /// Makes a link between a parent and a child.
    fn link_up(&mut self, cx: &mut Cx, net: &mut Net, parent: u32, child: u32, as_child: Peer) {
        let link = self.connect(cx, net, [parent, child], [as_child, Peer::Parent], Sort::Tree);
        self[child].up = Some(link);
    }

    pub fn dial(&self, cx: &mut Cx, agent: u32, target: AgentId, addresses: Vec<String>, at: Option<Point>) {
        let some_have_none = cx.spec.faults.iter().any(|fault| matches!(fault, Fault::NoTransport { .. }));
        let wanted = cx.spec.transport.is_agreed_on() && !some_have_none;
        let name = self.name(agent);
        if at != wanted.then(|| point(target.0)) {
            return cx.problem(format!("{name} dials {target} at {at:?}; point expected: {wanted}"));
        }
        let mut processes = self.hosts[target.index()].processes.iter();
        let listens = processes.any(|at| self[*at].listens);
        if !cx.spec.is_standing && (addresses != [format!("agent {target}")] || !listens) {
            return cx.problem(format!("{name} dials {target} at {addresses:?}, not listening"));
        }
        let delay_ns = cx.draw(cx.spec.timing.handshake);
        cx.later(delay_ns, Pending::Dials { agent, target, address: addresses.into_iter().next() });
    }

    /// A process dials another agent for a direct link; returns the input that the process receives at once.
    pub fn on_dials(
        &mut self,
        cx: &mut Cx,
        net: &mut Net,
        agent: u32,
        target: AgentId,
        address: Option<String>,
    ) -> Option<Input> {
        let at = match &address {
            Some(address) => parse(address).map(|(host, start)| (host, Some(start))),
            None => Some((target.0, None)),
        };
        let fails = |problem: String| Input::DialFailed { agent: Some(target), problem };
        let listener = match self.answer(cx, agent, at) {
            Answer::Accepts(listener) if !cx.spec.faults.contains(&Fault::NoDial { agent: target.0 }) => listener,
            Answer::Silence => {
                cx.later(DIAL_NS_MAX, Pending::Hears { agent, input: fails("no answer in time".into()) });
                return None;
            }
            Answer::Accepts(_) | Answer::Refused => {
                return Some(fails(format!("agent {target}: Connection refused")));
            }
        };
        let is_between = |link: &u32| net.is_direct(*link) && net.other_end(*link, agent) == Some(listener);
        if self[agent].links.iter().any(is_between) {
            let names = (self.name(agent), self.name(listener));
            cx.problem(format!("{} and {} have two direct links", names.0, names.1));
            return None;
        }
        let peers = [Peer::Direct(AgentId(self[agent].host)), Peer::Direct(target)];
        self.connect(cx, net, [listener, agent], peers, Sort::Direct);
        None
    }

    /// An agent that has lost its parent dials the root.
    pub fn rejoin(&self, cx: &mut Cx, membership: &mut Membership, agent: u32, root: Vec<String>, rejoin: Rejoin) {
        if !cx.spec.is_standing {
            return cx.problem(format!("{} looks for a new parent in a single run", self.name(agent)));
        }
        membership.on_rejoin(cx, self, agent);
        let delay_ns = cx.draw(cx.spec.timing.handshake);
        cx.later(delay_ns, Pending::Rejoins { agent, root: root.into_iter().next(), rejoin });
    }

    /// A process dials the root; returns the input that the process receives at once.
    pub fn on_rejoins(
        &mut self,
        cx: &mut Cx,
        net: &mut Net,
        membership: &mut Membership,
        agent: u32,
        (root, rejoin): (Option<String>, Rejoin),
    ) -> Option<Input> {
        let target = root.as_deref().and_then(parse).map(|(host, start)| (host, Some(start)));
        let fails = |problem: &str| Input::DialFailed { agent: None, problem: problem.into() };
        match self.answer(cx, agent, target) {
            Answer::Refused => return Some(fails("Connection refused")),
            Answer::Silence => {
                membership.on_silent(agent);
                cx.later(DIAL_NS_MAX, Pending::Hears { agent, input: fails("no answer in time") });
            }
            Answer::Accepts(root) => {
                membership.on_reached(agent);
                let host = AgentId(self[agent].host);
                self.link_up(cx, net, root, agent, Peer::Rejoin { agent: host, rejoin });
            }
        }
        None
    }

    /// Makes a link between the process that listens and the process that has dialled it.
    fn connect(&mut self, cx: &mut Cx, net: &mut Net, agents: [u32; 2], peers: [Peer; 2], sort: Sort) -> u32 {
        let link = net.next_link();
        let now = cx.clock.now();
        let proven = agents.map(|agent| cx.work(self[agent].host, now, |costs| costs.handshake_ns));
        let ends = agents.map(|agent| self[agent].new_end(agent, link));
        net.connect(&mut cx.clock, ends, peers, sort, proven[0].max(proven[1]) - now)
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
