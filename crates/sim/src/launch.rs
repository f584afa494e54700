//! The driver's half of the launcher: its terminal, its standard input, its end.

use crate::birth;
use crate::clock::Event;
use crate::spec::WorldSpec;
use crate::workload;
use crate::world::World;
use bytes::Bytes;
use std::collections::VecDeque;
use wireup_proto::Instant;
use wireup_proto::io::Stream;
use wireup_proto::launcher::Launcher;
use wireup_proto::launcher_io::{LauncherInput, LauncherOutput, Notice};

/// The launcher's process, without the root agent, which runs in it too.
pub struct LauncherHost {
    machine: Launcher,
    pub life: LauncherLife,
    /// When it exited or died.
    pub gone_at: Option<Instant>,
    pub link: u32,
    tick_at: Option<Instant>,
    /// Writes to the terminal in progress.
    writes: VecDeque<(Stream, u32)>,
    /// A `LauncherWritten` is scheduled.
    writing: bool,
    terminal_stopped: bool,
    stdin_sent: u64,
    stdin_wanted: u32,
    stdin_ended: bool,
    /// A `LauncherStdin` is scheduled.
    stdin_due: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LauncherLife {
    Alive,
    Left { code: u8 },
    Killed,
}

impl LauncherHost {
    pub fn new(spec: &WorldSpec, now: Instant) -> Self {
        LauncherHost {
            machine: birth::launcher(spec, now),
            life: LauncherLife::Alive,
            gone_at: None,
            link: 0,
            tick_at: None,
            writes: VecDeque::new(),
            writing: false,
            terminal_stopped: false,
            stdin_sent: 0,
            stdin_wanted: 0,
            stdin_ended: false,
            stdin_due: false,
        }
    }
}

/// After the time limit, output that the terminal does not accept for this long may be dropped.
const UNTAKEN_NS: u64 = 1_000_000_000;

impl World {
    pub(crate) fn tell_launcher(&mut self, input: LauncherInput) {
        if self.launcher.life != LauncherLife::Alive {
            return;
        }
        let now = self.clock.now();
        self.digest.number(now.0);
        self.digest.launcher_input(&input);
        if self.spec.trace {
            eprintln!("  launcher <- {input:?}");
        }
        self.launcher.machine.handle(now, input);
        self.on_launcher_turn();
    }

    pub(crate) fn on_launcher_turn(&mut self) {
        while self.launcher.life == LauncherLife::Alive {
            let Some(output) = self.launcher.machine.poll() else { break };
            if self.spec.trace {
                eprintln!("  launcher -> {output:?}");
            }
            self.do_for_launcher(output);
        }
        self.schedule_launcher_tick();
    }

    fn schedule_launcher_tick(&mut self) {
        let LauncherHost { machine, tick_at, life: LauncherLife::Alive, .. } = &mut self.launcher else { return };
        let Some(deadline) = machine.deadline() else { return };
        if tick_at.is_none_or(|at| deadline < at) {
            *tick_at = Some(deadline);
            self.clock.at(deadline, Event::LauncherTick);
        }
    }

    pub(crate) fn on_launcher_tick(&mut self) {
        let now = self.clock.now();
        if self.launcher.tick_at.is_some_and(|at| at <= now) {
            self.launcher.tick_at = None;
        }
        if self.launcher.machine.deadline().is_some_and(|deadline| deadline <= now) {
            self.tell_launcher(LauncherInput::Tick);
        }
        self.schedule_launcher_tick();
    }

