//! The jobs of one agent, which job a frame is for, and the check of a job that is about to start.
//!
//! A job's frames travel along its own tree. In a session of one run that is the session's tree; in a standing session
//! it is a tree of the job's nodes, so the frames may come from any agent.

use crate::job::{Job, JobTree};
use std::collections::BTreeMap;
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;

#[derive(Default)]
pub struct Jobs {
    /// Descriptions of all jobs here, and of a job that is about to start.
    specs: BTreeMap<JobId, Arc<JobSpec>>,
    jobs: BTreeMap<JobId, Job>,
    /// Whether a job on this agent has ended, begun to end, or had its ranks killed since the agent last checked what
    /// is due (`Session::look_around`).
    pub have_changed: bool,
}

impl Jobs {
    pub fn has(&self, id: JobId) -> bool {
        self.jobs.contains_key(&id)
    }

    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    pub fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.get_mut(&id)
    }

    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        self.specs.remove(&id);
        self.jobs.remove(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.jobs.iter().map(|(id, job)| (*id, job))
    }

    pub fn all(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub fn ids(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }

    /// The jobs for which `which` holds.
    pub fn ids_where(&self, which: impl Fn(&Job) -> bool) -> Vec<JobId> {
        self.iter().filter(|(_, job)| which(job)).map(|(id, _)| id).collect()
    }

    /// The jobs of which a child runs a part.
    pub fn of_child(&self, child: AgentId) -> Vec<JobId> {
        self.ids_where(|job| job.has_child(child))
    }

    pub fn spec(&self, id: JobId) -> Option<&Arc<JobSpec>> {
        self.specs.get(&id)
    }

    pub fn specs(&self) -> impl Iterator<Item = &Arc<JobSpec>> {
        self.specs.values()
    }

    /// A job is about to start.
    pub fn announce(&mut self, spec: Arc<JobSpec>) {
        self.specs.insert(spec.job, spec);
    }

    /// Replaces each description by the one that `share` returns for it, which must be equal.
    pub fn share_specs(&mut self, mut share: impl FnMut(&Arc<JobSpec>) -> Arc<JobSpec>) {
        for (id, spec) in &mut self.specs {
            *spec = share(spec);
            if let Some(job) = self.jobs.get_mut(id) {
                job.facts.spec = spec.clone();
            }
        }
    }

    pub fn insert(&mut self, id: JobId, job: Job) {
        self.jobs.insert(id, job);
    }

    /// Number of entries in all tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        self.jobs.len() + self.specs.len()
    }

    /// Finds the neighbour in a job's tree that has sent a frame: the parent (`Some(None)`), a child, or none that may
    /// send it (`None`).
    pub fn side(&self, id: JobId, from: Option<AgentId>) -> Option<Option<AgentId>> {
        let job = self.jobs.get(&id)?;
        from.map_or(Some(None), |agent| job.side(agent))
    }
}

/// No correct launcher names such a node.
pub const UNKNOWN_NODE: &str = "the job names a node that the session does not have";

/// The placement of a job's ranks.
///
/// # Errors
/// What is wrong with the description, for the user: no correct launcher sends it.
pub fn placement(spec: &JobSpec) -> Result<Mapping, String> {
    if spec.apps.is_empty() || spec.apps.iter().any(|app| app.argv.is_empty() || app.ranks == 0) {
        return Err("a program of the job has no ranks or no name".into());
    }
    let mut agents: Vec<AgentId> = spec.nodes.iter().map(|node| node.agent).collect();
    agents.sort_unstable();
    if let Some(twice) = agents.windows(2).find(|pair| pair[0] == pair[1] && pair[0] != AgentId::ADDED) {
        return Err(format!("the job names node {} twice", twice[0]));
    }
    Mapping::new(&spec.blocks, spec.job_size(), spec.nodes.len() as u32).map_err(|error| error.to_string())
}

/// A job that starts here.
pub struct Begin {
    pub spec: Arc<JobSpec>,
    pub mapping: Mapping,
    pub tree: JobTree,
    /// Children that should run a part of the job but were lost before.
    pub lost: Vec<AgentId>,
}
