//! The lives of the ranks on this node: planned, running, gone; and their sockets and streams.

use super::{Context, Job};
use crate::input::Sink;
use crate::io::{ExitStatus, Output, SignalTarget, Stream};
use crate::pmi_link::PmiLink;
use crate::time::Instant;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::peer::{Cause, RankTrace, SpawnError};

/// A rank that closed its PMI socket without finalize is dying most of the time; its exit status says more than the
/// closed socket, so the socket alone counts only after this (ns). Chosen: far above the time from close to reap.
const CLOSED_SOCKET_NS_MAX: u64 = 500_000_000;

pub struct Process {
    pub rank: Rank,
    pub pid: u32,
    pub life: Life,
    /// Standard output and error may still bring bytes.
    open: [bool; 2],
    pub link: PmiLink,
    /// Which program of the command line it runs.
    pub appnum: u16,
    pub spoke_pmi: bool,
    /// To its PMIx server.
    pub spoke_pmix: bool,
    /// It said goodbye by PMI finalize.
    pub finalized: bool,
    /// The PMI socket closed without finalize; that counts after a while.
    pub(super) closed: bool,
    pub trace: RankTrace,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    Planned,
    Running,
    Gone { exit: Option<u8> },
}

impl Process {
    pub fn new(rank: Rank, appnum: u16) -> Self {
        Process {
            rank,
            pid: 0,
            life: Life::Planned,
            open: [true; 2],
            link: PmiLink::default(),
            appnum,
            spoke_pmi: false,
            spoke_pmix: false,
            finalized: false,
            closed: false,
            trace: RankTrace { rank, ..RankTrace::default() },
        }
    }

    fn is_busy(&self) -> bool {
        !matches!(self.life, Life::Gone { .. }) || self.open != [false; 2]
    }
}

impl Job {
    pub fn on_started(&mut self, local: LocalRank, pid: u32, spawn_ns: u64, exec_ns: u64, cx: &mut Context<'_>) {
        let Some(process) = self.process(local).filter(|process| process.life == Life::Planned) else {
            return;
        };
        process.life = Life::Running;
        process.pid = pid;
        process.trace.pid = pid;
        process.trace.spawn_ns = spawn_ns;
        process.trace.exec_ns = exec_ns;
        self.unstarted -= 1;
        if let Some(signal) = self.ends.signal_for_newcomers() {
            cx.out.push(Output::Signal { job: self.id(), target: SignalTarget::One(local), signal });
        }
    }

    pub fn on_start_failed(&mut self, local: LocalRank, error: SpawnError, cx: &mut Context<'_>) {
        let Some(process) = self.process(local).filter(|process| process.life == Life::Planned) else {
            return;
        };
        process.life = Life::Gone { exit: None };
        process.open = [false; 2];
        let rank = process.rank;
        self.busy -= 1;
        self.unstarted -= 1;
        self.on_gone_one(cx);
        self.fail_rank(rank, None, Cause::Spawn(error), cx);
    }

    pub fn on_exited(&mut self, local: LocalRank, status: ExitStatus, cx: &mut Context<'_>) {
        let Some(process) = self.process(local).filter(|process| process.life == Life::Running) else {
            return;
        };
        let exit = match status {
            ExitStatus::Exited(code) => Some(code),
            ExitStatus::Signalled { .. } => None,
        };
        process.life = Life::Gone { exit };
        process.closed = false;
        process.trace.exit_ns = cx.now.0;
        let (rank, pid, busy) = (process.rank, process.pid, process.is_busy());
        self.busy -= usize::from(!busy);
        self.on_gone_one(cx);
        self.attrs.on_gone(local);
        self.on_rank_gone(local, cx);
        let credit = self.input.on_gone(Sink::Local(local));
        self.send_input_credit(credit, cx);
        match status {
            // It may have said goodbye to its PMIx server, and this is faster than that.
            ExitStatus::Exited(0) if self.may_still_finalize(local) => {
                self.processes[local.index()].closed = true;
                self.closed_sockets.push_back((cx.now, local));
            }
            ExitStatus::Exited(0) => self.depart(local, cx),
            ExitStatus::Exited(code) => self.fail_rank(rank, Some(pid), Cause::Exited(code), cx),
            ExitStatus::Signalled { signal, core_dumped } => {
                self.fail_rank(rank, Some(pid), Cause::Signalled { signal, core_dumped }, cx);
            }
        }
    }

