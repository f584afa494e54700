//! What the simulator expects of a job that has run.
//!
//! `wireup-simulate` gets the numbers of nodes and ranks, the fan-out of the tree, the way in which agents were
//! started, and the first collective from the trace of the run. It prints the trace of the simulated run.

use super::columns;
use crate::{advise, external};
use std::path::PathBuf;
use wireup_node::trace::{Args, Event, LAUNCHER, Trace};
use wireup_wire::limits::VALUE_LEN_MAX;

pub fn simulator() -> Result<PathBuf, String> {
    external::of_sources(advise::PROGRAM, "--expect")
}

/// The trace of a simulated run of the same job. `machine`: what `--machine` says.
///
/// # Errors
/// The trace is not that of a real run of this version, or the simulation fails.
pub fn of(trace: &Trace, machine: Option<String>) -> Result<Trace, String> {
    let (arguments, simulator) = (arguments(trace, machine)?, simulator()?);
    let printed = external::output(&simulator, &arguments).map_err(|problem| format!("--expect: {problem}"))?;
    serde_json::from_slice(&printed).map_err(|error| {
        let shown = simulator.display();
        format!("--expect: {shown} wrote no trace ({error}); build it from the same sources as wireup")
    })
}

fn arguments(trace: &Trace, machine: Option<String>) -> Result<Vec<String>, String> {
    let about = &trace.about;
    if about.simulated.is_some() {
        return Err("--expect needs the trace of a real run; this one is simulated".into());
    }
    if about.start.is_empty() {
        let problem = "--expect: the trace does not say how agents were started; write it anew by wireup run --profile";
        return Err(problem.into());
    }
    let ranks = trace.events.iter().filter(|event| event.name == "exec" && event.pid != LAUNCHER).count();
    if ranks == 0 {
        return Err("--expect: no rank of the run has started".into());
    }
    let nodes = columns::nodes(trace).len().min(ranks);
    let start = if about.in_session { "session" } else { &about.start };
    let (exchange, value_bytes) = exchange(trace, ranks as u64);
    let words = [
        ("-n", ranks.to_string()),
        ("--nodes", nodes.to_string()),
        ("--fanout", about.fanout.max(1).to_string()),
        ("--start", start.to_owned()),
        ("--exchange", exchange.to_owned()),
        ("--value-bytes", value_bytes.to_string()),
        ("--machine", machine.unwrap_or_else(|| about.start.clone())),
        ("--profile", "/dev/stdout".to_owned()),
    ];
    Ok(words.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect())
}

/// The first collective of the ranks as a value of `wireup simulate --exchange`, and the bytes of each rank.
fn exchange(trace: &Trace, ranks: u64) -> (&'static str, u64) {
    let bytes_of = |event: &Event| match event.args.as_deref() {
        Some(&Args::Fence { bytes_down, .. }) if event.pid != LAUNCHER => Some(bytes_down),
        _ => None,
    };
    let collectives = trace.events.iter().filter_map(|event| Some((event, bytes_of(event)?)));
    let Some((first, bytes)) = collectives.min_by(|(one, _), (other, _)| one.ts.total_cmp(&other.ts)) else {
        return ("none", 1);
    };
    let exchange = match first.name.rsplit_once(' ').map_or("", |(collective, _)| collective) {
        "allgather" => "allgather",
        "ring" => "ring",
        "PMIx fence" if bytes == 0 => "pmix-direct",
        "PMIx fence" => "pmix-full",
        _ => "fence",
    };
    (exchange, (bytes / ranks).clamp(1, VALUE_LEN_MAX as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_node::launcher::Stamps;
    use wireup_node::trace::About;
    use wireup_wire::collective::Collective;
    use wireup_wire::ids::{AgentId, NodeId, Rank};
    use wireup_wire::peer::{FenceTrace, RankTrace, TracePart};

    /// A run of two ranks on each of three nodes, whose collectives bring each node this many bytes.
    fn run(about: About, collective: Collective, bytes: &[u64]) -> Trace {
        let part = |node: u32| {
            let rank = |rank| RankTrace { rank: Rank(rank), spawn_ns: 2_000, exec_ns: 5_000, ..RankTrace::default() };
            let fences = bytes.iter().zip(0..).map(|(&bytes_down, epoch)| {
                let (first_in_ns, out_ns) = (6_000 + 100 * epoch, 7_000 + 100 * epoch);
                FenceTrace { collective, first_in_ns, last_in_ns: 6_500, out_ns, bytes_down, ..FenceTrace::default() }
            });
            TracePart {
                agent: AgentId(node),
                node: NodeId(node),
                host: format!("n{node}"),
                ranks: vec![rank(2 * node), rank(2 * node + 1)],
                fences: fences.collect(),
                ..TracePart::default()
            }
        };
        let stamps = Stamps { process_ns: 1_000, ..Stamps::default() };
        Trace::new(about, &stamps, &[], &[part(0), part(1), part(2)])
    }

    #[test]
    fn the_job_that_ran_is_simulated() {
        let ssh = About { start: "ssh".into(), fanout: 2, ..About::default() };
        let in_session = About { in_session: true, ..ssh.clone() };
        for (about, collective, bytes, expected) in [
            (&ssh, Collective::Fence, &[600, 12][..], "--start ssh --exchange fence --value-bytes 100 --machine ssh"),
            (&ssh, Collective::Modex, &[0], "--start ssh --exchange pmix-direct --value-bytes 1 --machine ssh"),
            (&in_session, Collective::Modex, &[60_000], "session --exchange pmix-full --value-bytes 1024"),
            (&ssh, Collective::Ring, &[12], "--exchange ring --value-bytes 2"),
            (&ssh, Collective::Fence, &[], "--exchange none --value-bytes 1"),
        ] {
            let words = arguments(&run(about.clone(), collective, bytes), None).expect("arguments").join(" ");
            assert!(words.starts_with("-n 6 --nodes 3 --fanout 2 --start ") && words.contains(expected), "{words}");
        }
        let words = arguments(&run(ssh, Collective::Fence, &[]), Some("mine.toml".into())).expect("arguments");
        assert!(words.join(" ").contains("--machine mine.toml"), "{words:?}");
    }

    #[test]
    fn only_a_real_run_with_ranks_is_compared() {
        let about = |simulated: Option<&str>, start: &str| About {
            start: start.to_owned(),
            simulated: simulated.map(str::to_owned),
            ..About::default()
        };
        let empty = Trace::new(about(None, "ssh"), &Stamps::default(), &[], &[]);
        for (trace, problem) in [
            (run(about(Some("s2"), "ssh"), Collective::Fence, &[]), "this one is simulated"),
            (run(about(None, ""), Collective::Fence, &[]), "does not say how agents were started"),
            (empty, "no rank of the run has started"),
        ] {
            let refused = arguments(&trace, None).expect_err(problem);
            assert!(refused.contains(problem), "{refused}");
        }
    }
}
