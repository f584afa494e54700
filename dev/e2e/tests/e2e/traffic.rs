//! Agents of real runs receive the same messages as those of simulated ones: as many frames with as many bytes, for
//! each agent and message. Both run the same state machines, so a difference comes from elsewhere: how programs send
//! requests, how the agents' drivers send frames, or what the simulator's ranks do.

use serde_json::Value;
use std::rc::Rc;
use std::time::Duration;
use wireup_coll::allgather::schemes;
use wireup_e2e::folders::Folder;
use wireup_e2e::libraries::own;
use wireup_e2e::{Run, is_night, wireup};
use wireup_node::record::Recording;
use wireup_proto::replay::Recorded;
use wireup_sim::WorldSpec;
use wireup_sim::traffic::{ON_THE_WAY, Received, received};
use wireup_sim::workload::{Dialect, Lens, Script, Step, Which};
use wireup_wire::ids::AgentId;
use wireup_wire::job::ExchangeScheme;

/// Numbers of virtual nodes, of ranks per node, of ranks, and of children per agent.
#[derive(Clone, Copy, Debug)]
struct Shape {
    nodes: u32,
    ppn: u32,
    ranks: u32,
    fanout: u32,
}

const fn shape(nodes: u32, ppn: u32, ranks: u32, fanout: u32) -> Shape {
    Shape { nodes, ppn, ranks, fanout }
}

/// The last node of the first shape has only one rank.
const SHAPES: [Shape; 3] = [shape(4, 4, 13, 2), shape(4, 4, 16, 3), shape(8, 8, 64, 2)];
/// Shapes whose simulation takes minutes of processor time, for which other tests would have to wait.
const LARGE: [Shape; 3] = [shape(16, 16, 256, 16), shape(64, 16, 1024, 16), shape(256, 16, 4096, 16)];

fn shapes() -> impl Iterator<Item = Shape> {
    let large = if is_night() { &LARGE[..] } else { &[] };
    SHAPES.into_iter().chain(large.iter().copied())
}

/// Messages whose number depends on timing: frames that are forwarded through the tree before a direct link is up;
/// acknowledgements on direct links; output and its credit; `TimeLeft`, for a child that starts late; `AreYouAlive` and
/// `Alive`, for a silent agent.
const TIMED: [&str; 7] = [ON_THE_WAY, "Pair", "Output", "OutputCredit", "SessionDown TimeLeft", "AreYouAlive", "Alive"];

/// Messages whose length depends on names of files and hosts, or on which rank was the first.
const NAMING: [&str; 2] = ["FromLauncher Launch", "JobUp Departed"];

/// Runs a job, whose program `add` adds to the command, and simulates a script; expects that the agents of both receive
/// the same messages.
fn expect_equal(shape: Shape, scheme: (&str, ExchangeScheme), script: Script, add: impl FnOnce(Run) -> Run) {
    let Shape { nodes, ppn, ranks, fanout } = shape;
    let (folder, name) = (Folder::new("traffic"), scheme.0);
    let line = format!("-n {ranks} --virtual-nodes {nodes} --ppn {ppn} --fanout {fanout} --exchange {name} --record");
    let time = Duration::from_secs(40 + u64::from(ranks / 16));
    add(Run::job(&line).arg(&folder.0)).guard(time).succeed();
    let spec = WorldSpec { fanout, record: 0..nodes, ..WorldSpec::even(1, nodes, ppn, Script::default()) };
    let spec = spec.job(|job| job.apps = vec![(ranks, Rc::new(script))]);
    let mut report = wireup_sim::run(spec.options(|options| options.exchange.scheme = scheme.1)).expect_good();
    let mut differences = Vec::new();
    for agent in 0..nodes {
        let file = Recording::open(&folder.at(&format!("agent-{agent}.rec"))).expect("a recording of each agent");
        let real = all(agent, file.map(|entry| entry.expect("a whole recording")));
        let simulated = all(agent, report.recordings.remove(&agent).expect("every agent was recorded").inputs);
        if real != simulated {
            differences.push(format!("agent {agent}: real {real:?}\n  simulated {simulated:?}"));
        }
    }
    let some = &differences[..differences.len().min(5)];
    assert!(some.is_empty(), "{line}: {} agents differ\n{}", differences.len(), some.join("\n"));
}

