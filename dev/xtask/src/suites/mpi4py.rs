//! The tests of mpi4py, with two ranks. One entry runs most of the tests, which together take less time than the import
//! of the modules that they use. On Open MPI 5 only the tests of spawning and connecting processes are run.

use super::entry::{Ended, Entry, words};
use super::source;
use crate::debian::Purpose;
use crate::step::Result;
use crate::{layout, peers};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const RANKS: u32 = 2;
/// Time limit of an entry. Chosen: ten times as long as an entry takes on two processors.
const LIMIT: Duration = Duration::from_secs(300);
/// Files of tests that are entries of their own, each with its time limit: they start many processes, connect, or do
/// what MPICH cannot do across nodes, or not always.
const APART: [(&str, Duration); 4] = [
    ("test_spawn", LIMIT),
    ("test_dynproc", LIMIT),
    ("test_comm_topo", Duration::from_secs(40)),
    ("test_util_sync", Duration::from_secs(40)),
];

pub(super) fn entries() -> Result<Vec<Entry>> {
    let (tests, python) = (tests()?, peers::python(&layout::peer("mpich")));
    let apart =
        APART.iter().map(|(name, limit)| Entry { limit: *limit, ..entry(&tests, &python, name, [*name].into_iter()) });
    let others = entry(&tests, &python, "all others", APART.iter().flat_map(|(name, _)| ["-e", *name]));
    Ok(apart.chain([others]).collect())
}

pub(super) fn open_mpi_entries() -> Result<Vec<Entry>> {
    let (tests, python) = (tests()?, peers::python(&layout::peer("openmpi")));
    source::folder("mpi4py-open-mpi", |_| Ok(()))?;
    Ok(["test_spawn", "test_dynproc"].map(|name| entry(&tests, &python, name, [name].into_iter())).into())
}

/// The folder of mpi4py's tests.
fn tests() -> Result<PathBuf> {
    peers::install(Purpose::Test)?;
    let folder = source::folder("mpi4py", |folder| source::pypi(peers::MPI4PY, folder))?;
    Ok(folder.join(peers::MPI4PY.replace("==", "-")).join("test"))
}

fn entry<'a>(tests: &Path, python: &Path, name: &str, arguments: impl Iterator<Item = &'a str>) -> Entry {
    let arguments = words(["main.py", "-q"].into_iter().chain(arguments));
    let entry = Entry::new(format!("{name} {RANKS}"), RANKS, python.to_owned(), tests);
    Entry { arguments, limit: LIMIT, judge, ..entry }
}

/// The verdict: how each rank's summary ends, `OK` or `FAILED (failures=8)`, which must be equal on all ranks, and the
/// names of the tests that failed.
fn judge(ended: &Ended) -> String {
    let is_summary = |line: &&str| ["OK", "FAILED ("].iter().any(|begin| line.starts_with(begin));
    let summaries: Vec<&str> = ended.said.lines().filter(is_summary).collect();
    let different: BTreeSet<&str> = summaries.iter().copied().collect();
    let agreed = different.first().filter(|_| different.len() == 1 && summaries.len() == RANKS as usize);
    // Two ranks may print on the same line, so a line is also split at the words that begin a message.
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
