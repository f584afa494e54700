//! MPICH's own tests (`test/mpi`) of the release that Debian's MPICH 4 is made from, in C and C++.
//!
//! An entry is a line of their lists; those that MPICH is known to fail (`xfail`) are left out, as MPICH's own runner
//! does.

use super::entry::{Ended, Entry};
use super::source;
use super::testlist::{self, Test};
use crate::debian;
use crate::step::{Result, run_quietly};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

const VERSION: &str = "4.0.2";
/// Highest time limit of an entry (s). Chosen: some of the lists' limits are many minutes.
const LIMIT_MAX_S: u64 = 180;

pub(super) fn own_launcher() -> Vec<String> {
    ["mpiexec.hydra", "-n"].map(str::to_owned).to_vec()
}

pub(super) fn entries() -> Result<Vec<Entry>> {
    let (built, lists) = sources()?;
    let tests = testlist::walk(&built, &lists, "").into_iter().filter(|(_, test)| !test.fails);
    let mut entries: Vec<Entry> = tests.map(|(folder, test)| entry(&built, &folder, test)).collect();
    entries.dedup_by(|one, other| one.name == other.name);
    Ok(entries)
}

/// The folder in which the tests are configured, and that of their sources.
pub(super) fn sources() -> Result<(PathBuf, PathBuf)> {
    debian::ensure(&["make", "xz-utils", "g++", "mpich", "libmpich-dev"])?;
    let folder = source::folder("mpich", configure)?;
    Ok((folder.join("build"), folder.join(format!("mpich-{VERSION}/test/mpi"))))
}

fn configure(folder: &Path) -> Result {
    source::debian("mpich", VERSION, folder)?;
    let build = folder.join("build");
    std::fs::create_dir_all(&build).map_err(|error| format!("{}: {error}", build.display()))?;
    let mut configure = Command::new(folder.join(format!("mpich-{VERSION}/test/mpi/configure")));
    configure.args(["--quiet", "--with-mpi=/usr", "--disable-fortran", "--enable-threads=multiple"]);
    configure.args(["MPICC=mpicc.mpich", "MPICXX=mpicxx.mpich", "MPIEXEC=mpiexec.hydra"]).current_dir(&build);
    run_quietly(&mut configure)?;
    run_quietly(make().arg("-C").arg(&build).args(["-C", "util"]))
}

fn make() -> Command {
    let mut make = Command::new("make");
    make.args(["-s", "-j", &thread::available_parallelism().map_or(1, usize::from).to_string()]);
    make
}

fn entry(built: &Path, folder: &str, test: Test) -> Entry {
    let at = built.join(folder);
    let mut entry = Entry::new(test.name(folder), test.ranks, at.join(&test.program), &at);
    entry.build = ["make", "-s", "-C", &at.to_string_lossy(), &test.program].map(str::to_owned).to_vec();
    entry.limit = Duration::from_secs(test.limit_s.min(LIMIT_MAX_S));
    entry.judge = match test.result.as_str() {
        "TestStatus" | "TestErrFatal" => must_fail,
        "TestStatusNoErrors" => must_fail_without_errors,
        _ => no_errors,
    };
    entry.arguments = test.arguments;
    entry.environment = test.environment;
    entry
}

fn verdict(is_good: bool, ended: &Ended) -> String {
    match is_good {
        true => "pass".into(),
        false if ended.is_late => "time limit".into(),
        false => "fail".into(),
    }
}

/// Whether the program has printed that there were no errors, and nothing else.
fn says_no_errors(said: &str) -> bool {
    let is_good = |line: &str| ["No Errors", "No errors"].contains(&line.trim());
    said.lines().any(is_good) && said.lines().all(|line| is_good(line) || line.trim() == "Test Passed")
}

pub(super) fn no_errors(ended: &Ended) -> String {
    verdict(ended.code == Some(0) && says_no_errors(&ended.said), ended)
}

/// The verdict of a program that must fail, whatever it prints. A time limit is a failure too.
fn must_fail(ended: &Ended) -> String {
    verdict(ended.code != Some(0), ended)
}

/// The verdict of a program that must fail without printing errors. The launcher explains on its own lines why it
/// fails.
fn must_fail_without_errors(ended: &Ended) -> String {
    let said = ended.said.lines().any(|line| line.trim().eq_ignore_ascii_case("no errors"));
    verdict(ended.code != Some(0) && said, ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_expected_line_is_no_error() {
        let ended = |code, said: &str| Ended { code: Some(code), is_late: false, said: said.into() };
        assert_eq!(no_errors(&ended(0, " No Errors\n")), "pass");
        for bad in [ended(0, ""), ended(0, " No Errors\nFound 3 errors\n"), ended(1, " No Errors\n")] {
            assert_eq!(no_errors(&bad), "fail");
        }
        assert_eq!((must_fail(&ended(1, "Aborting")).as_str(), must_fail(&ended(0, "")).as_str()), ("pass", "fail"));
    }
}
