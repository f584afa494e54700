//! `wireup bench`: measures launchers and related programs, side by side; prints medians, and a JSON line for each
//! value (`lab/SCHEMA.md`).
//!
//! `bench` has what all benchmarks share: flags, folder, and the loop that runs contestants in turns. `samples` stores
//! the measured values, `progress` shows the current measurement. `command` runs one command, `leftovers` ends
//! processes that the command leaves behind, `programs` are the embedded test programs, `remote` are processes on other
//! hosts.
//!
//! The benchmarks: `launch` (jobs, by all launchers), `startup` (exchanges of ranks at their
//! start), `links` (links between agents), `modex` (PMIx ranks), `spawn` (MPI_Comm_spawn), `staging` (files).
//! `lab/reproductions` uses the same parts.
#![forbid(unsafe_code)]

pub mod bench;
pub mod command;
pub mod flags;
pub mod launch;
pub mod layout;
pub mod leftovers;
mod links;
mod memory;
mod modex;
pub mod programs;
mod progress;
pub mod remote;
pub mod samples;
mod shells;
mod spawn;
mod staging;
pub mod stamps;
pub mod startup;

pub use launch::RunningSession;

use std::ffi::OsString;

use bench::{Benchmark, Part};
use wireup_flags::{Command, Words};

/// The command line of `wireup bench`, up to the name of the benchmark.
const BENCH: Command = Command {
    name: "bench",
    purpose: "measure launchers side by side",
    intro: "
  wireup bench launch|start|jobs     launchers side by side
  wireup bench exchange              startup exchanges
  wireup bench modex                 the start of PMIx ranks
  wireup bench spawn                 MPI_Comm_spawn
  wireup bench stage                 copies of files to the nodes of a session
  wireup bench p2p|coll              links between agents

wireup help bench BENCHMARK lists its flags. Each prints medians of interleaved rounds, and ratios to the first
contestant.
",
    words: Words::Program,
    sections: &[],
    end: "",
};

/// Subcommand that prints the manual page, for packages.
const MAN: &str = "man";

/// All command lines with their flags.
pub const COMMANDS: [&Command; 7] =
    [&BENCH, &launch::COMMAND, &startup::COMMAND, &modex::COMMAND, &spawn::COMMAND, &staging::COMMAND, &links::COMMAND];

const BENCHMARKS: [Benchmark; 9] = [
    ("launch", &launch::COMMAND, launch::run),
    ("start", &launch::COMMAND, launch::run),
    ("jobs", &launch::COMMAND, launch::run),
    ("exchange", &startup::COMMAND, startup::run),
    ("modex", &modex::COMMAND, modex::run),
    ("spawn", &spawn::COMMAND, spawn::run),
    ("stage", &staging::COMMAND, staging::run),
    ("p2p", &links::COMMAND, links::run),
    ("coll", &links::COMMAND, links::run),
];

const PARTS: [Part; 5] = [
    (MAN, |_| {
        print!("{}", man_page());
        Ok(())
    }),
    (links::process::WORD, |args| Ok(links::process::run(args)?)),
    (links::process::RANK, |args| Ok(links::process::gather(args)?)),
    (staging::host::WORD, |args| Ok(staging::host::run(args)?)),
    (shells::WORD, |args| Ok(shells::run(args)?)),
];

fn man_page() -> String {
    let page = BENCH.man_with(&COMMANDS[1..], concat!("wireup ", env!("CARGO_PKG_VERSION")));
    page.section("See also").prose("wireup(1), wireup-simulate(1)").render()
}

/// Runs `wireup bench ARGS` and returns the exit code; `args` come after the word `bench`.
pub fn main(args: Vec<OsString>) -> u8 {
    bench::main(&BENCH, &BENCHMARKS, &PARTS, args)
}
