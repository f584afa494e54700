//! Requests for data that a rank of another job has committed. A request waits as long as the rank's node lets it, or
//! until the rank's job is over.
//!
//! Data that several nodes request is requested only once from the rank's node. Its answer is awaited even when no node
//! waits for it any more: then the next request for the same data needs no other.

use super::nodes::{Told, agent_of, described, job_named, order};
use crate::session::{Cx, JobNode};
use bytes::Bytes;
use std::collections::BTreeMap;
use wireup_wire::ids::JobId;
use wireup_wire::inter_job::{Fetch, Fetched, Order};
use wireup_wire::limits::ACROSS_FETCHES_MAX;
use wireup_wire::names::{Answer, Asker};
use wireup_wire::pmix::{Status, Wanted};

#[derive(Default)]
pub struct Fetches {
    open: BTreeMap<u64, Open>,
    /// Numbers of the open requests, by the node of the rank and the data that is wanted.
    tickets: BTreeMap<(JobNode, Wanted), u64>,
    next: u64,
}

struct Open {
    of: (JobNode, Wanted),
    callers: Vec<Caller>,
}

struct Caller {
    by: (JobNode, Asker),
    /// Whether the caller's node does not know the job yet.
    is_new: bool,
}

impl Fetches {
    pub fn start_fetch(
        &mut self,
        cx: &mut Cx,
        told: &mut Told,
        (at, asker): (JobNode, Asker),
        Fetch { nspace, wanted, is_new }: Fetch,
    ) {
        // A job that has ended waits for nothing.
        if cx.jobs.spec(at.job).is_none() {
            return;
        }
        let Some(spec) = job_named(cx, &nspace).filter(|spec| spec.job != at.job) else {
            return cx.answer_job(at, asker, Answer::Failed(Status::NotFound));
        };
        let caller = Caller { by: (at, asker), is_new };
        let Some(wanted) = wanted else { return caller.tell(cx, told, spec.job, Bytes::new()) };
        let Some(agent) = agent_of(spec, wanted.rank) else {
            return cx.answer_job(at, asker, Answer::Failed(Status::NotFound));
        };
        let of = (JobNode { job: spec.job, agent }, wanted);
        if let Some(open) = self.tickets.get(&of).and_then(|ticket| self.open.get_mut(ticket)) {
            return open.callers.push(caller);
        }
        if self.open.len() >= ACROSS_FETCHES_MAX {
            return cx.answer_job(at, asker, Answer::Failed(Status::Full));
        }
        self.next += 1;
        order(cx, of.0, Order::Give { ticket: self.next, wanted: of.1.clone() });
        self.tickets.insert(of.clone(), self.next);
        self.open.insert(self.next, Open { of, callers: vec![caller] });
    }

    /// The rank's node answers.
    pub fn on_given(
        &mut self,
        cx: &mut Cx,
        told: &mut Told,
        from: JobNode,
        (ticket, status, blob): (u64, Status, Bytes),
    ) {
        if self.open.get(&ticket).is_none_or(|open| open.of.0 != from) {
            return;
        }
        let Some(Open { of, callers }) = self.open.remove(&ticket) else { return };
        self.tickets.remove(&of);
        for caller in callers {
            match status {
                Status::Ok => caller.tell(cx, told, from.job, blob.clone()),
                status => caller.refuse(cx, status),
            }
        }
    }

    /// Withdraws the request of a node that has stopped waiting for the answer.
    pub fn withdraw(&mut self, by: (JobNode, Asker)) {
        self.open.values_mut().for_each(|open| open.callers.retain(|caller| caller.by != by));
    }

    pub fn on_job_over(&mut self, cx: &mut Cx, job: JobId) {
        self.open.values_mut().for_each(|open| open.callers.retain(|caller| caller.by.0.job != job));
        self.tickets.retain(|(of, _), _| of.job != job);
        let is_of = |(_, open): &(u64, Open)| open.of.0.job == job;
        let (over, open): (BTreeMap<_, _>, _) = std::mem::take(&mut self.open).into_iter().partition(is_of);
        self.open = open;
        over.into_values().flat_map(|open| open.callers).for_each(|caller| caller.refuse(cx, Status::RankGone));
    }

    pub fn size(&self) -> usize {
        self.open.len() + self.tickets.len()
    }
}

impl Caller {
    fn tell(self, cx: &mut Cx, told: &mut Told, of: JobId, blob: Bytes) {
        let spec = cx.jobs.spec(of).filter(|_| self.is_new);
        let job = spec.map(|spec| {
            told.note(spec, self.by.0);
            described(spec)
        });
        cx.answer_job(self.by.0, self.by.1, Answer::Fetched(Fetched { blob, job }));
    }

    fn refuse(self, cx: &mut Cx, status: Status) {
        cx.answer_job(self.by.0, self.by.1, Answer::Failed(status));
    }
}
