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
    /// Passes an act to the agent.
    Act(Act),
    /// Sends a frame towards the launcher, along the job's tree.
    Up(Frame),
    ControlUp(Control),
    /// Sends a control message to all children.
    ControlDown(Control),
    /// An output for the local ranks; it waits until the ranks were started.
    ForRanks(Output),
    /// A failure on this node. The first failure ends the job.
    Fail(Failure),
    /// A failure of this node but of no single rank. The first failure ends the job.
    FailHere(Cause),
    FailRank {
        local: LocalRank,
        cause: Cause,
    },
    /// A failure: others wait for a rank that enters no more collectives. The first failure ends the job.
    FailDeparted {
        departed: Departed,
        cause: Cause,
    },
    /// A failure that happened on no node of the job. It ends the job.
    FailBy(Cause),
    /// Ends all ranks of the subtree: with SIGTERM, and with SIGKILL after `grace_ns`.
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
    /// A local rank's library begins to wait for the other ranks of its node by means that the agent does not see.
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
    /// A local rank enters the barrier of a group, or (with a value) another collective of the group.
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
    /// A report from this agent to the root.
    TellRoot(Report),
    /// The root's answer about names, for an asker on this node.
    Named(Down),
    /// The next action of a collective, of ranks or of PMIx servers.
    Exchange(collective::Action),
    /// A collective of ranks is complete.
    Finished(Box<Finished>),
    /// The addresses of all ranks are known: one row for each node.
    Endpoints {
        rows: Vec<Bytes>,
    },
    /// A collective of a group is complete: answer the local ranks in `waiting`. `pairs`: the pairs that the members'
    /// nodes have put, or the members' values.
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
    /// The PMIx server is ready. The variables that it sets for each local rank; empty: the ranks run without the
    /// server.
    ServerReady(Vec<Vec<Vec<u8>>>),
    /// Do not start the ranks that wait for their server: the job is being ended.
    DropDeferred,
    /// Do not start the ranks that wait for their server, because the server failed.
    GiveHeldUp,
    /// The time limit of a kill has passed, and something has not ended.
    GiveUp,
    /// Ask all agents below for their missing ranks, and report those of this node.
    Survey(Option<Collective>),
    /// Read the next message of the PMIx server.
    ReadServer,
    /// The PMIx server has ended, and no ended rank will still finalize with it.
    ServerGone,
    /// A collective is complete: record it in the profile.
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
