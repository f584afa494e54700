//! `cargo xtask release` builds the files of a release in `target/dist`: binaries, the Python wheel, the Debian and RPM
//! packages, an SBOM and checksums.
//!
//! `wireup` is built in two flavours, see `docs/dev/releasing.md`. Zig provides the symbols of an old glibc and
//! links the program; the result is split into the program and its symbols, and is then examined and run: if it
//! requires more than it may, the release stops.

mod elf;
mod packages;
mod tools;
mod wheel;

use crate::build::cargo;
use crate::layout;
use crate::step::{Result, output, run, run_quietly, show, step};
use crate::structure::deny;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tools::Tools;

/// The oldest glibc that the program runs with: that of RHEL 8 and of `manylinux_2_28`.
const GLIBC: elf::Version = elf::Version(2, 28);

const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

#[derive(Clone, Copy)]
enum Libc {
    Gnu,
    Musl,
}

use Libc::{Gnu, Musl};

impl Libc {
    fn name(self) -> &'static str {
        match self {
            Gnu => "gnu",
            Musl => "musl",
        }
    }

    /// The crates that are built; each has a program of the same name. On machines without glibc, or with an older one,
    /// there is only `wireup` itself.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Gnu => &packages::PROGRAMS,
            Musl => &["wireup"],
        }
    }
}

/// Whether the security advisories of dependencies are checked before a build.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Advisories {
    Checked,
    Unchecked,
}

/// Builds a release for this machine's architecture and for `architectures`.
///
/// # Errors
/// A dependency has a security advisory, or it is unknown whether one has; an architecture is unknown, a tool is
/// missing, a build fails, or a binary requires more than it may.
pub fn build(architectures: &[&str], advisories: Advisories) -> Result {
    if let Some(unknown) = architectures.iter().find(|name| !ARCHITECTURES.contains(name)) {
        return Err(format!("{unknown:?} is none of {}", ARCHITECTURES.join(", ")));
    }
    if advisories == Advisories::Checked {
        step("security advisories of the dependencies", deny::advisories)?;
    }
    let mut report = workflows()?;
    let tools = Tools::install()?;
    let dist = empty(layout::target().join("dist"))?;
    empty(layout::target().join("package"))?;
    // This machine's architecture comes first, because only its program can run here: it writes the manual pages for
    // all packages.
    let others = architectures.iter().copied().filter(|name| *name != ARCH);
    for architecture in std::iter::once(ARCH).chain(others) {
        report += &files_of(&tools, architecture)?;
    }
    checksums(&dist)?;
    if advisories == Advisories::Unchecked {
        report += "security advisories of the dependencies were NOT checked: do not give these files away\n";
    }
    print!("{report}");
    Ok(())
}

/// Checks the workflows with actionlint, if it is installed; returns a line that says if it is not.
fn workflows() -> Result<String> {
    let mut lint = Command::new("actionlint");
    if lint.arg("--version").output().is_err() {
        return Ok("actionlint is not on PATH: .github/workflows was not checked\n".to_owned());
    }
    step("actionlint", || run_quietly(Command::new("actionlint").current_dir(layout::root())))?;
    Ok(String::new())
}

/// Builds all files for one architecture; returns lines that describe them.
fn files_of(tools: &Tools, architecture: &str) -> Result<String> {
    let mut report = String::new();
    for libc in [Musl, Gnu] {
        flavour(tools, architecture, libc)?;
        let program = &dist_file("wireup", architecture, libc);
        report += &format!("{}\n", describe(program, libc)?);
        if architecture == ARCH {
            try_out(program)?;
        } else {
            report += &emulate(program, architecture, libc)?;
        }
    }
    let package = packages::fill(tools, architecture, GLIBC, |program| dist_file(program, architecture, Gnu))?;
    let wheel = wheel::build(tools, architecture, GLIBC, &package)?;
    if architecture == ARCH {
        wheel::try_out(&wheel)?;
        sbom(&wheel)?;
    }
    let [deb, rpm] = packages::build(tools, architecture)?;
    Ok(report + &format!("{}\n{}\n{}\n", wheel.display(), deb.display(), rpm.display()))
}

