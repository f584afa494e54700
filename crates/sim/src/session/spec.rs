//! What a session's world is made of.

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
    /// How often in a row an agent cannot be started.
    pub no_start: Vec<(u32, u32)>,
    /// How often in a row the remote shell of an agent breaks at its birth: the agent lives, and its starter thinks that it does not.
    pub broken_shells: Vec<(u32, u32)>,
    /// Agents are called over a network: who cannot reach one lets somebody above try.
    pub remote: bool,
    /// Say what happens.
    pub trace: bool,
}

/// A job that somebody will want.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// When its launcher comes (ns).
    pub at_ns: u64,
    /// It thinks so long between its welcome and the launch.
    pub wait_ns: u64,
    /// Agents that it wants, in order of its nodes; lost ones are left out.
    pub agents: Vec<u32>,
    pub ppn: u32,
    /// Each rank computes so long.
    pub work_ns: u64,
    pub lines: u32,
    pub mischief: Option<Mischief>,
    /// Its launcher dies so long after its start.
    pub launcher_dies_ns: Option<u64>,
    /// Its launcher takes no output.
    pub reads: bool,
}

/// What one rank of a job does instead of its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mischief {
    /// Killed by a signal.
    Crashes {
        rank: u32,
    },
    Fails {
        rank: u32,
        code: u8,
    },
    /// Says what is no PMI.
    Lies {
        rank: u32,
    },
    /// Writes for ever. Somebody ends the job.
    Floods {
        rank: u32,
    },
    /// Does nothing for ever. Somebody ends the job.
    Hangs {
        rank: u32,
    },
}

impl Mischief {
    /// Whether the job ends only if somebody ends it.
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
    /// A link beside the tree breaks.
    CutDirect,
    /// The host of an agent has no power for so long, and so have so many above it as the tree was drawn.
    PowerLoss {
        agent: u32,
        above: u32,
        off_ns: u64,
    },
    /// For a time one host does not hear the dials of another one, or neither hears those of the other. Links that are up stay.
    Wall {
        from: u32,
        to: u32,
        is_both: bool,
        for_ns: u64,
    },
    /// An agent is stopped for a time: it handles nothing, and its links look well.
    Stop {
        agent: u32,
        for_ns: u64,
    },
    /// Somebody wants all lost nodes back.
    Revive,
    /// Somebody ends what still runs after it should.
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
    /// A job that does its work and is content.
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
