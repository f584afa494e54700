//! Jobs that run for real, on virtual nodes of this machine, and the same jobs in the simulator.

use crate::machine::Machine;
use crate::plan::{Exchange, Plan, Start, VALUE_BYTES};
use crate::problem::Problem;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Instant;
use wireup_coll::tree::default_fanout;
use wireup_sim::costs::{Costs, Shared};
use wireup_sim::phases::Point;
use wireup_sim::workload::{Dialect, Script, Step, Whose};
use wireup_sim::{RunReport, run};
use wireup_wire::job::ExchangeScheme;

/// Value of `Shared::hosts` that puts all virtual nodes on one machine: more than any job has nodes.
const HOSTS_PER_MACHINE: u32 = 1_000_000;
/// Number of rounds that one start of `wireup pmi exchange` runs.
const EXCHANGE_ROUNDS: u32 = 10;

/// The part of a job whose duration is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timed {
    /// A whole job of `/bin/true`, from the exec of the launcher to its exit.
    Job,
    /// A fence with values of this length (bytes), from the time the last rank enters it until the last rank leaves it.
    /// Afterwards each rank makes two gets, which are not measured.
    Fence(u16),
    /// The gets of all ranks' values by all ranks, after a fence with values of this length (bytes).
    Gets(u16),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    pub timed: Timed,
    pub nodes: u32,
    pub ppn: u32,
}

/// The machine `base`, but with as many processors as this machine, and with all nodes on one machine.
pub fn as_this_machine(base: Machine) -> Machine {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let shared = Shared { hosts: HOSTS_PER_MACHINE, ..base.shared };
    Machine { costs: Costs { cores, ..base.costs }, shared, ..base }
}

impl Case {
    pub fn name(&self) -> String {
        let what = match self.timed {
            Timed::Job => "/bin/true".to_owned(),
            Timed::Fence(bytes) => format!("fence, {bytes} bytes"),
            Timed::Gets(bytes) => format!("gets, {bytes} bytes"),
        };
        format!("{what}, {} x {}", self.nodes, self.ppn)
    }

    /// Runs the case once, on virtual nodes or by ssh on `hosts`; returns the measured time (s).
    ///
    /// # Errors
    /// The run fails.
    pub fn measure(&self, wireup: &Path, hosts: Option<&str>) -> Result<f64, Problem> {
        let Case { nodes, ppn, .. } = *self;
        let mut command = Command::new(wireup);
        command.args(["run", "-n", &(nodes * ppn).to_string(), "--ppn", &ppn.to_string()]);
        match hosts {
            None => command.args(["--virtual-nodes", &nodes.to_string(), "--"]),
            Some(hosts) => command.args(["--hosts", hosts, "--"]),
        };
        let field = match self.timed {
            Timed::Job => {
                command.arg("/bin/true");
                None
            }
            Timed::Fence(bytes) | Timed::Gets(bytes) => {
                let (gets, field) =
                    if matches!(self.timed, Timed::Fence(_)) { ("2", "fence_ms=") } else { ("all", "get_ms=") };
                let [rounds, bytes] = [EXCHANGE_ROUNDS, bytes.into()].map(|number| number.to_string());
                command
                    .arg(wireup)
                    .args(["pmi", "exchange", "--rounds", &rounds, "--value-len", &bytes, "--get", gets]);
                Some(field)
            }
        };
        let begin = Instant::now();
        let output = Problem::of_file(wireup, command.stdin(Stdio::null()).output())?;
        let seconds = begin.elapsed().as_secs_f64();
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Problem::Failed(format!("{command:?}: {}: {why}", output.status)));
        }
        let Some(field) = field else { return Ok(seconds) };
        let value = text.split_whitespace().find_map(|word| word.strip_prefix(field)?.parse::<f64>().ok());
        value.map(|ms| ms / 1e3).ok_or_else(|| Problem::Failed(format!("{command:?} does not print {field}: {text}")))
    }

    /// Simulates the case; returns its simulated time (s).
    pub fn simulate(&self, start: Start, machine: &Machine) -> f64 {
        let Case { nodes, ppn, timed } = *self;
        let fanout = default_fanout(nodes);
        let (exchange, scheme) = (Exchange::None, ExchangeScheme::Auto);
        let ranks = nodes * ppn;
        let plan = Plan { ranks, nodes, ppn, fanout, start, exchange, scheme, value_bytes: VALUE_BYTES, seed: 1 };
        let world = plan.world(machine);
        let world = match timed {
            Timed::Job => world,
            Timed::Fence(value_bytes) | Timed::Gets(value_bytes) => world.job(|job| {
                let put = |pair| Step::Put { pair, value_bytes };
                let get = |pair, whose| Step::Get { pair, value_bytes, whose };
                let [begin, end] = [Point::Exchanged, Point::Ready].map(Step::Reach);
                let steps = if let Timed::Fence(_) = timed {
                    // The fence of the second of three rounds: ranks enter it as the first one lets them go, and those
                    // that leave it first go on while others still wait.
                    let round = |pair| [put(pair), Step::Fence, get(pair, Whose::Neighbours)];
                    let second = [put(1), begin, Step::Fence, end, get(1, Whose::Neighbours)];
                    [&round(0)[..], &second, &round(2)].concat()
                } else {
                    vec![put(0), Step::Fence, begin, get(0, Whose::All), end]
                };
                let steps = [&[Step::Init], &steps[..], &[Step::Finalize, Step::Exit { code: 0 }]].concat();
                job.apps = vec![(plan.ranks, Rc::new(Script::new(Dialect::Pmi1, &steps)))];
            }),
        };
        let report: RunReport = run(world);
        let last_ns = |point| report.checks.phases.at(point).last_ns;
        let ns = match timed {
            Timed::Job => report.elapsed_ns + machine.launcher_ns,
            Timed::Fence(_) | Timed::Gets(_) => last_ns(Point::Ready) - last_ns(Point::Exchanged),
        };
        ns as f64 / 1e9
    }
}

/// The median of times, of which there is at least one. Sorts them.
pub fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The wireup program to measure: the one in this program's folder, otherwise the one on PATH.
pub fn find_wireup() -> OsString {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("wireup"));
    beside.filter(|path| path.is_file()).map_or_else(|| "wireup".into(), Into::into)
}
