//! What the part that gets an agent its children is told.

use crate::io::{ExitStatus, ShellId};
use crate::session::Begin;
use crate::session::starter::{FailedTask, Step};
use crate::session::starts::Wish;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{MissingAgent, Note, SpawnError};

pub enum Input {
    /// A job begins: the children that it needs are started, or hear of it.
    Launch {
        begin: Box<Begin>,
        children: Vec<AgentId>,
    },
    /// A child is wanted.
    Start(AgentId),
    /// A new start time: a job was launched.
    NewTime,
    /// The same, and children may ask again: lost agents are started.
    Anew,
    /// Agents of a standing session are to come by a step, if by that.
    CallStep(Vec<AgentId>),
    /// Calls what there is room for.
    CallShells,
    /// A child is linked; the address at this end, for a person.
    Up {
        child: AgentId,
        local: String,
    },
    /// An agent has become a child, since its parent is lost.
    Adopted(AgentId),
    LinkDown {
        child: AgentId,
        problem: String,
    },
    /// A child is lost, says the root.
    Lost(AgentId),
    /// A child does not answer: a later job is not sent to it.
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
    /// The parent's start time ends earlier than ours, which began with our birth.
    TimeLeft(u64),
    /// Nobody above could start it.
    NotStarted(MissingAgent),
    /// A host was asked, above.
    Probed {
        agent: AgentId,
        asker: AgentId,
        problem: Option<String>,
    },
    /// A child asks for an agent of its subtree.
    StartFor {
        wish: Wish,
        branch: AgentId,
        problem: String,
    },
    /// An agent of a child's subtree could not ask a host that should be below it.
    ProbeFor {
        branch: AgentId,
        agent: AgentId,
        asker: AgentId,
    },
    /// A child's note, on its way up.
    Note {
        branch: AgentId,
        note: Note,
    },
    /// If all jobs are being ended, or there are none, nobody else is called.
    StopIfEnding,
    Tick,
    /// How the part goes on when what it caused before is done.
    Next(Next),
}

/// A further step of something longer.
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
