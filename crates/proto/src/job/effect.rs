//! The effects that the parts of a job request from the agent or from other parts. The router (`Job`) carries them out.

use super::interface::Act;
use crate::collective::ReplyTo;
use crate::collective::{self, Entry, Finished};
use crate::io::{Output, Stream};
use crate::outbox::control_frame;
use bytes::Bytes;
use std::collections::VecDeque;
use wireup_wire::collective::Collective;
use wireup_wire::frame::Frame;
use wireup_wire::group::Group;
use wireup_wire::ids::{AgentId, Client, JobId, LocalRank, Rank};
use wireup_wire::inter_job::Report;
use wireup_wire::names::{Ask, Asker, Down};
use wireup_wire::peer::{Cause, Control, Departed, Failure, Note};

pub enum Effect {
    /// An act for the agent.
    Act(Act),
    /// A frame towards the launcher, along the job's tree.
    Up(Frame),
    ControlUp(Control),
    /// A control message to all children.
    ControlDown(Control),
    /// An output for the local ranks, which may not have been started yet.
    ForRanks(Output),
    /// The first failure ends the job.
    Fail(Failure),
    /// As `Fail`, for a failure of this node but of no single rank.
    FailHere(Cause),
    FailRank {
        local: LocalRank,
        cause: Cause,
    },
    /// As `Fail`, for a rank that enters no more collectives and for which others wait.
    FailDeparted {
        departed: Departed,
        cause: Cause,
    },
    /// A cause that is not on any node ends the job.
    FailBy(Cause),
    /// End all ranks of the subtree: gracefully, and by force after this time.
    Kill {
        grace_ns: u64,
    },
    /// Send a signal to all local ranks.
    Signal(i32),
    /// A local rank has connected by PMI or PMIx.
    Connected {
        local: LocalRank,
        by_pmix: bool,
    },
    /// A local rank's library waits for the other ranks of its node where the agent does not see it.
    MeetsNode(LocalRank),
    /// A local rank has finalized.
    Finalized {
        local: LocalRank,
        by_pmix: bool,
    },
    /// A local rank has ended.
    RankGone(LocalRank),
    /// A local rank has exited with code 0.
    LeftWell(LocalRank),
    /// The last local rank has ended.
    AllGone,
    StreamEnded {
        local: LocalRank,
        stream: Stream,
    },
    /// A rank's PMI requests can no longer be parsed.
    ClientUnreadable {
        client: Client,
        problem: String,
    },
    /// A rank's get that waited for its lazy fences can be answered.
    Resume(Client),
    /// A rank no longer uses a place in the arena.
    Freed {
        local: LocalRank,
        place: u32,
    },
    /// A local rank enters no more collectives.
    Depart(LocalRank),
    /// A rank of the subtree enters no more collectives.
    Departed(Departed),
    /// A local rank starts its next collective.
    Enter {
        local: LocalRank,
        entry: Entry,
        reply_to: ReplyTo,
    },
    /// A local rank enters the barrier of a group; with a value: another collective of one.
    EnterGroup {
        local: LocalRank,
        group: Group,
        value: Option<Bytes>,
    },
    /// A local rank publishes, looks up or withdraws names; the answer is for `asker`.
    AskName {
        from: Rank,
        asker: Asker,
        ask: Ask,
    },
    /// To the root, from this agent.
    TellRoot(Report),
    /// The answer for an asker on this node.
    Named(Down),
    /// The next action of a collective, of ranks or of PMIx servers.
    Exchange(collective::Action),
    /// A collective of ranks is complete.
    Finished(Box<Finished>),
    /// It is known where all ranks listen, a row for each node.
    Endpoints {
        rows: Vec<Bytes>,
    },
    /// A group's barrier or collective is complete: answer these local ranks. `pairs` are those of the members' nodes,
    /// or the values.
    GroupOver {
        group: Group,
        waiting: Vec<LocalRank>,
        pairs: Bytes,
    },
    /// Check whether a rank waits for one that has departed.
    CheckBroken,
    /// A rank wrote, or the agent wrote for it.
    Stdio {
        local: LocalRank,
        stream: Stream,
        bytes: Bytes,
    },
    /// The PMIx server is ready; with the variables for each rank. Empty: the ranks run without it.
    ServerReady(Vec<Vec<Vec<u8>>>),
    /// Do not start the ranks that wait for their server: the job is being ended.
    DropDeferred,
    /// As `DropDeferred`, because their server failed.
    GiveHeldUp,
    /// The kill did not end everything in time.
    GiveUp,
    /// Report the missing ranks.
    Survey(Option<Collective>),
    /// Read the next message of the PMIx server.
    ReadServer,
    /// The PMIx server has ended, and no ended rank will still finalize with it.
    ServerGone,
    /// For the profile: a collective is complete.
    Traced(wireup_wire::peer::FenceTrace),
}

/// The effects that a part requests, in order.
#[derive(Default)]
pub struct Effects(VecDeque<Effect>);

impl Effects {
    pub fn push(&mut self, effect: Effect) {
        self.0.push_back(effect);
    }

    pub fn output(&mut self, output: Output) {
        self.push(Effect::Act(Act::Output(output)));
    }

    pub fn for_agent(&mut self, agent: AgentId, frame: Frame) {
        self.push(Effect::Act(Act::ToAgent(agent, frame)));
    }

    /// A note for the user, along the session's tree.
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

    /// Inserts `first` before all others: what an effect causes is done before the effects after it.
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
