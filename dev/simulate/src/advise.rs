//! `wireup simulate advise`: which fan-out and exchange scheme start a job soonest, and whether a session and staging
//! save time.
//!
//! Each candidate is simulated: first fan-outs, with the scheme that agents choose; then schemes, with the best
//! fan-out; then the same job in a session. Ranks make the exchange of an MPI library at its start: put a value, fence,
//! get the values of both neighbours. A job that is too large is simulated at two smaller sizes, with as many ranks on
//! each node; its times follow as `seconds = levels * level_s + c * nodes^e`. `levels` is the number of levels of the
//! tree below the root, `level_s` the time of a chain of three agents minus the time of a chain of two; `c` and `e` are
//! fitted to the two sizes.

use crate::machine::{self, Machine};
use crate::plan::{Exchange, Plan, STARTS, Start, name_of, ranks_on_nodes};
use crate::problem::Problem;
use crate::simulation::{Simulation, Terminal};
use serde_json::{Value as Json, json};
use std::fmt;
use std::io::Write;
use wireup_coll::allgather::schemes;
use wireup_coll::tree::{Tree, default_fanout};
use wireup_flags::{Command, Error, Flag, JsonTo, Line, Section, Value, Words};
use wireup_sim::costs::Costs;
use wireup_wire::ids::AgentId;
use wireup_wire::job::ExchangeScheme;
use wireup_wire::limits::{PPN_MAX, VALUE_LEN_MAX};

/// Increased when a reader of older results would misread newer ones.
const SCHEMA: u32 = 1;
/// Maximum number of nodes of a simulated job, and maximum bytes of values that its agents hold together. Chosen:
/// simulating such a job takes some seconds and less than 1 GiB of memory. Larger jobs are extrapolated.
const NODES_MAX: u32 = 1024;
const HELD_BYTES_MAX: u64 = 256 << 20;
/// Memory of an agent for each rank of the job, not counting the rank's value (bytes).
const PAIR_BYTES: u64 = 26;
/// Fan-outs that are tried besides the default one. `FLAT_MAX`: largest number of children in a flat tree that is
/// tried.
const FANOUTS: [u32; 6] = [4, 8, 16, 32, 64, 128];
const FLAT_MAX: u32 = 256;
/// Fraction of the default's time that another candidate must save to be recommended. Chosen: the error of predictions.
const GAIN_MIN: f64 = 0.05;

const NODES: Flag = Flag::value(&["--nodes"], "N", "Number of nodes.");
const RANKS: Flag = Flag::value(&["-n", "--ranks"], "RANKS", "Number of ranks.");
const START: Flag = Flag::value(&["--start"], "HOW", "How agents are started: ssh, srun or local.").or("ssh");
const VALUE_BYTES: Flag =
    Flag::value(&["--value-bytes"], "B", "Length of what each rank publishes for the others.").or("256");
const MACHINE: Flag = Flag::value(
    &["--machine"],
    "FILE",
    "The machine: a built-in one or a file (default: wireup/machine-START.toml in $XDG_CONFIG_HOME or ~/.config, else \
     here for --start local and frontier-like for others).",
);
const READ_MS: Flag =
    Flag::value(&["--read-ms"], "MS", "Time in which file servers give all ranks their files; requires --stage-ms.");
const STAGE_MS: Flag = Flag::value(&["--stage-ms"], "MS", "Time to stage the files of all ranks; requires --read-ms.");
pub const JSON: Flag = Flag {
    help: "Print the result as one JSON object, and all else on standard error; =FILE writes it to FILE.",
    ..wireup_flags::JSON
};

pub const COMMAND: Command = Command {
    name: "simulate advise",
    purpose: "say which flags start a job soonest",
    intro: "
  wireup advise --hosts n[0-63] -n 1024 ./app     finds out nodes, ranks and start, and calls this
  wireup simulate advise --nodes 64 -n 1024 --start ssh --json=advice.json
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Job", flags: &[NODES, RANKS, START, VALUE_BYTES, READ_MS, STAGE_MS] },
        Section { title: "Machine", flags: &[MACHINE] },
        Section { title: "Results", flags: &[JSON] },
    ],
    end: "",
};

