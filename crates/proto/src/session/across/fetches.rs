//! Requests for what a rank of another job has committed. They wait as long as the rank's node lets them, or until its job is over.

use super::members::{agent_of, job_named};
use super::place::{Place, answer, order};
use super::told::Told;
use crate::session::{Effects, View, described};
use bytes::Bytes;
use std::collections::BTreeMap;
use wireup_wire::across::{Fetch, Fetched, Order, OtherJob};
use wireup_wire::ids::JobId;
use wireup_wire::names::{Answer, Asker};
use wireup_wire::pmix::Status;

#[derive(Default)]
pub struct Fetches {
    open: BTreeMap<u64, Open>,
    next: u64,
}

struct Open {
    by: (Place, Asker),
    /// The node of the rank.
    of: Place,
    job: Option<OtherJob>,
}

impl Fetches {
    pub fn begin(
        &mut self,
        view: &View<'_>,
        told: &mut Told,
        (at, asker): (Place, Asker),
        Fetch { nspace, wanted, is_new }: Fetch,
        fx: &mut Effects,
    ) {
        // A job that is not there any more waits for nothing.
        if view.jobs.spec(at.job).is_none() {
            return;
        }
        let Some(spec) = job_named(view, &nspace).filter(|spec| spec.job != at.job) else {
            return answer(at, asker, Answer::Failed(Status::NotFound), fx);
        };
        let is_news = told.is_news(spec, at);
        let job = (is_new || is_news).then(|| described(spec));
        let Some(wanted) = wanted else {
            return answer(at, asker, Answer::Fetched(Fetched { blob: Bytes::new(), job }), fx);
        };
        let Some(agent) = agent_of(spec, wanted.rank) else {
            return answer(at, asker, Answer::Failed(Status::NotFound), fx);
        };
        let of = Place { job: spec.job, agent };
        self.next += 1;
        self.open.insert(self.next, Open { by: (at, asker), of, job });
        order(of, Order::Give { ticket: self.next, wanted }, fx);
    }

    /// The rank's node answers.
    pub fn on_given(&mut self, from: Place, ticket: u64, status: Status, blob: Bytes, fx: &mut Effects) {
        if self.open.get(&ticket).is_none_or(|open| open.of != from) {
            return;
        }
        let Some(Open { by: (at, asker), job, .. }) = self.open.remove(&ticket) else { return };
        let told = match status {
            Status::Ok => Answer::Fetched(Fetched { blob, job }),
            status => Answer::Failed(status),
        };
        answer(at, asker, told, fx);
    }

    pub fn withdraw(&mut self, by: (Place, Asker)) {
        self.open.retain(|_, open| open.by != by);
    }

    pub fn on_job_over(&mut self, job: JobId, fx: &mut Effects) {
        let ends = |open: &Open| open.of.job == job || open.by.0.job == job;
        for open in self.open.extract_if(.., |_, open| ends(open)).map(|(_, open)| open).collect::<Vec<_>>() {
            if open.by.0.job != job {
                answer(open.by.0, open.by.1, Answer::Failed(Status::RankGone), fx);
            }
        }
    }

    pub fn size(&self) -> usize {
        self.open.len()
    }
}
