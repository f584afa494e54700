//! The inputs of each part, from the agent or from other parts.
//!
//! They are separate from the parts, so that an effect can name an input without one part depending on another.

/// Inputs of the part for PMIx collectives between several jobs, at the root.
pub mod across {
    use wireup_wire::ids::{AgentId, JobId};
    use wireup_wire::inter_job::{Fetch, Joint, Report};
    use wireup_wire::names::Asker;

    pub enum Input {
        /// The ranks of a node enter a collective of several jobs.
        Join { job: JobId, agent: AgentId, asker: Asker, joint: Joint },
        /// A rank asks for data of another job.
        Fetch { job: JobId, agent: AgentId, asker: Asker, fetch: Fetch },
        /// An agent answers an order, or follows one.
        Report { job: JobId, agent: AgentId, report: Report },
        /// A job has ended everywhere.
        JobOver(JobId),
    }
}

/// The inputs of the part that agrees on a transport which all agents must have.
pub mod agreement {
    use wireup_wire::ids::AgentId;
    use wireup_wire::peer::MissingAgent;
    use wireup_wire::route::Point;

    pub enum Input {
        /// Ask these children and this agent whether they have the transport, if one was requested and they were not
        /// asked before.
        Ask(Vec<AgentId>),
        /// Ask all current children and this agent whether they have the transport, if one was requested and they were
        /// not asked before.
        AskAll,
        /// This agent has opened the transport, or failed to.
        Opened(Result<Point, String>),
        /// A child's whole subtree has checked.
        Looked { branch: AgentId, missing: Option<MissingAgent> },
        /// Agents are lost: do not wait for them.
        Lost,
        /// Tell a child that links late about the decision.
        Tell(AgentId),
        /// The root has decided.
        Decided(bool),
    }
}

/// The inputs of the part that keeps frames for jobs that are not here.
pub mod early {
    use crate::session::Begin;
    use wireup_wire::frame::Frame;
    use wireup_wire::ids::{AgentId, JobId};

    pub enum Input {
        /// A frame from another agent, anywhere in the tree.
        Frame { from: AgentId, frame: Frame },
        /// Only these jobs, of those up to `newest`, may still send frames.
        Live { newest: JobId, live: Vec<JobId> },
        /// A job of a standing session arrives from the parent; at the root, with the jobs that are live now.
        Start { begin: Box<Begin>, live: Option<(JobId, Vec<JobId>)> },
        /// A job has started here.
        Begun(JobId),
        /// A job that is not here has ended on all nodes.
        Over(JobId),
        /// At the root: a job has ended on all nodes.
        OverEverywhere(JobId),
        /// A frame of a job was handled: if the job has ended, keep nothing of it.
        ForgetIfOver(JobId),
    }
}

/// The inputs of the part that monitors neighbours.
pub mod heartbeat {
    use wireup_wire::ids::AgentId;

    /// A neighbour in the tree.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Side {
        Above,
        Below(AgentId),
    }

    pub enum Input {
        /// A neighbour asks whether this agent is alive.
        Asked(Side),
        /// A neighbour answers that it is alive.
        Answered(Side),
        JobBegun,
        /// At the root: whether nodes are starting.
        Starting(bool),
        Tick,
    }
}

/// The inputs of the part that serves the launchers of a standing session, and passes requests for processes to
/// launchers.
pub mod launchers {
    use crate::io::LinkId;
    use std::sync::Arc;
    use wireup_wire::frame::Frame;
    use wireup_wire::ids::{AgentId, JobId, Rank};
    use wireup_wire::job::JobSpec;
    use wireup_wire::names::{Asker, NewJob};
    use wireup_wire::pmi::SpawnRequest;
    use wireup_wire::session::RankPortsReport;
    use wireup_wire::talk::Control;

    pub enum Input {
        Up(LinkId),
        Down(LinkId),
        /// An agent has reserved ports for ranks, or renewed some.
        Ports(RankPortsReport),
        /// A frame that is not a control message.
        Frame {
            link: LinkId,
            frame: Frame,
        },
        Said {
            link: LinkId,
            job: JobId,
            message: Box<Control>,
        },
        /// All frames of one read have been handled.
        Answer(LinkId),
        /// A link is about to be closed because of this problem.
        Refuse {
            link: LinkId,
            problem: String,
        },
        /// The agents of the hosts that this launcher's job adds have numbers.
        Numbered {
            link: LinkId,
            spec: Arc<JobSpec>,
        },
        /// Agents of hosts that were added for jobs that neither wait nor run are to leave.
        ReleaseAdded,
        /// The state of some nodes has changed.
        NodesChanged,
        /// Agents below this one in the original tree may not have received jobs that were started before.
        StartAgain(AgentId),
        /// A job has ended everywhere. `traces`: agents that may still store something of it.
        JobOver {
            job: JobId,
            traces: Option<Vec<AgentId>>,
        },
        /// A rank of a job asks for processes. `agent`: the agent of the rank's node, where `asker` waits.
        Spawn {
            job: JobId,
            agent: AgentId,
            asker: Asker,
            from: Rank,
            request: SpawnRequest,
        },
        /// The launcher of a single run answers a rank that has asked for a job.
        Spawned {
            job: JobId,
            result: Result<NewJob, String>,
        },
        /// End the session: first its jobs, then its agents.
        EndSession {
            reason: String,
        },
        EndIfIdle,
        Tick,
    }
}

