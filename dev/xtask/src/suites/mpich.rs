//! MPICH's own tests (`test/mpi`) of the release that Debian's MPICH 4 is made from, in C and C++.
//!
//! An entry is a line of the suite's lists, `PROGRAM [RANKS [NAME=VALUE ...]]`; those that MPICH is known to fail
//! (`xfail`) are left out, as MPICH's own runner does. The tests of spawning and connecting processes (`spawn`) are
//! also built with MPICH 5, since Debian's MPICH 4 cannot spawn processes, and with Open MPI 5.

use super::entry::{Ended, Entry, words};
use super::source;
use crate::debian::{self, Purpose};
use crate::step::{Result, run_quietly};
use crate::{layout, peers};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

const VERSION: &str = "4.0.2";
/// Highest time limit of an entry (s): the default in the suite's lists, some of which allow many minutes. Chosen: ten
/// times as long as the longest entry of `spawn` takes on two processors.
const LIMIT_S: u64 = 180;
/// Time limit of an entry on Open MPI (s), for entries that do not hang under Open MPI's own launcher.
const OPEN_MPI_LIMIT_S: u64 = 60;
/// Number of ranks of an entry whose line states none.
const RANKS: u32 = 2;
/// Sources that all tests of `spawn` are built with.
const COMMON: [&str; 3] = ["mtest", "mtest_common", "mtest_single"];
/// Size of the MPI universe on Open MPI. The tests skip themselves if the universe has no room for the processes that
/// they spawn.
const UNIVERSE: &str = "32";

pub(super) fn entries() -> Result<Vec<Entry>> {
    let (built, lists) = sources()?;
    let mut entries = listed(&built, &lists, "");
    for entry in &mut entries {
        let program = entry.program.file_name().unwrap_or_default().to_string_lossy();
        entry.build = words(["make", "-s", "-C", &entry.folder.to_string_lossy(), &program]);
    }
    entries.dedup_by(|one, other| one.name == other.name);
    Ok(entries)
}

pub(super) fn spawn_entries() -> Result<Vec<Entry>> {
    built_with(&layout::peer("mpich"), "spawn")
}

pub(super) fn open_mpi_entries() -> Result<Vec<Entry>> {
    let mut entries = built_with(&layout::peer("openmpi"), "spawn-open-mpi")?;
    for entry in &mut entries {
        entry.flags = words(["--usize", UNIVERSE]);
        entry.limit = Duration::from_secs(OPEN_MPI_LIMIT_S);
    }
    Ok(entries)
}

/// The entries of the tests of `spawn`, which are built with `mpi` in a folder of their own.
fn built_with(mpi: &Path, suite: &str) -> Result<Vec<Entry>> {
    peers::install(Purpose::Test)?;
    let (built, tests) = sources()?;
    let folder = source::folder(suite, |_| Ok(()))?;
    let mut entries = listed(&built, &tests, "spawn");
    for entry in &mut entries {
        let name = entry.program.file_name().unwrap_or_default();
        let common = COMMON.map(|name| tests.join("util").join(name).with_extension("c"));
        let own = tests.join("spawn").join(name).with_extension("c");
        let program = folder.join(name);
        entry.build = words([&*mpi.join("bin/mpicc").to_string_lossy(), "-w", "-DHAVE_CONFIG_H", "-pthread"]);
        entry.build.extend([&built, &tests].map(|root| format!("-I{}/include", root.display())));
        entry.build.extend([&own].into_iter().chain(&common).map(|file| file.display().to_string()));
        entry.build.extend(words(["-o", &program.to_string_lossy()]));
        (entry.program, entry.folder) = (program, folder.clone());
        entry.limit = Duration::from_secs(LIMIT_S);
        entry.judge = no_errors;
    }
    Ok(entries)
}

