//! The flags of `wireup bench p2p` and `coll`.

use std::path::PathBuf;

use wireup_flags::{Command, Error, Flag, Line, Section, Value, Words};

use crate::common_flags::{self, Across, CommonFlags, HOSTS, LIBRARY, RESULTS, SHARED, STRICT, WIREUP, WIREUP_ARG};

const NODES: Flag = Flag::value(&["--nodes"], "N", "Virtual nodes of this machine, an agent each.").or("16");
const REMOTE_SHELL: Flag = common_flags::REMOTE_SHELL.or("plainsh");
const FANOUT: Flag = Flag::value(&["--fanout"], "N", "Of the tree.").or("4");
const PAIR: Flag = Flag::value(
    &["--pair"],
    "A,B",
    "p2p: the two nodes. Default: 5,9, on different branches; 1,2 where there are fewer than 10.",
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
    "Bytes of a message, or of a node's part. Default: 1, 2, 4, .. 4194304; coll: .. 65536.",
);
const SMALL: Flag = Flag::value(&["--iterations-small"], "N", "Up to 1024 bytes.").or("100");
const LARGE: Flag = Flag::value(&["--iterations-large"], "N", "Above.").or("20");
const ROUNDS: Flag = Flag::value(&["--rounds"], "N", "Rounds that count, after one that warms up.").or("5");
const ONLY: Flag =
    Flag::value(&["--only"], "A,B,..", "Only subjects whose name begins so, such as tcp, tree, ucx, bare, log/tcp.");
const PEER: Flag = Flag::value(
    &["--peer"],
    "NAME=CMD",
    "coll: a shell command beside them that prints lines \"measured BYTES TIMES TOTAL MEDIAN LEAST\", times in nanoseconds \
     of one allgather; {steps} in it becomes 64x100,1024x100,.., and {pmix} a PMIx program with its arguments that does \
     put, commit and collecting fence for each of them (repeatable).",
);
const LIMIT: Flag = common_flags::LIMIT.or("120");

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
        Section { title: "Hosts", flags: &[HOSTS, REMOTE_SHELL, SHARED] },
        Section { title: "Measurements", flags: &[PAIR, CPUS, SIZES, SMALL, LARGE, ROUNDS, ONLY, PEER] },
        RESULTS,
        Section { title: "Targets", flags: &[STRICT] },
    ],
    end: "",
};

/// The largest message that counts as small (S3).
const SMALL_BYTES_MAX: u32 = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmark {
    P2p,
    Coll,
}

impl Benchmark {
    pub fn name(self) -> &'static str {
        match self {
            Benchmark::P2p => "p2p",
            Benchmark::Coll => "coll",
        }
    }

    /// The largest size (bytes): the source's; for allgathers, where it is the size of one node's part, it is also our
    /// own limit.
    fn bytes_max(self) -> u32 {
        if self == Benchmark::P2p { 1 << 22 } else { 1 << 16 }
    }

    fn sizes(self) -> Vec<u32> {
        (0..=self.bytes_max().ilog2()).map(|shift| 1 << shift).collect()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    pub benchmark: Benchmark,
    pub nodes: u32,
    pub across: Across,
    pub fanout: u32,
    pub pair: (u32, u32),
    pub cpus: Option<(u32, u32)>,
    /// Bytes and iterations.
    pub steps: Vec<(u32, u32)>,
    pub rounds: u32,
    pub only: Vec<String>,
    pub peers: Vec<(String, String)>,
    /// The library of the ranks of coll.
    pub library: Option<PathBuf>,
    pub common_flags: CommonFlags,
    pub strict: bool,
}

pub fn read(benchmark: Benchmark, line: &Line) -> Result<Flags, Error> {
    let across = Across::read(line, REMOTE_SHELL)?;
    let nodes = match across.hosts.len() as u32 {
        0 => line.one(NODES, Value::number)?,
        hosts => hosts,
    };
    if nodes < 3 {
        return Err(Error::Together("at least 3 nodes: two that are no neighbours in the tree".to_owned()));
    }
    let pair = line.last(PAIR, |value| match value.list(|node| node.number_in(0, nodes - 1))?[..] {
        [first, second] if first != second => Ok((first, second)),
        _ => Err(value.refused(format!("expected two of the {nodes} nodes, A,B"))),
    })?;
    let cpus = line.last(CPUS, |value| match value.list(Value::number)?[..] {
        [first, second] => Ok((first, second)),
        _ => Err(value.refused("expected two cpus, A,B".to_owned())),
    })?;
    let (small, large) = (line.one(SMALL, Value::at_least_one)?, line.one(LARGE, Value::at_least_one)?);
    let times = |bytes: u32| if bytes <= SMALL_BYTES_MAX { small } else { large };
    let sizes = line.last(SIZES, |value| value.list(|size| size.number_in(1, benchmark.bytes_max())))?;
    let only = line.last(ONLY, |value| value.list(Value::text))?.unwrap_or_default();
    Ok(Flags {
        benchmark,
        nodes,
        across,
        fanout: line.one(FANOUT, Value::at_least_one)?,
        cpus,
        pair: pair.unwrap_or(if nodes < 10 { (1, 2) } else { (5, 9) }),
        steps: sizes.unwrap_or_else(|| benchmark.sizes()).into_iter().map(|bytes| (bytes, times(bytes))).collect(),
        rounds: line.one(ROUNDS, Value::at_least_one)?,
        only: only.into_iter().filter(|word| !word.is_empty()).collect(),
        peers: line.all(PEER, common_flags::pair)?,
        library: line.last(LIBRARY, Value::path)?,
        common_flags: CommonFlags::read(line, LIMIT)?,
        strict: line.has(STRICT),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(benchmark: Benchmark, words: &str) -> Result<Flags, Error> {
        read(benchmark, &common_flags::line(&COMMAND, words)?)
    }

    #[test]
    fn default_sizes_and_iterations_match_the_source() {
        let flags = parsed(Benchmark::P2p, "").unwrap();
        assert_eq!((flags.steps.len(), flags.steps[0], flags.steps[10]), (23, (1, 100), (1024, 100)));
        assert_eq!((flags.steps[11], flags.steps[22]), ((2048, 20), (4 << 20, 20)));
        assert_eq!((flags.nodes, flags.pair), (16, (5, 9)));
        assert_eq!(parsed(Benchmark::Coll, "").unwrap().steps.last(), Some(&(65_536, 20)));
    }

    #[test]
    fn invalid_flags_are_refused() {
        for words in [
            "--nodes 2",
            "--pair 1",
            "--pair 1,1",
            "--pair 1,16",
            "--sizes 0",
            "--sizes a",
            "--rounds 0",
            "x",
            "--cpus 1",
        ] {
            assert!(parsed(Benchmark::P2p, words).is_err(), "{words}");
        }
        assert!(parsed(Benchmark::Coll, "--sizes 65537").is_err());
    }
}
