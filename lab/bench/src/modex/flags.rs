//! The flags of `wireup bench modex`.
use std::path::PathBuf;

use wireup_flags::{Command, Error, Flag, Line, Section, Value, Words};

use super::plan::Part;
use crate::common_flags::{self, Across, CommonFlags, HOSTS, RESULTS, SHARED, WIREUP, WIREUP_ARG};

const PART: Flag =
    Flag::value(&["--part"], "A,B,..", "Only these: fence, direct, init, shmem.").or("fence,direct,init,shmem");
const NODES: Flag =
    Flag::value(&["--nodes"], "A,B,..", "Numbers of nodes, with hosts as many as there are.").or("2,4,8,16,32");
const PPN: Flag = Flag::value(&["--ppn"], "N", "Ranks a node.").or("4");
const PPNS: Flag = Flag::value(&["--ppns"], "A,B,..", "shmem: ranks of the one node.").or("1,2,4,8");
const BYTES: Flag = Flag::value(&["--bytes"], "N", "Length of each rank's value.").or("64");
const ROUNDS: Flag = Flag::value(&["--rounds"], "N", "Rounds that count, after one that warms up.").or("5");
const REMOTE_SHELL: Flag = common_flags::REMOTE_SHELL.or("ssh");
const OSHMEM: Flag =
    Flag::value(&["--oshmem"], "PATH", "shmem: init and an argument.").or("target/programs/oshmem/initfin");
const LIMIT: Flag = common_flags::LIMIT.or("120");

pub const COMMAND: Command = Command {
    name: "bench modex",
    purpose: "time the start of PMIx ranks",
    intro: "
What ranks of PMIx wait for at their start, on virtual nodes of this machine or across hosts: the collecting fence after two
without data, the first get by direct modex, joining by PMIx and opening UCX, shmem_init.
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Jobs", flags: &[PART, NODES, PPN, PPNS, BYTES, ROUNDS, OSHMEM, WIREUP, WIREUP_ARG, LIMIT] },
        Section { title: "Hosts", flags: &[HOSTS, REMOTE_SHELL, SHARED] },
        RESULTS,
    ],
    end: "",
};

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

/// With more ranks one machine gives no useful figures (chosen).
const SIZE_MAX: u32 = 4096;
/// The library compresses longer texts (bytes).
const BYTES_MAX: u32 = 4000;

pub fn read(line: &Line) -> Result<Flags, Error> {
    let size = |value: &Value| value.number_in(1, SIZE_MAX);
    let across = Across::read(line, REMOTE_SHELL)?;
    let mut nodes = line.one(NODES, |value| value.list(size))?;
    nodes.retain(|&nodes| across.hosts.is_empty() || nodes as usize <= across.hosts.len());
    let parts = Part::ALL.map(|part| (part.name(), part));
    Ok(Flags {
        parts: line.one(PART, |value| value.list(|part| part.choice(&parts)))?,
        nodes,
        ppn: line.one(PPN, size)?,
        ppns: line.one(PPNS, |value| value.list(size))?,
        bytes: line.one(BYTES, |value| value.number_in(1, BYTES_MAX))?,
        rounds: line.one(ROUNDS, Value::at_least_one)?,
        across,
        oshmem: line.one(OSHMEM, Value::path)?,
        common_flags: CommonFlags::read(line, LIMIT)?,
    })
}

#[cfg(test)]
impl Default for Flags {
    fn default() -> Flags {
        read(&Line::default()).expect("the defaults are valid")
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
        let flags = parsed("--part fence,shmem --nodes 2,3,9 --ppn 7 --hosts a,b,c --rounds 1").unwrap();
        assert_eq!(flags.parts, [Part::Fence, Part::Shmem]);
        assert_eq!((flags.nodes, flags.ppn, flags.rounds), (vec![2, 3], 7, 1), "there are three hosts");
    }

    #[test]
    fn wrong_words_are_refused() {
        for words in ["--part fences", "--nodes 0", "--ppn x", "--bytes 5000", "--what", "--rounds 0"] {
            assert!(parsed(words).is_err(), "{words}");
        }
    }
}
