//! One run of the simulator: the progress that it shows, and its result as text, as JSON and as a trace.

use crate::machine::{Machine, is_built_in};
use crate::memory;
use crate::plan::{EXCHANGES, Lost, Plan, STARTS, Scenario, Start, name_of, name_of_scheme, ranks_on_nodes};
use crate::problem::Problem;
use serde_json::{Map, Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::cell::RefCell;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wireup_node::launcher::Stamps;
use wireup_node::progress::Progress as Line;
use wireup_node::trace::{About, Trace};
use wireup_proto::launcher_io::Notice;
use wireup_sim::phases::{Point, Progress};
use wireup_sim::rank_network::NodeAddresses;
use wireup_sim::{RankTraffic, RunReport, START, run_watched};
use wireup_wire::frame::Class;
use wireup_wire::peer::{Cause, RankTrace, TracePart};

/// Increased when a reader of older results would misread newer ones.
const SCHEMA: u32 = 1;

/// The user's terminal: shows progress, and reports whether the user has interrupted the simulation.
pub struct Terminal {
    line: RefCell<Line>,
    /// Text that is printed before the progress of a simulation.
    pub label: String,
    interrupted: Arc<AtomicBool>,
}

impl Terminal {
    /// # Errors
    /// Signals cannot be caught.
    pub fn new() -> io::Result<Terminal> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, interrupted.clone())?;
        }
        Ok(Terminal { line: RefCell::default(), label: String::new(), interrupted })
    }

    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// A simulated run of a scenario, and its result.
pub struct Simulation {
    scenario: Scenario,
    machine: String,
    launcher_ns: u64,
    report: RunReport,
    wall: Duration,
    peak_memory_bytes: u64,
}

/// The time at which a phase of the start has ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Phase {
    pub name: &'static str,
    words: &'static str,
    /// Number of processes that have completed the phase, and `total`: number of all processes that take part in it.
    pub count: u32,
    pub of: u32,
    /// Time from the exec of the launcher until the last process completed the phase (s).
    pub seconds: f64,
}

impl Simulation {
    pub fn run(scenario: impl Into<Scenario>, machine: &Machine, name: &str, terminal: &Terminal) -> Simulation {
        let scenario = scenario.into();
        memory::forget_peak();
        let begin = Instant::now();
        let mut line = terminal.line.borrow_mut();
        let watch = |progress: Progress| {
            line.show(|| format!("{}{}", terminal.label, progress_line(&scenario.plan, &progress)));
            !terminal.is_interrupted()
        };
        let report = run_watched(scenario.world(machine), watch);
        line.end();
        Simulation {
            scenario,
            machine: name.to_owned(),
            launcher_ns: machine.launcher_ns,
            report,
            wall: begin.elapsed(),
            peak_memory_bytes: memory::peak(),
        }
    }

    /// Simulates a run, and expects that the job succeeds.
    ///
    /// # Errors
    /// The job did not succeed, or the user has interrupted the simulation.
    pub fn complete(
        scenario: impl Into<Scenario>,
        machine: &Machine,
        name: &str,
        terminal: &Terminal,
    ) -> Result<Simulation, Problem> {
        let simulation = Simulation::run(scenario, machine, name, terminal);
        match simulation.failure() {
            Some(failure) => Err(Problem::Failed(failure)),
            None if !simulation.is_complete() => Err(Problem::Interrupted),
            None => Ok(simulation),
        }
    }

    /// Time from the exec of the launcher until the last process completed this phase (s); 0 if no process did.
    pub fn end_s(&self, phase: &str) -> f64 {
        self.phases().find(|one| one.name == phase).map_or(0.0, |one| one.seconds)
    }

    /// Whether the run has ended by itself, not because the user interrupted it.
    pub fn is_complete(&self) -> bool {
        !self.report.checks.is_stopped
    }

    /// The reason why the job did not succeed, or the rule of the simulator that is broken.
    pub fn failure(&self) -> Option<String> {
        let RunReport { checks, jobs, notices, .. } = &self.report;
        match checks.problems.first() {
            Some(problem) => Some(problem.clone()),
            None if !self.is_complete() || self.scenario.lost.is_some() => None,
            None if jobs.succeeded == self.jobs() => None,
            None => Some(format!("{} of {} jobs succeeded: {notices:?}", jobs.succeeded, self.jobs())),
        }
    }

    /// What the launcher reports about the loss of the node that the scenario takes away.
    fn loss(&self) -> Option<String> {
        Some(match &self.report.failure()?.cause {
            Cause::AgentLost { problem, .. } => problem.words.clone(),
            Cause::AgentsMissing { missing } => missing[0].problem.words.clone(),
            cause => format!("{cause:?}"),
        })
    }

    /// Number of jobs of the run: the job itself, and the job that stages its program, if there is one.
    fn jobs(&self) -> u32 {
        1 + u32::from(self.scenario.stage_mib.is_some())
    }

