//! The flags, and what is checked before a run.

use crate::advise::{self, JSON};
use crate::compare::{Shape, compare};
use crate::machine::{self, Machine};
use crate::plan::{EXCHANGES, Exchange, Lost, Plan, STARTS, Scenario};
use crate::problem::{EXIT_INTERRUPTED, Problem};
use crate::simulation::{Simulation, Terminal};
use crate::table::{self, table};
use crate::{calibrate, memory, timed};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use wireup_coll::allgather::schemes;
use wireup_coll::tree::default_fanout;
use wireup_flags::{Command, Error, Flag, JsonTo, Line, Section, Value, Words};
use wireup_wire::limits::VALUE_LEN_MAX;

const RANKS: Flag = Flag::value(&["-n", "--ranks"], "RANKS", "Number of ranks.");
const NODES: Flag = Flag::value(&["--nodes"], "N", "Number of nodes (default: as --ppn says, else one).");
const PPN: Flag = Flag::value(&["--ppn"], "K", "Ranks on each node; sets the number of nodes unless --nodes is given.");
const MACHINE: Flag = Flag::value(
    &["--machine"],
    "FILE",
    "The machine: here, s4, s2, frontier-like, aurora, or a file like those in dev/simulate/machines; local, ssh and \
     srun stand for your file wireup/machine-NAME.toml in $XDG_CONFIG_HOME or ~/.config, or for a built-in machine if \
     there is none.",
)
.or("here");
const START: Flag = Flag::value(
    &["--start"],
    "HOW",
    "How agents are started: ssh, srun, session (they run already), or local (all nodes are this machine).",
)
.or("ssh");
const EXCHANGE: Flag = Flag::value(
    &["--exchange"],
    "WHAT",
    "What ranks exchange: allgather, fence, fence-pmi2, iallgather, ifence, ring, pmix-full, pmix-direct, groups, \
     rank-groups, pmi-groups, rank-alltoall, store (PyTorch's, with a barrier) or none.",
)
.or("allgather");
const STAGE: Flag = Flag::value(
    &["--stage"],
    "MIB",
    "Stage a program of this size before the job (default: each node reads it from the file server).",
);
const SCHEME: Flag =
    Flag::value(&["--scheme"], "HOW", "How agents exchange it, as wireup run --exchange: auto, tree, ring or log.")
        .or("auto");
const VALUE_BYTES: Flag = Flag::value(&["--value-bytes"], "B", "Length of what each rank gives the others.").or("18");
const WORK_US: Flag = Flag::value(
    &["--work-us"],
    "US",
    "iallgather, ifence: each rank computes for so long before it waits for the exchange.",
)
.or("0");
const FANOUT: Flag = Flag::value(&["--fanout"], "K", "Children of each agent (default: as wireup run chooses).");
const SEED: Flag = Flag::value(&["--seed"], "S", "Seed of the random delays; equal seeds give equal results.").or("1");
const PROFILE: Flag = Flag::value(
    &["--profile"],
    "FILE",
    "Write a trace, as wireup run --profile does, for wireup report; with /dev/stdout, only the trace is printed.",
);
const STDOUT: &str = "/dev/stdout";
const LOSE: Flag = Flag::value(
    &["--lose"],
    "NODE@MS",
    "Node NODE (from 1) loses its power MS milliseconds after the launch; prints when the launcher reports this.",
);
const FORCE: Flag = Flag::switch(&["--force"], "Run even if this machine may not have the memory.");

const COMMAND: Command = Command {
    name: "simulate",
    purpose: "predict the start of a large job on a described machine",
    intro: "
  wireup simulate -n 73728 --ppn 36 --machine s2 --start srun
  wireup simulate -n 4096 --nodes 64 --start session --exchange fence --json=result.json
  wireup simulate calibrate -o mine.toml          this machine as a machine file; --help lists its flags
  wireup simulate compare 64x16                   predictions beside real runs on this machine
  wireup simulate advise --nodes 64 -n 1024       the fastest flags; --help lists its own
  wireup simulate table --ranks-max 73728         published starts beside predictions; --help lists its flags

Runs the code of agents, launcher and ranks in virtual time, in one process, and prints when the job's phases end and
what agents send.
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Job", flags: &[RANKS, NODES, PPN, START, STAGE, FANOUT, LOSE] },
        Section { title: "Exchange", flags: &[EXCHANGE, SCHEME, VALUE_BYTES, WORK_US] },
        Section { title: "Machine", flags: &[MACHINE, SEED] },
        Section { title: "Results", flags: &[JSON, PROFILE, FORCE] },
    ],
    end: "",
};

