//! The experiments of the sources that wireup is built after, repeated: a folder for each source, whose README.md says
//! what it reproduces, what differs, and how to run it. The samples are those of `wireup bench` (`lab/SCHEMA.md`).
#![forbid(unsafe_code)]

mod s1;
mod s2;
mod s4;

use std::process::ExitCode;

use wireup_bench::bench::{self, Benchmark, Part};
use wireup_flags::{Command, Words};

const REPRODUCE: Command = Command {
    name: "reproduce",
    purpose: "repeat the experiments of the sources",
    intro: "
  wireup-reproduce overlap          S1: how much of a non-blocking exchange is hidden
  wireup-reproduce tables           S1: the phases and bytes of a fence and of an allgather, and what they were in S1
  wireup-reproduce apps             S1: whole applications by four schemes of exchange
  wireup-reproduce steps            S2: the phases of a start, by the steps that made it faster
  wireup-reproduce groups           S2: what groups of ranks cost, beside the simulator
  wireup-reproduce s4               S4: the start of processes until all are connected

wireup-reproduce NAME --help lists the flags of one.
",
    words: Words::Program,
    sections: &[],
    end: "",
};

const ALL: [Benchmark; 6] = [
    ("overlap", &s1::OVERLAP, s1::overlap),
    ("tables", &s1::tables::COMMAND, s1::tables::run),
    ("apps", &s1::apps::COMMAND, s1::apps::run),
    ("steps", &s2::STEPS, s2::steps),
    ("groups", &s2::GROUPS, s2::groups),
    ("s4", &s4::COMMAND, s4::run),
];

const PARTS: [Part; 6] = [
    (s1::slow_shell::WORD, s1::slow_shell::run),
    (s1::slurm::WORD, s1::slurm::run),
    (s2::rank::WORD, |args| Ok(s2::rank::run(args)?)),
    (s4::process::WORD, |args| Ok(s4::process::run(args)?)),
    (s4::ours::WORD, |args| Ok(s4::ours::run(args)?)),
    (s4::agent::WORD, |_| Ok(s4::agent::run()?)),
];

fn main() -> ExitCode {
    bench::main(&REPRODUCE, &ALL, &PARTS, std::env::args_os().skip(1).collect()).into()
}
