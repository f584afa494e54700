//! The end of a run: the right exit code, a reason that names a culprit, and nothing left behind.

use crate::faults::Culprit;
use crate::hosts::Life;
use crate::launch::LauncherLife;
use crate::ranks::Phase;
use crate::world::World;
use wireup_proto::io::ExitStatus;
use wireup_proto::launcher_io::Notice;
use wireup_wire::collective::Collective;
use wireup_wire::peer::{Cause, Failure, SpawnStep};

const EACCES: i32 = 13;

impl World {
    /// Checks everything that can be checked only when nothing more happens.
    pub(crate) fn check_end(&mut self) {
        self.check_nothing_is_left();
        match self.launcher.life {
            LauncherLife::Alive => {
                let waits = self.who_waits();
                self.checks.problem(format!("nothing more happens, and the launcher has not exited: {waits}"));
            }
            LauncherLife::Left { code } => {
                self.check_code(code);
                self.check_missing();
                self.check_clocks();
                self.check_output();
            }
            LauncherLife::Killed => {}
        }
    }

    fn check_nothing_is_left(&mut self) {
        for host in 0..self.hosts.len() {
            match self.hosts[host].life {
                Life::Unborn | Life::Killed | Life::Left => {}
                Life::Alive(_) => {
                    let waits = self.who_waits();
                    return self.checks.problem(format!("agent {host} never exits: {waits}"));
                }
            }
        }
        if let Some((one, other)) = self.net.first_open_direct() {
            self.checks.problem(format!("the direct link of agents {one:?} and {other:?} is left open"));
        }
        let left = self.procs.iter().find(|proc| matches!(proc.phase, Phase::Starting | Phase::Running));
        if let Some(rank) = left.map(|proc| proc.rank) {
            self.checks.problem(format!("rank {rank} still runs at the end"));
        }
    }

    fn check_code(&mut self, code: u8) {
        let failures: Vec<Failure> = self.checks.notices.iter().filter_map(failure).cloned().collect();
        let ended = self.checks.notices.iter().filter(|notice| matches!(notice, Notice::Ended(_))).count();
        let waits = self.checks.collectives.unfinished().is_some() || self.checks.teams.is_waited_in();
        let stuck = waits && !self.checks.interrupted;
        let must_fail = stuck || self.checks.collectives.differ || self.checks.culprits.values().any(|must| *must);
        if ended > 1 || failures.len() > 1 {
            self.checks.problem(format!("the launcher reported {ended} ends and {} failures", failures.len()));
        }
        match failures.first() {
            None if code != 0 => self.checks.problem(format!("exit code {code} without a reason")),
            None if must_fail => {
                let culprits = &self.checks.culprits;
                self.checks.problems.push(format!("the job succeeded in spite of {culprits:?}"));
            }
            None => self.check_clean_end(),
            Some(failure) => self.check_failure(failure, code),
        }
    }

    fn check_clean_end(&mut self) {
        let unclean = self.procs.iter().find(|proc| proc.phase != Phase::Ended(ExitStatus::Exited(0)));
        // A rank that vanished after its exit was reported does not matter.
        let unclean = unclean.filter(|proc| proc.phase != Phase::Vanished).map(|proc| (proc.rank, proc.phase));
        if let Some((rank, phase)) = unclean {
            self.checks.problem(format!("the job succeeded, but rank {rank} is {phase:?}"));
        }
    }

