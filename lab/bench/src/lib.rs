//! `wireup bench`: compares launchers by their times.
//!
//! `flags` select what to run; `cases` are the jobs and their targets, `hosts` those across hosts; `peers` finds the
//! other launchers; `baseline` and `echo` are baselines, lower bounds that no launcher can beat; `measure` runs all in
//! interleaved rounds; `stats` and `verdict` judge; `table` and `files` show the results, `launch_figures` and `bars`
//! draw them. `docs/explanation/benchmarks.md` explains how each number is made. `in_session` has the cases for which a
//! session is running (`running_session`, with `prun` as a peer), `initiation` their figure; `soak` runs jobs through a
//! session and checks what they leave behind. `startup` times the exchanges of ranks at their start, `links` the links
//! between agents, `modex` the start of PMIx ranks, `s4` the start of processes until all are connected, `steps` the
//! phases of such a start, `tap` the cost of `wireup tap`, `staging` the copies of files to the nodes of a session,
//! `spawn` calls of MPI_Comm_spawn.
#![forbid(unsafe_code)]

mod bars;
mod baseline;
mod cases;
mod command;
mod common_flags;
mod echo;
mod error;
mod figure;
mod files;
mod flags;
mod gather;
mod hosts;
mod in_session;
mod initiation;
mod interrupt;
mod launch;
mod launch_figures;
mod launch_flags;
mod launcher;
mod leftovers;
mod links;
mod machine;
mod measure;
mod memory;
mod metric;
mod modex;
mod peers;
mod polling;
mod programs;
mod prun;
mod published;
mod running_session;
mod s4;
mod sample;
mod setup;
mod soak;
mod spawn;
mod staging;
mod stamps;
mod startup;
mod stats;
mod steps;
mod stream;
mod summary;
mod table;
mod tap;
mod target;
mod traffic;
mod turns;
mod verdict;

use std::ffi::OsString;

pub use flags::COMMANDS;
use flags::Wish;

/// Exit code: targets were missed and `--strict` was given.
const EXIT_MISSED: u8 = 1;
/// Exit code: the command line was wrong.
const EXIT_USAGE: u8 = 2;
/// Exit code: the benchmark itself failed.
const EXIT_OWN_FAILURE: u8 = 125;
/// Exit code: interrupted by a signal.
const EXIT_INTERRUPTED: u8 = 130;

/// Runs `wireup bench ARGS` and returns the exit code; `args` come after the word `bench`.
pub fn main(args: Vec<OsString>) -> u8 {
    // Benchmarks start this program again for a part of their work.
    match args.split_first() {
        Some((word, args)) if word == links::process::WORD => return links::process::main(args),
        Some((word, args)) if word == s4::launcher::WORD => return s4::launcher::main(args),
        Some((word, _)) if word == s4::process::WORD => return s4::process::main(),
        Some((word, _)) if word == s4::daemon::WORD => return s4::daemon::main(),
        Some((word, args)) if word == staging::host::WORD => return staging::host::main(args),
        Some((word, args)) if word == steps::rank::WORD => return steps::rank::main(args),
        Some((word, args)) if word == startup::slow_shell::WORD => return startup::slow_shell::main(args),
        _ => {}
    }
    let (strict, result) = match flags::parse(args) {
        Ok(Wish::Launch(flags)) => (flags.strict, launch::launch(&flags).map_err(|e| e.to_string())),
        Ok(Wish::Modex(flags)) => (false, modex::run(&flags).map_err(|e| e.to_string())),
        Ok(Wish::S4(flags)) => (flags.strict, s4::run(&flags).map_err(|e| e.to_string())),
        Ok(Wish::Spawn(flags)) => (flags.strict, spawn::run(&flags).map_err(|e| e.to_string())),
        Ok(Wish::Steps(flags)) => (false, steps::run(&flags).map_err(|e| e.to_string())),
        Ok(Wish::Stage(flags)) => (flags.strict, staging::run(&flags).map_err(|e| e.to_string())),
        Ok(Wish::Tap(flags)) => (flags.strict, tap::run(&flags).map_err(|e| e.to_string())),
        Ok(Wish::Links(flags)) => (flags.strict, links::run(&flags).map_err(|e| e.to_string())),
        Ok(Wish::Startup(flags)) => (flags.strict, startup::run(&flags).map_err(|e| e.to_string())),
        Ok(Wish::Help(text)) => {
            print!("{text}");
            return 0;
        }
        Err(e) => {
            eprintln!("wireup: {e}");
            return EXIT_USAGE;
        }
    };
    match result {
        Ok(summary) if summary.interrupted => EXIT_INTERRUPTED,
        Ok(summary) if !summary.has_measured => {
            eprintln!("wireup bench: a case has measured nothing; the lines above say why");
            EXIT_OWN_FAILURE
        }
        Ok(summary) if strict && summary.missed > 0 => EXIT_MISSED,
        Ok(_) => 0,
        Err(e) => {
            eprintln!("wireup bench: {e}");
            EXIT_OWN_FAILURE
        }
    }
}
