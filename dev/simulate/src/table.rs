//! `wireup simulate table`: statements about large starts, each with its published value, its goal and the prediction.
//!
//! How sure a prediction is: each constant of the machine is halved and doubled alone, in a job with the same ranks on
//! each node and perhaps fewer nodes. The screen shows the two constants that matter most.

use crate::machine::Machine;
use crate::memory;
use crate::plan::{EXCHANGES, Exchange, Plan, STARTS, Start, name_of};
use crate::problem::Problem;
use crate::simulation::{Simulation, Terminal};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;
use wireup_coll::tree::default_fanout;

/// The schema of the lines, as in `lab/SCHEMA.md`.
const LAB_SCHEMA: u32 = 1;
const FACTORS: [f64; 2] = [0.5, 2.0];
/// How many constants the screen shows for each statement.
const SHOWN: usize = 2;

/// What is predicted.
#[derive(Clone, Copy)]
enum Quantity {
    /// From the exec of the launcher until the last rank is in `main` with all addresses.
    Ready,
    /// From the begin of the last rank's program until the last rank has exchanged.
    Exchange,
}

/// A statement about the start of a job.
struct Statement {
    name: &'static str,
    machine: &'static str,
    /// Whether programs come from the machine's file server; else they are on the nodes.
    loads: bool,
    ranks: u32,
    ppn: u32,
    start: Start,
    exchange: Exchange,
    quantity: Quantity,
    /// The published value (s), and who published it.
    published: Option<(f64, &'static str)>,
    goal_s: Option<f64>,
}

const S2: Statement = Statement {
    name: "S2, session, file server",
    machine: "s2",
    loads: true,
    ranks: 73_728,
    ppn: 36,
    start: Start::Session,
    exchange: Exchange::Allgather,
    quantity: Quantity::Ready,
    published: Some((110.0, "S2, baseline")),
    goal_s: Some(2.0),
};
const LARGE: Statement =
    Statement { machine: "frontier-like", loads: false, ranks: 1 << 20, ppn: 64, published: None, ..S2 };

const STATEMENTS: [Statement; 9] = [
    Statement {
        name: "ring",
        loads: false,
        exchange: Exchange::Ring,
        quantity: Quantity::Exchange,
        published: Some((0.06, "S2, PMIX_Ring")),
        goal_s: Some(0.007),
        ..S2
    },
    Statement { name: "S2, session, files on the nodes", loads: false, published: None, ..S2 },
    Statement { name: "S2, ssh, files on the nodes", loads: false, start: Start::Ssh, published: None, ..S2 },
    S2,
    Statement {
        name: "Gloo's rendezvous",
        ranks: 8_192,
        ppn: 8,
        quantity: Quantity::Exchange,
        published: Some((85.0, "Gloo")),
        goal_s: Some(1.0),
        ..LARGE
    },
    Statement {
        name: "TCPStore's rendezvous",
        ranks: 98_304,
        ppn: 8,
        quantity: Quantity::Exchange,
        published: Some((100.0, "TCPStore")),
        goal_s: Some(1.0),
        ..LARGE
    },
    Statement { name: "229,376 ranks", ranks: 229_376, ppn: 56, published: Some((22.0, "MVAPICH2")), ..LARGE },
    Statement { name: "a million ranks, session", goal_s: Some(5.0), ..LARGE },
    Statement { name: "a million ranks, ssh", start: Start::Ssh, goal_s: Some(15.0), ..LARGE },
];

/// Exchanges of which the table has each power of four ranks, 16 on each node.
const GROWING: [Exchange; 4] = [Exchange::Fence, Exchange::Allgather, Exchange::Ifence, Exchange::Iallgather];
const GROWING_RANKS: [u32; 9] = [16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576];

/// What the flags say.
pub struct Options {
    /// Statements with more ranks are left out.
    pub ranks_max: u32,
    /// Most ranks of the jobs with changed constants.
    pub sensitivity_ranks: u32,
}

impl Statement {
    fn plan(&self, ranks_max: u32) -> Plan {
        let Statement { ranks, ppn, start, exchange, .. } = *self;
        let nodes = ranks.min(ranks_max).div_ceil(ppn).max(1);
        Plan { ranks: ranks.min(nodes * ppn), nodes, ppn, fanout: default_fanout(nodes), start, exchange, seed: 1 }
    }

