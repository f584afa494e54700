//! `wireup simulate table`: starts of large jobs, each with its published time and the predicted time.
//!
//! To show how sure a prediction is, each constant of the machine is halved and doubled alone, in a job with the same
//! number of ranks per node and perhaps fewer nodes. The screen shows the two constants with the greatest effect; the
//! file has those that change the time by at least [`EFFECT_MIN`].

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
/// Number of constants that the screen shows for each start.
const SHOWN: usize = 2;
/// Least ratio of two times that counts as an effect.
const EFFECT_MIN: f64 = 1.1;

/// The time that is predicted.
#[derive(Clone, Copy)]
enum Quantity {
    /// Time from the exec of the launcher until the last rank is in `main` with all addresses.
    Ready,
    /// Time from the begin of the last rank's program until the last rank has completed its exchange.
    Exchange,
    /// Time from the begin of the last rank's program until the last rank has the values that it gets.
    Values,
    /// Time from the exec of the launcher until the last rank has completed its exchange.
    Exchanged,
}

/// The steps of a published start that the simulator cannot simulate.
#[derive(Clone, Copy)]
struct OtherSteps {
    /// Time of these steps (s), by the formulas of `lab/model/steps.py` with only the constants of the column
    /// "baseline".
    seconds: f64,
    /// The published time of all steps of the start (s); for the connection manager, the bound that Moody estimates.
    published: f64,
}

/// One row of the table: a job start to predict, with its published time if there is one.
struct Statement {
    name: &'static str,
    machine: &'static str,
    /// Whether nodes read the program from the machine's file server; otherwise the nodes have it already.
    loads: bool,
    /// Size of the program (MiB) if it is staged before the job, as in [`Scenario::stage_mib`].
    stage_mib: Option<u32>,
    get_loops: u16,
    ranks: u32,
    ppn: u32,
    start: Start,
    exchange: Exchange,
    scheme: ExchangeScheme,
    quantity: Quantity,
    /// The published value (s), and the publication.
    published: Option<(f64, &'static str)>,
    other_steps: Option<OtherSteps>,
}

/// Size of Moody's program with its libraries (MiB): his file server sent the program to a node in 13.4 ms, in which
/// links of 1.2 GB/s transfer 16 MiB.
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
    other_steps: None,
};
/// A job of a million ranks. The scheme is `Tree`, because the simulator then holds the exchanged values once for all
/// agents.
const LARGE: Statement = Statement {
    machine: "frontier-like",
    loads: false,
    ranks: 1 << 20,
    ppn: 64,
    scheme: ExchangeScheme::Tree,
    published: None,
    ..MOODY
};

/// Moody's rows `Finalize` and `Other` of the baseline (s).
const FINALIZE_AND_OTHER: f64 = 2.1 + 11.5;
/// Rows of Moody's profile of the baseline that no step changes (s): `coll_arch_init`, `psm_ep_open`, `psm_other_init`.
const FIXED: f64 = 1.225 + 0.068 + 0.009;
/// Time of `psm_ep_connect` in the baseline (s): each process connects to all others.
const CONNECT: f64 = 10.286;
/// Time of one loop in which each process handles the address of every process once (s): 73,728 times 9.45 us.
const ADDRESSES: f64 = 0.697;

/// Time of the steps that are not simulated in a start with gets (s): `FIXED`, connections to all processes,
/// `shm_coll`, `psm_bcast_uuid` (a fence), and `FINALIZE_AND_OTHER`.
const OTHERS_WITH_GETS: f64 = FIXED + CONNECT + 6.171 + 0.442 + FINALIZE_AND_OTHER;
/// Time of the steps that are not simulated in a start with groups (s); in such a start `shm_coll` and `psm_bcast_uuid`
/// take next to no time.
const OTHERS_WITH_GROUPS: f64 = FIXED + CONNECT + 2.0 * ADDRESSES + FINALIZE_AND_OTHER;
/// Time of the steps that are not simulated if connections are made on demand (s): in such a start ranks neither
/// connect to all others nor exchange endpoint addresses.
const OTHERS_ON_DEMAND: f64 = FIXED + ADDRESSES + FINALIZE_AND_OTHER;

