//! The end of a run: the right exit code, a reason that names a culprit, and nothing left behind.

use crate::fault_injection::Culprit;
use crate::jobs::Job;
use crate::launchers::LauncherState;
use crate::net::End;
use crate::ranks::{Phase, Proc};
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
        for job in 0..self.jobs.len() {
            self.check_job(job);
        }
        if self.spec.is_standing && self.checks.nodes.is_none() {
            self.checks.problem("the root does not report its nodes".into());
        }
    }

    fn check_job(&mut self, index: usize) {
        let job = &self.jobs[index];
        let before = self.checks.problems.len();
        match self.launchers[job.launcher as usize].state {
            LauncherState::Running if !job.plan.reads => {}
            LauncherState::Running => {
                let waits = self.who_waits();
                self.checks.problem(format!("nothing more happens, and the launcher has not exited: {waits}"));
            }
            LauncherState::Left { code } => {
                self.check_code(index, code);
                if !self.spec.is_standing {
                    self.check_missing();
                    self.check_clocks();
                }
                self.check_output(index);
            }
            LauncherState::Killed => {}
        }
        if self.spec.is_standing {
            let id = self.jobs[index].id;
            self.checks.problems[before..].iter_mut().for_each(|problem| *problem = format!("job {id}: {problem}"));
        }
    }

    fn check_nothing_is_left(&mut self) {
        let is_active = |agent: &u32| {
            let process = &self.agents[*agent as usize];
            process.is_running() && !process.is_stopped()
        };
        if let Some(agent) = (0..self.agents.len() as u32).find(is_active) {
            let problem = format!("{} never exits: {}", self.name(agent), self.who_waits());
            return self.checks.problem(problem);
        }
        let is_stopped = |end: End| matches!(end, End::Agent(agent, _) if self.agents[agent as usize].is_stopped());
        if let Some([one, other]) = self.net.open_direct().find(|ends| !ends.iter().any(|end| is_stopped(*end))) {
            self.checks.problem(format!("the direct link of {one:?} and {other:?} is left open"));
        }
        let runs = |proc: &&Proc| {
            let agent = self.nodes[proc.node as usize].agent;
            proc.exists() && !agent.is_some_and(|agent| self.agents[agent as usize].is_stopped())
        };
        if let Some((rank, job)) = self.procs.iter().find(runs).map(|proc| (proc.rank, proc.job)) {
            self.checks.problem(format!("rank {rank} of job {job} still runs at the end"));
        }
    }

    fn check_code(&mut self, index: usize, code: u8) {
        let checks = &self.jobs[index].checks;
        let count = checks
            .notices
            .iter()
            .filter(|notice| matches!(notice, Notice::Failed(failure) if failure.cause.ends_job()))
            .count();
        let failure = checks.failure().cloned();
        let ended = checks.notices.iter().filter(|notice| matches!(notice, Notice::Ended(_))).count();
        let waits = checks.collectives.unfinished().is_some() || checks.group_barriers.is_waited_in();
        let stuck = waits && !checks.interrupted;
        let must_fail = stuck || checks.collectives.differ || checks.culprits.values().any(|must| *must);
        if ended > 1 || count > 1 {
            self.checks.problem(format!("the launcher reported {ended} ends and {count} failures"));
        }
        match &failure {
            None if code != 0 => self.checks.problem(format!("exit code {code} without a reason")),
            None if must_fail => {
                let culprits = &self.jobs[index].checks.culprits;
                self.checks.problems.push(format!("the job succeeded in spite of {culprits:?}"));
            }
            None => self.check_clean_end(index),
            Some(failure) => self.check_failure(index, failure, code),
        }
    }

    fn check_clean_end(&mut self, index: usize) {
        let job = &self.jobs[index];
        let mut procs = self.procs[job.first_proc as usize..].iter().take(job.size() as usize);
        let unclean = procs.find(|proc| proc.phase != Phase::Ended(ExitStatus::Exited(0)));
        // A rank that vanished after its exit was reported does not matter.
        let unclean = unclean.filter(|proc| proc.phase != Phase::Vanished).map(|proc| (proc.rank, proc.phase));
        if let Some((rank, phase)) = unclean {
            self.checks.problem(format!("the job succeeded, but rank {rank} is {phase:?}"));
        }
    }

    fn check_failure(&mut self, index: usize, failure: &Failure, code: u8) {
        if code == 0 {
            self.checks.problem(format!("exit code 0 with {failure:?}"));
        }
        let wanted = match &failure.cause {
            Cause::Exited(exited) | Cause::ExitedLate(exited) => Some(*exited),
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
                !self.may_be_blamed(&self.jobs[index], Culprit::Agent(*agent))
                    && (self.calls.was_called(*agent) || self.batch.was_called(*agent))
            });
            if let Some(agent) = fine {
                let culprits = &self.jobs[index].checks.culprits;
                let problem = format!("agent {agent} is reported in {missing:?}, and is not one of {culprits:?}");
                self.checks.problem(problem);
            }
        }
        let job = &self.jobs[index];
        let culprit = culprit(job, failure);
        let is_mixed_up = job.checks.collectives.differ && matches!(failure.cause, Cause::Pmi { .. });
        let is_explained = is_mixed_up || self.has_left_fence(job, failure) || has_left_group(job, failure);
        if !self.may_be_blamed(job, culprit) && !is_explained {
            let culprits = &job.checks.culprits;
            let problem = format!("{failure:?} blames {culprit:?}, not one of {culprits:?}");
            self.checks.problem(problem);
        }
    }

    /// Whether a failure may be blamed on this culprit. In a session that outlives its jobs, an agent may also be lost
    /// because of a fault before the launch.
    fn may_be_blamed(&self, job: &Job, culprit: Culprit) -> bool {
        let was_struck = |agent: u32| job.plan.nodes.contains(&agent) && self.membership.was_struck(agent);
        job.checks.culprits.contains_key(&culprit) || matches!(culprit, Culprit::Agent(agent) if was_struck(agent))
    }

    /// Whether the rank that is blamed for a fence has not entered it.
    fn has_left_fence(&self, job: &Job, failure: &Failure) -> bool {
        let (Cause::LeftFence { epoch, collective, .. }, Some(rank)) = (&failure.cause, failure.rank) else {
            return false;
        };
        if *collective == Collective::Modex {
            return job.checks.group_barriers.is_missed(rank.0);
        }
        let Some(own) = epoch.0.checked_sub(job.checks.tells_endpoints.into()) else { return false };
        self.procs[(job.first_proc + rank.0) as usize].entered <= own && job.checks.collectives.is_torn(own)
    }

    /// Whether a job was ended while agents above one of its own did not respond: the output of ranks behind that agent
    /// in the job's tree is lost with it.
    fn was_ended_behind_struck(&self, job: &Job) -> bool {
        let above = |agent: u32| {
            let parent = |agent: &u32| agent.checked_sub(1).map(|before| before / self.spec.fanout);
            std::iter::successors(parent(&agent), parent)
        };
        let is_behind = |agent: &u32| above(*agent).any(|above| self.membership.was_struck(above));
        !job.checks.has_succeeded() && job.plan.nodes.iter().any(is_behind)
    }

    fn check_output(&mut self, index: usize) {
        let job = &self.jobs[index];
        if self.was_ended_behind_struck(job) {
            return;
        }
        for (rank, proc) in (0..).zip(&self.procs[job.first_proc as usize..][..job.size() as usize]) {
            for stream in [1, 2] {
                let lines = proc.pipes[stream - 1].lines;
                if let Err(problem) = job.checks.output.check_end(stream as u8, rank, lines) {
                    return self.checks.problem(problem);
                }
            }
        }
    }
}

