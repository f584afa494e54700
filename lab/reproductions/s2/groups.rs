//! The cost of groups of ranks: real ranks, whose times and counts are measured and whose counts are compared with
//! simulated ones; the simulator alone, for jobs that no machine of this size can run; and the state that ranks hold if
//! they talk to log2 P others, compared with ranks that talk to all.
use serde_json::Value as Json;
use wireup_bench::bench::{Bench, Problem, Turn};
use wireup_bench::command::{Failure, wrong};
use wireup_bench::flags::{LIBRARY, LIMIT, NO_WORDS, PART, RESULTS, ROUNDS, WIREUP, WIREUP_ARG, parts};
use wireup_bench::layout::Layout;
use wireup_bench::samples::{Measures, bytes, count};
use wireup_bench::startup::board::Slot;
use wireup_bench::startup::job::{Job, Launch, with_job};
use wireup_bench::startup::scheme::{Lengths, Operation, Step, default_rounds};
use wireup_bench::startup::{Choice, KEY_BYTES, PPN, RANKS, VALUE_BYTES};
use wireup_flags::{Command, Flag, Section, Value};
use wireup_sim::rank_network::{ADDRESS_LEN, Call, Cost, Held, RankNetwork, Trouble, one_for_all};

const RANKS_HERE: Flag = Flag { help: "Job sizes; of connections by default 16,64,256", ..RANKS }.or("16,64,256,1024");
const PARTS: Flag = PART.or("groups,connections");
const REPEAT: Flag = Flag::value(&["--repeat"], "N", "Short calls of a round, one behind the other.").or("4");
const SIMULATED: Flag =
    Flag::value(&["--simulated"], "A,B,..", "groups: job sizes of the simulator.").or("4096,16384,73728");

pub const COMMAND: Command = Command {
    name: "reproduce groups",
    purpose: "measure what groups of ranks cost, beside the simulator",
    intro: "
groups: every collective of libwireup by real ranks on virtual nodes: its time, its rounds, messages and bytes, and how
many ranks differ from the simulator's; then the simulator alone at larger sizes. connections: the connections,
addresses and memory of ranks that talk to log2 P others, beside those of ranks that talk to all; real, then simulated.
",
    sections: &[
        Section { title: "Jobs", flags: &[RANKS_HERE, PPN, ROUNDS, PARTS, WIREUP, WIREUP_ARG, LIBRARY, LIMIT] },
        Section { title: "Calls", flags: &[VALUE_BYTES, KEY_BYTES, REPEAT, SIMULATED] },
        RESULTS,
    ],
    ..NO_WORDS
};

/// What ranks do in the group of all ranks: its name, the operation, and whether it is so short that a step repeats it.
type GroupScheme = (&'static str, Operation, bool);

const SCHEMES: [GroupScheme; 8] = [
    ("group-barrier", Operation::Barrier, true),
    ("group-bcast", Operation::Broadcast, true),
    ("group-shift", Operation::Shift, true),
    ("group-allreduce", Operation::Allreduce, true),
    ("group-allgather", Operation::GroupAllgather, true),
    ("group-alltoall", Operation::GroupAlltoall, true),
    ("group-split", Operation::Split, false),
    ("group-locate", Operation::Locate, false),
];
/// Name in the samples of building the binomial graph, which ranks do when they open the library.
const BUILD: &str = "group-build";
/// Names in the samples of jobs whose ranks talk to log2 P others, and of jobs whose ranks talk to all.
const TALK: &str = "talk-log2";
const TALK_TO_ALL: &str = "talk-to-all";
/// Number of ranks that search for an address in one step. `NUMBERS`: length of an allreduce's vector. Both as in
/// `groups.c`.
const ASKERS: u32 = 16;
const NUMBERS: usize = 2;

fn simulated_call(operation: Operation, layout: Layout, lengths: Lengths) -> Call {
    let len = lengths.value as usize;
    match operation {
        Operation::Broadcast => Call::Broadcast(len),
        Operation::Shift => Call::Shift(len),
        Operation::Allreduce => Call::Allreduce(NUMBERS),
        Operation::GroupAllgather => Call::Allgather(len),
        Operation::GroupAlltoall => Call::Alltoall(len),
        Operation::Split => Call::Split(layout.ppn),
        Operation::Locate => Call::Locate(ASKERS),
        Operation::Talk => Call::Talk(layout.job_size().next_power_of_two().ilog2()),
        _ => Call::Barrier,
    }
}

/// Maximum number of ranks for simulations that hold the results of all ranks in memory; in larger jobs only calls with
/// short results are simulated so.
const ALL_RESULTS_RANKS_MAX: u32 = 1024;
/// Index in `Slot::counts` of the length of a rank's own address.
const ADDRESS_LEN_AT: usize = 6;
const REPEAT_MAX: u32 = 1000;
/// Simulated job sizes of `connections`.
const HELD_SIMULATED: [u32; 7] = [16, 64, 256, 1024, 4096, 16384, 73728];
/// Name in the samples of jobs whose ranks only open the library.
const OPEN: &str = "graph-alone";

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let repeat = line.one(REPEAT, |value| value.number_in(1, REPEAT_MAX))?;
    for part in parts(line, PARTS)? {
        let is_groups = part == "groups";
        let choice = Choice::read(line, if is_groups { RANKS_HERE } else { RANKS_HERE.or("16,64,256") })?;
        let simulated = if is_groups {
            line.one(SIMULATED, |value| value.list(Value::at_least_one))?
        } else {
            HELD_SIMULATED.to_vec()
        };
        for &layout in &choice.layouts {
            match is_groups {
                true => counted(bench, &choice, layout, repeat)?,
                false => held(bench, &choice, layout)?,
            }
        }
        for layout in choice.layouts(simulated)? {
            let case = choice.case(&format!("{part} simulated"), layout);
            bench.attempt(&[Turn::new("simulator", &case, 1, ())], || match is_groups {
                true => simulate(bench, &choice, layout, &case).map_err(trouble),
                false => simulate_held(bench, &choice, layout, &case).map_err(trouble),
            });
        }
    }
    Ok(())
}

