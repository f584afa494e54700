//! A job that is about to start on this agent.

use crate::job::JobTree;
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;

/// A job that starts here.
pub struct Begin {
    pub spec: Arc<JobSpec>,
    pub mapping: Mapping,
    pub tree: JobTree,
    /// Children that should run part of it but were lost before.
    pub lost: Vec<AgentId>,
}
