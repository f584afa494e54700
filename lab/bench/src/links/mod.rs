//! `wireup bench p2p` and `coll`: the performance of the links between agents (S3, backup slides 1 and 2).
//!
//! `process` runs the links of agents in processes of their own, between which messages are timed, and the ranks of a
//! job, one on each node, whose allgathers are timed. They are compared with a bare TCP connection, `ucx_perftest`, or
//! any other command. A run measures all sizes; each size is a case.
pub mod process;

use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;

use serde_json::json;
use wireup_coll::tree::Tree;
use wireup_flags::{Command, Flag, Section, Value};
use wireup_wire::ids::AgentId;

use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, wrong};
use crate::flags::{ACROSS, LIMIT, NO_WORDS, RESULTS, ROUNDS, WIREUP, WIREUP_ARG, pair, together};
use crate::launch::words;
use crate::leftovers;
use crate::remote::address_of;
use crate::samples::{Measures, rate, seconds};

const NODES: Flag = Flag::value(&["--nodes"], "N", "Virtual nodes of this machine, an agent each.").or("16");
const FANOUT: Flag = Flag::value(&["--fanout"], "N", "Fan-out of the tree.").or("4");
const CPUS: Flag = Flag::value(
    &["--cpus"],
    "A,B",
    "p2p: pin the processes of a path to these cpus in turn, so that both ends share a cpu in all runs or in none.",
);
const SIZES: Flag = Flag::value(
    &["--sizes"],
    "A,B,..",
    "Bytes of a message, or of a node's part (default: 1, 2, 4, .. 4194304; coll: .. 65536).",
);
const SMALL: Flag = Flag::value(&["--iterations-small"], "N", "Iterations up to 1024 bytes.").or("100");
const LARGE: Flag = Flag::value(&["--iterations-large"], "N", "Iterations above 1024 bytes.").or("20");
const ONLY: Flag = Flag::value(
    &["--only"],
    "A,B,..",
    "Only contestants whose names begin with one of these: tcp, tree, ucx, bare, log/tcp.",
);
const PEER: Flag = Flag::value(
    &["--peer"],
    "NAME=CMD",
    "coll: also time this shell command, which prints lines \"measured BYTES TIMES TOTAL MEDIAN LEAST\", times in \
     nanoseconds of one allgather; {steps} in it becomes 64x100,1024x100,.., and {pmix} a PMIx program with its \
     arguments that does put, commit and collecting fence for each of them (repeatable).",
);

pub const COMMAND: Command = Command {
    name: "bench p2p",
    purpose: "time the links between agents; coll has the same flags",
    intro: "
p2p: messages there and back between two processes with the links of agents, by every transport, next to a bare TCP
connection and ucx_perftest: nodes 5 and 9, on different branches of the tree, or 1 and 2 of fewer than 10.

coll: allgathers of a job with one rank on each node, by every algorithm and transport; wireup-pmix: put, commit and
collecting fence of PMIx, whose last values must have arrived, as those of {pmix} of peers.
",
    sections: &[
        Section { title: "Jobs", flags: &[NODES, FANOUT, WIREUP, WIREUP_ARG, LIMIT] },
        ACROSS,
        Section { title: "Measurements", flags: &[CPUS, SIZES, SMALL, LARGE, ROUNDS, ONLY, PEER] },
        RESULTS,
    ],
    ..NO_WORDS
};

/// The largest message that counts as small (S3).
const SMALL_BYTES_MAX: u32 = 1 << 10;
/// The largest sizes (bytes): of messages, as in S3; of one node's part of an allgather, a limit of this benchmark.
const MESSAGE_MAX: u32 = 1 << 22;
const PART_MAX: u32 = 1 << 16;
/// Sizes for `ucx_perftest`, which measures only one size per call.
const UCX_SIZES: [u32; 4] = [8, 1 << 10, 1 << 16, 1 << 22];
const ROUNDS_DEFAULT: u32 = 5;
const LIMIT_S: u64 = 120;

