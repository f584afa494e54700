//! The wheel `wireup-launcher`, built by maturin (`pyproject.toml`).
//!
//! maturin compiles `wireup` and takes the folder `wireup_launcher.data`, which is filled here, as it is:
//!
//! ```text
//!   scripts/wireup-bench, wireup-simulate
//!   data/lib/libpmi.so.0 …, data/include/pmi.h …, data/share/man …
//! ```
//!
//! pip puts `scripts` into `bin` and `data` into the environment's own folder.

use super::elf::Version;
use super::tools::{Tools, copy};
use crate::libraries;
use crate::step::{Result, output, run_quietly, show, step};
use crate::{layout, peers};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the wheel of one architecture. `package`: folder with the files that `wireup install` has installed.
///
/// # Errors
/// maturin fails, also because the program needs a newer glibc.
pub fn build(tools: &Tools, architecture: &str, glibc: Version, package: &Path) -> Result<PathBuf> {
    let data = layout::root().join("wireup_launcher.data");
    let built = fill(&data, package).and_then(|()| maturin(tools, architecture, glibc));
    fs::remove_dir_all(&data).map_err(|e| format!("remove {}: {e}", data.display()))?;
    built
}

fn fill(data: &Path, package: &Path) -> Result {
    for program in ["wireup-bench", "wireup-simulate"] {
        copy(&package.join("bin").join(program), &data.join("scripts").join(program))?;
    }
    for name in libraries::all() {
        // A wheel cannot contain symbolic links, so the library has only the name by which programs load it.
        let [soname, _] = libraries::links(name);
        copy(&package.join("lib").join(libraries::file(name)), &data.join("data/lib").join(soname))?;
    }
    let mut rest = Command::new("cp");
    rest.arg("-R").args(["include", "share"].map(|folder| package.join(folder))).arg(data.join("data"));
    run_quietly(&mut rest)
}

fn maturin(tools: &Tools, architecture: &str, glibc: Version) -> Result<PathBuf> {
    let platform = format!("manylinux_{}_{}", glibc.0, glibc.1);
    let dist = layout::target().join("dist");
    let mut build = tools.command("maturin");
    build.args(["build", "--release", "--zig", "--strip", "--locked", "--compatibility", &platform]);
    build.args(["--target", &format!("{architecture}-unknown-linux-gnu"), "--out"]).arg(&dist);
    tools.set_environment(&mut build, architecture)?;
    step(show(&build), || run_quietly(build.current_dir(layout::root())))?;
    let version = env!("CARGO_PKG_VERSION");
    Ok(dist.join(format!("wireup_launcher-{version}-py3-none-{platform}_{architecture}.whl")))
}

/// Installs the wheel in a virtual environment of its own, with a real MPI, and runs the commands that a user would run
/// first.
///
/// # Errors
/// `pip` refuses the wheel, or a command fails.
pub fn try_out(wheel: &Path) -> Result {
    let at = layout::target().join("wheel-environment");
    if at.exists() {
        fs::remove_dir_all(&at).map_err(|e| format!("remove {}: {e}", at.display()))?;
    }
    let name = wheel.to_string_lossy();
    peers::installed(&at, &[&name, peers::MPICH, peers::MPI4PY])?;
    let command = |words: &[&str]| {
        let mut command = Command::new(at.join("bin/wireup"));
        command.args(words);
        command
    };
    let python = peers::python(&at);
    let python = python.to_string_lossy();
    let hello = output(&mut command(&["run", "-n", "4", &python, "-m", "mpi4py.bench", "helloworld"]))?;
    if hello.lines().filter(|line| line.contains("of 4")).count() != 4 {
        return Err(format!("mpi4py under the wheel's wireup printed: {hello}"));
    }
    let ranks = "import wireup_launcher as wireup\nwith wireup.open() as job: print(job.world().allreduce([1])[0])";
    let said = output(&mut command(&["run", "--pmi", "simple", "-n", "3", &python, "-c", ranks]))?;
    if said == "3\n3\n3" { Ok(()) } else { Err(format!("the wheel's Python package printed: {said}")) }
}
