//! `cargo xtask release`: the binaries for distribution, in `target/dist`.
//!
//! There are two flavours of the same source, see `docs/dev/releasing.md`. Zig provides the old glibc's symbols and
//! links; the result is split into the program and its symbols, and is then examined and run: a binary that requires
//! more than it may stops the release.

mod elf;
mod tools;
mod wheel;

use crate::build::cargo;
use crate::layout;
use crate::step::{Result, run, run_quietly, show, step};
use crate::structure::deny;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tools::Tools;

/// The oldest glibc that the program runs with: that of RHEL 8 and of `manylinux_2_28`.
const GLIBC: elf::Version = elf::Version(2, 28);

/// What is given away: packages and their programs. The wheel has the first two.
const PROGRAMS: [(&str, &str); 4] = [
    ("wireup", "wireup"),
    ("wireup-bench", "wireup-bench"),
    ("wireup-reproductions", "wireup-reproduce"),
    ("wireup-simulate", "wireup-simulate"),
];

const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

#[derive(Clone, Copy)]
enum Libc {
    Gnu,
    Musl,
}

use Libc::{Gnu, Musl};

/// Whether the security advisories of dependencies are checked before a build.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Advisories {
    Checked,
    Unchecked,
}

/// Builds both flavours for each architecture; without any, for this machine's.
///
/// # Errors
/// A dependency has a security advisory, or that is unknown; an architecture is unknown, a tool is missing, a build
/// fails, or a binary has other requirements than it may.
pub fn build(architectures: &[&str], advisories: Advisories) -> Result {
    if let Some(unknown) = architectures.iter().find(|name| !ARCHITECTURES.contains(name)) {
        return Err(format!("{unknown:?} is none of {}", ARCHITECTURES.join(", ")));
    }
    if advisories == Advisories::Checked {
        step("security advisories of the dependencies", deny::advisories)?;
    }
    let tools = Tools::install()?;
    let mut report = String::new();
    for architecture in if architectures.is_empty() { &[ARCH] } else { architectures } {
        for libc in [Gnu, Musl] {
            let programs = flavour(&tools, architecture, libc)?;
            let program = &programs[0];
            report += &format!("{}\n", describe(program, libc)?);
            if *architecture == ARCH {
                try_out(program)?;
            } else {
                report += "    not run: this machine is of another architecture\n";
            }
            if matches!(libc, Gnu) {
                let programs = [(program.as_path(), PROGRAMS[0].1), (programs[1].as_path(), PROGRAMS[1].1)];
                let wheel = wheel::build(&tools, architecture, GLIBC, &programs)?;
                if *architecture == ARCH {
                    wheel::try_out(&wheel)?;
                }
                report += &format!("{}\n", wheel.display());
            }
        }
    }
    if advisories == Advisories::Unchecked {
        report += "security advisories of the dependencies were NOT checked: do not give these files away\n";
    }
    print!("{report}");
    Ok(())
}

/// Builds one flavour of all programs and puts them into the distribution's folder; returns their paths there.
fn flavour(tools: &Tools, architecture: &str, libc: Libc) -> Result<[PathBuf; PROGRAMS.len()]> {
    let libc_name = match libc {
        Gnu => "gnu",
        Musl => "musl",
    };
    let target = format!("{architecture}-unknown-linux-{libc_name}");
    tools::add_target(&target)?;
    let asked = match libc {
        Gnu => format!("{target}.{GLIBC}"),
        Musl => target.clone(),
    };
    // Each package alone: in one build, `wireup` would get the features that only the other programs need.
    for (package, _) in PROGRAMS {
        let mut build = cargo();
        build.args(["zigbuild", "--release", "--quiet", "--package", package, "--target", &asked]);
        tools.set_environment(&mut build, architecture)?;
        step(show(&build), || run(&mut build))?;
    }

    let dist = layout::target().join("dist");
    fs::create_dir_all(&dist).map_err(|e| format!("mkdir {}: {e}", dist.display()))?;
    let put = |program: &str| {
        let built = layout::target().join(&target).join("release").join(program);
        let name = format!("{program}-{}-{architecture}-linux-{libc_name}", env!("CARGO_PKG_VERSION"));
        let (program, symbols) = (dist.join(&name), dist.join(format!("{name}.debug")));
        let objcopy = || Command::new(tools.objcopy());
        run_quietly(objcopy().arg("--only-keep-debug").args([&built, &symbols]))?;
        run_quietly(objcopy().arg("--strip-all").args([&built, &program]))?;
        Ok::<_, String>(program)
    };
    let mut paths = PROGRAMS.map(|_| PathBuf::new());
    for (path, (_, program)) in paths.iter_mut().zip(PROGRAMS) {
        *path = put(program)?;
    }
    Ok(paths)
}

/// The binary's kind and requirements on one line.
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

/// Runs the commands that users would run first.
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
