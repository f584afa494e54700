//! The faults injected into one run, and who may be blamed for its end.

use crate::rng::Rng;
use crate::servers::NoServer;

/// One fault. Times are nanoseconds from the start of the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A rank is killed by `SIGKILL`.
    KillRank { rank: u32, at_ns: u64 },
    /// The link between an agent and its parent breaks.
    CutLink { agent: u32, at_ns: u64 },
    /// The link between an agent and its parent loses everything that is sent from now on; each end notices after a while.
    SilenceLink { agent: u32, at_ns: u64 },
    /// An agent dies, and with it its keepers and ranks. Agent 0 is the launcher's process.
    KillAgent { agent: u32, at_ns: u64 },
    /// The keeper of an agent's ranks dies, and the ranks with it.
    KillKeeper { agent: u32, at_ns: u64 },
    /// An agent never starts.
    NoStart { agent: u32, how: NoStart },
    /// The batch system cancels the running steps: their agents are told, and killed later.
    CancelStep { at_ns: u64 },
    /// The calls of all running steps die; agents that no longer need them continue.
    KillStep { at_ns: u64 },
    /// The terminal accepts no bytes for a while.
    StopTerminal { at_ns: u64, for_ns: u64 },
    /// The launcher's process gets a signal.
    Signal { signal: u8, at_ns: u64 },
    /// A direct link of this agent breaks, or of the next agent that has one.
    CutDirect { agent: u32, at_ns: u64 },
    /// Such a link loses everything that is sent from now on; each end notices after a while.
    SilenceDirect { agent: u32, at_ns: u64 },
    /// No agent can dial this one for a direct link.
    NoDial { agent: u32 },
    /// The PMIx server process of an agent dies.
    KillServer { agent: u32, at_ns: u64 },
    /// The PMIx server process of an agent never becomes ready.
    NoServer { agent: u32, how: NoServer },
    /// The PMIx server process of an agent opens another version of the library than the others.
    OtherLibrary { agent: u32 },
    /// An agent finds no UCX library.
    NoTransport { agent: u32 },
    /// The program of a rank cannot be started.
    NoExec { rank: u32, errno: i32 },
}

/// How an agent fails to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoStart {
    /// The remote shell itself cannot be started.
    NoShell,
    /// The remote shell writes a message and exits.
    ShellFails { code: u8 },
    /// There is no sign of the agent or of its shell.
    Silence,
}

/// Who may be blamed for a failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Culprit {
    Rank(u32),
    Agent(u32),
    /// The user at the terminal, or the time limit.
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
            | Fault::CutDirect { at_ns, .. }
            | Fault::SilenceDirect { at_ns, .. }
            | Fault::KillServer { at_ns, .. }
            | Fault::StopTerminal { at_ns, .. }
            | Fault::CancelStep { at_ns }
            | Fault::KillStep { at_ns }
            | Fault::Signal { at_ns, .. } => Some(at_ns),
            Fault::NoStart { .. }
            | Fault::NoDial { .. }
            | Fault::NoTransport { .. }
            | Fault::NoExec { .. }
            | Fault::NoServer { .. }
            | Fault::OtherLibrary { .. } => None,
        }
    }

    /// A random fault of direct links.
    pub fn draw_direct(rng: &mut Rng, agents: u32, horizon_ns: u64) -> Fault {
        let agent = rng.below(u64::from(agents)) as u32;
        if rng.chance(700) { Fault::CutDirect { agent, at_ns: rng.below(horizon_ns) } } else { Fault::NoDial { agent } }
    }

    /// A random fault in the first `horizon_ns` of a world with `agents` agents and `ranks` ranks.
    pub fn draw(rng: &mut Rng, agents: u32, ranks: u32, horizon_ns: u64) -> Fault {
        let at_ns = rng.below(horizon_ns);
        let rank = rng.below(u64::from(ranks)) as u32;
        let agent = rng.below(u64::from(agents)) as u32;
        // The root has no parent link and no starter: such a fault happens to another agent, or a rank is killed instead.
        let below_root = (agents > 1).then(|| rng.between(1, u64::from(agents) - 1) as u32);
        match (rng.below(12), below_root) {
            (0..=1, Some(agent)) => Fault::CutLink { agent, at_ns },
            (2..=3, _) => Fault::KillAgent { agent, at_ns },
            (4, _) => Fault::KillKeeper { agent, at_ns },
            (5, Some(agent)) => Fault::NoStart { agent, how: draw_no_start(rng) },
            (6, _) => Fault::StopTerminal { at_ns, for_ns: rng.between(1_000_000, 2_000_000_000) },
            (7, _) => Fault::Signal { signal: *rng.pick(&[1, 2, 2, 2, 3, 10, 15, 28]), at_ns },
            (8, _) => Fault::NoExec { rank, errno: *rng.pick(&[2, 13]) },
            _ => Fault::KillRank { rank, at_ns },
        }
    }
}

fn draw_no_start(rng: &mut Rng) -> NoStart {
    match rng.below(3) {
        0 => NoStart::NoShell,
        1 => NoStart::ShellFails { code: *rng.pick(&[1, 127, 255]) },
        _ => NoStart::Silence,
    }
}
