//! The drivers of launchers: terminal, standard input, end. In a session that outlives its jobs they attach to the
//! root; some of them launch no job (`requests`).

mod requests;

use crate::clock::Event;
use crate::configs;
use crate::fault_injection::Culprit;
use crate::jobs::job_spec;
use crate::net::{Arrival, End, Sort};
use crate::report::short;
use crate::workload;
use crate::world::World;
use bytes::Bytes;
use std::collections::VecDeque;
use wireup_proto::Instant;
use wireup_proto::io::{LinkId, Peer, Stream};
use wireup_proto::launcher::Launcher;
use wireup_proto::launcher_io::{LauncherInput, LauncherOutput, Notice};
use wireup_wire::frame::FrameReader;
use wireup_wire::ids::JobId;
use wireup_wire::session::{Presence, Welcome};

/// One launcher's process. In a single run the root agent runs in it too.
pub struct LauncherHost {
    pub role: Role,
    pub state: LauncherState,
    /// Index of the launcher's job, once it is launched.
    pub job: Option<u32>,
    /// Time at which the launcher exited or died.
    pub gone_at: Option<Instant>,
    link: u32,
    /// Reader of the bytes that the root sends before there is a job.
    reader: FrameReader,
    welcome: Option<Welcome>,
    /// The launcher's state machine, from the launch of the job on.
    machine: Option<Launcher>,
    tick_at: Option<Instant>,
    /// Writes to the terminal in progress.
    writes: VecDeque<(Stream, u32)>,
    /// Whether a `LauncherWritten` is scheduled.
    writing: bool,
    terminal_stopped: bool,
    stdin_sent: u64,
    stdin_wanted: u32,
    stdin_ended: bool,
    /// Whether a `LauncherStdin` is scheduled.
    stdin_due: bool,
}

/// The purpose of a launcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Launches the job with this plan.
    Job(u32),
    Revive,
    /// Kills jobs that do not end by themselves.
    EndJobs,
    /// Asks for the nodes, then ends the session.
    EndSession,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LauncherState {
    Running,
    Left { code: u8 },
    Killed,
}

/// After the time limit, output that the terminal does not accept for this long may be dropped.
const UNTAKEN_NS: u64 = 1_000_000_000;

impl World {
    /// A launcher starts and connects to the root.
    pub(crate) fn attach(&mut self, role: Role) {
        let launcher = self.launchers.len() as u32;
        let link = self.net.next_link();
        let reads = !matches!(role, Role::Job(plan) if !self.cx.spec.jobs[plan as usize].reads);
        self.launchers.push(LauncherHost {
            role,
            state: LauncherState::Running,
            job: None,
            gone_at: None,
            link,
            reader: FrameReader::new(),
            welcome: None,
            machine: None,
            tick_at: None,
            writes: VecDeque::new(),
            writing: false,
            terminal_stopped: !reads,
            stdin_sent: 0,
            stdin_wanted: 0,
            stdin_ended: false,
            stdin_due: false,
        });
        let ends = [End::Launcher(launcher), self.agents[0].new_end(0, link)];
        let sort = if self.cx.spec.is_standing { Sort::Tree } else { Sort::InMemory };
        self.net.connect(&mut self.cx.clock, ends, [Peer::Launcher; 2], sort);
    }

    /// Launches a job on those of its nodes that are not lost.
    pub(crate) fn on_launches(&mut self, launcher: u32) {
        let at = &mut self.launchers[launcher as usize];
        let (Role::Job(plan), Some(welcome)) = (at.role, at.welcome.take()) else { return };
        if at.state != LauncherState::Running {
            return;
        }
        let node = |agent: u32| welcome.nodes.get(agent as usize);
        let is_lost = |agent: u32| node(agent).is_some_and(|node| matches!(node.presence, Presence::Lost { .. }));
        match self.cx.spec.jobs[plan as usize].without(is_lost) {
            Some(plan) => {
                self.launch(launcher, welcome.job, plan);
                self.tell_launcher(launcher, LauncherInput::LinkUp { link: LinkId(0) });
            }
            None => self.launcher_leaves(launcher, 0),
        }
    }

    pub(crate) fn launch(&mut self, launcher: u32, id: JobId, plan: crate::spec::JobPlan) {
        let config = configs::launcher(job_spec(id, &plan), plan.timeout_ns, !self.cx.spec.is_standing);
        if let Some(after_ns) = plan.launcher_dies_ns {
            self.cx.clock.after(after_ns, Event::LauncherDies(launcher));
        }
        let is_struck = plan.nodes.iter().any(|host| self.membership.is_struck(*host));
        let job = self.jobs.add(&self.cx, id, plan, launcher);
        if is_struck {
            self.jobs.all[job as usize].expect_losses(&mut self.cx);
        }
        let at = &mut self.launchers[launcher as usize];
        at.machine = Some(Launcher::new(config, self.cx.clock.now()));
        at.job = Some(job);
    }

    /// The first launcher whose job is not over.
    pub(crate) fn active_launcher(&self) -> Option<u32> {
        let is_active = |at: &LauncherHost| at.state == LauncherState::Running && at.job.is_some();
        self.launchers.iter().position(is_active).map(|launcher| launcher as u32)
    }

