//! The flags of `wireup bench stage`.
use wireup_flags::{Command, Error, Flag, Line, Section, Value, Words};

use super::case::{Case, Contestant, Kind};
use crate::common_flags::{self, Across, CSV, CommonFlags, DRY_RUN, HOSTS, JSON, SHARED, STRICT, WIREUP};

const TREES: Flag = Flag::value(&["--tree"], "A,B,..", "Only these.").or("mixed,random,small");
const MIB: Flag = Flag::value(&["--mib"], "N", "Size of the trees mixed and random.").or("256");
const SMALL_FILES: Flag = Flag::value(&["--small-files"], "N", "Files of the tree small.").or("10000");
const SMALL_MIB: Flag = Flag::value(&["--small-mib"], "N", "Its size.").or("100");
const MEMORY_MIB: Flag = Flag::value(
    &["--memory-mib"],
    "N",
    "Stage a tree like mixed of this size once more, for the agents' memory alone. Default: take it from the trees above.",
);
const ROUNDS: Flag = Flag::value(&["--rounds"], "N", "Rounds that count, after one that warms up.").or("5");
const REMOTE_SHELL: Flag = common_flags::REMOTE_SHELL.or("ssh");
const LIMIT: Flag = common_flags::LIMIT.or("300");

pub const COMMAND: Command = Command {
    name: "bench stage",
    purpose: "time copies of files to the nodes of a session",
    intro: "
wireup stage up in a session across the hosts, with and without encrypted links, in turns with bare relays: a small C program on each
host that passes one stream of the same bytes on and writes it into a file in the host's memory.

  mixed    files of this machine, from /usr/lib and /usr/share, of all kinds; the same in each run
  random   the same names and sizes with random bytes, which cannot be compressed
  small    many files of one size, cut from such files

The figures: bytes of the tree a second, beside the faster relays; the time of a second wireup stage up, which finds everything there;
how much the largest agent grows.
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Trees", flags: &[TREES, MIB, SMALL_FILES, SMALL_MIB, MEMORY_MIB] },
        Section { title: "Runs", flags: &[ROUNDS, WIREUP, LIMIT] },
        Section { title: "Hosts", flags: &[HOSTS, REMOTE_SHELL, SHARED] },
        Section { title: "Results", flags: &[DRY_RUN, JSON, CSV] },
        Section { title: "Targets", flags: &[STRICT] },
    ],
    end: "
  wireup-testbed run -n 16 --ssh -- wireup bench stage --hosts $(seq -s, -f n%g 0 15)

--hosts is needed, and each host must have a /dev/shm of its own.
",
};

/// More would not fit in the memory of any machine that was measured.
const MIB_MAX: u32 = 1 << 16;
/// A set has hardly more entries, and each file at least a byte.
const FILES_MAX: u32 = 1_000_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    pub trees: Vec<Kind>,
    pub mib: u32,
    pub small_files: u32,
    pub small_mib: u32,
    pub memory_mib: Option<u32>,
    pub rounds: u32,
    pub across: Across,
    pub common_flags: CommonFlags,
    pub strict: bool,
}

pub fn read(line: &Line) -> Result<Flags, Error> {
    let across = Across::read(line, REMOTE_SHELL)?;
    if across.hosts.is_empty() {
        return Err(Error::Together(
            "bench stage needs --hosts A,B,..: nodes that share a memory share a store".to_owned(),
        ));
    }
    let kinds = Kind::TIMED.map(|kind| (kind.name(), kind));
    let mib = |value: &Value| value.number_in(1, MIB_MAX);
    Ok(Flags {
        trees: line.one(TREES, |value| value.list(|kind| kind.choice(&kinds)))?,
        mib: line.one(MIB, mib)?,
        small_files: line.one(SMALL_FILES, |value| value.number_in(1, FILES_MAX))?,
        small_mib: line.one(SMALL_MIB, mib)?,
        memory_mib: line.last(MEMORY_MIB, mib)?,
        rounds: line.one(ROUNDS, Value::at_least_one)?,
        across,
        common_flags: CommonFlags::read(line, LIMIT)?,
        strict: line.has(STRICT),
    })
}

impl Flags {
    /// Those of each round, in the order of the first one.
    pub fn cases(&self) -> Vec<Case> {
        self.trees.iter().flat_map(|kind| Contestant::ALL.map(|contestant| (*kind, contestant))).collect()
    }

    /// Those that run once.
    pub fn memory_cases(&self) -> Vec<Case> {
        let with = |contestant| (Kind::Memory, contestant);
        if self.memory_mib.is_some() { Contestant::SESSIONS.map(with).to_vec() } else { Vec::new() }
    }

    /// The trees that are made.
    pub fn kinds(&self) -> Vec<Kind> {
        let memory = self.memory_mib.map(|_| Kind::Memory);
        Kind::ALL.into_iter().filter(|kind| self.trees.contains(kind) || memory == Some(*kind)).collect()
    }

    pub fn bytes_of(&self, kind: Kind) -> u64 {
        let mib = match kind {
            Kind::Mixed | Kind::Random => self.mib,
            Kind::Small => self.small_mib,
            Kind::Memory => self.memory_mib.unwrap_or(0),
        };
        u64::from(mib) << 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Flags, Error> {
        read(&common_flags::line(&COMMAND, words)?)
    }

    #[test]
    fn flags_are_parsed() {
        let flags = parsed("--hosts a,b --mib 8 --tree small,mixed --memory-mib 9").unwrap();
        assert_eq!(flags.cases().len(), 2 * Contestant::ALL.len());
        assert_eq!(flags.cases()[0], (Kind::Small, Contestant::Encrypted));
        assert_eq!(flags.kinds(), [Kind::Mixed, Kind::Small, Kind::Memory]);
        assert_eq!((flags.bytes_of(Kind::Mixed), flags.bytes_of(Kind::Memory)), (8 << 20, 9 << 20));
        assert!(parsed("--hosts a").unwrap().memory_cases().is_empty());
    }

    #[test]
    fn wrong_words_are_refused() {
        for words in ["", "--mib 0", "--tree x", "--tree memory", "--rounds 0", "--small-files 1000001", "x"] {
            assert!(parsed(&format!("--hosts a {words}")).is_err() != words.is_empty(), "{words}");
        }
        assert!(parsed("").is_err());
    }
}
