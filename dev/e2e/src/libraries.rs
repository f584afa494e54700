//! Programs linked to our C libraries, under our launcher and under others.

use super::Run;
use super::peers::{program, skip, tool};
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::libraries;
use xtask::programs::Flavour;

/// Options of `wireup run`, and the number of ranks that they start.
pub const PLACEMENTS: [(&str, usize); 4] =
    [("-n 1", 1), ("-n 2", 2), ("-n 9 --virtual-nodes 2", 9), ("-n 64 --virtual-nodes 4", 64)];

/// End of the line that every rank of these test programs prints if it has found no error.
pub const ALL_RIGHT: &str = ": all right\n";

/// The folder with our C libraries.
pub fn folder() -> PathBuf {
    libraries::build().unwrap_or_else(|why| panic!("{why}"))
}

pub fn library_path() -> String {
    folder().display().to_string()
}

/// One of our test programs, linked to our libraries.
pub fn own(name: &str) -> PathBuf {
    program(Flavour::Libpmi, name).expect("the C compiler that built this test's own programs")
}

/// The installed launchers of MPICH, with the argument that tells `pmi1` what to expect: the newer launcher speaks PMI
/// 1.2.
pub fn hydras() -> Vec<(PathBuf, &'static str)> {
    let mpich5 = xtask::layout::peer("mpich").join("bin/mpiexec.hydra");
    let all = [(mpich5, "groups"), (PathBuf::from("/usr/bin/mpiexec.hydra"), "hydra")];
    let installed: Vec<_> = all.into_iter().filter(|(path, _)| path.exists()).collect();
    if installed.is_empty() { skip("no mpiexec.hydra").unwrap_or_default() } else { installed }
}

/// The output of a launcher other than ours.
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

/// Runs one of our own programs, named by the first of `words`, with our libraries: all of its `ranks` ranks say that
/// all is right.
pub fn all_right(line: &str, words: &str, ranks: usize) {
    let (name, args) = words.split_once(' ').unwrap_or((words, ""));
    let run = Run::job(line).linked().arg(own(name));
    run.args(args.split_whitespace()).succeed().expect_all_right(ranks);
}

/// Valgrind finds no memory errors in three ranks of such a program.
pub fn no_memory_errors(words: &str) {
    let Some(valgrind) = tool("/usr/bin/valgrind") else { return };
    let (name, args) = words.split_once(' ').unwrap_or((words, ""));
    let run = Run::job("-n 3 --virtual-nodes 2").linked().arg(valgrind);
    // Valgrind runs one thread at a time: without fair scheduling, polling threads starve the one for which they wait.
    let checks = ["--fair-sched=try", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    let run = run.args(["-q", "--error-exitcode=9"]).args(checks);
    run.arg(own(name)).args(args.split_whitespace()).succeed().expect_all_right(3);
}

/// Runs such a program on each of [`PLACEMENTS`].
pub fn all_right_everywhere(words: &str) {
    for (placement, ranks) in PLACEMENTS {
        all_right(placement, words, ranks);
    }
}