/// The job that the user asks advice for.
struct Job {
    nodes: u32,
    ranks: u32,
    start: Start,
    value_bytes: u16,
    /// Times (s) in which file servers deliver all ranks their files, and in which these files are staged, if known.
    staging: Option<[f64; 2]>,
}

/// Prints the advice, each line as soon as it is found.
pub fn run(line: &Line) -> Result<u8, Problem> {
    let job = Job::read(line)?;
    let named = line.last(MACHINE, Value::text)?;
    let (name, origin) = machine::meant(named.as_deref().unwrap_or_else(|| name_of(&STARTS, &job.start)));
    let machine = Machine::load(&name)?;
    let json = line.last(JSON, JsonTo::read)?.map(Problem::create_json).transpose()?;
    let mut predictor = Predictor::new(&job, &machine, &name)?;
    println!("  machine     {name}: {origin}");
    let advice = predictor.advise()?;
    if let Some((path, mut file)) = json {
        Problem::of_file(&path, writeln!(file, "{}", advice.json(&predictor)))?;
    }
    Ok(0)
}

impl Job {
    fn read(line: &Line) -> Result<Job, Error> {
        let missing = |word| Error::MissingWord { command: COMMAND.name, word };
        let nodes = line.last(NODES, Value::at_least_one)?.ok_or_else(|| missing("--nodes N"))?;
        let ranks = line.last(RANKS, Value::at_least_one)?.ok_or_else(|| missing("-n RANKS"))?;
        if nodes > ranks {
            let problem = format!(
                "{nodes} nodes for {ranks} ranks: {} of them would have no rank; name fewer hosts, or raise -n",
                nodes - ranks
            );
            return Err(Error::Together(problem));
        }
        if ranks.div_ceil(nodes) > PPN_MAX {
            let problem = format!("{}: a node can have at most {PPN_MAX}; add nodes", ranks_on_nodes(ranks, nodes));
            return Err(Error::Together(problem));
        }
        let ms = |flag| line.last(flag, Value::number);
        let seconds = |ms: u32| f64::from(ms) / 1e3;
        let staging = match (ms(READ_MS)?, ms(STAGE_MS)?) {
            (Some(read), Some(stage)) => Some([seconds(read), seconds(stage)]),
            (None, None) => None,
            _ => return Err(Error::Together("--read-ms and --stage-ms belong together; give both".into())),
        };
        let starts = STARTS.iter().filter(|(_, start)| *start != Start::Session).copied().collect::<Vec<_>>();
        Ok(Job {
            nodes,
            ranks,
            start: line.one(START, |value| value.choice(&starts))?,
            value_bytes: line.one(VALUE_BYTES, |value| value.number_in(1, VALUE_LEN_MAX as u32))? as u16,
            staging,
        })
    }

    fn ppn(&self) -> u32 {
        self.ranks.div_ceil(self.nodes)
    }

    /// Numbers of nodes that are simulated: the number of the job, or two smaller numbers.
    fn simulated_nodes(&self) -> Vec<u32> {
        let held =
            |nodes: u32| u64::from(nodes).pow(2) * u64::from(self.ppn()) * (u64::from(self.value_bytes) + PAIR_BYTES);
        let is_small = |nodes: u32| nodes <= NODES_MAX && held(nodes) <= HELD_BYTES_MAX;
        if is_small(self.nodes) {
            return vec![self.nodes];
        }
        let halves = std::iter::successors(Some(NODES_MAX.min(self.nodes)), |nodes| Some(nodes / 2));
        let largest = halves.take_while(|nodes| *nodes > 4).find(|nodes| is_small(*nodes)).unwrap_or(4);
        vec![largest / 2, largest]
    }
}

