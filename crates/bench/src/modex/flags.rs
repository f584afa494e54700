//! The flags of `wireup bench modex`.
use std::path::PathBuf;
use std::time::Duration;

use super::plan::Part;
use crate::common_flags::{Across, CommonFlags};
use crate::words::{self, at_least_one, list, word};

pub const HELP: &str = "\
usage: wireup bench modex [FLAG..]

What ranks of PMIx wait for at their start, on virtual nodes of this machine or across hosts: the collecting fence after two
without data, the first get by direct modex, joining by PMIx and opening UCX, shmem_init.

  --part A,B,..      only these: fence, direct, init, shmem (default: all)
  --nodes A,B,..     numbers of nodes (default: 2,4,8,16,32; with hosts as many as there are)
  --ppn N            ranks a node (default: 4)
  --ppns A,B,..      shmem: ranks of the one node (default: 1,2,4,8)
  --bytes N          length of each rank's value (default: 64)
  --rounds N         rounds that count, after one that warms up (default: 5)
  --hosts A,B,..     across these hosts; all must see the folder of --shared
  --remote-shell CMD their remote shell, one word (default: ssh)
  --shared DIR       where the test programs are put for hosts (default: the current folder)
  --oshmem PATH      shmem: init and an argument (default: target/programs/oshmem/initfin)
  --wireup PATH      the wireup to time (default: beside wireup-bench, else on PATH)
  --wireup-arg ARG   a further argument of wireup run (repeatable)
  --limit SECONDS    bound on each job (default: 120)
  --dry-run          show what would be run
  --json FILE        write everything that was measured
  --csv FILE         write every sample as a line
  --svg DIR          write figures
";

#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    pub parts: Vec<Part>,
    pub nodes: Vec<u32>,
    pub ppn: u32,
    pub ppns: Vec<u32>,
    pub bytes: u32,
    pub rounds: u32,
    pub across: Across,
    pub oshmem: PathBuf,
    pub common_flags: CommonFlags,
}

impl Default for Flags {
    fn default() -> Flags {
        Flags {
            parts: Part::ALL.to_vec(),
            nodes: vec![2, 4, 8, 16, 32],
            ppn: 4,
            ppns: vec![1, 2, 4, 8],
            bytes: 64,
            rounds: 5,
            across: Across::new("ssh"),
            oshmem: "target/programs/oshmem/initfin".into(),
            common_flags: CommonFlags::new(Duration::from_secs(120)),
        }
    }
}

/// With more ranks one machine gives no useful figures (chosen).
const SIZE_MAX: u32 = 4096;
/// The library compresses longer texts (bytes).
const BYTES_MAX: u32 = 4000;

/// Parses the flags after the benchmark's name; `None` if help is requested.
pub fn parse(parser: &mut lexopt::Parser) -> Result<Option<Flags>, lexopt::Error> {
    let mut flags = Flags::default();
    while let Some(name) = words::flag(parser)? {
        match name.as_str() {
            "part" => flags.parts = list(&word(parser)?, |name| Part::from_word(name).ok_or("part"))?,
            "nodes" => flags.nodes = list(&word(parser)?, |nodes| size(nodes).ok_or("number of nodes"))?,
            "ppn" => flags.ppn = one(parser, SIZE_MAX)?,
            "ppns" => flags.ppns = list(&word(parser)?, |ppn| size(ppn).ok_or("number of ranks"))?,
            "bytes" => flags.bytes = one(parser, BYTES_MAX)?,
            "rounds" => flags.rounds = at_least_one(parser)?,
            "oshmem" => flags.oshmem = parser.value()?.into(),
            "help" => return Ok(None),
            name if flags.common_flags.take(name, parser)? || flags.across.take(name, parser)? => {}
            name => return Err(words::unknown(name)),
        }
    }
    if !flags.across.hosts.is_empty() {
        flags.nodes.retain(|&nodes| nodes as usize <= flags.across.hosts.len());
    }
    Ok(Some(flags))
}

fn size(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| (1..=SIZE_MAX).contains(number))
}

fn one(parser: &mut lexopt::Parser, most: u32) -> Result<u32, lexopt::Error> {
    let text = word(parser)?;
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("{text}: expected a number from 1 to {most}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Option<Flags>, lexopt::Error> {
        parse(&mut lexopt::Parser::from_args(words.split_whitespace()))
    }

    #[test]
    fn words_are_read() {
        let flags = parsed("--part fence,shmem --nodes 2,3,9 --ppn 7 --hosts a,b,c --rounds 1").unwrap().unwrap();
        assert_eq!(flags.parts, [Part::Fence, Part::Shmem]);
        assert_eq!((flags.nodes, flags.ppn, flags.rounds), (vec![2, 3], 7, 1), "there are three hosts");
        assert!(parsed("--help").unwrap().is_none());
    }

    #[test]
    fn wrong_words_are_refused() {
        for words in ["--part fences", "--nodes 0", "--ppn x", "--bytes 5000", "--what", "--rounds 0"] {
            assert!(parsed(words).is_err(), "{words}");
        }
    }
}
