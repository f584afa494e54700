//! Finds the processes of one run by an environment variable that all of them inherit.

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::UnshareFlags;
use std::ffi::CString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, process};

/// A text unique to one run, in the environment of all of its processes, and the run's temporary folder.
#[derive(Clone)]
pub struct Mark {
    text: String,
}

/// A process of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    pub pid: Pid,
    pub parent: i32,
    /// State of the process: one letter, as `ps` shows it.
    pub state: char,
    pub name: String,
    pub command: String,
}

impl Mark {
    pub const VARIABLE: &str = "END_TO_END_MARK";

    #[expect(clippy::new_without_default, reason = "each mark is another one")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = Self { text: format!("{}-{}.", process::id(), COUNT.fetch_add(1, Ordering::Relaxed)) };
        fs::create_dir_all(mark.folder()).expect("create a temporary folder");
        mark
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The run's `TMPDIR`.
    pub fn folder(&self) -> PathBuf {
        std::env::temp_dir().join(format!("end-to-end-{}", self.text))
    }

    /// The run's own `/dev/shm`, once [`Self::give_memory_folder`] has given it one.
    pub fn memory_folder(&self) -> PathBuf {
        Path::new("/dev/shm").join(format!("end-to-end-{}", self.text))
    }

    /// Gives a command a `/dev/shm` of its own, if this user may mount: so the test knows what the command leaves
    /// there.
    pub fn give_memory_folder(&self, command: &mut Command) {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = self.memory_folder();
        // With the permissions of the usual `/dev/shm`: every user may create files in it.
        let made =
            fs::create_dir_all(&folder).and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o1777)));
        made.expect("create a folder in /dev/shm");
        let folder = CString::new(folder.into_os_string().into_encoded_bytes()).expect("a path without NUL");
        let mount = move || {
            // SAFETY: this process has only one thread, because it has just been forked.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)? };
            mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
            Ok(mount_bind(&*folder, c"/dev/shm")?)
        };
        // SAFETY: everything that is called between fork and exec is async-signal-safe.
        unsafe { command.pre_exec(mount) };
    }

    /// Files that the run has left in its own `/dev/shm`. A folder of staged files may stay there for the next job.
    /// wireup's own files are always reported, files of ranks only if `all` is true.
    pub fn files_in_memory(&self, all: bool) -> Vec<String> {
        let entries = fs::read_dir(self.memory_folder()).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let is_left = |name: &String| !name.starts_with("wireup-stage-") && (all || name.contains("wireup"));
        names.filter(is_left).collect()
    }

    /// The files that are in the run's temporary folder.
    pub fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.folder()).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// Every process that carries the mark, except zombies, sorted by pid.
    pub fn processes(&self) -> Vec<Process> {
        // A PMIx server inherits only a few variables; `TMPDIR` is one of them, so it is searched for as well.
        let needles = [format!("{}={}", Self::VARIABLE, self.text), format!("TMPDIR={}", self.folder().display())];
        let entries = fs::read_dir("/proc").expect("read /proc").flatten();
        let mut pids: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        pids.into_iter().filter(|pid| carries(*pid, &needles)).filter_map(process).collect()
    }

    pub fn kill_all(&self) {
        for _ in 0..100 {
            let all = self.processes();
            if all.is_empty() {
                return;
            }
            for process in all {
                // Errors are ignored: the process may have exited in the meantime.
                let _ = kill_process(process.pid, Signal::KILL);
            }
        }
    }
}

/// Processes as text for a message, one per line.
pub fn list(processes: &[Process]) -> String {
    let lines = processes.iter().map(|p| format!("\n  {} (of {}) {} {}", p.pid, p.parent, p.state, p.command));
    lines.collect()
}

fn carries(pid: i32, needles: &[String]) -> bool {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(|variable| needles.iter().any(|needle| needle.as_bytes() == variable))
}

/// The description of a process; `None` if it has exited or is a zombie.
fn process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = stat.rsplit_once(')')?;
    let mut fields = tail.split_whitespace();
    let (state, parent) = (fields.next()?.chars().next()?, fields.next()?.parse().ok()?);
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let name = head.split_once('(')?.1.to_owned();
    (state != 'Z').then_some(Process { pid: Pid::from_raw(pid)?, parent, state, name, command })
}
