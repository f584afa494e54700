//! Describes a job for the PMIx servers of other jobs.

use wireup_wire::inter_job::{OtherJob, Parent};
use wireup_wire::job::{AppSpec, JobSpec};
use wireup_wire::pmix::App;

pub fn described(spec: &JobSpec) -> OtherJob {
    let words = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    let app =
        |app: &AppSpec| App { ranks: app.ranks, argv: app.argv.iter().map(words).collect(), cwd: words(&app.cwd) };
    OtherJob {
        nspace: spec.nspace.clone(),
        nodes: spec.nodes.iter().map(|node| (node.agent, node.name.clone())).collect(),
        blocks: spec.blocks.clone(),
        apps: spec.apps.iter().map(app).collect(),
        universe: spec.options.pmi.universe_size,
        parent: spec.spawned.as_ref().map(|by| Parent { nspace: by.nspace.clone(), rank: by.rank }),
    }
}
