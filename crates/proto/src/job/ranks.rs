//! Tracks the ranks of this node: planned, running, ended; and the closing of their sockets and streams.
//!
//! ```text
//!   Planned ── exec ──► Running ── reaped ──► Gone
//!      └── could not be started, given up ──────▲
//! ```
//!
//! An ended rank is still busy until its output was read to the end. What a rank's end means for other parts is the
//! result of the function that records it.

use crate::io::{ExitStatus, Stream};
use crate::time::Instant;
use std::collections::VecDeque;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::peer::{Cause, RankTrace};

/// A rank that closes its PMI socket without finalize is usually dying; its exit status says more than the closed
/// socket, so the socket alone counts only after this time (ns). Chosen: much longer than the time from close to reap.
const CLOSED_SOCKET_NS_MAX: u64 = 500_000_000;

pub struct Process {
    pub rank: Rank,
    pub pid: u32,
    pub state: ProcessState,
    /// Whether standard output and error may still deliver bytes.
    open: [bool; 2],
    pub spoke_pmi: bool,
    /// Whether another PMI library in the rank's process has connected.
    pub has_further: bool,
    /// Whether the rank has used its PMIx server.
    pub spoke_pmix: bool,
    /// Whether the rank's library waits for the other ranks of its node by means that the agent does not see. A PMIx
    /// client does so; MPICH does so in shared memory, once it has asked which ranks share its node.
    meets_node: bool,
    /// Whether the rank has called PMI finalize.
    pub finalized: bool,
    /// Whether the PMI socket was closed without finalize, which counts as a departure after some time.
    closed: bool,
    pub trace: RankTrace,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessState {
    Planned,
    Running,
    Gone { exit: Option<u8> },
}

impl Process {
    pub fn new(rank: Rank) -> Self {
        Process {
            rank,
            pid: 0,
            state: ProcessState::Planned,
            open: [true; 2],
            spoke_pmi: false,
            has_further: false,
            spoke_pmix: false,
            meets_node: false,
            finalized: false,
            closed: false,
            trace: RankTrace { rank, ..RankTrace::default() },
        }
    }

    pub fn is_gone(&self) -> bool {
        matches!(self.state, ProcessState::Gone { .. })
    }

    /// Whether the rank may be waiting for the other ranks of its node by means that the agent does not see.
    pub fn may_wait_for_node(&self) -> bool {
        self.meets_node && !self.finalized && self.is_running()
    }

    pub fn is_running(&self) -> bool {
        self.state == ProcessState::Running
    }

    fn is_busy(&self) -> bool {
        !self.is_gone() || self.open != [false; 2]
    }
}

/// How a rank has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The rank has exited with code 0.
    Good,
    Bad(Cause),
}

