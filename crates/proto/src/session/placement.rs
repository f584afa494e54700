//! Checks a job that is about to start, and places its ranks on its nodes.

use crate::job::JobTree;
use std::collections::BTreeSet;
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;

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
    let mut agents_seen = BTreeSet::new();
    if let Some(node) = spec.nodes.iter().find(|node| node.agent != AgentId::ADDED && !agents_seen.insert(node.agent)) {
        return Err(format!("the job names node {} twice", node.agent));
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
