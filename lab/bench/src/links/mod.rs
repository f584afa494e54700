//! `wireup bench p2p` and `coll`: the performance of the links between agents (S3, backup slides 1 and 2).
//!
//! `process` has the links of agents in processes of their own, between which messages are timed. Allgathers are those
//! of the ranks of a job, one on each node. `subject` lists the transports and schemes, and what they are compared
//! with: a bare C program over TCP, `ucx_perftest`, any other command. A run measures all sizes; each size is a case.
pub mod process;
mod subject;

use std::fs;

use serde_json::json;
use wireup_flags::{Command, Flag, Section, Value, Words};

use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, wrong};
use crate::flags::{ACROSS, LIBRARY, LIMIT, RESULTS, ROUNDS, WIREUP, WIREUP_ARG, pair, together};
use crate::leftovers;
use crate::samples::{Measure, rate, seconds};
use crate::startup;
use subject::{Subject, Subjects};

const NODES: Flag = Flag::value(&["--nodes"], "N", "Virtual nodes of this machine, an agent each.").or("16");
const FANOUT: Flag = Flag::value(&["--fanout"], "N", "Of the tree.").or("4");
const PAIR: Flag = Flag::value(
    &["--pair"],
    "A,B",
    "p2p: the two nodes (default: 5,9, on different branches; 1,2 where there are fewer than 10).",
);
const CPUS: Flag = Flag::value(
    &["--cpus"],
    "A,B",
    "p2p: pin the processes of a path to these cpus in turn. Otherwise the scheduler puts both ends on one cpu in some runs, \
     and on two in others, which differ more than what is compared.",
);
const SIZES: Flag = Flag::value(
    &["--sizes"],
    "A,B,..",
    "Bytes of a message, or of a node's part (default: 1, 2, 4, .. 4194304; coll: .. 65536).",
);
const SMALL: Flag = Flag::value(&["--iterations-small"], "N", "Up to 1024 bytes.").or("100");
const LARGE: Flag = Flag::value(&["--iterations-large"], "N", "Above.").or("20");
const ONLY: Flag =
    Flag::value(&["--only"], "A,B,..", "Only contestants whose name begins so, such as tcp, tree, ucx, bare, log/tcp.");
const PEER: Flag = Flag::value(
    &["--peer"],
    "NAME=CMD",
    "coll: a shell command beside them that prints lines \"measured BYTES TIMES TOTAL MEDIAN LEAST\", times in nanoseconds \
     of one allgather; {steps} in it becomes 64x100,1024x100,.., and {pmix} a PMIx program with its arguments that does \
     put, commit and collecting fence for each of them (repeatable).",
);

pub const COMMAND: Command = Command {
    name: "bench p2p",
    purpose: "time the links between agents; the same flags for coll",
    intro: "
p2p: messages there and back between two processes that have the links of agents, by every transport, beside a bare C
program over TCP and ucx_perftest. coll: allgathers of a job with one rank on each node, by every algorithm and transport.
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Jobs", flags: &[NODES, FANOUT, WIREUP, WIREUP_ARG, LIBRARY, LIMIT] },
        ACROSS,
        Section { title: "Measurements", flags: &[PAIR, CPUS, SIZES, SMALL, LARGE, ROUNDS, ONLY, PEER] },
        RESULTS,
    ],
    end: "",
};

