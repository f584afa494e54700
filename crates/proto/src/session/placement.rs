//! A job that is about to start: checked against the session, and placed on its nodes.

use crate::job::JobTree;
use std::collections::BTreeSet;
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;
use wireup_wire::peer::SessionSpec;

/// The placement of a job's ranks.
///
/// # Errors
/// What is wrong with the description, for the user: no correct launcher sends it.
pub fn placement(session: &SessionSpec, spec: &JobSpec) -> Result<Mapping, String> {
    if spec.apps.is_empty() || spec.apps.iter().any(|app| app.argv.is_empty() || app.ranks == 0) {
        return Err("a program of the job has no ranks or no name".into());
    }
    // In one run, hosts may be added for jobs that ranks have asked for.
    let may_add = session.standing.is_none() && spec.spawned.is_some();
    if !may_add && spec.nodes.iter().any(|node| node.agent.index() >= session.agents.len()) {
        return Err("the job names a node that the session does not have".into());
    }
    let mut agents_seen = BTreeSet::new();
    if let Some(node) = spec.nodes.iter().find(|node| !agents_seen.insert(node.agent)) {
        return Err(format!("the job names node {} twice", node.agent));
    }
    Mapping::new(&spec.blocks, spec.job_size(), spec.nodes.len() as u32).map_err(|error| error.to_string())
}

/// A job that starts here.
pub struct Begin {
    pub spec: Arc<JobSpec>,
    pub mapping: Mapping,
    pub tree: JobTree,
    /// Children that should run part of it but were lost before.
    pub lost: Vec<AgentId>,
}