    pub(crate) fn launcher_hears(&mut self, launcher: u32, arrival: Arrival) {
        let at = &self.launchers[launcher as usize];
        let link = LinkId(0);
        let has_job = at.job.is_some();
        match arrival {
            Arrival::Up if has_job => self.tell_launcher(launcher, LauncherInput::LinkUp { link }),
            Arrival::Up => {}
            Arrival::Bytes(head, body) => {
                for mut bytes in [head, body].into_iter().filter(|bytes: &Bytes| !bytes.is_empty()) {
                    match has_job {
                        true => self.tell_launcher(launcher, LauncherInput::LinkBytes { link, bytes }),
                        false => self.on_answers(launcher, &mut bytes),
                    }
                }
            }
            Arrival::Down(problem) if has_job => {
                self.tell_launcher(launcher, LauncherInput::LinkDown { link, problem: problem.into() });
            }
            Arrival::Down(_) => self.launcher_gone(launcher, LauncherState::Left { code: 0 }),
        }
    }

    pub(crate) fn tell_launcher(&mut self, launcher: u32, input: LauncherInput) {
        let at = &mut self.launchers[launcher as usize];
        let Some(machine) = at.machine.as_mut().filter(|_| at.state == LauncherState::Running) else { return };
        let now = self.cx.clock.now();
        self.cx.digest.number(now.0);
        self.cx.digest.launcher_input(&input);
        if self.cx.spec.trace {
            eprintln!("  launcher {launcher} <- {}", short(&input));
        }
        machine.handle(now, input);
        self.on_launcher_turn(launcher);
    }

    pub(crate) fn on_launcher_turn(&mut self, launcher: u32) {
        while let LauncherHost { machine: Some(machine), state: LauncherState::Running, .. } =
            &mut self.launchers[launcher as usize]
        {
            let Some(output) = machine.poll() else { break };
            if self.cx.spec.trace {
                eprintln!("  launcher {launcher} -> {}", short(&output));
            }
            self.do_for_launcher(launcher, output);
        }
        self.schedule_launcher_tick(launcher);
    }

    fn schedule_launcher_tick(&mut self, launcher: u32) {
        let LauncherHost { machine: Some(machine), tick_at, state: LauncherState::Running, .. } =
            &mut self.launchers[launcher as usize]
        else {
            return;
        };
        let Some(deadline) = machine.deadline() else { return };
        if tick_at.is_none_or(|at| deadline < at) {
            *tick_at = Some(deadline);
            self.cx.clock.at(deadline, Event::LauncherTick(launcher));
        }
    }

    pub(crate) fn on_launcher_tick(&mut self, launcher: u32) {
        let now = self.cx.clock.now();
        let LauncherHost { machine, tick_at, .. } = &mut self.launchers[launcher as usize];
        if tick_at.is_some_and(|at| at <= now) {
            *tick_at = None;
        }
        let deadline = machine.as_ref().and_then(Launcher::deadline);
        if deadline.is_some_and(|deadline| deadline <= now) {
            self.tell_launcher(launcher, LauncherInput::Tick);
        }
        self.schedule_launcher_tick(launcher);
    }

    fn do_for_launcher(&mut self, launcher: u32, output: LauncherOutput) {
        let LauncherHost { link, job: Some(job), .. } = self.launchers[launcher as usize] else { return };
        match output {
            LauncherOutput::Send { frame, .. } => {
                if let Err(problem) = self.cx.checks.bounds.on_send(link, 0, &frame) {
                    return self.cx.problem(problem);
                }
                self.net.send(&mut self.cx.clock, link, 0, frame);
            }
            LauncherOutput::Write { stream, from, bytes } => {
                let rank = from.map(|(origin, _)| origin.rank.0);
                self.write_to_terminal(launcher, stream, rank, &bytes);
            }
            LauncherOutput::ReadStdin { bytes_max } => {
                self.launchers[launcher as usize].stdin_wanted = bytes_max;
                self.schedule_launcher_stdin(launcher);
            }
            LauncherOutput::ReadHostFiles { child, paths } => {
                let files = paths.into_iter().map(|path| (path, Err("it is simulated".to_owned()))).collect();
                self.tell_launcher(launcher, LauncherInput::HostFiles { child, files });
            }
            LauncherOutput::Notice(notice) => {
                self.cx.digest.debug(&notice);
                let job = &mut self.jobs.all[job as usize];
                let elapsed_ns = self.cx.clock.now() - job.launched_at;
                if matches!(notice, Notice::Stall(_)) && elapsed_ns < job.plan.options.stall_report_ns {
                    self.cx.problem(format!("a stall is reported before it can have lasted: {notice:?}"));
                }
                job.checks.notice(notice);
            }
            LauncherOutput::Suspend => {}
            LauncherOutput::Exit { code } => self.launcher_leaves(launcher, code),
        }
    }