/// The folder in which the tests are configured and built, and the folder of their sources.
fn sources() -> Result<(PathBuf, PathBuf)> {
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

/// All tests below `folder` that MPICH is not known to fail. A list that configure has made replaces the list in the
/// sources.
fn listed(built: &Path, source: &Path, folder: &str) -> Vec<Entry> {
    let list = |root: &Path| std::fs::read_to_string(root.join(folder).join("testlist"));
    let text = list(built).or_else(|_| list(source)).unwrap_or_default();
    let mut entries = Vec::new();
    for line in text.lines() {
        let Some(program) = line.split('#').next().and_then(|line| line.split_whitespace().next()) else { continue };
        let below: PathBuf = [folder, program].iter().collect();
        match below.to_str() {
            Some(below) if source.join(below).is_dir() => entries.extend(listed(built, source, below)),
            _ => entries.extend(parsed(line, folder, &built.join(folder))),
        }
    }
    entries
}

/// Parses a line of a list of tests; `None`: the line is empty, or MPICH itself is known to fail the test.
fn parsed(line: &str, folder: &str, at: &Path) -> Option<Entry> {
    let mut words = line.split('#').next()?.split_whitespace();
    let program = words.next()?;
    let ranks = words.next().and_then(|ranks| ranks.parse().ok()).unwrap_or(RANKS);
    let mut entry = Entry::new("", ranks, at.join(program), at);
    (entry.limit, entry.judge) = (Duration::from_secs(LIMIT_S), no_errors);
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        match (name, value) {
            ("arg", _) => entry.arguments.push(value.into()),
            ("env", _) => {
                entry.environment.extend(value.split_once('=').map(|(name, value)| (name.into(), value.into())));
            }
            ("timeLimit", _) => {
                entry.limit = Duration::from_secs(value.parse().map_or(LIMIT_S, |limit: u64| limit.min(LIMIT_S)));
            }
            ("resultTest", "TestStatus" | "TestErrFatal") => entry.judge = must_fail,
            ("resultTest", "TestStatusNoErrors") => entry.judge = must_fail_without_errors,
            ("xfail", _) => return None,
            // Other settings say which implementations a test is for, what it shares with tests that run at the same
            // time, and options of Hydra. None of these changes how the test runs here.
            _ => {}
        }
    }
    let environment = entry.environment.iter().map(|(name, value)| format!(" {name}={value}"));
    let words = entry.arguments.iter().map(|word| format!(" {word}")).chain(environment);
    entry.name = format!("{folder}/{program} {ranks}{}", words.collect::<String>());
    Some(entry)
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

fn no_errors(ended: &Ended) -> String {
    verdict(ended.code == Some(0) && says_no_errors(&ended.said), ended)
}

/// The verdict for a program that must fail, whatever it prints. Reaching the time limit counts as a failure.
fn must_fail(ended: &Ended) -> String {
    verdict(ended.code != Some(0), ended)
}

/// The verdict for a program that must fail without printing errors. The launcher's own lines, which explain the
/// failure, do not count.
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

    #[test]
    fn lines_of_a_list_are_read() {
        let parse = |line: &str| parsed(line, "init", Path::new("/at"));
        let line = "abort 3 arg=-n arg=a=b env=X=1=2 mpiexecarg=-q resultTest=TestErrFatal timeLimit=10 # why";
        let entry = parse(line).unwrap();
        let failed = Ended { code: Some(1), is_late: false, said: String::new() };
        assert_eq!((entry.name.as_str(), entry.limit.as_secs()), ("init/abort 3 -n a=b X=1=2", 10));
        assert_eq!((entry.judge)(&failed), "pass");
        let plain = parse("  attrt").unwrap();
        assert_eq!((plain.ranks, plain.limit.as_secs(), plain.program.to_str()), (2, 180, Some("/at/attrt")));
        assert_eq!((plain.judge)(&failed), "fail");
        assert!(parse("# perf").is_none() && parse(" ").is_none() && parse("abort 3 xfail=t1").is_none());
    }
}
