//! Agents of real runs receive the same messages as those of simulated ones: as many frames with as many bytes, for
//! each agent and message. Both run the same state machines, so a difference comes from elsewhere: how programs send
//! requests, how the agents' drivers send frames, or what the simulator's ranks do.
//!
//! What a real run sends depends in some cases on what the simulation does not have: files, and the data that libpmix
//! packs. Their lengths are taken from the real run.

use serde_json::Value;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use wireup_coll::allgather::schemes;
use wireup_e2e::folders::Folder;
use wireup_e2e::libraries::own;
use wireup_e2e::machines::{self, Machines};
use wireup_e2e::peers::program;
use wireup_e2e::sessions::Session;
use wireup_e2e::{Run, is_night, wireup};
use wireup_node::record::Recording;
use wireup_proto::io::{Input, JobEvent};
use wireup_proto::replay::Recorded;
use wireup_sim::traffic::{Frames, ON_THE_WAY, QUESTION, Received, received};
use wireup_sim::workload::{BarrierGroup, Dialect, Lens, PmixStep, Script, Step, Which, Who, Whose};
use wireup_sim::{JobPlan, WorldSpec};
use wireup_wire::ids::{AgentId, Rank};
use wireup_wire::job::{ExchangeScheme, Modex, PmiFlavour, PmiVersion, StdinTarget};
use wireup_wire::pmix::{Ask, FromServer, Unpacker};
use xtask::programs::Flavour;

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
/// acknowledgements on direct links; output and its credit, and that of input; `TimeLeft`, for a child that starts
/// late; `AreYouAlive` and `Alive`, for a silent agent; and the questions of an agent that waits in a group's barrier.
const TIMED: [&str; 9] = [
    ON_THE_WAY, "Pair", "Output", "OutputCredit", "InputCredit", "SessionDown TimeLeft", "AreYouAlive", "Alive",
    QUESTION,
];

/// Messages about a standing session: their number depends on when its agents start, and on what launchers ask about
/// the session.
const OF_SESSIONS: [&str; 8] = [
    "SessionUp Here", "SessionUp RankPorts", "SessionUp ClockAsk", "SessionDown ClockTell", "SessionDown Log",
    "FromLauncher AskSeats", "FromLauncher AskNodes", "FromLauncher EndSession",
];

/// Messages that timing divides into more or fewer frames; only the sum of their bytes is compared.
const DIVIDED: &str = "Input";

/// Messages whose length depends on names of files and hosts, or on which rank was the first.
const NAMING: [&str; 3] = ["FromLauncher Launch", "SessionDown Start", "JobUp Departed"];
/// In jobs with PMIx, a message whose length depends on the version of the library.
const WITH_VERSION: &str = "JobUp Started";

/// The largest number of clients of libpmix in a job: on two processors, more clients take so long to join that their
/// server closes connections.
const CLIENTS_MAX: u32 = 1024;

/// A second of virtual time (ns): longer than a session takes to start, and than a job.
const SECOND: u64 = 1_000_000_000;

