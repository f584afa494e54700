//! The flags of `wireup bench p2p` and `coll`.
use std::time::Duration;

use lexopt::prelude::*;

use crate::common_flags::{Across, CommonFlags};
use crate::words::{self, at_least_one, list, word};

pub const HELP: &str = "\
usage: wireup bench p2p|coll [FLAG..]

What the links between agents carry, measured inside the agents of a real job before its ranks start. p2p: messages there
and back between two agents, by every transport, beside a bare C program over TCP and ucx_perftest. coll: allgathers among
all agents, by every algorithm and transport.

  --nodes N          virtual nodes of this machine, an agent each (default: 16)
  --hosts A,B,..     these hosts in their place, reached by --remote-shell
  --remote-shell CMD called as CMD HOST COMMAND (default: plainsh)
  --shared DIR       where all hosts see the test programs (default: the current directory)
  --fanout N         of the tree (default: 4: two levels below the root for 16)
  --pair A,B         p2p: the two nodes (default: 5,9, on different branches; 1,2 where there are fewer than 10)
  --sizes A,B,..     bytes of a message, or of a node's part (default: 1, 2, 4, .. 4194304; coll: .. 65536)
  --iterations-small N   up to 1024 bytes (default: 100)
  --iterations-large N   above (default: 20)
  --rounds N         rounds that count, after one that warms up (default: 5)
  --only A,B,..      only subjects whose name begins so, such as tcp, tree, ucx, bare, log/tcp
  --peer NAME=CMD    coll: a shell command beside them that prints lines \"measured BYTES TIMES TOTAL MEDIAN LEAST\", times in
                     nanoseconds of one allgather; {steps} in it becomes 64x100,1024x100,.., and {pmix} a PMIx program with
                     its arguments that does put, commit and collecting fence for each of them (repeatable)
  --wireup PATH      the wireup to time (default: beside wireup-bench, else on PATH)
  --wireup-arg ARG   a further argument of wireup run (repeatable), such as --encrypt
  --limit SECONDS    bound on each run (default: 120)
  --dry-run          show what would be run
  --json FILE        write everything that was measured
  --csv FILE         write every sample as a line
  --svg DIR          write figures
  --strict           exit with 1 if a target is missed
";

/// The largest message that counts as small (S3).
const SMALL_BYTES_MAX: u32 = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmark {
    P2p,
    Coll,
}

impl Benchmark {
    pub fn from_word(word: &str) -> Option<Benchmark> {
        [Benchmark::P2p, Benchmark::Coll].into_iter().find(|benchmark| benchmark.name() == word)
    }

    pub fn name(self) -> &'static str {
        match self {
            Benchmark::P2p => "p2p",
            Benchmark::Coll => "coll",
        }
    }

    /// The largest size (bytes): the source's; for allgathers, where it is the size of one node's part, it is also our own limit.
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
    /// Bytes and iterations.
    pub steps: Vec<(u32, u32)>,
    pub rounds: u32,
    pub only: Vec<String>,
    pub peers: Vec<(String, String)>,
    pub common_flags: CommonFlags,
    pub strict: bool,
}

/// `None` if help is requested.
pub fn parse(benchmark: Benchmark, parser: &mut lexopt::Parser) -> Result<Option<Flags>, lexopt::Error> {
    let (mut sizes, mut small, mut large) = (benchmark.sizes(), 100, 20);
    let (mut pair, mut nodes) = (None, 16);
    let mut flags = Flags {
        benchmark,
        nodes,
        across: Across::new("plainsh"),
        fanout: 4,
        pair: (0, 0),
        steps: Vec::new(),
        rounds: 5,
        only: Vec::new(),
        peers: Vec::new(),
        common_flags: CommonFlags::new(Duration::from_secs(120)),
        strict: false,
    };
    while let Some(name) = words::flag(parser)? {
        match name.as_str() {
            "nodes" => nodes = parser.value()?.parse()?,
            "fanout" => flags.fanout = parser.value()?.parse()?,
            "pair" => {
                let text = word(parser)?;
                let (first, second) = text.split_once(',').ok_or("--pair: expected A,B")?;
                pair = Some((first.parse().map_err(|_| "--pair")?, second.parse().map_err(|_| "--pair")?));
            }
            "sizes" => sizes = list(&word(parser)?, |size| size.parse().map_err(|_| "size"))?,
            "iterations-small" => small = at_least_one(parser)?,
            "iterations-large" => large = at_least_one(parser)?,
            "rounds" => flags.rounds = at_least_one(parser)?,
            "only" => {
                flags.only = word(parser)?.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
            }
            "peer" => {
                let text = word(parser)?;
                let (name, command) = text.split_once('=').ok_or("--peer: expected NAME=CMD")?;
                flags.peers.push((name.to_owned(), command.to_owned()));
            }
            "strict" => flags.strict = true,
            "help" => return Ok(None),
            name if flags.common_flags.take(name, parser)? || flags.across.take(name, parser)? => {}
            name => return Err(words::unknown(name)),
        }
    }
    flags.nodes = if flags.across.hosts.is_empty() { nodes } else { flags.across.hosts.len() as u32 };
    if flags.nodes < 3 {
        return Err("at least 3 nodes: two that are no neighbours in the tree".into());
    }
    flags.pair = pair.unwrap_or(if flags.nodes < 10 { (1, 2) } else { (5, 9) });
    let (first, second) = flags.pair;
    if first == second || first.max(second) >= flags.nodes {
        return Err(format!("--pair: two of the {} nodes", flags.nodes).into());
    }
    flags.steps = steps(&sizes, benchmark.bytes_max(), small, large)?;
    Ok(Some(flags))
}

fn steps(sizes: &[u32], bytes_max: u32, small: u32, large: u32) -> Result<Vec<(u32, u32)>, lexopt::Error> {
    if sizes.is_empty() || sizes.contains(&0) || sizes.iter().any(|bytes| *bytes > bytes_max) {
        return Err(format!("--sizes: from 1 to {bytes_max}").into());
    }
    let times = |bytes: u32| if bytes <= SMALL_BYTES_MAX { small } else { large };
    Ok(sizes.iter().map(|bytes| (*bytes, times(*bytes))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(benchmark: Benchmark, words: &str) -> Result<Option<Flags>, lexopt::Error> {
        parse(benchmark, &mut lexopt::Parser::from_args(words.split_whitespace()))
    }

    #[test]
    fn sizes_and_iterations_are_the_sources() {
        let flags = parsed(Benchmark::P2p, "").unwrap().unwrap();
        assert_eq!((flags.steps.len(), flags.steps[0], flags.steps[10]), (23, (1, 100), (1024, 100)));
        assert_eq!((flags.steps[11], flags.steps[22]), ((2048, 20), (4 << 20, 20)));
        assert_eq!((flags.nodes, flags.pair), (16, (5, 9)));
        assert_eq!(parsed(Benchmark::Coll, "").unwrap().unwrap().steps.last(), Some(&(65_536, 20)));
    }

    #[test]
    fn nonsense_is_refused() {
        for words in ["--nodes 2", "--pair 1", "--pair 1,1", "--pair 1,16", "--sizes 0", "--sizes a", "--rounds 0", "x"]
        {
            assert!(parsed(Benchmark::P2p, words).is_err(), "{words}");
        }
        assert!(parsed(Benchmark::Coll, "--sizes 65537").is_err());
        assert_eq!(parsed(Benchmark::P2p, "--help").unwrap(), None);
    }
}
