//! S1: the phases and the bytes of a fence (table I) and of an allgather (table II), of wireup and as S1 had them.
//!
//! Each contestant is a job of its own in each round: its ranks (`programs/startup.c`) exchange once to check the
//! values that arrive, then some times to be measured. The agents of wireup write their time stamps into the job's
//! profile, the processes of `slurm` into a file. The round's values are medians over its exchanges.
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use serde_json::Value as Json;
use wireup_bench::bench::{Bench, Problem, Turn};
use wireup_bench::command::{Failure, wrong};
use wireup_bench::flags::{LIBRARY, LIMIT, NO_WORDS, RESULTS, ROUNDS, WIREUP, WIREUP_ARG};
use wireup_bench::layout::Layout;
use wireup_bench::samples::{Measures, bytes, medians, seconds};
use wireup_bench::stamps;
use wireup_bench::startup::job::{Job, Launch, with_job};
use wireup_bench::startup::scheme::{Step, named};
use wireup_bench::startup::{Choice, KEY_BYTES, PPN, RANKS, VALUE_BYTES};
use wireup_flags::{Command, Flag, Section, Value};

use super::slurm;

const RANKS_HERE: Flag = RANKS.or("4096,8192");
const REPEAT: Flag = Flag::value(&["--repeat"], "N", "Exchanges of each job, besides the first.").or("5");

pub const COMMAND: Command = Command {
    name: "reproduce tables",
    purpose: "time the phases of a fence and of an allgather and count their bytes",
    sections: &[
        Section { title: "Jobs", flags: &[RANKS_HERE, PPN, ROUNDS, WIREUP, WIREUP_ARG, LIBRARY, LIMIT] },
        Section { title: "Exchanges", flags: &[VALUE_BYTES, KEY_BYTES, REPEAT] },
        RESULTS,
    ],
    ..NO_WORDS
};

/// Number of measured rounds (chosen).
const ROUNDS_DEFAULT: u32 = 3;
/// wireup's algorithms, as its flag `--exchange` takes them.
const EXCHANGES: [&str; 3] = ["tree", "ring", "log"];
/// The collectives: name, and the schemes of the exchanges that check values and of those that are measured.
const WIREUP_S: [(&str, [&str; 2]); 2] =
    [("fence", ["fence-get-2", "fence"]), ("allgather", ["allgather", "allgather"])];
/// The schemes for `slurm`, to which an allgather is a fence in which each rank has put one value.
const TEXT: [&str; 2] = ["text-get-2", "text-fence"];
/// The trace event in which an agent reports the frames and bytes that its links have carried for the job's exchanges.
const TRAFFIC: &str = "exchange traffic";

/// Whose fence or allgather a job measures: that of wireup by PMI, or that of Slurm as S1 describes it.
#[derive(Clone, Debug)]
enum By {
    Wireup { schemes: [&'static str; 2], exchange: &'static str },
    Slurm { kind: &'static str },
}

/// What one process reports of one exchange: time stamps in seconds, of one clock.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stamps {
    /// When the first and the last rank of the node entered; `None`: the process has no ranks.
    entered: Option<[f64; 2]>,
    gathered: f64,
    received: f64,
    out: f64,
}

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let choice = Choice::read(line, RANKS_HERE)?;
    let repeat = line.one(REPEAT, Value::at_least_one)?;
    for &layout in &choice.layouts {
        let case = choice.case("tables", layout);
        let turn = |name: &str, by| Turn::new(name, &case, bench.rounds.unwrap_or(ROUNDS_DEFAULT), by);
        let mut turns = Vec::new();
        for (kind, schemes) in WIREUP_S {
            let by = |exchange| turn(&format!("{kind}, {exchange}"), By::Wireup { schemes, exchange });
            turns.extend(EXCHANGES.map(by));
            turns.push(turn(&format!("{kind} as in S1"), By::Slurm { kind }));
        }
        bench.turns(&turns, |by, _| job(bench, &choice, layout, by, repeat));
    }
    Ok(())
}

