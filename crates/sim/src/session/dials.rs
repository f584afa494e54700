//! Dials: addresses, links, hosts that do not answer.

use super::hosts::AgentCopy;
use super::world::{Plan, World};
use crate::net::End;
use crate::net::Sort;
use wireup_proto::Instant;
use wireup_proto::io::{Input, LinkId, Peer};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Rejoin;

/// How long a driver waits for an answer (ns).
const DIAL_NS_MAX: u64 = 5_000_000_000;
const REFUSED: &str = "Connection refused";
const SILENT: &str = "no answer in time";

/// A fault: dials from one host to another get no answer.
pub struct Wall {
    pub from: u32,
    pub to: u32,
    pub until: Instant,
}

/// The outcome of a dial.
enum Answer {
    Copy(u32),
    Refusal,
    Silence,
}

/// The host in an address and, if the address states it, the number of the copy.
fn parts(address: &str) -> Option<(u32, Option<u32>)> {
    let address = address.strip_prefix("agent ")?;
    match address.split_once(" life ") {
        Some((host, copy_number)) => Some((host.parse().ok()?, Some(copy_number.parse().ok()?))),
        None => Some((address.parse().ok()?, None)),
    }
}

impl World {
    /// The listening address of a copy. The root's address never changes.
    pub(super) fn address(&self, copy: u32) -> String {
        let (host, copy_number) = (self.host_of(copy), self.copies[copy as usize].copy_number);
        if host != 0 { format!("agent {host} life {copy_number}") } else { format!("agent {host}") }
    }

    /// Only the first address is used. An address that no agent wrote is refused.
    fn answer(&self, copy: u32, addresses: &[String]) -> Answer {
        let Some((host, copy_number)) = addresses.first().and_then(|address| parts(address)) else {
            return Answer::Refusal;
        };
        if host as usize >= self.hosts.len() {
            return Answer::Refusal;
        }
        if self.is_walled_off(self.host_of(copy), host) || self.is_off(host) {
            return Answer::Silence;
        }
        let is_it =
            |copy: &u32| copy_number.is_none_or(|copy_number| self.copies[*copy as usize].copy_number == copy_number);
        let listener = self.living_at(host).into_iter().rfind(is_it);
        match listener.and_then(|listener| Some((listener, self.living(listener)?))) {
            None => Answer::Refusal,
            Some((_, living)) if living.is_stopped() => Answer::Silence,
            Some((listener, _)) => Answer::Copy(listener),
        }
    }

    fn is_walled_off(&self, from: u32, to: u32) -> bool {
        let now = self.clock.now();
        self.walls.iter().any(|wall| wall.from == from && wall.to == to && wall.until > now)
    }

    /// A new agent that does not find its parent exits.
    pub(super) fn on_dials(&mut self, copy: u32, parent: String) {
        match self.answer(copy, &[parent]) {
            Answer::Refusal => self.agent_dies(copy),
            Answer::Silence => self.plan(DIAL_NS_MAX, Plan::Dies { copy }),
            Answer::Copy(parent) => {
                let AgentCopy { host, incarnation, .. } = self.copies[copy as usize];
                let peers = [Peer::Child { agent: AgentId(host), incarnation }, Peer::Parent];
                let link = self.connect(parent, copy, peers, Sort::Tree);
                self.on_way_up(copy, link);
            }
        }
    }

    fn on_way_up(&mut self, copy: u32, link: u32) {
        if let Some(living) = self.living_mut(copy) {
            living.up = Some(link);
        }
    }

    pub(super) fn on_dials_direct(&mut self, copy: u32, agent: AgentId, mut addresses: Vec<String>) {
        if addresses.is_empty() {
            addresses.push(format!("agent {agent}"));
        }
        let fails = |problem: &str| Input::DialFailed { agent, problem: problem.into() };
        match self.answer(copy, &addresses) {
            Answer::Refusal => self.tell(copy, fails(REFUSED)),
            Answer::Silence => self.plan(DIAL_NS_MAX, Plan::Hears { copy, input: fails(SILENT) }),
            Answer::Copy(target) => {
                let peers = [Peer::Direct(AgentId(self.host_of(copy))), Peer::Direct(agent)];
                self.connect(target, copy, peers, Sort::Direct);
            }
        }
    }

    pub(super) fn on_rejoins(&mut self, copy: u32, root: &[String], rejoin: Rejoin) {
        let fails = |problem: &str| Input::RejoinFailed { problem: problem.into() };
        match self.answer(copy, root) {
            Answer::Refusal => self.tell(copy, fails(REFUSED)),
            Answer::Silence => {
                self.rules.on_silent(copy);
                self.plan(DIAL_NS_MAX, Plan::Hears { copy, input: fails(SILENT) });
            }
            Answer::Copy(root) => {
                self.rules.on_reached(copy);
                let peers = [Peer::Rejoin { agent: AgentId(self.host_of(copy)), rejoin }, Peer::Parent];
                let link = self.connect(root, copy, peers, Sort::Tree);
                self.on_way_up(copy, link);
            }
        }
    }

    fn connect(&mut self, listener: u32, dialler: u32, peers: [Peer; 2], sort: Sort) -> u32 {
        let link = self.net.next_link();
        let ends = [self.new_end(listener, link), self.new_end(dialler, link)];
        self.peers.push(peers);
        self.net.connect(&mut self.clock, ends, sort);
        link
    }

    pub(super) fn new_end(&mut self, copy: u32, link: u32) -> End {
        let links = &mut self.copies[copy as usize].links;
        links.push(link);
        End::Agent(copy, LinkId(links.len() as u32 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_host_and_perhaps_a_life() {
        assert_eq!(parts("agent 7"), Some((7, None)));
        assert_eq!(parts("agent 7 life 2"), Some((7, Some(2))));
        assert_eq!((parts("agent x"), parts("agent 7 life x"), parts("10.0.0.1:1")), (None, None, None));
    }
}
