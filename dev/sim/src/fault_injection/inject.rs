//! Injects the faults, and records who may be blamed for the consequences.

use super::{Culprit, Fault};
use crate::clock::{Clock, Event};
use crate::hosts::Wall;
use crate::launchers::{LauncherState, Role};
use crate::net::Net;
use crate::world::World;
use wireup_coll::tree::Tree;
use wireup_proto::Instant;
use wireup_proto::io::ExitStatus;
use wireup_proto::launcher_io::LauncherInput;
use wireup_wire::ids::AgentId;

/// Time after the end of a wall or a stop during which an agent may still be lost because of it (ns). Chosen: the time
/// of a dial, and the time that the root waits for an agent.
const WALL_SHOWS_NS: u64 = 20_000_000_000;

impl World {
    pub(crate) fn on_fault(&mut self, fault: Fault) {
        // After the launcher of a single run has left, faults no longer matter.
        if !self.cx.spec.is_standing && self.launchers[0].state != LauncherState::Running {
            return;
        }
        self.cx.checks.strikes += 1;
        let timeout_ns = self.cx.spec.node_timeout_ns;
        let silence = |net: &mut Net, clock: &mut Clock, link| net.silence(clock, link, timeout_ns);
        match fault {
            Fault::KillRank { rank, .. } => {
                if self.jobs.procs.get(rank as usize).is_some_and(|proc| proc.is_running()) {
                    self.jobs.blame_rank(rank, true);
                    self.jobs.end_rank(&mut self.cx, rank, ExitStatus::Signalled { signal: 9, core_dumped: false });
                }
            }
            Fault::CutLink { agent, .. } => self.break_link(agent, Net::cut),
            Fault::SilenceLink { agent, .. } => self.break_link(agent, silence),
            Fault::KillAgent { agent: 0, .. } if !self.cx.spec.is_standing => self.kill_launcher(),
            Fault::KillAgent { agent, .. } => self.strike_agent(agent),
            Fault::KillKeeper { agent, .. } => self.strike_keeper(agent),
            Fault::PowerLoss { agent, above, off_ns, .. } => {
                self.with_above(agent, above).into_iter().for_each(|host| self.lose_power(host, off_ns));
            }
            Fault::Wall { from, to, is_both, for_ns, .. } => {
                self.build_wall(from, to, for_ns);
                if is_both {
                    self.build_wall(to, from, for_ns);
                }
            }
            Fault::StopAgent { agent, for_ns, .. } => self.stop_agent(agent, for_ns),
            Fault::CancelStep { .. } => self.cancel_steps(),
            Fault::KillStep { .. } => self.kill_steps(),
            Fault::StopTerminal { for_ns, .. } => {
                if let Some(launcher) = self.active_launcher() {
                    self.stop_terminal(launcher, for_ns);
                }
            }
            Fault::Signal { signal, .. } => {
                if let Some(launcher) = self.active_launcher() {
                    self.interrupt(launcher, signal);
                }
            }
            Fault::CutDirect { agent, .. } => self.break_direct(agent, Net::cut),
            Fault::SilenceDirect { agent, .. } => self.break_direct(agent, silence),
            Fault::KillServer { agent, .. } => {
                let has_server = |node: &u32| self.jobs.nodes[*node as usize].has_running_server();
                let nodes = self.newest_at(agent).map(|process| self.jobs_parts(process)).unwrap_or_default();
                if let Some(node) = nodes.into_iter().find(has_server) {
                    self.jobs.checks_at(node).blame(Culprit::Agent(agent), false);
                    self.jobs.nodes[node as usize].stop_server(&mut self.cx);
                }
            }
            Fault::Revive { .. } => self.attach(Role::Revive),
            Fault::EndJobs { .. } => self.attach(Role::EndJobs),
            Fault::NoStart { .. }
            | Fault::BreakShells { .. }
            | Fault::NoExec { .. }
            | Fault::NoDial { .. }
            | Fault::NoTransport { .. }
            | Fault::NoServer { .. }
            | Fault::OtherLibrary { .. } => {}
        }
    }

