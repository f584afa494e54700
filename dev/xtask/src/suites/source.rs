//! Sources of suites: the upstream tarballs of Debian's source packages, and of PyPI.
//!
//! Most machines have no `deb-src` lines. The sources are downloaded with a package list of their own, made from the
//! archives that this machine is configured for, so that the machine's configuration stays unchanged.

use crate::step::{Result, output, run_quietly, step};
use crate::{layout, peers};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the file that marks a suite's folder as complete.
pub(super) const STAMP: &str = "complete";

pub(super) fn folder_of(suite: &str) -> PathBuf {
    layout::target().join("suites").join(suite)
}

/// The folder of a suite, made by `fill` unless it is complete.
pub(super) fn folder(suite: &str, fill: impl FnOnce(&Path) -> Result) -> Result<PathBuf> {
    let folder = folder_of(suite);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if !folder.join(STAMP).exists() {
        step(format!("suite {suite}"), || {
            if folder.exists() {
                fs::remove_dir_all(&folder).map_err(failed)?;
            }
            fs::create_dir_all(&folder).map_err(failed)?;
            fill(&folder)?;
            fs::write(folder.join(STAMP), "").map_err(failed)
        })?;
    }
    Ok(folder)
}

/// Unpacks the upstream sources of Debian's package `package` into the folder `into/PACKAGE-VERSION`.
pub(super) fn debian(package: &str, version: &str, into: &Path) -> Result {
    let lines = output(
        Command::new("apt-get")
            .args(["indextargets", "--format"])
            .args(["deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages", "Label: Debian"]),
    )?;
    let failed = |error: std::io::Error| format!("{}: {error}", into.display());
    let (list, lists, cache) = (into.join("sources.list"), into.join("lists"), into.join("cache"));
    fs::create_dir_all(lists.join("partial")).map_err(failed)?;
    fs::create_dir_all(cache.join("archives/partial")).map_err(failed)?;
    fs::write(&list, lines + "\n").map_err(failed)?;
    let apt = || {
        let mut apt = Command::new("apt-get");
        for (name, path) in [("Dir::Etc::sourcelist", &list), ("Dir::State::lists", &lists), ("Dir::Cache", &cache)] {
            apt.arg("-o").arg(format!("{name}={}", path.display()));
        }
        apt.args(["-o", "Dir::Etc::sourceparts=-", "-q"]).current_dir(into);
        apt
    };
    run_quietly(apt().arg("update"))?;
    run_quietly(apt().args(["source", "--download-only", "--tar-only", package]))?;
    unpack(&into.join(format!("{package}_{version}.orig.tar.xz")), into)?;
    [lists, cache].iter().try_for_each(fs::remove_dir_all).map_err(failed)
}

/// Unpacks a source package of PyPI, `NAME==VERSION`, into the folder `into/NAME-VERSION`.
///
/// `pip` is the only program that follows all of the machine's configuration (index, proxy, certificates). It downloads
/// one file; to read the file's metadata it also installs the tools that the package is built with, in a temporary
/// folder. `--no-binary` with the package's name and not `:all:` lets these tools come as wheels: nothing is compiled,
/// so that neither a compiler nor Python's headers are needed.
pub(super) fn pypi(package: &str, into: &Path) -> Result {
    let (name, _) = package.split_once("==").ok_or_else(|| format!("{package}: not NAME==VERSION"))?;
    // `pip` needs the path as UTF-8; the target directory of a Rust project is valid UTF-8.
    let folder = into.to_string_lossy();
    peers::pip(&layout::peer("mpich"), &["download", "--no-deps", "--no-binary", name, "--dest", &folder, package])?;
    unpack(&into.join(format!("{}.tar.gz", package.replace("==", "-"))), into)
}

fn unpack(archive: &Path, into: &Path) -> Result {
    run_quietly(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(into))?;
    fs::remove_file(archive).map_err(|error| format!("{}: {error}", archive.display()))
}
