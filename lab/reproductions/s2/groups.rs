//! What groups of ranks cost: real ranks, whose times and counts are taken and whose counts are compared with simulated
//! ones; the simulator alone, for jobs that no machine of this size can run; and what ranks hold that talk to log2 P
//! others, beside ranks that talk to all.
use serde_json::Value as Json;
use wireup_bench::bench::{Bench, Problem, Turn};
use wireup_bench::command::{Failure, wrong};
use wireup_bench::flags::{LIBRARY, LIMIT, RESULTS, ROUNDS, WIREUP, WIREUP_ARG};
use wireup_bench::layout::Layout;
use wireup_bench::samples::{Measures, bytes, count};
use wireup_bench::startup::board::Network;
use wireup_bench::startup::job::{Job, Launch, with_job};
use wireup_bench::startup::scheme::{Step, default_rounds};
use wireup_bench::startup::{Choice, KEY_BYTES, PPN, RANKS, VALUE_BYTES};
use wireup_flags::{Command, Flag, Section, Value, Words};
use wireup_sim::rank_network::{Call, Cost, Held, RankNetwork, Trouble, one_for_all};

use super::group_scheme::{BUILD, GroupScheme, SCHEMES, TALK, TALK_TO_ALL};

const RANKS_HERE: Flag = Flag { help: "Job sizes (default: 16,64,256,1024; connections: 16,64,256).", ..RANKS };
const PARTS: Flag = Flag::value(&["--part"], "A,B,..", "Only these: groups, connections.").or("groups,connections");
const REPEAT: Flag = Flag::value(&["--repeat"], "N", "Short calls of a round, one behind the other.").or("4");
const SIMULATED: Flag =
    Flag::value(&["--simulated"], "A,B,..", "groups: job sizes of the simulator.").or("4096,16384,73728");

pub const COMMAND: Command = Command {
    name: "reproduce groups",
    purpose: "measure what groups of ranks cost, beside the simulator",
    intro: "
groups: every collective of libwireup by real ranks on virtual nodes: its time, its rounds, messages and bytes, and how many
ranks differ from the simulator's; then the simulator alone at larger sizes. connections: the connections, addresses and
memory of ranks that talk to log2 P others, beside those of ranks that talk to all; real, then simulated.
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Jobs", flags: &[RANKS_HERE, PPN, ROUNDS, PARTS, WIREUP, WIREUP_ARG, LIBRARY, LIMIT] },
        Section { title: "Calls", flags: &[VALUE_BYTES, KEY_BYTES, REPEAT, SIMULATED] },
        RESULTS,
    ],
    end: "",
};

/// Larger jobs hold the results of all ranks in memory only for calls whose results are short.
const ALL_RESULTS_RANKS_MAX: u32 = 1024;
/// Bytes of an address where no real rank has told its own: of a host with one IPv4 address.
const ADDRESS_LEN: usize = 15;
const REPEAT_MAX: u32 = 1000;
/// Simulated job sizes of `connections`.
const HELD_SIMULATED: [u32; 6] = [16, 64, 256, 1024, 4096, 16384];
/// Ranks that have done nothing but open the library.
const OPEN: &str = "graph-alone";

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let repeat = line.one(REPEAT, |value| value.number_in(1, REPEAT_MAX))?;
    let parts = ["groups", "connections"].map(|part| (part, part));
    for part in line.one(PARTS, |value| value.list(|part| part.choice(&parts)))? {
        let is_groups = part == "groups";
        let choice = Choice::read(line, if is_groups { &[16, 64, 256, 1024] } else { &[16, 64, 256] })?;
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
            let turn = [Turn { contestant: "simulator".into(), case: case.clone(), rounds: 1, what: () }];
            if bench.lists(&turn) || bench.interrupt.is_set() {
                continue;
            }
            eprintln!("wireup-reproduce groups: {}", wireup_bench::samples::describe(&case));
            match is_groups {
                true => simulate(bench, &choice, layout, &case)?,
                false => simulate_held(bench, &choice, layout, &case)?,
            }
        }
    }
    Ok(())
}

/// All schemes of groups by the ranks of one job.
fn counted(bench: &Bench, choice: &Choice, layout: Layout, repeat: u32) -> Result<(), Problem> {
    let case = choice.case("groups", layout);
    let turn = |scheme: GroupScheme| Turn {
        contestant: scheme.name.to_owned(),
        case: case.clone(),
        rounds: bench.rounds.unwrap_or_else(|| default_rounds(layout.job_size())),
        what: scheme,
    };
    let turns = SCHEMES.map(turn);
    if bench.lists(&turns) || bench.interrupt.is_set() {
        return Ok(());
    }
    let launch = Launch::new(bench, layout)?.with_groups("peers");
    let ran = with_job(bench, &launch, |job| {
        let built = job.networks()?;
        let address_len = built.first().map_or(0, |network| network.address_len as usize);
        let (mut network, simulated) = RankNetwork::new(layout.job_size(), address_len).map_err(trouble)?;
        let mut start = job.joins()?;
        start.extend(compared(&costs(&built, 1)?, &simulated));
        bench.add(&case, BUILD, 0, Ok(start));
        let expected = SCHEMES.map(|scheme| network.run(scheme.call(layout, choice.lengths)));
        let expected: Vec<Vec<Cost>> = expected.into_iter().collect::<Result<_, _>>().map_err(trouble)?;
        bench.turns(&turns, |scheme, _| {
            let repeat = if scheme.is_short { repeat } else { 1 };
            let mut measures = job.step(&Step::of(scheme.operation, choice.lengths).repeated(repeat))?;
            let at = SCHEMES.iter().position(|other| other == scheme).unwrap_or(0);
            measures.extend(compared(&costs(&job.networks()?, repeat)?, &expected[at]));
            Ok(measures)
        });
        Ok(())
    });
    if let Err(failure) = ran {
        bench.fail_all(&turns, &failure);
    }
    Ok(())
}