    /// The end of each phase that at least one process has completed.
    pub fn phases(&self) -> impl Iterator<Item = Phase> {
        let Plan { ranks, nodes, .. } = self.scenario.plan;
        let phases = [
            (Point::Linked, "agents", "agents are linked", nodes - 1),
            (Point::Staged, "staged", "nodes have the program", self.scenario.stores()),
            (Point::Forked, "forked", "ranks are forked", ranks),
            (Point::Begun, "begun", "ranks' programs have begun", ranks),
            (Point::Exchanged, "exchanged", "ranks have exchanged", ranks),
            (Point::Ready, "ready", "ranks are in main, with all addresses that they wait for", ranks),
            (Point::Failed, "failed", "the launcher reports that the job has failed", 1),
        ];
        phases.into_iter().filter_map(|(point, name, words, of)| {
            let reached = self.report.checks.phases.at(point);
            // The agents of a session were linked before the job's launch, so this phase takes no time.
            let ns = match reached.last_ns.checked_sub(self.scenario.plan.launched_ns()) {
                Some(ns) => ns + self.launcher_ns,
                None => 0,
            };
            let phase = Phase { name, words, count: reached.count, of, seconds: ns as f64 / 1e9 };
            (reached.count > 0).then_some(phase)
        })
    }

    /// # Errors
    /// The result cannot be written.
    pub fn write_json(&self, mut to: impl Write) -> io::Result<()> {
        writeln!(to, "{}", self.json())
    }

    /// # Errors
    /// The trace cannot be written.
    pub fn write_trace(&self, to: impl Write) -> io::Result<()> {
        trace(&self.scenario.plan, &self.machine, self.launcher_ns, &self.report).write(to)
    }

    /// What the run cost, as quantity, unit and value: frames and bytes of the exchange, bytes of the control class,
    /// the time until all agents were linked (where they were started), and this program's memory and time.
    pub fn totals(&self) -> impl Iterator<Item = (&'static str, &'static str, f64)> {
        let of = |wanted| {
            let counts = Class::ALL.iter().zip(&self.report.classes).filter(|(class, _)| **class == wanted);
            counts.fold((0, 0), |(frames, bytes), (_, count)| (frames + count.frames, bytes + count.bytes))
        };
        let (frames, bytes) = of(Class::Exchange);
        let agents = (self.scenario.plan.start != Start::Session).then(|| ("agents", "s", self.end_s("agents")));
        [
            ("exchange-frames", "count", frames as f64),
            ("exchange-bytes", "B", bytes as f64),
            ("control-bytes", "B", of(Class::Control).1 as f64),
            ("peak-memory", "B", self.peak_memory_bytes as f64),
            ("simulated-in", "s", self.wall.as_secs_f64()),
        ]
        .into_iter()
        .chain(agents)
    }

    pub fn json(&self) -> Value {
        let RunReport { classes, direct_links, rank_traffic, events, digest, .. } = &self.report;
        let Scenario { plan, stage_mib, lost, .. } = self.scenario;
        let failure = self.failure().or_else(|| lost.and_then(|_| self.loss()));
        let Plan { ranks, nodes, ppn, fanout, start, exchange, scheme, value_bytes, seed } = plan;
        let classes = Class::ALL
            .iter()
            .zip(classes)
            .map(|(class, count)| (class_name(*class), json!({ "frames": count.frames, "bytes": count.bytes })));
        let phases = self.phases().map(|phase| {
            let Phase { name, count, of, seconds, .. } = phase;
            (name.to_owned(), json!({ "s": seconds, "count": count, "of": of }))
        });
        json!({
            "record": "simulation", "schema": SCHEMA, "version": env!("CARGO_PKG_VERSION"),
            "machine": self.machine, "ranks": ranks, "nodes": nodes, "ppn": ppn, "fanout": fanout, "seed": seed,
            "start": name_of(&STARTS, &start), "exchange": name_of(&EXCHANGES, &exchange),
            "scheme": name_of_scheme(scheme), "value_bytes": value_bytes, "stage_mib": stage_mib,
            "lost": lost.map(|Lost { node, at_ms }| json!({ "node": node, "at_ms": at_ms })),
            "is_complete": self.is_complete(), "failure": failure,
            "phases": phases.collect::<Map<_, _>>(), "classes": classes.collect::<Map<_, _>>(),
            "direct_links": direct_links, "rank_network": rank_traffic.map(rank_network),
            "events": events, "digest": format!("{digest:016x}"),
            "wall_s": self.wall.as_secs_f64(), "peak_memory_bytes": self.peak_memory_bytes,
        })
    }
}

fn rank_network(traffic: RankTraffic) -> Value {
    let RankTraffic { messages, bytes, rounds, connections, addresses } = traffic;
    json!({
        "messages": messages, "bytes": bytes, "rounds": rounds, "connections": connections,
        "node_addresses": addresses.held, "node_different": addresses.different,
    })
}

fn class_name(class: Class) -> String {
    format!("{class:?}").to_lowercase()
}

