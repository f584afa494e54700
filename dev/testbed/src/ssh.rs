//! An sshd on every node, with the testbed's own keys and configuration.
//!
//! One host key and one user key serve all nodes. `ssh` on the testbed's PATH is the system's, with only the testbed's
//! configuration; neither the user's nor the machine's is read.
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::daemon::{self, listens};
use crate::mounts::{OWN, PROGRAMS};

const SSHD: &str = "/usr/sbin/sshd";
const SSH: &str = "/usr/bin/ssh";
const KEYGEN: &str = "/usr/bin/ssh-keygen";
/// The part of `PATH` after the testbed's own folder, for commands on the hub and the nodes.
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const PORT: u16 = 22;
const LOG: &str = "/run/sshd.log";

/// The first program of OpenSSH that is missing on this machine, if any.
pub fn missing() -> Option<String> {
    let missing = [SSHD, SSH, KEYGEN].into_iter().find(|path| !Path::new(path).exists())?;
    Some(format!("{missing} is not there; Debian has it in openssh-server and openssh-client"))
}

/// Writes keys, configurations and the wrapper script for `ssh` into the testbed's own folder.
pub fn prepare() -> io::Result<()> {
    let folder = format!("{OWN}/ssh");
    fs::create_dir(&folder)?;
    fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
    for key in ["host", "user"] {
        make_key(&format!("{folder}/{key}"))?;
    }
    let host_key = fs::read_to_string(format!("{folder}/host.pub"))?;
    fs::write(format!("{folder}/known_hosts"), format!("n*,10.77.*,fd77:* {host_key}"))?;
    fs::copy(format!("{folder}/user.pub"), format!("{folder}/authorized_keys"))?;
    fs::write(format!("{folder}/sshd_config"), daemon_config(&folder))?;
    fs::write(format!("{folder}/config"), client_config(&folder))?;
    let wrapper = format!("{PROGRAMS}/ssh");
    fs::write(&wrapper, format!("#!/bin/sh\nexec {SSH} -F {folder}/config \"$@\"\n"))?;
    fs::set_permissions(&wrapper, Permissions::from_mode(0o755))?;
    unlock_root()
}

fn make_key(path: &str) -> io::Result<()> {
    let output =
        Command::new(KEYGEN).args(["-q", "-t", "ed25519", "-N", "", "-C", "wireup-testbed", "-f", path]).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{KEYGEN}: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}

fn daemon_config(folder: &str) -> String {
    format!(
        "Port {PORT}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized_keys\nPidFile none\n\
         PermitRootLogin prohibit-password\nPubkeyAuthentication yes\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nUsePAM no\nStrictModes no\nUseDNS no\nPrintMotd no\nPrintLastLog no\n\
         X11Forwarding no\nSetEnv PATH={PROGRAMS}:{SYSTEM_PATH}\n"
    )
}

fn client_config(folder: &str) -> String {
    format!(
        "Host *\n  User root\n  IdentityFile {folder}/user\n  IdentitiesOnly yes\n  IdentityAgent none\n  \
         UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  \
         UpdateHostKeys no\n  PasswordAuthentication no\n  KbdInteractiveAuthentication no\n  \
         GSSAPIAuthentication no\n  LogLevel ERROR\n"
    )
}

/// Gives root a password entry that is not locked, in a shadow file that only the testbed sees: without PAM, sshd
/// refuses an account with a locked password even if keys are used.
fn unlock_root() -> io::Result<()> {
    let shadow = fs::read_to_string("/etc/shadow")?;
    let Some(rest) = shadow.strip_prefix("root:!") else { return Ok(()) };
    let (_, rest) = rest.split_once(':').unwrap_or_default();
    let own = format!("{OWN}/ssh/shadow");
    fs::write(&own, format!("root:*:{rest}"))?;
    fs::set_permissions(&own, Permissions::from_mode(0o600))?;
    crate::mounts::cover(Path::new("/etc/shadow"), Path::new(&own))
}

/// Starts the sshd of this node, waits until it listens, and returns its pid.
pub fn start_daemon(options: &[String]) -> io::Result<u32> {
    fs::create_dir_all("/run/sshd")?;
    let mut command = Command::new(SSHD);
    command.args(["-D", "-f", &format!("{OWN}/ssh/sshd_config"), "-E", LOG]);
    command.args(options.iter().flat_map(|option| ["-o", option]));
    daemon::start(&mut command, Path::new(LOG), || listens(PORT))
}