/// A command that is measured; it prints its results.
#[derive(Clone, Debug)]
struct Subject {
    argv: Vec<OsString>,
    /// Number by which printed times are divided: 2 if the command prints times of round trips.
    ways: f64,
    /// Whether the command times consecutive allgathers. For allgathers the mean is used and not the median, because a
    /// node that is late for one allgather may complete the next allgather at once.
    is_gathered: bool,
}

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let is_p2p = bench.name == "p2p";
    let nodes = match bench.hosts.len() as u32 {
        0 => line.one(NODES, Value::number)?,
        hosts => hosts,
    };
    if nodes < 3 {
        return Ok(together("at least 3 nodes: two that are no neighbours in the tree")?);
    }
    let fanout = line.one(FANOUT, Value::at_least_one)?;
    let bytes_max = if is_p2p { MESSAGE_MAX } else { PART_MAX };
    let sizes = line.last(SIZES, |value| value.list(|size| size.number_in(1, bytes_max)))?;
    let sizes = sizes.unwrap_or_else(|| (0..=bytes_max.ilog2()).map(|shift| 1 << shift).collect());
    let (small, large) = (line.one(SMALL, Value::at_least_one)?, line.one(LARGE, Value::at_least_one)?);
    let steps = sizes.iter().map(|bytes| (*bytes, if *bytes <= SMALL_BYTES_MAX { small } else { large }));
    let steps: Vec<(u32, u32)> = steps.collect();
    let only = line.last(ONLY, |value| value.list(Value::text))?.unwrap_or_default();
    let mut subjects =
        if is_p2p { messages(bench, nodes, fanout, &steps)? } else { allgathers(bench, nodes, fanout, &steps)? };
    subjects.retain(|(name, _)| only.is_empty() || only.iter().any(|only| name.starts_with(only.as_str())));
    let rounds = bench.rounds.unwrap_or(ROUNDS_DEFAULT);
    let case = json!({ "nodes": nodes, "fanout": fanout, "bytes": sizes.len() });
    let turn = |(contestant, what)| Turn { contestant, case: case.clone(), rounds, what };
    let turns: Vec<Turn<Subject>> = subjects.into_iter().map(turn).collect();
    // One run has values for many cases.
    bench.each_turn(&turns, |turn, round| {
        let outcome = process::prepare(&bench.scratch.file(""), nodes).map_err(wrong);
        let outcome = outcome.and_then(|()| once(bench, &turn.what));
        leftovers::settle(&[]);
        for size in &sizes {
            let case = json!({ "nodes": nodes, "fanout": fanout, "bytes": size });
            let of_size = |all: &Vec<(u32, Measures)>| all.iter().find(|one| one.0 == *size).map(|one| one.1.clone());
            if let Some(outcome) = outcome.as_ref().map(of_size).map_err(Failure::clone).transpose() {
                bench.add(&case, &turn.contestant, round, outcome);
            }
        }
        outcome.is_err()
    });
    Ok(())
}