/// The inputs of the membership part.
pub mod membership {
    use crate::io::LinkId;
    use std::sync::Arc;
    use wireup_wire::ids::{AgentId, JobId};
    use wireup_wire::job::JobSpec;
    use wireup_wire::peer::{Gone, MissingAgent, Rejoin};
    use wireup_wire::session::Log;

    pub enum Input {
        /// The session starts on this agent: start the children.
        Begin,
        /// A child has linked.
        Linked(AgentId),
        /// A child reports that these agents of its subtree are linked, with their incarnations.
        Here {
            branch: AgentId,
            agents: Vec<(AgentId, u32)>,
        },
        /// This agent has observed that a child, or another agent that it is responsible for, is gone or missing.
        ReportLost(MissingAgent),
        /// A child forwards that these agents are gone.
        Gone {
            branch: AgentId,
            gone: Vec<Gone>,
        },
        /// The root's decisions.
        Log(Log),
        /// At the root: a launcher requests all nodes.
        Revive,
        /// At the root: give numbers to the agents of the hosts that this job adds. `link`: the link of the job's
        /// launcher, if the session has many launchers.
        Number {
            spec: Arc<JobSpec>,
            link: Option<LinkId>,
        },
        /// At the root: start these agents, which this job waits for.
        StartAdded(JobId),
        /// At the root: these agents leave, whose hosts were added for jobs that are over.
        Release(Vec<AgentId>),
        /// The parent is linked: the original parent, or the root in its place.
        ParentUp,
        /// The link to the parent broke, or the one to the root that was to adopt this agent.
        ParentLost,
        /// The root is linked; it has not yet confirmed that it adopts this agent.
        RootReached(LinkId),
        /// The root cannot be reached at any of its addresses.
        RejoinFailed,
        /// An agent that has lost its parent has dialled this one.
        Rejoin {
            link: LinkId,
            agent: AgentId,
            rejoin: Rejoin,
        },
        Tick,
    }
}

/// The inputs of the part that has the published names.
pub mod names {
    use wireup_wire::ids::JobId;
    use wireup_wire::names::Up;

    pub enum Input {
        /// A message of one of a job's agents.
        Said {
            job: JobId,
            message: Up,
        },
        /// A job has ended everywhere.
        JobOver(JobId),
        Tick,
    }
}

/// The inputs of the part that reserves ports for ranks.
pub mod rank_ports {
    use bytes::Bytes;
    use wireup_wire::ids::{AgentId, JobId};
    use wireup_wire::session::RankPortsReport;

    pub enum Input {
        /// The session starts on this agent.
        Begin,
        /// The driver has reserved the ports, or could not.
        Reserved(Result<Bytes, String>),
        /// The parent is linked, for the first time or again.
        ParentUp,
        /// A child tells about its ports, or about those of an agent below it.
        Told { branch: AgentId, report: RankPortsReport },
        /// A job has ended here.
        JobGone(JobId),
        /// A job has ended everywhere.
        Over(JobId),
        /// The driver has renewed the ports of a job.
        Renewed(JobId),
    }
}

/// The inputs of the part that starts an agent's children.
pub mod starter {
    use crate::io::{ExitStatus, ShellId};
    use crate::session::Begin;
    use crate::session::starter::{FailedTask, Step};
    use crate::session::starts::Wish;
    use wireup_wire::ids::{AgentId, JobId};
    use wireup_wire::peer::{MissingAgent, Note, Problem, SpawnError};

    pub enum Input {
        /// A job starts: start the children that it needs, or send it to them.
        Launch {
            begin: Box<Begin>,
            children: Vec<AgentId>,
        },
        /// This agent, whose host is not one of the session, may be started.
        Added {
            agent: AgentId,
            host: String,
        },
        /// Start a child.
        Start(AgentId),
        /// A job was launched: the time for starting agents begins again.
        NewTime,
        /// Lost agents are started again: the time for starting agents begins again, and children may repeat requests
        /// to ancestors.
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
            problem: Problem,
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
            problem: Option<Problem>,
        },
        /// The parent's start time ends earlier than this agent's, which counts from its own start.
        TimeLeft(u64),
        /// No ancestor could start it.
        NotStarted(MissingAgent),
        /// An ancestor reports the result of a probe.
        Probed {
            agent: AgentId,
            asker: AgentId,
            problem: Option<Problem>,
        },
        /// A child requests the start of an agent in its subtree.
        StartFor {
            wish: Wish,
            branch: AgentId,
            problem: Problem,
        },
        /// An agent in a child's subtree requests a probe of a host below it.
        ProbeFor {
            branch: AgentId,
            agent: AgentId,
            asker: AgentId,
        },
        /// A child's note, to be forwarded towards the root. `job`: 0 if it is about the session.
        Note {
            branch: AgentId,
            job: JobId,
            note: Note,
        },
        /// Call no more shells if all jobs are being ended, or there are none.
        StopIfEnding,
        Tick,
        /// Continues an operation of the part after the effects of its previous step.
        Next(Next),
    }

    /// The next step of an operation that is carried out in several steps.
    pub enum Next {
        TasksLost(Vec<FailedTask>),
        TaskLost { agent: AgentId, problem: Problem },
        TaskKnown(AgentId),
        EndStep { step: Step, problem: Problem },
        EndTasks { step: Step, problem: Problem },
        CheckLate,
        Late(AgentId),
        CheckSuspects,
        CheckLastWords,
    }
}
