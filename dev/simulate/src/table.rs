//! `wireup simulate table`: large starts, each with its published time and the predicted one.
//!
//! How sure a prediction is: each constant of the machine is halved and doubled alone, in a job with the same ranks on
//! each node and perhaps fewer nodes. The screen shows the two constants that matter most.

use crate::lines::{self, Lines};
use crate::machine::Machine;
use crate::memory;
use crate::plan::{EXCHANGES, Exchange, Plan, STARTS, Scenario, Start, VALUE_BYTES, name_of, name_of_scheme};
use crate::problem::Problem;
use crate::simulation::{Simulation, Terminal};
use serde_json::{Value, json};
use std::fs::File;
use std::path::PathBuf;
use wireup_coll::tree::default_fanout;
use wireup_wire::job::ExchangeScheme;

const FACTORS: [f64; 2] = [0.5, 2.0];
/// How many constants the screen shows for each start.
const SHOWN: usize = 2;

/// What is predicted.
#[derive(Clone, Copy)]
enum Quantity {
    /// From the exec of the launcher until the last rank is in `main` with all addresses.
    Ready,
    /// From the begin of the last rank's program until the last rank has exchanged.
    Exchange,
    /// From the begin of the last rank's program until the last rank has the values that it gets.
    Values,
}

/// A start of a job.
struct Statement {
    name: &'static str,
    machine: &'static str,
    /// Whether programs come from the machine's file server; else they are on the nodes.
    loads: bool,
    /// As in [`Scenario`].
    stage_mib: Option<u32>,
    get_loops: u16,
    ranks: u32,
    ppn: u32,
    start: Start,
    exchange: Exchange,
    scheme: ExchangeScheme,
    quantity: Quantity,
    /// The published value (s), and who published it.
    published: Option<(f64, &'static str)>,
}

/// Size of Moody's program with its libraries: what a file server that sends 1.2 GB/s, as the links do, sends in the
/// 13.4 ms in which his sent it to a node.
const MOODY_MIB: u32 = 16;

const MOODY: Statement = Statement {
    name: "Moody's machine, session, file server",
    machine: "s2",
    loads: true,
    stage_mib: None,
    get_loops: 0,
    ranks: 73_728,
    ppn: 36,
    start: Start::Session,
    exchange: Exchange::Allgather,
    scheme: ExchangeScheme::Auto,
    quantity: Quantity::Ready,
    published: Some((110.0, "Moody 2016, baseline")),
};
/// By the tree: the simulator holds what agents receive by it once, and not once for each agent.
const LARGE: Statement = Statement {
    machine: "frontier-like",
    loads: false,
    ranks: 1 << 20,
    ppn: 64,
    scheme: ExchangeScheme::Tree,
    published: None,
    ..MOODY
};

/// MVAPICH2's `MPI_Init`: its first barrier waits for the file server, and two loops of gets follow fences. The
/// simulator has no mechanism for its other steps (31.8 s of 110 s), such as the connections of all processes.
const MVAPICH2: Statement = Statement {
    name: "MVAPICH2's first barrier and gets, file server",
    get_loops: 2,
    exchange: Exchange::Fence,
    published: Some((78.2, "Moody 2016, baseline: proc_sync_1, populate_vcs, psm_ep_allgather")),
    ..MOODY
};

const STATEMENTS: [Statement; 13] = [
    Statement {
        name: "PMI ring",
        loads: false,
        exchange: Exchange::Fence,
        quantity: Quantity::Values,
        published: Some((0.38, "Moody 2016, PMI ring: ring_exchange_pmiputget")),
        ..MOODY
    },
    Statement {
        name: "PMIX_Ring",
        loads: false,
        exchange: Exchange::Ring,
        quantity: Quantity::Exchange,
        published: Some((0.06, "Moody 2016, PMIX_Ring")),
        ..MOODY
    },
    Statement { name: "Moody's machine, session", loads: false, published: None, ..MOODY },
    Statement { name: "Moody's machine, ssh", loads: false, start: Start::Ssh, published: None, ..MOODY },
    Statement { name: "Moody's machine, session, staged", stage_mib: Some(MOODY_MIB), published: None, ..MOODY },
    MOODY,
    MVAPICH2,
    Statement {
        name: "MVAPICH2's first barrier and gets, staged",
        stage_mib: Some(MOODY_MIB),
        published: Some((50.3, "Moody 2016, staged: proc_sync_1, populate_vcs, psm_ep_allgather")),
        ..MVAPICH2
    },
    Statement {
        name: "rendezvous of Gloo",
        ranks: 8_192,
        ppn: 8,
        quantity: Quantity::Exchange,
        scheme: ExchangeScheme::Auto,
        published: Some((85.0, "Gloo")),
        ..LARGE
    },
    Statement {
        name: "rendezvous by TCPStore",
        ranks: 98_304,
        ppn: 8,
        quantity: Quantity::Exchange,
        published: Some((100.0, "TCPStore")),
        ..LARGE
    },
    Statement { name: "229,376 ranks", ranks: 229_376, ppn: 56, published: Some((22.0, "MVAPICH2")), ..LARGE },
    Statement { name: "a million ranks, session", ..LARGE },
    Statement { name: "a million ranks, ssh", start: Start::Ssh, ..LARGE },
];

/// Exchanges that the table predicts at each size of `GROWING_RANKS`, with 16 ranks on each node.
const GROWING: [Exchange; 4] = [Exchange::Fence, Exchange::Allgather, Exchange::Ifence, Exchange::Iallgather];
const GROWING_RANKS: [u32; 9] = [16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576];

/// What the flags say.
pub struct Options {
    /// Starts with more ranks are left out.
    pub ranks_max: u32,
    /// Most ranks of the jobs with changed constants.
    pub sensitivity_ranks: u32,
}

impl Statement {
    fn plan(&self, ranks_max: u32) -> Plan {
        let Statement { ranks, ppn, start, exchange, scheme, .. } = *self;
        let nodes = ranks.min(ranks_max).div_ceil(ppn).max(1);
        let (ranks, fanout) = (ranks.min(nodes * ppn), default_fanout(nodes));
        Plan { ranks, nodes, ppn, fanout, start, exchange, scheme, value_bytes: VALUE_BYTES, seed: 1 }
    }