    /// An agent may be named by a failure of any job that is not over. `must`: a single run can no longer succeed.
    pub(crate) fn blame_agent(&mut self, host: u32, must: bool) {
        if self.cx.spec.is_standing {
            self.strike(host, self.cx.clock.now());
        }
        for job in self.jobs.active() {
            job.checks.blame(Culprit::Agent(host), must && !self.cx.spec.is_standing);
        }
    }

    /// Output of all jobs may be lost from now on.
    pub(crate) fn expect_losses(&mut self) {
        if !self.cx.spec.is_standing {
            self.jobs.all.iter_mut().for_each(|job| job.checks.output.expect_losses());
        }
    }

    fn break_link(&mut self, host: u32, how: impl Fn(&mut Net, &mut Clock, u32)) {
        let process = self.newest_at(host);
        let Some(link) = process.and_then(|agent| self.agents[agent as usize].up) else { return };
        if self.cx.spec.is_standing {
            self.strike(host, self.cx.clock.now());
        } else {
            self.blame_subtree(host);
        }
        self.expect_losses();
        self.membership.on_broken(link);
        how(&mut self.net, &mut self.cx.clock, link);
    }

    /// Makes a link lose everything that is sent from now on.
    pub(crate) fn silence(&mut self, link: u32) {
        self.membership.on_broken(link);
        self.net.silence(&mut self.cx.clock, link, self.cx.spec.node_timeout_ns);
    }

    /// Breaks a direct link of this agent, or of the next one that has any.
    fn break_direct(&mut self, host: u32, how: impl Fn(&mut Net, &mut Clock, u32)) {
        let count = self.cx.spec.agents;
        let direct_of = |host: u32| {
            let links = self.running_at(host).into_iter().flat_map(|agent| self.agents[agent as usize].links.clone());
            links.filter(|link| self.net.is_direct(*link)).collect::<Vec<u32>>()
        };
        let mut next = (0..count).map(|step| direct_of((host + step) % count));
        let Some(direct) = next.find(|direct| !direct.is_empty()) else { return };
        // Nobody is blamed: the job continues without the link.
        let link = *self.cx.rng.pick(&direct);
        how(&mut self.net, &mut self.cx.clock, link);
    }

    fn strike_agent(&mut self, host: u32) {
        let Some(agent) = self.newest_at(host).filter(|_| host != 0) else { return };
        if self.cx.spec.is_standing {
            self.strike(host, self.cx.clock.now());
            self.jobs.blame_agents(&[host]);
        } else {
            self.blame_subtree(host);
            self.hosts[host as usize].is_gone = true;
        }
        self.expect_losses();
        self.kill_agent(agent);
    }

    fn strike_keeper(&mut self, host: u32) {
        let Some(agent) = self.newest_at(host) else { return };
        let has_keeper = |node: &u32| {
            let node = &self.jobs.nodes[*node as usize];
            node.keeper_is_running && !node.ranks.is_empty() && !node.job_is_gone
        };
        let Some(node) = self.jobs_parts(agent).into_iter().find(has_keeper) else { return };
        let job = &self.jobs.all[self.jobs.nodes[node as usize].job as usize];
        let must = self.jobs.runs_ranks(job, host);
        self.jobs.checks_at(node).blame(Culprit::Agent(host), must);
        self.jobs.checks_at(node).output.expect_losses();
        for id in self.jobs.nodes[node as usize].ranks.clone() {
            // The rank's socket may be seen to close before the loss of the keeper is noticed.
            self.jobs.blame_rank(id, false);
        }
        self.jobs.kill_keeper(&mut self.cx, node);
    }

    /// The launcher of a single run dies, and the root agent in it: there is no user left to report to.
    fn kill_launcher(&mut self) {
        self.launcher_gone(0, LauncherState::Killed);
        self.expect_losses();
        self.kill_agent(0);
    }

    /// The user sends a signal.
    fn interrupt(&mut self, launcher: u32, signal: u8) {
        let Some(job) = self.launchers[launcher as usize].job else { return };
        self.jobs.all[job as usize].checks.interrupted = true;
        self.jobs.all[job as usize].checks.blame(Culprit::Launcher, false);
        for id in self.jobs.all[job as usize].procs() {
            self.jobs.blame_rank(id, false);
        }
        self.tell_launcher(launcher, LauncherInput::Signal { signal: i32::from(signal), sender: None });
    }

