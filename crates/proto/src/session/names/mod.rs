//! The names that the ranks of all jobs of the session have published: at the root.
//!
//! Requests come up a job's tree (`job/names`), from PMI and PMIx alike; answers go back to the same job. A name ends
//! with its publisher's job.

mod room;
mod store;
mod waiting;

use super::Cx;
use crate::time::Instant;
use store::{AddressedAnswer, Store};
use waiting::{LookUp, Place};
use wireup_wire::ids::{JobId, Rank};
use wireup_wire::names::{Ask, Asker, Down, Up};

#[derive(Default)]
pub struct Names {
    store: Store,
}

impl Names {
    /// Handles a message of one of a job's agents.
    pub fn on_message(&mut self, cx: &mut Cx, job: JobId, message: Up) {
        match message {
            Up::Ask { agent, asker, from, ask } => self.serve(cx, Place { job, agent }, asker, from, ask),
            Up::Left { rank } => self.store.on_left(job, rank),
            // Reports are handled by `session/across`.
            Up::Report { .. } => {}
        }
    }

    /// A job has ended everywhere.
    pub fn on_job_over(&mut self, job: JobId) {
        self.store.on_job_over(job);
    }

    /// Refuses look-ups that have waited for too long.
    pub fn on_tick(&mut self, cx: &mut Cx) {
        self.store.take_late(cx.now).into_iter().for_each(|told| answer(cx, told));
    }

    fn serve(&mut self, cx: &mut Cx, at: Place, asker: Asker, from: Rank, ask: Ask) {
        // A job that has ended waits for nothing.
        let Some(spec) = cx.jobs.spec(at.job) else { return };
        match ask {
            Ask::Publish { items, range, keep } => {
                let names: Vec<_> = items.iter().map(|item| item.name.clone()).collect();
                let told = self.store.publish(at, (&spec.nspace, from), items, range, keep);
                answer(cx, (at, asker, told));
                self.store.take_found(&names).into_iter().for_each(|told| answer(cx, told));
            }
            Ask::LookUp { names, range, wait, timeout_s } => {
                let until = cx.now.until(timeout_s);
                let told = self.store.look_up(LookUp { at, asker, names, range, wait, until });
                told.into_iter().for_each(|told| answer(cx, told));
            }
            Ask::Withdraw { names, range, by } => {
                let told = self.store.withdraw(at, from, &names, range, by);
                answer(cx, (at, asker, told));
            }
            // Requests for processes go to the job's launcher; requests about other jobs are handled by
            // `session/across`.
            Ask::Spawn(_) | Ask::Join(_) | Ask::Fetch(_) => {}
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.store.deadline()
    }

    /// Number of names and look-ups, for the simulator's checkers.
    pub fn size(&self) -> usize {
        self.store.size()
    }
}

fn answer(cx: &mut Cx, (Place { job, agent }, asker, answer): AddressedAnswer) {
    cx.answer_job(job, agent, Down { asker, answer });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_session, job_on};
    use wireup_wire::ids::{AgentId, JobId};
    use wireup_wire::names::{Answer, Item, Keep, Range, Refusal, Value};

    fn said(names: &mut Names, cx: &mut Cx, job: u32, ask: Ask) -> Vec<(JobId, AgentId, Answer)> {
        let message = Up::Ask { agent: AgentId(job), asker: Asker::Server(9), from: Rank(0), ask };
        names.on_message(cx, JobId(job), message);
        answers(cx)
    }

    fn answers(cx: &mut Cx) -> Vec<(JobId, AgentId, Answer)> {
        cx.answered.drain(..).map(|(job, agent, down)| (job, agent, down.answer)).collect()
    }

    #[test]
    fn a_publication_answers_a_look_up_of_another_job() {
        let mut cx = in_session(0);
        for job in [1, 2] {
            cx.jobs.announce(job_on(job, 0..2, 1).into());
        }
        let mut names = Names::default();
        let look_up = |timeout_s| Ask::LookUp { names: vec!["a".into()], range: Range::Session, wait: 1, timeout_s };
        assert!(said(&mut names, &mut cx, 2, look_up(None)).is_empty());
        assert!(said(&mut names, &mut cx, 3, look_up(None)).is_empty() && names.size() == 1, "there is no such job");
        let item = Item { name: "a".into(), value: Value::Text("x".into()) };
        let publish = Ask::Publish { items: vec![item], range: Range::Session, keep: Keep::Job };
        let told = said(&mut names, &mut cx, 1, publish.clone());
        assert_eq!(told[0], (JobId(1), AgentId(1), Answer::Done));
        let (job, agent, Answer::Found(found)) = &told[1] else { panic!("{told:?}") };
        assert_eq!(
            (*job, *agent, &found[0].nspace[..]),
            (JobId(2), AgentId(2), &cx.jobs.spec(JobId(1)).unwrap().nspace[..])
        );
        assert_eq!(names.size(), 1);
        names.on_job_over(JobId(1));
        assert!(answers(&mut cx).is_empty() && names.size() == 0);
        assert!(said(&mut names, &mut cx, 2, look_up(Some(1))).is_empty());
        cx.now = names.deadline().expect("the look-up has a limit");
        names.on_tick(&mut cx);
        assert_eq!(answers(&mut cx), [(JobId(2), AgentId(2), Answer::Refused(Refusal::TimedOut))]);
    }
}