fn empty(folder: PathBuf) -> Result<PathBuf> {
    let failed = |e| format!("empty {}: {e}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    Ok(folder)
}

/// Writes the SBOM: the list of dependencies as CycloneDX, which maturin has put into the wheel.
fn sbom(wheel: &Path) -> Result {
    let version = env!("CARGO_PKG_VERSION");
    let inside = format!("wireup_launcher-{version}.dist-info/sboms/wireup.cyclonedx.json");
    let script = "import sys, zipfile; print(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]).decode())";
    let text = output(Command::new("python3").args(["-c", script]).arg(wheel).arg(inside))?;
    let file = wheel.with_file_name(format!("wireup-{version}.cdx.json"));
    fs::write(&file, text).map_err(|e| format!("write {}: {e}", file.display()))
}

/// Writes `SHA256SUMS`, with the checksums of all files of the release.
fn checksums(dist: &Path) -> Result {
    run_quietly(Command::new("sh").args(["-c", "sha256sum * >../SHA256SUMS && mv ../SHA256SUMS ."]).current_dir(dist))
}

/// Path of a program's file in the release.
fn dist_file(program: &str, architecture: &str, libc: Libc) -> PathBuf {
    let (version, libc) = (env!("CARGO_PKG_VERSION"), libc.name());
    layout::target().join("dist").join(format!("{program}-{version}-{architecture}-linux-{libc}"))
}

/// Builds one flavour of the programs and puts them into the folder of the release.
fn flavour(tools: &Tools, architecture: &str, libc: Libc) -> Result {
    let target = format!("{architecture}-unknown-linux-{}", libc.name());
    tools::add_target(&target)?;
    let asked = match libc {
        Gnu => format!("{target}.{GLIBC}"),
        Musl => target.clone(),
    };
    // Each package is built alone: in one common build, `wireup` would get the features that only the other programs
    // need.
    for package in libc.programs() {
        let mut build = cargo();
        build.args(["zigbuild", "--release", "--quiet", "--package", package, "--target", &asked]);
        tools.set_environment(&mut build, architecture)?;
        step(show(&build), || run(&mut build))?;
    }

    let put = |name: &str| {
        let built = layout::target().join(&target).join("release").join(name);
        let program = dist_file(name, architecture, libc);
        let mut symbols = program.clone().into_os_string();
        symbols.push(".debug");
        let objcopy = || Command::new(tools.objcopy());
        run_quietly(objcopy().arg("--only-keep-debug").arg(&built).arg(&symbols))?;
        run_quietly(objcopy().arg("--strip-all").args([&built, &program]))
    };
    libc.programs().iter().try_for_each(|program| put(program))
}

/// One line with the kind of a binary and its requirements.
fn describe(binary: &Path, libc: Libc) -> Result<String> {
    let facts = elf::read(binary)?;
    let problem = match libc {
        Gnu => facts.more_than_glibc(GLIBC),
        Musl => facts.more_than_nothing(),
    };
    if let Some(problem) = problem {
        return Err(format!("{}: {problem}", binary.display()));
    }
    let bytes = fs::metadata(binary).map_err(|e| format!("{}: {e}", binary.display()))?.len();
    Ok(format!("{}: {bytes} bytes, {facts}", binary.display()))
}

/// Runs `version` of a binary for another architecture, if QEMU can; returns a line that says so. QEMU lacks system
/// calls that jobs need, and a glibc of the other architecture.
fn emulate(binary: &Path, architecture: &str, libc: Libc) -> Result<String> {
    let emulator = format!("qemu-{architecture}-static");
    if matches!(libc, Gnu) || Command::new(&emulator).arg("--version").output().is_err() {
        return Ok("    not run: this machine is of another architecture\n".to_owned());
    }
    run_quietly(Command::new(&emulator).arg(binary).arg("version"))?;
    Ok(format!("    only `version` was run, by {emulator}\n"))
}

/// Runs a binary with the commands that users would run first.
fn try_out(binary: &Path) -> Result {
    let itself = binary.to_string_lossy();
    let runs: [&[&str]; 3] = [
        &["version"],
        &["run", "-n", "4", "hostname"],
        &["run", "-n", "4", "--virtual-nodes", "2", &itself, "pmi", "exchange"],
    ];
    for arguments in runs {
        run_quietly(Command::new(binary).args(arguments))?;
    }
    Ok(())
}
