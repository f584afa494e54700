//! `wireup bench exchange`: times, bytes and memory of an exchange with every scheme (S1 tables I and II, figure 9).
use super::flags::{AUTO, Flags};
use super::job::with_job;
use super::report::{Cell, Key, Report};
use super::rounds::{self, Task};
use super::scheme::{Operation, SCHEMES, Scheme, Step, named};
use super::surroundings::Surroundings;
use super::{hydra, trace};
use crate::cases::Place;
use crate::command::Failure;
use crate::metric::{Metric, Sample};

pub const RANKS: [u32; 7] = [16, 64, 256, 1024, 4096, 8192, 16384];
/// Routes whose bytes are counted.
pub const BYTES_EXCHANGES: [&str; 3] = ["tree", "ring", "log"];
const BYTES_SCHEMES: [&str; 2] = ["fence", "allgather"];
/// Appended to the route's name: times of these jobs are not used.
pub const BYTES_MARK: &str = " bytes";
/// The names of the figures of `PMI2_Init` and of a job at rest.
pub const JOIN: &str = "join";
pub const MEMORY: &str = "memory";

/// The jobs whose times are measured.
pub fn plan(flags: &Flags) -> Vec<(Place, String, Vec<Task>, u32)> {
    let ranks = if flags.ranks.is_empty() { RANKS.to_vec() } else { flags.ranks.clone() };
    let jobs = ranks.iter().flat_map(|ranks| flags.exchanges.iter().map(move |exchange| (*ranks, exchange)));
    let plan = jobs.map(|(ranks, exchange)| {
        let place = flags.place(ranks);
        let schemes = if flags.schemes.is_empty() { SCHEMES.to_vec() } else { flags.schemes.clone() };
        let fitting = schemes.into_iter().filter(|scheme| scheme.fits(ranks, flags.lengths.value));
        let tasks = fitting.map(|scheme| task(flags, place, exchange, scheme)).collect();
        (place, exchange.clone(), tasks, flags.rounds.unwrap_or_else(|| rounds::default_count(ranks)))
    });
    plan.collect()
}

fn task(flags: &Flags, place: Place, exchange: &str, scheme: Scheme) -> Task {
    let key = Key { place, exchange: exchange.to_owned(), scheme: scheme.name.to_owned(), lengths: flags.lengths };
    let rounds_max = rounds::rounds_max(scheme, place.job_size());
    // A step that takes seconds is not repeated.
    let repeat = if rounds_max == u32::MAX { flags.repeat } else { 1 };
    Task { key, step: Step::exchange(scheme, flags.lengths).repeated(repeat), rounds_max }
}

/// Runs all parts; a failing part is reported and left out.
pub fn run(flags: &Flags, surroundings: &Surroundings, report: &mut Report) {
    let mut parts: Vec<Part> = Vec::new();
    if flags.has_part("times") {
        parts.extend(
            plan(flags).into_iter().map(|(place, exchange, tasks, rounds)| Part::Times(place, exchange, tasks, rounds)),
        );
    }
    if flags.has_part("bytes") {
        let sizes = flags.bytes_ranks.iter();
        let routes = sizes.flat_map(|ranks| BYTES_EXCHANGES.map(|exchange| (flags.place(*ranks), exchange)));
        let jobs =
            routes.flat_map(|(place, exchange)| BYTES_SCHEMES.map(|scheme| Part::Bytes(place, exchange, scheme)));
        parts.extend(jobs);
    }
    if flags.has_part("memory") {
        parts.push(Part::Memory(flags.memory));
    }
    if flags.has_part("peer") {
        parts.push(Part::Peer);
    }
    for part in parts {
        if surroundings.interrupt.is_set() {
            return;
        }
        eprintln!("wireup bench exchange: {}", part.name());
        report.add(&part.name(), part.run(flags, surroundings));
    }
}

enum Part {
    Times(Place, String, Vec<Task>, u32),
    Bytes(Place, &'static str, &'static str),
    Memory(Place),
    Peer,
}