/// MVAPICH2's `MPI_Init`: its first barrier waits for the file server, and two loops of gets follow fences.
const MVAPICH2: Statement = Statement {
    name: "MVAPICH2's first barrier and gets, file server",
    get_loops: 2,
    exchange: Exchange::Fence,
    published: Some((78.2, "Moody 2016, baseline: proc_sync_1, populate_vcs, psm_ep_allgather")),
    other_steps: Some(OtherSteps { seconds: OTHERS_WITH_GETS, published: 110.0 }),
    ..MOODY
};

/// MVAPICH2's `MPI_Init` with a staged program, a ring and the groups that are made from it, instead of gets.
const MOODY_GROUPS: Statement = Statement {
    name: "MVAPICH2 with PMIX_Ring and groups",
    stage_mib: Some(MOODY_MIB),
    exchange: Exchange::RankGroups,
    quantity: Quantity::Exchanged,
    published: Some((0.803, "Moody 2016, PMIX_Ring: proc_sync_1, create_groups")),
    other_steps: Some(OtherSteps { seconds: OTHERS_WITH_GROUPS, published: 23.0 }),
    ..MOODY
};

const STATEMENTS: [Statement; 17] = [
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
        other_steps: Some(OtherSteps { seconds: OTHERS_WITH_GETS, published: 82.0 }),
        ..MVAPICH2
    },
    Statement {
        name: "MVAPICH2 with a PMI ring and groups",
        exchange: Exchange::PmiGroups,
        published: Some((5.263, "Moody 2016, PMI ring: proc_sync_1, create_groups")),
        other_steps: Some(OtherSteps { seconds: OTHERS_WITH_GROUPS, published: 32.2 }),
        ..MOODY_GROUPS
    },
    MOODY_GROUPS,
    Statement {
        name: "MVAPICH2 with a connection manager",
        quantity: Quantity::Ready,
        published: None,
        other_steps: Some(OtherSteps { seconds: OTHERS_ON_DEMAND, published: 10.0 }),
        ..MOODY_GROUPS
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
        exchange: Exchange::Store,
        quantity: Quantity::Exchange,
        published: Some((100.0, "TCPStore")),
        ..LARGE
    },
    // The job of mpich#7175: 700 nodes with 96 ranks each.
    Statement {
        name: "a PMIx fence that hung on Aurora",
        machine: "aurora",
        ranks: 67_200,
        ppn: 96,
        exchange: Exchange::PmixFull,
        quantity: Quantity::Exchange,
        scheme: ExchangeScheme::Auto,
        ..LARGE
    },
    Statement { name: "229,376 ranks", ranks: 229_376, ppn: 56, published: Some((22.0, "MVAPICH2")), ..LARGE },
    Statement { name: "a million ranks, session", ..LARGE },
    Statement { name: "a million ranks, ssh", start: Start::Ssh, ..LARGE },
];

/// Exchanges that the table predicts at each size of `GROWING_RANKS`, with the times of `PMI2_KVS_Fence` and of
/// `PMIX_Allgather` that "PMI Extensions" (Chakraborty et al., tables I and II) prints: number of ranks, and s.
const GROWING: [(Exchange, &[(u32, f64)]); 4] = [
    (Exchange::FencePmi2, &[(4096, 0.396), (8192, 0.685)]),
    (Exchange::Allgather, &[(4096, 0.275), (8192, 0.471)]),
    (Exchange::Ifence, &[]),
    (Exchange::Iallgather, &[]),
];
const GROWING_RANKS: [u32; 10] = [16, 64, 256, 1024, 4096, 8192, 16_384, 65_536, 262_144, 1_048_576];
/// Most nodes of a growing job: larger jobs have more ranks on each node. The simulator holds a fence's pairs once for
/// each node.
const GROWING_NODES: u32 = 2048;
/// Growing jobs with more ranks exchange in the tree, for the reason given at [`LARGE`].
const GROWING_AUTO: u32 = 65_536;
const S4_RANKS: [u32; 10] = [4, 16, 64, 256, 1024, 2048, 8192, 32_768, 131_072, 1_048_576];

