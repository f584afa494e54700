//! MPICH's own tests of processes that start others and connect (`test/mpi/spawn`), built with MPICH 5, since Debian's
//! MPICH 4 cannot start any, and with Open MPI 5.

use super::entry::Entry;
use super::{mpich, source, testlist};
use crate::debian::Purpose;
use crate::step::Result;
use crate::{layout, peers};
use std::path::Path;
use std::time::Duration;

const FOLDER: &str = "spawn";
/// Time limit of an entry. Chosen: ten times what the longest needs on two processors.
const LIMIT: Duration = Duration::from_secs(180);
/// Time limit of an entry on Open MPI, of those that do not hang under its own launcher.
const OPEN_MPI_LIMIT: Duration = Duration::from_secs(60);
/// Sources that all of these tests are built with.
const COMMON: [&str; 3] = ["mtest", "mtest_common", "mtest_single"];

/// Size of the universe on Open MPI. The tests skip themselves if the universe has no room for the processes that they
/// start.
const UNIVERSE: u32 = 32;

pub(super) fn own_launcher() -> Vec<String> {
    vec![layout::mpich5().join("bin/mpiexec").display().to_string(), "-n".into()]
}

/// The command of Open MPI's launcher, which asks for the first option as root.
pub(super) fn open_mpi_launcher() -> Vec<String> {
    let mpiexec = layout::openmpi5().join("bin/mpiexec").display().to_string();
    let slots = format!("localhost:{UNIVERSE}");
    [&mpiexec, "--allow-run-as-root", "--host", &slots, "--map-by", ":oversubscribe", "--bind-to", "none", "-n"]
        .map(str::to_owned)
        .to_vec()
}

pub(super) fn entries() -> Result<Vec<Entry>> {
    built_with(&layout::mpich5(), "spawn")
}

pub(super) fn open_mpi_entries() -> Result<Vec<Entry>> {
    let mut entries = built_with(&layout::openmpi5(), "spawn-open-mpi")?;
    for entry in &mut entries {
        entry.flags = vec!["--usize".into(), UNIVERSE.to_string()];
        entry.limit = OPEN_MPI_LIMIT;
    }
    Ok(entries)
}

fn built_with(mpi: &Path, suite: &str) -> Result<Vec<Entry>> {
    peers::install(Purpose::Test)?;
    let (built, tests) = mpich::sources()?;
    let folder = source::folder(suite, |_| Ok(()))?;
    let listed = testlist::walk(&built, &tests, FOLDER).into_iter().filter(|(_, test)| !test.fails);
    let entry = |(_, test): (String, testlist::Test)| {
        let mut entry = Entry::new(test.name(FOLDER), test.ranks, folder.join(&test.program), &folder);
        let source = tests.join(FOLDER).join(&test.program).with_extension("c");
        let common = COMMON.map(|name| tests.join("util").join(name).with_extension("c"));
        let mut build = vec![mpi.join("bin/mpicc").display().to_string(), "-w".into(), "-DHAVE_CONFIG_H".into()];
        build.extend([&built, &tests].map(|root| format!("-I{}", root.join("include").display())));
        build.extend([&source].into_iter().chain(&common).map(|file| file.display().to_string()));
        build.extend(["-o".into(), entry.program.display().to_string(), "-pthread".into()]);
        entry.build = build;
        entry.limit = LIMIT;
        entry.judge = mpich::no_errors;
        entry.arguments = test.arguments;
        entry.environment = test.environment;
        entry
    };
    Ok(listed.map(entry).collect())
}
