//! The names that the ranks of all jobs of the session have published: at the root.
//!
//! Requests come up a job's tree (`job/names`), from PMI and PMIx alike; answers go back to the same job. A name ends
//! with its publisher's job.

mod room;
mod store;
mod waiting;

use super::inputs::names::Input;
use super::{Effect, Effects, View};
use crate::job::JobInput;
use crate::time::Instant;
use store::{AddressedAnswer, Store};
use waiting::{LookUp, Place};
use wireup_wire::ids::Rank;
use wireup_wire::names::{Ask, Asker, Down, Up};

#[derive(Default)]
pub struct Names {
    store: Store,
}

impl Names {
    pub fn handle(&mut self, view: &View<'_>, input: Input, fx: &mut Effects) {
        match input {
            Input::Said { job, message: Up::Ask { agent, asker, from, ask } } => {
                self.serve(view, Place { job, agent }, asker, from, ask, fx);
            }
            Input::Said { job, message: Up::Left { rank } } => self.store.on_left(job, rank),
            // Reports are for the part in which jobs meet.
            Input::Said { message: Up::Report { .. }, .. } => {}
            Input::JobOver(job) => self.store.on_job_over(job),
            Input::Tick => self.store.take_late(view.now).into_iter().for_each(|told| answer(told, fx)),
        }
    }

    fn serve(&mut self, view: &View<'_>, at: Place, asker: Asker, from: Rank, ask: Ask, fx: &mut Effects) {
        // A job that has ended waits for nothing.
        let Some(spec) = view.jobs.spec(at.job) else { return };
        match ask {
            Ask::Publish { items, range, keep } => {
                let names: Vec<_> = items.iter().map(|item| item.name.clone()).collect();
                let told = self.store.publish(at, (&spec.nspace, from), items, range, keep);
                answer((at, asker, told), fx);
                self.store.take_found(&names).into_iter().for_each(|told| answer(told, fx));
            }
            Ask::LookUp { names, range, wait, timeout_s } => {
                let until = view.now.until(timeout_s);
                let told = self.store.look_up(LookUp { at, asker, names, range, wait, until });
                told.into_iter().for_each(|told| answer(told, fx));
            }
            Ask::Withdraw { names, range, by } => {
                let told = self.store.withdraw(at, from, &names, range, by);
                answer((at, asker, told), fx);
            }
            // Requests for processes go to the job's launcher, requests about other jobs to the part in which jobs
            // meet.
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

fn answer((Place { job, agent }, asker, answer): AddressedAnswer, fx: &mut Effects) {
    fx.push(Effect::Job(job, JobInput::Named { agent, down: Down { asker, answer } }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scene, job_on};
    use wireup_wire::ids::{AgentId, JobId};
    use wireup_wire::names::{Answer, Item, Keep, Range, Refusal, Value};

    fn said(names: &mut Names, scene: &Scene, job: u32, ask: Ask) -> Vec<(JobId, AgentId, Answer)> {
        let message = Up::Ask { agent: AgentId(job), asker: Asker::Server(9), from: Rank(0), ask };
        input(names, scene, Input::Said { job: JobId(job), message })
    }

    fn input(names: &mut Names, scene: &Scene, input: Input) -> Vec<(JobId, AgentId, Answer)> {
        let mut fx = Effects::default();
        names.handle(&scene.view(), input, &mut fx);
        let answer = |effect| match effect {
            Effect::Job(job, JobInput::Named { agent, down }) => Some((job, agent, down.answer)),
            _ => None,
        };
        let mut all: Vec<_> = fx.reversed().filter_map(answer).collect();
        all.reverse();
        all
    }

    #[test]
    fn a_publication_answers_a_look_up_of_another_job() {
        let mut scene = Scene::standing(0);
        for job in [1, 2] {
            scene.jobs.announce(job_on(job, 0..2, 1).into());
        }
        let mut names = Names::default();
        let look_up = |timeout_s| Ask::LookUp { names: vec!["a".into()], range: Range::Session, wait: 1, timeout_s };
        assert!(said(&mut names, &scene, 2, look_up(None)).is_empty());
        assert!(said(&mut names, &scene, 3, look_up(None)).is_empty() && names.size() == 1, "there is no such job");
        let item = Item { name: "a".into(), value: Value::Text("x".into()) };
        let publish = Ask::Publish { items: vec![item], range: Range::Session, keep: Keep::Job };
        let told = said(&mut names, &scene, 1, publish.clone());
        assert_eq!(told[0], (JobId(1), AgentId(1), Answer::Done));
        let (job, agent, Answer::Found(found)) = &told[1] else { panic!("{told:?}") };
        assert_eq!(
            (*job, *agent, &found[0].nspace[..]),
            (JobId(2), AgentId(2), &scene.jobs.spec(JobId(1)).unwrap().nspace[..])
        );
        assert_eq!(names.size(), 1);
        assert!(input(&mut names, &scene, Input::JobOver(JobId(1))).is_empty() && names.size() == 0);
        assert!(said(&mut names, &scene, 2, look_up(Some(1))).is_empty());
        scene.now = names.deadline().expect("the look-up has a limit");
        let told = input(&mut names, &scene, Input::Tick);
        assert_eq!(told, [(JobId(2), AgentId(2), Answer::Refused(Refusal::TimedOut))]);
    }
}
