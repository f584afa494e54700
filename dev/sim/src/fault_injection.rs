//! The faults injected into a world, and who may be blamed for their consequences.

pub(crate) mod inject;

pub use crate::servers::NoServer;

/// One fault. Times are nanoseconds from the start of the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A rank is killed by `SIGKILL`. The ranks of several jobs are numbered in the order of their launch.
    KillRank { rank: u32, at_ns: u64 },
    /// The link between an agent and its parent breaks.
    CutLink { agent: u32, at_ns: u64 },
    /// The link between an agent and its parent loses everything that is sent from now on; both ends notice this after
    /// a while.
    SilenceLink { agent: u32, at_ns: u64 },
    /// An agent dies, and with it its keepers and ranks. In a run of one job its host cannot be reached again, and
    /// agent 0 is the launcher's process.
    KillAgent { agent: u32, at_ns: u64 },
    /// The keeper of an agent's ranks dies, and the ranks with it.
    KillKeeper { agent: u32, at_ns: u64 },
    /// The host of an agent, and the hosts of its `above` nearest ancestors in the original tree, have no power for
    /// `off_ns`.
    PowerLoss { agent: u32, above: u32, off_ns: u64, at_ns: u64 },
    /// For a time, dials from one host to another, or in both directions, get no answer. Established links stay up.
    Wall { from: u32, to: u32, is_both: bool, for_ns: u64, at_ns: u64 },
    /// An agent is stopped for a time: it handles nothing, but its links stay up.
    StopAgent { agent: u32, for_ns: u64, at_ns: u64 },
    /// An agent does not start.
    NoStart { agent: u32, how: NoStart },
    /// The first `times` remote shells that start an agent break as soon as it runs: its starter takes the agent for
    /// dead.
    BreakShells { agent: u32, times: u32 },
    /// The batch system cancels the running steps: their agents are notified at once, and killed later.
    CancelStep { at_ns: u64 },
    /// The `srun` processes of all running steps die; agents that no longer wait for the address of their parent
    /// continue.
    KillStep { at_ns: u64 },
    /// The terminal accepts no bytes for a while.
    StopTerminal { at_ns: u64, for_ns: u64 },
    /// The launcher's process gets a signal.
    Signal { signal: u8, at_ns: u64 },
    /// A direct link of this agent breaks, or of the next agent that has one.
    CutDirect { agent: u32, at_ns: u64 },
    /// A direct link of this agent, or of the next agent that has one, loses everything that is sent from now on; each
    /// end notices after a while.
    SilenceDirect { agent: u32, at_ns: u64 },
    /// No other agent can dial this agent for a direct link.
    NoDial { agent: u32 },
    /// The PMIx server process of an agent dies.
    KillServer { agent: u32, at_ns: u64 },
    /// The PMIx server processes of an agent never become ready.
    NoServer { agent: u32, how: NoServer },
    /// The PMIx server processes of an agent open another version of the library than the others.
    OtherLibrary { agent: u32 },
    /// An agent finds no UCX library.
    NoTransport { agent: u32 },
    /// The program of a rank fails to execute. The ranks of several jobs are numbered in the order of their launch.
    NoExec { rank: u32, errno: i32 },
    /// Not a fault: a launcher asks the root to restart all lost nodes.
    Revive { at_ns: u64 },
    /// Not a fault: a launcher kills the jobs that do not end by themselves.
    EndJobs { at_ns: u64 },
}

/// The way in which an agent fails to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoStart {
    /// The remote shell itself cannot be started.
    NoShell,
    /// The remote shell writes a message and exits.
    ShellFails { code: u8 },
    /// The remote shell writes a message and exits in the first `times` calls, and works afterwards.
    FirstCalls { times: u32 },
    /// Neither the agent nor its remote shell gives any sign of life.
    Silence,
}

/// Who may be blamed for a failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Culprit {
    Rank(u32),
    Agent(u32),
    /// The launcher, because the user at the terminal or the time limit has ended the job.
    Launcher,
}

impl Fault {
    /// The time of the fault; `None` if it applies from the start.
    pub fn at_ns(self) -> Option<u64> {
        match self {
            Fault::KillRank { at_ns, .. }
            | Fault::CutLink { at_ns, .. }
            | Fault::SilenceLink { at_ns, .. }
            | Fault::KillAgent { at_ns, .. }
            | Fault::KillKeeper { at_ns, .. }
            | Fault::PowerLoss { at_ns, .. }
            | Fault::Wall { at_ns, .. }
            | Fault::StopAgent { at_ns, .. }
            | Fault::CutDirect { at_ns, .. }
            | Fault::SilenceDirect { at_ns, .. }
            | Fault::KillServer { at_ns, .. }
            | Fault::StopTerminal { at_ns, .. }
            | Fault::CancelStep { at_ns }
            | Fault::KillStep { at_ns }
            | Fault::Signal { at_ns, .. }
            | Fault::Revive { at_ns }
            | Fault::EndJobs { at_ns } => Some(at_ns),
            Fault::NoStart { .. }
            | Fault::BreakShells { .. }
            | Fault::NoDial { .. }
            | Fault::NoTransport { .. }
            | Fault::NoExec { .. }
            | Fault::NoServer { .. }
            | Fault::OtherLibrary { .. } => None,
        }
    }

    /// The agents that the fault affects directly.
    pub fn agents(self) -> Vec<u32> {
        match self {
            Fault::CutLink { agent, .. }
            | Fault::SilenceLink { agent, .. }
            | Fault::KillAgent { agent, .. }
            | Fault::KillKeeper { agent, .. }
            | Fault::PowerLoss { agent, .. }
            | Fault::StopAgent { agent, .. }
            | Fault::NoStart { agent, .. }
            | Fault::BreakShells { agent, .. }
            | Fault::CutDirect { agent, .. }
            | Fault::SilenceDirect { agent, .. }
            | Fault::NoDial { agent }
            | Fault::KillServer { agent, .. }
            | Fault::NoServer { agent, .. }
            | Fault::OtherLibrary { agent }
            | Fault::NoTransport { agent } => vec![agent],
            Fault::Wall { from, to, .. } => vec![from, to],
            Fault::KillRank { .. }
            | Fault::CancelStep { .. }
            | Fault::KillStep { .. }
            | Fault::StopTerminal { .. }
            | Fault::Signal { .. }
            | Fault::NoExec { .. }
            | Fault::Revive { .. }
            | Fault::EndJobs { .. } => Vec::new(),
        }
    }
}