    fn machine(&self) -> Result<Machine, Problem> {
        let mut machine = Machine::load(self.machine)?;
        if !self.loads {
            machine.costs.load_ns = 0;
        }
        Ok(machine)
    }

    fn case(&self, plan: &Plan) -> Value {
        json!({
            "statement": self.name, "machine": self.machine, "ranks": plan.ranks, "nodes": plan.nodes,
            "start": name_of(&STARTS, &plan.start), "exchange": name_of(&EXCHANGES, &plan.exchange),
            "scheme": name_of_scheme(plan.scheme),
        })
    }

    fn quantity(&self) -> &'static str {
        match self.quantity {
            Quantity::Ready => "ready",
            Quantity::Exchange => "exchange",
            Quantity::Values => "values",
        }
    }

    /// A line of `lab/SCHEMA.md`; `fields` are those of its kind of record.
    fn line(&self, record: &str, contestant: &str, case: &Value, fields: Value) -> Value {
        let head = json!({
            "record": record, "contestant": contestant, "case": case, "quantity": self.quantity(), "unit": "s",
        });
        lines::joined(head, fields)
    }

    /// The predicted time (s).
    fn predict(&self, plan: Plan, machine: &Machine, terminal: &Terminal) -> Result<f64, Problem> {
        let scenario = Scenario { plan, stage_mib: self.stage_mib, get_loops: self.get_loops };
        let simulation = Simulation::complete(scenario, machine, self.machine, terminal)?;
        let [begun, exchanged, ready] = ["begun", "exchanged", "ready"].map(|phase| simulation.end_s(phase));
        Ok(match self.quantity {
            Quantity::Ready => ready,
            Quantity::Exchange => exchanged - begun,
            Quantity::Values => ready - begun,
        })
    }
}