/// Whether the rank that is blamed for a group's barrier has not entered it.
fn has_left_group(job: &Job, failure: &Failure) -> bool {
    let (Cause::LeftGroup { .. }, Some(rank)) = (&failure.cause, failure.rank) else { return false };
    job.checks.group_barriers.is_missed(rank.0)
}

fn culprit(job: &Job, failure: &Failure) -> Culprit {
    match (&failure.cause, failure.rank) {
        (Cause::AgentsMissing { missing }, _) => Culprit::Agent(missing.first().map_or(0, |missing| missing.agent.0)),
        (Cause::AgentLost { agent, .. }, _) => Culprit::Agent(agent.0),
        // No fault leads to this: when a direct link fails, its frames take another path.
        (Cause::NoDirectLink { agent, .. }, _) => Culprit::Agent(agent.0),
        (Cause::KeeperLost { .. } | Cause::PmixServer { .. } | Cause::ToldToEnd { .. }, _) => {
            Culprit::Agent(job.agent_of(failure.node.0))
        }
        (Cause::TimedOut { .. } | Cause::Interrupted { .. } | Cause::Launcher { .. }, _)
        | (Cause::Killed { .. } | Cause::SessionEnded { .. }, _) => Culprit::Launcher,
        (_, Some(rank)) => Culprit::Rank(rank.0),
        (_, None) => Culprit::Launcher,
    }
}
