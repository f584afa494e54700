//! Chooses what the program does by its first word.
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::thread::{LinkNameSpaceType, ThreadNameSpaceType};

use crate::testbed::{StartError, Testbed};
use crate::{Spec, hub, slowfs, sys};

/// Exit codes for failures of this program itself, the same as wireup's.
const FAILED: i32 = 125;
const NOT_FOUND: i32 = 127;

const HELP: &str = "\
wireup-testbed: several hosts on one machine, as network name spaces (needs root)

  wireup-testbed run -n N [FLAGS] [--] COMMAND...   make N nodes, run COMMAND on their hub, take them down
  wireup-testbed slowfs FLAGS [--] COMMAND...       run COMMAND beside a slow read-only view of a folder

Every node has an sshd. COMMAND finds the nodes' names, n0,n1,..., in WIREUP_TESTBED_HOSTS, and on its PATH an ssh that
has the keys; its exit code is ours.
Addresses: 10.77.0.1 (n0), ...; by IPv6 n0-v6 is fd77::1; the hub is 10.77.0.254 and fd77::fe.
Nodes have their own network, host name, processes, /tmp, /run, /dev/shm and home directory; the rest is shared.

  -n, --nodes N              1 to 128
  --sshd-option [nI:]A=B     an option for sshd of node I, or of all: --sshd-option n2:MaxStartups=2:50:4
  --slurm                    Slurm over all nodes, slurmctld on n0: srun, sbatch and so on work on hub and nodes
  --slurm-cpus N             processors that Slurm takes every node to have (16)
  --slurm-option A=B         a line of slurm.conf: --slurm-option TreeWidth=2
  --clock-offsets            node I's monotonic clock is 100 s * (I + 1) ahead
  --no-trap                  no interface docker0 with 172.17.0.1 on hub and nodes
  --share DIR                nodes see DIR though it is below /tmp, /run, /dev/shm or the home directory

  wireup-testbed run -n 4 -- sh -c 'for host in n0 n1 n2 n3; do ssh $host hostname; done'
  wireup-testbed run -n 16 -- bash
  wireup-testbed run -n 4 --slurm -- srun -N 4 -n 16 hostname

slowfs mounts a folder as one busy file server would serve it, by FUSE, and unmounts it after COMMAND. Needs no nodes.

  --source DIR               the folder
  --mount DIR                where to mount it: an existing folder that is not inside of the source
  --view DIR                 also mount it there, with a cache of its own, as on another host (repeatable)
  --log FILE                 is appended to, one line for each operation: OPERATION PID PATH
  --delay-us N               how long an operation takes; they are served one at a time (200)
  --bandwidth-mb N           reads take as much longer as that many 10^6 bytes per second allow (500)
  --timeout-s N              how long attributes and look-ups are kept, also of files that do not exist (1)
  --cold                     the contents of a file are not kept from one opening to the next

  wireup-testbed slowfs --source /opt/app --mount /mnt --log /tmp/operations -- /mnt/bin/app
";

pub fn main(words: Vec<OsString>) -> u8 {
    let mut words = words.into_iter();
    let verb = words.nth(1).unwrap_or_else(|| "--help".into());
    let words: Vec<OsString> = words.collect();
    let asks = words.first().is_some_and(|word| word == "--help" || word == "-h");
    let code = match verb.to_str().unwrap_or_default() {
        "run" | "slowfs" if asks => help(),
        "run" => run(words),
        "serve" => serve(words),
        "inside" => inside(&words),
        "slowfs" => run_beside_slowfs(words),
        "slowfs-serve" => serve_slowfs(words),
        "--help" | "-h" | "help" => help(),
        other => fail(&format!("{other}: no such command; see wireup-testbed --help"), FAILED),
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn help() -> i32 {
    print!("{HELP}");
    0
}

fn fail(text: &str, code: i32) -> i32 {
    eprintln!("wireup-testbed: {text}");
    code
}

/// The path of this process's program.
fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into())
}

fn serve(mut words: Vec<OsString>) -> i32 {
    match Spec::parse(program(), &mut words) {
        Ok(spec) => hub::main(&spec),
        Err(error) => fail(&error, FAILED),
    }
}

fn run(mut words: Vec<OsString>) -> i32 {
    let spec = match Spec::parse(program(), &mut words) {
        Ok(_) if words.is_empty() => return fail("which command? wireup-testbed run -n N COMMAND...", FAILED),
        Ok(spec) => spec,
        Err(error) => return fail(&error, FAILED),
    };
    let testbed = match Testbed::start(&spec) {
        Ok(testbed) => testbed,
        Err(StartError::Unavailable(reason)) => return fail(&format!("no testbed on this machine: {reason}"), FAILED),
        Err(error) => return fail(&error.to_string(), FAILED),
    };
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    wait(testbed.enter(&mut command), &words[0])
}

fn run_beside_slowfs(mut words: Vec<OsString>) -> i32 {
    let spec = match slowfs::Spec::parse(program(), &mut words) {
        Ok(_) if words.is_empty() => return fail("which command? wireup-testbed slowfs FLAGS COMMAND...", FAILED),
        Ok(spec) => spec,
        Err(error) => return fail(&error, FAILED),
    };
    let serving = match slowfs::Serving::start(&spec) {
        Ok(serving) => serving,
        Err(error) => return fail(&error.to_string(), FAILED),
    };
    let mut command = Command::new(&words[0]);
    let code = wait(command.args(&words[1..]), &words[0]);
    drop(serving);
    code
}

fn serve_slowfs(mut words: Vec<OsString>) -> i32 {
    match slowfs::Spec::parse(program(), &mut words) {
        Ok(spec) => slowfs::serve(&spec),
        Err(error) => fail(&error, FAILED),
    }
}

/// Enters all name spaces of the node with the given first process, and runs the remaining words as a command there.
fn inside(words: &[OsString]) -> i32 {
    let pid = words.first().and_then(|word| word.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let (Some(pid), Some(program)) = (pid, words.get(1)) else {
        return fail("inside: expected a pid and a command", FAILED);
    };
    let folder = std::env::current_dir();
    let spaces = ThreadNameSpaceType::NETWORK
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
        | ThreadNameSpaceType::PROCESS_ID
        | ThreadNameSpaceType::MOUNT;
    let entered = rustix::process::pidfd_open(pid, PidfdFlags::empty()).and_then(|pidfd| {
        if let Ok(clocks) = std::fs::File::open(format!("/proc/{}/ns/time", pid.as_raw_pid())) {
            rustix::thread::move_into_link_name_space(clocks.as_fd(), Some(LinkNameSpaceType::Time))?;
        }
        rustix::thread::move_into_thread_name_spaces(pidfd.as_fd(), spaces)
    });
    if let Err(error) = entered {
        return fail(&format!("the node's name spaces: {error}"), FAILED);
    }
    // If the node does not have this folder, the command runs in the node's root folder.
    let _ = folder.map(std::env::set_current_dir);
    let mut command = Command::new(program);
    wait(command.args(&words[2..]), program)
}

/// Runs a command that is killed when this process ends; interrupts from the terminal affect only the command.
fn wait(command: &mut Command, name: &OsStr) -> i32 {
    sys::ignore_interrupts(true);
    let prepare = || {
        sys::ignore_interrupts(false);
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)
    };
    // SAFETY: between fork and exec only system calls are made, nothing is allocated.
    unsafe { command.pre_exec(prepare) };
    match command.status() {
        Ok(status) => code_of(status),
        Err(error) => fail(&format!("{}: {error}", name.to_string_lossy()), NOT_FOUND),
    }
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