/// Starts and exchanges at many sizes, which show how time and bytes grow with the number of ranks.
fn growing() -> impl Iterator<Item = Statement> {
    let ppn = |ranks: u32, least: u32| least.max(ranks / GROWING_NODES);
    let scheme = |ranks| if ranks > GROWING_AUTO { ExchangeScheme::Tree } else { ExchangeScheme::Auto };
    let exchanges = GROWING_RANKS.into_iter().flat_map(move |ranks| {
        GROWING.map(|(exchange, printed)| Statement {
            name: "growing",
            loads: false,
            ranks,
            ppn: ppn(ranks, 16),
            exchange,
            quantity: Quantity::Exchange,
            scheme: scheme(ranks),
            published: printed.iter().find(|(size, _)| *size == ranks).map(|(_, s)| (*s, "PMI Extensions")),
            ..MOODY
        })
    });
    let starts = S4_RANKS.into_iter().map(move |ranks| Statement {
        name: "growing, S4's machine",
        machine: "s4",
        ranks,
        ppn: ppn(ranks, 2),
        start: Start::Ssh,
        scheme: scheme(ranks),
        ..LARGE
    });
    exchanges.chain(starts)
}

/// The values of the command's flags.
pub struct Options {
    /// Largest number of ranks of a start; larger starts are left out.
    pub ranks_max: u32,
    /// Rows whose name contains this text; empty: all rows.
    pub only: String,
    /// Largest number of ranks of the jobs that are simulated again with each constant halved and doubled.
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
            Quantity::Exchanged => "exchanged",
        }
    }

    /// A result in the format of `lab/SCHEMA.md`; `fields`: the fields of its kind of record.
    fn line(&self, record: &str, contestant: &str, case: &Value, fields: Value) -> Value {
        let head = json!({
            "record": record, "contestant": contestant, "case": case, "quantity": self.quantity(), "unit": "s",
        });
        lines::joined(head, fields)
    }

    fn scenario(&self, plan: Plan) -> Scenario {
        Scenario { stage_mib: self.stage_mib, get_loops: self.get_loops, ..plan.into() }
    }

    /// Simulates `plan`; returns the predicted time (s).
    fn predict(&self, plan: Plan, machine: &Machine, terminal: &Terminal) -> Result<f64, Problem> {
        let simulation = Simulation::complete(self.scenario(plan), machine, self.machine, terminal)?;
        Ok(self.value(&simulation))
    }

    fn value(&self, simulation: &Simulation) -> f64 {
        let [begun, exchanged, ready] = ["begun", "exchanged", "ready"].map(|phase| simulation.end_s(phase));
        match self.quantity {
            Quantity::Ready => ready,
            Quantity::Exchange => exchanged - begun,
            Quantity::Values => ready - begun,
            Quantity::Exchanged => exchanged,
        }
    }
}

/// Prints the table, and writes its lines in the format of `lab/SCHEMA.md`.
///
/// # Errors
/// A simulation fails or is interrupted, or the file cannot be written.
pub fn table(options: &Options, json: Option<(PathBuf, File)>, terminal: &Terminal) -> Result<(), Problem> {
    let Options { ranks_max, sensitivity_ranks, ref only } = *options;
    let flags = format!("--ranks-max {ranks_max} --sensitivity-ranks {sensitivity_ranks}");
    let flags = if only.is_empty() { flags } else { format!("{flags} --only {only}") };
    let mut lines = Lines::begin(json, "simulation", &json!({}), &format!("table {flags}"))?;
    let is_small = |statement: &Statement| statement.ranks <= ranks_max && statement.name.contains(only);
    let mut last = None;
    for statement in STATEMENTS.into_iter().filter(is_small) {
        if predict(&statement, &mut last, &mut lines, terminal)? {
            show_sensitivities(&statement, sensitivity_ranks, &mut lines, terminal)?;
        }
    }
    for statement in growing().filter(is_small) {
        predict(&statement, &mut last, &mut lines, terminal)?;
    }
    Ok(())
}

