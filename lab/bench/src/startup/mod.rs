//! `wireup bench exchange`: startup exchanges with every scheme, in real processes (S1 tables I and II, figure 9).
//!
//! `scheme` lists what ranks can do; `job` runs ranks that wait at a gate (`board`) for one step after the other;
//! `agents` reads what agents and clients use, `trace` what agents have counted. `library` times libwireup beside what
//! it replaces, `hydra` the unmodified client under Hydra.
mod agents;
pub mod board;
mod choice;
mod hydra;
pub mod job;
mod library;
pub mod scheme;
mod trace;

use std::fs;

use serde_json::Value as Json;
use wireup_flags::{Command, Flag, Section, Value, Words};

use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, wrong};
use crate::flags::{LIBRARY, LIMIT, RESULTS, ROUNDS, WIREUP, WIREUP_ARG};
use crate::layout::Layout;
use crate::samples::{WARM_UP, bytes};
pub use choice::{Choice, KEY_BYTES, PPN, RANKS, SCHEME, VALUE_BYTES, sizes};
pub use job::library;
use job::{Launch, with_job};
use scheme::{SCHEMES, Scheme, Step, named};

const REPEAT: Flag =
    Flag::value(&["--repeat"], "N", "Exchanges of a round, one behind the other; their mean counts.").or("4");
const EXCHANGES: Flag =
    Flag::value(&["--exchange"], "A,B,..", "A job for each of these of wireup run's --exchange; auto gives no flag.")
        .or(AUTO);
const PARTS: Flag = Flag::value(&["--part"], "A,B,..", "Only these: times, bytes, memory, peer, library, spinning.")
    .or("times,bytes,memory,peer,library,spinning");
const BYTES_RANKS: Flag =
    Flag::value(&["--bytes-ranks"], "A,B,..", "Job sizes at which bytes are counted.").or("4096,8192");
const MEMORY: Flag =
    Flag::value(&["--memory"], "NxP", "Nodes and ranks a node of the job whose memory is read.").or("256x64");
const MPI_FIRST_USE: Flag =
    Flag::value(&["--mpi-first-use"], "PATH", "library: an MPI program that uses its job once.")
        .or("target/programs/mpich5/firstuse");
const PEER: Flag = Flag::value(&["--peer"], "PATH", "Hydra's mpiexec (default: as bench launch finds it).");

pub const COMMAND: Command = Command {
    name: "bench exchange",
    purpose: "time startup exchanges by every scheme",
    intro: "
Startup exchanges by every scheme, side by side on real processes of this machine: put, fence and gets of an unmodified
PMI-2 client, the same by our libpmi2 and its shared memory, allgathers, their non-blocking forms, the ring.

  times      every scheme at every job size        memory     what agents and clients hold afterwards
  bytes      what goes over the agents' links      peer       the unmodified client under Hydra
  library    libwireup beside what it replaces     spinning   the first connection to a rank that computes
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Jobs", flags: &[RANKS, PPN, ROUNDS, PARTS, WIREUP, WIREUP_ARG, LIBRARY, LIMIT] },
        Section { title: "Exchanges", flags: &[SCHEME, EXCHANGES, VALUE_BYTES, KEY_BYTES, REPEAT] },
        Section { title: "Parts", flags: &[BYTES_RANKS, MEMORY, PEER, MPI_FIRST_USE] },
        RESULTS,
    ],
    end: "",
};

