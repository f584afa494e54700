//! Debian packages: installs only the missing ones.

use crate::step::{Result, run_quietly, step};
use std::process::Command;

/// What a set-up is for. Each purpose needs all that those above it need. The test suites of other projects install
/// their own packages (`suites`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Purpose {
    /// `cargo xtask demo`
    Demo,
    /// `cargo xtask test`, and plain `cargo test`
    Test,
}

use Purpose::{Demo, Test};

/// Debian packages: name, the first purpose that needs the package, and what the package is for.
const PACKAGES: [(&str, Purpose, &str); 32] = [
    ("gcc", Demo, "compiles the test programs"),
    ("libc6-dev", Demo, "their C library, the static one too"),
    ("python3-venv", Demo, "holds the peers that come from PyPI"),
    ("openssh-client", Demo, "the ssh that users have"),
    ("openssh-server", Demo, "its daemon, on hosts that are network namespaces of this machine"),
    ("iproute2", Demo, "ip: the network of these hosts, and by it tests break routes between them"),
    ("mpich", Test, "MPICH 4 and its Hydra, a peer"),
    ("libmpich-dev", Test, "programs linked to MPICH 4"),
    ("libpmi2-0-dev", Test, "Slurm's PMI-2 client library"),
    ("libpmi0-dev", Test, "Slurm's PMI-1 client library"),
    ("munge", Test, "what Slurm's daemons know each other by"),
    ("slurmctld", Test, "Slurm on hosts that are network namespaces: its one daemon for all of them"),
    ("slurmd", Test, "its daemon for each"),
    ("slurm-client", Test, "srun, sbatch, scancel"),
    ("libpmix2", Test, "the PMIx library that wireup opens for Open MPI"),
    ("libpmix-dev", Test, "programs linked to PMIx; the name by which Slurm opens it"),
    ("openmpi-bin", Test, "Open MPI 4 and its mpirun, a peer"),
    ("libopenmpi-dev", Test, "programs linked to Open MPI 4 and to its OpenSHMEM"),
    ("ucx-utils", Test, "ucx_perftest, what links between agents are compared with; brings libucp"),
    ("libfabric-dev", Test, "libfabric, over which ranks send messages, and its headers"),
    ("nftables", Test, "firewalls between hosts"),
    ("procps", Test, "kill, pkill and ps, by which tests end processes and look for what is left"),
    ("valgrind", Test, "a wrapper around MPI programs"),
    ("cmake", Test, "finds mpiexec as users' projects do"),
    ("make", Test, "builds them, and suites of others"),
    ("pypy3", Test, "a language that compiles at run time, which is staged"),
    ("groff-base", Test, "checks the manual pages"),
    ("mandoc", Test, "checks them too: BSD and Alpine show pages by it"),
    ("fish", Test, "a shell whose completions are tested, next to bash"),
    ("zsh", Test, "another one"),
    ("python3-torch", Test, "PyTorch 1.13, whose processes use the store of their agents"),
    ("elfutils", Test, "eu-stack, which shows the call stacks of ranks"),
];

/// A shell script that installs packages without starting their daemons on this machine, unless the machine has its own
/// rule for that.
const INSTALL: &str = "\
rule=/usr/sbin/policy-rc.d
if [ ! -e $rule ]; then
    trap 'rm -f $rule' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\\nexit 101\\n' >$rule && chmod 755 $rule || exit
fi
apt-get install \"$@\"
";

/// Installs the Debian packages that `purpose` needs and that are missing; uses `sudo` unless run as root.
///
/// # Errors
/// This is not Debian, or `apt-get` fails.
pub fn install(purpose: Purpose) -> Result {
    ensure(&packages(purpose))
}

/// The names of the Debian packages that `purpose` needs.
pub fn packages(purpose: Purpose) -> Vec<&'static str> {
    PACKAGES.iter().filter(|(_, first, _)| *first <= purpose).map(|(name, ..)| *name).collect()
}

/// Installs those of `packages` that are missing.
///
/// # Errors
/// As [`install`].
pub fn ensure(packages: &[&str]) -> Result {
    let missing: Vec<&str> = packages.iter().copied().filter(|name| !installed(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if Command::new("apt-get").arg("--version").output().is_err() {
        return Err(format!("no apt-get here; install what Debian calls {} and run again", missing.join(" ")));
    }
    step(format!("Debian packages: {}", missing.join(" ")), || {
        run_quietly(as_root("apt-get").args(["update", "-q"]))?;
        run_quietly(as_root("sh").args(["-c", INSTALL, "sh", "-qy", "--no-install-recommends"]).args(&missing))
    })
}

fn installed(package: &str) -> bool {
    let output = Command::new("dpkg-query").args(["-W", "-f", "${Status}", package]).output();
    output.is_ok_and(|output| output.stdout.ends_with(b"ok installed"))
}

/// Debian's name for an architecture with Rust's name `name`.
pub(crate) fn architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A command that runs as root: through `sudo` unless this process runs as root.
pub fn as_root(program: &str) -> Command {
    let mut command = if is_root() {
        Command::new(program)
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["DEBIAN_FRONTEND=noninteractive", program]);
        sudo
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether this process runs as root, so that it can create namespaces and install packages without `sudo`.
pub fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
