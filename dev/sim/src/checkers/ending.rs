//! The end of a run: the right exit code, a reason that names a culprit, and nothing left behind.

use super::missing::{check_clocks, check_missing};
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

/// Checks everything that can be checked only when no more events can happen.
pub fn check_end(world: &World) -> Vec<String> {
    let mut found = check_nothing_is_left(world);
    for job in &world.jobs.all {
        let problems = check_job(world, job);
        let of_job = |problem| if world.cx.spec.is_standing { format!("job {}: {problem}", job.id) } else { problem };
        found.extend(problems.into_iter().map(of_job));
    }
    if world.cx.spec.is_standing && world.cx.checks.nodes.is_none() {
        found.push("the root does not report its nodes".into());
    }
    found
}

fn check_job(world: &World, job: &Job) -> Vec<String> {
    let mut found = Vec::new();
    match world.launchers.all[job.launcher as usize].state {
        LauncherState::Running if !job.plan.reads => {}
        LauncherState::Running => {
            let waits = who_waits(world);
            found.push(format!("nothing more happens, and the launcher has not exited: {waits}"));
        }
        LauncherState::Left { code } => {
            check_code(world, job, code, &mut found);
            if !world.cx.spec.is_standing {
                check_missing(world, &mut found);
                check_clocks(world, &mut found);
            }
            found.extend(check_output(world, job).err());
        }
        LauncherState::Killed => {}
    }
    found
}

fn check_nothing_is_left(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    let is_stopped = |agent: u32| world.agents[agent].is_stopped();
    let is_active = |agent: &u32| world.agents[*agent].is_running() && !is_stopped(*agent);
    if let Some(agent) = (0..world.agents.all.len() as u32).find(is_active) {
        found.push(format!("{} never exits: {}", world.agents.name(agent), who_waits(world)));
        return found;
    }
    let is_stopped_end = |end: &End| end.agent().is_some_and(is_stopped);
    if let Some([one, other]) = world.net.open_direct().find(|ends| !ends.iter().any(is_stopped_end)) {
        found.push(format!("the direct link of {one:?} and {other:?} is left open"));
    }
    let runs = |proc: &&Proc| {
        let agent = world.jobs.nodes[proc.node as usize].agent;
        proc.exists() && !agent.is_some_and(is_stopped)
    };
    if let Some(Proc { rank, job, .. }) = world.jobs.procs.iter().find(runs) {
        found.push(format!("rank {rank} of job {job} still runs at the end"));
    }
    found
}

fn check_code(world: &World, job: &Job, code: u8, found: &mut Vec<String>) {
    let checks = &job.checks;
    let count = checks
        .notices
        .iter()
        .filter(|notice| matches!(notice, Notice::Failed(failure) if failure.cause.ends_job()))
        .count();
    let failure = checks.failure();
    let ended = checks.notices.iter().filter(|notice| matches!(notice, Notice::Ended(_))).count();
    let waits = checks.collectives.unfinished().is_some() || checks.group_barriers.is_waited_in();
    let stuck = waits && !checks.interrupted;
    let must_fail = stuck || checks.collectives.differ || checks.culprits.values().any(|must| *must);
    if ended > 1 || count > 1 {
        found.push(format!("the launcher reported {ended} ends and {count} failures"));
    }
    match failure {
        None if code != 0 => found.push(format!("exit code {code} without a reason")),
        None if must_fail => {
            let culprits = &job.checks.culprits;
            found.push(format!("the job succeeded in spite of {culprits:?}"));
        }
        None => check_clean_end(world, job, found),
        Some(failure) => check_failure(world, job, failure, code, found),
    }
}

fn check_clean_end(world: &World, job: &Job, found: &mut Vec<String>) {
    let mut procs = world.jobs.procs[job.first_proc as usize..].iter().take(job.size() as usize);
    let unclean = procs.find(|proc| proc.phase != Phase::Ended(ExitStatus::Exited(0)));
    // A rank that vanished after its exit was reported is no error.
    let unclean = unclean.filter(|proc| proc.phase != Phase::Vanished).map(|proc| (proc.rank, proc.phase));
    if let Some((rank, phase)) = unclean {
        found.push(format!("the job succeeded, but rank {rank} is {phase:?}"));
    }
}

fn check_failure(world: &World, job: &Job, failure: &Failure, code: u8, found: &mut Vec<String>) {
    if code == 0 {
        found.push(format!("exit code 0 with {failure:?}"));
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
        found.push(format!("exit code {code} with {failure:?}"));
    }
    if let Cause::AgentsMissing { missing } = &failure.cause {
        let fine = missing.iter().map(|named| named.agent.0).find(|agent| {
            !may_be_blamed(world, job, Culprit::Agent(*agent))
                && (world.calls.was_called(*agent) || world.batch.was_called(*agent))
        });
        if let Some(agent) = fine {
            let culprits = &job.checks.culprits;
            let problem = format!("agent {agent} is reported in {missing:?}, and is not one of {culprits:?}");
            found.push(problem);
        }
    }
    let culprit = culprit(job, failure);
    let is_mixed_up = job.checks.collectives.differ && matches!(failure.cause, Cause::Pmi { .. });
    let is_explained = is_mixed_up || has_left_fence(world, job, failure) || has_left_group(job, failure);
    if !may_be_blamed(world, job, culprit) && !is_explained {
        let culprits = &job.checks.culprits;
        let problem = format!("{failure:?} blames {culprit:?}, not one of {culprits:?}");
        found.push(problem);
    }
}