/// The times predicted for one candidate (s from the exec of the launcher): until all agents are linked, and until all
/// ranks are in main.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Times {
    linked_s: f64,
    ready_s: f64,
}

/// A possible value of a flag, and the time until all ranks are in main with that value (s).
#[derive(Clone, PartialEq, Debug)]
struct Candidate {
    value: String,
    /// The meaning of the value for this job; may be empty.
    note: String,
    seconds: f64,
}

/// The candidates for the value of a flag; the first one is the flag's default.
#[derive(Clone, PartialEq, Debug)]
struct Choice {
    flag: &'static str,
    candidates: Vec<Candidate>,
}

impl Choice {
    /// Index of the fastest candidate, or 0 (the default) if no candidate saves at least `GAIN_MIN`.
    fn best_at(&self) -> usize {
        let fast_enough = self.candidates[0].seconds * (1.0 - GAIN_MIN);
        let others = self.candidates.iter().enumerate().filter(|(_, one)| one.seconds < fast_enough);
        others.min_by(|(_, one), (_, other)| one.seconds.total_cmp(&other.seconds)).map_or(0, |(at, _)| at)
    }

    fn best(&self) -> &Candidate {
        &self.candidates[self.best_at()]
    }

    /// The flag with the best value, as a user would type it; empty if the default is best.
    fn typed(&self) -> String {
        if self.best_at() == 0 { String::new() } else { format!(" --{} {}", self.flag, self.best().value) }
    }

    fn json(&self) -> Json {
        let one = |candidate: &Candidate| json!({ "value": candidate.value, "s": candidate.seconds });
        json!({
            "advised": self.best().value, "default": self.candidates[0].value,
            "candidates": self.candidates.iter().map(one).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let best = self.best();
        let shown = |candidate: &Candidate| {
            let default = (*candidate == self.candidates[0]).then_some("default");
            let notes: Vec<&str> =
                default.into_iter().chain(Some(&*candidate.note)).filter(|n| !n.is_empty()).collect();
            let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
            format!("{}{notes}: {}", candidate.value, in_seconds(candidate.seconds))
        };
        let others = self.candidates.iter().filter(|candidate| *candidate != best);
        let all: Vec<String> = std::iter::once(best).chain(others).map(shown).collect();
        write!(to, "  {:12}{}", self.flag, all.join("; "))
    }
}

/// Predicted times that decide whether a standing session pays off.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Session {
    /// Time to start the session (s). `job_s`: time of a job in the session; `single_s`: time of a job that starts its
    /// own agents.
    up_s: f64,
    job_s: f64,
    single_s: f64,
}

impl Session {
    /// Least number of jobs for which a session takes less total time than single runs; `None`: a session never takes
    /// less time.
    fn jobs_min(&self) -> Option<u32> {
        let gain = self.single_s - self.job_s;
        (gain > 0.0).then(|| (self.up_s / gain).floor() as u32 + 1)
    }
}

impl fmt::Display for Session {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [up, job, single] = [self.up_s, self.job_s, self.single_s].map(in_seconds);
        let verdict = match self.jobs_min() {
            Some(jobs) => format!("worth it if you run {jobs} jobs or more"),
            None => "not worth it".to_owned(),
        };
        write!(to, "  {:12}{verdict}: {job} a job instead of {single}; wireup up takes {up}", "session")
    }
}

struct Advice {
    fanout: Choice,
    exchange: Choice,
    session: Session,
    run: String,
}

impl Advice {
    fn json(&self, predictor: &Predictor) -> Json {
        let Predictor { job, name, sizes, .. } = predictor;
        let Job { nodes, ranks, start, value_bytes, staging } = job;
        let Session { up_s, job_s, single_s } = self.session;
        json!({
            "record": "advice", "schema": SCHEMA, "version": env!("CARGO_PKG_VERSION"), "machine": name,
            "nodes": nodes, "ranks": ranks, "start": name_of(&STARTS, start), "value_bytes": value_bytes,
            "simulated_nodes": sizes, "fanout": self.fanout.json(), "exchange": self.exchange.json(),
            "session": { "up_s": up_s, "job_s": job_s, "single_s": single_s, "from_jobs": self.session.jobs_min() },
            "staging": staging.map(|[read_s, stage_s]| json!({
                "advised": stage_s < read_s, "read_s": read_s, "stage_s": stage_s,
            })),
            "run": self.run,
        })
    }
}