fn simulate(bench: &Bench, choice: &Choice, layout: Layout, case: &Json) -> Result<(), Problem> {
    let (mut network, built) = RankNetwork::new(layout.job_size(), ADDRESS_LEN).map_err(trouble)?;
    bench.add(case, BUILD, 0, Ok(figures(&built, built.len())));
    for scheme in SCHEMES {
        let figures = simulate_call(&mut network, scheme.call(layout, choice.lengths)).map_err(trouble)?;
        bench.add(case, scheme.name, 0, Ok(figures));
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

/// Ranks that have opened the library; that talk to log2 P others; that talk to all. Each job does one of the two,
/// once, because connections stay.
fn held(bench: &Bench, choice: &Choice, layout: Layout) -> Result<(), Problem> {
    let case = choice.case("connections", layout);
    let turns = [TALK, TALK_TO_ALL].map(|scheme| Turn {
        contestant: scheme.name.to_owned(),
        case: case.clone(),
        rounds: 1,
        what: scheme,
    });
    if bench.lists(&turns) {
        return Ok(());
    }
    for Turn { contestant, what, .. } in &turns {
        if bench.interrupt.is_set() {
            return Ok(());
        }
        let launch = Launch::new(bench, layout)?.with_groups("peers");
        let ran = with_job(bench, &launch, |job| {
            if *what == TALK {
                let now = held_now(job, layout)?;
                bench.add(&case, OPEN, 0, Ok(now));
            }
            let mut measures = job.step(&Step::of(what.operation, choice.lengths))?;
            let costs = costs(&job.networks()?, 1)?;
            measures.extend(figures(&costs, costs.len()));
            measures.extend(held_now(job, layout)?);
            Ok(measures)
        });
        bench.add(&case, contestant, 0, ran);
    }
    Ok(())
}

fn held_now(job: &Job, layout: Layout) -> Result<Measures, Failure> {
    let of =
        |network: &Network| Held { connections: network.connections as usize, addresses: network.addresses as usize };
    let mut measures = of_held(&job.networks()?.iter().map(of).collect::<Vec<_>>(), layout);
    measures.extend(job.memory()?);
    Ok(measures)
}

/// What a rank that talks to all must hold needs no simulation: P - 1 of each.
fn simulate_held(bench: &Bench, choice: &Choice, layout: Layout, case: &Json) -> Result<(), Problem> {
    let (mut network, _) = RankNetwork::new(layout.job_size(), ADDRESS_LEN).map_err(trouble)?;
    let now = |network: &RankNetwork| {
        let mut measures = of_held(&network.held(), layout);
        measures.push(count("node-different", network.worst_node(layout.ppn).different as f64));
        measures
    };
    bench.add(case, OPEN, 0, Ok(now(&network)));
    let costs = network.run(TALK.call(layout, choice.lengths)).map_err(trouble)?;
    bench.add(case, TALK.name, 0, Ok([figures(&costs, costs.len()), now(&network)].concat()));
    let (size, ppn) = (f64::from(layout.job_size()), f64::from(layout.ppn));
    let all = vec![
        count("connections", size - 1.0),
        count("connections-all", (size - 1.0) * size / 2.0),
        count("addresses", size - 1.0),
        count("node-addresses", (size - 1.0) * ppn),
        count("node-different", if layout.ppn > 1 { size } else { size - 1.0 }),
    ];
    bench.add(case, TALK_TO_ALL.name, 0, Ok(all));
    Ok(())
}

/// A connection has two ends.
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
fn costs(networks: &[Network], repeat: u32) -> Result<Vec<Cost>, Failure> {
    let part = |of: u64| match of.is_multiple_of(repeat.into()) {
        true => Ok(of / u64::from(repeat)),
        false => Err(wrong(format!("{of} in {repeat} repetitions that should be alike"))),
    };
    let cost = |Network { messages, bytes, rounds, questions, .. }: &Network| {
        Ok(Cost {
            messages: part(*messages)?,
            bytes: part(*bytes)?,
            rounds: part(*rounds)?,
            questions: part(*questions)?,
        })
    };
    networks.iter().map(cost).collect()
}

/// The rank with the most of each, and sums over `size` ranks, which are alike if there is one cost only.
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
    ]
}

/// The figures of real ranks, and how many of them differ from simulated ones.
fn compared(real: &[Cost], simulated: &[Cost]) -> Measures {
    let differing = real.iter().zip(simulated).filter(|(real, simulated)| real != simulated).count();
    let mut measures = figures(real, real.len());
    measures.push(count("disagreeing", (differing + real.len().abs_diff(simulated.len())) as f64));
    measures
}

fn trouble(trouble: Trouble) -> Failure {
    wrong(format!("simulated ranks: {trouble:?}"))
}
