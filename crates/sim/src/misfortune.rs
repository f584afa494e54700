//! Injects the faults, and records who may be blamed for the consequences.

use crate::clock::Clock;
use crate::faults::{Culprit, Fault};
use crate::launch::LauncherLife;
use crate::net::Net;
use crate::ranks::Phase;
use crate::world::World;
use wireup_proto::io::ExitStatus;
use wireup_proto::launcher_io::LauncherInput;

impl World {
    pub(crate) fn on_fault(&mut self, fault: Fault) {
        // After the launcher has left, faults no longer matter to the job.
        if self.launcher.life != LauncherLife::Alive {
            return;
        }
        self.checks.strikes += 1;
        match fault {
            Fault::KillRank { rank, .. } => {
                if self.procs[rank as usize].is_running() {
                    self.checks.blame(Culprit::Rank(rank), true);
                    self.end_rank(rank, ExitStatus::Signalled { signal: 9, core_dumped: false });
                }
            }
            Fault::CutLink { agent, .. } => self.break_link(agent, Net::cut),
            Fault::SilenceLink { agent, .. } => {
                let timeout_ns = self.spec.node_timeout_ns;
                self.break_link(agent, |net, clock, link| net.silence(clock, link, timeout_ns));
            }
            Fault::KillAgent { agent: 0, .. } => self.kill_launcher(),
            Fault::KillAgent { agent, .. } => self.strike_agent(agent),
            Fault::KillKeeper { agent, .. } => self.strike_keeper(agent),
            Fault::CancelStep { .. } => self.cancel_steps(),
            Fault::KillStep { .. } => self.kill_steps(),
            Fault::StopTerminal { for_ns, .. } => self.stop_terminal(for_ns),
            Fault::Signal { signal, .. } => {
                self.checks.interrupted = true;
                self.checks.blame(Culprit::Launcher, false);
                for rank in 0..self.procs.len() as u32 {
                    self.checks.blame(Culprit::Rank(rank), false);
                }
                self.tell_launcher(LauncherInput::Signal { signal: i32::from(signal) });
            }
            Fault::CutDirect { agent, .. } => self.break_direct(agent, Net::cut),
            Fault::SilenceDirect { agent, .. } => {
                let timeout_ns = self.spec.node_timeout_ns;
                self.break_direct(agent, |net, clock, link| net.silence(clock, link, timeout_ns));
            }
            Fault::KillServer { agent, .. } => {
                let host = &self.hosts[agent as usize];
                if host.is_alive() && host.server.as_ref().is_some_and(|server| server.lives) {
                    self.checks.blame(Culprit::Agent(agent), false);
                    self.stop_server(agent);
                }
            }
            Fault::NoStart { .. }
            | Fault::NoExec { .. }
            | Fault::NoDial { .. }
            | Fault::NoTransport { .. }
            | Fault::NoServer { .. }
            | Fault::OtherLibrary { .. } => {}
        }
    }

    /// Servers that do not start, and mismatched libraries, which any agent may report.
    pub(crate) fn blame_servers(&mut self) {
        let servers: Vec<u32> = self.no_server.keys().copied().collect();
        let all = (!self.versions.is_empty()).then_some(0..self.hosts.len() as u32);
        for agent in servers.into_iter().chain(all.into_iter().flatten()) {
            self.checks.blame(Culprit::Agent(agent), false);
        }
    }

    fn break_link(&mut self, agent: u32, how: impl Fn(&mut Net, &mut Clock, u32)) {
        let Some(link) = self.link_to_parent(agent).filter(|_| self.hosts[agent as usize].is_alive()) else { return };
        self.blame_subtree(agent);
        self.checks.output.expect_losses();
        how(&mut self.net, &mut self.clock, link);
    }

    /// Breaks a direct link of this agent, or of the next one that has any.
    fn break_direct(&mut self, agent: u32, how: impl Fn(&mut Net, &mut Clock, u32)) {
        let count = self.hosts.len() as u32;
        let direct_of = |agent: u32| {
            let host = &self.hosts[agent as usize];
            let links = host.links.iter().copied().filter(|_| host.is_alive());
            links.filter(|link| self.net.is_direct(*link)).collect::<Vec<u32>>()
        };
        let mut next = (0..count).map(|step| (agent + step) % count).map(|agent| (agent, direct_of(agent)));
        let Some((_, direct)) = next.find(|(_, direct)| !direct.is_empty()) else { return };
        // Nobody is blamed: the job continues without the link.
        let link = *self.rng.pick(&direct);
        how(&mut self.net, &mut self.clock, link);
    }

    fn strike_agent(&mut self, agent: u32) {
        if !self.hosts[agent as usize].is_alive() {
            return;
        }
        self.blame_subtree(agent);
        self.checks.output.expect_losses();
        self.hosts[agent as usize].is_off = true;
        self.kill_agent(agent);
    }

    fn strike_keeper(&mut self, agent: u32) {
        let host = &self.hosts[agent as usize];
        if !host.is_alive() || !host.keeper_lives || host.ranks.is_empty() || host.job_is_gone {
            return;
        }
        let must = self.runs_ranks(agent);
        self.checks.blame(Culprit::Agent(agent), must);
        for rank in self.hosts[agent as usize].ranks.clone() {
            // The rank's socket may be seen to close before the loss of the keeper is noticed.
            self.checks.blame(Culprit::Rank(rank), false);
        }
        self.checks.output.expect_losses();
        self.kill_keeper(agent);
    }

    /// The launcher dies, and the root agent in it: there is no user left to report to.
    fn kill_launcher(&mut self) {
        self.launcher.life = LauncherLife::Killed;
        self.launcher.gone_at = Some(self.clock.now());
        self.checks.output.expect_losses();
        self.kill_agent(0);
    }

    /// All agents of a subtree may be blamed for a fault at its top; the job must fail if ranks run in it.
    fn blame_subtree(&mut self, top: u32) {
        let subtree: Vec<u32> = (0..self.hosts.len() as u32).filter(|agent| self.is_below(*agent, top)).collect();
        let must = subtree.iter().any(|agent| self.runs_ranks(*agent));
        for agent in subtree {
            self.checks.blame(Culprit::Agent(agent), must);
        }
    }

    fn is_below(&self, agent: u32, top: u32) -> bool {
        let mut at = Some(agent);
        while let Some(agent) = at {
            if agent == top {
                return true;
            }
            at = self.hosts[agent as usize].parent;
        }
        false
    }

    fn runs_ranks(&self, agent: u32) -> bool {
        self.hosts[agent as usize].ranks.iter().any(|rank| self.procs[*rank as usize].phase == Phase::Running)
    }

    /// What the run waits for, for the report of a hang.
    pub(crate) fn who_waits(&self) -> String {
        let alive: Vec<u32> = self.hosts.iter().filter(|host| host.is_alive()).map(|host| host.agent.0).collect();
        let running = self.procs.iter().filter(|proc| matches!(proc.phase, Phase::Starting | Phase::Running));
        let ranks: Vec<String> = running
            .take(8)
            .map(|proc| format!("{} (agent {}, step {}, {:?})", proc.rank, proc.host, proc.step, proc.doing))
            .collect();
        format!(
            "launcher {:?}, agents alive {:?}, calls {}, ranks {ranks:?}, collectives {:?}, servers {:?}",
            self.launcher.life,
            alive,
            self.calls.count(),
            self.checks.collectives,
            self.servers_wait()
        )
    }
}
