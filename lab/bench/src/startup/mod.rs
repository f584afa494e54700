//! `wireup bench exchange`: startup exchanges with every scheme, in real processes (S1 tables I and II, figure 9).
//!
//! `scheme` lists what ranks can do; `job` runs ranks that wait at a gate (`board`) for one step after the other;
//! `agents` reads what agents and clients use, `trace` what agents have counted. `library` times libwireup beside what
//! it replaces, `hydra` the unmodified client under Hydra.
mod agents;
pub mod board;
mod hydra;
pub mod job;
mod library;
pub mod scheme;
mod trace;

use std::fs;

use serde_json::{Value as Json, json};
use wireup_flags::{Command, Error, Flag, Line, Section, Value, Words};

use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, wrong};
use crate::flags::{LIBRARY, LIMIT, RESULTS, ROUNDS, WIREUP, WIREUP_ARG, together};
use crate::layout::{JOB_SIZE_MAX, Layout};
use crate::samples::{WARM_UP, bytes};
pub use job::library;
use job::{Launch, with_job};
use scheme::{Lengths, SCHEMES, Scheme, Step, named};

pub const RANKS: Flag = Flag::value(&["--ranks"], "A,B,..", "Job sizes. Default: 16,64,256,1024,4096,8192,16384.");
pub const PPN: Flag = Flag::value(&["--ppn"], "N", "Ranks a node; nodes are virtual.").or("16");
pub const VALUE_BYTES: Flag = Flag::value(&["--value-bytes"], "N", "Length of a value.").or("18");
pub const KEY_BYTES: Flag = Flag::value(&["--key-bytes"], "N", "Length of a key; 0: the rank as a number.").or("9");
const REPEAT: Flag =
    Flag::value(&["--repeat"], "N", "Exchanges of a round, one behind the other; their mean counts.").or("4");
pub const SCHEME: Flag = Flag::value(
    &["--scheme"],
    "A,B,..",
    "Only these: text-fence text-get-2 text-get-all fence fence-get-2 fence-get-all ifence allgather-copy allgather \
     iallgather-copy iallgather ring.",
);
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
const PEER: Flag = Flag::value(&["--peer"], "PATH", "Hydra's mpiexec. Default: as bench launch finds it.");

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
/// The capacity of the client (bytes).
const VALUE_LEN_MAX: u32 = 1024;
const KEY_LEN_MAX: u32 = 15;

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

/// What jobs and exchanges are run.
pub struct Choice {
    pub layouts: Vec<Layout>,
    ppn: u32,
    /// All if empty.
    pub schemes: Vec<Scheme>,
    pub lengths: Lengths,
}

impl Choice {
    /// `ranks` are the job sizes if the line has none.
    ///
    /// # Errors
    /// The line is wrong.
    pub fn read(line: &Line, ranks: &[u32]) -> Result<Choice, Error> {
        let schemes = SCHEMES.map(|scheme| (scheme.name, scheme));
        let lengths = Lengths {
            value: line.one(VALUE_BYTES, |value| value.number_in(8, VALUE_LEN_MAX))?,
            key: line.one(KEY_BYTES, key_bytes)?,
        };
        let schemes = line.last(SCHEME, |value| value.list(|scheme| scheme.choice(&schemes)))?.unwrap_or_default();
        let ppn = line.one(PPN, Value::at_least_one)?;
        let mut choice = Choice { layouts: Vec::new(), ppn, schemes, lengths };
        choice.layouts = choice.layouts(line.last(RANKS, sizes)?.unwrap_or_else(|| ranks.to_vec()))?;
        Ok(choice)
    }

    /// Jobs of these sizes, which must fill their nodes.
    ///
    /// # Errors
    /// One does not.
    pub fn layouts(&self, sizes: Vec<u32>) -> Result<Vec<Layout>, Error> {
        match sizes.iter().find(|size| *size % self.ppn.min(**size) != 0) {
            Some(ranks) => {
                together(format!("{ranks} ranks do not fill a whole number of nodes with {} each", self.ppn))
            }
            None => Ok(sizes.into_iter().map(|size| Layout::of(size, self.ppn)).collect()),
        }
    }

    fn jobs(&self, exchanges: Vec<String>) -> Vec<(Layout, String)> {
        let with = |layout: &Layout| exchanges.iter().map(|exchange| (*layout, exchange.clone())).collect::<Vec<_>>();
        self.layouts.iter().flat_map(with).collect()
    }

    pub fn case(&self, part: &str, layout: Layout) -> Json {
        case(part, layout, self.lengths)
    }

    /// The chosen ones of these schemes that can be run in such a job.
    pub fn fitting<'a>(&'a self, schemes: &'a [Scheme], layout: Layout) -> impl Iterator<Item = Scheme> + 'a {
        let is_wanted = |scheme: &Scheme| self.schemes.is_empty() || self.schemes.contains(scheme);
        let fits = move |scheme: &Scheme| scheme.fits(layout.job_size(), self.lengths.value);
        schemes.iter().copied().filter(move |scheme| is_wanted(scheme) && fits(scheme))
    }
}

fn case(part: &str, layout: Layout, Lengths { value, key }: Lengths) -> Json {
    let Layout { node_count, ppn } = layout;
    json!({
        "part": part, "ranks": layout.job_size(), "nodes": node_count, "ppn": ppn, "value-bytes": value, "key-bytes": key,
    })
}

/// A rank has at most five digits.
fn key_bytes(value: &Value) -> Result<u32, Error> {
    let len = value.number_in(0, KEY_LEN_MAX).ok().filter(|len| *len == 0 || *len >= 5);
    len.ok_or_else(|| value.refused(format!("expected 0, or 5 to {KEY_LEN_MAX}")))
}

pub fn sizes(value: &Value) -> Result<Vec<u32>, Error> {
    value.list(|size| size.number_in(1, JOB_SIZE_MAX))
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
