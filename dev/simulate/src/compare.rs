//! `wireup simulate compare`: the real wireup on virtual nodes of this machine, compared with predictions of the
//! simulator and of a formula.

use crate::lines::Lines;
use crate::machine::Machine;
use crate::plan::{STARTS, Start, name_of};
use crate::problem::Problem;
use crate::timed::{Case, Timed, as_this_machine, median};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use wireup_sim::costs::Costs;

/// Length of the value of each rank in a fence (bytes).
const VALUE_BYTES: u16 = 32;

/// The processor time of a remote shell is fitted to a job on this many hosts, run this often; it is at least and at
/// most this long (ns). Chosen.
const SHELL_NODES: u32 = 8;
const SHELL_ROUNDS: u32 = 5;
const SHELL_NS: (u64, u64) = (1_000, 10_000_000_000);

/// Number of nodes, and number of ranks on each node.
pub type Shape = (u32, u32);

impl Case {
    /// A lower bound for the duration (s) of a job: the processor time that its processes need, divided by the number
    /// of processors.
    fn least_work(&self, machine: &Machine) -> Option<f64> {
        let (costs, children) = (machine.costs, u64::from(self.nodes - 1));
        let child_ns = costs.call_ns + costs.shell_ns + costs.agent_ns + 2 * costs.handshake_ns;
        let ranks_ns = u64::from(self.nodes * self.ppn) * (costs.fork_ns + costs.exec_ns);
        let ns = machine.launcher_ns + (children * child_ns + ranks_ns) / u64::from(costs.cores);
        (self.timed == Timed::Job).then_some(ns as f64 / 1e9)
    }

    fn quantity(&self) -> &'static str {
        if self.timed == Timed::Job { "wall" } else { "fence" }
    }
}

/// Prints measured and predicted times, and writes them to a file of lines.
///
/// # Errors
/// A run of wireup fails, or the file cannot be written.
pub fn compare(
    wireup: &Path,
    (name, machine): (&str, Machine),
    shapes: &[Shape],
    rounds: u32,
    hosts: Option<&str>,
    json: Option<(PathBuf, File)>,
) -> Result<(), Problem> {
    let machine = match hosts {
        Some(hosts) => with_shell_of(machine, hosts, wireup, shapes)?,
        None => as_this_machine(machine),
    };
    let shown: Vec<String> = shapes.iter().map(|(nodes, ppn)| format!("{nodes}x{ppn}")).collect();
    let by_ssh = hosts.map_or(String::new(), |hosts| format!("--hosts {hosts} "));
    let words = format!("compare --rounds {rounds} --machine {name} {by_ssh}{}", shown.join(" "));
    let mut lines = Lines::begin(json, "prediction", &json!({ "cpus": machine.costs.cores }), &words)?;
    println!("{:<28} {:>12} {:>12} {:>12} {:>12} {:>8}", "job", "least", "median", "simulated", "least work", "error");
    for timed in [Timed::Job, Timed::Fence(VALUE_BYTES)] {
        for case in shapes.iter().map(|&(nodes, ppn)| Case { timed, nodes, ppn }) {
            compare_one(&case, (wireup, hosts), &machine, rounds, &mut lines)?;
        }
    }
    Ok(())
}

/// The machine with a remote shell that takes as much processor time as that of `hosts`: fitted to a small job.
fn with_shell_of(machine: Machine, hosts: &str, wireup: &Path, shapes: &[Shape]) -> Result<Machine, Problem> {
    let most = shapes.iter().map(|(nodes, _)| *nodes).max().unwrap_or(1);
    let case = Case { timed: Timed::Job, nodes: most.min(SHELL_NODES), ppn: 1 };
    let times = (0..SHELL_ROUNDS).map(|_| case.measure(wireup, Some(hosts)));
    let measured = median(&mut times.collect::<Result<Vec<f64>, _>>()?);
    let (mut low, mut high) = SHELL_NS;
    while high - low > low / 100 {
        let shell_ns = low.midpoint(high);
        let tried = Machine { costs: Costs { shell_ns, ..machine.costs }, ..machine.clone() };
        if case.simulate(Start::Ssh, &tried) < measured { low = shell_ns } else { high = shell_ns }
    }
    println!("remote shell: {} of a processor, fitted to {}", shown_ms(low as f64 / 1e9), case.name());
    Ok(Machine { costs: Costs { shell_ns: low, ..machine.costs }, ..machine })
}

fn compare_one(
    case: &Case,
    (wireup, hosts): (&Path, Option<&str>),
    machine: &Machine,
    rounds: u32,
    lines: &mut Lines,
) -> Result<(), Problem> {
    let mut measured = (0..rounds).map(|_| case.measure(wireup, hosts)).collect::<Result<Vec<f64>, _>>()?;
    let start = if hosts.is_some() { Start::Ssh } else { Start::Local };
    let least_work = case.least_work(machine).filter(|_| hosts.is_none());
    let simulated = case.simulate(start, machine);
    let line = |contestant: &str, round: usize, value: f64| -> Value {
        json!({
            "record": "sample", "contestant": contestant, "round": round, "value": value, "unit": "s",
            "quantity": case.quantity(),
            "case": {
                "nodes": case.nodes, "ppn": case.ppn, "ranks": case.nodes * case.ppn, "start": name_of(&STARTS, &start),
            },
        })
    };
    for (round, seconds) in measured.iter().enumerate() {
        lines.write(line("measured", round, *seconds))?;
    }
    lines.write(line("simulated", 0, simulated))?;
    if let Some(seconds) = least_work {
        lines.write(line("least work", 0, seconds))?;
    }
    let median = median(&mut measured);
    let error = (simulated / median - 1.0) * 100.0;
    let [least, median, simulated] = [measured[0], median, simulated].map(shown_ms);
    let least_work = least_work.map_or_else(|| "-".to_owned(), shown_ms);
    println!("{:<28} {least:>12} {median:>12} {simulated:>12} {least_work:>12} {error:>6.1} %", case.name());
    Ok(())
}

fn shown_ms(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}