    fn write_to_terminal(&mut self, launcher: u32, stream: Stream, rank: Option<u32>, bytes: &Bytes) {
        let at = &mut self.launchers[launcher as usize];
        let Some(job) = at.job else { return };
        let job = &mut self.jobs.all[job as usize];
        if let Err(problem) = job.checks.output.on_write(stream, rank, bytes) {
            return self.cx.problem(format!("job {}: {problem}", job.id));
        }
        // The end of a stream within a line may have no bytes, for which nobody waits.
        if bytes.is_empty() {
            return;
        }
        at.writes.push_back((stream, bytes.len() as u32));
        self.schedule_written(launcher);
    }

    fn schedule_written(&mut self, launcher: u32) {
        let at = &mut self.launchers[launcher as usize];
        if !at.writing && !at.terminal_stopped && !at.writes.is_empty() {
            at.writing = true;
            self.cx.after(self.cx.spec.timing.terminal, Event::LauncherWritten(launcher));
        }
    }

    pub(crate) fn on_launcher_written(&mut self, launcher: u32) {
        let at = &mut self.launchers[launcher as usize];
        at.writing = false;
        if at.terminal_stopped {
            return;
        }
        let Some((stream, bytes)) = at.writes.pop_front() else { return };
        self.tell_launcher(launcher, LauncherInput::Written { stream, bytes });
        self.schedule_written(launcher);
    }

    pub(crate) fn stop_terminal(&mut self, launcher: u32, for_ns: u64) {
        let at = &mut self.launchers[launcher as usize];
        at.terminal_stopped = true;
        if let Some(job) = at.job.map(|job| &mut self.jobs.all[job as usize])
            && job.plan.timeout_ns.is_some()
            && for_ns >= UNTAKEN_NS
        {
            // After the time limit, the launcher does not wait this long for the terminal.
            job.checks.output.expect_losses();
        }
        self.cx.clock.after(for_ns, Event::TerminalResumes(launcher));
    }

    pub(crate) fn on_terminal_resumes(&mut self, launcher: u32) {
        self.launchers[launcher as usize].terminal_stopped = false;
        self.schedule_written(launcher);
    }

    fn schedule_launcher_stdin(&mut self, launcher: u32) {
        let at = &mut self.launchers[launcher as usize];
        if at.stdin_wanted > 0 && !at.stdin_ended && !at.stdin_due {
            at.stdin_due = true;
            self.cx.after(self.cx.spec.timing.terminal, Event::LauncherStdin(launcher));
        }
    }

    pub(crate) fn on_launcher_stdin(&mut self, launcher: u32) {
        let at = &mut self.launchers[launcher as usize];
        at.stdin_due = false;
        let Some(job) = at.job.filter(|_| at.stdin_wanted > 0 && !at.stdin_ended) else { return };
        let left = self.jobs.all[job as usize].plan.stdin_bytes - at.stdin_sent;
        let take = left.min(u64::from(at.stdin_wanted));
        let take = if take > 1 && self.cx.rng.chance(500) { self.cx.rng.between(1, take) } else { take };
        let bytes: Vec<u8> = (at.stdin_sent..at.stdin_sent + take).map(|at| workload::stdin_byte(job, at)).collect();
        at.stdin_sent += take;
        at.stdin_wanted -= take as u32;
        at.stdin_ended = take == 0;
        self.tell_launcher(launcher, LauncherInput::Stdin { bytes: bytes.into() });
        self.schedule_launcher_stdin(launcher);
    }

    fn launcher_leaves(&mut self, launcher: u32, code: u8) {
        let at = &self.launchers[launcher as usize];
        if let Some(job) = at.job.map(|job| &self.jobs.all[job as usize]) {
            // After an interrupt or the time limit, the launcher does not wait for a stopped terminal.
            let is_impatient = job.checks.interrupted || job.plan.timeout_ns.is_some();
            if !at.writes.is_empty() && !is_impatient {
                let count = at.writes.len();
                self.cx.problem(format!("the launcher exits with {count} writes in progress"));
            }
        }
        self.launcher_gone(launcher, LauncherState::Left { code });
        if self.cx.spec.is_standing {
            let link = self.launchers[launcher as usize].link;
            self.net.close(&mut self.cx.clock, link, 0);
        }
    }

    /// The launcher of a job dies.
    pub(crate) fn on_launcher_dies(&mut self, launcher: u32) {
        let LauncherHost { state, link, job, .. } = self.launchers[launcher as usize];
        if state == LauncherState::Running {
            self.launcher_gone(launcher, LauncherState::Killed);
            if let Some(job) = job {
                self.jobs.all[job as usize].expect_losses(&mut self.cx);
                self.jobs.all[job as usize].checks.blame(Culprit::Launcher, false);
            }
            self.net.kill_end(&mut self.cx.clock, link, 0);
        }
    }

    pub(crate) fn launcher_gone(&mut self, launcher: u32, state: LauncherState) {
        let at = &mut self.launchers[launcher as usize];
        at.state = state;
        at.gone_at = Some(self.cx.clock.now());
        if let Some(job) = at.job {
            self.jobs.all[job as usize].checks.has_ended = true;
        }
    }
}
