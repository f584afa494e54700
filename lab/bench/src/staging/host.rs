//! What the benchmark does on one host: a process that stands there, started by the remote shell, told by lines on its
//! standard input.
//!
//! It owns a folder in the host's memory, starts relays that write into it, and reads the memory of agents. When its
//! input ends, so also when the benchmark or the remote shell ends, it kills its relay and removes the folder.
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::command;
use crate::machine::kib;

/// The first argument of such a process.
pub const WORD: &str = "stage-host";
/// Where its folder is made.
pub const MEMORY: &str = "/dev/shm";
/// The names of agents' processes; keepers and ranks have others.
const AGENTS: [&str; 2] = ["wireup", "wireup-session"];
/// Relays end by themselves when their stream has ended; one that has no caller is killed after this time (chosen).
const END_MAX: Duration = Duration::from_secs(1);
const GLANCE: Duration = Duration::from_millis(1);

/// An agent's number, and bytes of its memory.
pub type AgentMemory = (i32, u64);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Starts a relay that passes its stream on to these addresses.
    Relay { program: PathBuf, secret: String, below: Vec<String> },
    /// Ends the relay and removes what it has written.
    End,
    /// The memory of all agents now; their peaks begin anew.
    Agents,
    /// The peaks of these since then.
    Peaks(Vec<i32>),
    /// Bytes in the store.
    Stored,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The folder is there; which machine this is.
    Ready(String),
    Port(u16),
    Ended,
    Memory(Vec<AgentMemory>),
    Bytes(u64),
    Failed(String),
}

/// Runs such a process; `args` are those after the word: the name of its folder.
pub fn main(args: &[OsString]) -> u8 {
    let Some(name) = args.first() else { return 2 };
    let mut host = match Folder::create(&Path::new(MEMORY).join(name)) {
        Ok(folder) => Host { relay: None, folder },
        Err(why) => {
            say(&Reply::Failed(why));
            return 1;
        }
    };
    say(&Reply::Ready(machine()));
    for line in io::stdin().lines() {
        let Ok(order) = line.map_err(drop).and_then(|line| serde_json::from_str(&line).map_err(drop)) else { return 1 };
        say(&host.obey(order).unwrap_or_else(|error| Reply::Failed(error.to_string())));
    }
    0
}

fn say(reply: &Reply) {
    let line = serde_json::to_string(reply).unwrap_or_default();
    // If nobody reads it, the input ends as well.
    let _ = writeln!(io::stdout(), "{line}");
}

/// The same for all hosts that are one machine.
pub fn machine() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

struct Host {
    relay: Option<Child>,
    folder: Folder,
}

/// Removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn create(path: &Path) -> Result<Folder, String> {
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => Ok(Folder(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(format!("it has the same {MEMORY} as another host"))
            }
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }
}

impl Host {
    fn obey(&mut self, order: Order) -> io::Result<Reply> {
        Ok(match order {
            Order::Relay { program, secret, below } => Reply::Port(self.start_relay(&program, &secret, &below)?),
            Order::End => {
                self.end_relay()?;
                Reply::Ended
            }
            Order::Agents => Reply::Memory(agents()),
            Order::Peaks(pids) => Reply::Memory(peaks(&pids)),
            Order::Stored => Reply::Bytes(bytes_below(&self.folder.0)),
        })
    }

    fn stream(&self) -> PathBuf {
        self.folder.0.join("stream")
    }

    fn start_relay(&mut self, program: &Path, secret: &str, below: &[String]) -> io::Result<u16> {
        self.end_relay()?;
        let mut relay = Command::new(program);
        relay.arg(self.stream()).args(below).env("RELAY_SECRET", secret).stdin(Stdio::null()).stdout(Stdio::piped());
        // A group of its own, which `command::end` signals.
        let relay = self.relay.insert(relay.process_group(0).spawn()?);
        let mut line = String::new();
        if let Some(output) = relay.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let port = line.strip_prefix("port ").and_then(|port| port.trim().parse().ok());
        port.ok_or_else(|| io::Error::other("the relay has not started"))
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
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A store's folders may be read-only.
        if fs::remove_dir_all(&self.0).is_err() {
            permit(&self.0);
            let _ = fs::remove_dir_all(&self.0);
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
    entries(folder)
        .map(|(path, meta)| match (meta.is_dir(), meta.is_file()) {
            (true, _) => bytes_below(&path),
            (_, true) => meta.len() / meta.nlink().max(1),
            _ => 0,
        })
        .sum()
}

/// The agents that this process sees, also those of hosts that are its own machine. Their peaks begin anew.
pub fn agents() -> Vec<AgentMemory> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| is_agent(*pid))
        .filter_map(|pid| {
            // 5: the peak is what there is now.
            fs::write(format!("/proc/{pid}/clear_refs"), "5").ok()?;
            Some((pid, status_bytes(pid, "VmRSS")?))
        })
        .collect()
}

pub fn peaks(pids: &[i32]) -> Vec<AgentMemory> {
    pids.iter().filter_map(|pid| Some((*pid, status_bytes(*pid, "VmHWM")?))).collect()
}

fn is_agent(pid: i32) -> bool {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    exe.file_name().is_some_and(|name| name == "wireup") && AGENTS.contains(&name.trim())
}

fn status_bytes(pid: i32, name: &str) -> Option<u64> {
    kib(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::{Program, Scratch};

    const SECRET: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn a_folder_is_removed_with_read_only_folders_and_made_once_only() {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let path = scratch.file("memory");
        let folder = Folder::create(&path).unwrap();
        assert!(Folder::create(&path).is_err_and(|why| why.contains("as another host")));
        fs::create_dir(path.join("inner")).unwrap();
        fs::write(path.join("inner/file"), "1234").unwrap();
        fs::hard_link(path.join("inner/file"), path.join("other")).unwrap();
        fs::set_permissions(path.join("inner"), fs::Permissions::from_mode(0o500)).unwrap();
        assert_eq!(bytes_below(&path), 4);
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_chain_of_relays_copies_a_stream_to_each() {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let program = scratch.program(Program::Relay);
        let mut hosts =
            [0, 1].map(|i| Host { relay: None, folder: Folder::create(&scratch.file(&i.to_string())).unwrap() });
        let mut below = Vec::new();
        for host in hosts.iter_mut().rev() {
            let order = Order::Relay { program: program.clone(), secret: SECRET.into(), below };
            let Reply::Port(port) = host.obey(order).unwrap() else { panic!("no port") };
            below = vec![format!("127.0.0.1:{port}")];
        }
        let stream = scratch.file("stream");
        fs::write(&stream, vec![7; 3_000_000]).unwrap();
        let source = Command::new(program).arg("--source").arg(stream).args(below).env("RELAY_SECRET", SECRET).output();
        let said = String::from_utf8(source.unwrap().stdout).unwrap();
        assert!(said.starts_with("relayed 2 3000000 "), "{said}");
        for host in &mut hosts {
            assert_eq!(fs::read(host.stream()).unwrap(), vec![7; 3_000_000]);
            assert_eq!((host.obey(Order::End).unwrap(), host.stream().exists()), (Reply::Ended, false));
        }
    }

    #[test]
    fn the_memory_of_this_process_can_be_read() {
        let own = std::process::id() as i32;
        assert!(!is_agent(own) && peaks(&[own, -1])[0].1 > 0);
    }
}
