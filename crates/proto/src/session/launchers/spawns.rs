//! Tracks jobs that ranks have asked for: from the request until the rank is answered.
//!
//! ```text
//!            Spawn ↓ the launcher of the rank's job            Spawned ↑
//!   asked ───────────────────────► Offered ─────────────────────────────► answered
//!                                     │ Launch ↑                             ▲ Spawned ↑: all run, or why not
//!                                     └─────────► Launched ──────────────────┘
//! ```
//!
//! The root only numbers the jobs. The launcher knows the environment, the nodes and what else runs on them: it makes a
//! job of the request and launches it as any other. If the launcher exits, its jobs end, and nobody waits for an
//! answer.

use crate::io::LinkId;
use crate::session::{Cx, JobNode};
use std::collections::BTreeMap;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::names::{Answer, Asker, NewJob};

#[derive(Default)]
pub struct Spawns {
    /// Requests by the number that the new job has or would have.
    requests: BTreeMap<JobId, Request>,
}

/// A rank that waits for an answer.
pub struct Request {
    state: State,
    /// The node of the rank that asks.
    at: JobNode,
    asker: Asker,
    /// The launcher's link; `None`: the session is of one run.
    link: Option<LinkId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Offered,
    Launched,
}

impl Spawns {
    /// A launcher is offered this number for the new job.
    pub fn offer(&mut self, job: JobId, request: Request) {
        self.requests.insert(job, request);
    }

    /// The numbers that new jobs have or may get.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.requests.keys().copied()
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Number of ranks' requests that this launcher has not answered yet.
    pub fn waiting_for(&self, link: Option<LinkId>) -> usize {
        self.requests.values().filter(|request| request.link == link).count()
    }

    /// Whether this launcher may launch this job because a rank has asked for it: once.
    pub fn take_launch(&mut self, job: JobId, link: LinkId) -> bool {
        let offered = |request: &&mut Request| request.state == State::Offered && request.link == Some(link);
        let request = self.requests.get_mut(&job).filter(offered);
        request.map(|request| request.state = State::Launched).is_some()
    }

    /// Handles a launcher's answer, which goes to the rank. An answer that nobody waits for is ignored.
    pub fn on_result(&mut self, cx: &mut Cx, job: JobId, link: Option<LinkId>, result: Result<NewJob, String>) {
        if self.requests.get(&job).is_some_and(|request| request.link == link)
            && let Some(request) = self.requests.remove(&job)
        {
            request.answer(cx, result);
        }
    }

    pub fn forget_link(&mut self, link: LinkId) {
        self.requests.retain(|_, request| request.link != Some(link));
    }
}

impl Request {
    pub fn new(job: JobId, (agent, asker): (AgentId, Asker), link: Option<LinkId>) -> Request {
        Request { state: State::Offered, at: JobNode { job, agent }, asker, link }
    }

    pub fn answer(self, cx: &mut Cx, result: Result<NewJob, String>) {
        let answer = result.map_or_else(|problem| Answer::NotSpawned { problem }, Answer::Spawned);
        cx.answer_job(self.at, self.asker, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_session;
    use wireup_wire::ids::{Client, LocalRank};

    fn asked(link: Option<LinkId>) -> Spawns {
        let asker = Asker::Client(Client { local: LocalRank(1), number: 0 });
        let mut spawns = Spawns::default();
        spawns.offer(JobId(5), Request::new(JobId(1), (AgentId(2), asker), link));
        spawns
    }

    fn told(spawns: &mut Spawns, link: Option<LinkId>) -> usize {
        let mut cx = in_session(0);
        spawns.on_result(&mut cx, JobId(5), link, Err("no".into()));
        let at = JobNode { job: JobId(1), agent: AgentId(2) };
        let is_answer = |answered: &&(JobNode, Answer)| **answered == (at, Answer::NotSpawned { problem: "no".into() });
        cx.answered.iter().filter(is_answer).count()
    }

    #[test]
    fn a_job_is_launched_once_and_by_the_launcher_that_was_asked() {
        let mut spawns = asked(Some(LinkId(7)));
        assert!(!spawns.take_launch(JobId(5), LinkId(8)));
        assert!(!spawns.take_launch(JobId(6), LinkId(7)));
        assert!(spawns.take_launch(JobId(5), LinkId(7)));
        assert!(!spawns.take_launch(JobId(5), LinkId(7)));
        assert_eq!(spawns.jobs().collect::<Vec<_>>(), [JobId(5)], "it may send frames");
    }

    #[test]
    fn the_rank_is_answered_once_by_its_own_launcher() {
        let mut spawns = asked(Some(LinkId(7)));
        assert_eq!([told(&mut spawns, Some(LinkId(8))), told(&mut spawns, None)], [0, 0]);
        assert_eq!([told(&mut spawns, Some(LinkId(7))), told(&mut spawns, Some(LinkId(7)))], [1, 0]);
        assert_eq!(spawns.len(), 0);
    }

    #[test]
    fn nobody_waits_for_a_launcher_that_has_gone() {
        let mut spawns = asked(Some(LinkId(7)));
        spawns.forget_link(LinkId(8));
        assert_eq!((spawns.waiting_for(Some(LinkId(7))), spawns.waiting_for(Some(LinkId(8)))), (1, 0));
        spawns.forget_link(LinkId(7));
        assert_eq!(spawns.len(), 0);
    }
}
