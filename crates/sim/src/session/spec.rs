//! The description of a world of sessions.

use crate::spec::Timing;
use wireup_wire::peer::AgentTransport;

#[derive(Clone, Debug)]
pub struct SessionSpec {
    pub seed: u64,
    pub agents: u32,
    pub fanout: u32,
    pub transport: AgentTransport,
    pub node_timeout_ns: u64,
    pub timing: Timing,
    pub jobs: Vec<JobPlan>,
    pub faults: Vec<(u64, Fault)>,
    /// Agents that cannot be started, and how many times in a row.
    pub no_start: Vec<(u32, u32)>,
    /// Agents whose remote shell breaks when it starts them, and how many times in a row: the agent runs, but its starter takes it for
    /// dead.
    pub broken_shells: Vec<(u32, u32)>,
    /// Agents are started over a network: if an agent cannot reach a host, one of its ancestors tries.
    pub remote: bool,
    /// Print what happens.
    pub trace: bool,
}

/// A planned job.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// When its launcher attaches (ns).
    pub at_ns: u64,
    /// The time between the launcher's welcome and the launch.
    pub wait_ns: u64,
    /// The agents of its nodes, in order; lost ones are left out.
    pub agents: Vec<u32>,
    pub ppn: u32,
    /// The computing time of each rank.
    pub work_ns: u64,
    pub lines: u32,
    pub mischief: Option<Mischief>,
    /// Its launcher dies this long after the launch.
    pub launcher_dies_ns: Option<u64>,
    /// Whether its launcher reads the output.
    pub reads: bool,
}

/// What one rank of a job does instead of its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mischief {
    /// Is killed by a signal.
    Crashes {
        rank: u32,
    },
    Fails {
        rank: u32,
        code: u8,
    },
    /// Sends bytes that are not PMI.
    Lies {
        rank: u32,
    },
    /// Writes forever. The job must be ended from outside.
    Floods {
        rank: u32,
    },
    /// Does nothing forever. The job must be ended from outside.
    Hangs {
        rank: u32,
    },
}

impl Mischief {
    /// Whether the job ends only if it is ended from outside.
    pub fn is_endless(self) -> bool {
        matches!(self, Mischief::Floods { .. } | Mischief::Hangs { .. })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    KillAgent {
        agent: u32,
    },
    /// The link to its parent breaks, and nothing else.
    CutLink {
        agent: u32,
    },
    /// The link to its parent falls silent.
    SilenceLink {
        agent: u32,
    },
    /// A direct link breaks.
    CutDirect,
    /// The host of an agent has no power for this long, and neither have the hosts of this many of its ancestors in the original tree.
    PowerLoss {
        agent: u32,
        above: u32,
        off_ns: u64,
    },
    /// For a time, dials from one host to another get no answer, or dials in both directions. Links that are up stay up.
    Wall {
        from: u32,
        to: u32,
        is_both: bool,
        for_ns: u64,
    },
    /// An agent is stopped for a time: it handles nothing, but its links stay up.
    Stop {
        agent: u32,
        for_ns: u64,
    },
    /// All lost nodes are to be started again.
    Revive,
    /// Ends jobs that do not end by themselves.
    EndJobs,
}

impl Default for SessionSpec {
    fn default() -> Self {
        SessionSpec {
            seed: 1,
            agents: 7,
            fanout: 2,
            transport: AgentTransport::Auto,
            node_timeout_ns: 3_000_000_000,
            timing: Timing::default(),
            jobs: Vec::new(),
            faults: Vec::new(),
            no_start: Vec::new(),
            broken_shells: Vec::new(),
            remote: false,
            trace: false,
        }
    }
}

impl JobPlan {
    /// A job without faults.
    pub fn plain(at_ns: u64, agents: impl IntoIterator<Item = u32>, ppn: u32) -> Self {
        JobPlan {
            at_ns,
            wait_ns: 0,
            agents: agents.into_iter().collect(),
            ppn,
            work_ns: 1_000_000,
            lines: 2,
            mischief: None,
            launcher_dies_ns: None,
            reads: true,
        }
    }
}
