//! The links of agents carry the same frames and payload bytes for collectives in a real run and in the simulator, counted for each agent,
//! link and direction.
//!
//! The same agent code runs in both; this test compares everything around it: how programs send requests, how the agents' drivers send
//! frames.

use crate::harness::libraries::{library_path, own};
use crate::harness::{Run, wireup};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use wireup_coll::allgather::schemes;
use wireup_proto::launcher_io::Notice;
use wireup_sim::WorldSpec;
use wireup_sim::workload::{Dialect, Lens, Script, Step, Which};
use wireup_wire::job::ExchangeScheme;
use wireup_wire::peer::Traffic;

const NODES: u32 = 4;
const PPN: u32 = 4;
/// The last node has only one rank.
const RANKS: u32 = 13;
const FANOUT: u32 = 2;

/// For each agent: up, down and direct.
type Counts = BTreeMap<u32, [Traffic; 3]>;

fn real(scheme: &str, program: &Path, args: &str) -> Counts {
    let script = format!(
        "$WIREUP run -n {RANKS} --virtual-nodes {NODES} --ppn {PPN} --fanout {FANOUT} --exchange {scheme} \
         --profile $TMPDIR/trace $PROGRAM {args} >&2 && cat $TMPDIR/trace && rm $TMPDIR/trace"
    );
    let run = Run::shell(&script).env("PROGRAM", program).env("LD_LIBRARY_PATH", library_path());
    let outcome = run.succeed();
    let trace: serde_json::Value = serde_json::from_slice(&outcome.stdout).expect("a trace is JSON");
    let events = trace["traceEvents"].as_array().expect("a trace has events");
    let mut counts = Counts::new();
    for event in events.iter().filter(|event| event["name"] == "exchange traffic") {
        let way = |way: &str| {
            let number = |name: &str| event["args"][way][name].as_u64().expect("a count of frames or bytes");
            Traffic {
                frames_in: number("frames_in"),
                bytes_in: number("bytes_in"),
                frames_out: number("frames_out"),
                bytes_out: number("bytes_out"),
            }
        };
        // Process 0 is the launcher; virtual node n is agent n.
        let agent = event["pid"].as_u64().expect("a process") as u32 - 1;
        counts.insert(agent, ["up", "down", "direct"].map(way));
    }
    counts
}

fn simulated(exchange: ExchangeScheme, script: Script) -> Counts {
    let spec = WorldSpec { fanout: FANOUT, ..WorldSpec::even(1, NODES, PPN, Script::default()) };
    let spec = spec.job(|job| job.apps = vec![(RANKS, Rc::new(script))]);
    let spec = spec.options(|options| (options.profile, options.exchange) = (true, exchange));
    let report = wireup_sim::run(spec).expect_good();
    let parts = report.notices.iter().filter_map(|notice| match notice {
        Notice::Trace(part) => Some((part.agent.0, [part.traffic.up, part.traffic.down, part.traffic.direct])),
        _ => None,
    });
    parts.collect()
}

fn expect_same((name, scheme): (&str, ExchangeScheme), program: &Path, args: &str, script: Script) {
    let (real, simulated) = (real(name, program, args), simulated(scheme, script));
    assert_eq!(real.len(), NODES as usize, "not every agent reported");
    assert!(real.values().flatten().map(|way| way.bytes_in).sum::<u64>() > 0, "nothing was exchanged");
    assert_eq!(real, simulated, "{name}: the real run differs from the simulation");
}

/// `wireup pmi exchange`: puts and fences in both dialects.
#[test]
fn text_clients_cause_the_simulated_traffic() {
    let round = |name| [Step::PutAs { name, value_bytes: 100 }, Step::Fence];
    // The measurements go through one last fence.
    let times = |name| Step::PutAs { name, value_bytes: 125 };
    let mut steps = vec![Step::Init];
    steps.extend(round("wireup-0-"));
    steps.extend(round("wireup-1-"));
    steps.extend([times("wireup-times-0-"), times("wireup-times-1-"), Step::Fence, Step::Finalize]);
    let dialects = [("1", Dialect::Pmi1), ("2", Dialect::Pmi2)];
    for (scheme, (number, dialect)) in schemes().zip(dialects.into_iter().cycle()) {
        let args = format!("pmi exchange --dialect {number} --rounds 2 --value-len 100 --get none");
        expect_same(scheme, &wireup(), &args, Script::new(dialect, &steps));
    }
}

/// Our library: fences, allgathers and rings, several in progress at once, with few bytes and with so many that even `auto` leaves the
/// tree.
#[test]
fn clients_of_our_library_cause_the_simulated_traffic() {
    let put = |name, value_bytes| Step::PutAs { name, value_bytes };
    for value_bytes in [18, 60_000] {
        let steps = [
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
        ];
        for scheme in schemes() {
            expect_same(scheme, &own("traffic"), &value_bytes.to_string(), Script::own(&steps));
        }
    }
}
