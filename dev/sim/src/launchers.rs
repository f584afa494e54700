//! The drivers of launchers: terminal, standard input, exit. In a session that outlives its jobs, launchers attach to
//! the root; some launchers have no job, but make a request: the revival of nodes, the end of jobs, the end of the
//! session.

use crate::agents::AgentProcess;
use crate::clock::{Event, START};
use crate::cx::Cx;
use crate::fault_injection::Culprit;
use crate::jobs::{Jobs, job_spec};
use crate::net::{Arrival, End, Net, Sort};
use crate::phases::Point;
use crate::report::short;
use crate::spec::JobPlan;
use crate::{configs, workload};
use bytes::Bytes;
use std::collections::VecDeque;
use wireup_proto::io::{LinkId, Peer, Stream};
use wireup_proto::launcher::Launcher;
use wireup_proto::launcher_io::{LauncherInput, LauncherOutput, Notice};
use wireup_proto::{Instant, control_frame};
use wireup_wire::frame::FrameReader;
use wireup_wire::ids::JobId;
use wireup_wire::peer;
use wireup_wire::session::{NodeState, Presence, Welcome};
use wireup_wire::talk::{Control, FromLauncher, ToLauncher};

/// One launcher's process. In a single run the root agent runs in the launcher's process too.
pub struct LauncherHost {
    pub role: Role,
    pub state: LauncherState,
    /// Index of the launcher's job; `None`: the launcher has not launched a job yet.
    pub job: Option<u32>,
    /// Time at which the launcher exited or died.
    pub gone_at: Option<Instant>,
    link: u32,
    /// Reader of the bytes that the root sends before the launcher has a job.
    reader: FrameReader,
    welcome: Option<Welcome>,
    /// The launcher's state machine, from the launch of the job on.
    machine: Option<Launcher>,
    tick_at: Option<Instant>,
    /// Writes to the terminal that are in progress.
    writes: VecDeque<(Stream, u32)>,
    /// Whether a `LauncherWritten` event is scheduled.
    writing: bool,
    terminal_stopped: bool,
    stdin: Stdin,
}

/// The standard input of a launcher.
#[derive(Default)]
struct Stdin {
    sent: u64,
    /// Number of lines that ranks of a staging job have written as answers.
    answers: u64,
    wanted: u32,
    ended: bool,
    /// Whether a `LauncherStdin` event is scheduled.
    due: bool,
}

/// All launchers of a world.
#[derive(Default)]
pub struct Launchers {
    pub all: Vec<LauncherHost>,
    /// The root's answer about the state of its nodes at the end of the session, until that answer is checked.
    pub nodes: Option<Vec<NodeState>>,
}

/// The purpose of a launcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Launches the job with this plan.
    Job(u32),
    Revive,
    /// Kills jobs that do not end by themselves.
    EndJobs,
    /// Asks for the state of the nodes, then ends the session.
    EndSession,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LauncherState {
    Running,
    Left { code: u8 },
    Killed,
}

/// After the job's time limit, the launcher may drop output that the terminal has not accepted for this long (ns).
const UNTAKEN_NS: u64 = 1_000_000_000;

impl Launchers {
    /// A launcher starts and connects to the root.
    pub fn attach(&mut self, cx: &mut Cx, net: &mut Net, root: &mut AgentProcess, role: Role) {
        let launcher = self.all.len() as u32;
        let link = net.next_link();
        let reads = !matches!(role, Role::Job(plan) if !cx.spec.jobs[plan as usize].reads);
        self.all.push(LauncherHost {
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
            stdin: Stdin::default(),
        });
        let sort = if cx.spec.is_standing { Sort::Tree } else { Sort::InMemory };
        net.connect(&mut cx.clock, [End::Launcher(launcher), root.new_end(0, link)], [Peer::Launcher; 2], sort, 0);
    }

