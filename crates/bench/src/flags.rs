//! Selects the benchmark that a command line asks for.
use std::ffi::OsString;

use lexopt::prelude::*;

use crate::launch_flags::{self, Flags};
use crate::links;
use crate::modex;
use crate::startup;

/// The text of `wireup bench --help`.
pub const HELP: &str = "\
usage: wireup bench launch|start|jobs [FLAG..]          launchers side by side; see wireup bench launch --help
       wireup bench exchange|init|overlap [FLAG..]      startup exchanges; see wireup bench exchange --help
       wireup bench modex [FLAG..]                      the start of PMIx ranks; see wireup bench modex --help
       wireup bench p2p|coll [FLAG..]                   links between agents; see wireup bench p2p --help

launch: jobs that start their own agents. start: jobs in a running session. jobs: how many small jobs a second. All time
wireup, the raw spawn baseline and the installed launchers side by side in interleaved rounds, and report which targets are
met.
";

#[derive(Debug, PartialEq)]
pub enum Wish {
    Launch(Box<Flags>),
    Startup(Box<startup::Flags>),
    Links(Box<links::Flags>),
    Modex(Box<modex::Flags>),
    Help(&'static str),
}

pub fn parse(args: Vec<OsString>) -> Result<Wish, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(args);
    match parser.next()? {
        Some(Long("help") | Short('h')) => Ok(Wish::Help(HELP)),
        Some(Value(word)) if word == "modex" => {
            let flags = modex::parse(&mut parser)?;
            Ok(flags.map_or(Wish::Help(modex::HELP), |flags| Wish::Modex(Box::new(flags))))
        }
        Some(Value(word)) => {
            if let Some(benchmark) = links::Benchmark::from_word(&word.to_string_lossy()) {
                let flags = links::parse(benchmark, &mut parser)?;
                return Ok(flags.map_or(Wish::Help(links::HELP), |flags| Wish::Links(Box::new(flags))));
            }
            if let Some(benchmark) = startup::Benchmark::from_word(&word.to_string_lossy()) {
                let flags = startup::parse(benchmark, &mut parser)?;
                return Ok(flags.map_or(Wish::Help(startup::HELP), |flags| Wish::Startup(Box::new(flags))));
            }
            let Some(benchmark) = launch_flags::Benchmark::from_word(&word.to_string_lossy()) else {
                return Err(format!("unknown benchmark {}", word.to_string_lossy()).into());
            };
            let flags = launch_flags::parse(benchmark, &mut parser)?;
            Ok(flags.map_or(Wish::Help(launch_flags::HELP), |flags| Wish::Launch(Box::new(flags))))
        }
        Some(other) => Err(other.unexpected()),
        None => Err("no benchmark given; use launch, start, jobs, exchange, init, overlap, p2p, coll or modex".into()),
    }
}