    fn check_failure(&mut self, failure: &Failure, code: u8) {
        if code == 0 {
            self.checks.problem(format!("exit code 0 with {failure:?}"));
        }
        let wanted = match &failure.cause {
            Cause::Exited(exited) => Some(*exited),
            Cause::Signalled { signal, .. } => Some(128 + *signal as u8),
            Cause::Aborted { code, .. } => Some((code & 0xff).max(1) as u8),
            Cause::Spawn(error) if error.errno == EACCES => Some(126),
            Cause::Spawn(error) if error.step == SpawnStep::Find => Some(127),
            _ => None,
        };
        if wanted.is_some_and(|wanted| wanted != code) {
            self.checks.problem(format!("exit code {code} with {failure:?}"));
        }
        if let Cause::AgentsMissing { missing } = &failure.cause {
            let fine = missing.iter().map(|named| named.agent.0).find(|agent| {
                !self.checks.culprits.contains_key(&Culprit::Agent(*agent))
                    && (self.calls.was_called(*agent) || self.batch.was_called(*agent))
            });
            if let Some(agent) = fine {
                let culprits = &self.checks.culprits;
                let problem = format!("agent {agent} is reported in {missing:?}, and is not one of {culprits:?}");
                self.checks.problem(problem);
            }
        }
        let culprit = self.culprit(failure);
        let is_mixed_up = self.checks.collectives.differ && matches!(failure.cause, Cause::Pmi { .. });
        let is_explained = is_mixed_up || self.has_left_fence(failure) || self.has_left_group(failure);
        if !self.checks.culprits.contains_key(&culprit) && !is_explained {
            let culprits = &self.checks.culprits;
            let problem = format!("{failure:?} blames {culprit:?}, not one of {culprits:?}");
            self.checks.problem(problem);
        }
    }

    /// Whether the rank that is blamed for a fence has not entered it.
    fn has_left_fence(&self, failure: &Failure) -> bool {
        let (Cause::LeftFence { epoch, collective, .. }, Some(rank)) = (&failure.cause, failure.rank) else {
            return false;
        };
        if *collective == Collective::Modex {
            return self.checks.teams.is_missed(rank.0);
        }
        self.procs[rank.index()].entered <= epoch.0 && self.checks.collectives.is_torn(epoch.0)
    }

    /// Whether the rank that is blamed for a group's barrier has not entered it.
    fn has_left_group(&self, failure: &Failure) -> bool {
        let (Cause::LeftGroup { .. }, Some(rank)) = (&failure.cause, failure.rank) else { return false };
        self.checks.teams.is_missed(rank.0)
    }

    fn culprit(&self, failure: &Failure) -> Culprit {
        match (&failure.cause, failure.rank) {
            (Cause::AgentsMissing { missing }, _) => {
                Culprit::Agent(missing.first().map_or(0, |missing| missing.agent.0))
            }
            (Cause::AgentLost { agent, .. }, _) => Culprit::Agent(agent.0),
            // No fault leads to this: when a direct link fails, its frames take another path.
            (Cause::NoDirectLink { agent, .. }, _) => Culprit::Agent(agent.0),
            (Cause::KeeperLost | Cause::PmixServer { .. } | Cause::ToldToEnd { .. }, _) => {
                Culprit::Agent(self.spec.agent_of(failure.node.0))
            }
            (Cause::TimedOut { .. } | Cause::Interrupted { .. } | Cause::Launcher { .. }, _)
            | (Cause::Killed { .. } | Cause::SessionEnded { .. }, _) => Culprit::Launcher,
            (_, Some(rank)) => Culprit::Rank(rank.0),
            (_, None) => Culprit::Launcher,
        }
    }

    fn check_output(&mut self) {
        for rank in 0..self.procs.len() {
            for stream in [1, 2] {
                let lines = self.procs[rank].pipes[stream - 1].lines;
                if let Err(problem) = self.checks.output.check_end(stream as u8, rank as u32, lines) {
                    return self.checks.problem(problem);
                }
            }
        }
    }
}

pub fn failure(notice: &Notice) -> Option<&Failure> {
    match notice {
        Notice::Failed(failure) => Some(failure),
        Notice::Started { .. }
        | Notice::Stall(_)
        | Notice::Note(_)
        | Notice::Interrupt { .. }
        | Notice::Trace(_)
        | Notice::Ended(_) => None,
    }
}