/// The largest message that counts as small (S3).
const SMALL_BYTES_MAX: u32 = 1 << 10;
/// The largest sizes (bytes): the source's for messages; for one node's part of an allgather our own limit.
const MESSAGE_MAX: u32 = 1 << 22;
const PART_MAX: u32 = 1 << 16;
const ROUNDS_DEFAULT: u32 = 5;
const LIMIT_S: u64 = 120;

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
    let two = |value: &Value, max| match value.list(|node| node.number_in(0, max))?[..] {
        [first, second] => Ok((first, second)),
        _ => Err(value.refused("expected two, A,B")),
    };
    let ends = line.last(PAIR, |value| match two(value, nodes - 1)? {
        (first, second) if first == second => Err(value.refused("expected two different nodes")),
        ends => Ok(ends),
    })?;
    let bytes_max = if is_p2p { MESSAGE_MAX } else { PART_MAX };
    let sizes = line.last(SIZES, |value| value.list(|size| size.number_in(1, bytes_max)))?;
    let sizes = sizes.unwrap_or_else(|| (0..=bytes_max.ilog2()).map(|shift| 1 << shift).collect());
    let (small, large) = (line.one(SMALL, Value::at_least_one)?, line.one(LARGE, Value::at_least_one)?);
    let steps = sizes.iter().map(|bytes| (*bytes, if *bytes <= SMALL_BYTES_MAX { small } else { large })).collect();
    let only = line.last(ONLY, |value| value.list(Value::text))?.unwrap_or_default();
    let wireup = bench.wireup()?;
    let library = match is_p2p {
        true => wireup.clone(),
        false => bench.scratch.copy_of(&startup::library(bench, &wireup)?)?,
    };
    let subjects = Subjects {
        bench,
        library,
        wireup,
        nodes,
        fanout: line.one(FANOUT, Value::at_least_one)?,
        pair: ends.unwrap_or(if nodes < 10 { (1, 2) } else { (5, 9) }),
        cpus: line.last(CPUS, |value| two(value, u32::MAX))?,
        steps,
        remote_shell: bench.remote_shell()?,
        own: bench.own_program()?,
    };
    let mut all = subjects.all(is_p2p, line.all(PEER, pair)?);
    all.retain(|subject| only.is_empty() || only.iter().any(|only| subject.name().starts_with(only.as_str())));
    let rounds = bench.rounds.unwrap_or(ROUNDS_DEFAULT);
    let case = json!({ "nodes": nodes, "fanout": subjects.fanout, "bytes": sizes.len() });
    let turn = |subject| Turn { contestant: Subject::name(&subject), case: case.clone(), rounds, what: subject };
    let turns: Vec<Turn<Subject>> = all.into_iter().map(turn).collect();
    if bench.lists(&turns) {
        return Ok(());
    }
    // One run has values for many cases, so that the loop of `Bench` does not fit.
    let limit = bench.limit_or(LIMIT_S);
    for round in crate::samples::WARM_UP..i64::from(rounds) {
        for Turn { contestant, what, .. } in &turns {
            if bench.interrupt.is_set() {
                return Ok(());
            }
            let outcome = once(&subjects, what, limit);
            leftovers::settle(&[]);
            for size in &sizes {
                let case = json!({ "nodes": nodes, "fanout": subjects.fanout, "bytes": size });
                let of_size =
                    outcome.as_ref().map_err(Failure::clone).map(|all| all.iter().filter(|one| one.0 == *size));
                match of_size {
                    Err(Failure::Interrupted) => return Ok(()),
                    Err(failure) => bench.add(&case, contestant, round, Err(failure)),
                    Ok(mut found) => {
                        if let Some((_, measures)) = found.next() {
                            bench.add(&case, contestant, round, Ok(measures.clone()));
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// The values of one run, by size.
fn once(
    subjects: &Subjects,
    subject: &Subject,
    limit: std::time::Duration,
) -> Result<Vec<(u32, Vec<Measure>)>, Failure> {
    let argv = subjects.command(subject).map_err(wrong)?;
    let (_, text) = subjects.bench.run(argv, limit)?;
    let notes = fs::read_to_string(subjects.bench.scratch.file("stderr")).map_err(wrong)?;
    let measured: Vec<(u32, Vec<Measure>)> = text.lines().filter_map(|line| read(line, subject)).collect();
    if measured.is_empty() {
        return Err(wrong(format!("it reported no time: {}", text.lines().last().unwrap_or("nothing"))));
    }
    match notes.lines().find(|line| line.contains("through the tree")) {
        Some(line) => Err(wrong(line)),
        None => Ok(measured),
    }
}

/// Parses `measured BYTES TIMES TOTAL MEDIAN LEAST` (ns); other text may precede it.
///
/// The latency of messages is that of the median message, one way. For consecutive allgathers it is the mean: a node
/// that was late for one may get the next one at once.
fn read(line: &str, subject: &Subject) -> Option<(u32, Vec<Measure>)> {
    let (_, numbers) = line.split_once("measured ")?;
    let numbers: Vec<f64> = numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let &[bytes, iterations, total_ns, median_ns, _] = &numbers[..] else { return None };
    let ways = if subject.is_round_trip() { 2.0 } else { 1.0 };
    let mean_s = total_ns / iterations.max(1.0) / ways / 1e9;
    let latency_s = if subject.is_gathered() { mean_s } else { median_ns / ways / 1e9 };
    Some((
        bytes as u32,
        vec![seconds("latency", latency_s), seconds("mean", mean_s), rate("bandwidth", bytes / latency_s)],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_read_from_lines() {
        let pair = Subject::Pair { transport: "tcp" };
        let measures = vec![seconds("latency", 1e-6), seconds("mean", 1.5e-6), rate("bandwidth", 8e6)];
        assert_eq!(read("n5: measured 8 10 30000 2000 1000", &pair), Some((8, measures)));
        assert_eq!(read("measured 8 10 30000", &pair), None);
    }
}
