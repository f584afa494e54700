//! The agent's jobs: taken on, told what is theirs, forgotten.

use super::{Agent, AgentConfig};
use crate::job::{Act, Acts, Job, JobInput, JobTree, Turn, participants};
use crate::time::Instant;
use std::collections::BTreeSet;
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{self, Cause, Control, Failure, MissingAgent};

/// Why a later job of the session misses an agent.
const LOST_BEFORE: &str = "it was lost in an earlier job of the session";

impl Agent {
    /// Takes a job on: the bootstrap message's, or one that came down a link.
    pub fn launch(&mut self, now: Instant, spec: JobSpec) {
        let id = spec.job;
        if self.specs.contains_key(&id) {
            // Whoever started this agent in its parent's stead gave it the job, and so does the parent.
            return;
        }
        self.links.direct.at(now);
        let mapping = match self.config.placement(&spec) {
            Ok(mapping) => mapping,
            Err(problem) => return self.refuse(&spec, problem),
        };
        let spec = Arc::new(spec);
        self.specs.insert(id, spec.clone());
        // What children asked for an earlier job they may ask again.
        self.asked.clear();
        self.asked_about.clear();
        let mut lost = Vec::new();
        let tree = JobTree::whole(self.config.agent, self.tree);
        for child in participants(&spec, &mapping, &tree) {
            if self.children.is_new(child) {
                self.start_child(now, child, Some(id));
            } else if self.children.is_lost(child) {
                lost.push(child);
            } else {
                self.links.control_child(child, id, &Control::Launch((*spec).clone()), &mut self.out);
            }
        }
        self.call_step(now, &spec, &mapping);
        self.call_shells(now);
        self.begin_job(now, spec, &mapping, tree, &lost);
    }

    /// Takes a job on here: others that run it were told. Of children, those are `lost`.
    pub(super) fn begin_job(
        &mut self,
        now: Instant,
        spec: Arc<JobSpec>,
        mapping: &Mapping,
        tree: JobTree,
        lost: &[AgentId],
    ) {
        let id = spec.job;
        self.specs.insert(id, spec.clone());
        let hold = self.config.session.hold_ranks && !self.links.has_up();
        let job = Job::new(spec, mapping, self.config.agent, tree, self.config.born, hold, now);
        let below: Vec<AgentId> = job.child_agents().filter(|child| !lost.contains(child)).collect();
        let ask_clock = job.is_profiled() && self.links.has_up();
        self.jobs.insert(id, job);
        let missing = |agent: &AgentId| MissingAgent { agent: *agent, problem: LOST_BEFORE.into() };
        self.tell_job(now, id, JobInput::Begin { lost: lost.iter().map(missing).collect() });
        if ask_clock {
            self.ask_clock(now);
        }
        if !self.is_standing() {
            self.ask_for_ucx(below);
        }
        self.take_early(now, id);
    }

    /// A job that no honest launcher sends: it ends before it began.
    fn refuse(&mut self, spec: &JobSpec, problem: String) {
        let failure = Failure {
            node: Default::default(),
            host: String::new(),
            rank: None,
            pid: None,
            cause: Cause::Launcher { problem },
        };
        let message = if self.is_root() {
            Control::Ended(peer::Ended { failure: Some(failure), done: Default::default() })
        } else {
            Control::Failed(failure)
        };
        self.links.control_up(spec.job, &message, &mut self.out);
    }

    pub(super) fn tell_job(&mut self, now: Instant, id: JobId, input: JobInput) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let links = &self.links;
        let mut turn = Turn {
            now,
            start_by: self.start_by,
            clock: &self.clock,
            standing: self.standing.is_some(),
            is_linked: &|agent| links.child(agent).is_some(),
        };
        let mut acts = Acts::default();
        let is_over = job.handle(&mut turn, input, &mut acts);
        for act in acts {
            self.carry_out(id, act);
        }
        if is_over {
            self.forget_job(id);
        }
        for agent in self.links.take_dropped() {
            // A later job is not sent to it.
            self.children.on_lost(agent);
        }
    }

    fn carry_out(&mut self, id: JobId, act: Act) {
        let out = &mut self.out;
        match act {
            Act::ToLauncher(frame) | Act::NoteUp(frame) => self.links.send_up(frame, out),
            Act::ToAgent(agent, frame) => self.links.send_peer(agent, frame, out),
            Act::Prepare(agents) => self.links.prepare_peers(agents, id, out),
            Act::DropChild(agent) => self.links.drop_child(agent, out),
            Act::Do(output) => out.push(output),
        }
    }

    pub(super) fn jobs_where(&self, which: impl Fn(&Job) -> bool) -> Vec<JobId> {
        self.jobs.iter().filter(|(_, job)| which(job)).map(|(id, _)| *id).collect()
    }

    /// The same for all jobs that `which` holds for.
    pub(super) fn tell_jobs_where(&mut self, now: Instant, which: impl Fn(&Job) -> bool, input: impl Fn() -> JobInput) {
        for id in self.jobs_where(which) {
            self.tell_job(now, id, input());
        }
    }

    pub(super) fn tell_all_jobs(&mut self, now: Instant, input: impl Fn() -> JobInput) {
        self.tell_jobs_where(now, |_| true, input);
    }

    /// A job is over here.
    pub(super) fn forget_job(&mut self, id: JobId) {
        let Some(mut job) = self.jobs.remove(&id) else { return };
        self.specs.remove(&id);
        self.early.leave_behind(id, job.take_remains());
        self.links.direct.forget(id);
        self.links.settle_direct(&mut self.out);
        if self.is_standing() {
            self.on_job_over(id, &job);
        }
    }
}

impl AgentConfig {
    /// Whether a job description makes sense; its placement.
    pub(super) fn placement(&self, spec: &JobSpec) -> Result<Mapping, String> {
        if spec.apps.is_empty() || spec.apps.iter().any(|app| app.argv.is_empty() || app.ranks == 0) {
            return Err("a program of the job has no ranks or no name".into());
        }
        if spec.nodes.iter().any(|node| node.agent.index() >= self.session.agents.len()) {
            return Err("the job names a node that the session does not have".into());
        }
        let mut agents_seen = BTreeSet::new();
        if let Some(node) = spec.nodes.iter().find(|node| !agents_seen.insert(node.agent)) {
            return Err(format!("the job names node {} twice", node.agent));
        }
        Mapping::new(&spec.blocks, spec.job_size(), spec.nodes.len() as u32).map_err(|error| error.to_string())
    }
}