/// The name of an exchange scheme, and the scheme.
type Scheme = (&'static str, ExchangeScheme);

const AUTO: Scheme = ("auto", ExchangeScheme::Auto);

impl Shape {
    /// Runs a job with these flags, whose program `add` adds to the command; returns the agents' recordings.
    fn run(self, (name, _): Scheme, flags: &str, add: impl FnOnce(Run) -> Run) -> Folder {
        let Shape { nodes, ppn, ranks, fanout } = self;
        let folder = Folder::new("traffic");
        let place = format!("-n {ranks} --virtual-nodes {nodes} --ppn {ppn} --fanout {fanout}");
        let run = Run::job(&format!("{place} --exchange {name} {flags} --record")).arg(&folder.0);
        add(run).guard(self.patience()).succeed();
        folder
    }

    fn patience(self) -> Duration {
        Duration::from_secs(40 + u64::from(self.ranks / 16))
    }

    fn world(self, (_, scheme): Scheme, script: Script) -> WorldSpec {
        let Shape { nodes, ppn, ranks, fanout } = self;
        let spec = WorldSpec { fanout, ..WorldSpec::even(1, nodes, ppn, Script::default()) };
        let spec = spec.job(|job| job.apps = vec![(ranks, Rc::new(script))]);
        spec.options(|options| options.exchange.scheme = scheme)
    }
}

/// Simulates a world, and expects that its agents receive the same messages as those of a real run, whose recordings
/// are in `folder`. `what`: the real run, for messages.
fn expect_equal(what: &str, folder: &Folder, spec: WorldSpec) {
    let (agents, has_pmix) = (spec.agents, spec.jobs.iter().any(|job| job.options.pmi.flavour.has_pmix()));
    let mut report = wireup_sim::run(WorldSpec { record: 0..agents, event_max: u64::MAX, ..spec }).expect_good();
    let mut differences = Vec::new();
    for agent in 0..agents {
        let real = compared(agent, recorded(folder, agent), has_pmix);
        let simulated = report.recordings.remove(&agent).expect("every agent was recorded").inputs;
        let simulated = compared(agent, simulated, has_pmix);
        if real != simulated {
            let names: BTreeSet<&String> = real.keys().chain(simulated.keys()).collect();
            let all = names.into_iter().map(|name| (name, real.get(name), simulated.get(name)));
            let other: Vec<_> = all.filter(|(_, real, simulated)| real != simulated).collect();
            differences.push(format!("agent {agent} (real, simulated): {other:?}"));
        }
    }
    let some = &differences[..differences.len().min(5)];
    assert!(some.is_empty(), "{what}: {} agents differ\n{}", differences.len(), some.join("\n"));
    println!("{what}: equal");
}

/// The inputs of an agent of a real run.
fn recorded(folder: &Folder, agent: u32) -> impl Iterator<Item = Recorded> {
    let file = Recording::open(&folder.at(&format!("agent-{agent}.rec"))).expect("a recording of each agent");
    file.map(|entry| entry.expect("a whole recording"))
}

/// Messages that an agent has received, without the messages and lengths that may differ between runs.
fn compared(agent: u32, inputs: impl IntoIterator<Item = Recorded>, has_pmix: bool) -> Received {
    let mut received = received(AgentId(agent), inputs).unwrap_or_else(|problem| panic!("agent {agent}: {problem}"));
    received.retain(|name, _| !TIMED.contains(&&name[..]) && !OF_SESSIONS.contains(&&name[..]));
    for (name, frames) in &mut received {
        if NAMING.contains(&&name[..]) || has_pmix && name == WITH_VERSION {
            frames.bytes = 0;
        } else if name == DIVIDED {
            frames.frames = 0;
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
            let folder = shape.run(scheme, "", |run| run.arg(wireup()).args(words.split(' ')));
            let what = format!("{shape:?} {} {dialect:?}", scheme.0);
            expect_equal(&what, &folder, shape.world(scheme, Script::new(dialect, &steps)));
        }
    }
}

/// What the ranks of the program `traffic` of libpmi2 do.
fn collectives(value_bytes: u32) -> Script {
    let put = |name, value_bytes| Step::PutAs { name, value_bytes };
    let fence = [Step::StartFence, Step::Wait(Which::All)];
    let allgather = Step::StartAllgather { lens: Lens::Fixed(value_bytes), shared: true };
    let begin = [Step::Init, put("card-0-", 33), Step::StartFence, allgather, Step::Ring { value_bytes: 40 }];
    let end = [Step::Wait(Which::All), put("card-1-", 500)];
    Script::own(&[&begin[..], &end, &fence, &fence, &[Step::Finalize]].concat())
}

/// Clients with wireup's library: fences, allgathers and rings, several in progress at once, with few bytes and with so
/// many that even the scheme `auto` does not use the tree.
#[test]
fn clients_of_our_library_cause_the_simulated_traffic() {
    for shape in shapes() {
        // The scheme `auto` does not use the tree from 4 MiB on with more than 16 nodes, from 128 KiB on with fewer.
        let many = if shape.nodes > 16 { 5 << 20 } else { 256 << 10 } / shape.ranks;
        for value_bytes in [18, many] {
            for scheme in schemes() {
                let add = |run: Run| run.linked().arg(own("traffic")).arg(value_bytes.to_string());
                let what = format!("{shape:?} {} {value_bytes}", scheme.0);
                expect_equal(&what, &shape.run(scheme, "", add), shape.world(scheme, collectives(value_bytes)));
            }
        }
    }
}

/// Groups: barriers of PMI 1.2; and a split, collectives of groups and addresses, as agents carry them out for
/// libwireup.
#[test]
fn clients_with_groups_cause_the_simulated_traffic() {
    for shape in shapes() {
        let (alike, whose) = (Who::Alike(shape.ppn as u16), Whose::Neighbours);
        let barrier = |who| Step::Barrier(BarrierGroup { who, tag: 1 });
        let barriers = [Who::World, Who::Node, alike, alike].map(barrier);
        let barriers = Script::new(Dialect::Pmi1, &[&[Step::Init], &barriers[..], &[Step::Finalize]].concat());
        let gather = |who, value_bytes| Step::Gather { who, value_bytes };
        let fence = [Step::StartFence, Step::Wait(Which::All)];
        // A contribution to a split is a key, a marker and a colour; an address is told in hexadecimal digits.
        let split = [Step::StartAllgather { lens: Lens::Fixed(8 + 1 + 4), shared: false }, Step::Wait(Which::All)];
        let gathers = [gather(alike, 24), gather(alike, 0), gather(Who::Node, 8)];
        let (set, get) = ([Step::SetAddress { bytes: 32 }], [Step::GetAddress { bytes: 32, whose }]);
        let steps = [&[Step::Init], &split[..], &gathers, &set, &fence, &get, &fence, &[Step::Finalize]].concat();
        let agents = Script::own(&steps);
        let add = |run: Run| run.linked().arg(own("barriers")).arg(shape.ppn.to_string());
        let spec = shape.world(AUTO, barriers).options(|options| options.pmi.version = PmiVersion::Groups);
        expect_equal(&format!("{shape:?} barriers"), &shape.run(AUTO, "--pmi-version 1.2", add), spec);
        for scheme in schemes() {
            let folder = shape.run(scheme, "", |run| run.linked().arg(own("agents")));
            expect_equal(&format!("{shape:?} {}", scheme.0), &folder, shape.world(scheme, agents.clone()));
        }
    }
}

/// Clients of libpmix put a value, fence, and get the values of both neighbours, which come along with the fence (full
/// modex), or from the neighbours' nodes on request (direct modex). The ranks' data is as long as what libpmix has
/// packed in the real run. It is not compressed, since its length would then depend on what it contains.
#[test]
fn clients_of_libpmix_cause_the_simulated_traffic() {
    const NEVER: u32 = 1 << 30;
    let Some(program) = program(Flavour::Pmix, "traffic") else { return };
    for shape in shapes().filter(|shape| shape.ranks <= CLIENTS_MAX) {
        let full = schemes().map(|scheme| (scheme, "full", Modex::Full));
        for (scheme, name, modex) in full.chain([(AUTO, "direct", Modex::Direct)]) {
            let flags = format!("--modex {name} --exchange-compress {NEVER}");
            let folder = shape.run(scheme, &flags, |run| run.arg(&program).arg("100"));
            let apps = (0..shape.nodes).flat_map(|node| {
                let [node_bytes, rank_bytes] = packed_bytes(recorded(&folder, node));
                let ranks = shape.ppn.min(shape.ranks - node * shape.ppn);
                let [first, others] = match modex {
                    Modex::Full => [node_bytes - node_bytes / ranks * (ranks - 1), node_bytes / ranks],
                    Modex::Direct | Modex::Auto => [rank_bytes; 2],
                };
                [(1, first), (ranks - 1, others)]
            });
            let apps = apps.filter(|(ranks, _)| *ranks > 0).map(|(ranks, bytes)| (ranks, Rc::new(modex_of(bytes))));
            let apps = apps.collect();
            let spec = shape.world(scheme, Script::default()).job(|job| job.apps = apps);
            let spec = spec.options(|options| {
                (options.pmi.flavour, options.pmi.modex) = (PmiFlavour::Pmix, modex);
                options.exchange.compress_bytes_min = NEVER;
            });
            expect_equal(&format!("{shape:?} {} {name}", scheme.0), &folder, spec);
        }
    }
}

/// What the ranks of the program `traffic` of PMIx do, if libpmix packs a rank's value into `bytes` bytes.
fn modex_of(bytes: u32) -> Script {
    let fence = |collect| PmixStep::Fence { who: Who::World, collect, timeout_s: None };
    let get = PmixStep::Get { whose: Whose::Neighbours, key: Some("traffic") };
    // libpmix registers for events when it joins.
    let begin = [PmixStep::Init, PmixStep::Watch, PmixStep::Commit { bytes }];
    let steps = [&begin[..], &[fence(true), get, fence(false), PmixStep::Finalize]].concat();
    Script::plain(&steps.into_iter().map(Step::Pmix).collect::<Vec<_>>())
}

/// Lengths of the data that the PMIx server of a node has packed: for the fence that collects the data of all its
/// ranks, and for another node that has asked for the data of one rank (bytes).
fn packed_bytes(inputs: impl Iterator<Item = Recorded>) -> [u32; 2] {
    let (mut unpacker, mut bytes) = (Unpacker::default(), [0; 2]);
    for entry in inputs {
        let Recorded::Input(_, Input::Job { event: JobEvent::PmixBytes { bytes: some }, .. }) = entry else { continue };
        unpacker.push(&some);
        while let Some(message) = unpacker.next::<FromServer>().expect("messages of a server") {
            match message {
                FromServer::Ask { ask: Ask::Fence { collect: true, data, .. }, .. } => bytes[0] = data.len() as u32,
                FromServer::Modex { blob, .. } => bytes[1] = blob.len() as u32,
                _ => {}
            }
        }
    }
    bytes
}

/// Jobs in a session, one after the other.
#[test]
fn jobs_in_a_session_cause_the_simulated_traffic() {
    for shape in shapes() {
        let Shape { nodes, ppn, ranks, fanout } = shape;
        let folder = Folder::new("traffic");
        let up = format!("--virtual-nodes {nodes} --fanout {fanout} --record {}", folder.0.display());
        let session = Session::up(&up);
        let mut plans = Vec::new();
        for (number, scheme) in (1..).zip(schemes()) {
            let job = session.job(&format!("-n {ranks} --ppn {ppn} --exchange {}", scheme.0));
            job.linked().arg(own("traffic")).arg("18").guard(shape.patience()).succeed();
            let spec = shape.world(scheme, collectives(18));
            // The launcher relays its input, which is empty, to rank 0. Each job begins later than the one before ends.
            let spec = spec.options(|options| options.stdio.stdin = StdinTarget::One(Rank(0)));
            plans.extend(spec.jobs.into_iter().map(|job| JobPlan { at_ns: number * SECOND, ..job }));
        }
        session.down("");
        let spec = WorldSpec { is_standing: true, jobs: plans, ..shape.world(AUTO, Script::default()) };
        expect_equal(&format!("{shape:?} in a session"), &folder, spec);
    }
}

/// Staging and the job after it, on hosts, since virtual nodes share the store of their machine. The stream of files is
/// cut into frames as the launcher reads it and as credit comes back, so only the sum of its bytes is compared.
#[test]
fn staged_jobs_cause_the_simulated_traffic() {
    // The lengths of the stream's first two parts; how the stream is divided into parts does not matter here.
    const HEADS: [u64; 2] = [37, 150];
    let cases = [(machines::four as fn() -> Option<Machines>, 4), (machines::sixteen, 16)];
    for (machines, hosts) in cases.into_iter().take(if is_night() { 2 } else { 1 }) {
        let Some(machines) = machines() else { return };
        // The root is the launcher's host, which has no ranks.
        let shape = shape(hosts + 1, hosts, hosts * hosts, 2);
        let folder = Folder::shared("traffic");
        let line = format!("--hosts n[0-{}] --ppn {hosts} --fanout 2", hosts - 1);
        let job = machines.job(&line).args(["--stage", "--record"]).arg(&folder.0);
        job.linked().arg(own("traffic")).arg("18").guard(shape.patience()).succeed();
        let Frames { bytes, .. } = compared(1, recorded(&folder, 1), false)[DIVIDED];
        let plan = JobPlan { at_ns: SECOND, ..JobPlan::even(1..=hosts, hosts, collectives(18)) };
        let spec = WorldSpec { jobs: vec![plan], ..shape.world(AUTO, Script::default()) };
        let parts = [HEADS[0], HEADS[1], bytes - HEADS[0] - HEADS[1]];
        expect_equal(&line, &folder, spec.staged(1..=hosts, parts));
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