/// Commands that time messages between two nodes; the base of the ratios comes first.
fn messages(bench: &Bench, nodes: u32, fanout: u32, steps: &[(u32, u32)]) -> Result<Vec<(String, Subject)>, Problem> {
    let pair = if nodes < 10 { (1, 2) } else { (5, 9) };
    let cpus = bench.line.last(CPUS, |value| match value.list(Value::number)?[..] {
        [first, second] => Ok((first, second)),
        _ => Err(value.refused("expected two, A,B")),
    })?;
    let (own, shell, folder) = (bench.own_program()?, bench.remote_shell()?, bench.scratch.file(""));
    let is_local = bench.hosts.is_empty();
    // The command that starts a process on this node, to which its arguments are added; `index`: its place on the path.
    let end = |node: u32, index: usize| {
        let there = match bench.hosts.get(node as usize) {
            Some(host) => format!("{shell} {host}"),
            // The process runs in a session of its own, like agents and like processes of other hosts; otherwise the
            // scheduler would put all processes of the path into one group.
            None => "setsid -w".into(),
        };
        let cpu = cpus.map(|(first, second)| if index.is_multiple_of(2) { first } else { second });
        cpu.map_or(there.clone(), |cpu| format!("{there} taskset -c {cpu}"))
    };
    let encrypt = bench.wireup_args.iter().all(|arg| arg != "--plain-links");
    let between = |path: &[u32], how: &str| {
        let last = path.len() - 1;
        let process = |index: usize| {
            let own = format!("{} {} {} {}", end(path[index], index), own.display(), process::WORD, folder.display());
            format!("{own} {index} {last} {how} {is_local} {encrypt} {}", text(steps))
        };
        let others: Vec<String> = (1..=last).map(|index| format!("{} &", process(index))).collect();
        let script = format!("{} {}; code=$?; wait; exit $code", others.join(" "), process(0));
        Subject { argv: sh(&script), ways: 2.0, is_gathered: false }
    };
    let second = bench.hosts.get(pair.1 as usize).map_or(Ok(Ipv4Addr::LOCALHOST), |host| address_of(host))?;
    let direct = [pair.0, pair.1];
    let mut all = vec![
        ("bare TCP".to_owned(), between(&direct, &second.to_string())),
        ("tcp".to_owned(), between(&direct, "tcp")),
        ("tree".to_owned(), between(&path(nodes, fanout, pair), "tcp")),
        ("ucx".to_owned(), between(&direct, "ucx")),
    ];
    // UCX's own benchmark either polls without a pause, or sleeps until something arrives; in the latter mode its
    // endpoints handle errors, as the endpoints of agents do. Two processes that poll on one cpu wait for the end of
    // each other's time slice.
    let turns = cpus.is_none_or(|(first, second)| first != second).then_some(("perftest, turns", ""));
    for (name, mode) in [Some(("perftest, sleeps", " -e -E sleep")), turns].into_iter().flatten() {
        let host = bench.hosts.get(pair.1 as usize).map_or("127.0.0.1", String::as_str);
        let mut script = String::from("port=$((20000 + $$ % 20000));");
        for (bytes, times) in steps.iter().filter(|(bytes, _)| UCX_SIZES.contains(bytes)) {
            let times = times * 10;
            let test = format!("ucx_perftest -p $port -t tag_lat -s {bytes} -n {times} -w {times}{mode}");
            script += &format!(
                " {} {test} >/dev/null 2>&1 & sleep 0.3; {} {test} {host} | \
                 awk '/^Final/ {{ printf \"measured {bytes} {times} %d %d %d\\n\", \
                 $5*1000*{times}, $3*1000, $3*1000 }}'; \
                 wait; port=$((port + 1));",
                end(pair.1, 1),
                end(pair.0, 0)
            );
        }
        all.push((name.to_owned(), Subject { argv: sh(&script), ways: 1.0, is_gathered: false }));
    }
    Ok(all)
}

/// Commands that time allgathers among all nodes; the base of the ratios comes first. Without a transport only the
/// links of the tree are used.
fn allgathers(bench: &Bench, nodes: u32, fanout: u32, steps: &[(u32, u32)]) -> Result<Vec<(String, Subject)>, Problem> {
    let own = bench.own_program()?;
    let gathered = |argv| Subject { argv, ways: 1.0, is_gathered: true };
    let by = |exchange: &str, transport: Option<&str>| -> Result<(String, Subject), Problem> {
        let through = transport.map_or(String::new(), |transport| format!("--agent-transport={transport}"));
        let flags = format!("--pmi=simple --fanout={fanout} --exchange={exchange} {through}");
        let mut argv = bench.wireup_run(nodes, nodes, 1, &flags)?;
        argv.extend([own.clone().into(), process::RANK.into(), text(steps).into()]);
        Ok((transport.map_or(exchange.to_owned(), |transport| format!("{exchange}/{transport}")), gathered(argv)))
    };
    let mut all = vec![by("tree", None)?];
    for exchange in ["ring", "log"] {
        for transport in ["tcp", "tree", "ucx"] {
            all.push(by(exchange, Some(transport))?);
        }
    }
    let ranks = format!("{} {nodes} allgather {}", bench.scratch.program("pmix_exchange").display(), text(steps));
    let mut argv = bench.wireup_run(nodes, nodes, 1, &format!("--pmi=pmix --modex=full --fanout={fanout}"))?;
    argv.extend(words(&ranks));
    all.push(("wireup-pmix".to_owned(), gathered(argv)));
    for (name, command) in bench.line.all(PEER, pair)? {
        all.push((name, gathered(sh(&command.replace("{steps}", &text(steps)).replace("{pmix}", &ranks)))));
    }
    Ok(all)
}

