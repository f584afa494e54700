//! The inputs of the part that starts an agent's children.

use crate::io::{ExitStatus, ShellId};
use crate::session::Begin;
use crate::session::starter::{FailedTask, Step};
use crate::session::starts::Wish;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{MissingAgent, Note, SpawnError};

pub enum Input {
    /// A job starts: start the children that it needs, or send it to them.
    Launch {
        begin: Box<Begin>,
        children: Vec<AgentId>,
    },
    /// Start a child.
    Start(AgentId),
    /// A new start time, because a job was launched.
    NewTime,
    /// The same, and children may ask again, because lost agents are started.
    Anew,
    /// Start these agents of a standing session by a step, if the session uses steps.
    CallStep(Vec<AgentId>),
    /// Call as many remote shells as allowed.
    CallShells,
    /// A child is linked; with the address at this end, for messages.
    Up {
        child: AgentId,
        local: String,
    },
    /// An agent has become a child because its parent is lost.
    Adopted(AgentId),
    LinkDown {
        child: AgentId,
        problem: String,
    },
    /// The root has decided that a child is lost.
    Lost(AgentId),
    /// A child does not answer: do not send later jobs to it.
    Dropped(AgentId),
    ShellExited {
        shell: ShellId,
        status: ExitStatus,
        stderr: String,
    },
    ShellFailed {
        shell: ShellId,
        error: SpawnError,
    },
    StepTold {
        shell: ShellId,
        agent: AgentId,
        problem: Option<String>,
    },
    /// The parent's start time ends earlier than this agent's, which counts from its own start.
    TimeLeft(u64),
    /// No ancestor could start it.
    NotStarted(MissingAgent),
    /// The result of a probe by an ancestor.
    Probed {
        agent: AgentId,
        asker: AgentId,
        problem: Option<String>,
    },
    /// A child requests the start of an agent in its subtree.
    StartFor {
        wish: Wish,
        branch: AgentId,
        problem: String,
    },
    /// An agent in a child's subtree requests a probe of a host below it.
    ProbeFor {
        branch: AgentId,
        agent: AgentId,
        asker: AgentId,
    },
    /// A child's note, to be forwarded towards the root.
    Note {
        branch: AgentId,
        note: Note,
    },
    /// If all jobs are being ended, or there are none, call no more shells.
    StopIfEnding,
    Tick,
    /// Continues an operation of the part after the effects of its previous step.
    Next(Next),
}

/// A further step of a longer operation.
pub enum Next {
    TasksLost(Vec<FailedTask>),
    TaskLost { agent: AgentId, problem: String },
    TaskKnown(AgentId),
    EndStep { step: Step, words: String },
    EndTasks { step: Step, words: String },
    CheckLate,
    Late(AgentId),
    CheckSuspects,
    CheckLastWords,
}
