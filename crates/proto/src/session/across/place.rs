//! Nodes of jobs, and the messages that the root sends to them.

use crate::job::JobInput;
use crate::session::{Effect, Effects};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::inter_job::Order;
use wireup_wire::names::{Answer, Asker, Down};

/// A node of a job that waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub job: JobId,
    pub agent: AgentId,
}

pub fn answer(at: Place, asker: Asker, answer: Answer, fx: &mut Effects) {
    let down = Down { asker, answer };
    fx.push(Effect::Job(at.job, JobInput::Named { agent: at.agent, down }));
}

pub fn order(at: Place, order: Order, fx: &mut Effects) {
    answer(at, Asker::Agent, Answer::Order(order), fx);
}
