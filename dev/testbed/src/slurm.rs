//! A real Slurm on the nodes: slurmctld on n0, slurmd everywhere, munge with a key of the testbed's own.
//!
//! Hub and nodes find Slurm's configuration in the place where this machine's own Slurm would have it, so that `srun`
//! works on all of them without options; this machine's own configuration is not read. Nodes have as many processors as
//! configured, jobs get whole nodes, steps run as root, and there are neither cgroups nor accounting.
mod conf;
mod daemons;

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::mounts::{self, OWN, PROGRAMS};
use crate::spec::Spec;

pub use daemons::{await_nodes, start_on_hub, start_on_node};

/// The folder in which Debian's Slurm looks for its configuration.
const CONF_FOLDER: &str = "/etc/slurm";
const MUNGED: &str = "/usr/sbin/munged";
const SLURMCTLD: &str = "/usr/sbin/slurmctld";
const SLURMD: &str = "/usr/sbin/slurmd";
const SINFO: &str = "/usr/bin/sinfo";
/// Size of the munge key in bytes (munge accepts 32 to 1024).
const KEY_BYTES: usize = 128;

/// The first program of Slurm or munge that is missing on this machine, if any.
pub fn missing() -> Option<String> {
    let missing = [MUNGED, SLURMCTLD, SLURMD, SINFO, CONF_FOLDER].into_iter().find(|path| !Path::new(path).exists())?;
    Some(format!("{missing} is not there; Debian has it in munge, slurmctld, slurmd and slurm-client"))
}

/// Writes munge's key and Slurm's configuration into the testbed's own folder, and covers the machine's configuration.
pub fn prepare(spec: &Spec) -> io::Result<()> {
    let folder = format!("{OWN}/slurm");
    fs::create_dir(&folder)?;
    fs::create_dir(daemons::MUNGE_FOLDER)?;
    let key = Path::new(daemons::KEY);
    let mut bytes = [0; KEY_BYTES];
    io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut bytes)?;
    fs::write(key, bytes)?;
    fs::set_permissions(key, Permissions::from_mode(0o400))?;
    for name in ["munge", "unmunge"] {
        // Without this option the programs would look for the machine's own munged.
        let script = format!("#!/bin/sh\nexec /usr/bin/{name} --socket={} \"$@\"\n", daemons::SOCKET);
        let path = format!("{PROGRAMS}/{name}");
        fs::write(&path, script)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    let own = format!("{folder}/conf");
    fs::create_dir(&own)?;
    fs::write(format!("{own}/slurm.conf"), conf::text(spec))?;
    mounts::cover(Path::new(CONF_FOLDER), Path::new(&own))
}

/// Removes the variables of a Slurm job that the caller may run in from a command's environment; variables that were
/// set explicitly on the command are kept.
pub fn forget_others(command: &mut Command) -> &mut Command {
    let told: Vec<OsString> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"SLURM_") && !told.contains(&name) {
            command.env_remove(name);
        }
    }
    command
}

/// The `sinfo` command that prints the number of nodes in each state.
pub fn ask_states() -> Command {
    let mut command = Command::new(SINFO);
    forget_others(command.args(["--noheader", "--format=%D %T"]).stdin(Stdio::null()));
    command
}

/// Whether `sinfo` has printed (`said`) that all nodes are idle.
pub fn all_idle(said: &[u8], nodes: u16) -> bool {
    said.trim_ascii() == format!("{nodes} idle").as_bytes()
}