/// Runs all schemes of groups with the ranks of one job.
fn counted(bench: &Bench, choice: &Choice, layout: Layout, repeat: u32) -> Result<(), Problem> {
    let case = choice.case("groups", layout);
    let rounds = bench.rounds.unwrap_or_else(|| default_rounds(layout.job_size()));
    let turns: [Turn<usize>; SCHEMES.len()] = std::array::from_fn(|at| Turn::new(SCHEMES[at].0, &case, rounds, at));
    let launch = Launch::new(bench, layout)?.with_groups("peers");
    bench.attempt(&turns, || {
        with_job(bench, &launch, |job| {
            let built = job.slots()?;
            let address_len = built.first().map_or(0, |slot| slot.counts[ADDRESS_LEN_AT] as usize);
            let (mut network, simulated) = RankNetwork::new(layout.job_size(), address_len).map_err(trouble)?;
            bench.add(&case, BUILD, 0, Ok([job.joins()?, compared(&costs(&built, 1)?, &simulated)].concat()));
            let expected = SCHEMES.map(|scheme| network.run(simulated_call(scheme.1, layout, choice.lengths)));
            let expected: Vec<Vec<Cost>> = expected.into_iter().collect::<Result<_, _>>().map_err(trouble)?;
            bench.turns(&turns, |&at, _| {
                let (_, operation, is_short) = SCHEMES[at];
                let repeat = if is_short { repeat } else { 1 };
                let measures = job.step(&Step::of(operation, choice.lengths).repeated(repeat))?;
                Ok([measures, compared(&costs(&job.slots()?, repeat)?, &expected[at])].concat())
            });
            Ok(())
        })
    });
    Ok(())
}

fn simulate(bench: &Bench, choice: &Choice, layout: Layout, case: &Json) -> Result<(), Trouble> {
    let (mut network, built) = RankNetwork::new(layout.job_size(), ADDRESS_LEN)?;
    bench.add(case, BUILD, 0, Ok(figures(&built, built.len())));
    for (name, operation, _) in SCHEMES {
        let mut figures = simulate_call(&mut network, simulated_call(operation, layout, choice.lengths))?;
        if operation == Operation::Split {
            figures.push(bytes("kept", network.kept_max() as f64));
        }
        bench.add(case, name, 0, Ok(figures));
    }
    Ok(())
}

fn simulate_call(network: &mut RankNetwork, call: Call) -> Result<Measures, Trouble> {
    let size = network.size();
    if size > ALL_RESULTS_RANKS_MAX
        && let Some(cost) = one_for_all(call, size)?
    {
        return Ok(figures(&[cost], size as usize));
    }
    let costs = network.run(call)?;
    Ok(figures(&costs, costs.len()))
}

/// Measures the state held by ranks that have only opened the library, that talk to log2 P others, and that talk to all
/// others. Each job does one of these, once, because connections stay open.
fn held(bench: &Bench, choice: &Choice, layout: Layout) -> Result<(), Problem> {
    let case = choice.case("connections", layout);
    for (name, operation) in [(TALK, Operation::Talk), (TALK_TO_ALL, Operation::TalkToAll)] {
        let launch = Launch::new(bench, layout)?.with_groups("peers");
        bench.attempt(&[Turn::new(name, &case, 1, ())], || {
            with_job(bench, &launch, |job| {
                if name == TALK {
                    bench.add(&case, OPEN, 0, Ok(held_now(job, layout)?));
                }
                let mut measures = job.step(&Step::of(operation, choice.lengths))?;
                let costs = costs(&job.slots()?, 1)?;
                measures.extend(figures(&costs, costs.len()));
                measures.extend(held_now(job, layout)?);
                bench.add(&case, name, 0, Ok(measures));
                Ok(())
            })
        });
    }
    Ok(())
}

