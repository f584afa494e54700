//! `wireup bench modex`: the waits of PMIx ranks when they start (S3).
//!
//! Four experiments: a fence that collects data, after two fences without data, for several numbers of nodes, with
//! links made early and late; the first get by direct modex, with idle ranks and with all cores busy; the cost of
//! joining by PMIx and of opening UCX on their own; `shmem_init` for several numbers of nodes and of ranks per node, by
//! each transport of agents and by both modexes, beside other launchers.
use std::fs;

use serde_json::json;
use wireup_flags::{Command, Flag, Section, Value};

use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, wrong};
use crate::flags::{ACROSS, LIMIT, NO_WORDS, PART, RESULTS, ROUNDS, WIREUP, WIREUP_ARG, pair, parts};
use crate::launch::words;
use crate::layout::Layout;
use crate::samples::{Measures, of_ranks, seconds};
use crate::stamps;

const PARTS: Flag = PART.or("fence,direct,init,shmem");
const NODES: Flag =
    Flag::value(&["--nodes"], "A,B,..", "Numbers of nodes (with hosts at most all of them).").or("2,4,8,16,32");
const PPN: Flag = Flag::value(&["--ppn"], "N", "Ranks a node.").or("4");
const SHMEM_NODES: Flag = Flag::value(&["--shmem-nodes"], "A,B,..", "shmem: numbers of nodes.").or("1");
const PPNS: Flag = Flag::value(&["--ppns"], "A,B,..", "shmem: ranks of a node.").or("1,2,4,8");
const OSHMEM: Flag =
    Flag::value(&["--oshmem"], "PATH", "shmem: init and an argument.").or("target/programs/oshmem/initfin");
const PEER: Flag = Flag::value(
    &["--peer"],
    "NAME=CMD",
    "shmem: also time this shell command; {nodes}, {ppn}, {ranks} and {program} in it are replaced (repeatable).",
);

pub const COMMAND: Command = Command {
    name: "bench modex",
    purpose: "time the start of PMIx ranks",
    intro: "
What PMIx ranks wait for at their start, on virtual nodes or hosts: the collecting fence after two without data, the
first get by direct modex, PMIx_Init and opening UCX, shmem_init (on several nodes by each transport and both modexes).
",
    sections: &[
        Section {
            title: "Jobs",
            flags: &[PARTS, NODES, PPN, SHMEM_NODES, PPNS, ROUNDS, OSHMEM, PEER, WIREUP, WIREUP_ARG, LIMIT],
        },
        ACROSS,
        RESULTS,
    ],
    ..NO_WORDS
};

/// Largest number of ranks: with more, one machine gives no useful figures (chosen).
const SIZE_MAX: u32 = 4096;
/// Length of each rank's value (bytes).
const VALUE_BYTES: u32 = 64;
const ROUNDS_DEFAULT: u32 = 5;
const LIMIT_S: u64 = 120;

/// The program that ranks run.
#[derive(Clone, Copy, Debug)]
enum Client {
    /// `programs/pmix_exchange.c`. The first text is the program's arguments before the file of its time stamps, the
    /// second text the arguments after the length of values.
    Exchange(&'static str, &'static str),
    /// `programs/ucx_init.c`, without a launcher.
    Ucx,
    Oshmem,
    /// A shell command that runs the same program by another launcher.
    Peer,
}