    fn machine(&self) -> Result<Machine, Problem> {
        let machine = Machine::load(self.machine)?;
        Ok(Machine { file_server: machine.file_server.filter(|_| self.loads), ..machine })
    }

    fn case(&self, plan: &Plan) -> Value {
        json!({
            "statement": self.name, "machine": self.machine, "ranks": plan.ranks, "nodes": plan.nodes,
            "start": name_of(&STARTS, &plan.start), "exchange": name_of(&EXCHANGES, &plan.exchange),
        })
    }

    fn quantity(&self) -> &'static str {
        match self.quantity {
            Quantity::Ready => "ready",
            Quantity::Exchange => "exchange",
        }
    }

    /// The predicted time (s); `None`: the user has interrupted the simulation.
    fn predict(&self, plan: Plan, machine: &Machine, terminal: &Terminal) -> Result<Option<f64>, Problem> {
        let simulation = Simulation::run(plan, machine, self.machine, terminal);
        if let Some(failure) = simulation.failure() {
            return Err(Problem::Failed(failure));
        }
        let end = |name| simulation.phases().find(|phase| phase.name == name).map_or(0.0, |phase| phase.seconds);
        Ok(simulation.is_complete().then(|| match self.quantity {
            Quantity::Ready => end("ready"),
            Quantity::Exchange => end("exchanged") - end("begun"),
        }))
    }
}

/// The file of lines, if there is one.
struct Lines(Option<(PathBuf, File)>);

impl Lines {
    fn write(&mut self, record: &Value) -> Result<(), Problem> {
        match &mut self.0 {
            Some((path, file)) => Problem::of_file(path, writeln!(file, "{record}")),
            None => Ok(()),
        }
    }

    /// A line about a statement; `fields` are those of its kind of record.
    fn about(
        &mut self,
        statement: &Statement,
        record: &str,
        contestant: &str,
        case: &Value,
        fields: Value,
    ) -> Result<(), Problem> {
        let mut line = json!({
            "record": record, "benchmark": "simulation", "contestant": contestant, "case": case,
            "quantity": statement.quantity(), "unit": "s",
        });
        let (Some(all), Value::Object(fields)) = (line.as_object_mut(), fields) else { return Ok(()) };
        all.extend(fields);
        self.write(&line)
    }
}