const OUTPUT: Flag = Flag::value(&["-o", "--output"], "FILE", "Write the machine file here (default: print it).");
const WIREUP: Flag =
    Flag::value(&["--wireup"], "PATH", "The wireup to time (default: next to this program, else on PATH).");
const ROUNDS: Flag =
    Flag::value(&["--rounds"], "N", "Time each job at most N times (fewer if 100 s have passed).").or("100");
const BASE: Flag = Flag { help: "The machine whose costs are scaled to fit.", ..MACHINE };

const CALIBRATE: Command = Command {
    name: "simulate calibrate",
    purpose: "measure this machine and write a machine file for wireup simulate",
    intro: "
  wireup simulate calibrate -o here.toml

Times small jobs of the real wireup on virtual nodes, and fits the costs of a simulated machine to the medians of half
of them. Prints how well it predicts the other half. Takes three minutes, in which nothing else should run here.
",
    sections: &[Section { title: "Flags", flags: &[OUTPUT, WIREUP, ROUNDS, BASE] }],
    ..COMMAND
};

const LINES: Flag = Flag {
    help: "Print values as lines of JSON (lab/SCHEMA.md), and all else on standard error; =FILE writes them to FILE.",
    ..JSON
};
const ONLY: Flag = Flag::value(&["--only"], "TEXT", "Predict only the starts whose names contain this text.");
const RANKS_MAX: Flag = Flag::value(&["--ranks-max"], "N", "Leave out starts with more ranks.").or("1048576");
const SENSITIVITY_RANKS: Flag =
    Flag::value(&["--sensitivity-ranks"], "N", "Most ranks of the jobs that test each constant.").or("4608");

const TABLE: Command = Command {
    name: "simulate table",
    purpose: "predict starts that are published",
    intro: "
  wireup simulate table --ranks-max 73728 --json=simulation.jsonl

Prints the published time of each start beside the predicted one. Also halves and doubles each constant of the machine,
one at a time, in a smaller job with the same number of ranks on a node, and prints the two that matter most.
",
    sections: &[Section { title: "Flags", flags: &[LINES, ONLY, RANKS_MAX, SENSITIVITY_RANKS] }],
    ..COMMAND
};

const COMPARE_ROUNDS: Flag = Flag::value(&["--rounds"], "N", "Time each job N times.").or("5");
const HOSTS: Flag = Flag::value(
    &["--hosts"],
    "LIST",
    "Start the jobs by ssh on these hosts, which --machine describes but for the cost of ssh: a job on a few of the \
     hosts tells that (default: on virtual nodes of this machine).",
);
const COMPARE: Command = Command {
    name: "simulate compare",
    purpose: "run jobs on virtual nodes of this machine, and simulate them",
    intro: "
  wireup simulate compare --machine mine.toml 1x64 64x16 256x16

Runs jobs of so many virtual nodes and ranks on each: /bin/true, from the exec of the launcher to its exit, and a fence,
from the last rank in to the last one out. Prints how far the simulated times are from the measured medians. Least work
is a lower bound: the processor time that all processes need, divided by the number of processors.
",
    words: Words::Named(&["NODESxRANKS..."]),
    sections: &[Section { title: "Flags", flags: &[MACHINE, HOSTS, COMPARE_ROUNDS, WIREUP, LINES] }],
    ..COMMAND
};

/// Subcommand that prints the manual page, for packages.
const MAN: &str = "man";

fn man_page() -> String {
    let commands = [&CALIBRATE, &COMPARE, &advise::COMMAND, &TABLE];
    let page = COMMAND.man_with(&commands, concat!("wireup ", env!("CARGO_PKG_VERSION")));
    page.section("See also").prose("wireup(1), wireup-bench(1)").render()
}

/// Runs the command line `words`; returns the exit code.
pub fn main(words: Vec<OsString>) -> u8 {
    let done = match words.split_first() {
        Some((word, rest)) if word == "calibrate" => with_line(&CALIBRATE, rest, run_calibrate),
        Some((word, rest)) if word == "compare" => with_line(&COMPARE, rest, run_compare),
        Some((word, rest)) if word == "advise" => with_line(&advise::COMMAND, rest, advise::run),
        Some((word, rest)) if word == "table" => with_line(&TABLE, rest, run_table),
        Some((word, [])) if word == MAN => {
            print!("{}", man_page());
            Ok(0)
        }
        _ => with_line(&COMMAND, &words, simulate),
    };
    done.unwrap_or_else(|problem| {
        eprintln!("wireup simulate: {problem}");
        problem.exit_code()
    })
}

