//! The tests of mpi4py, with two ranks: few entries, since most of its tests take less time than the import of what
//! they use. On Open MPI 5 only those of processes that start others and connect.

use super::entry::{Ended, Entry};
use super::source;
use crate::debian::Purpose;
use crate::step::Result;
use crate::{layout, peers};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PACKAGE: &str = "mpi4py==4.1.2";
const RANKS: u32 = 2;
/// Time limit of an entry. Chosen: ten times what it needs on two processors.
const LIMIT: Duration = Duration::from_secs(300);
/// Files of tests that run by themselves, with their limits: they start many processes, connect, and what MPICH cannot
/// do across nodes, or not always.
const APART: [(&str, Duration); 4] = [
    ("test_spawn", LIMIT),
    ("test_dynproc", LIMIT),
    ("test_comm_topo", Duration::from_secs(40)),
    ("test_util_sync", Duration::from_secs(40)),
];

pub(super) fn own_launcher() -> Vec<String> {
    vec![layout::mpich5().join("bin/mpiexec").display().to_string(), "-n".into()]
}

/// The command of Open MPI's launcher, which asks for the first option as root, and for the second if there are fewer
/// processors than ranks.
pub(super) fn open_mpi_launcher() -> Vec<String> {
    let mpiexec = layout::openmpi5().join("bin/mpiexec").display().to_string();
    [&mpiexec, "--allow-run-as-root", "--oversubscribe", "-n"].map(str::to_owned).to_vec()
}

pub(super) fn open_mpi_entries() -> Result<Vec<Entry>> {
    let tests = tests()?;
    source::folder("mpi4py-open-mpi", |_| Ok(()))?;
    let python = peers::python(&layout::openmpi5());
    Ok(["test_spawn", "test_dynproc"].map(|name| entry(&tests, &python, name, &[name])).to_vec())
}

/// The folder of its tests.
fn tests() -> Result<PathBuf> {
    peers::install(Purpose::Test)?;
    let folder = source::folder("mpi4py", |folder| source::pypi(PACKAGE, folder))?;
    Ok(folder.join(PACKAGE.replace("==", "-")).join("test"))
}

fn entry(tests: &Path, python: &Path, name: &str, arguments: &[&str]) -> Entry {
    let mut entry = Entry::new(format!("{name} {RANKS}"), RANKS, python.to_owned(), tests);
    entry.arguments = ["main.py", "-q"].iter().chain(arguments).map(|word| (*word).to_owned()).collect();
    entry.limit = LIMIT;
    entry.judge = judge;
    entry
}

pub(super) fn entries() -> Result<Vec<Entry>> {
    let (tests, python) = (tests()?, peers::python(&layout::mpich5()));
    let entry = |name: &str, arguments: &[&str]| entry(&tests, &python, name, arguments);
    let apart = APART.iter().map(|(name, limit)| Entry { limit: *limit, ..entry(name, &[name]) });
    let others: Vec<&str> = APART.iter().flat_map(|(name, _)| ["-e", name]).collect();
    Ok(apart.chain([entry("all others", &others)]).collect())
}

/// How each rank's summary ends, `OK` or `FAILED (failures=8)`, which must agree, and the names of the tests that
/// failed.
fn judge(ended: &Ended) -> String {
    let is_summary = |line: &&str| ["OK", "FAILED ("].iter().any(|begin| line.starts_with(begin));
    let summaries: Vec<&str> = ended.said.lines().filter(is_summary).collect();
    let different: BTreeSet<&str> = summaries.iter().copied().collect();
    let agreed = different.first().filter(|_| different.len() == 1 && summaries.len() == RANKS as usize);
    // Two ranks may print on one line.
    let lines =
        ended.said.split('\n').flat_map(|line| line.split("FAIL: ").skip(1).chain(line.split("ERROR: ").skip(1)));
    let failed: BTreeSet<&str> = lines.filter_map(|rest| rest.split([' ', ')']).next()).collect();
    match agreed {
        Some(one) if ended.code == Some(0) && one.starts_with("OK") => (*one).to_owned(),
        Some(one) if !ended.is_late => format!("{one}: {}", failed.into_iter().collect::<Vec<_>>().join(" ")),
        _ => format!("{}, {} summaries", ended.by_exit_code(), summaries.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_must_agree() {
        let ended = |code, said: &str| judge(&Ended { code: Some(code), is_late: false, said: said.into() });
        assert_eq!(ended(0, "Ran 3 tests\n\nOK\n\nOK\n"), "OK");
        let failed = "FAIL: testA (test_x.TestX.testA)FAIL: testA (test_x)\nFAILED (failures=1)\nFAILED (failures=1)\n";
        assert_eq!(ended(1, failed), "FAILED (failures=1): testA");
        assert_eq!((ended(0, "OK\n").as_str(), ended(1, "").as_str()), ("pass, 1 summaries", "exit 1, 0 summaries"));
    }
}
