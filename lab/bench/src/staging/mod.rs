//! `wireup bench stage`: copies of files to the nodes of a session, in turns with bare relays of the same bytes.
//!
//! A case is a `tree` of files. A helper process on each host (`host`) starts relays and reads the memory of agents.
//! `session` has wireup as a contestant. The other contestants are a chain and a binary tree with one `relay` on each
//! host; the relays are started before the time is measured.
pub mod host;
mod relay;
mod session;
mod tree;

use std::cell::RefCell;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use procfs::{Current, Meminfo};
use serde_json::json;
use wireup_flags::{Command, Flag, Section, Value};
use wireup_os::random;

use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, wrong};
use crate::flags::{ACROSS, LIMIT, NO_WORDS, RESULTS, ROUNDS, WIREUP, parts, together};
use crate::remote::Remotes;
use crate::samples::{Measures, print, rate, seconds};
use session::{LIMIT_S, SESSIONS, Session, ask};
use tree::Tree;

const TREES: Flag = Flag::value(&["--tree"], "A,B,..", "Only these.").or("mixed,random,small");
const MIB: Flag = Flag::value(&["--mib"], "N", "Size of the trees mixed and random.").or("256");
const SMALL_FILES: Flag = Flag::value(&["--small-files"], "N", "Files of the tree small.").or("10000");
const SMALL_MIB: Flag = Flag::value(&["--small-mib"], "N", "Size of the tree small.").or("100");

pub const COMMAND: Command = Command {
    name: "bench stage",
    purpose: "time copies of files to the nodes of a session",
    intro: "
wireup stage up in a session across the hosts, with and without encrypted links, in turn with bare relays: a process on
each host that passes one stream of the same bytes on and writes it into memory.

  mixed    files of this machine, from /usr/lib and /usr/share, of all kinds; the same in each run
  random   the same names and sizes with random bytes, which cannot be compressed
  small    many files of one size, cut from such files

Measured: bytes a second; the time of a second wireup stage up, which finds everything there; growth of the largest
agent.
",
    sections: &[
        Section { title: "Trees", flags: &[TREES, MIB, SMALL_FILES, SMALL_MIB] },
        Section { title: "Runs", flags: &[ROUNDS, WIREUP, LIMIT] },
        ACROSS,
        RESULTS,
    ],
    end: "
  wireup-testbed run -n 16 -- wireup bench stage --hosts $(seq -s, -f n%g 0 15)

--hosts is needed, and each host must have a /dev/shm of its own.
",
    ..NO_WORDS
};

/// Largest tree (MiB): larger trees would not fit in the memory of any machine that was used for measurements.
const MIB_MAX: u32 = 1 << 16;
/// Maximum number of files: sets have hardly more entries; and each file must have at least a byte.
const FILES_MAX: u32 = 1_000_000;
const ROUNDS_DEFAULT: u32 = 5;
/// Factor by which a tree and its manifest need more memory on a host than the files' bytes (chosen): the last page of
/// each file, and the manifest twice.
const OVERHEAD: f64 = 1.25;
/// Interval at which the benchmark checks whether a stream has ended; it affects no measured time (chosen).
const GLANCE: Duration = Duration::from_millis(5);
/// The shapes in which relays are connected: a chain, and a tree with two relays below each.
const RELAYS: [&str; 2] = ["chain", "binary-tree"];

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    if bench.hosts.is_empty() {
        return Ok(together("bench stage needs --hosts A,B,..: nodes that share a memory share a store")?);
    }
    let mib = |value: &Value| Ok(u64::from(value.number_in(1, MIB_MAX)?) << 20);
    let kinds = parts(line, TREES)?;
    let (large, small) = (line.one(MIB, mib)?, line.one(SMALL_MIB, mib)?);
    let small_files = line.one(SMALL_FILES, |value| value.number_in(1, FILES_MAX))?;
    let bytes_of = |kind| if kind == "small" { small } else { large };
    let mut turns = Vec::new();
    for &kind in &kinds {
        let case = json!({ "tree": kind, "bytes": bytes_of(kind), "hosts": bench.hosts.len() });
        let rounds = bench.rounds.unwrap_or(ROUNDS_DEFAULT);
        turns.extend(RELAYS.iter().chain(&SESSIONS).map(|name| Turn::new(name, &case, rounds, (kind, *name))));
    }
    if bench.lists(&turns) {
        return Ok(());
    }
    print(&format!("wireup: {}\n", bench.wireup()?.display()));
    let name = format!("wireup-bench-{}", hex::encode(random::bytes::<16>()?));
    let mut hosts = Remotes::start(bench, &format!("{} {name}", host::WORD))?;
    let stores = Path::new(host::MEMORY).join(name);
    is_room(kinds.iter().map(|kind| bytes_of(*kind)).max().unwrap_or(0), &hosts)?;
    let folder = bench.scratch.file("");
    let make = |kind: &&'static str| {
        let tree = Tree::make(kind, bytes_of(kind), small_files, &folder, &bench.interrupt);
        tree.map_err(|error| wrong(format!("tree {kind}: {error}")))
    };
    let trees: Vec<Tree> = kinds.iter().map(make).collect::<Result<_, _>>()?;
    trees.iter().for_each(|tree| print(&format!("{}: {} files, {} bytes\n", tree.kind, tree.files, tree.bytes)));
    let mut sessions = Vec::new();
    for contestant in SESSIONS {
        sessions.push((contestant, Session::begin(contestant, &stores, bench, &mut hosts)?));
    }
    let hosts = RefCell::new(hosts);
    bench.turns(&turns, |(kind, contestant), _| {
        let tree = trees.iter().find(|tree| tree.kind == *kind).ok_or_else(|| wrong("no such tree"))?;
        let mut hosts = hosts.borrow_mut();
        if let Some((_, session)) = sessions.iter().find(|(other, _)| other == contestant) {
            return session.stage(tree, &mut hosts);
        }
        relay(contestant, tree, bench, &mut hosts)
    });
    // The sessions end before the hosts' folders are removed.
    drop(sessions);
    Ok(())
}

