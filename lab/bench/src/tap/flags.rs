//! The flags of `wireup bench tap`.
use std::ffi::OsString;
use std::path::PathBuf;

use wireup_flags::{Command, Error, Flag, Line, Section, Value, Words};

use crate::common_flags::{self, CSV, CommonFlags, DRY_RUN, JSON, STRICT, WIREUP};

const LAUNCHER: Flag =
    Flag::value(&["--launcher"], "WORDS", "The launcher with its flags, split at blanks.").or("mpiexec -n 4");
const UNDER: Flag = Flag::value(
    &["--under"],
    "WORDS",
    "Start it by wireup run with these words, too, and compare: --under '-n 16'.",
);
const SHARED: Flag = Flag::value(
    &["--shared"],
    "DIR",
    "Where all nodes see the records of the ranks. Default: the folder for temporary files of this machine.",
);
const ROUNDS: Flag = Flag::value(&["--rounds"], "N", "Rounds that count, after one that warms up.").or("20");
const LIMIT: Flag = common_flags::LIMIT.or("120");

pub const COMMAND: Command = Command {
    name: "bench tap",
    purpose: "time a start with wireup tap and without it",
    intro: "
  wireup bench tap --launcher 'mpiexec -n 16' ./initfin
  wireup bench tap --launcher 'srun --mpi=pmi2 -N 4 -n 16' --under '--hosts n[0-3] -n 16' ./initfin

Starts the program in turn without the tap, with it, and with --under by wireup run. The target: the median ratio of
the wall times of a round is at most 1.05.
",
    words: Words::Program,
    sections: &[Section {
        title: "Flags",
        flags: &[LAUNCHER, UNDER, SHARED, ROUNDS, WIREUP, LIMIT, STRICT, DRY_RUN, JSON, CSV],
    }],
    end: "",
};

#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    pub launcher: String,
    pub under: Option<String>,
    pub shared: Option<PathBuf>,
    pub rounds: u32,
    pub program: Vec<OsString>,
    pub strict: bool,
    pub common_flags: CommonFlags,
}

pub fn read(line: &Line) -> Result<Flags, Error> {
    if line.words.is_empty() {
        return Err(Error::MissingWord { command: COMMAND.name, word: "PROGRAM" });
    }
    Ok(Flags {
        launcher: line.one(LAUNCHER, Value::text)?,
        under: line.last(UNDER, Value::text)?,
        shared: line.last(SHARED, Value::path)?,
        rounds: line.one(ROUNDS, Value::at_least_one)?,
        program: line.words.clone(),
        strict: line.has(STRICT),
        common_flags: CommonFlags::read(line, LIMIT)?,
    })
}
