//! Table 1 of S4: the whole start of a job until every process is connected to every other.
//!
//! `scheme` lists the schemes and `traffic` their formulas. A job is real processes: a `launcher` (its clock is the
//! measurement), the `process`es, and for two of the schemes `standing` agents (`daemon`; `agent` is their machine
//! without I/O). They exchange `values` in `message`s, across the hypercube by `cube`, and connect the `sockets` that
//! the values name. Nothing here is code of wireup's own agents.
mod agent;
mod cube;
pub mod daemon;
pub mod launcher;
mod message;
pub mod process;
mod scheme;
mod secret;
pub mod sockets;
mod standing;
mod traffic;
pub mod values;

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;

use launcher::{Outcome, Task};
use scheme::{SIZE_MAX, Scheme, Starter, fits};
use serde_json::json;
use standing::Standing;
use traffic::formula;
use wireup_bench::bench::{Bench, Problem, Turn};
use wireup_bench::command::{Failure, wrong};
use wireup_bench::flags::{ACROSS, LIMIT, RESULTS, ROUNDS, together};
use wireup_bench::samples::{Measures, bytes, count, seconds};
use wireup_flags::{Command, Flag, Section, Words};

const SCHEMES: Flag = Flag::value(&["--scheme"], "A,B,..", "Only these.").or("original,ssh-dr,ssh-bc,mpd-bc,hypercube");
const PROCESSES: Flag = Flag::value(&["--processes"], "A,B,..", "Numbers of processes.").or("4,8,16,32,64,128");

pub const COMMAND: Command = Command {
    name: "reproduce s4",
    purpose: "time the start of a job until all processes are connected",
    intro: "
Jobs whose processes connect to each other, one socket for each pair, by five schemes.

  original    one remote shell and one connection back per process, one after the other; the launcher sends all values to all
  ssh-dr      the same, but each process is sent only what is meant for it
  ssh-bc      the same for the neighbours in a ring of the processes; the values go around that ring
  mpd-bc      standing agents in a ring start the processes and carry puts and gets; then the ring of the processes
  hypercube   standing agents and processes in hypercubes

What each scheme sends is counted and compared with its formula; a difference is an error.
",
    words: Words::Named(&[]),
    sections: &[Section { title: "Jobs", flags: &[SCHEMES, PROCESSES, ROUNDS, LIMIT] }, ACROSS, RESULTS],
    end: "
  wireup-testbed run -n 16 -- wireup-reproduce s4 --hosts $(seq -s, -f n%g 0 15)

With more processes than hosts each host has the same number. --hosts is needed.
",
};

const ROUNDS_DEFAULT: u32 = 3;
const LIMIT_S: u64 = 120;

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let hosts = bench.hosts.len();
    if hosts == 0 {
        return Ok(together("s4 needs --hosts A,B,..: processes are started by a remote shell")?);
    }
    let schemes = Scheme::ALL.map(|scheme| (scheme.name(), scheme));
    let schemes = line.one(SCHEMES, |value| value.list(|scheme| scheme.choice(&schemes)))?;
    let sizes = line.one(PROCESSES, |value| value.list(|size| Ok(size.number_in(2, SIZE_MAX.into())? as u16)))?;
    let mut turns = Vec::new();
    for &size in &sizes {
        for &scheme in &schemes {
            fits(scheme, size, hosts as u16).or_else(together)?;
            let case = json!({ "processes": size, "hosts": hosts });
            let (contestant, rounds) = (scheme.name().to_owned(), bench.rounds.unwrap_or(ROUNDS_DEFAULT));
            turns.push(Turn { contestant, case, rounds, what: (scheme, size) });
        }
    }
    if bench.lists(&turns) {
        return Ok(());
    }
    let (program, shell) = (bench.own_program()?, bench.remote_shell()?);
    let file = bench.scratch.file("s4-agents");
    let standing = match schemes.iter().any(|scheme| scheme.starter() != Starter::Star) {
        true => {
            let errors = bench.scratch.file("s4-agents-errors");
            let started = Standing::start(&shell, &bench.hosts, &program, file.clone(), &errors);
            Some(started.map_err(|error| {
                let said = fs::read_to_string(&errors).unwrap_or_default();
                wrong(format!("standing agents: {} {error}", said.trim()))
            })?)
        }
        false => None,
    };
    let mismatch = RefCell::new(None);
    bench.turns(&turns, |&(scheme, size), _| {
        let task = Task {
            scheme,
            size,
            hosts: bench.hosts.clone(),
            remote_shell: shell.clone(),
            program: program.display().to_string(),
            agents: file.display().to_string(),
        };
        let outcome = once(bench, &task)?;
        let wanted = formula(scheme, size, hosts as u16);
        if outcome.traffic != wanted {
            let why = format!("{} {size}: sent {:?}, the formula gives {wanted:?}", scheme.name(), outcome.traffic);
            return Err(mismatch.borrow_mut().insert(wrong(why)).clone());
        }
        Ok(measures(&outcome))
    });
    drop(standing);
    mismatch.into_inner().map_or(Ok(()), |failure| Err(failure.into()))
}

fn once(bench: &Bench, task: &Task) -> Result<Outcome, Failure> {
    let words = [task.program.as_str(), launcher::WORD, &serde_json::to_string(task).map_err(wrong)?];
    let (_, text) = bench.run(words.map(OsString::from).to_vec(), bench.limit_or(LIMIT_S))?;
    serde_json::from_str(&text).map_err(|error| wrong(format!("{text}: {error}")))
}

fn measures(outcome: &Outcome) -> Measures {
    let Outcome { connected_s, initiated_s, exchange_max_s, connecting_max_s, traffic } = outcome;
    let mut measures = vec![
        seconds("connected", *connected_s),
        seconds("initiated", *initiated_s),
        seconds("exchange-max", *exchange_max_s),
        seconds("connecting-max", *connecting_max_s),
    ];
    let parts =
        [("star", traffic.star), ("channel", traffic.channel), ("hops", traffic.hops), ("local", traffic.local)];
    for (name, of) in parts.into_iter().filter(|(_, of)| of.messages > 0) {
        measures.push(count(format!("{name}-messages"), of.messages as f64));
        measures.push(bytes(format!("{name}-bytes"), of.bytes as f64));
    }
    measures
}