/// Prints the table, and writes the lines of `lab/SCHEMA.md`. False if the user has interrupted it.
///
/// # Errors
/// A simulation fails, or the file cannot be written.
pub fn table(options: &Options, json: Option<(PathBuf, File)>, terminal: &Terminal) -> Result<bool, Problem> {
    let mut lines = Lines(json);
    let Options { ranks_max, sensitivity_ranks } = *options;
    let words = ["table", "--ranks-max", &ranks_max.to_string()].map(str::to_owned);
    lines.write(&json!({
        "record": "run", "schema": LAB_SCHEMA, "benchmark": "simulation", "version": env!("CARGO_PKG_VERSION"),
        "date": humantime::format_rfc3339_seconds(SystemTime::now()).to_string(), "machine": {}, "words": words,
        "command": format!(
            "wireup simulate table --ranks-max {ranks_max} --sensitivity-ranks {sensitivity_ranks} --json FILE"
        ),
    }))?;
    let growing = GROWING_RANKS.iter().flat_map(|ranks| {
        let quantity = Quantity::Exchange;
        GROWING.map(|exchange| Statement {
            name: "growing",
            loads: false,
            ranks: *ranks,
            ppn: 16,
            exchange,
            quantity,
            published: None,
            goal_s: None,
            ..S2
        })
    });
    for statement in STATEMENTS.into_iter().chain(growing).filter(|statement| statement.ranks <= ranks_max) {
        if !predict_statement(&statement, sensitivity_ranks, &mut lines, terminal)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn predict_statement(
    statement: &Statement,
    sensitivity_ranks: u32,
    lines: &mut Lines,
    terminal: &Terminal,
) -> Result<bool, Problem> {
    let (plan, machine) = (statement.plan(u32::MAX), statement.machine()?);
    let case = statement.case(&plan);
    let (wanted, available) = (memory::estimate(&plan), memory::available());
    if wanted > available {
        let why = format!("takes about {}; {} are free", memory::shown(wanted), memory::shown(available));
        println!("{}, {} ranks: {why}", statement.name, plan.ranks);
        lines.about(statement, "failed", "simulated", &case, json!({ "round": 0, "why": why }))?;
        return Ok(true);
    }
    let Some(seconds) = statement.predict(plan, &machine, terminal)? else { return Ok(false) };
    lines.about(statement, "sample", "simulated", &case, json!({ "round": 0, "value": seconds }))?;
    let goal = statement.goal_s.map(|goal| (goal, "goal"));
    for (value, (contestant, source)) in [
        statement.published.map(|(value, source)| (value, ("published", source))),
        goal.map(|(value, source)| (value, ("goal", source))),
    ]
    .into_iter()
    .flatten()
    {
        lines.about(statement, "summary", contestant, &case, json!({ "median": value, "source": source }))?;
    }
    let exchange = name_of(&EXCHANGES, &plan.exchange);
    let words = |value: Option<f64>, word: &str| value.map_or(String::new(), |value| format!("; {word} {value} s"));
    let published = words(statement.published.map(|(value, _)| value), "published");
    let reached = match statement.goal_s {
        Some(goal) if seconds < goal => " reached",
        Some(_) => " missed",
        None => "",
    };
    println!(
        "{}, {} ranks, {exchange}: {seconds:.6} s{published}{}{reached}",
        statement.name,
        plan.ranks,
        words(statement.goal_s, "goal")
    );
    if statement.goal_s.is_none() {
        return Ok(true);
    }
    show_sensitivities(statement, &machine, sensitivity_ranks, lines, terminal)
}

fn show_sensitivities(
    statement: &Statement,
    machine: &Machine,
    ranks_max: u32,
    lines: &mut Lines,
    terminal: &Terminal,
) -> Result<bool, Problem> {
    let plan = statement.plan(ranks_max);
    let Some(unchanged) = statement.predict(plan, machine, terminal)? else { return Ok(false) };
    let mut all = Vec::new();
    for constant in machine.constants() {
        let mut times = [0.0; FACTORS.len()];
        for (factor, time) in FACTORS.into_iter().zip(&mut times) {
            let changed = machine.scaled(&constant, factor);
            let Some(seconds) = statement.predict(plan, &changed, terminal)? else { return Ok(false) };
            *time = seconds;
            let mut case = statement.case(&plan);
            (case["constant"], case["factor"]) = (json!(constant), json!(factor));
            let value = seconds / unchanged;
            lines.about(
                statement,
                "sample",
                "changed",
                &case,
                json!({ "round": 0, "value": value, "unit": "count" }),
            )?;
        }
        let effect = times.map(|time| (time / unchanged).ln().abs()).into_iter().fold(0.0, f64::max);
        all.push((effect, constant, times));
    }
    all.sort_by(|one, other| other.0.total_cmp(&one.0));
    println!("  {} ranks: {unchanged:.6} s", plan.ranks);
    for (_, constant, [halved, doubled]) in all.into_iter().take(SHOWN) {
        println!("    {constant}: halved {halved:.6} s, doubled {doubled:.6} s");
    }
    Ok(true)
}