/// Runs one job.
fn job(bench: &Bench, choice: &Choice, layout: Layout, by: &By, repeat: u32) -> Result<Measures, Failure> {
    let file = bench.scratch.empty_file("stamps")?;
    let exchanges = |schemes: [&str; 2]| {
        let [check, measured] = schemes.map(|name| Step::exchange(named(name), choice.lengths));
        move |job: &mut Job| {
            job.step(&check)?;
            (0..repeat).map(|_| job.step(&measured)).collect::<Result<Vec<Measures>, Failure>>()
        }
    };
    let (steps, processes) = match by {
        By::Wireup { schemes, exchange } => {
            let launch = Launch::new(bench, layout)?;
            let launch = launch.with([format!("--exchange={exchange}"), format!("--profile={}", file.display())]);
            let steps = with_job(bench, &launch, exchanges(*schemes))?;
            let trace = fs::read_to_string(&file)?;
            let trace = serde_json::from_str(&trace).map_err(|error| wrong(format!("trace: {error}")))?;
            (steps, of_trace(&trace, layout, repeat)?)
        }
        By::Slurm { kind } => {
            let own = std::env::current_exe()?;
            let words = [slurm::WORD, kind, "0", &layout.to_string()].map(OsString::from);
            let argv = [own.into()].into_iter().chain(words).chain([file.clone().into()]);
            let launch = Launch::by(bench, layout, argv.collect())?;
            let steps = with_job(bench, &launch, exchanges(TEXT))?;
            (steps, of_slurm(&fs::read_to_string(&file)?, layout, repeat)?)
        }
    };
    let (all, traffic) = processes;
    let phases = all.iter().map(|one| phases(one)).collect::<Result<Vec<Measures>, _>>()?;
    Ok([medians(&steps), medians(&phases), traffic].concat())
}

/// The phases of one exchange, from the stamps of all processes.
fn phases(all: &[Stamps]) -> Result<Measures, Failure> {
    let most = |of: &dyn Fn(&Stamps) -> f64| all.iter().map(of).fold(0.0, f64::max);
    let first_in = all.iter().filter_map(|stamps| stamps.entered).map(|[first, _]| first).fold(f64::MAX, f64::min);
    let last_in = most(&|stamps| stamps.entered.map_or(0.0, |[_, last]| last));
    let received = most(&|stamps| stamps.received);
    // Where blocks take direct links, the tree gathers only sizes, and may do so later than the blocks arrive.
    let gathered = most(&|stamps| stamps.gathered).clamp(last_in, received.max(last_in));
    if !all.iter().all(|stamps| 0.0 < stamps.received && stamps.received <= stamps.out) {
        return Err(wrong("the time stamps of an exchange are out of order"));
    }
    // The clocks of different agents are aligned with some error.
    let between = |quantity, from: f64, to: f64| seconds(quantity, (to - from).max(0.0));
    Ok(vec![
        between("enter", first_in, last_in),
        between("gather", last_in, gathered),
        between("broadcast", gathered, received),
        seconds("processing", most(&|stamps| stamps.out - stamps.received)),
    ])
}

/// The stamps of each measured exchange, and the bytes of one exchange of the job, divided by its values.
type Reported = (Vec<Vec<Stamps>>, Measures);

/// The bytes of a node's own part, and the most that a process has received, divided by the values that they contain.
fn traffic(layout: Layout, own: f64, [up, down, direct]: [f64; 3]) -> Measures {
    let values = f64::from(layout.job_size());
    vec![
        bytes("part-per-value", own / f64::from(layout.ppn)),
        bytes("up-in-per-value", up / values),
        bytes("down-in-per-value", down / values),
        bytes("direct-in-per-value", direct / values),
    ]
}

