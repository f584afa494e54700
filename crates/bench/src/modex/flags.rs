//! The flags of `wireup bench modex`.
use std::path::PathBuf;
use std::time::Duration;

use lexopt::prelude::*;

use super::plan::Part;

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
  --wireup PATH      the wireup to time (default: this one)
  --wireup-arg ARG   a further argument of wireup run (repeatable)
  --limit SECONDS    bound on each job (default: 120)
  --dry-run          say what would be run
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
    pub hosts: Vec<String>,
    pub remote_shell: String,
    pub shared: Option<PathBuf>,
    pub oshmem: PathBuf,
    pub wireup: Option<PathBuf>,
    pub wireup_args: Vec<String>,
    pub limit: Duration,
    pub dry_run: bool,
    pub json: Option<PathBuf>,
    pub csv: Option<PathBuf>,
    pub svg: Option<PathBuf>,
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
            hosts: Vec::new(),
            remote_shell: "ssh".into(),
            shared: None,
            oshmem: "target/programs/oshmem/initfin".into(),
            wireup: None,
            wireup_args: Vec::new(),
            limit: Duration::from_secs(120),
            dry_run: false,
            json: None,
            csv: None,
            svg: None,
        }
    }
}

/// More ranks say nothing on one machine (chosen).
const SIZE_MAX: u32 = 4096;
/// The library compresses longer texts (bytes).
const BYTES_MAX: u32 = 4000;

/// The flags behind the benchmark's name; `None`: help is wanted.
pub fn parse(parser: &mut lexopt::Parser) -> Result<Option<Flags>, lexopt::Error> {
    let mut flags = Flags::default();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("part") => flags.parts = list(&word(parser)?, Part::from_word)?,
            Long("nodes") => flags.nodes = list(&word(parser)?, size)?,
            Long("ppn") => flags.ppn = one(parser, SIZE_MAX)?,
            Long("ppns") => flags.ppns = list(&word(parser)?, size)?,
            Long("bytes") => flags.bytes = one(parser, BYTES_MAX)?,
            Long("rounds") => flags.rounds = one(parser, u32::MAX)?,
            Long("hosts") => flags.hosts = word(parser)?.split(',').map(str::to_owned).collect(),
            Long("remote-shell") => flags.remote_shell = word(parser)?,
            Long("shared") => flags.shared = Some(parser.value()?.into()),
            Long("oshmem") => flags.oshmem = parser.value()?.into(),
            Long("wireup") => flags.wireup = Some(parser.value()?.into()),
            Long("wireup-arg") => flags.wireup_args.push(word(parser)?),
            Long("limit") => flags.limit = Duration::from_secs(one(parser, u32::MAX)?.into()),
            Long("dry-run") => flags.dry_run = true,
            Long("json") => flags.json = Some(parser.value()?.into()),
            Long("csv") => flags.csv = Some(parser.value()?.into()),
            Long("svg") => flags.svg = Some(parser.value()?.into()),
            Long("help") | Short('h') => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    if !flags.hosts.is_empty() {
        flags.nodes.retain(|&nodes| nodes as usize <= flags.hosts.len());
    }
    Ok(Some(flags))
}

fn word(parser: &mut lexopt::Parser) -> Result<String, lexopt::Error> {
    parser.value()?.into_string().map_err(|word| format!("{}: not a text", word.display()).into())
}

fn size(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| (1..=SIZE_MAX).contains(number))
}

fn one(parser: &mut lexopt::Parser, most: u32) -> Result<u32, lexopt::Error> {
    let text = word(parser)?;
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("{text}: expected a number from 1 to {most}").into())
}

fn list<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, lexopt::Error> {
    let parts = text.split(',').map(|part| read(part).ok_or_else(|| format!("{part}: not known; see --help").into()));
    parts.collect()
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
