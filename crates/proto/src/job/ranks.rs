//! The ranks of this node: planned, running, gone; and the ends of their sockets and streams.
//!
//! ```text
//!   Planned ── exec ──► Running ── reaped ──► Gone
//!      └── could not be started, given up ──────▲
//! ```
//!
//! A rank that is gone is still busy until its output was read to the end. What a rank's end means for others is said by effects.

use super::effect::{Effect, Effects};
use crate::io::{ExitStatus, Stream};
use crate::time::Instant;
use std::collections::VecDeque;
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
    /// Which program of the command line it runs.
    pub appnum: u16,
    pub spoke_pmi: bool,
    /// To its PMIx server.
    pub spoke_pmix: bool,
    /// It said goodbye by PMI finalize.
    pub finalized: bool,
    /// The PMI socket closed without finalize; that counts after a while.
    closed: bool,
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
            appnum,
            spoke_pmi: false,
            spoke_pmix: false,
            finalized: false,
            closed: false,
            trace: RankTrace { rank, ..RankTrace::default() },
        }
    }

    pub fn is_gone(&self) -> bool {
        matches!(self.life, Life::Gone { .. })
    }

    fn is_busy(&self) -> bool {
        !self.is_gone() || self.open != [false; 2]
    }
}

/// All ranks of one job on one node, by local rank.
pub struct Ranks {
    list: Vec<Process>,
    /// Not gone yet, or with output not read yet.
    busy: usize,
    /// Not gone yet.
    alive: usize,
    /// Not started yet.
    unstarted: usize,
    /// PMI sockets that closed without finalize, oldest first.
    closed_sockets: VecDeque<(Instant, LocalRank)>,
}

impl std::ops::Deref for Ranks {
    type Target = [Process];

    fn deref(&self) -> &[Process] {
        &self.list
    }
}

impl Ranks {
    pub fn new(list: Vec<Process>) -> Self {
        let count = list.len();
        Ranks { list, busy: count, alive: count, unstarted: count, closed_sockets: VecDeque::new() }
    }

    /// Whether some are not gone, or have output that was not read yet.
    pub fn are_busy(&self) -> bool {
        self.busy > 0
    }

    pub fn are_alive(&self) -> bool {
        self.alive > 0
    }

    /// Whether some are gone.
    pub fn are_fewer(&self) -> bool {
        self.alive < self.list.len()
    }

    /// Whether some have neither started nor been given up.
    pub fn are_starting(&self) -> bool {
        self.unstarted > 0
    }

    fn get_mut(&mut self, local: LocalRank, life: Life) -> Option<&mut Process> {
        self.list.get_mut(local.index()).filter(|process| process.life == life)
    }

    /// A rank runs. True if that is news.
    pub fn on_started(&mut self, local: LocalRank, pid: u32, spawn_ns: u64, exec_ns: u64) -> bool {
        let Some(process) = self.get_mut(local, Life::Planned) else { return false };
        process.life = Life::Running;
        process.pid = pid;
        process.trace.pid = pid;
        process.trace.spawn_ns = spawn_ns;
        process.trace.exec_ns = exec_ns;
        self.unstarted -= 1;
        true
    }

    pub fn on_start_failed(&mut self, local: LocalRank, error: SpawnError, out: &mut Effects) {
        let Some(process) = self.get_mut(local, Life::Planned) else { return };
        process.life = Life::Gone { exit: None };
        process.open = [false; 2];
        self.busy -= 1;
        self.unstarted -= 1;
        self.on_gone_one(out);
        out.push(Effect::FailRank { local, cause: Cause::Spawn(error) });
    }

