//! The start parameters of a server process.

use crate::io::PmixPlan;
use crate::job::facts::View;
use wireup_wire::job::{AppSpec, BindTo};
use wireup_wire::pmix::{App, Begin};

/// Prefixes of the variables that are passed to a server process.
const LIBRARY_VARIABLES: [&[u8]; 8] =
    [b"PMIX_", b"WIREUP_PMIX", b"HWLOC_", b"PRTE_", b"LD_LIBRARY_PATH=", b"HOME=", b"TMPDIR=", b"OPAL_PREFIX="];

pub fn plan(view: &View<'_>) -> PmixPlan {
    let spec = &view.facts.spec;
    let node = view.facts.own_node();
    let shared = spec.nodes[node.index()].shared;
    let begin = Begin {
        nspace: spec.nspace.clone(),
        nodes: spec.nodes.iter().map(|node| node.name.clone()).collect(),
        node,
        blocks: spec.blocks.clone(),
        apps: spec.apps.iter().map(app).collect(),
        cpus: vec![None; view.ranks.len()],
        dir: String::new(),
        library: spec.options.pmix_library.clone(),
        shared,
        oversubscribed: false,
    };
    let bind_to = if shared { BindTo::None } else { spec.options.bind_to };
    let ranks_here = if shared { spec.job_size() } else { view.ranks.len() as u32 };
    PmixPlan { job: spec.job, begin, bind_to, ranks_here, env: variables(&spec.env) }
}

fn app(app: &AppSpec) -> App {
    let words = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    App { ranks: app.ranks, argv: app.argv.iter().map(words).collect(), cwd: words(&app.cwd) }
}

/// The variables used by the library and by those that it loads; the job's other variables are not passed.
fn variables(env: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is_for_it = |variable: &&Vec<u8>| LIBRARY_VARIABLES.iter().any(|prefix| variable.starts_with(prefix));
    env.iter().filter(is_for_it).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_its_librarys_variables_alone() {
        let env = ["PMIX_MCA_a=1", "PATH=/bin", "HOME=/root", "HOMEX=1"].map(|variable| variable.as_bytes().to_vec());
        assert_eq!(variables(&env), [env[0].clone(), env[2].clone()]);
    }
}