    fn do_for_launcher(&mut self, output: LauncherOutput) {
        match output {
            LauncherOutput::Send { frame, .. } => {
                let link = self.launcher.link;
                if let Err(problem) = self.checks.bounds.on_send(link, 0, &frame) {
                    return self.checks.problem(problem);
                }
                self.net.send(&mut self.clock, link, 0, frame);
            }
            LauncherOutput::Write { stream, rank, bytes } => self.write_to_terminal(stream, rank, &bytes),
            LauncherOutput::ReadStdin { bytes_max } => {
                self.launcher.stdin_wanted = bytes_max;
                self.schedule_launcher_stdin();
            }
            LauncherOutput::Notice(notice) => {
                self.digest.debug(&notice);
                if matches!(notice, Notice::Stall(_)) && self.elapsed_ns() < self.spec.stall_report_ns {
                    self.checks.problem(format!("a stall is reported before it can have lasted: {notice:?}"));
                }
                self.checks.notice(notice);
            }
            LauncherOutput::Suspend => self.checks.suspended += 1,
            LauncherOutput::Exit { code } => self.launcher_leaves(code),
        }
    }

    fn write_to_terminal(&mut self, stream: Stream, rank: Option<u32>, bytes: &Bytes) {
        if let Err(problem) = self.checks.output.on_write(stream, rank, bytes) {
            return self.checks.problem(problem);
        }
        self.launcher.writes.push_back((stream, bytes.len() as u32));
        self.schedule_written();
    }

    fn schedule_written(&mut self) {
        let launcher = &mut self.launcher;
        if !launcher.writing && !launcher.terminal_stopped && !launcher.writes.is_empty() {
            launcher.writing = true;
            let delay_ns = self.spec.timing.terminal.draw(&mut self.rng);
            self.clock.after(delay_ns, Event::LauncherWritten);
        }
    }

    pub(crate) fn on_launcher_written(&mut self) {
        self.launcher.writing = false;
        if self.launcher.terminal_stopped {
            return;
        }
        let Some((stream, bytes)) = self.launcher.writes.pop_front() else { return };
        self.tell_launcher(LauncherInput::Written { stream, bytes });
        self.schedule_written();
    }

    pub(crate) fn stop_terminal(&mut self, for_ns: u64) {
        self.launcher.terminal_stopped = true;
        if self.spec.timeout_ns.is_some() && for_ns >= UNTAKEN_NS {
            // After the time limit, the launcher does not wait this long for the terminal.
            self.checks.output.expect_losses();
        }
        self.clock.after(for_ns, Event::TerminalResumes);
    }

    pub(crate) fn on_terminal_resumes(&mut self) {
        self.launcher.terminal_stopped = false;
        self.schedule_written();
    }

    fn schedule_launcher_stdin(&mut self) {
        let launcher = &mut self.launcher;
        if launcher.stdin_wanted > 0 && !launcher.stdin_ended && !launcher.stdin_due {
            launcher.stdin_due = true;
            let delay_ns = self.spec.timing.terminal.draw(&mut self.rng);
            self.clock.after(delay_ns, Event::LauncherStdin);
        }
    }

    pub(crate) fn on_launcher_stdin(&mut self) {
        let launcher = &mut self.launcher;
        launcher.stdin_due = false;
        if launcher.stdin_wanted == 0 || launcher.stdin_ended {
            return;
        }
        let left = self.spec.stdin_bytes - launcher.stdin_sent;
        let take = left.min(u64::from(launcher.stdin_wanted));
        let take = if take > 1 && self.rng.chance(500) { self.rng.between(1, take) } else { take };
        let bytes: Vec<u8> = (launcher.stdin_sent..launcher.stdin_sent + take).map(workload::stdin_byte).collect();
        launcher.stdin_sent += take;
        launcher.stdin_wanted -= take as u32;
        launcher.stdin_ended = take == 0;
        self.tell_launcher(LauncherInput::Stdin { bytes: bytes.into() });
        self.schedule_launcher_stdin();
    }

    fn launcher_leaves(&mut self, code: u8) {
        // After an interrupt or the time limit, the launcher does not wait for a stopped terminal.
        let impatient = self.checks.interrupted || self.spec.timeout_ns.is_some();
        if !self.launcher.writes.is_empty() && !impatient {
            let count = self.launcher.writes.len();
            self.checks.problem(format!("the launcher exits with {count} writes in progress"));
        }
        self.launcher.life = LauncherLife::Left { code };
        self.launcher.gone_at = Some(self.clock.now());
    }
}