    pub fn on_exited(&mut self, now: Instant, local: LocalRank, status: ExitStatus, out: &mut Effects) {
        let Some(process) = self.get_mut(local, Life::Running) else { return };
        let exit = match status {
            ExitStatus::Exited(code) => Some(code),
            ExitStatus::Signalled { .. } => None,
        };
        process.life = Life::Gone { exit };
        process.closed = false;
        process.trace.exit_ns = now.0;
        self.busy -= usize::from(!process.is_busy());
        self.on_gone_one(out);
        out.push(Effect::RankGone(local));
        match status {
            ExitStatus::Exited(0) => out.push(Effect::LeftWell(local)),
            ExitStatus::Exited(code) => out.push(Effect::FailRank { local, cause: Cause::Exited(code) }),
            ExitStatus::Signalled { signal, core_dumped } => {
                out.push(Effect::FailRank { local, cause: Cause::Signalled { signal, core_dumped } });
            }
        }
    }

    /// A rank has left with exit code 0. `server_listens`: it may have said goodbye to its PMIx server, and its exit is known
    /// faster than that.
    pub fn on_left_well(&mut self, now: Instant, local: LocalRank, server_listens: bool, out: &mut Effects) {
        let process = &mut self.list[local.index()];
        if process.spoke_pmix && !process.finalized && server_listens {
            process.closed = true;
            self.closed_sockets.push_back((now, local));
        } else {
            out.push(Effect::Depart(local));
        }
    }

    /// One rank less.
    fn on_gone_one(&mut self, out: &mut Effects) {
        self.alive -= 1;
        if self.alive == 0 {
            out.push(Effect::AllGone);
        }
    }

    /// A rank takes part, by PMI or by PMIx.
    pub fn on_connected(&mut self, now: Instant, local: LocalRank, by_pmix: bool) {
        let process = &mut self.list[local.index()];
        process.spoke_pmi = true;
        process.spoke_pmix |= by_pmix;
        process.trace.init_ns = now.0;
    }

    /// A rank has said goodbye. Of a PMIx client the server says so, perhaps after the rank is gone.
    pub fn on_finalized(&mut self, now: Instant, local: LocalRank, by_pmix: bool) {
        let process = &mut self.list[local.index()];
        process.finalized = true;
        process.closed &= !by_pmix;
        process.trace.finalize_ns = now.0;
    }

    pub fn on_stream_closed(&mut self, local: LocalRank, stream: Stream, out: &mut Effects) {
        let Some(process) = self.list.get_mut(local.index()) else { return };
        if std::mem::replace(&mut process.open[stream as usize - 1], false) {
            self.busy -= usize::from(!process.is_busy());
            out.push(Effect::StreamEnded { local, stream });
        }
    }

    /// A member's PMI socket closed without finalize.
    pub fn on_socket_closed(&mut self, now: Instant, local: LocalRank) {
        if let Some(process) = self.get_mut(local, Life::Running) {
            process.closed = true;
            self.closed_sockets.push_back((now, local));
        }
    }

    /// Whatever the ranks here still do, nobody waits for it any more.
    pub fn give_up(&mut self, out: &mut Effects) {
        for index in 0..self.list.len() {
            let local = LocalRank(index as u16);
            self.on_stream_closed(local, Stream::Out, out);
            self.on_stream_closed(local, Stream::Err, out);
            let process = &mut self.list[index];
            if !process.is_gone() {
                self.unstarted -= usize::from(process.life == Life::Planned);
                process.life = Life::Gone { exit: None };
                process.closed = false;
                self.alive -= 1;
                self.busy -= 1;
            }
        }
    }

