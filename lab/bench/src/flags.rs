//! Selects the benchmark that a command line asks for.
use std::ffi::OsString;

use wireup_flags::{Command, Error, Line, Value, Words};

use crate::{launch_flags, links, modex, s4, spawn, staging, startup, steps, tap};

/// The line of `wireup bench`, up to the name of the benchmark.
const BENCH: Command = Command {
    name: "bench",
    purpose: "measure launchers side by side",
    intro: "
  wireup bench launch|start|jobs        launchers side by side
  wireup bench exchange|init|overlap    startup exchanges
  wireup bench modex                    the start of PMIx ranks
  wireup bench spawn                    MPI_Comm_spawn
  wireup bench s4                       the start of processes until all are connected
  wireup bench steps                    its phases, by the steps that made it faster
  wireup bench stage                    copies of files to the nodes of a session
  wireup bench p2p|coll                 links between agents
  wireup bench tap                      what wireup tap costs

wireup help bench BENCHMARK lists the flags of one.
",
    words: Words::Program,
    sections: &[],
    end: "",
};

/// All tables of flags.
pub const COMMANDS: [&Command; 10] = [
    &BENCH,
    &launch_flags::COMMAND,
    &startup::COMMAND,
    &modex::COMMAND,
    &spawn::COMMAND,
    &s4::COMMAND,
    &steps::COMMAND,
    &staging::COMMAND,
    &links::COMMAND,
    &tap::COMMAND,
];

#[derive(Clone, Copy)]
enum Benchmark {
    Launch(launch_flags::Benchmark),
    Startup(startup::Benchmark),
    Links(links::Benchmark),
    Modex,
    Spawn,
    S4,
    Steps,
    Stage,
    Tap,
}

const BENCHMARKS: [(&str, Benchmark); 14] = [
    ("launch", Benchmark::Launch(launch_flags::Benchmark::Launch)),
    ("start", Benchmark::Launch(launch_flags::Benchmark::Start)),
    ("jobs", Benchmark::Launch(launch_flags::Benchmark::Jobs)),
    ("exchange", Benchmark::Startup(startup::Benchmark::Exchange)),
    ("init", Benchmark::Startup(startup::Benchmark::Init)),
    ("overlap", Benchmark::Startup(startup::Benchmark::Overlap)),
    ("modex", Benchmark::Modex),
    ("spawn", Benchmark::Spawn),
    ("s4", Benchmark::S4),
    ("steps", Benchmark::Steps),
    ("stage", Benchmark::Stage),
    ("p2p", Benchmark::Links(links::Benchmark::P2p)),
    ("coll", Benchmark::Links(links::Benchmark::Coll)),
    ("tap", Benchmark::Tap),
];

#[derive(Debug, PartialEq)]
pub enum Wish {
    Launch(Box<launch_flags::Flags>),
    Startup(Box<startup::Flags>),
    Links(Box<links::Flags>),
    Modex(Box<modex::Flags>),
    Spawn(Box<spawn::Flags>),
    S4(Box<s4::Flags>),
    Steps(Box<steps::Flags>),
    Stage(Box<staging::Flags>),
    Tap(Box<tap::Flags>),
    Help(String),
}

pub fn parse(args: Vec<OsString>) -> Result<Wish, Error> {
    let Some(line) = BENCH.parse(args)? else { return Ok(Wish::Help(BENCH.help())) };
    let mut words = line.words.into_iter();
    let missing = Error::MissingWord { command: BENCH.name, word: "BENCHMARK" };
    let word = Value { flag: "wireup bench".to_owned(), word: words.next().ok_or(missing)? };
    let benchmark = word.choice(&BENCHMARKS)?;
    let command = match benchmark {
        Benchmark::Launch(_) => launch_flags::COMMAND,
        Benchmark::Startup(_) => startup::COMMAND,
        Benchmark::Links(_) => links::COMMAND,
        Benchmark::Modex => modex::COMMAND,
        Benchmark::Spawn => spawn::COMMAND,
        Benchmark::S4 => s4::COMMAND,
        Benchmark::Steps => steps::COMMAND,
        Benchmark::Stage => staging::COMMAND,
        Benchmark::Tap => tap::COMMAND,
    };
    let Some(line) = command.parse(words)? else { return Ok(Wish::Help(command.help())) };
    read(benchmark, &line)
}

fn read(benchmark: Benchmark, line: &Line) -> Result<Wish, Error> {
    Ok(match benchmark {
        Benchmark::Launch(which) => Wish::Launch(Box::new(launch_flags::read(which, line)?)),
        Benchmark::Startup(which) => Wish::Startup(Box::new(startup::read(which, line)?)),
        Benchmark::Links(which) => Wish::Links(Box::new(links::read(which, line)?)),
        Benchmark::Modex => Wish::Modex(Box::new(modex::read(line)?)),
        Benchmark::Spawn => Wish::Spawn(Box::new(spawn::read(line)?)),
        Benchmark::S4 => Wish::S4(Box::new(s4::read(line)?)),
        Benchmark::Steps => Wish::Steps(Box::new(steps::read(line)?)),
        Benchmark::Stage => Wish::Stage(Box::new(staging::read(line)?)),
        Benchmark::Tap => Wish::Tap(Box::new(tap::read(line)?)),
    })
}
