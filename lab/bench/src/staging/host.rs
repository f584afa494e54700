//! What the benchmark does on one host: a process that stands there, started by the remote shell, told by lines on its
//! standard input.
//!
//! ```text
//!   relay SECRET ADDRESS..   starts a relay that passes its stream on to these addresses; answers with its port
//!   end                      ends the relay and removes what it has written
//!   agents                   PID:BYTES:PEAK of each agent: its memory, and the most since the last such question
//!   stored                   bytes in the store
//! ```
//!
//! It owns a folder in the host's memory. When its input ends, so also when the benchmark or the remote shell ends, it
//! kills its relay and removes the folder. An answer that begins with `failed` says why it could not obey.
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::relay;
use crate::command;
use crate::machine::kib;

/// The first argument of such a process; the name of its folder follows.
pub const WORD: &str = "stage-host";
/// Where its folder is made.
pub const MEMORY: &str = "/dev/shm";
/// The names of agents' processes; keepers and ranks have others.
const AGENTS: [&str; 2] = ["wireup", "wireup-session"];
/// Relays end by themselves when their stream has ended; one that has no caller is killed after this time (chosen).
const END_MAX: Duration = Duration::from_secs(1);
const GLANCE: Duration = Duration::from_millis(1);

/// `args` are those after the word.
///
/// # Errors
/// The folder cannot be made, or the input cannot be read.
pub fn run(args: &[OsString]) -> io::Result<()> {
    let name = args.first().ok_or_else(|| io::Error::other("wireup bench stage starts it itself"))?;
    let mut host = Host::create(Path::new(MEMORY).join(name))?;
    println!("{}", machine());
    for line in io::stdin().lines() {
        println!("{}", host.obey(&line?).unwrap_or_else(|error| format!("failed {error}")));
    }
    Ok(())
}

/// Equal for all hosts that are one machine.
pub fn machine() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

struct Host {
    relay: Option<Child>,
    /// Removed when the host is dropped.
    folder: PathBuf,
}

impl Host {
    fn create(folder: PathBuf) -> io::Result<Host> {
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => Ok(Host { relay: None, folder }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(io::Error::other(format!("it has the same {MEMORY} as another host")))
            }
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display()))),
        }
    }

    fn obey(&mut self, order: &str) -> io::Result<String> {
        let words: Vec<&str> = order.split_whitespace().collect();
        match &words[..] {
            ["relay", secret, below @ ..] => self.start_relay(secret, below),
            ["end"] => self.end_relay().map(|()| String::new()),
            ["agents"] => Ok(agents()),
            ["stored"] => Ok(bytes_below(&self.folder).to_string()),
            _ => Err(io::Error::other(format!("unknown order: {order}"))),
        }
    }

    fn stream(&self) -> PathBuf {
        self.folder.join("stream")
    }

    fn start_relay(&mut self, secret: &str, below: &[&str]) -> io::Result<String> {
        self.end_relay()?;
        let mut relay = Command::new(std::env::current_exe()?);
        relay.arg(relay::WORD).arg(self.stream()).args(below).env(relay::SECRET, secret);
        // A group of its own, which `command::end` signals.
        relay.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let relay = self.relay.insert(relay.spawn()?);
        let mut line = String::new();
        if let Some(output) = relay.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        match line.trim() {
            "" => Err(io::Error::other("the relay has not started")),
            port => Ok(port.to_owned()),
        }
    }

    fn end_relay(&mut self) -> io::Result<()> {
        let Some(mut relay) = self.relay.take() else { return Ok(()) };
        let until = Instant::now() + END_MAX;
        while Instant::now() < until && matches!(relay.try_wait(), Ok(None)) {
            std::thread::sleep(GLANCE);
        }
        command::end(&mut relay);
        match fs::remove_file(self.stream()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.end_relay();
        // A store's folders may be read-only.
        if fs::remove_dir_all(&self.folder).is_err() {
            permit(&self.folder);
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = (PathBuf, fs::Metadata)> {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter_map(|path| fs::symlink_metadata(&path).ok().map(|meta| (path, meta)))
}

fn permit(folder: &Path) {
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    entries(folder).filter(|(_, meta)| meta.is_dir()).for_each(|(path, _)| permit(&path));
}

/// Of files; those with several names count once.
fn bytes_below(folder: &Path) -> u64 {
    let of = |(path, meta): (PathBuf, fs::Metadata)| match (meta.is_dir(), meta.is_file()) {
        (true, _) => bytes_below(&path),
        (_, true) => meta.len() / meta.nlink().max(1),
        _ => 0,
    };
    entries(folder).map(of).sum()
}

/// The agents that this process sees, also those of hosts that are its own machine, with their memory and its peak. The
/// peaks begin anew.
pub fn agents() -> String {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let told = pids.filter(|pid| is_agent(*pid)).filter_map(|pid| {
        let [now, peak] = memory_and_peak(pid)?;
        // 5: the peak is what there is now.
        fs::write(format!("/proc/{pid}/clear_refs"), "5").ok()?;
        Some(format!("{pid}:{now}:{peak}"))
    });
    told.collect::<Vec<_>>().join(" ")
}

fn is_agent(pid: i32) -> bool {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    exe.file_name().is_some_and(|name| name == "wireup") && AGENTS.contains(&name.trim())
}

fn memory_and_peak(pid: i32) -> Option<[u64; 2]> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some([kib(&text, "VmRSS")?, kib(&text, "VmHWM")?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Scratch;

    #[test]
    fn a_folder_is_removed_with_read_only_folders_and_made_once_only() {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let path = scratch.file("memory");
        let mut host = Host::create(path.clone()).unwrap();
        assert!(Host::create(path.clone()).is_err_and(|why| why.to_string().contains("as another host")));
        fs::create_dir(path.join("inner")).unwrap();
        fs::write(path.join("inner/file"), "1234").unwrap();
        fs::hard_link(path.join("inner/file"), path.join("other")).unwrap();
        fs::set_permissions(path.join("inner"), fs::Permissions::from_mode(0o500)).unwrap();
        assert_eq!(host.obey("stored").unwrap(), "4");
        assert!(host.obey("dance").is_err() && host.obey("end").is_ok() && host.obey("agents").is_ok());
        drop(host);
        assert!(!path.exists());
        let own = std::process::id() as i32;
        assert!(!is_agent(own) && memory_and_peak(own).is_some_and(|[now, peak]| 0 < now && now <= peak));
    }
}