/// Whether a failure may be blamed on this culprit. In a session that outlives its jobs, an agent may also be lost
/// because of a fault before the launch.
fn may_be_blamed(world: &World, job: &Job, culprit: Culprit) -> bool {
    let was_struck = |agent: u32| job.plan.nodes.contains(&agent) && world.cx.checks.struck.contains(&agent);
    job.checks.culprits.contains_key(&culprit) || matches!(culprit, Culprit::Agent(agent) if was_struck(agent))
}

/// Whether the rank that is blamed for a fence has indeed not entered the fence.
fn has_left_fence(world: &World, job: &Job, failure: &Failure) -> bool {
    let Some(rank) = failure.rank else { return false };
    let entered = world.jobs.procs[(job.first_proc + rank.0) as usize].collecting.entered;
    let has_missed = |own: u32| entered <= own && job.checks.collectives.is_torn(own);
    let has_missed_modex = || job.checks.group_barriers.is_missed(rank.0);
    match &failure.cause {
        Cause::LeftFence { collective: Collective::Modex, .. } => has_missed_modex(),
        Cause::LeftFence { epoch, .. } => {
            epoch.0.checked_sub(job.checks.tells_endpoints.into()).is_some_and(has_missed)
        }
        Cause::NotFinalized { initialised: false } => has_missed(0) || has_missed_modex(),
        _ => false,
    }
}

/// Whether a job was ended while an agent above one of the job's agents did not respond: the output of ranks that
/// passes through the agent that does not respond is lost.
fn was_ended_behind_struck(world: &World, job: &Job) -> bool {
    let above = |agent: u32| {
        let parent = |agent: &u32| agent.checked_sub(1).map(|before| before / world.cx.spec.fanout);
        std::iter::successors(parent(&agent), parent)
    };
    let is_behind = |agent: &u32| above(*agent).any(|above| world.cx.checks.struck.contains(&above));
    !job.checks.has_succeeded() && job.plan.nodes.iter().any(is_behind)
}

fn check_output(world: &World, job: &Job) -> Result<(), String> {
    if was_ended_behind_struck(world, job) {
        return Ok(());
    }
    for proc in job.procs().map(|id| &world.jobs.procs[id as usize]) {
        for (stream, pipe) in (1..).zip(&proc.pipes) {
            job.checks.output.check_end(stream, proc.rank, pipe.lines)?;
        }
    }
    Ok(())
}

/// The events for which the run still waits; printed when a run hangs.
pub fn who_waits(world: &World) -> String {
    let running: Vec<u32> = (0..world.cx.spec.agents).filter(|host| world.agents.newest_at(*host).is_some()).collect();
    let ranks: Vec<String> = (world.jobs.procs.iter().filter(|proc| proc.exists()).take(8))
        .map(|proc| format!("{} of job {} (step {}, {:?})", proc.rank, proc.job, proc.progress.step, proc.doing))
        .collect();
    let launchers: Vec<LauncherState> = world.launchers.all.iter().map(|launcher| launcher.state).take(8).collect();
    let jobs = world.jobs.all.iter().filter(|job| !job.checks.has_ended);
    let collectives: Vec<_> = jobs.map(|job| &job.checks.collectives).take(4).collect();
    let servers: Vec<String> = world.jobs.nodes.iter().filter_map(|node| node.server.as_ref()?.waits()).collect();
    format!(
        "launchers {launchers:?}, agents {running:?}, calls {}, ranks {ranks:?}, collectives {collectives:?}, \
         servers {servers:?}",
        world.calls.count(),
    )
}

/// Whether the rank that is blamed for a group's barrier has indeed not entered that barrier.
fn has_left_group(job: &Job, failure: &Failure) -> bool {
    let (Cause::LeftGroup { .. }, Some(rank)) = (&failure.cause, failure.rank) else { return false };
    job.checks.group_barriers.is_missed(rank.0)
}

fn culprit(job: &Job, failure: &Failure) -> Culprit {
    match (&failure.cause, failure.rank) {
        (Cause::AgentsMissing { missing }, _) => Culprit::Agent(missing.first().map_or(0, |missing| missing.agent.0)),
        (Cause::AgentLost { agent, .. }, _) => Culprit::Agent(agent.0),
        // No fault leads to this cause: when a direct link fails, its frames take another path.
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