fn with_line(
    command: &Command,
    words: &[OsString],
    run: impl FnOnce(&Line) -> Result<u8, Problem>,
) -> Result<u8, Problem> {
    match command.parse(words.iter().cloned())? {
        Ok(line) => run(&line),
        Err(help) => {
            print!("{}", command.help(help));
            Ok(0)
        }
    }
}

fn simulate(line: &Line) -> Result<u8, Problem> {
    let plan = plan(line)?;
    let (name, _) = machine::meant(&line.one(MACHINE, Value::text)?);
    let machine = Machine::load(&name)?;
    let json = line.last(JSON, JsonTo::read)?.map(Problem::create_json).transpose()?;
    let trace = line.last(PROFILE, Value::path)?.map(Problem::create).transpose()?;
    let prints_trace = trace.as_ref().is_some_and(|(path, _)| path == Path::new(STDOUT));
    let terminal = Terminal::new()?;
    let stage_mib = line.last(STAGE, Value::at_least_one)?;
    let lost = line.last(LOSE, |value| lost(&value.text()?, plan.nodes))?;
    let work_ns = u64::from(line.one(WORK_US, Value::number)?) * 1_000;
    if work_ns > 0 && !matches!(plan.exchange, Exchange::Iallgather | Exchange::Ifence) {
        let problem = "--work-us is for --exchange iallgather and ifence; give one of them";
        return Err(Error::Together(problem.to_owned()).into());
    }
    let scenario = Scenario { stage_mib, work_ns, lost, is_profiled: trace.is_some(), ..plan.into() };
    let (wanted, available) = (memory::estimate(&scenario), memory::available());
    let [wanted_text, available_text] = [wanted, available].map(memory::shown);
    eprintln!("memory: about {wanted_text}; this machine has {available_text} free");
    if wanted > available && !line.has(FORCE) {
        let Plan { ranks, nodes, .. } = plan;
        return Err(Problem::Memory { ranks, nodes, wanted: wanted_text, available: available_text });
    }
    let simulation = Simulation::run(scenario, &machine, &name, &terminal);
    if !prints_trace {
        print!("{simulation}");
    }
    if let Some((path, file)) = json {
        Problem::of_file(&path, simulation.write_json(file))?;
    }
    if let Some((path, file)) = trace {
        Problem::of_file(&path, simulation.write_trace(file))?;
    }
    match simulation.failure() {
        Some(failure) => Err(Problem::Failed(failure)),
        None => Ok(if simulation.is_complete() { 0 } else { EXIT_INTERRUPTED }),
    }
}

/// Reads the value of `--lose`. Node 0, where the launcher runs, cannot be lost.
fn lost(word: &str, nodes: u32) -> Result<Lost, Error> {
    let read = word.split_once('@').and_then(|(node, at_ms)| Some((node.parse().ok()?, at_ms.parse().ok()?)));
    match read {
        _ if nodes == 1 => Err(Error::Together("--lose: the job has one node; give --nodes 2 or more".to_owned())),
        Some((node, at_ms)) if (1..nodes).contains(&node) => Ok(Lost { node, at_ms }),
        _ => Err(Error::Together(format!("--lose {word}: give a node from 1 to {} and ms, such as 1@5", nodes - 1))),
    }
}

fn run_calibrate(line: &Line) -> Result<u8, Problem> {
    let base = Machine::load(&line.one(BASE, Value::text)?)?;
    let output = line.last(OUTPUT, Value::path)?.map(Problem::create).transpose()?;
    let text = calibrate::calibrate(&wireup(line)?, line.one(ROUNDS, Value::at_least_one)?, base)?;
    match output {
        Some((path, mut file)) => Problem::of_file(&path, file.write_all(text.as_bytes()))?,
        None => print!("{text}"),
    }
    Ok(0)
}

fn wireup(line: &Line) -> Result<PathBuf, Error> {
    Ok(line.last(WIREUP, Value::path)?.unwrap_or_else(|| timed::find_wireup().into()))
}