const COLLECT: Client = Client::Exchange("collect", "");
/// The parts with several numbers of nodes: a part and its contestants, each with arguments of `wireup run`.
const BY_NODES: [(&str, &str, Client, &str); 5] = [
    ("fence", "early wireup", COLLECT, "--modex=full --exchange=log --early-wireup=yes"),
    ("fence", "links when needed", COLLECT, "--modex=full --exchange=log --early-wireup=no"),
    ("fence", "through the tree", COLLECT, "--modex=full --exchange=tree"),
    ("direct", "at rest", Client::Exchange("direct", ""), "--modex=direct"),
    ("direct", "all cores busy", Client::Exchange("direct", "spin"), "--modex=direct"),
];

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let size = |value: &Value| value.number_in(1, SIZE_MAX);
    let mut nodes = line.one(NODES, |value| value.list(size))?;
    nodes.retain(|&nodes| bench.hosts.is_empty() || nodes as usize <= bench.hosts.len());
    let (ppn, ppns) = (line.one(PPN, size)?, line.one(PPNS, |value| value.list(size))?);
    let shmem_nodes = line.one(SHMEM_NODES, |value| value.list(size))?;
    let (oshmem, peers) = (std::path::absolute(line.one(OSHMEM, Value::path)?)?, line.all(PEER, pair)?);
    let mut turns = Vec::new();
    let mut add = |part: &str, contestant: &str, (node_count, ppn), client: Client, arguments: &str| {
        let layout = Layout { node_count, ppn };
        let ranks = layout.job_size();
        let case = json!({ "part": part, "nodes": node_count, "ppn": ppn, "ranks": ranks, "bytes": VALUE_BYTES });
        let rounds = bench.rounds.unwrap_or(ROUNDS_DEFAULT);
        turns.push(Turn::new(contestant, &case, rounds, (layout, client, arguments.to_owned())));
    };
    for part in parts(line, PARTS)? {
        match part {
            "init" => {
                add(part, "PMIx_Init", (1, 1), COLLECT, "");
                add(part, "UCX", (1, 1), Client::Ucx, "");
                add(part, "PMIx_Init", (1, ppn), COLLECT, "");
            }
            "shmem" => {
                for (&nodes, &ppn) in shmem_nodes.iter().flat_map(|nodes| ppns.iter().map(move |ppn| (nodes, ppn))) {
                    if nodes == 1 {
                        add(part, "shmem_init", (nodes, ppn), Client::Oshmem, "");
                    }
                    for transport in ["tree", "tcp", "ucx"].iter().filter(|_| nodes > 1) {
                        for modex in ["full", "direct"] {
                            let flags = format!("--agent-transport={transport} --modex={modex}");
                            add(part, &format!("{transport}, {modex} modex"), (nodes, ppn), Client::Oshmem, &flags);
                        }
                    }
                    peers.iter().for_each(|(name, command)| add(part, name, (nodes, ppn), Client::Peer, command));
                }
            }
            _ => nodes.iter().for_each(|&nodes| {
                for (_, name, client, arguments) in BY_NODES.into_iter().filter(|one| one.0 == part) {
                    add(part, name, (nodes, ppn), client, arguments);
                }
            }),
        }
    }
    bench.turns(&turns, |&(layout, client, ref arguments), _| {
        let stamps = bench.scratch.empty_file("stamps")?;
        let (Layout { node_count, ppn }, size) = (layout, layout.job_size());
        let mut argv = bench.wireup_run(size, node_count, ppn, &format!("--pmi pmix {arguments}"))?;
        match client {
            Client::Ucx => argv = vec![bench.scratch.program("ucx_init").into()],
            Client::Oshmem => argv.extend([oshmem.clone().into(), "say".into()]),
            Client::Peer => {
                let replace = |text: String, (name, number): (&str, u32)| text.replace(name, &number.to_string());
                let numbers = [("{nodes}", node_count), ("{ppn}", ppn), ("{ranks}", size)];
                let command = arguments.replace("{program}", &format!("{} say", oshmem.display()));
                argv = vec!["/bin/sh".into(), "-c".into(), numbers.into_iter().fold(command, replace).into()];
            }
            Client::Exchange(what, spin) => {
                argv.extend([bench.scratch.program("pmix_exchange").into(), size.to_string().into(), what.into()]);
                argv.extend([stamps.clone().into(), VALUE_BYTES.to_string().into()]);
                argv.extend(words(spin));
            }
        }
        let (measures, text) = bench.run(argv, bench.limit_or(LIMIT_S))?;
        let more = match client {
            Client::Exchange(..) => stamps::evaluate(&fs::read_to_string(&stamps)?, size)?,
            Client::Ucx => of_ucx(&text).ok_or_else(|| wrong("no libucp here"))?,
            Client::Oshmem | Client::Peer => of_oshmem(&text, size)?,
        };
        Ok([measures, more].concat())
    });
    Ok(())
}

/// Parses the output of `ucx_init`: the times to open the library, to make the context, and to make the worker (ns).
fn of_ucx(text: &str) -> Option<Measures> {
    let parts: Vec<f64> = text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    (parts.len() == 3).then(|| vec![seconds("join", parts.iter().sum::<f64>() / 1e9)])
}

/// Parses the output of `size` ranks: one line per rank with its time in seconds.
fn of_oshmem(text: &str, size: u32) -> Result<Measures, Failure> {
    let times: Vec<f64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    if times.len() != size as usize {
        return Err(wrong(format!("only {} of {size} ranks reported their times", times.len())));
    }
    Ok(of_ranks("join", times.into_iter()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_other_programs_is_read() {
        assert_eq!(of_ucx("1000 2000 3000\n"), Some(vec![seconds("join", 6e-6)]));
        assert_eq!((of_ucx(""), of_ucx("1 2")), (None, None));
        assert_eq!(of_oshmem(" 0.5\n0.25\nx\n", 2), Ok(vec![seconds("join", 0.375), seconds("join-max", 0.5)]));
        assert!(of_oshmem("0.5\n", 2).is_err());
    }
}