    /// The job that a launcher launches after the root has accepted the launcher, on those of the job's nodes that are
    /// not lost.
    pub fn on_launches(&mut self, cx: &Cx, launcher: u32) -> Option<(JobId, Option<JobPlan>)> {
        let at = &mut self.all[launcher as usize];
        let (Role::Job(plan), Some(welcome)) = (at.role, at.welcome.take()) else { return None };
        if at.state != LauncherState::Running {
            return None;
        }
        let node = |agent: u32| welcome.nodes.get(agent as usize);
        let is_lost = |agent: u32| node(agent).is_some_and(|node| matches!(node.presence, Presence::Lost { .. }));
        Some((welcome.job, cx.spec.jobs[plan as usize].without(is_lost)))
    }

    /// Creates the state machine of a launcher for the job with this index.
    pub fn begin_job(&mut self, cx: &Cx, jobs: &Jobs, launcher: u32, index: u32) {
        let job = &jobs.all[index as usize];
        let config = configs::launcher(job_spec(job.id, &job.plan), job.plan.timeout_ns, !cx.spec.is_standing);
        let at = &mut self.all[launcher as usize];
        at.machine = Some(Launcher::new(config, cx.clock.now()));
        at.job = Some(index);
    }

    /// Time (ns) from the start until the launcher of a single run exited or died, or until now if it runs.
    pub fn elapsed_ns(&self, cx: &Cx) -> u64 {
        let launcher = self.all.first().filter(|_| !cx.spec.is_standing);
        launcher.and_then(|launcher| launcher.gone_at).unwrap_or(cx.clock.now()) - START
    }

    /// The first launcher whose job has not ended.
    pub fn active(&self) -> Option<u32> {
        let is_active = |at: &LauncherHost| at.state == LauncherState::Running && at.job.is_some();
        self.all.iter().position(is_active).map(|launcher| launcher as u32)
    }

    pub fn hear(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32, arrival: Arrival) {
        let at = &self.all[launcher as usize];
        let link = LinkId(0);
        let has_job = at.job.is_some();
        match arrival {
            Arrival::Up if has_job => self.tell(cx, net, jobs, launcher, LauncherInput::LinkUp { link }),
            Arrival::Up => {}
            Arrival::Bytes(head, body) => {
                for mut bytes in [head, body].into_iter().filter(|bytes: &Bytes| !bytes.is_empty()) {
                    match has_job {
                        true => self.tell(cx, net, jobs, launcher, LauncherInput::LinkBytes { link, bytes }),
                        false => self.on_answers(cx, net, jobs, launcher, &mut bytes),
                    }
                }
            }
            Arrival::Down(problem) if has_job => {
                self.tell(cx, net, jobs, launcher, LauncherInput::LinkDown { link, problem: problem.into() });
            }
            Arrival::Down(_) => self.on_gone(cx, jobs, launcher, LauncherState::Left { code: 0 }),
        }
    }

    pub fn tell(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32, input: LauncherInput) {
        let at = &mut self.all[launcher as usize];
        let Some(machine) = at.machine.as_mut().filter(|_| at.state == LauncherState::Running) else { return };
        let now = cx.clock.now();
        cx.digest.number(now.0);
        cx.digest.launcher_input(&input);
        if cx.spec.trace {
            eprintln!("  launcher {launcher} <- {}", short(&input));
        }
        machine.handle(now, input);
        self.on_turn(cx, net, jobs, launcher);
    }

    pub fn on_turn(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32) {
        while let LauncherHost { machine: Some(machine), state: LauncherState::Running, .. } =
            &mut self.all[launcher as usize]
        {
            let Some(output) = machine.poll() else { break };
            if cx.spec.trace {
                eprintln!("  launcher {launcher} -> {}", short(&output));
            }
            self.carry_out(cx, net, jobs, launcher, output);
        }
        self.schedule_tick(cx, launcher);
    }

    fn schedule_tick(&mut self, cx: &mut Cx, launcher: u32) {
        let LauncherHost { machine: Some(machine), tick_at, state: LauncherState::Running, .. } =
            &mut self.all[launcher as usize]
        else {
            return;
        };
        let Some(deadline) = machine.deadline() else { return };
        if tick_at.is_none_or(|at| deadline < at) {
            *tick_at = Some(deadline);
            cx.clock.at(deadline, Event::LauncherTick(launcher));
        }
    }

