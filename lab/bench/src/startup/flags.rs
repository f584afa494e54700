//! The flags of `wireup bench exchange`, `init` and `overlap`.
use std::path::PathBuf;
use std::time::Duration;

use wireup_flags::{Command, Error, Flag, Line, Section, Value, Words};

use super::groups;
use super::scheme::{self, Lengths, Scheme};
use crate::cases::Place;
use crate::common_flags::{self, CommonFlags, LIBRARY, RESULTS, STRICT, WIREUP, WIREUP_ARG};

const RANKS: Flag = Flag::value(&["--ranks"], "A,B,..", "Job sizes. Default: each benchmark's own, see --dry-run.");
const PPN: Flag = Flag::value(&["--ppn"], "N", "Ranks a node; nodes are virtual.").or("16");
const ROUNDS: Flag =
    Flag::value(&["--rounds"], "N", "Rounds that count, after one that warms up. Default: by the job's size.");
const REPEAT: Flag =
    Flag::value(&["--repeat"], "N", "exchange: exchanges of a round, one behind the other; their mean counts.").or("4");
const SCHEMES: Flag = Flag::value(
    &["--scheme"],
    "A,B,..",
    "Only these: text-fence text-get-2 text-get-all fence fence-get-2 fence-get-all ifence allgather-copy allgather \
     iallgather-copy iallgather ring.",
);
const EXCHANGES: Flag =
    Flag::value(&["--exchange"], "A,B,..", "A job for each of these of wireup run's --exchange; auto gives no flag.")
        .or(AUTO);
const VALUE_BYTES: Flag = Flag::value(&["--value-bytes"], "N", "Length of a value.").or("18");
const KEY_BYTES: Flag = Flag::value(&["--key-bytes"], "N", "Length of a key; 0: the rank as a number.").or("9");
const PARTS: Flag = Flag::value(
    &["--part"],
    "A,B,..",
    "Only these. exchange: times, bytes, memory, peer, groups, connections, library, spinning; init: schemes, mpi; overlap: sleep, \
     spin.",
);
const BYTES_RANKS: Flag =
    Flag::value(&["--bytes-ranks"], "A,B,..", "exchange: job sizes at which bytes are counted.").or("4096,8192");
const MEMORY: Flag =
    Flag::value(&["--memory"], "NxP", "exchange: nodes and ranks a node of the job whose memory is read.").or("256x64");
const SIMULATED: Flag =
    Flag::value(&["--simulated"], "A,B,..", "exchange: job sizes of the simulator of groups.").or("4096,16384,73728");
const MPI_FIRST_USE: Flag = Flag::value(
    &["--mpi-first-use"],
    "PATH",
    "exchange: an MPI program that uses its job once. Default: target/programs/mpich5/firstuse.",
);
const WORK_MS: Flag = Flag::value(&["--work-ms"], "N", "init: local work of each rank, asleep.").or("20");
const DELAY_MS: Flag =
    Flag::value(&["--delay-ms"], "N", "overlap: delay of the links between agents while the clients spin; 0: none.")
        .or("10");
const MPI_RANKS: Flag =
    Flag::value(&["--mpi-ranks"], "A,B,..", "init: job sizes of the MPI program, 4 ranks a node.").or("8,16,32,64,128");
const MPI_PROGRAM: Flag = Flag::value(
    &["--mpi-program"],
    "PATH",
    "init: an MPI program that does init, barrier, finalize. Default: target/programs/mpich5/initfin.",
);
const PEER: Flag = Flag::value(&["--peer"], "PATH", "exchange: Hydra's mpiexec. Default: as bench launch finds it.");
const LIMIT: Flag = common_flags::LIMIT.or("600");

pub const COMMAND: Command = Command {
    name: "bench exchange",
    purpose: "time startup exchanges by every scheme; the same flags for init and overlap",
    intro: "
Startup exchanges by every scheme, side by side on real processes of this machine: put, fence and gets of an unmodified
PMI-2 client, the same by our libpmi2 and its shared memory, allgathers, their non-blocking forms, the ring. exchange times
them and counts their bytes, init times the initialisation of a middleware that uses them, overlap says how much of them
hides behind other work.
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Jobs", flags: &[RANKS, PPN, ROUNDS, PARTS, WIREUP, WIREUP_ARG, LIBRARY, LIMIT] },
        Section { title: "Exchanges", flags: &[SCHEMES, EXCHANGES, VALUE_BYTES, KEY_BYTES] },
        Section { title: "exchange", flags: &[REPEAT, BYTES_RANKS, MEMORY, PEER, SIMULATED, MPI_FIRST_USE] },
        Section { title: "init and overlap", flags: &[WORK_MS, MPI_RANKS, MPI_PROGRAM, DELAY_MS] },
        RESULTS,
        Section { title: "Targets", flags: &[STRICT] },
    ],
    end: "",
};

