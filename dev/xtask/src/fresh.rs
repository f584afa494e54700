//! `cargo xtask fresh`: the README's commands in a new Debian 12, as a new user would run them.
//!
//! debootstrap creates the smallest Debian with a C compiler in a folder inside the target directory; a clone of `HEAD`
//! and this machine's Rust toolchain are added. A user of packages gets Python and the files of
//! `cargo xtask release` instead, also in Debian 13.
//! The commands run there in their own mount, process, IPC and host name namespaces, with their own `/proc`, `/dev` and
//! `/run`; the network is this machine's, because packages are fetched. The settings for mirrors, proxies and
//! certificates are copied from this machine (`carried`).
//!
//! However the run ends, everything is cleaned up: processes die with their namespace, whose first process dies with
//! this one; mounts vanish with it; a cleaner, which outlives this process, removes the folder.

mod carried;

use crate::build::rustc;
use crate::debian::{self, as_root};
use crate::layout;
use crate::step::{self, Result, step};
use carried::Carried;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

/// The commands that the README names, in its order.
pub const COMMANDS: [&str; 2] = ["demo", "test"];

const PACKAGES: &str = include_str!("fresh/packages.sh");

/// The Debian releases 12 and 13. Debian 12 has everything that the demo and the tests need.
const SUITES: [&str; 2] = ["bookworm", "trixie"];

/// The programs that this machine needs for `cargo xtask fresh`.
const TOOLS: [&str; 2] = ["debootstrap", "git"];

/// An `unshare` command: namespaces whose processes all die when their first process dies, which dies when this process
/// does.
const NAMESPACES: &str =
    "--pdeathsig KILL unshare --mount --propagation private --ipc --uts --pid --fork --kill-child --";

const INSIDE: &str = include_str!("fresh/inside.sh");

/// The user for whom a new Debian is made.
enum User {
    /// A user who gets the Rust toolchain of this folder, and a clone of `HEAD`.
    OfSource(PathBuf),
    /// A user who gets these files of a release.
    OfPackages(Vec<PathBuf>),
}

impl User {
    /// Debian packages in addition to the smallest set: certificates for registries, and a linker if Rust is used.
    fn packages(&self) -> &str {
        match self {
            User::OfSource(_) => "ca-certificates,gcc,libc6-dev",
            User::OfPackages(_) => "ca-certificates,python3-venv",
        }
    }

    fn toolchain(&self) -> &Path {
        match self {
            User::OfSource(toolchain) => toolchain,
            User::OfPackages(_) => Path::new(""),
        }
    }

