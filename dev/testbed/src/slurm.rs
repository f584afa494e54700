//! A real Slurm on the nodes: slurmctld on n0, slurmd everywhere, munge with a key of the testbed's own.
//!
//! Hub and nodes find Slurm's configuration in the place where this machine's own Slurm would have it, so that `srun`
//! works on all of them without options; this machine's own configuration is not read. Nodes have as many processors as
//! configured, jobs get whole nodes, steps run as root, and there are neither cgroups nor accounting.
//!
//! Each daemon runs in the foreground as a child of its node's first process. Every node and the hub have their own
//! munged; each slurmd starts after slurmctld listens, so that it need not retry. Munge's socket has the same path
//! everywhere, so each node covers the socket's folder with a folder of its own.
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::daemon::{self, await_that, listens, log_end};
use crate::mounts::{self, OWN, PROGRAMS};
use crate::spec::{Spec, name};

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
    fs::create_dir(MUNGE_FOLDER)?;
    let key = Path::new(KEY);
    let mut bytes = [0; KEY_BYTES];
    io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut bytes)?;
    fs::write(key, bytes)?;
    fs::set_permissions(key, Permissions::from_mode(0o400))?;
    for name in ["munge", "unmunge"] {
        // Without this option the programs would look for the machine's own munged.
        let script = format!("#!/bin/sh\nexec /usr/bin/{name} --socket={} \"$@\"\n", SOCKET);
        let path = format!("{PROGRAMS}/{name}");
        fs::write(&path, script)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    let own = format!("{folder}/conf");
    fs::create_dir(&own)?;
    fs::write(format!("{own}/slurm.conf"), conf(spec))?;
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

const KEY: &str = "/run/wireup-testbed/slurm/munge.key";
const MUNGE_FOLDER: &str = "/run/wireup-testbed/munge";
const SOCKET: &str = "/run/wireup-testbed/munge/socket";
const MUNGE_FOLDER_BYTES: u64 = 1 << 20;
/// The file that exists once slurmctld listens.
const IS_UP: &str = "/run/wireup-testbed/slurm/up";
const CTLD_PORT: u16 = 6817;
const SLURMD_PORT: u16 = 6818;
const CTLD_LOG: &str = "/run/slurmctld.log";
const SLURMD_LOG: &str = "/run/slurmd.log";
/// The file for slurmctld's standard error: the lines of its log without times, and the only output before it opens a
/// log.
const CTLD_SAID: &str = "/run/slurmctld.stderr";
const SLURMD_SAID: &str = "/run/slurmd.stderr";
const STATE_FOLDERS: [&str; 2] = ["/run/slurmctld", "/run/slurmd"];

/// Starts munged on the hub, which Slurm's commands there need.
pub fn start_on_hub() -> io::Result<()> {
    let die_with_us = || rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into);
    let mut munged = munged();
    // SAFETY: between fork and exec a single system call is made, nothing is allocated.
    unsafe { munged.pre_exec(die_with_us) };
    start_munged(&mut munged).map(drop)
}

/// Starts the daemons of node `i`; returns their pids.
pub fn start_on_node(i: u16) -> io::Result<Vec<u32>> {
    mounts::small_disk(Path::new(MUNGE_FOLDER), MUNGE_FOLDER_BYTES)?;
    STATE_FOLDERS.iter().try_for_each(fs::create_dir_all)?;
    let mut pids = vec![start_munged(&mut munged())?];
    if i == 0 {
        let ctld = daemon::start(&mut foreground(SLURMCTLD), Path::new(CTLD_SAID), || listens(CTLD_PORT))?;
        pids.push(ctld);
        pids.extend(children(ctld)?);
        fs::write(IS_UP, "")?;
    } else if !await_that(|| Ok(Path::new(IS_UP).exists()), || Ok(true))? {
        return Err(io::Error::other("slurmctld is not up"));
    }
    pids.push(daemon::start(&mut foreground(SLURMD), Path::new(SLURMD_SAID), || listens(SLURMD_PORT))?);
    Ok(pids)
}

fn munged() -> Command {
    let mut command = Command::new(MUNGED);
    command.arg("--foreground").args([("--key-file", KEY.into()), ("--socket", SOCKET.into())].map(option));
    command.args([("--pid-file", "pid"), ("--seed-file", "seed")].map(|(name, file)| option((name, own(file)))));
    command
}

fn start_munged(command: &mut Command) -> io::Result<u32> {
    daemon::start(command, Path::new(&own("log")), || Ok(UnixStream::connect(SOCKET).is_ok()))
}

fn own(file: &str) -> String {
    format!("{MUNGE_FOLDER}/{file}")
}

fn option((name, value): (&str, String)) -> String {
    format!("{name}={value}")
}

fn foreground(program: &str) -> Command {
    let mut command = Command::new(program);
    forget_others(command.arg("-D"));
    command
}