/// Sends the tree's bytes once to all hosts through relays.
fn relay(shape: &str, tree: &Tree, bench: &Bench, hosts: &mut Remotes) -> Result<Measures, Failure> {
    let (secret, count) = (hex::encode(random::bytes::<16>()?), hosts.all.len());
    let mut addresses = vec![String::new(); count];
    // Each relay connects to the relays below it, which have been started before.
    for index in (0..count).rev() {
        let below: Vec<&str> = children(shape, index, count).map(|child| addresses[child].as_str()).collect();
        let port = ask(hosts, index, &format!("relay {secret} {}", below.join(" ")))?;
        addresses[index] = format!("{}:{port}", hosts.all[index].address);
    }
    let (file, begin, limit) = (tree.stream.clone(), Instant::now(), bench.limit_or(LIMIT_S));
    let sending = thread::spawn(move || relay::send(&file, &secret, &addresses[0]));
    while !sending.is_finished() {
        if bench.interrupt.is_set() {
            return Err(Failure::Interrupted);
        }
        if begin.elapsed() > limit {
            return Err(Failure::TimedOut(limit.as_secs_f64()));
        }
        thread::sleep(GLANCE);
    }
    let (sent, time_s) = sending.join().map_err(|_| wrong("the stream's thread has panicked"))??;
    if sent != [count as u64, tree.bytes] {
        return Err(wrong(format!("{} relays have {} bytes", sent[0], sent[1])));
    }
    Ok(vec![rate("speed", tree.bytes as f64 / time_s), seconds("time", time_s)])
}

/// The relays directly below the relay `index`; all have higher numbers.
fn children(shape: &str, index: usize, count: usize) -> impl Iterator<Item = usize> + use<> {
    let first = if shape == RELAYS[0] { index + 1..index + 2 } else { 2 * index + 1..2 * index + 3 };
    first.filter(move |child| *child < count)
}

/// Checks that this machine has memory for `bytes` on each host that is a namespace of this machine.
fn is_room(bytes: u64, hosts: &Remotes) -> Result<(), Failure> {
    let own = host::machine();
    let here = hosts.all.iter().filter(|host| host.hello == own).count();
    let needed = (bytes as f64 * here as f64 * OVERHEAD) as u64;
    match Meminfo::current().ok().and_then(|memory| memory.mem_available) {
        Some(there) if there < needed => Err(wrong(format!(
            "{here} hosts are this machine and need {} MiB in its memory, of which {} are available; choose fewer MiB",
            needed >> 20,
            there >> 20
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_relay_but_the_first_has_one_parent() {
        for (shape, count) in RELAYS.into_iter().flat_map(|shape| [1, 2, 7, 16].map(|n| (shape, n))) {
            let mut all: Vec<usize> = (0..count).flat_map(|index| children(shape, index, count)).collect();
            all.sort_unstable();
            assert_eq!(all, (1..count).collect::<Vec<_>>(), "{shape:?} {count}");
        }
        assert_eq!(children(RELAYS[1], 2, 6).collect::<Vec<_>>(), [5]);
    }
}