    /// Copies what the user needs into the folder where the commands run.
    fn fill(&self, folder: &Path) -> Result {
        match self {
            User::OfSource(_) => step("git clone", || clone(folder)),
            User::OfPackages(files) => {
                let copy = |file: &PathBuf| fs::copy(file, folder.join(file.file_name().unwrap_or_default())).map(drop);
                let copied = fs::create_dir(folder).and_then(|()| files.iter().try_for_each(copy));
                copied.map_err(|e| format!("copy packages to {}: {e}", folder.display()))
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
    in_new_debian(SUITES[0], &User::OfSource(toolchain()?), &scripts)
}

/// Installs the files that `cargo xtask release` has made on this machine in a new Debian 12 and 13 without Rust, runs
/// programs with them, and removes them.
///
/// # Errors
/// The release was not made, a Debian cannot be created, or a command fails in it.
pub fn packages() -> Result {
    let dist = layout::target().join("dist");
    let musl = format!("/wireup-{}-{ARCH}-linux-musl", env!("CARGO_PKG_VERSION"));
    let endings = [format!("_{}.deb", debian::architecture(ARCH)), format!("{ARCH}.whl"), musl];
    let files = fs::read_dir(&dist).map(|files| files.flatten().map(|file| file.path()).collect::<Vec<_>>());
    let is_wanted = |path: &PathBuf| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending));
    let files: Vec<PathBuf> = files.unwrap_or_default().into_iter().filter(is_wanted).collect();
    if files.len() < endings.len() {
        return Err(format!("{} lacks some of {}: cargo xtask release", dist.display(), endings.join(", ")));
    }
    let user = User::OfPackages(files);
    SUITES.iter().try_for_each(|suite| in_new_debian(suite, &user, &[("packages".to_owned(), PACKAGES.to_owned())]))
}

/// Runs a script in the Debian system in `folder`, and creates that system first if there is none. `files` are copied
/// to `root/root/wireup` in that folder, where the script runs.
///
/// # Errors
/// The Debian cannot be created, or the script fails in it.
pub fn in_kept_debian(folder: &Path, suite: &str, files: Vec<PathBuf>, (name, script): (&str, &str)) -> Result {
    ensure_tools()?;
    let (root, here) = (folder.join("root"), folder.join("here"));
    // debootstrap has finished when it has removed its own folder.
    let is_made = root.join("etc").exists() && !root.join("debootstrap").exists();
    let left = [(!is_made).then_some(&root), Some(&here)];
    for path in left.into_iter().flatten().filter(|path| path.exists()) {
        step::run_quietly(as_root("rm").args(["-rf", "--one-file-system"]).arg(path))?;
    }
    fs::create_dir_all(folder).map_err(|e| format!("create {}: {e}", folder.display()))?;
    in_folder(folder, suite, &User::OfPackages(files), &[(name.to_owned(), script.to_owned())])
}

fn ensure_tools() -> Result {
    let is_missing = |tool: &&str| Command::new(tool).arg("--version").output().is_err();
    debian::ensure(&TOOLS.into_iter().filter(is_missing).collect::<Vec<_>>())
}

/// Runs scripts in a new Debian. `scripts`: name and text of each.
fn in_new_debian(suite: &str, user: &User, scripts: &[(String, String)]) -> Result {
    ensure_tools()?;
    let folder = layout::target().join(format!("fresh-{}", process::id()));
    fs::create_dir_all(&folder).map_err(|e| format!("create {}: {e}", folder.display()))?;
    let cleaner = Cleaner::start(&folder)?;
    let done = in_folder(&folder, suite, user, scripts);
    let removed = step("remove it", || cleaner.finish());
    done.and(removed)
}

fn in_folder(folder: &Path, suite: &str, user: &User, scripts: &[(String, String)]) -> Result {
    let carried = Carried::of_this_machine(suite);
    let root = folder.join("root");
    if !root.exists() {
        step(format!("debootstrap {suite} from {}", carried.mirror), || {
            bootstrap(&root, suite, user.packages(), &carried)
        })?;
    }
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

/// Runs debootstrap, in namespaces as well, because it mounts file systems and starts programs in the new Debian.
fn bootstrap(root: &Path, suite: &str, packages: &str, carried: &Carried) -> Result {
    let mut debootstrap = in_namespaces();
    debootstrap.arg("env").args(carried.proxies());
    debootstrap.args(["debootstrap", "--variant=minbase", &format!("--include={packages}"), suite]);
    step::run_quietly(debootstrap.arg(root).arg(&carried.mirror))
}

/// Clones the last commit, so that the clone is what other people get.
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

/// The folder of the Rust toolchain that builds this program.
fn toolchain() -> Result<PathBuf> {
    let found = PathBuf::from(rustc("sysroot")?);
    if found == Path::new("/usr") || !found.join("bin/cargo").exists() {
        let why = "is not the folder of a Rust toolchain, which could be lent to the new Debian; use one from rustup";
        return Err(format!("{} {why}", found.display()));
    }
    Ok(found)
}

/// Shell script of the cleaner: waits until its standard input, a pipe from this process, is closed. It ignores Ctrl-C
/// and hang-ups. It tries several times, since processes of the namespace may take a moment to die and create files
/// meanwhile.
const CLEANER: &str = "\
trap '' HUP INT TERM
cat >/dev/null
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf --one-file-system \"$1\" 2>/dev/null && exit
    sleep 1
done
rm -rf --one-file-system \"$1\"
";

/// Removes a folder when this process ends, in whatever way.
struct Cleaner(Child);

impl Cleaner {
    fn start(folder: &Path) -> Result<Cleaner> {
        let mut cleaner = as_root("sh");
        cleaner.args(["-c", CLEANER, "sh"]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::null());
        cleaner.spawn().map(Cleaner).map_err(|e| format!("sh: {e}"))
    }

    /// Lets the cleaner start, and waits until it has finished.
    fn finish(mut self) -> Result {
        // `wait` closes the cleaner's standard input first.
        let status = self.0.wait().map_err(|e| format!("wait for the cleaner: {e}"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the folder of the new Debian could not be removed: {status}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;

    #[test]
    fn the_folder_is_removed_only_at_finish() {
        if !crate::debian::is_root() {
            eprintln!("skipped: takes root");
            return;
        }
        let folder = env::temp_dir().join(format!("wireup-cleaner-{}", process::id()));
        fs::create_dir_all(folder.join("root/etc")).unwrap();
        let cleaner = Cleaner::start(&folder).unwrap();
        assert!(folder.join("root/etc").exists());
        cleaner.finish().unwrap();
        assert!(!folder.exists());
    }
}
