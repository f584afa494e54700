//! Nodes of jobs, and the messages that the root sends to them.

use crate::session::Cx;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::inter_job::Order;
use wireup_wire::names::{Answer, Asker, Down};

/// A node of a job that waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub job: JobId,
    pub agent: AgentId,
}

pub fn answer(cx: &mut Cx, at: Place, asker: Asker, answer: Answer) {
    let down = Down { asker, answer };
    cx.answer_job(at.job, at.agent, down);
}

pub fn order(cx: &mut Cx, at: Place, order: Order) {
    answer(cx, at, Asker::Agent, Answer::Order(order));
}
