//! Injects faults into a session.

use super::dials::Wall;
use super::spec::Fault;
use super::world::{Plan, World};
use wireup_coll::tree::Tree;
use wireup_proto::Instant;
use wireup_wire::ids::AgentId;

/// How long after the end of a wall an agent may still be lost because of it (ns). Chosen: the time of a dial, and the time that the root
/// waits for an agent.
const WALL_SHOWS_NS: u64 = 20_000_000_000;

impl World {
    pub(super) fn on_fault(&mut self, fault: Fault) {
        self.trace(|| format!("fault {fault:?}"));
        match fault {
            Fault::KillAgent { agent } => self.kill_agent(agent),
            Fault::CutLink { agent } => {
                let link = self.strike_link_up(agent);
                link.into_iter().for_each(|link| self.cut(link));
            }
            Fault::SilenceLink { agent } => {
                let link = self.strike_link_up(agent);
                link.into_iter().for_each(|link| self.silence(link));
            }
            Fault::CutDirect => {
                let open = self.net.first_open_direct_link();
                open.into_iter().for_each(|link| self.cut(link));
            }
            Fault::PowerLoss { agent, above, off_ns } => {
                self.with_above(agent, above).into_iter().for_each(|host| self.lose_power(host, off_ns));
            }
            Fault::Wall { from, to, is_both, for_ns } => {
                self.build_wall(from, to, for_ns);
                if is_both {
                    self.build_wall(to, from, for_ns);
                }
            }
            Fault::Stop { agent, for_ns } => self.stop_agent(agent, for_ns),
            Fault::Revive | Fault::EndJobs => self.on_helper(fault),
        }
    }

    fn kill_agent(&mut self, agent: u32) {
        if let Some(copy) = self.newest_at(agent).filter(|_| agent != 0) {
            self.checks.strike(agent, self.clock.now());
            self.agent_dies(copy);
        }
    }

    fn cut(&mut self, link: u32) {
        self.rules.on_broken(link);
        self.net.cut(&mut self.clock, link);
    }

    /// The link of an agent to its parent, if it has one; marks the agent as affected by a fault.
    fn strike_link_up(&mut self, agent: u32) -> Option<u32> {
        let copy = self.newest_at(agent)?;
        let link = self.living(copy)?.up?;
        self.checks.strike(agent, self.clock.now());
        Some(link)
    }

    /// From now on nothing arrives on this link.
    pub(super) fn silence(&mut self, link: u32) {
        self.rules.on_broken(link);
        self.net.silence(&mut self.clock, link, self.spec.node_timeout_ns);
    }

    /// An agent and this many of its ancestors in the original tree, without the root.
    fn with_above(&self, agent: u32, above: u32) -> Vec<u32> {
        let tree = Tree::new(self.spec.agents, self.spec.fanout);
        let up = std::iter::successors(Some(AgentId(agent)), |agent| tree.parent(*agent));
        up.take(above as usize + 1).map(|agent| agent.0).filter(|agent| *agent != 0).collect()
    }

    fn lose_power(&mut self, host: u32, off_ns: u64) {
        let until = Instant(self.clock.now().0.saturating_add(off_ns));
        self.hosts[host as usize].off_until = until;
        self.checks.strike(host, until);
        self.living_at(host).into_iter().for_each(|copy| self.vanish(copy));
    }

    fn build_wall(&mut self, from: u32, to: u32, for_ns: u64) {
        let until = Instant(self.clock.now().0.saturating_add(for_ns));
        self.walls.push(Wall { from, to, until });
        for host in [from, to] {
            self.checks.strike(host, Instant(until.0.saturating_add(WALL_SHOWS_NS)));
        }
    }

    fn stop_agent(&mut self, agent: u32, for_ns: u64) {
        let Some(copy) = self.newest_at(agent).filter(|_| agent != 0) else { return };
        let until = Instant(self.clock.now().0.saturating_add(for_ns));
        self.checks.strike(agent, until);
        // Its children give up their links to it; when it continues, it takes them for lost. In a session that does not probe they notice
        // only then, and the whole subtree may be lost with them.
        let mut below = vec![copy];
        let mut next = 0;
        while let Some(&above) = below.get(next) {
            for other in 0..self.copies.len() as u32 {
                let up = self.living(other).and_then(|living| living.up);
                if up.is_some_and(|up| self.upper_end(up) == Some(above)) && !below.contains(&other) {
                    below.push(other);
                }
            }
            next += 1;
        }
        for other in below.into_iter().skip(1) {
            let host = self.host_of(other);
            self.checks.strike(host, Instant(until.0.saturating_add(WALL_SHOWS_NS)));
        }
        self.stop(copy);
        if until < Instant(u64::MAX) {
            self.plan(for_ns, Plan::Continues { copy });
        }
    }
}
