//! Programs linked to wireup's C libraries, under `wireup run` and under other launchers.

use super::Run;
use super::peers::{program, skip, tool};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::libraries;
use xtask::programs::Flavour;

/// Flags of `wireup run`, each with the number of ranks that they start.
pub const PLACEMENTS: [(&str, usize); 4] =
    [("-n 1", 1), ("-n 2", 2), ("-n 9 --virtual-nodes 2", 9), ("-n 64 --virtual-nodes 4", 64)];

/// End of the line that every rank of these test programs prints if it has found no error.
pub const ALL_RIGHT: &str = ": all right\n";

/// The folder with wireup's C libraries.
pub fn folder() -> PathBuf {
    libraries::build().unwrap_or_else(|why| panic!("{why}"))
}

pub fn library_path() -> String {
    folder().display().to_string()
}

/// Path of a test program of this project, linked to wireup's C libraries.
pub fn own(name: &str) -> PathBuf {
    program(Flavour::Libpmi, name).expect("the C compiler that built this test's own programs")
}

/// The installed launchers of MPICH, each with the argument that tells the program `pmi1` which launcher it runs under:
/// the newer one supports PMI 1.2.
pub fn hydras() -> Vec<(PathBuf, &'static str)> {
    let mpich5 = xtask::layout::peer("mpich").join("bin/mpiexec.hydra");
    let all = [(mpich5, "groups"), (PathBuf::from("/usr/bin/mpiexec.hydra"), "hydra")];
    let installed: Vec<_> = all.into_iter().filter(|(path, _)| path.exists()).collect();
    if installed.is_empty() { skip("no mpiexec.hydra").unwrap_or_default() } else { installed }
}

/// Runs a program under a launcher other than wireup's; returns the output.
pub fn under(launcher: &Path, ranks: usize, options: &[&str], program: &Path, arg: &str) -> String {
    let mut run = Command::new("timeout");
    run.arg("60").arg(launcher).args(options).arg("-n").arg(ranks.to_string()).arg(program);
    if !arg.is_empty() {
        run.arg(arg);
    }
    let output = run.env("LD_LIBRARY_PATH", library_path()).output().expect("start the launcher");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{run:?}: {}\n{said}{complained}", output.status);
    said
}

/// Runs the test program that the first of `words` names, with wireup's libraries, and expects that all of its `ranks`
/// ranks print that they found no error.
pub fn all_right(line: &str, words: &str, ranks: usize) {
    let (name, args) = words.split_once(' ').unwrap_or((words, ""));
    let run = Run::job(line).linked().arg(own(name));
    run.args(args.split_whitespace()).succeed().expect_all_right(ranks);
}

/// Runs a test program with three ranks, and expects that valgrind finds no memory errors in them.
pub fn no_memory_errors(words: &str) {
    let Some(valgrind) = tool("/usr/bin/valgrind") else { return };
    let (name, args) = words.split_once(' ').unwrap_or((words, ""));
    let run = Run::job("-n 3 --virtual-nodes 2").linked().arg(valgrind);
    // Valgrind runs one thread at a time: without fair scheduling, threads that poll starve the thread for which they
    // wait.
    let checks = ["--fair-sched=try", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    let run = run.args(["-q", "--error-exitcode=9"]).args(checks);
    run.arg(own(name)).args(args.split_whitespace()).succeed().expect_all_right(3);
}

/// Runs a test program with each of [`PLACEMENTS`], and expects no error.
pub fn all_right_everywhere(words: &str) {
    for (placement, ranks) in PLACEMENTS {
        all_right(placement, words, ranks);
    }
}
