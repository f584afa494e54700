//! The wheel: the program, the C libraries with their headers, and the Python package, for `pip install wireup`.
//!
//! ```text
//!   bin/wireup, bin/wireup-bench      of the environment that it is installed in
//!   lib/libpmi.so.0 …, include/pmi.h …
//!   wireup/                           the Python package, which finds lib/libwireup.so.0
//! ```
//!
//! The libraries are linked by Zig, as the program is: this machine's own glibc would demand its own version. `wheel`
//! packs, `auditwheel` says whether the result keeps to the platform tag; both come from PyPI.

use super::elf::{self, Version};
use super::tools::Tools;
use crate::libraries::{self, Linking};
use crate::step::{Result, output, run_quietly, show, step};
use crate::{layout, peers};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");

const HEADERS: [&str; 5] =
    ["include/pmi.h", "include/pmi2.h", "include/pmix_ext.h", "include/wireup.h", "adapters/ucc/wireup_ucc.h"];

const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Makes the wheel of one architecture; `programs`: the stripped files and the names under which they are installed.
///
/// # Errors
/// A library cannot be built, needs a newer glibc, or the wheel does not keep to its tag.
pub fn build(tools: &Tools, architecture: &str, glibc: Version, programs: &[(&Path, &str)]) -> Result<PathBuf> {
    let dist = layout::target().join("dist");
    let folder = layout::target().join(format!("wheel-{architecture}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|e| format!("remove {}: {e}", folder.display()))?;
    }
    let data = folder.join(format!("wireup-{VERSION}.data"));
    for (program, name) in programs {
        copy(program, &data.join("scripts").join(name))?;
    }
    for library in libraries_of(tools, architecture)? {
        if let Some(problem) = elf::read(&library)?.requires_more_than_glibc(glibc) {
            return Err(format!("{}: {problem}", library.display()));
        }
        let name = library.file_name().unwrap_or_default();
        copy(&library, &data.join("data/lib").join(name))?;
    }
    for header in HEADERS.map(|header| layout::root().join(header)) {
        copy(&header, &data.join("data/include").join(header.file_name().unwrap_or_default()))?;
    }
    copy(&layout::root().join("python/wireup/__init__.py"), &folder.join("wireup/__init__.py"))?;
    let platform = format!("manylinux_{}_{}_{architecture}", glibc.0, glibc.1);
    describe(&folder.join(format!("wireup-{VERSION}.dist-info")), &platform)?;

    let mut pack = tools.python();
    pack.args(["-m", "wheel", "pack"]).arg(&folder).arg("--dest-dir").arg(&dist);
    step(show(&pack), || run_quietly(&mut pack))?;
    fs::remove_dir_all(&folder).map_err(|e| format!("remove {}: {e}", folder.display()))?;
    let wheel = dist.join(format!("wireup-{VERSION}-py3-none-{platform}.whl"));
    audit(tools, &wheel, &platform)?;
    Ok(wheel)
}

/// Installs the wheel in a virtual environment of its own, with a real MPI, and runs what a user would run first.
///
/// # Errors
/// `pip` refuses it, or a command fails.
pub fn try_out(wheel: &Path) -> Result {
    let at = layout::target().join("wheel-environment");
    if at.exists() {
        fs::remove_dir_all(&at).map_err(|e| format!("remove {}: {e}", at.display()))?;
    }
    let name = wheel.to_string_lossy();
    peers::installed(&at, &[&name, peers::MPICH, peers::MPI4PY])?;
    let command = |program: &str, words: &[&str]| {
        let mut command = Command::new(at.join("bin").join(program));
        command.args(words);
        command
    };
    let python = peers::python(&at);
    let python = python.to_string_lossy();
    let hello = output(&mut command("wireup", &["run", "-n", "4", &python, "-m", "mpi4py.bench", "helloworld"]))?;
    if hello.lines().filter(|line| line.contains("of 4")).count() != 4 {
        return Err(format!("mpi4py under the wheel's wireup printed: {hello}"));
    }
    let ranks = "import wireup\nwith wireup.open() as job: print(job.world().allreduce([1])[0])";
    let said = output(&mut command("wireup", &["run", "--pmi", "simple", "-n", "3", &python, "-c", ranks]))?;
    if said != "3\n3\n3" {
        return Err(format!("the wheel's Python package printed: {said}"));
    }
    let prefix = at.join("installed");
    run_quietly(&mut command("wireup", &["install", "--prefix", &prefix.to_string_lossy()]))
}

fn libraries_of(tools: &Tools, architecture: &str) -> Result<Vec<PathBuf>> {
    let triple = format!("{architecture}-unknown-linux-gnu");
    super::tools::add_target(&triple)?;
    let linking = Linking {
        archives: layout::target().join(&triple).join("capi"),
        compiler: tools.compiler(architecture, &format!("gnu.{}", super::GLIBC))?,
        objcopy: tools.objcopy(),
        // Zig's linker does not know it.
        without: &["-z,noseparate-code"],
    };
    let folder = layout::target().join(&triple).join("release");
    fs::create_dir_all(&folder).map_err(|e| format!("create {}: {e}", folder.display()))?;
    let mut archives = libraries::static_libraries();
    archives.args(["--target", &triple]).env("RUSTFLAGS", libraries::RUSTFLAGS);
    step(show(&archives), || run_quietly(&mut archives))?;
    libraries::all().map(|name| linking.link(name, &folder.join(format!("lib{name}.so.0")))).collect()
}

/// The wheel's own files.
fn describe(folder: &Path, platform: &str) -> Result {
    let metadata = format!(
        "Metadata-Version: 2.4\nName: wireup\nVersion: {VERSION}\nSummary: Starts parallel jobs: MPICH, Intel MPI, \
         Open MPI and other programs, \
         on one machine or many\nLicense-Expression: Apache-2.0 OR MIT\nLicense-File: {}\nLicense-File: \
         {}\nRequires-Python: >=3.8\nClassifier: \
         Operating System :: POSIX :: Linux\nDescription-Content-Type: text/markdown\n\n{}",
        LICENCES[0],
        LICENCES[1],
        read(&layout::root().join("python/README.md"))?,
    );
    let wheel = format!("Wheel-Version: 1.0\nGenerator: xtask\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n");
    write(&folder.join("METADATA"), &metadata)?;
    write(&folder.join("WHEEL"), &wheel)?;
    LICENCES.iter().try_for_each(|name| copy(&layout::root().join(name), &folder.join("licenses").join(name)))
}

/// Whether `auditwheel` gives the wheel its tag.
fn audit(tools: &Tools, wheel: &Path, platform: &str) -> Result {
    let said = output(tools.python().args(["-m", "auditwheel", "show"]).arg(wheel))?;
    let said: String = said.split_whitespace().collect::<Vec<_>>().join(" ");
    if said.contains(&format!("\"{platform}\"")) { Ok(()) } else { Err(format!("auditwheel: {said}")) }
}

fn copy(from: &Path, to: &Path) -> Result {
    let folder = to.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|e| format!("create {}: {e}", folder.display()))?;
    fs::copy(from, to).map(drop).map_err(|e| format!("copy {} to {}: {e}", from.display(), to.display()))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| format!("read {}: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|e| format!("create {}: {e}", folder.display()))?;
    fs::write(path, text).map_err(|e| format!("write {}: {e}", path.display()))
}
