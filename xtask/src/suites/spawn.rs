//! MPICH's own tests of processes that start others and connect (`test/mpi/spawn`), built with MPICH 5: Debian's MPICH 4 cannot start any.

use super::entry::Entry;
use super::{mpich, source, testlist};
use crate::step::Result;
use crate::{layout, peers};
use std::time::Duration;

const FOLDER: &str = "spawn";
/// Ten times what the longest needs on two processors.
const LIMIT: Duration = Duration::from_secs(180);
/// What all of these tests are built with.
const COMMON: [&str; 3] = ["mtest", "mtest_common", "mtest_single"];

pub(super) fn own_launcher() -> Vec<String> {
    vec![layout::mpich5().join("bin/mpiexec").display().to_string(), "-n".into()]
}

pub(super) fn entries() -> Result<Vec<Entry>> {
    peers::install()?;
    let (built, tests) = mpich::sources()?;
    let folder = source::folder("spawn", |_| Ok(()))?;
    let listed = testlist::walk(&built, &tests, FOLDER).into_iter().filter(|(_, test)| !test.fails);
    let entry = |(_, test): (String, testlist::Test)| {
        let mut entry = Entry::new(test.name(FOLDER), test.ranks, folder.join(&test.program), &folder);
        let source = tests.join(FOLDER).join(&test.program).with_extension("c");
        let common = COMMON.map(|name| tests.join("util").join(name).with_extension("c"));
        let mpicc = layout::mpich5().join("bin/mpicc");
        let mut build = vec![mpicc.display().to_string(), "-w".into(), "-DHAVE_CONFIG_H".into()];
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