    fn may_still_finalize(&self, local: LocalRank) -> bool {
        let process = &self.processes[local.index()];
        process.spoke_pmix && !process.finalized && self.serves_pmix()
    }

    /// One rank less. When none is left here, whatever they left behind goes too, also while nobody reads their output.
    fn on_gone_one(&mut self, cx: &mut Context<'_>) {
        self.alive -= 1;
        if self.alive == 0 && !self.end_server(cx) {
            cx.out.push(Output::Sweep { job: self.id() });
        }
    }

    pub fn on_stream_closed(&mut self, local: LocalRank, stream: Stream) {
        let Some(process) = self.processes.get_mut(local.index()) else {
            return;
        };
        let index = stream as usize - 1;
        if std::mem::replace(&mut process.open[index], false) {
            self.busy -= usize::from(!process.is_busy());
            self.output[index].on_closed(local, process.rank);
        }
    }

    pub fn on_socket_closed(&mut self, local: LocalRank, now: Instant) {
        let Some(process) = self.process(local) else {
            return;
        };
        if process.link.close().is_member() && process.life == Life::Running {
            process.closed = true;
            self.closed_sockets.push_back((now, local));
        }
        self.attrs.on_gone(local);
    }

    /// The keeper is gone, and the kernel ends the ranks: nothing more will be heard of them.
    pub fn on_keeper_lost(&mut self, cx: &mut Context<'_>) {
        self.give_processes_up();
        self.on_server_lost();
        self.fail_here(Cause::KeeperLost, cx);
    }

    /// Whatever the ranks here still do, nobody waits for it any more.
    pub(super) fn give_processes_up(&mut self) {
        for index in 0..self.processes.len() {
            let local = LocalRank(index as u16);
            self.on_stream_closed(local, Stream::Out);
            self.on_stream_closed(local, Stream::Err);
            let process = &mut self.processes[index];
            if !matches!(process.life, Life::Gone { .. }) {
                self.unstarted -= usize::from(process.life == Life::Planned);
                process.life = Life::Gone { exit: None };
                process.closed = false;
                self.alive -= 1;
                self.busy -= 1;
            }
        }
    }

    /// Sockets that stayed closed while their rank lives on count as departures.
    pub(super) fn check_closed_sockets(&mut self, cx: &mut Context<'_>) {
        while self.closed_socket_deadline().is_some_and(|due| cx.now >= due) {
            let Some((_, local)) = self.closed_sockets.pop_front() else {
                return;
            };
            if std::mem::take(&mut self.processes[local.index()].closed) {
                self.depart(local, cx);
            }
        }
    }

    /// The PMIx server is gone: ranks that are gone too and have not said goodbye will not.
    pub(super) fn depart_without_goodbye(&mut self, cx: &mut Context<'_>) {
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            if matches!(process.life, Life::Gone { .. }) && std::mem::take(&mut process.closed) {
                self.depart(LocalRank(index as u16), cx);
            }
        }
    }

    pub(super) fn closed_socket_deadline(&self) -> Option<Instant> {
        self.closed_sockets.front().map(|(at, _)| *at + CLOSED_SOCKET_NS_MAX)
    }

    pub(super) fn on_resize(&mut self, rows: u16, columns: u16, cx: &mut Context<'_>) {
        let Some(pty) = self.facts.spec.options.pty else {
            return;
        };
        if let Some(index) = self.processes.iter().position(|process| process.rank == pty.rank) {
            self.tell_ranks(Output::Resize { job: self.id(), local: LocalRank(index as u16), rows, columns }, cx);
        }
    }
}