/// Predicts the times of a job by simulating it.
struct Predictor<'a> {
    job: &'a Job,
    /// The machine without its file server, which would delay all candidates equally.
    machine: Machine,
    /// Time in which the machine's file server delivers the program to all nodes (s).
    server_s: f64,
    name: &'a str,
    terminal: Terminal,
    /// Numbers of nodes that are simulated.
    sizes: Vec<u32>,
}

impl Predictor<'_> {
    fn new<'a>(job: &'a Job, machine: &Machine, name: &'a str) -> Result<Predictor<'a>, Problem> {
        Ok(Predictor {
            job,
            machine: Machine { costs: Costs { load_ns: 0, ..machine.costs }, ..machine.clone() },
            server_s: f64::from(job.nodes) * machine.costs.load_ns as f64 / 1e9,
            name,
            terminal: Terminal::new()?,
            sizes: job.simulated_nodes(),
        })
    }

    fn advise(&mut self) -> Result<Advice, Problem> {
        let Job { nodes, ranks, start, value_bytes, .. } = *self.job;
        let start_name = name_of(&STARTS, &start);
        let extrapolated = match self.sizes[..] {
            [less, more] => format!("; extrapolated from {less} and {more} nodes"),
            _ => String::new(),
        };
        println!(
            "  job         {}, start {start_name}, {value_bytes} bytes a rank{extrapolated}",
            ranks_on_nodes(ranks, nodes)
        );
        let fanouts = fanouts(nodes);
        let (mut times, mut candidates) = (Vec::new(), Vec::new());
        for &tried in &fanouts {
            let levels = levels(nodes, tried);
            let of_this = self.times(tried, ExchangeScheme::Auto, start, &format!("fan-out {tried}"))?;
            let note = if levels == 1 { "1 level".to_owned() } else { format!("{levels} levels") };
            times.push(of_this);
            candidates.push(Candidate { value: tried.to_string(), note, seconds: of_this.ready_s });
        }
        let fanout = Choice { flag: "fanout", candidates };
        println!("{fanout}");
        let (best, single) = (fanouts[fanout.best_at()], times[fanout.best_at()]);
        // The agent of a single node has no other agent to exchange data with, so one scheme is enough.
        let schemes: Vec<_> = schemes().take(if nodes > 1 { usize::MAX } else { 1 }).collect();
        let mut candidates = Vec::new();
        for &(value, scheme) in &schemes {
            let seconds = match scheme {
                ExchangeScheme::Auto => single.ready_s,
                _ => self.times(best, scheme, start, &format!("exchange {value}"))?.ready_s,
            };
            candidates.push(Candidate { value: value.to_owned(), note: String::new(), seconds });
        }
        let exchange = Choice { flag: "exchange", candidates };
        println!("{exchange}");
        let in_session = self.times(best, schemes[exchange.best_at()].1, Start::Session, "session")?;
        let launcher_s = self.machine.launcher_ns as f64 / 1e9;
        let session = Session {
            up_s: single.linked_s.max(launcher_s),
            job_s: in_session.ready_s,
            single_s: exchange.best().seconds,
        };
        println!("{session}");
        println!("  {:12}{}", "staging", self.staging());
        let stage = self.job.staging.is_some_and(|[read_s, stage_s]| stage_s < read_s);
        let run = format!(
            "wireup run{}{}{} ... ./app",
            fanout.typed(),
            exchange.typed(),
            if stage { " --stage" } else { "" }
        );
        println!("  {:12}{run}", "run");
        Ok(Advice { fanout, exchange, session, run })
    }

    fn staging(&self) -> String {
        match (self.job.staging, self.server_s) {
            (Some([0.0, _]), _) => "no: nothing that the ranks need lies on a network file system".to_owned(),
            (Some([read_s, stage_s]), _) => {
                let verdict = if stage_s < read_s { "yes" } else { "no" };
                let [read, stage] = [read_s, stage_s].map(in_seconds);
                format!(
                    "{verdict}: staging takes about {stage}; a busy file server gives all ranks their files in about \
                     {read}"
                )
            }
            (None, server_s) if server_s > 0.0 => {
                let server = in_seconds(server_s);
                format!(
                    "yes, if it takes less than {server}, the time of this machine's file server; name the program \
                     (wireup advise ... ./app) for an estimate"
                )
            }
            (None, _) => "name the program to know (wireup advise ... ./app), or run with --stage=auto".to_owned(),
        }
    }

    /// The times of the job with these choices. `label` is shown with the progress.
    fn times(&mut self, fanout: u32, scheme: ExchangeScheme, start: Start, label: &str) -> Result<Times, Problem> {
        self.terminal.label = format!("{label}: ");
        let nodes = self.job.nodes;
        let simulated = |nodes, fanout| self.simulated(nodes, fanout, scheme, start);
        let [less, more] = self.sizes[..] else { return simulated(nodes, fanout) };
        let known = [(less, simulated(less, fanout)?), (more, simulated(more, fanout)?)];
        // With fan-out 1, the tree is a chain: each agent is a level.
        let (two, three) = (simulated(2, 1)?, simulated(3, 1)?);
        let at = |seconds: fn(&Times) -> f64| {
            let of_levels = |nodes| f64::from(levels(nodes, fanout)) * (seconds(&three) - seconds(&two));
            let rest = known.map(|(nodes, times)| (nodes, seconds(&times) - of_levels(nodes)));
            extrapolated(rest, nodes) + of_levels(nodes)
        };
        Ok(Times { linked_s: at(|times| times.linked_s), ready_s: at(|times| times.ready_s) })
    }

    fn simulated(&self, nodes: u32, fanout: u32, scheme: ExchangeScheme, start: Start) -> Result<Times, Problem> {
        let ranks = if nodes == self.job.nodes { self.job.ranks } else { nodes * self.job.ppn() };
        let (ppn, exchange, value_bytes, seed) = (self.job.ppn(), Exchange::Fence, self.job.value_bytes, 1);
        let plan = Plan { ranks, nodes, ppn, fanout, start, exchange, scheme, value_bytes, seed };
        let simulation = Simulation::complete(plan, &self.machine, self.name, &self.terminal)?;
        Ok(Times { linked_s: simulation.end_s("agents"), ready_s: simulation.end_s("ready") })
    }
}

