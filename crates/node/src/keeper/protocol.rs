//! The requests of an agent to its keeper, and the keeper's events.
//!
//! The keeper is forked from the agent, so both ends of the encoding always have the same version. A [`KeeperEvent`]
//! carries descriptors, which are sent along with the bytes (see `channel`).

use crate::binding;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use wireup_os::bind::{CpuSet, Machine};
pub use wireup_proto::io::Program;
use wireup_proto::io::{ExitStatus, KernelSession, RankPlan, SpawnPlan};
use wireup_wire::job::{Binding, Limit, Preload, RankStdout, Staged, StdinTarget};
use wireup_wire::peer::SpawnError;

/// The slot of the PMIx server process. `STANDBY_SLOT`: the slot of a server that is started before its job is known.
pub const SERVER_SLOT: u32 = u32::MAX;
pub const STANDBY_SLOT: u32 = SERVER_SLOT - 1;
/// The slot of the interpreter that imports modules for all ranks, about which the keeper reports nothing.
pub(super) const IMPORTER_SLOT: u32 = STANDBY_SLOT - 1;

/// Whether the slot is that of a PMIx server process.
pub fn is_server(slot: u32) -> bool {
    slot >= STANDBY_SLOT
}

/// A request to the keeper.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Listening sockets, sent with this message, for the next processes with `listens`, in order.
    Sockets { count: u32 },
    /// Start processes. Each is answered by `Started` and later `Exited`, or by `StartFailed`.
    Spawn(Batch),
    /// Send a signal to the process group of one slot, or to all except servers. Processes that are not started yet get
    /// the signal before their first instruction; `SIGKILL` to all cancels the start of these processes instead
    /// (`StartFailed`, `ECANCELED`).
    Signal { slot: Option<u32>, signal: i32 },
    /// Kill all descendants, even after `setsid` or double forks; then send `Swept`.
    Sweep,
    /// Remove a directory and its contents when no process is left and the agent releases the keeper or dies.
    RemoveAtEnd { directory: Vec<u8> },
    /// Remove a directory and its contents when the keeper itself ends, unless another process has claimed (`flock`)
    /// the directory by then. If the file `log` in the directory is not empty, the end of `log` is kept as the file
    /// `last_words`.
    RemoveUnclaimed { directory: Vec<u8>, log: String, last_words: String },
    /// Kill all descendants and perform `RemoveAtEnd`; then return to the initial state and send `Renewed`. If that
    /// fails, or processes had staged files, the keeper leaves.
    Renew,
    /// End the interpreter with imported modules that is kept for later jobs, and do not keep this job's interpreter.
    DropImporter,
    /// Restore the terminal's modes if the agent dies: the modes that standard input, a terminal, had when the keeper
    /// was forked, or the modes that the agent had remembered before the fork.
    RestoreTerminalOnDeath,
    /// Begin a kernel session (`setsid`) or, in the agent's session, a process group; `Renew` does not undo this. Sent
    /// at most once: see [`super::Keeper::begin_kernel_session`].
    Begin(KernelSession),
}

/// Processes to start, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    pub programs: Vec<Program>,
    pub processes: Vec<Process>,
    pub umask: u32,
    /// Soft limits, at most the hard limits of the keeper.
    pub limits: Vec<Limit>,
    /// Staged files that the processes of this batch and of all later batches see instead of the originals.
    pub staged: Option<Staged>,
    /// Files that a process of its own reads into the page cache, in this order.
    pub prefetch: Vec<Vec<u8>>,
    /// Modules that are imported once for all processes of this batch, which are ranks.
    pub preload: Option<Preload>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// The agent's number for the process; free for reuse after `Exited` or `StartFailed`.
    pub slot: u32,
    /// Index into the batch's programs.
    pub program: u16,
    /// Variables of this process alone; they take precedence over the variables of the program.
    pub env: Vec<Vec<u8>>,
    /// The CPUs that the process may use, 64 per word.
    pub cpus: Option<Vec<u64>>,
    pub stdin: StdinKind,
    pub stdout: OutKind,
    pub stderr: OutKind,
    /// Whether the process shares the keeper's kernel session: it waits for other ranks, often by polling.
    pub shares_session: bool,
    /// Whether the process gets a PMI socket, whose number is in `PMI_FD`.
    pub pmi: bool,
    /// Whether the process gets the next listening socket, whose number is in `WIREUP_LISTEN_FD`.
    pub listens: bool,
    /// Size (rows, columns) of a pseudo-terminal that the process gets instead of all three streams; `None`: no
    /// terminal.
    pub pty: Option<(u16, u16)>,
}

