//! Checks a job description against the session.

use std::collections::BTreeSet;
use wireup_coll::mapping::Mapping;
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
    if spec.nodes.iter().any(|node| node.agent.index() >= session.agents.len()) {
        return Err("the job names a node that the session does not have".into());
    }
    let mut agents_seen = BTreeSet::new();
    if let Some(node) = spec.nodes.iter().find(|node| !agents_seen.insert(node.agent)) {
        return Err(format!("the job names node {} twice", node.agent));
    }
    Mapping::new(&spec.blocks, spec.job_size(), spec.nodes.len() as u32).map_err(|error| error.to_string())
}