/// The child processes of a process: slurmctld has one that runs scripts.
fn children(pid: u32) -> io::Result<Vec<u32>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?;
    let mut all = Vec::new();
    for thread in threads {
        let list = fs::read_to_string(thread?.path().join("children"))?;
        all.extend(list.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Ok(all)
}

/// Waits, on the hub, until all nodes are idle; `roots` are the paths at which the hub sees each node's files.
pub fn await_nodes(roots: &[PathBuf]) -> io::Result<()> {
    let mut said = String::new();
    let all_there = || {
        let output = ask_states().output()?;
        said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
        Ok(all_idle(&output.stdout, roots.len() as u16))
    };
    if await_that(all_there, || Ok(true))? {
        return Ok(());
    }
    let log = |root: Option<&PathBuf>, log: &str| {
        root.map(|root| log_end(&root.join(log.trim_start_matches('/')))).unwrap_or_default()
    };
    let (ctld, slurmd) = (log(roots.first(), CTLD_LOG), log(roots.last(), SLURMD_LOG));
    Err(io::Error::other(format!("not all are idle: {said}\nslurmctld of n0: {ctld}\nslurmd of the last: {slurmd}")))
}

/// Settings that require nothing special of this machine (no cgroups, no accounting, no mail) and delay nothing: a node
/// that returns is used again, and processes that ignore a signal are killed 2 s later.
const SETTINGS: [(&str, &str); 26] = [
    ("ClusterName", "testbed"),
    ("SlurmctldHost", "n0"),
    ("SlurmUser", "root"),
    ("AuthType", "auth/munge"),
    ("ProctrackType", "proctrack/linuxproc"),
    ("TaskPlugin", "task/none"),
    ("SwitchType", "switch/none"),
    ("JobAcctGatherType", "jobacct_gather/none"),
    ("AccountingStorageType", "accounting_storage/none"),
    ("JobCompType", "jobcomp/none"),
    ("MailProg", "/bin/true"),
    ("MpiDefault", "none"),
    ("SelectType", "select/cons_tres"),
    ("SelectTypeParameters", "CR_CPU"),
    ("SchedulerType", "sched/builtin"),
    ("SchedulerParameters", "batch_sched_delay=0"),
    ("SlurmdParameters", "config_overrides"),
    ("ReturnToService", "2"),
    ("KillWait", "2"),
    ("MaxTasksPerNode", "4096"),
    ("StateSaveLocation", "/run/slurmctld"),
    ("SlurmdSpoolDir", "/run/slurmd"),
    ("SlurmctldPidFile", "/run/slurmctld.pid"),
    ("SlurmdPidFile", "/run/slurmd.pid"),
    ("SlurmctldLogFile", CTLD_LOG),
    ("SlurmdLogFile", SLURMD_LOG),
];

/// The contents of `slurm.conf`. The specification's options replace or extend all lines but the last ones.
fn conf(spec: &Spec) -> String {
    let ports = [("SlurmctldPort", CTLD_PORT), ("SlurmdPort", SLURMD_PORT)];
    let ports = ports.into_iter().map(|(name, port)| (name, port.to_string()));
    let socket = [("AuthInfo", format!("socket={SOCKET}"))];
    let own = SETTINGS.into_iter().map(|(name, value)| (name, value.to_owned())).chain(ports).chain(socket);
    let options: Vec<(&str, &str)> = spec.slurm_options.iter().filter_map(|option| option.split_once('=')).collect();
    let replaced = |name: &str| options.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
    let mut text: String =
        own.filter(|(name, _)| !replaced(name)).map(|(name, value)| format!("{name}={value}\n")).collect();
    text.extend(options.iter().map(|(name, value)| format!("{name}={value}\n")));
    let nodes = if spec.nodes == 1 { name(0) } else { format!("n[0-{}]", spec.nodes - 1) };
    text += &format!("NodeName={nodes} CPUs={} State=UNKNOWN\n", spec.slurm_cpus);
    text + "PartitionName=all Nodes=ALL Default=YES OverSubscribe=EXCLUSIVE MaxTime=INFINITE State=UP\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_options_replace_defaults_or_are_added() {
        let mut spec = Spec::new("x", 3);
        spec.slurm_cpus = 5;
        spec.slurm_options = vec!["killwait=9".into(), "TreeWidth=2".into()];
        let text = conf(&spec);
        let of = |name: &str| -> Vec<&str> {
            let lines = text.lines().filter_map(|line| line.split_once('='));
            lines.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
        };
        assert_eq!((of("KillWait"), of("TreeWidth"), of("SlurmUser")), (vec!["9"], vec!["2"], vec!["root"]));
        assert_eq!(of("NodeName"), ["n[0-2] CPUs=5 State=UNKNOWN"]);
    }
}