fn text(steps: &[(u32, u32)]) -> String {
    steps.iter().map(|(bytes, times)| format!("{bytes}x{times}")).collect::<Vec<_>>().join(",")
}

fn sh(script: &str) -> Vec<OsString> {
    ["/bin/sh", "-c", script].map(OsString::from).into()
}

/// The nodes on the path through the tree from the first node of the pair to the second.
fn path(nodes: u32, fanout: u32, (first, second): (u32, u32)) -> Vec<u32> {
    let tree = Tree::new(nodes, fanout);
    let up = |node: u32| std::iter::successors(Some(AgentId(node)), |agent| tree.parent(*agent)).collect::<Vec<_>>();
    let (mut from, mut to) = (up(first), up(second));
    // Both lists end at the root; their common part, except for the nearest common ancestor, does not belong to the
    // path.
    while from.len() > 1 && to.len() > 1 && from[from.len() - 2] == to[to.len() - 2] {
        from.pop();
        to.pop();
    }
    to.pop();
    from.into_iter().chain(to.into_iter().rev()).map(|agent| agent.0).collect()
}

/// Runs a command once; returns its values, by size.
fn once(bench: &Bench, subject: &Subject) -> Result<Vec<(u32, Measures)>, Failure> {
    let (_, text) = bench.run(subject.argv.clone(), bench.limit_or(LIMIT_S))?;
    let notes = fs::read_to_string(bench.scratch.file("stderr"))?;
    let measured: Vec<(u32, Measures)> = text.lines().filter_map(|line| read(line, subject)).collect();
    if measured.is_empty() {
        return Err(wrong(format!("it reported no time: {}", text.lines().last().unwrap_or("nothing"))));
    }
    let problem = |line: &&str| line.contains("through the tree") || line.contains("undelivered: ");
    match notes.lines().chain(text.lines()).find(problem) {
        Some(line) => Err(wrong(line)),
        None => Ok(measured),
    }
}

/// Parses `measured BYTES TIMES TOTAL MEDIAN LEAST` (ns); other text may precede it. The latency of messages is the
/// one-way latency of the median message.
fn read(line: &str, subject: &Subject) -> Option<(u32, Measures)> {
    let (_, numbers) = line.split_once("measured ")?;
    let numbers: Vec<f64> = numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let &[bytes, iterations, total_ns, median_ns, _] = &numbers[..] else { return None };
    let mean_s = total_ns / iterations.max(1.0) / subject.ways / 1e9;
    let latency_s = if subject.is_gathered { mean_s } else { median_ns / subject.ways / 1e9 };
    let measures = vec![seconds("latency", latency_s), seconds("mean", mean_s), rate("bandwidth", bytes / latency_s)];
    Some((bytes as u32, measures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_read_from_lines() {
        let pair = Subject { argv: Vec::new(), ways: 2.0, is_gathered: false };
        let measures = vec![seconds("latency", 1e-6), seconds("mean", 1.5e-6), rate("bandwidth", 8e6)];
        assert_eq!(read("n5: measured 8 10 30000 2000 1000", &pair), Some((8, measures)));
        assert_eq!(read("measured 8 10 30000", &pair), None);
    }

    #[test]
    fn a_path_in_the_tree_leads_over_the_nearest_common_ancestor() {
        assert_eq!(path(16, 4, (5, 9)), [5, 1, 0, 2, 9]);
        assert_eq!(path(3, 4, (1, 2)), [1, 0, 2]);
        assert_eq!(path(16, 4, (5, 6)), [5, 1, 6]);
        assert_eq!([path(16, 4, (0, 5)), path(16, 4, (5, 0))], [[0, 1, 5], [5, 1, 0]]);
    }
}