    /// An agent and this many of its ancestors in the original tree, without the root.
    fn with_above(&self, agent: u32, above: u32) -> Vec<u32> {
        let tree = Tree::new(self.cx.spec.agents, self.cx.spec.fanout);
        let up = std::iter::successors(Some(AgentId(agent)), |agent| tree.parent(*agent));
        up.take(above as usize + 1).map(|agent| agent.0).filter(|agent| *agent != 0).collect()
    }

    fn lose_power(&mut self, host: u32, off_ns: u64) {
        let until = self.until(off_ns);
        self.hosts[host as usize].off_until = until;
        self.strike(host, until);
        self.jobs.blame_agents(&[host]);
        self.running_at(host).into_iter().for_each(|agent| self.vanish(agent));
    }

    fn until(&self, for_ns: u64) -> Instant {
        Instant(self.cx.clock.now().0.saturating_add(for_ns))
    }

    fn build_wall(&mut self, from: u32, to: u32, for_ns: u64) {
        let until = self.until(for_ns);
        self.walls.push(Wall { from, to, until });
        for host in [from, to] {
            self.strike(host, Instant(until.0.saturating_add(WALL_SHOWS_NS)));
        }
    }

    fn stop_agent(&mut self, host: u32, for_ns: u64) {
        let Some(agent) = self.newest_at(host).filter(|_| host != 0) else { return };
        let until = self.until(for_ns);
        self.strike(host, until);
        // The children of the stopped agent give up their links to it; when it continues, it takes them for lost. In a
        // session that does not probe they notice only then, and the whole subtree may be lost with them.
        let mut below = vec![agent];
        let mut next = 0;
        while let Some(&above) = below.get(next) {
            for other in 0..self.agents.len() as u32 {
                let up = self.agents[other as usize].up.filter(|_| self.agents[other as usize].is_running());
                if up.is_some_and(|up| self.upper_end(up) == Some(above)) && !below.contains(&other) {
                    below.push(other);
                }
            }
            next += 1;
        }
        for other in below.into_iter().skip(1) {
            let host = self.agents[other as usize].host;
            self.strike(host, Instant(until.0.saturating_add(WALL_SHOWS_NS)));
        }
        self.agents[agent as usize].stop();
        if until < Instant(u64::MAX) {
            self.cx.clock.after(for_ns, Event::AgentContinues(agent));
        }
    }

    /// All agents of a subtree may be blamed for a fault at its top; the job must fail if ranks run in it.
    fn blame_subtree(&mut self, top: u32) {
        let subtree: Vec<u32> = (0..self.cx.spec.agents).filter(|agent| self.is_below(*agent, top)).collect();
        self.jobs.blame_agents(&subtree);
    }

    fn is_below(&self, agent: u32, top: u32) -> bool {
        std::iter::successors(Some(agent), |at| self.hosts[*at as usize].parent).any(|at| at == top)
    }

    /// What the run waits for, for the report of a hang.
    pub(crate) fn who_waits(&self) -> String {
        let running: Vec<u32> = (0..self.cx.spec.agents).filter(|host| self.newest_at(*host).is_some()).collect();
        let ranks: Vec<String> = (self.jobs.procs.iter().filter(|proc| proc.exists()).take(8))
            .map(|proc| format!("{} of job {} (step {}, {:?})", proc.rank, proc.job, proc.progress.step, proc.doing))
            .collect();
        let launchers: Vec<LauncherState> = self.launchers.iter().map(|launcher| launcher.state).take(8).collect();
        let jobs = self.jobs.all.iter().filter(|job| !job.checks.has_ended);
        let collectives: Vec<_> = jobs.map(|job| &job.checks.collectives).take(4).collect();
        format!(
            "launchers {launchers:?}, agents {running:?}, calls {}, ranks {ranks:?}, collectives {collectives:?}, \
             servers {:?}",
            self.calls.count(),
            self.jobs.nodes.iter().filter_map(|node| node.server.as_ref()?.waits()).collect::<Vec<_>>()
        )
    }
}
