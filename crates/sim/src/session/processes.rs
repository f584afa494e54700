//! Ranks: a little PMI, a little output, and the faults of some ranks.

use super::spec::Mischief;
use super::world::{Plan, World};
use bytes::Bytes;
use std::collections::VecDeque;
use wireup_proto::io::{ExitStatus, Input, SignalTarget, SpawnPlan, Stream};
use wireup_wire::ids::{JobId, LocalRank, Rank};

const FLOOD_BYTES: usize = 32 << 10;

/// The ranks of one job on one host.
pub struct HostJob {
    procs: Vec<Proc>,
    is_read: bool,
}

struct Proc {
    rank: u32,
    has_started: bool,
    is_running: bool,
    replies: VecDeque<Bytes>,
    line: Vec<u8>,
    stage: u32,
}

/// The next action of a rank.
#[derive(Clone, Debug)]
pub enum Doing {
    Starts,
    Works,
    Hears,
    Floods,
    Dies(ExitStatus),
}

/// The shape of a job, which its ranks find in their arguments: the index of its plan and the number of ranks.
fn shape(plan: &SpawnPlan) -> (usize, u32) {
    let argument = |at: usize| String::from_utf8_lossy(&plan.programs[0].argv[at]).parse().unwrap_or(0u32);
    (argument(1) as usize, argument(2))
}

impl World {
    pub(super) fn spawn(&mut self, copy: u32, plan: &SpawnPlan) {
        let Some(living) = self.living_mut(copy) else { return };
        let proc = |rank: Rank| Proc {
            rank: rank.0,
            has_started: false,
            is_running: true,
            replies: VecDeque::new(),
            line: Vec::new(),
            stage: 0,
        };
        let procs = plan.ranks.iter().map(|rank| proc(rank.rank)).collect();
        let shape = shape(plan);
        let before = living.jobs.insert(plan.job, HostJob { procs, is_read: true });
        if before.is_some() {
            self.checks.problem(format!("{} spawns job {} twice", self.name(copy), plan.job));
        }
        self.checks.on_spawn(plan.job, shape, self.host_of(copy));
        for local in 0..plan.ranks.len() as u16 {
            let delay_ns = self.spec.timing.spawn.draw(&mut self.rng);
            self.plan(delay_ns, Plan::Rank { copy, job: plan.job, local, doing: Doing::Starts });
        }
    }

    fn proc(&mut self, copy: u32, job: JobId, local: u16) -> Option<&mut Proc> {
        let living = self.living_mut(copy)?;
        living.jobs.get_mut(&job)?.procs.get_mut(usize::from(local))
    }

    pub(super) fn on_rank(&mut self, copy: u32, job: JobId, local: u16, doing: Doing) {
        let Some((plan_of, size)) = self.checks.shape(job) else { return };
        let plan = self.spec.jobs[plan_of].clone();
        let Some(proc) = self.proc(copy, job, local) else { return };
        let (rank, is_running) = (proc.rank, proc.is_running);
        if !is_running && !matches!(doing, Doing::Dies(_)) {
            return;
        }
        let mine = |of: u32| of == rank;
        match doing {
            Doing::Starts => {
                proc.has_started = true;
                let input =
                    Input::ChildStarted { job, local: LocalRank(local), pid: 1 + rank, spawn_ns: 1, exec_ns: 1 };
                self.tell(copy, input);
                let doing = match plan.mischief {
                    Some(Mischief::Floods { rank }) if mine(rank) => Doing::Floods,
                    Some(Mischief::Hangs { rank }) if mine(rank) => return,
                    Some(Mischief::Crashes { rank }) if mine(rank) => {
                        Doing::Dies(ExitStatus::Signalled { signal: 11, core_dumped: false })
                    }
                    Some(Mischief::Fails { rank, code }) if mine(rank) => Doing::Dies(ExitStatus::Exited(code)),
                    _ => {
                        let words = match plan.mischief {
                            Some(Mischief::Lies { rank }) if mine(rank) => "nonsense\n",
                            _ => "cmd=init pmi_version=1 pmi_subversion=1\n",
                        };
                        return self.speak(copy, job, local, words.into());
                    }
                };
                self.plan(plan.work_ns, Plan::Rank { copy, job, local, doing });
            }
            Doing::Hears if matches!(plan.mischief, Some(Mischief::Lies { rank }) if mine(rank)) => {}
            Doing::Hears => self.on_hears(copy, job, local, size, plan.work_ns),
            Doing::Works => {
                for line in 0..plan.lines {
                    let bytes = Bytes::from(format!("{rank} of {job}: {line}\n"));
                    self.tell(copy, Input::StdioBytes { job, local: LocalRank(local), stream: Stream::Out, bytes });
                }
                self.speak(copy, job, local, "cmd=finalize\n".into());
            }
            Doing::Floods => {
                let is_read = self.living(copy).is_some_and(|living| living.jobs[&job].is_read);
                if is_read {
                    let bytes = Bytes::from(vec![b'x'; FLOOD_BYTES]);
                    self.tell(copy, Input::StdioBytes { job, local: LocalRank(local), stream: Stream::Out, bytes });
                    self.plan(1_000_000, Plan::Rank { copy, job, local, doing });
                }
            }
            Doing::Dies(status) => self.die(copy, job, local, status),
        }
    }

    fn speak(&mut self, copy: u32, job: JobId, local: u16, words: String) {
        self.tell(copy, Input::ClientBytes { job, local: LocalRank(local), bytes: words.into() });
    }