    pub fn on_tick(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32) {
        let now = cx.clock.now();
        let LauncherHost { machine, tick_at, .. } = &mut self.all[launcher as usize];
        if tick_at.is_some_and(|at| at <= now) {
            *tick_at = None;
        }
        let deadline = machine.as_ref().and_then(Launcher::deadline);
        if deadline.is_some_and(|deadline| deadline <= now) {
            self.tell(cx, net, jobs, launcher, LauncherInput::Tick);
        }
        self.schedule_tick(cx, launcher);
    }

    fn carry_out(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32, output: LauncherOutput) {
        let LauncherHost { link, job: Some(job), .. } = self.all[launcher as usize] else { return };
        match output {
            LauncherOutput::Send { frame, .. } => {
                if let Err(problem) = cx.checks.bounds.on_send(link, 0, &frame) {
                    return cx.problem(problem);
                }
                {
                    let now = cx.clock.now();
                    net.send(&mut cx.clock, link, 0, frame, now);
                }
            }
            LauncherOutput::Write { stream, from, bytes } => {
                let rank = from.map(|(origin, _)| origin.rank.0);
                self.write(cx, jobs, launcher, stream, rank, &bytes);
            }
            LauncherOutput::ReadStdin { bytes_max } => {
                self.all[launcher as usize].stdin.wanted = bytes_max;
                self.schedule_stdin(cx, launcher);
            }
            LauncherOutput::ReadHostFiles { child, paths } => {
                let files = paths.into_iter().map(|path| (path, Err("it is simulated".to_owned()))).collect();
                self.tell(cx, net, jobs, launcher, LauncherInput::HostFiles { child, files });
            }
            LauncherOutput::Notice(notice) => {
                cx.digest.debug(&notice);
                let job = &mut jobs.all[job as usize];
                let elapsed_ns = cx.clock.now() - job.launched_at;
                let is_ended = job.plan.timeout_ns.is_some_and(|after_ns| elapsed_ns >= after_ns);
                let too_soon = elapsed_ns < job.plan.options.stall_report_ns && !is_ended;
                if matches!(notice, Notice::Stall(_)) && too_soon {
                    cx.problem(format!("a stall is reported before it can have lasted: {notice:?}"));
                }
                if let Notice::Failed(_) = notice {
                    cx.reach(Point::Failed);
                }
                job.checks.notice(notice);
            }
            LauncherOutput::Suspend => {}
            LauncherOutput::Exit { code } => self.leave(cx, net, jobs, launcher, code),
        }
    }

    fn write(&mut self, cx: &mut Cx, jobs: &mut Jobs, launcher: u32, stream: Stream, rank: Option<u32>, bytes: &Bytes) {
        let at = &mut self.all[launcher as usize];
        let Some(job) = at.job else { return };
        let job = &mut jobs.all[job as usize];
        if let Err(problem) = job.checks.output.on_write(stream, rank, bytes) {
            return cx.problem(format!("job {}: {problem}", job.id));
        }
        // A stream that ends within a line is reported by output without bytes, which needs no write to the terminal.
        if bytes.is_empty() {
            return;
        }
        at.writes.push_back((stream, bytes.len() as u32));
        self.schedule_written(cx, launcher);
        if job.plan.is_staging() {
            self.all[launcher as usize].stdin.answers += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.schedule_stdin(cx, launcher);
        }
    }

    fn schedule_written(&mut self, cx: &mut Cx, launcher: u32) {
        let at = &mut self.all[launcher as usize];
        if !at.writing && !at.terminal_stopped && !at.writes.is_empty() {
            at.writing = true;
            cx.after(cx.spec.timing.terminal, Event::LauncherWritten(launcher));
        }
    }

    pub fn on_written(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32) {
        let at = &mut self.all[launcher as usize];
        at.writing = false;
        if at.terminal_stopped {
            return;
        }
        let Some((stream, bytes)) = at.writes.pop_front() else { return };
        self.tell(cx, net, jobs, launcher, LauncherInput::Written { stream, bytes });
        self.schedule_written(cx, launcher);
    }

