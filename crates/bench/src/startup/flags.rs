//! The flags of `wireup bench exchange`, `init` and `overlap`.
use std::path::PathBuf;
use std::time::Duration;

use lexopt::prelude::*;

use super::scheme::{self, Lengths, Scheme};
use crate::cases::Place;
use crate::common_flags::CommonFlags;
use crate::words::{self, at_least_one, list, word};

pub const HELP: &str = "\
usage: wireup bench exchange|init|overlap [FLAG..]

Startup exchanges by every scheme, side by side on real processes of this machine: put, fence and gets of an unmodified
PMI-2 client, the same by our libpmi2 and its shared memory, allgathers, their non-blocking forms, the ring. exchange times
them and counts their bytes, init times the initialisation of a middleware that uses them, overlap says how much of them
hides behind other work.

  --ranks A,B,..     job sizes (default: each benchmark's own, see --dry-run)
  --ppn N            ranks a node; nodes are virtual (default: 16)
  --rounds N         rounds that count, after one that warms up (default: by the job's size)
  --repeat N         exchange: exchanges of a round, one behind the other; their mean counts (default: 4)
  --scheme A,B,..    only these: text-fence text-get-2 text-get-all fence fence-get-2 fence-get-all ifence
                     allgather-copy allgather iallgather-copy iallgather ring
  --exchange A,B,..  a job for each of these of wireup run's --exchange (default: auto, which gives no flag)
  --value-bytes N    length of a value (default: 18)
  --key-bytes N      length of a key; 0: the rank as a number (default: 9)
  --part A,B,..      exchange: times, bytes, memory, peer; init: schemes, mpi; overlap: sleep, spin (default: all)
  --bytes-ranks A,.. exchange: job sizes at which bytes are counted (default: 4096,8192)
  --memory NxP       exchange: nodes and ranks a node of the job whose memory is read (default: 256x64)
  --work-ms N        init: local work of each rank, asleep (default: 20)
  --delay-ms N       overlap: delay of the links between agents while the clients spin (default: 10; 0: none)
  --mpi-ranks A,..   init: job sizes of the MPI program, 4 ranks a node (default: 8,16,32,64,128)
  --mpi-program PATH init: an MPI program that does init, barrier, finalize (default: target/programs/mpich5/initfin)
  --peer PATH        exchange: Hydra's mpiexec (default: as bench launch finds it)
  --library PATH     libpmi2.so.0 (default: beside this program, or in ../lib)
  --wireup PATH      the wireup to time (default: beside wireup-bench, else on PATH)
  --wireup-arg ARG   a further argument of wireup run (repeatable)
  --limit SECONDS    bound on each job (default: 600)
  --dry-run          show what would be run
  --json FILE        write everything that was measured
  --csv FILE         write every sample as a line
  --svg DIR          write figures
  --strict           exit with 1 if a target is missed
";

/// One of the three startup benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmark {
    Exchange,
    Init,
    Overlap,
}

impl Benchmark {
    pub fn from_word(word: &str) -> Option<Benchmark> {
        [Benchmark::Exchange, Benchmark::Init, Benchmark::Overlap].into_iter().find(|b| b.name() == word)
    }

    pub fn name(self) -> &'static str {
        match self {
            Benchmark::Exchange => "exchange",
            Benchmark::Init => "init",
            Benchmark::Overlap => "overlap",
        }
    }

    fn parts(self) -> &'static [&'static str] {
        match self {
            Benchmark::Exchange => &["times", "bytes", "memory", "peer"],
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
    parts: Vec<String>,
    pub bytes_ranks: Vec<u32>,
    pub memory: Place,
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
    fn new(benchmark: Benchmark) -> Flags {
        Flags {
            benchmark,
            ranks: Vec::new(),
            ppn: 16,
            rounds: None,
            repeat: 4,
            schemes: Vec::new(),
            exchanges: vec![AUTO.into()],
            lengths: Lengths { value: 18, key: 9 },
            parts: benchmark.parts().iter().map(|part| (*part).to_owned()).collect(),
            bytes_ranks: vec![4096, 8192],
            memory: Place { node_count: 256, ppn: 64 },
            work: Duration::from_millis(20),
            delay_ms: 10,
            mpi_ranks: vec![8, 16, 32, 64, 128],
            mpi_program: None,
            peer: None,
            library: None,
            common_flags: CommonFlags::new(Duration::from_secs(600)),
            strict: false,
        }
    }

    pub fn has_part(&self, part: &str) -> bool {
        self.parts.iter().any(|wanted| wanted == part)
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
/// More repetitions do not improve the result (chosen).
const REPEAT_MAX: u32 = 1000;
/// The capacity of the client (bytes).
const VALUE_LEN: std::ops::RangeInclusive<u32> = 8..=1024;
const KEY_LEN_MAX: u32 = 15;

/// Parses the flags after the benchmark's name; `None` if help is requested.
pub fn parse(benchmark: Benchmark, parser: &mut lexopt::Parser) -> Result<Option<Flags>, lexopt::Error> {
    let mut flags = Flags::new(benchmark);
    while let Some(name) = words::flag(parser)? {
        match name.as_str() {
            "ranks" => flags.ranks = sizes(&word(parser)?)?,
            "ppn" => flags.ppn = at_least_one(parser)?,
            "rounds" => flags.rounds = Some(at_least_one(parser)?),
            "repeat" => flags.repeat = at_least_one(parser)?.min(REPEAT_MAX),
            "scheme" => flags.schemes = list(&word(parser)?, |name| scheme::find(name).ok_or("scheme"))?,
            "exchange" => flags.exchanges = list(&word(parser)?, |name| Ok(name.to_owned()))?,
            "value-bytes" => flags.lengths.value = parser.value()?.parse()?,
            "key-bytes" => flags.lengths.key = parser.value()?.parse()?,
            "part" => {
                let parts = benchmark.parts();
                flags.parts =
                    list(&word(parser)?, |part| if parts.contains(&part) { Ok(part.to_owned()) } else { Err("part") })?;
            }
            "bytes-ranks" => flags.bytes_ranks = sizes(&word(parser)?)?,
            "memory" => flags.memory = place(&word(parser)?)?,
            "work-ms" => flags.work = Duration::from_millis(parser.value()?.parse()?),
            "delay-ms" => flags.delay_ms = parser.value()?.parse()?,
            "mpi-ranks" => flags.mpi_ranks = sizes(&word(parser)?)?,
            "mpi-program" => flags.mpi_program = Some(parser.value()?.into()),
            "peer" => flags.peer = Some(parser.value()?.into()),
            "library" => flags.library = Some(parser.value()?.into()),
            "strict" => flags.strict = true,
            "help" => return Ok(None),
            name if flags.common_flags.take(name, parser)? => {}
            name => return Err(words::unknown(name)),
        }
    }
    check(&flags).map(|()| Some(flags))
}

fn check(flags: &Flags) -> Result<(), lexopt::Error> {
    if !VALUE_LEN.contains(&flags.lengths.value) {
        return Err(format!("--value-bytes {}: expected 8 to 1024", flags.lengths.value).into());
    }
    // A rank has at most five digits.
    if !(flags.lengths.key == 0 || (5..=KEY_LEN_MAX).contains(&flags.lengths.key)) {
        return Err(format!("--key-bytes {}: expected 0, or 5 to {KEY_LEN_MAX}", flags.lengths.key).into());
    }
    if let Some(ranks) = flags.mpi_ranks.iter().find(|ranks| *ranks % MPI_PPN != 0) {
        return Err(format!("{ranks} ranks do not fill a whole number of nodes with {MPI_PPN} each").into());
    }
    for ranks in flags.ranks.iter().chain(&flags.bytes_ranks) {
        if ranks % flags.ppn.min(*ranks) != 0 {
            return Err(format!("{ranks} ranks do not fill a whole number of nodes with {} each", flags.ppn).into());
        }
    }
    Ok(())
}

fn sizes(text: &str) -> Result<Vec<u32>, lexopt::Error> {
    let size = |part: &str| part.parse().ok().filter(|size| (1..=JOB_SIZE_MAX).contains(size)).ok_or("job size");
    list(text, size)
}

fn place(text: &str) -> Result<Place, lexopt::Error> {
    let parts = text.split_once('x').and_then(|(nodes, ppn)| Some((nodes.parse().ok()?, ppn.parse().ok()?)));
    parts
        .filter(|(nodes, ppn): &(u32, u32)| {
            nodes.checked_mul(*ppn).is_some_and(|size| (1..=JOB_SIZE_MAX).contains(&size))
        })
        .map(|(node_count, ppn)| Place { node_count, ppn })
        .ok_or_else(|| format!("{text}: expected NODESxPPN, such as 256x64").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(benchmark: Benchmark, words: &str) -> Result<Option<Flags>, lexopt::Error> {
        parse(benchmark, &mut lexopt::Parser::from_args(words.split_whitespace()))
    }

    #[test]
    fn lists_and_numbers_are_read() {
        let words = "--ranks 16,256 --scheme fence,ring --exchange tree,log --part bytes --memory 4x8 --strict";
        let flags = parse_words(Benchmark::Exchange, words).unwrap().unwrap();
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
        assert_eq!(parse_words(Benchmark::Init, "--help").unwrap(), None);
    }
}