/// The name that stands for no `--exchange` flag.
const AUTO: &str = "auto";
const RANKS_DEFAULT: [u32; 7] = [16, 64, 256, 1024, 4096, 8192, 16384];
/// Routes and schemes whose bytes are counted.
const BYTES_EXCHANGES: [&str; 3] = ["tree", "ring", "log"];
const BYTES_SCHEMES: [&str; 2] = ["fence", "allgather"];
/// More repetitions do not improve the result (chosen).
const REPEAT_MAX: u32 = 1000;

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let choice = Choice::read(line, &RANKS_DEFAULT)?;
    let repeat = line.one(REPEAT, |value| value.number_in(1, REPEAT_MAX))?;
    let parts = ["times", "bytes", "memory", "peer", "library", "spinning"].map(|part| (part, part));
    let parts = line.one(PARTS, |value| value.list(|part| part.choice(&parts)))?;
    let bytes_layouts = choice.layouts(line.one(BYTES_RANKS, sizes)?)?;
    let held: Layout = line.one(MEMORY, |value| value.text()?.parse().map_err(|why| value.refused(why)))?;
    for part in parts {
        match part {
            "times" => {
                for (layout, exchange) in choice.jobs(line.one(EXCHANGES, |value| value.list(Value::text))?) {
                    times(bench, &choice, layout, &exchange, repeat)?;
                }
            }
            "bytes" => {
                for layout in &bytes_layouts {
                    for exchange in BYTES_EXCHANGES {
                        count_bytes(bench, &choice, *layout, exchange)?;
                    }
                }
            }
            "memory" => memory(bench, &choice, held)?,
            "peer" => hydra::run(bench, line.last(PEER, Value::path)?, choice.lengths)?,
            "library" => {
                library::run(bench, choice.lengths, std::path::absolute(line.one(MPI_FIRST_USE, Value::path)?)?)?
            }
            _ => library::spinning(bench)?,
        }
    }
    Ok(())
}

fn times(bench: &Bench, choice: &Choice, layout: Layout, exchange: &str, repeat: u32) -> Result<(), Problem> {
    let mut case = choice.case("times", layout);
    case["exchange"] = exchange.into();
    let turn = |scheme: Scheme| Turn {
        contestant: scheme.name.to_owned(),
        case: case.clone(),
        rounds: scheme.rounds(layout.job_size(), bench.rounds),
        // A step that takes seconds is not repeated.
        what: Step::exchange(scheme, choice.lengths).repeated(if scheme.is_long(layout.job_size()) {
            1
        } else {
            repeat
        }),
    };
    let turns: Vec<Turn<Step>> = choice.fitting(&SCHEMES, layout).map(turn).collect();
    job::turns(bench, &launch(bench, layout, exchange)?, &case, &turns);
    Ok(())
}

/// A job on `layout` with this exchange.
fn launch(bench: &Bench, layout: Layout, exchange: &str) -> Result<Launch, Problem> {
    Ok(Launch::new(bench, layout)?.with((exchange != AUTO).then(|| format!("--exchange={exchange}"))))
}

/// Runs single exchanges, with the agents' own counts; times of these jobs are not used.
fn count_bytes(bench: &Bench, choice: &Choice, layout: Layout, exchange: &str) -> Result<(), Problem> {
    let mut case = choice.case("bytes", layout);
    case["exchange"] = exchange.into();
    let file = bench.scratch.file("trace.json");
    let launch = launch(bench, layout, exchange)?.with([format!("--profile={}", file.display())]);
    for scheme in BYTES_SCHEMES {
        alone(bench, scheme, &case, || {
            with_job(bench, &launch, |job| job.step(&Step::exchange(named(scheme), choice.lengths)).map(drop))?;
            trace::evaluate(&fs::read_to_string(&file).map_err(wrong)?, layout)
        });
    }
    Ok(())
}

/// Put, fence, two gets by all ranks, once; then memory at rest.
fn memory(bench: &Bench, choice: &Choice, layout: Layout) -> Result<(), Problem> {
    let launch = Launch::new(bench, layout)?;
    alone(bench, "fence-get-2", &choice.case("memory", layout), || {
        with_job(bench, &launch, |job| {
            let mut measures = job.step(&Step::exchange(named("fence-get-2"), choice.lengths))?;
            measures.extend(job.memory()?);
            measures.push(bytes("pair-bytes", choice.lengths.pair_bytes(layout.job_size()) as f64));
            Ok(measures)
        })
    });
    Ok(())
}

/// Something that is done once, without a round that warms up.
fn alone(
    bench: &Bench,
    contestant: &str,
    case: &Json,
    once: impl FnOnce() -> Result<crate::samples::Measures, Failure>,
) {
    let turn = [Turn { contestant: contestant.to_owned(), case: case.clone(), rounds: 1, what: () }];
    if bench.lists(&turn) || bench.interrupt.is_set() {
        return;
    }
    eprintln!("wireup bench exchange: {contestant}, {}", crate::samples::describe(case));
    match once() {
        Err(Failure::Interrupted) => {}
        Err(failure) => bench.add(case, contestant, WARM_UP, Err(failure)),
        measured => bench.add(case, contestant, 0, measured),
    }
}
