//! Debian packages: only the missing ones are installed.

use crate::step::{Result, run_quietly, step};
use std::process::Command;

/// What each package is for.
const PACKAGES: [(&str, &str); 9] = [
    ("gcc", "compiles the test programs"),
    ("libc6-dev", "their C library, the static one too"),
    ("python3-venv", "holds the peers that come from PyPI"),
    ("mpich", "MPICH 4 and its Hydra, a peer"),
    ("libmpich-dev", "programs linked to MPICH 4"),
    ("libpmi2-0-dev", "Slurm's PMI-2 client library"),
    ("openssh-client", "the ssh that users have"),
    (
        "openssh-server",
        "its daemon, on hosts that are network namespaces of this machine; none is left running outside",
    ),
    ("valgrind", "a wrapper around MPI programs"),
];

/// Installs what is missing; as another user than root by `sudo`.
///
/// # Errors
/// This is not Debian, or `apt-get` fails.
pub fn install() -> Result {
    let missing: Vec<&str> = PACKAGES.iter().map(|(name, _)| *name).filter(|name| !installed(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if Command::new("apt-get").arg("--version").output().is_err() {
        return Err(format!("no apt-get here; install what Debian calls {} and run again", missing.join(" ")));
    }
    step(format!("Debian packages: {}", missing.join(" ")), || {
        run_quietly(apt_get().args(["update", "-q"]))?;
        run_quietly(apt_get().args(["install", "-qy", "--no-install-recommends"]).args(&missing))
    })
}

fn installed(package: &str) -> bool {
    let output = Command::new("dpkg-query").args(["-W", "-f", "${Status}", package]).output();
    output.is_ok_and(|output| output.stdout.ends_with(b"ok installed"))
}

fn apt_get() -> Command {
    let mut command = if is_root() {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        sudo
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether namespaces can be made, and packages installed, without asking.
pub fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