fn held_now(job: &Job, layout: Layout) -> Result<Measures, Failure> {
    let of = |slot: &Slot| {
        let [.., connections, addresses, _] = slot.counts;
        Held { connections: connections as usize, addresses: addresses as usize }
    };
    let held: Vec<Held> = job.slots()?.iter().map(of).collect();
    Ok([of_held(&held, layout), job.memory()?].concat())
}

/// For ranks that talk to all, no simulation is needed: each holds P - 1 connections and addresses.
fn simulate_held(bench: &Bench, choice: &Choice, layout: Layout, case: &Json) -> Result<(), Trouble> {
    let (mut network, _) = RankNetwork::new(layout.job_size(), ADDRESS_LEN)?;
    let now = |network: &RankNetwork| {
        let mut measures = of_held(&network.held(), layout);
        measures.push(count("node-different", network.worst_node(layout.ppn).different as f64));
        measures
    };
    bench.add(case, OPEN, 0, Ok(now(&network)));
    let costs = network.run(simulated_call(Operation::Talk, layout, choice.lengths))?;
    bench.add(case, TALK, 0, Ok([figures(&costs, costs.len()), now(&network)].concat()));
    let (size, ppn) = (f64::from(layout.job_size()), f64::from(layout.ppn));
    let all = vec![
        count("connections", size - 1.0),
        count("connections-all", (size - 1.0) * size / 2.0),
        count("addresses", size - 1.0),
        count("node-addresses", (size - 1.0) * ppn),
        count("node-different", if layout.ppn > 1 { size } else { size - 1.0 }),
    ];
    bench.add(case, TALK_TO_ALL, 0, Ok(all));
    Ok(())
}

/// Figures about the state that ranks hold. A connection is held at both of its ends, so the sum over all ranks is
/// halved.
fn of_held(held: &[Held], layout: Layout) -> Measures {
    let most = |of: fn(&Held) -> usize| held.iter().map(of).max().unwrap_or(0) as f64;
    let ends: usize = held.iter().map(|held| held.connections).sum();
    let nodes = held.chunks(layout.ppn as usize);
    let of_node = nodes.map(|node| node.iter().map(|held| held.addresses).sum::<usize>()).max().unwrap_or(0);
    vec![
        count("connections", most(|held| held.connections)),
        count("connections-all", ends as f64 / 2.0),
        count("addresses", most(|held| held.addresses)),
        count("node-addresses", of_node as f64),
    ]
}

/// The counts of each rank for one of the repetitions of a step.
fn costs(slots: &[Slot], repeat: u32) -> Result<Vec<Cost>, Failure> {
    let part = |of: u64| match of.is_multiple_of(repeat.into()) {
        true => Ok(of / u64::from(repeat)),
        false => Err(wrong(format!("{of} in {repeat} repetitions that should be alike"))),
    };
    let cost = |slot: &Slot| {
        let [messages, bytes, rounds, questions, ..] = slot.counts;
        let (messages, bytes, rounds) = (part(messages)?, part(bytes)?, part(rounds)?);
        Ok(Cost { messages, bytes, rounds, questions: part(questions)? })
    };
    slots.iter().map(cost).collect()
}

/// The largest value of each count, and sums over `size` ranks; if there is only one cost, it is that of each rank.
fn figures(costs: &[Cost], size: usize) -> Measures {
    let most = |of: fn(&Cost) -> u64| costs.iter().map(of).max().unwrap_or(0) as f64;
    let all = |of: fn(&Cost) -> u64| costs.iter().map(of).sum::<u64>() as f64 * (size / costs.len().max(1)) as f64;
    vec![
        count("rounds", most(|cost| cost.rounds)),
        count("messages", most(|cost| cost.messages)),
        count("messages-all", all(|cost| cost.messages)),
        bytes("sent", most(|cost| cost.bytes)),
        bytes("sent-all", all(|cost| cost.bytes)),
        count("questions", most(|cost| cost.questions)),
        count("questions-all", all(|cost| cost.questions)),
    ]
}

/// The figures of real ranks, and the number of ranks whose figures differ from the simulated ones.
fn compared(real: &[Cost], simulated: &[Cost]) -> Measures {
    let differing = real.iter().zip(simulated).filter(|(real, simulated)| real != simulated).count();
    let mut measures = figures(real, real.len());
    measures.push(count("disagreeing", (differing + real.len().abs_diff(simulated.len())) as f64));
    measures
}

fn trouble(trouble: Trouble) -> Failure {
    wrong(format!("simulated ranks: {trouble:?}"))
}