impl Process {
    /// A process of the batch's first program with pipes for output and no input.
    pub fn new(slot: u32) -> Process {
        Process { slot, ..Process::default() }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum StdinKind {
    #[default]
    Null,
    /// The standard input that the agent had when it forked the keeper.
    Inherit,
    Pipe,
    /// One end of a socket pair, of which the agent gets the other end as `ProcessFds::stdin`.
    Socket,
    /// Exactly these bytes, which are never put into a file, an argument or a variable.
    Bytes(Vec<u8>),
    /// The executable file of this wireup program.
    Program,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum OutKind {
    #[default]
    Pipe,
    /// A pseudo-terminal in raw mode; a pipe if none can be opened.
    Pty,
    Null,
}

/// The agent's ends of a process's streams: close-on-exec, non-blocking.
#[derive(Debug, Default)]
pub struct ProcessFds {
    /// The agent's end of standard input; only for `StdinKind::Pipe` and `StdinKind::Socket`.
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
    pub pmi: Option<OwnedFd>,
    /// The controlling end of the pseudo-terminal; the ends of the three streams are then absent.
    pub pty: Option<OwnedFd>,
}

/// An event reported by the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub enum KeeperEvent {
    /// The process has executed its program. `present`: one bit for each descriptor that comes with the message, in the
    /// order of [`ProcessFds`].
    Started {
        slot: u32,
        pid: u32,
        spawn_ns: u64,
        exec_ns: u64,
        present: u8,
        #[serde(skip)]
        fds: ProcessFds,
    },
    /// The descriptors of a process, ahead of `Started`, which then comes without any: the interpreter that imports
    /// modules for all ranks writes to the streams of the first one.
    Streams {
        slot: u32,
        present: u8,
        #[serde(skip)]
        fds: ProcessFds,
    },
    StartFailed {
        slot: u32,
        error: SpawnError,
    },
    /// The process was reaped; it was reported as `Started` before.
    Exited {
        slot: u32,
        status: ExitStatus,
    },
    /// Staged files are shown by a library in the processes. `problem`: the reason why mounts are impossible.
    Redirected {
        problem: String,
    },
    /// The processes use the original files instead of staged ones. `problem`: the reason why the staged files are not
    /// shown.
    NotStaged {
        problem: String,
    },
    /// Some files of [`Batch::prefetch`] could not be read.
    NotPrefetched {
        problem: String,
    },
    /// The modules that are imported once for all ranks, and the place where the names of the modules were found.
    Preloads {
        modules: String,
    },
    /// Each process imports its modules by itself. `problem`: the reason why the modules were not imported once for all
    /// processes.
    NotPreloaded {
        problem: String,
    },
    /// The keeper ends because of this error.
    Failed {
        problem: SpawnError,
    },
    /// No descendant is left (except those that belong to another user and cannot be killed).
    Swept,
    /// The keeper is in its initial state again, except that it may keep an interpreter with imported modules.
    Renewed {
        keeps_importer: bool,
    },
}

impl ProcessFds {
    /// Returns one bit for each descriptor that is present, and these descriptors.
    pub(super) fn split(self) -> (u8, Vec<OwnedFd>) {
        let all = [self.stdin, self.stdout, self.stderr, self.pmi, self.pty];
        let present = all.iter().enumerate().fold(0, |bits, (bit, fd)| bits | u8::from(fd.is_some()) << bit);
        (present, all.into_iter().flatten().collect())
    }

    pub(super) fn join(present: u8, fds: &mut VecDeque<OwnedFd>) -> ProcessFds {
        let mut next = |bit: u8| if present >> bit & 1 == 1 { fds.pop_front() } else { None };
        ProcessFds { stdin: next(0), stdout: next(1), stderr: next(2), pmi: next(3), pty: next(4) }
    }
}

impl Batch {
    /// The batch of a plan; a slot is a local rank.
    ///
    /// # Errors
    /// The ranks should be bound to cores or sockets, but the machine does not report them.
    pub fn from_plan(plan: &SpawnPlan) -> io::Result<Batch> {
        let sets = binding::sets(&plan.binding, &Machine::this()?, plan.ranks.len())?;
        let process = |(rank, set): (&RankPlan, &Option<CpuSet>)| Process {
            program: rank.program,
            env: rank.env.clone(),
            cpus: set.as_ref().map(|set| set.words().to_vec()),
            stdin: stdin(plan, rank),
            stdout: match plan.stdio.stdout {
                RankStdout::Pipe => OutKind::Pipe,
                RankStdout::Pty => OutKind::Pty,
            },
            stderr: OutKind::Pipe,
            shares_session: !plan.shares_machine,
            pmi: plan.sockets.pmi,
            listens: plan.sockets.listening,
            pty: rank.pty,
            ..Process::new(u32::from(rank.local.0))
        };
        Ok(Batch {
            programs: plan.programs.clone(),
            processes: plan.ranks.iter().zip(&sets).map(process).collect(),
            umask: plan.umask,
            limits: plan.limits.clone(),
            staged: plan.files.staged.clone(),
            prefetch: plan.files.prefetch.clone(),
            preload: plan.preload.clone(),
        })
    }
}

/// The CPUs of each rank in the kernel's list format, `0-3,8`; `None`: not bound.
pub fn cpus_of_ranks(binding: &Binding, ranks: usize) -> io::Result<Vec<Option<String>>> {
    let sets = binding::sets(binding, &Machine::this()?, ranks)?;
    Ok(sets.into_iter().map(|set| set.map(|set| set.to_string())).collect())
}

fn stdin(plan: &SpawnPlan, rank: &RankPlan) -> StdinKind {
    match plan.stdio.stdin {
        StdinTarget::All => StdinKind::Pipe,
        StdinTarget::AllByMemory => StdinKind::Socket,
        StdinTarget::One(one) if one == rank.rank && plan.stdio.stdin_inherit => StdinKind::Inherit,
        StdinTarget::One(one) if one == rank.rank => StdinKind::Pipe,
        StdinTarget::One(_) | StdinTarget::None => StdinKind::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use wireup_os::bind;
    use wireup_os::files::null;
    use wireup_proto::io::{KernelSession, SocketPlan};
    use wireup_wire::ids::{JobId, LocalRank, Rank};
    use wireup_wire::job::{BindTo, Object, StdioOptions};

    #[test]
    fn process_descriptors_survive_split_and_join() {
        let (out, pty) = (null().unwrap(), null().unwrap());
        let numbers = [out.as_raw_fd(), pty.as_raw_fd()];
        let (present, fds) = ProcessFds { stdout: Some(out), pty: Some(pty), ..ProcessFds::default() }.split();
        let joined = ProcessFds::join(present, &mut fds.into());
        assert_eq!([joined.stdout.unwrap().as_raw_fd(), joined.pty.unwrap().as_raw_fd()], numbers);
        assert!(joined.stdin.is_none() && joined.stderr.is_none() && joined.pmi.is_none());
    }

    fn plan(ranks: u16, to: BindTo, stdin: StdinTarget, stdin_inherit: bool) -> SpawnPlan {
        let rank = |local: u16| RankPlan {
            rank: Rank(10 + u32::from(local)),
            local: LocalRank(local),
            program: 0,
            env: vec![],
            pty: None,
        };
        SpawnPlan {
            job: JobId(1),
            programs: vec![],
            ranks: (0..ranks).map(rank).collect(),
            binding: Binding { to, ..Binding::default() },
            report_bindings: false,
            shares_machine: false,
            kernel_session: KernelSession::Own,
            stdio: StdioOptions { stdin, stdin_inherit, ..StdioOptions::default() },
            sockets: SocketPlan { pmi: true, listening: false },
            framework: Default::default(),
            gpus_per_rank: 0,
            umask: 0o22,
            limits: Vec::new(),
            files: Default::default(),
            preload: None,
        }
    }

    #[test]
    fn thread_binding_is_round_robin_and_even_binding_needs_two_cores_for_each_rank() {
        let cpus = bind::allowed().unwrap().len() as u16;
        let batch = Batch::from_plan(&plan(
            2 * cpus,
            BindTo::To { object: Object::Thread, count: 1 },
            StdinTarget::None,
            false,
        ))
        .unwrap();
        let sets: Vec<CpuSet> =
            batch.processes.iter().map(|process| CpuSet::from_words(process.cpus.clone().unwrap())).collect();
        assert!(sets.iter().all(|set| set.len() == 1));
        assert_eq!(sets[0], sets[usize::from(cpus)]);
        let even = |ranks| Batch::from_plan(&plan(ranks, BindTo::Even, StdinTarget::None, false)).unwrap();
        assert!(even(cpus + 1).processes.iter().all(|process| process.cpus.is_none()));
        assert!(even(1).processes[0].cpus.is_none());
        assert!(even(2).processes.iter().all(|process| process.cpus.is_none() == (cpus < 4)));
    }

    #[test]
    fn ranks_share_a_session_unless_their_node_shares_the_machine() {
        let alone = plan(2, BindTo::None, StdinTarget::None, false);
        for shares_machine in [false, true] {
            let batch = Batch::from_plan(&SpawnPlan { shares_machine, ..alone.clone() }).unwrap();
            assert!(batch.processes.iter().all(|process| process.shares_session != shares_machine));
        }
    }

    #[test]
    fn standard_input_goes_only_to_the_chosen_ranks() {
        let kinds = |stdin, inherit| -> Vec<StdinKind> {
            let batch = Batch::from_plan(&plan(2, BindTo::None, stdin, inherit)).unwrap();
            batch.processes.into_iter().map(|process| process.stdin).collect()
        };
        use StdinKind::{Inherit, Null, Pipe};
        assert_eq!(kinds(StdinTarget::None, false), [Null, Null]);
        assert_eq!(kinds(StdinTarget::All, false), [Pipe, Pipe]);
        assert_eq!(kinds(StdinTarget::One(Rank(11)), false), [Null, Pipe]);
        assert_eq!(kinds(StdinTarget::One(Rank(10)), true), [Inherit, Null]);
    }
}
