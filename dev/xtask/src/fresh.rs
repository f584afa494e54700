//! `cargo xtask fresh`: the README's commands in a new Debian 12, as a new user would run them.
//!
//! debootstrap creates the smallest Debian with a C compiler in a folder inside the target directory; a clone of `HEAD`
//! and this machine's Rust toolchain are added. A user of the wheel gets Python and the wheel in place of all these.
//! The commands run there in their own mount, process, IPC and host name namespaces, with their own `/proc`, `/dev` and
//! `/run`; the network is this machine's, because packages are fetched. The settings for mirrors, proxies and
//! certificates are copied from this machine (`carried`).
//!
//! However this ends, it cleans up: processes die with their namespace, whose first process dies with this one; mounts
//! vanish with it; a cleaner, which outlives this process, removes the folder.

mod carried;
mod cleaner;

use crate::build::rustc;
use crate::debian::{self, as_root};
use crate::layout;
use crate::step::{self, Result, step};
use carried::Carried;
use cleaner::Cleaner;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

/// Both commands, in the order of the README.
pub const COMMANDS: [&str; 2] = ["demo", "test"];

const WHEEL: &str = include_str!("fresh/wheel.sh");

const SUITE: &str = "bookworm";

/// The tools that this machine needs for it.
const TOOLS: [&str; 2] = ["debootstrap", "git"];

/// Namespaces whose processes all die when their first process dies, which dies when this process does.
const NAMESPACES: &str =
    "--pdeathsig KILL unshare --mount --propagation private --ipc --uts --pid --fork --kill-child --";

const INSIDE: &str = include_str!("fresh/inside.sh");

/// The user for whom a new Debian is made.
enum User {
    /// A user who has the Rust toolchain of this folder, and a clone of `HEAD`.
    OfSource(PathBuf),
    /// A user who has a wheel.
    OfWheel(PathBuf),
}

impl User {
    /// Debian's packages beside the smallest set: certificates for registries, and for Rust a linker.
    fn packages(&self) -> &str {
        match self {
            User::OfSource(_) => "ca-certificates,gcc,libc6-dev",
            User::OfWheel(_) => "ca-certificates,python3-venv",
        }
    }

    fn toolchain(&self) -> &Path {
        match self {
            User::OfSource(toolchain) => toolchain,
            User::OfWheel(_) => Path::new(""),
        }
    }

    /// Fills the folder where the commands run.
    fn fill(&self, folder: &Path) -> Result {
        match self {
            User::OfSource(_) => step("git clone", || clone(folder)),
            User::OfWheel(wheel) => {
                let to = folder.join(wheel.file_name().unwrap_or_default());
                let copied = fs::create_dir(folder).and_then(|()| fs::copy(wheel, &to));
                copied.map(drop).map_err(|e| format!("copy {} to {}: {e}", wheel.display(), to.display()))
            }
        }
    }
}

/// Runs `commands` of `cargo xtask` one after the other in one new Debian.
///
/// # Errors
/// The Debian cannot be created, or a command fails in it.
pub fn run(commands: &[&str]) -> Result {
    let line = |command: &&str| format!("cargo xtask {command}");
    let scripts: Vec<_> = commands.iter().map(line).map(|line| (line.clone(), line)).collect();
    in_new_debian(&User::OfSource(toolchain()?), &scripts)
}

/// Installs this machine's wheel of `cargo xtask release` in a new Debian without Rust, runs MPI programs with it, and
/// removes it.
///
/// # Errors
/// There is no wheel, the Debian cannot be created, or a command fails in it.
pub fn wheel() -> Result {
    let dist = layout::target().join("dist");
    let ending = format!("{}.whl", std::env::consts::ARCH);
    let files = fs::read_dir(&dist).map(|files| files.flatten().map(|file| file.path()).collect::<Vec<_>>());
    let wheel = files.unwrap_or_default().into_iter().find(|path| path.to_string_lossy().ends_with(&ending));
    let wheel = wheel.ok_or_else(|| format!("no wheel in {}: cargo xtask release", dist.display()))?;
    in_new_debian(&User::OfWheel(wheel), &[("pip install".to_owned(), WHEEL.to_owned())])
}

/// Runs scripts in a new Debian. `scripts`: each with its name.
fn in_new_debian(user: &User, scripts: &[(String, String)]) -> Result {
    let is_missing = |tool: &&str| Command::new(tool).arg("--version").output().is_err();
    debian::ensure(&TOOLS.into_iter().filter(is_missing).collect::<Vec<_>>())?;
    let folder = layout::target().join(format!("fresh-{}", process::id()));
    fs::create_dir_all(&folder).map_err(|e| format!("create {}: {e}", folder.display()))?;
    let cleaner = Cleaner::start(&folder)?;
    let done = in_folder(&folder, user, scripts);
    let removed = step("remove it", || cleaner.finish());
    done.and(removed)
}

fn in_folder(folder: &Path, user: &User, scripts: &[(String, String)]) -> Result {
    let carried = Carried::of_this_machine();
    let root = folder.join("root");
    step(format!("debootstrap {SUITE} from {}", carried.mirror), || bootstrap(&root, user.packages(), &carried))?;
    user.fill(&folder.join("here"))?;
    carried.write(&folder.join("carried"))?;
    for (name, script) in scripts {
        let mut inside = in_namespaces();
        inside.args(["sh", "-c", INSIDE, "sh", script]).arg(folder).arg(user.toolchain()).args(&carried.folders);
        inside.stdin(Stdio::null());
        let what = format!("in the new Debian: {name}");
        step(&what, || {
            let status = inside.status().map_err(|e| format!("setpriv: {e}"))?;
            if status.success() { Ok(()) } else { Err(format!("{what}: {status}")) }
        })?;
    }
    Ok(())
}

/// Runs debootstrap in namespaces as well, because it mounts and starts things in the system that it creates.
fn bootstrap(root: &Path, packages: &str, carried: &Carried) -> Result {
    let mut debootstrap = in_namespaces();
    debootstrap.arg("env").args(carried.proxies());
    debootstrap.args(["debootstrap", "--variant=minbase", &format!("--include={packages}"), SUITE]);
    step::run_quietly(debootstrap.arg(root).arg(&carried.mirror))
}

/// Clones the committed state, as others get it.
fn clone(to: &Path) -> Result {
    let mut changes = Command::new("git");
    changes.args(["status", "--porcelain"]).current_dir(layout::root());
    if changes.output().is_ok_and(|output| !output.stdout.is_empty()) {
        eprintln!("    only what is committed goes in; this working tree has more");
    }
    step::run_quietly(Command::new("git").args(["clone", "--quiet", "--no-hardlinks"]).arg(layout::root()).arg(to))
}

fn in_namespaces() -> Command {
    let mut command = as_root("setpriv");
    command.args(NAMESPACES.split(' '));
    command
}

/// The folder of the toolchain that builds this.
fn toolchain() -> Result<PathBuf> {
    let found = PathBuf::from(rustc("sysroot")?);
    if found == Path::new("/usr") || !found.join("bin/cargo").exists() {
        let why = "is not the folder of a Rust toolchain, which could be lent to the new Debian; use one from rustup";
        return Err(format!("{} {why}", found.display()));
    }
    Ok(found)
}