/// Messages that an agent has received, without the messages and lengths that may differ between runs.
fn all(agent: u32, inputs: impl IntoIterator<Item = Recorded>) -> Received {
    let mut received = received(AgentId(agent), inputs).unwrap_or_else(|problem| panic!("agent {agent}: {problem}"));
    received.retain(|name, _| !TIMED.contains(&&name[..]));
    for (name, frames) in &mut received {
        if NAMING.contains(&&name[..]) {
            frames.bytes = 0;
        }
    }
    received
}

/// The text clients are `wireup pmi exchange`, which puts, fences and gets in both dialects. The gets cause no frames.
#[test]
fn text_clients_cause_the_simulated_traffic() {
    let round = |name| [Step::PutAs { name, value_bytes: 100 }, Step::Fence];
    // The program exchanges its measurements by one last fence.
    let times = |name| Step::PutAs { name, value_bytes: 125 };
    let last = [times("wireup-times-0-"), times("wireup-times-1-"), Step::Fence, Step::Finalize];
    let steps = [&[Step::Init][..], &round("wireup-0-"), &round("wireup-1-"), &last].concat();
    for shape in shapes() {
        for (scheme, (number, dialect)) in schemes().zip([(1, Dialect::Pmi1), (2, Dialect::Pmi2)].into_iter().cycle()) {
            let words = format!("pmi exchange --dialect {number} --rounds 2 --value-len 100 --get 2");
            expect_equal(shape, scheme, Script::new(dialect, &steps), |run| run.arg(wireup()).args(words.split(' ')));
        }
    }
}

/// Clients with wireup's library: fences, allgathers and rings, several in progress at once, with few bytes and with so
/// many that even the scheme `auto` does not use the tree.
#[test]
fn clients_of_our_library_cause_the_simulated_traffic() {
    let put = |name, value_bytes| Step::PutAs { name, value_bytes };
    let script = |value_bytes| {
        Script::own(&[
            Step::Init,
            put("card-0-", 33),
            Step::StartFence,
            Step::StartAllgather { lens: Lens::Fixed(value_bytes), shared: true },
            Step::Ring { value_bytes: 40 },
            Step::Wait(Which::All),
            put("card-1-", 500),
            Step::StartFence,
            Step::Wait(Which::All),
            Step::StartFence,
            Step::Wait(Which::All),
            Step::Finalize,
        ])
    };
    for shape in shapes() {
        // The scheme `auto` does not use the tree from 4 MiB on with more than 16 nodes, from 128 KiB on with fewer.
        let many = if shape.nodes > 16 { 5 << 20 } else { 256 << 10 } / shape.ranks;
        for value_bytes in [18, many] {
            for scheme in schemes() {
                let add = |run: Run| run.linked().arg(own("traffic")).arg(value_bytes.to_string());
                expect_equal(shape, scheme, script(value_bytes), add);
            }
        }
    }
}

/// `wireup simulate compare` measures real jobs: a job of `/bin/true` must take longer than a fence inside of a job.
#[test]
fn real_jobs_are_timed_beside_predictions() {
    let folder = Folder::new("compare");
    let file = folder.at("lines.jsonl");
    let json = format!("--json={}", file.display());
    let words = ["compare", "--rounds", "2", "1x2", "2x2", &json, "--wireup"].map(Into::into);
    assert_eq!(wireup_simulate::main(words.into_iter().chain([wireup().into()]).collect()), 0);
    let text = std::fs::read_to_string(&file).expect("the file was written");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["record"], &lines[0]["benchmark"]), (&"run".into(), &"prediction".into()));
    let values = |contestant: &str, quantity: &str, nodes: u32| -> Vec<f64> {
        let is_asked = |line: &&Value| {
            line["contestant"] == contestant && line["quantity"] == quantity && line["case"]["nodes"] == nodes
        };
        lines.iter().filter(is_asked).filter_map(|line| line["value"].as_f64()).collect()
    };
    for nodes in [1, 2] {
        let (jobs, fences) = (values("measured", "wall", nodes), values("measured", "fence", nodes));
        assert_eq!((jobs.len(), fences.len()), (2, 2), "{text}");
        assert!(fences.iter().all(|fence| *fence > 0.0 && *fence < jobs[0].min(jobs[1])), "{text}");
        for quantity in ["wall", "fence"] {
            assert!(matches!(values("simulated", quantity, nodes)[..], [value] if value > 0.0), "{text}");
        }
    }
}