    /// Sockets that stayed closed while their rank lives on count as departures.
    pub fn on_tick(&mut self, now: Instant, out: &mut Effects) {
        while self.deadline().is_some_and(|due| now >= due) {
            let Some((_, local)) = self.closed_sockets.pop_front() else { return };
            if std::mem::take(&mut self.list[local.index()].closed) {
                out.push(Effect::Depart(local));
            }
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.closed_sockets.front().map(|(at, _)| *at + CLOSED_SOCKET_NS_MAX)
    }

    /// The PMIx server is gone: ranks that are gone too and have not said goodbye will not.
    pub fn on_server_gone(&mut self, out: &mut Effects) {
        for (index, process) in self.list.iter_mut().enumerate() {
            if process.is_gone() && std::mem::take(&mut process.closed) {
                out.push(Effect::Depart(LocalRank(index as u16)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(count: u32) -> Ranks {
        let mut ranks = Ranks::new((0..count).map(|rank| Process::new(Rank(rank), 0)).collect());
        (0..count).for_each(|local| assert!(ranks.on_started(LocalRank(local as u16), 100 + local, 1, 2)));
        ranks
    }

    fn names(out: Effects) -> Vec<&'static str> {
        let name = |effect: &Effect| match effect {
            Effect::AllGone => "all gone",
            Effect::RankGone(_) => "gone",
            Effect::LeftWell(_) => "left well",
            Effect::FailRank { .. } => "fail",
            Effect::Depart(_) => "depart",
            Effect::StreamEnded { .. } => "stream",
            _ => "other",
        };
        out.into_vec().iter().map(name).collect()
    }

    #[test]
    fn a_rank_is_busy_until_it_is_gone_and_read() {
        let (mut ranks, mut out) = (ranks(1), Effects::default());
        ranks.on_exited(Instant(5), LocalRank(0), ExitStatus::Exited(0), &mut out);
        assert!(ranks.are_busy() && !ranks.are_alive());
        ranks.on_stream_closed(LocalRank(0), Stream::Out, &mut out);
        ranks.on_stream_closed(LocalRank(0), Stream::Out, &mut out);
        assert!(ranks.are_busy());
        ranks.on_stream_closed(LocalRank(0), Stream::Err, &mut out);
        assert!(!ranks.are_busy());
        assert_eq!(names(out), ["all gone", "gone", "left well", "stream", "stream"]);
    }

    #[test]
    fn only_the_first_end_counts() {
        let (mut ranks, mut out) = (ranks(2), Effects::default());
        ranks.on_exited(Instant(5), LocalRank(0), ExitStatus::Exited(3), &mut out);
        ranks.on_exited(Instant(6), LocalRank(0), ExitStatus::Exited(4), &mut out);
        ranks.on_exited(Instant(6), LocalRank(9), ExitStatus::Exited(4), &mut out);
        assert_eq!(names(out), ["gone", "fail"]);
        assert!(!ranks.on_started(LocalRank(0), 7, 1, 2), "it does not come back");
    }

    #[test]
    fn a_closed_socket_counts_after_a_while_unless_the_rank_ends() {
        let (mut ranks, mut out) = (ranks(2), Effects::default());
        ranks.on_socket_closed(Instant(0), LocalRank(0));
        ranks.on_socket_closed(Instant(0), LocalRank(1));
        ranks.on_exited(Instant(1), LocalRank(1), ExitStatus::Exited(3), &mut Effects::default());
        ranks.on_tick(Instant(1), &mut out);
        assert!(names(std::mem::take(&mut out)).is_empty());
        ranks.on_tick(ranks.deadline().unwrap(), &mut out);
        assert_eq!(names(out), ["depart"], "that of the rank that lives");
        assert_eq!(ranks.deadline(), None);
    }

    #[test]
    fn a_goodbye_to_the_server_may_come_after_the_exit() {
        let (mut ranks, mut out) = (ranks(2), Effects::default());
        for local in [LocalRank(0), LocalRank(1)] {
            ranks.on_connected(Instant(1), local, true);
            ranks.on_exited(Instant(2), local, ExitStatus::Exited(0), &mut Effects::default());
            ranks.on_left_well(Instant(2), local, true, &mut out);
        }
        ranks.on_finalized(Instant(3), LocalRank(0), true);
        assert!(out.pop().is_none());
        ranks.on_server_gone(&mut out);
        assert_eq!(names(out), ["depart"], "only the one that said nothing");
    }

    #[test]
    fn ranks_that_are_given_up_are_neither_alive_nor_busy() {
        let mut ranks = Ranks::new(vec![Process::new(Rank(0), 0), Process::new(Rank(1), 0)]);
        ranks.on_started(LocalRank(1), 7, 1, 2);
        let mut out = Effects::default();
        ranks.give_up(&mut out);
        assert!(!ranks.are_busy() && !ranks.are_alive() && !ranks.are_starting());
        assert_eq!(names(out), ["stream"; 4]);
    }
}
