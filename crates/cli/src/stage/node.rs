//! What a rank of a staging job does on its node: `wireup stage-node WHAT STORE …`, a command that only wireup calls.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Cursor, Read, Write};
use std::path::Path;
use std::time::SystemTime;
use wireup_node::staged_store;
use wireup_os::process::{Confinement, confine};
use wireup_os::shm::{Incoming, RingReader, incoming};
use wireup_proto::exit_code::OURS;
use wireup_stage::Store;
use wireup_stage::answer::Answer;
use wireup_stage::gather::sending::gather;
use wireup_stage::receive::receive;
use wireup_stage::stream::{Buffered, Input};

/// Capacity of the pipe from a node's rank (bytes): four pieces.
const PIPE_LEN: usize = 1 << 20;

/// Runs `receive STORE MIB`, `list STORE`, `drop STORE [SET]...` or `gather`. An empty `STORE`: this node's usual one.
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    wireup_os::process::set_name(c"wireup-stage");
    // This process runs no other program. Setting the flag fails only on kernels before 3.5.
    let _ = rustix::thread::set_no_new_privs(true);
    let args: Vec<OsString> = args.collect();
    let done = match (args.first().and_then(|what| what.to_str()), args.get(1)) {
        (Some("receive"), Some(store)) => {
            let room = args.get(2).and_then(|mib| mib.to_str()?.parse().ok()).unwrap_or(0);
            receive_set(Path::new(store), room)
        }
        (Some("list"), Some(store)) => answer(list(Path::new(store))),
        (Some("drop"), Some(store)) => answer(drop_sets(Path::new(store), &args[2..])),
        (Some("gather"), None) => give(),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    if done.is_ok() { 0 } else { OURS }
}

fn answer(lines: Result<String, String>) -> io::Result<()> {
    let lines = lines.unwrap_or_else(|problem| Answer::Failed(problem).line());
    io::stdout().write_all(lines.as_bytes())
}

/// Receives a set. `room_mib`: size limit of the store (MiB); 0: half of what its file system has for it.
fn receive_set(store: &Path, room_mib: u64) -> io::Result<()> {
    let opened = staged_store::find_or_make_default(store).map_err(|error| error.to_string());
    match opened.and_then(|folder| Store::open(&folder, room_mib << 20).map_err(|problem| problem.to_string())) {
        Ok(store) => {
            let output = io::stdout().lock();
            // Best effort: on a kernel without Landlock the process keeps all rights of its user.
            let confine = || {
                let _ =
                    confine(&Confinement { read_only: &[], read_write: &[store.root()], remove: &[], network: false });
            };
            match incoming(rustix::stdio::stdin())? {
                Incoming::Ring(ring) => receive(&store, FromAgent(ring), output, confine),
                Incoming::Plain(first) => {
                    // Read without the buffer of the standard library, which would copy everything once more.
                    let rest = File::from(rustix::stdio::stdin().try_clone_to_owned()?);
                    receive(&store, Buffered::new(Cursor::new(first).chain(rest)), output, confine)
                }
            }
        }
        Err(problem) => answer(Err(problem)),
    }
}

/// The store, if there is one on this node.
pub fn existing(store: &Path) -> Result<Option<Store>, String> {
    let Some(folder) = staged_store::find(store).map_err(|error| error.to_string())? else { return Ok(None) };
    Store::open(&folder, u64::MAX).map(Some).map_err(|problem| problem.to_string())
}

/// The stream in a shared ring of memory that the agent fills.
struct FromAgent(RingReader);

impl Input for FromAgent {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn consume(&mut self, count: usize) {
        self.0.consume(count);
    }

    fn wait(&mut self) -> io::Result<bool> {
        self.0.wait(rustix::stdio::stdin())
    }
}

/// Sends files of this node.
fn give() -> io::Result<()> {
    // A larger pipe lets the agent read more at once. Fails beyond the user's limit for pipes, which does no harm.
    let _ = rustix::pipe::fcntl_setpipe_size(rustix::stdio::stdout(), PIPE_LEN);
    let own = std::env::var("WIREUP_RANK").ok().and_then(|rank| rank.parse().ok());
    let own = own.ok_or(io::ErrorKind::InvalidInput)?;
    let mut output = File::from(rustix::stdio::stdout().try_clone_to_owned()?);
    gather(own, &mut io::stdin().lock(), &mut output)
}

fn list(store: &Path) -> Result<String, String> {
    let Some(store) = existing(store)? else { return Ok(String::new()) };
    let sets = store.sets()?;
    let lines = sets.iter().map(|kept| {
        let age = SystemTime::now().duration_since(kept.used).map_or(0, |age| age.as_secs());
        let of = kept.roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(" ");
        let used = if kept.is_in_use { "used" } else { "idle" };
        format!("set {} {} {} {age} {used} {}\n", kept.name, kept.bytes, kept.files, of.replace('\n', "?"))
    });
    Ok(lines.collect())
}

/// Drops the sets of these names; without names, all sets.
fn drop_sets(store: &Path, names: &[OsString]) -> Result<String, String> {
    let mut lines = String::new();
    let Some(store) = existing(store)? else { return Ok(lines) };
    for kept in store.sets()? {
        let is_meant =
            names.is_empty() || names.iter().any(|name| name.to_str().is_some_and(|name| kept.name.starts_with(name)));
        if is_meant {
            let is_gone = store.drop_set(&kept.name)?;
            lines += &format!("{} {}\n", if is_gone { "dropped" } else { "busy" }, kept.name);
        }
    }
    Ok(lines)
}