/// One of the three startup benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmark {
    Exchange,
    Init,
    Overlap,
}

impl Benchmark {
    pub fn name(self) -> &'static str {
        match self {
            Benchmark::Exchange => "exchange",
            Benchmark::Init => "init",
            Benchmark::Overlap => "overlap",
        }
    }

    fn parts(self) -> &'static [&'static str] {
        match self {
            Benchmark::Exchange => &[
                "times",
                "bytes",
                "memory",
                "peer",
                groups::PARTS[0],
                groups::PARTS[1],
                groups::PARTS[2],
                groups::PARTS[3],
            ],
            Benchmark::Init => &["schemes", "mpi"],
            Benchmark::Overlap => &["sleep", "spin"],
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    pub benchmark: Benchmark,
    /// The benchmark's own set if empty.
    pub ranks: Vec<u32>,
    pub ppn: u32,
    pub rounds: Option<u32>,
    pub repeat: u32,
    /// The benchmark's own set if empty.
    pub schemes: Vec<Scheme>,
    pub exchanges: Vec<String>,
    pub lengths: Lengths,
    parts: Vec<&'static str>,
    pub bytes_ranks: Vec<u32>,
    pub memory: Place,
    pub simulated: Vec<u32>,
    pub mpi_first_use: Option<PathBuf>,
    pub work: Duration,
    pub delay_ms: u32,
    pub mpi_ranks: Vec<u32>,
    pub mpi_program: Option<PathBuf>,
    pub peer: Option<PathBuf>,
    pub library: Option<PathBuf>,
    pub common_flags: CommonFlags,
    pub strict: bool,
}

impl Flags {
    pub fn has_part(&self, part: &str) -> bool {
        self.parts.contains(&part)
    }

    /// This many ranks, with the requested number on each node.
    pub fn place(&self, ranks: u32) -> Place {
        let ppn = self.ppn.min(ranks);
        Place { node_count: ranks / ppn, ppn }
    }
}

/// The name that stands for no `--exchange` flag.
pub const AUTO: &str = "auto";
/// Ranks per node of a real MPI: few, so that there are several nodes; on a single node MPICH exchanges nothing.
pub const MPI_PPN: u32 = 4;
/// Most ranks of one benchmark job: with more, one machine gives no useful figures (chosen).
const JOB_SIZE_MAX: u32 = 65_536;
/// Most ranks that are simulated: their memory is 26 KiB each.
const SIMULATED_SIZE_MAX: u32 = 262_144;
/// More repetitions do not improve the result (chosen).
const REPEAT_MAX: u32 = 1000;
/// The capacity of the client (bytes).
const VALUE_LEN_MAX: u32 = 1024;
const KEY_LEN_MAX: u32 = 15;

pub fn read(benchmark: Benchmark, line: &Line) -> Result<Flags, Error> {
    let parts: Vec<_> = benchmark.parts().iter().map(|part| (*part, *part)).collect();
    let schemes = scheme::SCHEMES.map(|scheme| (scheme.name, scheme));
    let flags = Flags {
        benchmark,
        ranks: line.last(RANKS, sizes)?.unwrap_or_default(),
        ppn: line.one(PPN, Value::at_least_one)?,
        rounds: line.last(ROUNDS, Value::at_least_one)?,
        repeat: line.one(REPEAT, |value| value.number_in(1, REPEAT_MAX))?,
        schemes: line.last(SCHEMES, |value| value.list(|scheme| scheme.choice(&schemes)))?.unwrap_or_default(),
        exchanges: line.one(EXCHANGES, |value| value.list(Value::text))?,
        lengths: Lengths {
            value: line.one(VALUE_BYTES, |value| value.number_in(8, VALUE_LEN_MAX))?,
            key: line.one(KEY_BYTES, key_bytes)?,
        },
        parts: line
            .last(PARTS, |value| value.list(|part| part.choice(&parts)))?
            .unwrap_or_else(|| benchmark.parts().to_vec()),
        bytes_ranks: line.one(BYTES_RANKS, sizes)?,
        memory: line.one(MEMORY, place)?,
        simulated: line.one(SIMULATED, simulated_sizes)?,
        mpi_first_use: line.last(MPI_FIRST_USE, Value::path)?,
        work: Duration::from_millis(line.one(WORK_MS, Value::number)?.into()),
        delay_ms: line.one(DELAY_MS, Value::number)?,
        mpi_ranks: line.one(MPI_RANKS, sizes)?,
        mpi_program: line.last(MPI_PROGRAM, Value::path)?,
        peer: line.last(PEER, Value::path)?,
        library: line.last(LIBRARY, Value::path)?,
        common_flags: CommonFlags::read(line, LIMIT)?,
        strict: line.has(STRICT),
    };
    check(&flags)?;
    Ok(flags)
}

/// Every job fills its nodes.
fn check(flags: &Flags) -> Result<(), Error> {
    let mpi = flags.mpi_ranks.iter().map(|ranks| (ranks, MPI_PPN));
    let ours = flags
        .ranks
        .iter()
        .chain(&flags.bytes_ranks)
        .chain(&flags.simulated)
        .map(|ranks| (ranks, flags.ppn.min(*ranks)));
    match mpi.chain(ours).find(|(ranks, ppn)| *ranks % ppn != 0) {
        None => Ok(()),
        Some((ranks, ppn)) => {
            Err(Error::Together(format!("{ranks} ranks do not fill a whole number of nodes with {ppn} each")))
        }
    }
}

/// A rank has at most five digits.
fn key_bytes(value: &Value) -> Result<u32, Error> {
    value
        .number_in(0, KEY_LEN_MAX)
        .ok()
        .filter(|len| *len == 0 || *len >= 5)
        .ok_or_else(|| value.refused(format!("expected 0, or 5 to {KEY_LEN_MAX}")))
}

fn sizes(value: &Value) -> Result<Vec<u32>, Error> {
    value.list(|size| size.number_in(1, JOB_SIZE_MAX))
}

fn simulated_sizes(value: &Value) -> Result<Vec<u32>, Error> {
    value.list(|size| size.number_in(1, SIMULATED_SIZE_MAX))
}

fn place(value: &Value) -> Result<Place, Error> {
    let text = value.text()?;
    let parts = text.split_once('x').and_then(|(nodes, ppn)| Some((nodes.parse().ok()?, ppn.parse().ok()?)));
    parts
        .filter(|(nodes, ppn): &(u32, u32)| {
            nodes.checked_mul(*ppn).is_some_and(|size| (1..=JOB_SIZE_MAX).contains(&size))
        })
        .map(|(node_count, ppn)| Place { node_count, ppn })
        .ok_or_else(|| value.refused("expected NODESxPPN, such as 256x64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(benchmark: Benchmark, words: &str) -> Result<Flags, Error> {
        read(benchmark, &common_flags::line(&COMMAND, words)?)
    }

    #[test]
    fn lists_and_numbers_are_parsed() {
        let words = "--ranks 16,256 --scheme fence,ring --exchange tree,log --part bytes --memory 4x8 --strict";
        let flags = parse_words(Benchmark::Exchange, words).unwrap();
        assert_eq!(flags.ranks, [16, 256]);
        assert_eq!(flags.schemes.iter().map(|s| s.name).collect::<Vec<_>>(), ["fence", "ring"]);
        assert_eq!(flags.exchanges, ["tree", "log"]);
        assert!(flags.has_part("bytes") && !flags.has_part("times") && flags.strict);
        assert_eq!(flags.memory, Place { node_count: 4, ppn: 8 });
        assert_eq!(flags.place(256), Place { node_count: 16, ppn: 16 });
        assert_eq!(flags.place(8), Place { node_count: 1, ppn: 8 });
    }

    #[test]
    fn wrong_words_are_refused() {
        for words in [
            "--ranks 16,x",
            "--ranks 0",
            "--ranks 17",
            "--scheme fences",
            "--part sleep",
            "--value-bytes 4",
            "--key-bytes 3",
            "--memory 4",
            "--memory 65536x65536",
            "--rounds 0",
            "x",
        ] {
            assert!(parse_words(Benchmark::Exchange, words).is_err(), "{words}");
        }
        assert!(parse_words(Benchmark::Overlap, "--part sleep").is_ok());
    }
}
