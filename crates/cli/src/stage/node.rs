//! What a rank of a staging job does on its node: `wireup stage-node WHAT STORE …`, a command that only wireup calls.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use wireup_os::shm::{Incoming, RingReader, incoming};
use wireup_proto::exit_code::OURS;
use wireup_stage::Store;
use wireup_stage::answer::Answer;
use wireup_stage::gather::sending::gather;
use wireup_stage::receive::receive;
use wireup_stage::stream::{Buffered, Input};

/// What the pipe from a node's rank holds (bytes): four pieces.
const PIPE_LEN: usize = 1 << 20;

/// `receive STORE MIB`, `list STORE`, `drop STORE [SET]...`, `gather`.
pub fn main(args: impl Iterator<Item = OsString>) -> u8 {
    wireup_os::process::set_name(c"wireup-stage");
    let args: Vec<OsString> = args.collect();
    let done = match (args.first().and_then(|what| what.to_str()), args.get(1)) {
        (Some("receive"), Some(store)) => {
            let room = args.get(2).and_then(|mib| mib.to_str()?.parse().ok()).unwrap_or(0);
            take(Path::new(store), room)
        }
        (Some("list"), Some(store)) => list(Path::new(store)),
        (Some("drop"), Some(store)) => drop_sets(Path::new(store), &args[2..]),
        (Some("gather"), None) => give(),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    if done.is_ok() { 0 } else { OURS }
}

fn say(line: &str) -> io::Result<()> {
    io::stdout().write_all(line.as_bytes())
}

/// `room_mib` 0: half of what is free.
fn take(store: &Path, room_mib: u64) -> io::Result<()> {
    match Store::open(store, room_mib << 20) {
        Ok(store) => {
            let output = io::stdout().lock();
            match incoming(rustix::stdio::stdin())? {
                Incoming::Ring(ring) => receive(&store, FromAgent(ring), output),
                Incoming::Plain(first) => {
                    // Without the buffer of the standard library, which would copy everything once more.
                    let rest = File::from(rustix::stdio::stdin().try_clone_to_owned()?);
                    receive(&store, Buffered::new(Cursor::new(first).chain(rest)), output)
                }
            }
        }
        Err(problem) => say(&Answer::Failed(problem.to_string()).line()),
    }
}

/// Memory that the agent fills.
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
    // More is read at once then. It is not permitted beyond a limit of the user's pipes.
    let _ = rustix::pipe::fcntl_setpipe_size(rustix::stdio::stdout(), PIPE_LEN);
    let own = std::env::var("WIREUP_RANK").ok().and_then(|rank| rank.parse().ok());
    let own = own.ok_or(io::ErrorKind::InvalidInput)?;
    let mut output = File::from(rustix::stdio::stdout().try_clone_to_owned()?);
    gather(own, &mut io::stdin().lock(), &mut output)
}

fn list(store: &Path) -> io::Result<()> {
    if !store.exists() {
        return Ok(());
    }
    let sets = Store::open(store, u64::MAX).and_then(|store| store.sets());
    match sets {
        Ok(sets) => sets.iter().try_for_each(|kept| {
            let age = SystemTime::now().duration_since(kept.used).map_or(0, |age| age.as_secs());
            let of = kept.roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(" ");
            let used = if kept.is_in_use { "used" } else { "idle" };
            say(&format!("set {} {} {} {age} {used} {}\n", kept.name, kept.bytes, kept.files, of.replace('\n', "?")))
        }),
        Err(problem) => say(&Answer::Failed(problem.to_string()).line()),
    }
}

/// Without names: all sets.
fn drop_sets(store: &Path, names: &[OsString]) -> io::Result<()> {
    if !store.exists() {
        return Ok(());
    }
    let dropped = Store::open(&PathBuf::from(store), u64::MAX).and_then(|store| {
        let mut lines = String::new();
        for kept in store.sets()? {
            let is_meant = names.is_empty()
                || names.iter().any(|name| name.to_str().is_some_and(|name| kept.name.starts_with(name)));
            if is_meant {
                let is_gone = store.drop_set(&kept.name)?;
                lines += &format!("{} {}\n", if is_gone { "dropped" } else { "busy" }, kept.name);
            }
        }
        Ok(lines)
    });
    match dropped {
        Ok(lines) => say(&lines),
        Err(problem) => say(&Answer::Failed(problem.to_string()).line()),
    }
}