/// All ranks of one job on one node, by local rank.
pub struct Ranks {
    list: Vec<Process>,
    /// Number of ranks that have not ended, or whose output was not read completely.
    busy: usize,
    /// Number of ranks that have not ended.
    alive: usize,
    /// Number of ranks that have not started.
    unstarted: usize,
    /// When the first rank began to wait for the other ranks of its node by means that the agent does not see.
    met_at: Option<Instant>,
    /// Whether the search for ranks that have not called init was already started.
    init_asked: bool,
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
        Ranks {
            list,
            busy: count,
            alive: count,
            unstarted: count,
            met_at: None,
            init_asked: false,
            closed_sockets: VecDeque::new(),
        }
    }

    /// Whether some ranks have not ended, or have unread output.
    pub fn are_busy(&self) -> bool {
        self.busy > 0
    }

    pub fn are_alive(&self) -> bool {
        self.alive > 0
    }

    /// Whether some ranks have ended.
    pub fn are_fewer(&self) -> bool {
        self.alive < self.list.len()
    }

    /// Whether some ranks have neither started nor been given up.
    pub fn are_starting(&self) -> bool {
        self.unstarted > 0
    }

    /// Whether there are ranks, and all of them are starting.
    pub fn are_all_starting(&self) -> bool {
        self.are_starting() && self.unstarted == self.list.len()
    }

    fn get_mut(&mut self, local: LocalRank, state: ProcessState) -> Option<&mut Process> {
        self.list.get_mut(local.index()).filter(|process| process.state == state)
    }

    /// Records that a rank is running. Returns whether that was unknown before.
    pub fn on_started(&mut self, local: LocalRank, pid: u32, spawn_ns: u64, exec_ns: u64) -> bool {
        let Some(process) = self.get_mut(local, ProcessState::Planned) else { return false };
        process.state = ProcessState::Running;
        process.pid = pid;
        process.trace.pid = pid;
        process.trace.spawn_ns = spawn_ns;
        process.trace.exec_ns = exec_ns;
        self.unstarted -= 1;
        true
    }

    /// Records that a rank could not be started. Returns whether that was unknown before.
    pub fn on_start_failed(&mut self, local: LocalRank) -> bool {
        let Some(process) = self.get_mut(local, ProcessState::Planned) else { return false };
        process.state = ProcessState::Gone { exit: None };
        process.open = [false; 2];
        self.busy -= 1;
        self.unstarted -= 1;
        self.alive -= 1;
        true
    }

    /// A rank has ended. Returns how it ended; `None`: its end was recorded before.
    pub fn on_exited(
        &mut self,
        now: Instant,
        local: LocalRank,
        status: ExitStatus,
        out_of_memory: bool,
    ) -> Option<Exit> {
        let process = self.get_mut(local, ProcessState::Running)?;
        let exit = match status {
            ExitStatus::Exited(code) => Some(code),
            ExitStatus::Signalled { .. } => None,
        };
        process.state = ProcessState::Gone { exit };
        process.closed = false;
        process.trace.exit_ns = now.0;
        process.trace.status = Some(status);
        let finalized = process.finalized;
        self.busy -= usize::from(!process.is_busy());
        self.alive -= 1;
        Some(match status {
            ExitStatus::Exited(0) => Exit::Good,
            ExitStatus::Exited(code) if finalized => Exit::Bad(Cause::ExitedLate(code)),
            ExitStatus::Exited(code) => Exit::Bad(Cause::Exited(code)),
            ExitStatus::Signalled { .. } if out_of_memory => Exit::Bad(Cause::OutOfMemory),
            ExitStatus::Signalled { signal, core_dumped } => Exit::Bad(Cause::Signalled { signal, core_dumped }),
        })
    }

    /// A rank has exited with code 0. `server_listens`: the rank may have finalized with its PMIx server, whose report
    /// may arrive after the exit was reported. Returns whether the rank has departed.
    pub fn on_left_well(&mut self, now: Instant, local: LocalRank, server_listens: bool) -> bool {
        let process = &mut self.list[local.index()];
        let may_have_finalized = process.spoke_pmix && !process.finalized && server_listens;
        if may_have_finalized {
            process.closed = true;
            self.closed_sockets.push_back((now, local));
        }
        !may_have_finalized
    }

    /// Records that a rank has connected by PMI or by PMIx.
    pub fn on_connected(&mut self, now: Instant, local: LocalRank, by_pmix: bool) {
        let process = &mut self.list[local.index()];
        process.spoke_pmi = true;
        process.spoke_pmix |= by_pmix;
        process.trace.init_ns = now.0;
        if by_pmix {
            self.on_meets_node(now, local);
        }
    }

    /// A rank's library waits for the other ranks of its node from now on.
    pub fn on_meets_node(&mut self, now: Instant, local: LocalRank) {
        self.list[local.index()].meets_node = true;
        self.met_at.get_or_insert(now);
    }

    /// Whether a local rank may wait inside its library for rank `local`, which has ended without calling init.
    ///
    /// The PMIx library makes the ranks of a node wait for each other, and its server only reports when all have
    /// entered; the library of MPICH makes them wait in memory that they share. So only the library knows whether a
    /// rank waits for one that never called init. A rank that never called init counts as having called it and left
    /// without finalize: this is no failure if the job ends soon. MPI has the same rule: if one process calls
    /// `MPI_Init`, all must.
    pub fn is_awaited_in_library(&self, local: LocalRank) -> bool {
        let process = &self.list[local.index()];
        let has_left = process.state == ProcessState::Gone { exit: Some(0) } && !process.spoke_pmi;
        has_left && self.list.iter().any(Process::may_wait_for_node)
    }

    /// Number of ranks that may wait inside init for others of the node, and the running ranks that have not called
    /// init. If a waiting rank uses PMIx, only init calls of PMIx count.
    pub fn in_init(&self) -> (usize, Vec<&Process>) {
        let by_pmix = self.list.iter().any(|process| process.spoke_pmix && process.may_wait_for_node());
        let has_called = |process: &&Process| if by_pmix { process.spoke_pmix } else { process.spoke_pmi };
        let arrived = self.list.iter().filter(has_called).filter(|process| process.may_wait_for_node()).count();
        let missing = self.list.iter().filter(|process| arrived > 0 && process.is_running() && !has_called(process));
        (arrived, missing.collect())
    }

    /// Time at which to look for ranks that have not called init: `after_ns` after the first rank may have begun to
    /// wait for the other ranks of its node.
    pub fn stall_deadline(&self, after_ns: u64) -> Option<Instant> {
        self.met_at.filter(|_| after_ns > 0 && !self.init_asked).map(|at| at + after_ns)
    }

    /// Whether there are ranks that have not called init, once the time limit has passed.
    pub fn check_init(&mut self, now: Instant, after_ns: u64) -> bool {
        let is_due = self.stall_deadline(after_ns).is_some_and(|due| now >= due);
        self.init_asked |= is_due;
        is_due && !self.in_init().1.is_empty()
    }

    pub fn on_joined(&mut self, local: LocalRank) {
        if let Some(process) = self.list.get_mut(local.index()) {
            process.has_further = true;
        }
    }

    /// A rank has finalized. For a PMIx client the server reports it, possibly after the rank has ended.
    pub fn on_finalized(&mut self, now: Instant, local: LocalRank, by_pmix: bool) {
        let process = &mut self.list[local.index()];
        process.finalized = true;
        process.closed &= !by_pmix;
        process.trace.finalize_ns = now.0;
    }

    /// Records that a rank's stream has ended. Returns whether that was unknown before.
    pub fn on_stream_closed(&mut self, local: LocalRank, stream: Stream) -> bool {
        let Some(process) = self.list.get_mut(local.index()) else { return false };
        let was_open = std::mem::replace(&mut process.open[stream as usize - 1], false);
        self.busy -= usize::from(was_open && !process.is_busy());
        was_open
    }

    /// Records that the PMI socket of a connected rank closed without finalize.
    pub fn on_socket_closed(&mut self, now: Instant, local: LocalRank) {
        if let Some(process) = self.get_mut(local, ProcessState::Running) {
            process.closed = true;
            self.closed_sockets.push_back((now, local));
        }
    }

    /// Stops waiting for the local ranks, whatever they still do. Returns the streams that were open.
    pub fn give_up(&mut self) -> Vec<(LocalRank, Stream)> {
        let mut ended = Vec::new();
        for index in 0..self.list.len() {
            let local = LocalRank(index as u16);
            let open = [Stream::Out, Stream::Err].into_iter().filter(|stream| self.on_stream_closed(local, *stream));
            ended.extend(open.map(|stream| (local, stream)));
            let process = &mut self.list[index];
            if !process.is_gone() {
                self.unstarted -= usize::from(process.state == ProcessState::Planned);
                process.state = ProcessState::Gone { exit: None };
                process.closed = false;
                self.alive -= 1;
                self.busy -= 1;
            }
        }
        ended
    }

    /// Counts ranks whose PMI socket was closed some time ago, and which still run, as departed; returns them.
    pub fn on_tick(&mut self, now: Instant) -> Vec<LocalRank> {
        let mut departed = Vec::new();
        while self.deadline().is_some_and(|due| now >= due)
            && let Some((_, local)) = self.closed_sockets.pop_front()
        {
            if std::mem::take(&mut self.list[local.index()].closed) {
                departed.push(local);
            }
        }
        departed
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.closed_sockets.front().map(|(at, _)| *at + CLOSED_SOCKET_NS_MAX)
    }

    /// The PMIx server has ended, so ended ranks that have not finalized with it never will: returns these ranks.
    pub fn on_server_gone(&mut self) -> Vec<LocalRank> {
        let all = self.list.iter_mut().enumerate();
        let departs = |process: &mut Process| process.is_gone() && std::mem::take(&mut process.closed);
        all.filter_map(|(index, process)| departs(process).then_some(LocalRank(index as u16))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(count: u32) -> Ranks {
        let mut ranks = Ranks::new((0..count).map(|rank| Process::new(Rank(rank))).collect());
        (0..count).for_each(|local| assert!(ranks.on_started(LocalRank(local as u16), 100 + local, 1, 2)));
        ranks
    }

    #[test]
    fn a_rank_is_busy_until_it_has_ended_and_its_output_was_read() {
        let mut ranks = ranks(1);
        assert_eq!(ranks.on_exited(Instant(5), LocalRank(0), ExitStatus::Exited(0), false), Some(Exit::Good));
        assert!(ranks.are_busy() && !ranks.are_alive());
        assert!(ranks.on_stream_closed(LocalRank(0), Stream::Out));
        assert!(!ranks.on_stream_closed(LocalRank(0), Stream::Out));
        assert!(ranks.are_busy());
        assert!(ranks.on_stream_closed(LocalRank(0), Stream::Err));
        assert!(!ranks.are_busy());
    }

    #[test]
    fn only_the_first_exit_of_a_rank_counts() {
        let mut ranks = ranks(2);
        let mut exits =
            |now, local, code| ranks.on_exited(Instant(now), LocalRank(local), ExitStatus::Exited(code), false);
        assert_eq!(exits(5, 0, 3), Some(Exit::Bad(Cause::Exited(3))));
        assert_eq!((exits(6, 0, 4), exits(6, 9, 4)), (None, None));
        assert!(!ranks.on_started(LocalRank(0), 7, 1, 2), "it does not start again");
    }

    #[test]
    fn a_closed_pmi_socket_is_a_departure_unless_the_rank_ends_soon() {
        let mut ranks = ranks(2);
        ranks.on_socket_closed(Instant(0), LocalRank(0));
        ranks.on_socket_closed(Instant(0), LocalRank(1));
        ranks.on_exited(Instant(1), LocalRank(1), ExitStatus::Exited(3), false);
        assert_eq!(ranks.on_tick(Instant(1)), []);
        assert_eq!(ranks.on_tick(ranks.deadline().unwrap()), [LocalRank(0)], "only the rank that is still running");
        assert_eq!(ranks.deadline(), None);
    }

    #[test]
    fn a_rank_that_finalizes_after_its_exit_has_not_departed() {
        let mut ranks = ranks(2);
        for local in [LocalRank(0), LocalRank(1)] {
            ranks.on_connected(Instant(1), local, true);
            ranks.on_exited(Instant(2), local, ExitStatus::Exited(0), false);
            assert!(!ranks.on_left_well(Instant(2), local, true));
        }
        ranks.on_finalized(Instant(3), LocalRank(0), true);
        assert_eq!(ranks.on_server_gone(), [LocalRank(1)], "only the one that did not finalize");
    }

    #[test]
    fn a_rank_that_exits_without_init_is_awaited_once_a_library_waits_for_its_node() {
        for by_pmix in [true, false] {
            let mut ranks = ranks(3);
            let awaited = |ranks: &Ranks| (0..3).map(LocalRank).find(|local| ranks.is_awaited_in_library(*local));
            ranks.on_exited(Instant(5), LocalRank(1), ExitStatus::Exited(0), false);
            assert_eq!(awaited(&ranks), None, "no rank has connected");
            ranks.on_connected(Instant(6), LocalRank(2), by_pmix);
            assert_eq!(awaited(&ranks), by_pmix.then_some(LocalRank(1)));
            ranks.on_meets_node(Instant(7), LocalRank(2));
            assert_eq!(awaited(&ranks), Some(LocalRank(1)));
            ranks.on_finalized(Instant(8), LocalRank(2), by_pmix);
            assert_eq!(awaited(&ranks), None, "no rank waits any more");
        }
    }

    #[test]
    fn ranks_that_have_not_called_init_are_reported_once() {
        let mut ranks = ranks(3);
        let missing = |ranks: &Ranks| ranks.in_init().1.iter().map(|process| process.rank.0).collect::<Vec<_>>();
        assert!(missing(&ranks).is_empty() && ranks.stall_deadline(10).is_none(), "no rank waits");
        ranks.on_connected(Instant(5), LocalRank(1), false);
        ranks.on_meets_node(Instant(6), LocalRank(1));
        assert_eq!((missing(&ranks), ranks.stall_deadline(10)), (vec![0, 2], Some(Instant(16))));
        assert!(!ranks.check_init(Instant(15), 10) && ranks.check_init(Instant(16), 10));
        assert!(!ranks.check_init(Instant(17), 10) && ranks.stall_deadline(10).is_none(), "once");
        ranks.on_connected(Instant(18), LocalRank(2), true);
        assert_eq!(missing(&ranks), [0, 1], "two kinds of libraries wait for each other");
    }

    #[test]
    fn ranks_that_are_given_up_are_neither_alive_nor_busy() {
        let mut ranks = Ranks::new(vec![Process::new(Rank(0)), Process::new(Rank(1))]);
        ranks.on_started(LocalRank(1), 7, 1, 2);
        assert_eq!(ranks.give_up().len(), 4, "two streams of each");
        assert!(!ranks.are_busy() && !ranks.are_alive() && !ranks.are_starting());
    }
}