    pub fn stop_terminal(&mut self, cx: &mut Cx, jobs: &mut Jobs, launcher: u32, for_ns: u64) {
        let at = &mut self.all[launcher as usize];
        at.terminal_stopped = true;
        if let Some(job) = at.job.map(|job| &mut jobs.all[job as usize])
            && job.plan.timeout_ns.is_some()
            && for_ns >= UNTAKEN_NS
        {
            // After the job's time limit, the launcher does not wait `for_ns` for the terminal, and may drop output.
            job.checks.output.expect_losses();
        }
        cx.clock.after(for_ns, Event::TerminalResumes(launcher));
    }

    pub fn on_terminal_resumes(&mut self, cx: &mut Cx, launcher: u32) {
        self.all[launcher as usize].terminal_stopped = false;
        self.schedule_written(cx, launcher);
    }

    fn schedule_stdin(&mut self, cx: &mut Cx, launcher: u32) {
        let at = &mut self.all[launcher as usize];
        if at.stdin.wanted > 0 && !at.stdin.ended && !at.stdin.due {
            at.stdin.due = true;
            cx.after(cx.spec.timing.terminal, Event::LauncherStdin(launcher));
        }
    }

    pub fn on_stdin(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32) {
        let at = &mut self.all[launcher as usize];
        at.stdin.due = false;
        let Some(job) = at.job.filter(|_| at.stdin.wanted > 0 && !at.stdin.ended) else { return };
        let plan = &jobs.all[job as usize].plan;
        let left = plan.stdin_until(at.stdin.answers) - at.stdin.sent;
        if left == 0 && plan.awaits_answers(at.stdin.answers) {
            return;
        }
        let take = left.min(u64::from(at.stdin.wanted));
        let is_short = take > 1 && !plan.is_staging() && cx.rng.chance(500);
        let take = if is_short { cx.rng.between(1, take) } else { take };
        let bytes: Vec<u8> =
            (at.stdin.sent..at.stdin.sent + take).map(|at| workload::stdin_byte(job, at as u32)).collect();
        at.stdin.sent += take;
        at.stdin.wanted -= take as u32;
        at.stdin.ended = take == 0;
        self.tell(cx, net, jobs, launcher, LauncherInput::Stdin { bytes: bytes.into() });
        self.schedule_stdin(cx, launcher);
    }

    pub fn leave(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32, code: u8) {
        let at = &self.all[launcher as usize];
        if let Some(job) = at.job.map(|job| &jobs.all[job as usize]) {
            // After an interrupt or the time limit, the launcher does not wait for a stopped terminal.
            let is_impatient = job.checks.interrupted || job.plan.timeout_ns.is_some();
            if !at.writes.is_empty() && !is_impatient {
                let count = at.writes.len();
                cx.problem(format!("the launcher exits with {count} writes in progress"));
            }
        }
        self.on_gone(cx, jobs, launcher, LauncherState::Left { code });
        if cx.spec.is_standing {
            let link = self.all[launcher as usize].link;
            net.close(&mut cx.clock, link, 0);
        }
    }

    /// The launcher of a job dies.
    pub fn on_dies(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32) {
        let LauncherHost { state, link, job, .. } = self.all[launcher as usize];
        if state == LauncherState::Running {
            self.on_gone(cx, jobs, launcher, LauncherState::Killed);
            if let Some(job) = job {
                jobs.all[job as usize].expect_losses(cx);
                jobs.all[job as usize].checks.blame(Culprit::Launcher, false);
            }
            net.kill_end(&mut cx.clock, link, 0);
        }
    }

    pub fn on_gone(&mut self, cx: &mut Cx, jobs: &mut Jobs, launcher: u32, state: LauncherState) {
        let at = &mut self.all[launcher as usize];
        let Cx { spec, clock, .. } = &mut *cx;
        for (plan, job) in (0..).zip(&spec.jobs) {
            if job.staged_by.is_some_and(|by| at.role == Role::Job(by)) {
                clock.after(job.at_ns, Event::LauncherAttaches(plan));
            }
        }
        at.state = state;
        at.gone_at = Some(cx.clock.now());
        if let Some(job) = at.job {
            jobs.all[job as usize].checks.has_ended = true;
        }
    }
}

