//! `wireup bench stage`: copies of files to the nodes of a session, in turns with bare relays of the same bytes.
//!
//! A case is a `tree`. On each host stands a process of the benchmark (`host`), which starts relays and reads the
//! memory of agents; `session` has the contestants that are wireup. The others are chains and trees of a `relay` on
//! each host, started before the time counts.
pub mod host;
pub mod relay;
mod session;
mod tree;

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::Path;

use procfs::{Current, Meminfo};
use serde_json::json;
use wireup_flags::{Command, Flag, Section, Value, Words};

use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, Invocation, wrong};
use crate::flags::{ACROSS, LIMIT, RESULTS, ROUNDS, WIREUP, parts, together};
use crate::net::random;
use crate::remote::Remotes;
use crate::samples::{Measures, rate, seconds};
use session::{LIMIT_S, SESSIONS, Session, ask};
use tree::{KINDS, MEMORY, Tree};

const TREES: Flag = Flag::value(&["--tree"], "A,B,..", "Only these.").or("mixed,random,small");
const MIB: Flag = Flag::value(&["--mib"], "N", "Size of the trees mixed and random.").or("256");
const SMALL_FILES: Flag = Flag::value(&["--small-files"], "N", "Files of the tree small.").or("10000");
const SMALL_MIB: Flag = Flag::value(&["--small-mib"], "N", "Size of the tree small.").or("100");
const MEMORY_MIB: Flag = Flag::value(
    &["--memory-mib"],
    "N",
    "Stage a tree like mixed of this size once more, for the agents' memory alone (default: take it from the \
     trees above).",
);

pub const COMMAND: Command = Command {
    name: "bench stage",
    purpose: "time copies of files to the nodes of a session",
    intro: "
wireup stage up in a session across the hosts, with and without encrypted links, in turns with bare relays: a process
on each host that passes one stream of the same bytes on and writes it into a file in the host's memory.

  mixed    files of this machine, from /usr/lib and /usr/share, of all kinds; the same in each run
  random   the same names and sizes with random bytes, which cannot be compressed
  small    many files of one size, cut from such files

The figures: bytes of the tree a second; the time of a second wireup stage up, which finds everything there; how much
the largest agent grows.
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Trees", flags: &[TREES, MIB, SMALL_FILES, SMALL_MIB, MEMORY_MIB] },
        Section { title: "Runs", flags: &[ROUNDS, WIREUP, LIMIT] },
        ACROSS,
        RESULTS,
    ],
    end: "
  wireup-testbed run -n 16 -- wireup bench stage --hosts $(seq -s, -f n%g 0 15)

--hosts is needed, and each host must have a /dev/shm of its own.
",
};