/// The last simulation, kept because the next statement may describe the same run.
type Last = Option<((Scenario, &'static str, bool), Simulation)>;

/// Predicts and prints one row. Returns false if this machine has not enough memory for the simulation.
fn predict(statement: &Statement, last: &mut Last, lines: &mut Lines, terminal: &Terminal) -> Result<bool, Problem> {
    let plan = statement.plan(u32::MAX);
    let case = statement.case(&plan);
    let exchange = name_of(&EXCHANGES, &plan.exchange);
    let head = format!("{}, {} ranks, {exchange}", statement.name, plan.ranks);
    let scenario = statement.scenario(plan);
    let (wanted, available) = (memory::estimate(&scenario), memory::available());
    if wanted > available {
        let why = format!("needs about {} of memory; {} are free", memory::shown(wanted), memory::shown(available));
        println!("{head}: {why}");
        lines.write(statement.line("failed", "simulated", &case, json!({ "round": 0, "why": why })))?;
        return Ok(false);
    }
    let of = (scenario, statement.machine, statement.loads);
    let simulation = match last.take() {
        Some((same, simulation)) if same == of => simulation,
        _ => Simulation::complete(scenario, &statement.machine()?, statement.machine, terminal)?,
    };
    let seconds = statement.value(&simulation);
    for (quantity, unit, value) in simulation.totals() {
        let fields = json!({ "round": 0, "value": value, "quantity": quantity, "unit": unit });
        lines.write(statement.line("sample", "simulated", &case, fields))?;
    }
    *last = Some((of, simulation));
    let mut write = |predicted: f64, published: Option<f64>, fields: Value| {
        let line =
            |record, contestant, own| statement.line(record, contestant, &case, lines::joined(own, fields.clone()));
        lines.write(line("sample", "simulated", json!({ "round": 0, "value": predicted })))?;
        published.map_or(Ok(()), |value| lines.write(line("summary", "published", json!({ "median": value }))))
    };
    let source = statement.published.map_or(json!({}), |(_, source)| json!({ "source": source }));
    let published = statement.published.map(|(value, _)| value);
    write(seconds, published, source)?;
    println!("{head}: {seconds:.6} s{}", shown(published));
    if let Some(OtherSteps { seconds: others, published }) = statement.other_steps {
        write(seconds + others, Some(published), json!({ "quantity": "total" }))?;
        println!("  with {others:.1} s of other steps: {:.1} s{}", seconds + others, shown(Some(published)));
    }
    Ok(true)
}

fn shown(published: Option<f64>) -> String {
    published.map_or(String::new(), |value| format!("; published {value} s"))
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
        }
        let effect = times.map(|time| (time / unchanged).ln().abs()).into_iter().fold(0.0, f64::max);
        for (factor, time) in FACTORS.into_iter().zip(times).filter(|_| effect >= EFFECT_MIN.ln()) {
            let mut case = statement.case(&plan);
            (case["constant"], case["factor"]) = (json!(constant), json!(factor));
            let fields = json!({ "round": 0, "value": time / unchanged, "unit": "count" });
            lines.write(statement.line("sample", "changed", &case, fields))?;
        }
        all.push((effect, constant, times));
    }
    all.sort_by(|one, other| other.0.total_cmp(&one.0));
    println!("  {} ranks: {unchanged:.6} s", plan.ranks);
    for (_, constant, [halved, doubled]) in all.into_iter().take(SHOWN) {
        println!("    {constant}: halved {halved:.6} s, doubled {doubled:.6} s");
    }
    Ok(())
}
