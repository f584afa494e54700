//! What the parts of a job's PMIx service need of each other, and of the job. `Pmix` does the former as soon as a part
//! has returned.

use crate::io::Stream;
use crate::job::cx::Cx;
use crate::job::facts::Facts;
use bytes::Bytes;
use wireup_wire::frame::{DownFrame, Frame, UpFrame};
use wireup_wire::ids::{AgentId, LocalRank, NodeId, Rank};
use wireup_wire::modex::{Down, Up};
use wireup_wire::names;
use wireup_wire::peer::{self, Opened};
use wireup_wire::pmix::{Answer, Status, ToServer};

/// What the PMIx service of a job needs of the job's other parts.
#[derive(Debug)]
pub enum Asked {
    /// A local rank has connected.
    Connected(LocalRank),
    /// A local rank has called finalize.
    Finalized(LocalRank),
    /// A request about names or other jobs, for the root. `id`: the number of the server's request.
    Name { from: Rank, id: u64, ask: names::Ask },
    /// The server process has ended, and no ended rank will still finalize with it.
    Gone,
    /// A request to the job itself.
    OfJob(AskedOfJob),
}

/// What the job itself must do for the PMIx service.
#[derive(Debug)]
pub enum AskedOfJob {
    /// Pass on output that a rank writes through its library.
    Log { local: LocalRank, stream: Stream, bytes: Bytes },
    /// The ranks can start, with these variables for each local rank; empty: they run without the server.
    StartRanks(Vec<Vec<Vec<u8>>>),
    /// The ranks that wait for the server will not be started.
    DropRanks,
}

pub enum Step {
    /// Answer a request of this node's server process, unless it was answered already.
    Answer { id: u64, answer: Answer },
    /// Send a message to this node's server process.
    Tell(ToServer),
    /// Send a message from this node to the root.
    Up(Up),
    /// Send a message from the root to all nodes, including itself.
    All(Down),
    /// Answer a node's request, at the root.
    AnswerNode(NodeId, u64, Answer),
    /// This node's server process has failed.
    FailServer(String),
    /// This node has opened a PMIx library, or cannot.
    Opened(Opened),
    /// The server process is ready.
    Served,
    /// There is no server process any more.
    Unserved,
    /// Pass a request on to the job's other parts.
    AskJob(Asked),
}

/// The actions that a part requests, in order.
#[derive(Default)]
pub struct Steps(Vec<Step>);

impl Steps {
    pub fn push(&mut self, step: Step) {
        self.0.push(step);
    }

    pub fn answer(&mut self, id: u64, answer: Answer) {
        self.push(Step::Answer { id, answer });
    }

    pub fn refuse(&mut self, id: u64, status: Status) {
        self.answer(id, Answer::Status(status));
    }

    pub fn fail_server(&mut self, problem: impl Into<String>) {
        self.push(Step::FailServer(problem.into()));
    }

    pub fn ask_job(&mut self, asked: AskedOfJob) {
        self.push(Step::AskJob(Asked::OfJob(asked)));
    }
}

impl IntoIterator for Steps {
    type Item = Step;
    type IntoIter = std::vec::IntoIter<Step>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// `arg` of a frame to the children that is for all nodes.
pub const EVERYBODY: u32 = u32::MAX;

pub fn up(facts: &Facts, message: &Up) -> Frame {
    facts.frame(UpFrame::PmixUp, 0, 0, peer::encode(message).into())
}

/// Sends a frame to the children on the path to agent `to`, or to all children.
pub fn down(cx: &mut Cx<'_>, to: u32, payload: &Bytes) {
    let to_agent = Some(AgentId(to)).filter(|_| to != EVERYBODY);
    for child in cx.children_towards(to_agent) {
        cx.for_agent(child, cx.facts.frame(DownFrame::PmixDown, 0, to, payload.clone()));
    }
}