impl Launchers {
    /// A launcher that has no job yet receives bytes of the root.
    fn on_answers(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32, bytes: &mut Bytes) {
        while let Some(frame) = match self.all[launcher as usize].reader.next(bytes) {
            Ok(frame) => frame,
            Err(error) => return cx.problem(format!("launcher {launcher} reads: {error}")),
        } {
            match peer::decode(&frame.payload) {
                Ok(message) => self.on_answer(cx, net, jobs, launcher, message),
                Err(error) => cx.problem(format!("launcher {launcher} reads: {error}")),
            }
        }
    }

    fn on_answer(&mut self, cx: &mut Cx, net: &mut Net, jobs: &mut Jobs, launcher: u32, message: Control) {
        match (self.all[launcher as usize].role, message) {
            (Role::Job(plan), Control::ToLauncher(ToLauncher::Welcome(welcome))) => {
                self.all[launcher as usize].welcome = Some(welcome);
                let job = &cx.spec.jobs[plan as usize];
                // The launcher reads the files that it stages before it launches the staging job.
                let reads_ns = if job.is_staging() { jobs.file_server.load(cx) } else { 0 };
                cx.clock.after(job.wait_ns + reads_ns, Event::LauncherLaunches(launcher));
            }
            (Role::Revive, Control::ToLauncher(ToLauncher::Welcome(_))) => {
                self.ask_root(cx, net, launcher, &Control::FromLauncher(FromLauncher::AskNodes { revive: true }))
            }
            (Role::Revive, Control::ToLauncher(ToLauncher::Nodes(nodes))) => {
                if nodes.iter().any(|node| node.presence == Presence::Starting) {
                    cx.problem("the answer to Revive contains nodes that are still starting".into());
                }
                self.leave(cx, net, jobs, launcher, 0);
            }
            (Role::EndJobs, Control::ToLauncher(ToLauncher::Welcome(_))) => {
                self.ask_root(cx, net, launcher, &Control::FromLauncher(FromLauncher::AskJobs))
            }
            (Role::EndJobs, Control::ToLauncher(ToLauncher::JobList(entries))) => {
                for entry in entries {
                    let mut jobs = jobs.all.iter_mut();
                    if let Some(job) = jobs.find(|job| job.id == entry.job && job.plan.is_endless()) {
                        job.expect_losses(cx);
                        job.checks.interrupted = true;
                        job.checks.blame(Culprit::Launcher, false);
                        let kill = Control::FromLauncher(FromLauncher::KillJob {
                            job: entry.job,
                            signal: None,
                            by: "helper".into(),
                        });
                        self.ask_root(cx, net, launcher, &kill);
                    }
                }
                // The requests of the launcher are sent, and the launcher exits without waiting for answers.
                self.leave(cx, net, jobs, launcher, 0);
            }
            (Role::EndSession, Control::ToLauncher(ToLauncher::Welcome(_))) => {
                self.ask_root(cx, net, launcher, &Control::FromLauncher(FromLauncher::AskNodes { revive: false }))
            }
            (Role::EndSession, Control::ToLauncher(ToLauncher::Nodes(nodes))) => {
                self.nodes = Some(nodes);
                self.ask_root(cx, net, launcher, &Control::FromLauncher(FromLauncher::EndSession { kill: true }));
            }
            (Role::EndSession, Control::ToLauncher(ToLauncher::JobList(_)))
            | (_, Control::ToLauncher(ToLauncher::Decided(Ok(()))) | Control::Note(_)) => {}
            (role, message) => {
                cx.problem(format!("a launcher for {role:?} receives {message:?}"));
            }
        }
    }

    fn ask_root(&self, cx: &mut Cx, net: &mut Net, launcher: u32, message: &Control) {
        let at = &self.all[launcher as usize];
        if at.state == LauncherState::Running {
            let now = cx.clock.now();
            net.send(&mut cx.clock, at.link, 0, control_frame(JobId(0), message), now);
        }
    }
}
