//! The experiments of the sources that wireup is built after, repeated: a folder for each source, whose README.md says
//! what it reproduces, what differs, and how to run it. The samples are those of `wireup bench` (`lab/SCHEMA.md`).
#![forbid(unsafe_code)]

mod s1;
mod s2;
mod s4;

use std::ffi::OsString;
use std::process::ExitCode;

use wireup_bench::bench::{self, Benchmark, benchmark};
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
    benchmark("init", &s1::INIT, s1::init),
    benchmark("overlap", &s1::OVERLAP, s1::overlap),
    benchmark("steps", &s2::STEPS, s2::steps),
    benchmark("groups", &s2::GROUPS, s2::groups),
    benchmark("s4", &s4::COMMAND, s4::run),
];

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    // A reproduction starts this program again for its processes.
    let code = match words.split_first() {
        Some((word, args)) if word == s1::slow_shell::WORD => s1::slow_shell::main(args),
        Some((word, args)) if word == s2::rank::WORD => s2::rank::main(args),
        Some((word, args)) if word == s4::launcher::WORD => s4::launcher::main(args),
        Some((word, _)) if word == s4::process::WORD => s4::process::main(),
        Some((word, _)) if word == s4::daemon::WORD => s4::daemon::main(),
        _ => bench::main(&REPRODUCE, &ALL, words),
    };
    code.into()
}