fn run_compare(line: &Line) -> Result<u8, Problem> {
    let shapes = line.words.iter().map(|word| shape(&word.to_string_lossy())).collect::<Result<Vec<_>, _>>()?;
    let name = line.one(MACHINE, Value::text)?;
    let machine = Machine::load(&name)?;
    let rounds = line.one(COMPARE_ROUNDS, Value::at_least_one)?;
    let json = line.last(LINES, JsonTo::read)?.map(Problem::create_json).transpose()?;
    let hosts = line.last(HOSTS, Value::text)?;
    compare(&wireup(line)?, (&name, machine), &shapes, rounds, hosts.as_deref(), json)?;
    Ok(0)
}

fn shape(word: &str) -> Result<Shape, Error> {
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
    let shape = word.split_once('x').and_then(|(nodes, ppn)| Some((number(nodes)?, number(ppn)?)));
    shape.ok_or_else(|| Error::Together(format!("{word}: give virtual nodes and ranks on each, such as 64x16")))
}

fn run_table(line: &Line) -> Result<u8, Problem> {
    let options = table::Options {
        ranks_max: line.one(RANKS_MAX, Value::at_least_one)?,
        sensitivity_ranks: line.one(SENSITIVITY_RANKS, Value::at_least_one)?,
        only: line.last(ONLY, Value::text)?.unwrap_or_default(),
    };
    let json = line.last(LINES, JsonTo::read)?.map(Problem::create_json).transpose()?;
    table(&options, json, &Terminal::new()?)?;
    Ok(0)
}

fn plan(line: &Line) -> Result<Plan, Error> {
    let missing = Error::MissingWord { command: COMMAND.name, word: "-n RANKS" };
    let ranks = line.last(RANKS, Value::at_least_one)?.ok_or(missing)?;
    let nodes = match (line.last(NODES, Value::at_least_one)?, line.last(PPN, Value::at_least_one)?) {
        (Some(nodes), Some(ppn)) if u64::from(nodes) * u64::from(ppn) < u64::from(ranks) => {
            let problem =
                format!("{nodes} nodes with {ppn} ranks each have no room for {ranks} ranks; leave out --ppn");
            return Err(Error::Together(problem));
        }
        (Some(nodes), _) => nodes,
        (None, Some(ppn)) => ranks.div_ceil(ppn),
        (None, None) => 1,
    };
    if nodes > ranks {
        return Err(Error::Together(format!("{nodes} nodes for {ranks} ranks: give at most one node for each rank")));
    }
    Ok(Plan {
        ranks,
        nodes,
        ppn: ranks.div_ceil(nodes),
        fanout: line.last(FANOUT, Value::at_least_one)?.unwrap_or_else(|| default_fanout(nodes)),
        start: line.one(START, |value| value.choice(&STARTS))?,
        exchange: line.one(EXCHANGE, |value| value.choice(&EXCHANGES))?,
        scheme: line.one(SCHEME, |value| value.choice(&schemes().collect::<Vec<_>>()))?,
        value_bytes: line.one(VALUE_BYTES, |value| value.number_in(1, VALUE_LEN_MAX as u32))? as u16,
        seed: line.one(SEED, Value::number)?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Plan, String> {
        let line = COMMAND.parse(words.split_whitespace().map(Into::into)).map_err(|error| error.to_string())?;
        plan(&line.expect("no help")).map_err(|error| error.to_string())
    }

    #[test]
    fn nodes_follow_from_ranks_of_a_node() {
        let shape = |words| read(words).map(|plan| (plan.ranks, plan.nodes, plan.ppn));
        assert_eq!(shape("-n 73728 --ppn 36"), Ok((73_728, 2_048, 36)));
        assert_eq!(shape("-n 100 --nodes 7"), Ok((100, 7, 15)));
        assert_eq!(shape("-n 5"), Ok((5, 1, 5)));
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        for (words, expected) in [
            ("", "-n RANKS is missing"),
            ("-n 0", "-n 0: give a whole number from 1"),
            ("-n 4 --nodes 0", "--nodes 0: give a whole number from 1"),
            ("-n 4 --nodes 5", "5 nodes for 4 ranks"),
            ("-n 9 --nodes 2 --ppn 4", "no room for 9 ranks"),
            ("-n 4 --fanout 0", "--fanout 0"),
            ("-n 4 --exchange allgater", "did you mean allgather?"),
        ] {
            let problem = read(words).expect_err(words);
            assert!(problem.contains(expected), "{problem}");
        }
        for (word, nodes, expected) in [("0@5", 2, "from 1 to 1"), ("2", 3, "from 1 to 2"), ("1@5", 1, "one node")] {
            let problem = lost(word, nodes).expect_err(word).to_string();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
