//! What the parts of a job want done: by the agent, or by another part. The router (`Job`) carries it out.

use super::interface::Act;
use crate::collective::ticket::Ticket;
use crate::collective::{self, Entry, Finished};
use crate::io::{Output, Stream};
use crate::outbox::control_frame;
use bytes::Bytes;
use std::collections::VecDeque;
use wireup_wire::collective::Collective;
use wireup_wire::frame::Frame;
use wireup_wire::group::Group;
use wireup_wire::ids::{AgentId, JobId, LocalRank};
use wireup_wire::peer::{Cause, Control, Departed, Failure, Note};

pub enum Effect {
    /// For the agent.
    Act(Act),
    /// A frame towards the launcher, along the job's tree.
    Up(Frame),
    ControlUp(Control),
    /// A control message to all children.
    ControlDown(Control),
    /// Something for the ranks here, which may not be there yet.
    ForRanks(Output),
    /// The first failure ends the job.
    Fail(Failure),
    /// The same, of this node and of no single rank.
    FailHere(Cause),
    FailRank {
        local: LocalRank,
        cause: Cause,
    },
    /// The same, of a rank that enters no more collectives and that others wait for.
    FailDeparted {
        departed: Departed,
        cause: Cause,
    },
    /// Something that is no node's fault ends the job.
    FailBy(Cause),
    /// All ranks of the subtree are to end: gently, and by force after that time.
    Kill {
        grace_ns: u64,
    },
    /// A signal to all ranks here.
    Signal(i32),
    /// A rank here has said that it takes part.
    Connected {
        local: LocalRank,
        by_pmix: bool,
    },
    /// A rank here has said goodbye.
    Finalized {
        local: LocalRank,
        by_pmix: bool,
    },
    /// A rank here is gone.
    RankGone(LocalRank),
    /// It has left with exit code 0.
    LeftWell(LocalRank),
    /// The last rank here is gone.
    AllGone,
    StreamEnded {
        local: LocalRank,
        stream: Stream,
    },
    /// What a rank says by PMI cannot be read any more.
    ClientUnreadable {
        local: LocalRank,
        problem: String,
    },
    /// A rank's get that waited for its lazy fences can be answered.
    Resume(LocalRank),
    /// A rank has done with a place in the arena.
    Freed {
        local: LocalRank,
        place: u32,
    },
    /// A rank here enters no more collectives.
    Depart(LocalRank),
    /// A rank of the subtree does not.
    Departed(Departed),
    /// A rank here starts its next collective.
    Enter {
        local: LocalRank,
        entry: Entry,
        ticket: Ticket,
    },
    EnterGroup {
        local: LocalRank,
        group: Group,
    },
    /// What a collective, of ranks or of PMIx servers, needs next.
    Exchange(collective::Do),
    /// A collective of ranks is over.
    Finished(Box<Finished>),
    /// The barrier of a group is over: these wait here. What the members' nodes have put comes first.
    GroupOver {
        group: Group,
        waiting: Vec<LocalRank>,
        pairs: Bytes,
    },
    /// Somebody may wait for a rank that has departed.
    CheckBroken,
    /// A rank wrote, or something was written for it.
    Stdio {
        local: LocalRank,
        stream: Stream,
        bytes: Bytes,
    },
    /// The PMIx server serves, and what it wants in each rank's environment; none: ranks do without it.
    ServerReady(Vec<Vec<Vec<u8>>>),
    /// Ranks that wait for their server are not started any more: the job is being ended.
    DropHeld,
    /// The same: their server is of no use.
    GiveHeldUp,
    /// Nothing is left to measure: the ranks start.
    BenchOver,
    /// The kill did not reach everybody in time.
    GiveUp,
    /// Who has not arrived is to be told.
    Survey(Option<Collective>),
    /// The next message of the PMIx server is read.
    ReadServer,
    /// The PMIx server is gone, and no rank that is gone too will still say goodbye to it.
    ServerGone,
    /// For the profile: a collective is over.
    Traced(wireup_wire::peer::FenceTrace),
}

/// What a part wants done, in order.
#[derive(Default)]
pub struct Effects(VecDeque<Effect>);

impl Effects {
    pub fn push(&mut self, effect: Effect) {
        self.0.push_back(effect);
    }

    pub fn output(&mut self, output: Output) {
        self.push(Effect::Act(Act::Do(output)));
    }

    pub fn for_agent(&mut self, agent: AgentId, frame: Frame) {
        self.push(Effect::Act(Act::ToAgent(agent, frame)));
    }

    /// A note for a person, along the session's tree.
    pub fn note(&mut self, job: JobId, note: Note) {
        self.push(Effect::Act(Act::NoteUp(control_frame(job, &Control::Note(note)))));
    }

    pub fn extend(&mut self, effects: impl IntoIterator<Item = Effect>) {
        self.0.extend(effects);
    }

    pub fn fail_here(&mut self, cause: Cause) {
        self.push(Effect::FailHere(cause));
    }

    pub fn pop(&mut self) -> Option<Effect> {
        self.0.pop_front()
    }

    /// `first` comes before all that is there: what an effect brings about is done before the effects behind it.
    pub fn put_first(&mut self, first: &mut Effects) {
        for effect in first.0.drain(..).rev() {
            self.0.push_front(effect);
        }
    }

    #[cfg(test)]
    pub fn into_vec(self) -> Vec<Effect> {
        self.0.into()
    }
}