/// The fan-outs to try for `nodes` nodes; the default fan-out first.
fn fanouts(nodes: u32) -> Vec<u32> {
    let default = default_fanout(nodes);
    let flat = nodes - 1;
    let others = FANOUTS.into_iter().filter(|fanout| *fanout < flat).chain((flat <= FLAT_MAX).then_some(flat));
    std::iter::once(default).chain(others.filter(|fanout| *fanout != default && *fanout > 0)).collect()
}

/// Number of levels of agents below the root.
fn levels(nodes: u32, fanout: u32) -> u32 {
    Tree::new(nodes, fanout).depth(AgentId(nodes - 1))
}

/// The time for `nodes`, extrapolated by `seconds = c * nodes^e` from two known times; if the times do not grow, the
/// second time.
fn extrapolated([(less, first_s), (more, last_s)]: [(u32, f64); 2], nodes: u32) -> f64 {
    if first_s <= 0.0 || last_s <= first_s {
        return last_s;
    }
    let exponent = (last_s / first_s).ln() / (f64::from(more) / f64::from(less)).ln();
    last_s * (f64::from(nodes) / f64::from(more)).powf(exponent)
}

fn in_seconds(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.3} s") } else { format!("{seconds:.1} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(seconds: &[f64]) -> Choice {
        let candidate = |(at, seconds): (usize, &f64)| Candidate {
            value: (at + 1).to_string(),
            note: String::new(),
            seconds: *seconds,
        };
        Choice { flag: "fanout", candidates: seconds.iter().enumerate().map(candidate).collect() }
    }

    #[test]
    fn the_fastest_candidate_is_chosen_unless_the_default_is_hardly_slower() {
        let typed = |seconds: &[f64]| choice(seconds).typed();
        assert_eq!([typed(&[0.5, 0.4, 0.3, 0.4]), typed(&[1.0, 0.94])], [" --fanout 3", " --fanout 2"]);
        assert_eq!([typed(&[1.0, 0.96, 0.97]), typed(&[0.3]), typed(&[0.2, 0.3])], ["", "", ""]);
        assert_eq!(choice(&[0.5, 0.25]).to_string(), "  fanout      2: 0.250 s; 1 (default): 0.500 s");
    }

    #[test]
    fn a_session_is_worth_it_when_it_has_saved_its_own_start() {
        let from = |up_s, job_s, single_s| Session { up_s, job_s, single_s }.jobs_min();
        let jobs = [from(1.0, 0.2, 1.0), from(0.5, 0.2, 1.0), from(12.0, 0.75, 1.0)];
        assert_eq!(jobs, [Some(2), Some(1), Some(49)]);
        assert_eq!([from(1.0, 1.0, 1.0), from(0.0, 1.1, 1.0)], [None, None]);
    }

    fn job(nodes: u32, ranks: u32) -> Job {
        Job { nodes, ranks, start: Start::Ssh, value_bytes: 256, staging: None }
    }

    #[test]
    fn large_jobs_are_simulated_at_two_smaller_sizes() {
        assert_eq!(job(64, 1024).simulated_nodes(), [64]);
        for (nodes, ranks) in [(9_408, 602_112), (2_048, 73_728), (100_000, 100_000), (7, 7 * PPN_MAX)] {
            let [less, more] = job(nodes, ranks).simulated_nodes()[..] else { panic!("{nodes} nodes are many") };
            assert!(2 * less == more && more < nodes && less > 1, "{nodes}: {less}, {more}");
        }
    }

    #[test]
    fn what_grows_by_a_power_is_extrapolated_exactly() {
        let known = [128, 256].map(|nodes| (nodes, 2.0 * f64::from(nodes).sqrt()));
        assert!((extrapolated(known, 10_000) - 200.0).abs() < 1e-9);
        assert_eq!(extrapolated([(128, 0.5), (256, 0.5)], 10_000), 0.5);
    }

    /// The smaller sizes have two levels of agents, the full size has three.
    #[test]
    fn levels_that_only_the_full_size_has_are_counted() {
        let (job, machine) = (job(200, 200), Machine::load("frontier-like").expect("it is built in"));
        let mut predictor = Predictor::new(&job, &machine, "frontier-like").expect("signals can be caught");
        let mut seconds = |sizes| {
            predictor.sizes = sizes;
            predictor.times(8, ExchangeScheme::Auto, Start::Ssh, "").expect("times").ready_s
        };
        let (exact, predicted) = (seconds(vec![200]), seconds(vec![30, 60]));
        assert!((predicted / exact - 1.0).abs() < 0.1, "{predicted} instead of {exact}");
    }

    #[test]
    fn fan_outs_are_tried_once_and_the_default_first() {
        assert_eq!((fanouts(1), fanouts(2)), (vec![1], vec![1]));
        assert_eq!(fanouts(25), [24, 4, 8, 16]);
        assert_eq!(fanouts(200), [14, 4, 8, 16, 32, 64, 128, 199]);
        assert_eq!(fanouts(1_024), [32, 4, 8, 16, 64, 128]);
    }
}
