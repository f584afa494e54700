//! The description of a job in a list.

use crate::text;
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;
use wireup_wire::limits::LISTED_NAME_LEN_MAX;
use wireup_wire::session::{JobEntry, JobState};

pub fn jobs_entry(spec: &JobSpec, nodes: Vec<AgentId>, age_ns: u64, state: JobState) -> JobEntry {
    let program = spec.apps.first().and_then(|app| app.argv.first()).map(Vec::as_slice).unwrap_or_default();
    let program = String::from_utf8_lossy(&program[..program.len().min(LISTED_NAME_LEN_MAX)]);
    JobEntry {
        job: spec.job,
        nspace: text::beginning(&spec.nspace, LISTED_NAME_LEN_MAX).to_owned(),
        program: text::beginning(&program, LISTED_NAME_LEN_MAX).to_owned(),
        ranks: spec.job_size(),
        nodes,
        age_ns,
        state,
    }
}