/// Prints the table, and writes the lines of `lab/SCHEMA.md`.
///
/// # Errors
/// A simulation fails or is interrupted, or the file cannot be written.
pub fn table(options: &Options, json: Option<(PathBuf, File)>, terminal: &Terminal) -> Result<(), Problem> {
    let Options { ranks_max, sensitivity_ranks } = *options;
    let flags = format!("--ranks-max {ranks_max} --sensitivity-ranks {sensitivity_ranks}");
    let mut lines = Lines::begin(json, "simulation", &json!({}), &format!("table {flags}"))?;
    let growing = GROWING_RANKS.iter().flat_map(|ranks| {
        GROWING.map(|exchange| Statement {
            name: "growing",
            loads: false,
            ranks: *ranks,
            ppn: 16,
            exchange,
            quantity: Quantity::Exchange,
            published: None,
            ..MOODY
        })
    });
    let is_small = |statement: &Statement| statement.ranks <= ranks_max;
    for statement in STATEMENTS.into_iter().filter(is_small) {
        if predict(&statement, &mut lines, terminal)? {
            show_sensitivities(&statement, sensitivity_ranks, &mut lines, terminal)?;
        }
    }
    for statement in growing.filter(is_small) {
        predict(&statement, &mut lines, terminal)?;
    }
    Ok(())
}

/// False if this machine has not enough memory for the simulation.
fn predict(statement: &Statement, lines: &mut Lines, terminal: &Terminal) -> Result<bool, Problem> {
    let plan = statement.plan(u32::MAX);
    let case = statement.case(&plan);
    let exchange = name_of(&EXCHANGES, &plan.exchange);
    let head = format!("{}, {} ranks, {exchange}", statement.name, plan.ranks);
    let (wanted, available) = (memory::estimate(&plan), memory::available());
    if wanted > available {
        let why = format!("needs about {} of memory; {} are free", memory::shown(wanted), memory::shown(available));
        println!("{head}: {why}");
        lines.write(statement.line("failed", "simulated", &case, json!({ "round": 0, "why": why })))?;
        return Ok(false);
    }
    let seconds = statement.predict(plan, &statement.machine()?, terminal)?;
    lines.write(statement.line("sample", "simulated", &case, json!({ "round": 0, "value": seconds })))?;
    let mut published = String::new();
    if let Some((value, source)) = statement.published {
        lines.write(statement.line("summary", "published", &case, json!({ "median": value, "source": source })))?;
        published = format!("; published {value} s");
    }
    println!("{head}: {seconds:.6} s{published}");
    Ok(true)
}

fn show_sensitivities(
    statement: &Statement,
    ranks_max: u32,
    lines: &mut Lines,
    terminal: &Terminal,
) -> Result<(), Problem> {
    let (plan, machine) = (statement.plan(ranks_max), statement.machine()?);
    let unchanged = statement.predict(plan, &machine, terminal)?;
    let mut all = Vec::new();
    for constant in machine.constants() {
        let mut times = [0.0; FACTORS.len()];
        for (factor, time) in FACTORS.into_iter().zip(&mut times) {
            *time = statement.predict(plan, &machine.scaled(&constant, factor), terminal)?;
            let mut case = statement.case(&plan);
            (case["constant"], case["factor"]) = (json!(constant), json!(factor));
            let fields = json!({ "round": 0, "value": *time / unchanged, "unit": "count" });
            lines.write(statement.line("sample", "changed", &case, fields))?;
        }
        let effect = times.map(|time| (time / unchanged).ln().abs()).into_iter().fold(0.0, f64::max);
        all.push((effect, constant, times));
    }
    all.sort_by(|one, other| other.0.total_cmp(&one.0));
    println!("  {} ranks: {unchanged:.6} s", plan.ranks);
    for (_, constant, [halved, doubled]) in all.into_iter().take(SHOWN) {
        println!("    {constant}: halved {halved:.6} s, doubled {doubled:.6} s");
    }
    Ok(())
}
