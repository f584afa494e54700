//! The command line of `wireup pmi`.

use wireup_flags::{Command, Error, Flag, Line, Section, Value, Words};
use wireup_wire::pmi::Dialect;

const DIALECT: Flag = Flag::value(&["--dialect"], "1|2", "PMI-1 (MPICH, Intel MPI), or PMI-2 (libpmi2).").or("1");
const VALUE_LEN: Flag = Flag::value(&["--value-len"], "BYTES", "Length of a value.").or("32");
const ROUNDS: Flag = Flag::value(&["--rounds"], "N", "Exchanges one after another.").or("1");
const GET: Flag = Flag::value(&["--get"], "all|N|none", "How many ranks' keys each rank gets.").or("all");
const CHECK: Flag = Flag::switch(
    &["--check"],
    "Also check values with every byte that all servers support, a key that was never put, and the process mapping.",
);

pub const COMMAND: Command = Command {
    name: "pmi",
    purpose: "a PMI client for tests",
    intro: "
  wireup run -n 4 wireup pmi exchange        under this launcher
  mpiexec -n 4 wireup pmi exchange           under MPICH's or Intel MPI's
  srun -n 4 --mpi=pmi2 wireup pmi exchange   under Slurm

Actions:
  exchange     init, put one key per rank, fence, get the others' keys, finalize. Every value is checked. Rank 0
               prints one line of times in ms: for each phase that of the slowest rank, averaged over all rounds.
               fence_ms is from the last rank's entry to the last one's return if all ranks share a clock
               (fence_clock=shared); otherwise the shortest wait of any rank.
  init         init, barrier, finalize: the cost of an empty MPI program. Rank 0 prints the times.
  info         each rank prints what it learns from its launcher: rank, size, appnum, names, limits, process mapping.
  abort CODE   init, then abort the job; the launcher should end with CODE (PMI-2 carries no code: any failure).
  leave        init, then exit 0 without finalize. In a job whose other ranks wait in a fence, the launcher
               should notice.
",
    words: Words::Named(&["ACTION", "[CODE]"]),
    sections: &[Section { title: "Flags", flags: &[DIALECT, VALUE_LEN, ROUNDS, GET, CHECK] }],
    end: "\nExit code: 0; 1 if the server or a value was wrong; 2 if the command line was.\n",
};

const ACTIONS: &[(&str, Action)] = &[
    ("exchange", Action::Exchange),
    ("init", Action::Init),
    ("info", Action::Info),
    ("abort", Action::Abort { code: 0 }),
    ("leave", Action::Leave),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Exchange,
    Init,
    Info,
    Abort { code: u8 },
    Leave,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags {
    pub action: Action,
    pub dialect: Dialect,
    pub value_len: usize,
    pub rounds: u32,
    /// How many ranks' keys each rank gets; if there are fewer ranks, it gets all keys.
    pub gets: u32,
    pub check: bool,
}

/// Reads the flags of a command line that states an action.
pub fn read(line: &Line) -> Result<Flags, Error> {
    Ok(Flags {
        action: action(line)?,
        dialect: line.one(DIALECT, |value| value.choice(&[("1", Dialect::Pmi1), ("2", Dialect::Pmi2)]))?,
        value_len: line.one(VALUE_LEN, Value::number)? as usize,
        rounds: line.one(ROUNDS, Value::at_least_one)?,
        gets: line.one(GET, gets)?,
        check: line.has(CHECK),
    })
}

fn action(line: &Line) -> Result<Action, Error> {
    let word =
        |flag: &str, at: usize| line.words.get(at).map(|word| Value { flag: flag.to_owned(), word: word.clone() });
    let missing = |word| Error::MissingWord { command: COMMAND.name, word };
    let action = word("pmi", 0).ok_or_else(|| missing("ACTION"))?.choice(ACTIONS)?;
    match (action, word("pmi abort", 1)) {
        (Action::Abort { .. }, Some(code)) => Ok(Action::Abort { code: code.number_in(0, u8::MAX.into())? as u8 }),
        (Action::Abort { .. }, None) => Err(missing("CODE of abort")),
        (_, Some(code)) => Err(Error::Together(format!("pmi: {} is too much; only abort has a code", code.shown()))),
        (action, None) => Ok(action),
    }
}

fn gets(value: &Value) -> Result<u32, Error> {
    value.number().or_else(|_| value.choice_or(&[("all", u32::MAX), ("none", 0)], "give all, none or a number"))
}

/// The dialect's number on the command line.
pub fn number(dialect: Dialect) -> u8 {
    match dialect {
        Dialect::Pmi1 => 1,
        Dialect::Pmi2 => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn parsed(line: &str) -> Result<Flags, String> {
        let line = COMMAND.parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())?;
        read(&line.expect("no help")).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_and_words_may_come_in_any_order() {
        let flags = parsed("--dialect 2 exchange --value-len=100 --get 5 --check --rounds 3").unwrap();
        let expected =
            Flags { action: Action::Exchange, dialect: Dialect::Pmi2, value_len: 100, rounds: 3, gets: 5, check: true };
        assert_eq!(flags, expected);
        assert_eq!(parsed("abort 7").unwrap().action, Action::Abort { code: 7 });
    }

    #[test]
    fn wrong_words_are_named_in_the_error() {
        for (line, says) in [
            ("", "pmi: ACTION is missing"),
            ("abort", "CODE of abort is missing"),
            ("abort 256", "pmi abort 256: give a whole number from 0 to 255"),
            ("init 7", "only abort has a code"),
            ("fly", "pmi fly: choose exchange, init, info, abort or leave"),
            ("exchange --dialect 3", "--dialect 3: choose 1 or 2"),
            ("exchange --rounds 0", "--rounds 0: give a whole number from 1"),
            ("exchange --get some", "--get some: give all, none or a number"),
            ("exchange --speed", "unknown flag --speed"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(says), "{line:?}: {error}");
        }
    }
}
