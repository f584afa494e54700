//! What the parts of a job's PMIx want done: by one another, or by the job. `Pmix` carries it out.

use super::published::Told;
use crate::job::effect::Effect;
use wireup_wire::modex::{Down, Up};
use wireup_wire::peer::Cause;
use wireup_wire::pmix::{Answer, Status, ToServer};

pub enum Step {
    /// A request of this node's server process is answered, unless it was answered before.
    Answer {
        id: u64,
        answer: Answer,
    },
    /// This node's server process is told something.
    Tell(ToServer),
    /// What this node says to the root.
    Up(Up),
    /// What the root says to all nodes, itself included.
    All(Down),
    /// The root answers a node's request.
    AnswerNode(Told),
    /// This node's server process is of no use any more.
    FailServer(String),
    Job(Effect),
}

/// What a part wants done, in order.
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

    pub fn fail_here(&mut self, cause: Cause) {
        self.job(Effect::FailHere(cause));
    }

    pub fn job(&mut self, effect: Effect) {
        self.push(Step::Job(effect));
    }
}

impl IntoIterator for Steps {
    type Item = Step;
    type IntoIter = std::vec::IntoIter<Step>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
