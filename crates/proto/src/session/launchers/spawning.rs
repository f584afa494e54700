//! Requests of ranks for processes: the root gives each a number for a new job, and offers it to the launcher of the
//! rank's job.

use super::Launchers;
use super::spawns::Request;
use crate::session::Cx;
use wireup_wire::ids::{AgentId, JobId, Rank};
use wireup_wire::limits::FAMILY_JOBS_MAX;
use wireup_wire::names::{Asker, NewJob};
use wireup_wire::pmi::SpawnRequest;
use wireup_wire::talk::{Control, ToLauncher};

impl Launchers {
    /// A rank asks for processes: offers its launcher a number for a new job.
    pub fn on_spawn(&mut self, cx: &mut Cx, parent: JobId, asker: (AgentId, Asker), from: Rank, request: SpawnRequest) {
        // A job that has ended waits for nothing.
        let Some(job) = cx.jobs.get(parent) else { return };
        let link = cx.links.owners.links_of(parent).first().copied();
        let waiting = Request::new(parent, asker, link);
        let problem = match request.check() {
            _ if job.is_ending() => Some("the job is being ended".to_owned()),
            _ if self.spawns.waiting_for(link) >= FAMILY_JOBS_MAX => {
                Some(format!("more than {FAMILY_JOBS_MAX} requests for processes wait"))
            }
            result => result.err().map(|unfit| unfit.to_string()),
        };
        if let Some(problem) = problem {
            return waiting.answer(cx, Err(problem));
        }
        let known = cx.jobs.ids().into_iter().max().unwrap_or_default();
        self.newest = JobId(self.newest.max(known).0 + 1);
        self.spawns.offer(self.newest, waiting);
        let message = Control::ToLauncher(ToLauncher::Spawn { job: self.newest, from, request: request.into() });
        cx.up_about(parent, message);
    }

    /// The launcher of a single run answers a rank that has asked for a job.
    pub fn on_spawned(&mut self, cx: &mut Cx, job: JobId, result: Result<NewJob, String>) {
        if !cx.policy.has_many_launchers() {
            self.spawns.on_result(cx, job, None, result);
        }
    }
}