impl Part {
    fn name(&self) -> String {
        match self {
            Part::Times(place, exchange, ..) => format!("times, {place}, {exchange}"),
            Part::Bytes(place, exchange, scheme) => format!("bytes, {place}, {exchange}, {scheme}"),
            Part::Memory(place) => format!("memory, {place}"),
            Part::Peer => "put, fence, get-all beside Hydra".into(),
        }
    }

    fn run(&self, flags: &Flags, surroundings: &Surroundings) -> Result<Vec<Cell>, Failure> {
        match self {
            Part::Times(place, exchange, tasks, rounds) => times(flags, surroundings, *place, exchange, tasks, *rounds),
            Part::Bytes(place, exchange, scheme) => bytes(flags, surroundings, *place, exchange, scheme),
            Part::Memory(place) => memory(flags, surroundings, *place),
            Part::Peer => hydra::run(flags, surroundings),
        }
    }
}

fn times(
    flags: &Flags,
    surroundings: &Surroundings,
    place: Place,
    exchange: &str,
    tasks: &[Task],
    rounds: u32,
) -> Result<Vec<Cell>, Failure> {
    let launch = surroundings.launch(flags, place, exchange);
    with_job(&launch, &surroundings.scratch, &surroundings.interrupt, |job| {
        let joins = job.joins()?;
        let mut cells = rounds::interleave(job, tasks, rounds)?;
        let mut rest = job.memory()?;
        rest.0.extend(joins.0);
        let key = Key { place, exchange: exchange.to_owned(), scheme: JOIN.into(), lengths: flags.lengths };
        cells.push(Cell { key, runs: vec![rest] });
        Ok(cells)
    })
}

/// Runs a single exchange, with the agents' own counts.
fn bytes(
    flags: &Flags,
    surroundings: &Surroundings,
    place: Place,
    exchange: &str,
    scheme: &str,
) -> Result<Vec<Cell>, Failure> {
    let file = surroundings.scratch.file("trace.json");
    let mut launch = surroundings.launch(flags, place, exchange);
    launch.extra.push(format!("--profile={}", file.display()));
    with_job(&launch, &surroundings.scratch, &surroundings.interrupt, |job| {
        job.step(&Step::exchange(named(scheme), flags.lengths)).map(drop)
    })?;
    let sample = trace::read(&file, place).map_err(|e| Failure::Wrong(e.to_string()))?;
    let key =
        Key { place, exchange: format!("{exchange}{BYTES_MARK}"), scheme: scheme.to_owned(), lengths: flags.lengths };
    Ok(vec![Cell { key, runs: vec![sample] }])
}

/// Put, fence, two gets by all ranks, once; then memory at rest.
fn memory(flags: &Flags, surroundings: &Surroundings, place: Place) -> Result<Vec<Cell>, Failure> {
    let launch = surroundings.launch(flags, place, AUTO);
    with_job(&launch, &surroundings.scratch, &surroundings.interrupt, |job| {
        let step = Step { operation: Operation::Fence, ..Step::exchange(named("fence-get-2"), flags.lengths) };
        let mut sample = job.step(&step)?;
        sample.0.extend(job.memory()?.0);
        sample.0.push((Metric::PairBytes, flags.lengths.pair_bytes(place.job_size()) as f64));
        let key = Key { place, exchange: AUTO.into(), scheme: MEMORY.into(), lengths: flags.lengths };
        Ok(vec![Cell { key, runs: vec![Sample(sample.0)] }])
    })
}

/// A description of what would be run.
pub fn describe(flags: &Flags) -> String {
    let mut text = String::new();
    for (place, exchange, tasks, rounds) in plan(flags).into_iter().filter(|_| flags.has_part("times")) {
        let names: Vec<&str> = tasks.iter().map(|task| &*task.key.scheme).collect();
        text += &format!("{place}, {exchange}: {rounds} rounds of {}\n", names.join(" "));
    }
    text
}