fn progress_line(plan: &Plan, progress: &Progress) -> String {
    let Plan { ranks, nodes, .. } = plan;
    let [linked, begun, ready] = [Point::Linked, Point::Begun, Point::Ready].map(|at| progress.phases.at(at).count);
    let (million_events, ms) = (progress.events as f64 / 1e6, progress.elapsed_ns / 1_000_000);
    format!(
        "{} of {nodes} agents, {begun} of {ranks} ranks begun, {ready} in main; {million_events:.1} million events, \
         {ms} ms of virtual time",
        linked + 1
    )
}

impl fmt::Display for Simulation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { ranks, nodes, fanout, start, exchange, .. } = &self.scenario.plan;
        let (start, exchange) = (name_of(&STARTS, start), name_of(&EXCHANGES, exchange));
        writeln!(
            to,
            "{} of {}; start {start}; exchange {exchange}; fan-out {fanout}",
            ranks_on_nodes(*ranks, *nodes),
            self.machine
        )?;
        if !self.is_complete() {
            writeln!(to, "interrupted; until then:")?;
        }
        if let Some(Lost { node, at_ms }) = self.scenario.lost {
            let why = self.loss().unwrap_or_else(|| "the job had ended before".to_owned());
            writeln!(to, "node {node} lost its power {at_ms} ms after the launch: {why}")?;
        }
        for Phase { words, count, of, seconds, .. } in self.phases() {
            let some = if count < of { format!(" ({count} of {of})") } else { String::new() };
            writeln!(to, "  {:>10.3} ms  {words}{some}", seconds * 1e3)?;
        }
        writeln!(to, "  {:>12} {:>16}  class", "frames", "bytes")?;
        for (class, count) in Class::ALL.iter().zip(&self.report.classes).filter(|(_, count)| count.frames > 0) {
            writeln!(to, "  {:>12} {:>16}  {}", count.frames, count.bytes, class_name(*class))?;
        }
        if let Some(RankTraffic { messages, bytes, rounds, connections, addresses }) = self.report.rank_traffic {
            let NodeAddresses { held, different } = addresses;
            writeln!(to, "  {messages:>12} {bytes:>16}  messages between ranks, in at most {rounds} rounds of a rank")?;
            writeln!(to, "  {connections:>12} {:16}  connections between ranks", "")?;
            writeln!(to, "  {held:>12} {:16}  addresses on a node at most, {different} of them different", "")?;
        }
        let (events, digest) = (self.report.events, self.report.digest);
        let (memory, wall_s) = (memory::shown(self.peak_memory_bytes), self.wall.as_secs_f64());
        writeln!(to, "simulated in {wall_s:.1} s: {events} events, at most {memory}; digest {digest:016x}")
    }
}

/// The trace of a run whose job recorded time stamps for a profile, in the format of `wireup run --profile`.
fn trace(plan: &Plan, machine: &str, launcher_ns: u64, report: &RunReport) -> Trace {
    // All simulated machines have the same clock, so the clock offsets that agents estimate are replaced by 0.
    let parts = report.notices.iter().filter_map(|notice| match notice {
        Notice::Trace(part) => Some(TracePart { clock_offset_ns: 0, clock_error_ns: 0, ..(**part).clone() }),
        _ => None,
    });
    let parts: Vec<TracePart> = parts.collect();
    let last = |stamp: fn(&RankTrace) -> u64| parts.iter().flat_map(|part| &part.ranks).map(stamp).max().unwrap_or(0);
    let resolved_ns = START.0 + plan.launched_ns();
    let ended_ns = last(|rank| rank.exit_ns);
    let stamps = Stamps {
        process_ns: resolved_ns.saturating_sub(launcher_ns),
        resolved_ns,
        begun_ns: resolved_ns,
        started_ns: last(|rank| rank.exec_ns),
        ended_ns,
        // In a session the launcher's exit is not simulated: the end of the last rank is used instead.
        left_ns: if plan.start == Start::Session { ended_ns } else { START.0 + report.elapsed_ns },
    };
    Trace::new(about(plan, machine), &stamps, &[], &parts)
}

fn about(plan: &Plan, machine: &str) -> About {
    let Plan { ranks, nodes, fanout, start, exchange, scheme, value_bytes, seed, .. } = plan;
    About {
        wireup: env!("CARGO_PKG_VERSION").to_owned(),
        program: String::new(),
        settings: vec![
            ranks_on_nodes(*ranks, *nodes),
            format!("machine: {machine}{}", if is_built_in(machine) { " (built in, not measured here)" } else { "" }),
            format!("start: {}", name_of(&STARTS, start)),
            format!("tree: fan-out {fanout}"),
            format!("exchange: {} of {value_bytes} bytes from each rank", name_of(&EXCHANGES, exchange)),
            format!("scheme: {}", name_of_scheme(*scheme)),
            format!("seed: {seed}"),
        ],
        fanout: *fanout,
        simulated: Some(machine.to_owned()),
        ..About::default()
    }
}
