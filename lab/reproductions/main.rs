//! The experiments of the sources that wireup is built after, repeated: a folder for each source, whose README.md says
//! what it reproduces, what differs, and how to run it. The samples are those of `wireup bench` (`lab/SCHEMA.md`).
#![forbid(unsafe_code)]

mod s1;
mod s2;
mod s4;

use std::ffi::OsString;
use std::process::ExitCode;

use wireup_bench::bench::{self, Benchmark};
use wireup_flags::{Command, Words};

const REPRODUCE: Command = Command {
    name: "reproduce",
    purpose: "repeat the experiments of the sources",
    intro: "
  wireup-reproduce init|overlap     S1: initialisation with non-blocking exchanges; how much of them is hidden
  wireup-reproduce steps            S2: the phases of a start, by the steps that made it faster
  wireup-reproduce groups           S2: what groups of ranks cost, beside the simulator
  wireup-reproduce s4               S4: the start of processes until all are connected

wireup-reproduce NAME --help lists the flags of one.
",
    words: Words::Program,
    sections: &[],
    end: "",
};

const ALL: [Benchmark; 5] = [
    ("init", &s1::INIT, s1::init),
    ("overlap", &s1::OVERLAP, s1::overlap),
    ("steps", &s2::STEPS, s2::steps),
    ("groups", &s2::GROUPS, s2::groups),
    ("s4", &s4::COMMAND, s4::run),
];

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    // A reproduction starts this program again for its processes.
    let part = |word: &OsString, args: &[OsString]| match word.to_str() {
        Some(s1::slow_shell::WORD) => Some(s1::slow_shell::run(args)),
        Some(s2::rank::WORD) => Some(s2::rank::run(args).map(|()| 0).map_err(Into::into)),
        Some(s4::process::WORD) => Some(s4::process::run().map(|()| 0).map_err(Into::into)),
        Some(s4::agent::WORD) => Some(s4::agent::run().map(|()| 0).map_err(Into::into)),
        _ => None,
    };
    match words.split_first().and_then(|(word, args)| part(word, args)) {
        Some(Ok(code)) => ExitCode::from(code),
        Some(Err(problem)) => {
            let problem: Box<dyn std::error::Error> = problem;
            eprintln!("wireup-reproduce {}: {problem}", words[0].to_string_lossy());
            ExitCode::FAILURE
        }
        None => bench::main(&REPRODUCE, &ALL, words).into(),
    }
}