    pub(super) fn reply(&mut self, copy: u32, job: JobId, local: LocalRank, bytes: &Bytes) {
        let delay_ns = self.spec.timing.client.draw(&mut self.rng);
        if let Some(proc) = self.proc(copy, job, local.0) {
            proc.replies.push_back(bytes.clone());
            self.plan(delay_ns, Plan::Rank { copy, job, local: local.0, doing: Doing::Hears });
        }
    }

    /// The next bytes from the agent arrive. For each line, the rank continues its script with the next request.
    fn on_hears(&mut self, copy: u32, job: JobId, local: u16, size: u32, work_ns: u64) {
        let Some(proc) = self.proc(copy, job, local) else { return };
        let Some(bytes) = proc.replies.pop_front() else { return };
        proc.line.extend_from_slice(&bytes);
        // One line is one reply, and only one reply is outstanding.
        let Some(end) = proc.line.iter().position(|byte| *byte == b'\n') else { return };
        let line: Vec<u8> = proc.line.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line).into_owned();
        proc.stage += 1;
        let (stage, rank) = (proc.stage, proc.rank);
        let other = (rank + 1) % size;
        let name = format!("sim-{job}");
        let next = match stage {
            1 => format!("cmd=put kvsname={name} key=k{rank} value=v{rank}.{job}\n"),
            2 => "cmd=barrier_in\n".to_owned(),
            3 => format!("cmd=get kvsname={name} key=k{other}\n"),
            4 => {
                if !line.contains(&format!("value=v{other}.{job}")) {
                    return self.checks.problem(format!("rank {rank} of job {job} gets {line:?}"));
                }
                return self.plan(work_ns, Plan::Rank { copy, job, local, doing: Doing::Works });
            }
            _ => {
                let doing = Doing::Dies(ExitStatus::Exited(0));
                return self.plan(1000, Plan::Rank { copy, job, local, doing });
            }
        };
        self.speak(copy, job, local, next);
    }

    pub(super) fn close_client(&mut self, copy: u32, job: JobId, local: LocalRank) {
        let doing = Doing::Dies(ExitStatus::Exited(13));
        self.plan(1000, Plan::Rank { copy, job, local: local.0, doing });
    }

    pub(super) fn signal(&mut self, copy: u32, job: JobId, target: SignalTarget, signal: i32) {
        if !matches!(signal, 9 | 15) {
            return;
        }
        let Some(count) = self.living(copy).and_then(|living| living.jobs.get(&job)) else {
            return;
        };
        let locals = match target {
            SignalTarget::All => 0..count.procs.len() as u16,
            SignalTarget::One(local) => local.0..local.0 + 1,
        };
        for local in locals {
            // 30 % of the ranks ignore SIGTERM.
            if signal == 9 || !self.rng.chance(300) {
                let doing = Doing::Dies(ExitStatus::Signalled { signal, core_dumped: false });
                let delay_ns = self.spec.timing.report.draw(&mut self.rng);
                self.plan(delay_ns, Plan::Rank { copy, job, local, doing });
            }
        }
    }

    fn die(&mut self, copy: u32, job: JobId, local: u16, status: ExitStatus) {
        let Some(proc) = self.proc(copy, job, local) else { return };
        // A rank that has not started receives no signal; its agent knows that.
        if !proc.has_started || !std::mem::replace(&mut proc.is_running, false) {
            return;
        }
        let of = LocalRank(local);
        self.tell(copy, Input::ClientGone { job, local: of });
        self.tell(copy, Input::ChildExited { job, local: of, status });
        let delay_ns = self.spec.timing.stdio.draw(&mut self.rng);
        self.plan(delay_ns, Plan::Reads { copy, job, local });
    }

    /// The driver has read all that a dead rank wrote.
    pub(super) fn on_reads(&mut self, copy: u32, job: JobId, local: u16) {
        for stream in [Stream::Out, Stream::Err] {
            self.tell(copy, Input::StdioClosed { job, local: LocalRank(local), stream });
        }
    }

    pub(super) fn read_stdio(&mut self, copy: u32, job: JobId, on: bool) {
        let Some(living) = self.living_mut(copy) else { return };
        let Some(host_job) = living.jobs.get_mut(&job) else { return };
        let was_read = std::mem::replace(&mut host_job.is_read, on);
        let ranks: Vec<u32> = host_job.procs.iter().map(|proc| proc.rank).collect();
        let flooding = self.checks.shape(job).and_then(|(plan, _)| self.spec.jobs[plan].mischief);
        if let Some(Mischief::Floods { rank }) = flooding
            && on
            && !was_read
            && let Some(local) = ranks.iter().position(|of| *of == rank)
        {
            self.plan(1000, Plan::Rank { copy, job, local: local as u16, doing: Doing::Floods });
        }
    }

    pub(super) fn sweep(&mut self, copy: u32, job: JobId) {
        let living = self.living(copy);
        let running = living.and_then(|living| living.jobs.get(&job)).map_or(0, HostJob::running);
        if running > 0 {
            self.checks.problem(format!("{} sweeps job {job} while {running} ranks run", self.name(copy)));
        }
    }

    pub(super) fn job_gone(&mut self, copy: u32, job: JobId) {
        self.sweep(copy, job);
        if let Some(living) = self.living_mut(copy) {
            living.jobs.remove(&job);
        }
    }
}

impl HostJob {
    fn running(&self) -> usize {
        self.procs.iter().filter(|proc| proc.is_running).count()
    }
}