/// More would not fit in the memory of any machine that was measured.
const MIB_MAX: u32 = 1 << 16;
/// A set has hardly more entries, and each file at least a byte.
const FILES_MAX: u32 = 1_000_000;
const ROUNDS_DEFAULT: u32 = 5;
/// What a tree and its manifest need on a host beyond the files' bytes (chosen): the last page of each file, the
/// manifest twice.
const OVERHEAD: f64 = 1.25;
/// The shapes in which relays are linked: a chain, and a tree with two below each.
const RELAYS: [&str; 2] = ["chain", "binary-tree"];

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    if bench.hosts.is_empty() {
        return Ok(together("bench stage needs --hosts A,B,..: nodes that share a memory share a store")?);
    }
    let mib = |value: &Value| Ok(u64::from(value.number_in(1, MIB_MAX)?) << 20);
    let mut kinds = parts(line, TREES, &KINDS[..3])?;
    let (large, small, memory) = (line.one(MIB, mib)?, line.one(SMALL_MIB, mib)?, line.last(MEMORY_MIB, mib)?);
    let small_files = line.one(SMALL_FILES, |value| value.number_in(1, FILES_MAX))?;
    kinds.extend(memory.map(|_| MEMORY));
    let bytes_of = |kind| match kind {
        "small" => small,
        MEMORY => memory.unwrap_or(0),
        _ => large,
    };
    let mut turns = Vec::new();
    for &kind in &kinds {
        let case = json!({ "tree": kind, "bytes": bytes_of(kind), "hosts": bench.hosts.len() });
        let (relays, rounds) = match kind {
            MEMORY => (&RELAYS[..0], 1),
            _ => (&RELAYS[..], bench.rounds.unwrap_or(ROUNDS_DEFAULT)),
        };
        turns.extend(relays.iter().chain(&SESSIONS).map(|name| Turn::new(name, &case, rounds, (kind, *name))));
    }
    if bench.lists(&turns) {
        return Ok(());
    }
    let (wireup, shell) = (bench.wireup()?, bench.remote_shell()?);
    println!("wireup: {}", wireup.display());
    let name = format!("wireup-bench-{}", hex::encode(random::<16>()?));
    let mut hosts = Remotes::start(bench, &format!("{} {name}", host::WORD))?;
    let stores = Path::new(host::MEMORY).join(name);
    is_room(kinds.iter().map(|kind| bytes_of(*kind)).max().unwrap_or(0), &hosts)?;
    let folder = bench.scratch.file("");
    let make = |kind: &&'static str| {
        let tree = Tree::make(kind, bytes_of(kind), small_files, &folder, &bench.interrupt);
        tree.map_err(|error| wrong(format!("tree {kind}: {error}")))
    };
    let trees: Vec<Tree> = kinds.iter().map(make).collect::<Result<_, _>>()?;
    trees.iter().for_each(|tree| println!("{}: {} files, {} bytes", tree.kind, tree.files, tree.bytes));
    let mut sessions = Vec::new();
    for contestant in SESSIONS {
        sessions.push((contestant, Session::begin(contestant, &wireup, &shell, &stores, bench, &mut hosts)?));
    }
    let hosts = RefCell::new(hosts);
    bench.turns(&turns, |(kind, contestant), _| {
        let tree = trees.iter().find(|tree| tree.kind == *kind).ok_or_else(|| wrong("no such tree"))?;
        let mut hosts = hosts.borrow_mut();
        if let Some((_, session)) = sessions.iter().find(|(other, _)| other == contestant) {
            return session.stage(tree, &mut hosts);
        }
        let relayed = relay(contestant, tree, bench, &mut hosts);
        let ended = (0..hosts.all.len()).try_for_each(|index| ask(&mut hosts, index, "end").map(drop));
        let measures = relayed?;
        ended.map(|()| measures)
    });
    // The sessions end before the hosts' folders are removed.
    drop(sessions);
    Ok(())
}

/// One stream of the tree's bytes to all hosts; the caller ends the relays.
fn relay(shape: &str, tree: &Tree, bench: &Bench, hosts: &mut Remotes) -> Result<Measures, Failure> {
    let (secret, count) = (hex::encode(random::<16>().map_err(wrong)?), hosts.all.len());
    let mut addresses = vec![String::new(); count];
    // Each relay calls those below it, which are there already.
    for index in (0..count).rev() {
        let below: Vec<&str> = children(shape, index, count).map(|child| addresses[child].as_str()).collect();
        let port = ask(hosts, index, &format!("relay {secret} {}", below.join(" ")))?;
        addresses[index] = format!("{}:{port}", hosts.all[index].address);
    }
    let own = std::env::current_exe().map_err(wrong)?.into();
    let argv: Vec<OsString> =
        vec![own, relay::WORD.into(), "--source".into(), (&tree.stream).into(), addresses.swap_remove(0).into()];
    let env = vec![(relay::SECRET.into(), secret.into())];
    Invocation { env, ..bench.command(argv, bench.limit_or(LIMIT_S)) }.run(&bench.interrupt)?;
    let text = std::fs::read_to_string(bench.scratch.file("stdout")).map_err(wrong)?;
    let time_s = relayed_s(&text, count as u64, tree.bytes).ok_or_else(|| wrong(format!("the relays: {text}")))?;
    Ok(vec![rate("speed", tree.bytes as f64 / time_s), seconds("time", time_s)])
}

/// The relays below this one; all have higher numbers.
fn children(shape: &str, index: usize, count: usize) -> impl Iterator<Item = usize> + use<> {
    let first = if shape == RELAYS[0] { index + 1..index + 2 } else { 2 * index + 1..2 * index + 3 };
    first.filter(move |child| *child < count)
}

/// The time (s), if all nodes have all bytes.
fn relayed_s(text: &str, nodes: u64, bytes: u64) -> Option<f64> {
    let words: Vec<u64> =
        text.trim().strip_prefix("relayed ")?.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [to, len, ns] = words[..] else { return None };
    ((to, len) == (nodes, bytes)).then_some(ns as f64 / 1e9)
}

/// Whether the hosts that are this machine have the memory for a tree of so many bytes.
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

    #[test]
    fn a_stream_counts_if_all_have_it() {
        assert_eq!(relayed_s("relayed 2 100 1500000000\n", 2, 100), Some(1.5));
        for text in ["", "relayed 2 100\n", "relayed 1 100 5\n", "relayed 2 99 5\n"] {
            assert_eq!(relayed_s(text, 2, 100), None, "{text}");
        }
    }
}