/// Reads the trace that `wireup run --profile FILE` writes.
fn of_trace(trace: &Json, layout: Layout, repeat: u32) -> Result<Reported, Failure> {
    let (mut exchanges, mut nodes, mut own) = (BTreeMap::<u64, Vec<Stamps>>::new(), Vec::new(), 0.0f64);
    for event in trace["traceEvents"].as_array().into_iter().flatten() {
        let (name, args) = (event["name"].as_str().unwrap_or(""), &event["args"]);
        let number = |value: &Json| value.as_f64().unwrap_or(0.0);
        if name == TRAFFIC {
            nodes.push(["up", "down", "direct"].map(|way| number(&args[way]["bytes_in"])));
        } else if let (Some(last_in), Some(epoch)) = (args["last_in"].as_f64(), name.rsplit(' ').next()) {
            let first_in = number(&event["ts"]);
            let [entered, gathered, received, out] =
                [last_in, number(&args["gathered"]), number(&args["received"]), first_in + number(&event["dur"])]
                    .map(|us| us / 1e6);
            let entered = Some([first_in / 1e6, entered]);
            let epoch = epoch.parse().map_err(|_| wrong(format!("trace: {name}")))?;
            exchanges.entry(epoch).or_default().push(Stamps { entered, gathered, received, out });
            own = own.max(number(&args["bytes_up"]));
        }
    }
    let all: Vec<_> = exchanges.into_values().collect();
    let node_count = layout.node_count as usize;
    if all.len() != repeat as usize + 1 || all.iter().any(|one| one.len() != node_count) || nodes.len() != node_count {
        return Err(wrong(format!("trace: not all of {node_count} nodes report {} exchanges", repeat + 1)));
    }
    // The agents count all exchanges of the job.
    let most = |way: usize| nodes.iter().map(|node: &[f64; 3]| node[way]).fold(0.0, f64::max);
    let traffic = traffic(layout, own, [0, 1, 2].map(|way| most(way) / all.len() as f64));
    Ok((all[1..].to_vec(), traffic))
}

/// Reads the file that the processes of `slurm` write.
fn of_slurm(text: &str, layout: Layout, repeat: u32) -> Result<Reported, Failure> {
    let processes = layout.node_count + 1;
    let all = stamps::lines(text, slurm::NUMBERS, processes * (repeat + 1))?;
    let measured = &all[processes as usize..];
    let of = |line: &Vec<u64>| {
        let [first, last, gathered, received, out] = std::array::from_fn(|at| line[1 + at] as f64 / 1e9);
        Stamps { entered: (first > 0.0).then_some([first, last]), gathered, received, out }
    };
    let stamps = measured.chunks(processes as usize).map(|exchange| exchange.iter().map(of).collect());
    let most = |at: usize| measured.iter().map(|line| line[at]).max().unwrap_or(0) as f64;
    Ok((stamps.collect(), traffic(layout, most(6), [most(7), most(8), 0.0])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use wireup_bench::samples::value_of;

    #[test]
    fn phases_follow_each_other() {
        let node = |entered, gathered, received, out| Stamps { entered: Some(entered), gathered, received, out };
        let root = Stamps { entered: None, gathered: 7.0, received: 7.0, out: 7.0 };
        let all = [node([1.0, 3.0], 4.0, 9.0, 9.5), node([2.0, 5.0], 5.0, 8.0, 10.0), root];
        let measures = phases(&all).unwrap();
        let names = ["enter", "gather", "broadcast", "processing"];
        assert_eq!(names.map(|name| value_of(&measures, name).unwrap()), [4.0, 2.0, 2.0, 2.0]);
        assert!(phases(&[node([1.0, 3.0], 4.0, 6.0, 5.0)]).is_err());
    }

    #[test]
    fn a_trace_without_an_exchange_of_a_node_is_an_error() {
        let layout = Layout { node_count: 2, ppn: 2 };
        let fence = |epoch, node| {
            let args = json!({"last_in": 3.0, "gathered": 4.0, "received": 5.0, "bytes_up": 38});
            json!({"name": format!("fence {epoch}"), "pid": node, "ts": 1.0, "dur": 6.0, "args": args})
        };
        let links = |up, down| json!({"name": TRAFFIC, "args": {"up": {"bytes_in": up}, "down": {"bytes_in": down}}});
        let mut events = vec![fence(0, 1), fence(0, 2), fence(1, 1), fence(1, 2), links(80, 0), links(0, 160)];
        let (stamps, measures) = of_trace(&json!({ "traceEvents": events }), layout, 1).unwrap();
        let names = ["part-per-value", "up-in-per-value", "down-in-per-value", "direct-in-per-value"];
        assert_eq!(names.map(|name| value_of(&measures, name).unwrap()), [19.0, 10.0, 20.0, 0.0]);
        assert_eq!((stamps.len(), stamps[0].len(), stamps[0][0].out), (1, 2, 7e-6));
        events.remove(2);
        assert!(of_trace(&json!({ "traceEvents": events }), layout, 1).is_err());
    }
}
