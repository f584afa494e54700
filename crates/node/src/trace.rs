//! Writes a run's time stamps as a trace that Perfetto and `chrome://tracing` open.
//!
//! Each node is a process of the trace (and so is the launcher), each rank a thread; thread 0 of a node is its
//! agent. Times are microseconds of the machine's monotonic clock since the start of the launcher.

use crate::launcher::Stamps;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use wireup_wire::ids::NodeId;
use wireup_wire::peer::{ExchangeTraffic, FenceTrace, RankTrace, TracePart, Traffic};

/// A part of a run in which files travel or a session starts, as the launcher has seen it, with times of the launcher's
/// clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    pub name: String,
    pub from_ns: u64,
    pub to_ns: u64,
    pub remark: String,
    pub parts: Vec<Phase>,
    /// Time at which each node was done (ns).
    pub nodes: Vec<(NodeId, u64)>,
}

impl Phase {
    pub fn new(name: &str, from_ns: u64, to_ns: u64, remark: impl Into<String>) -> Phase {
        Phase { name: name.to_owned(), from_ns, to_ns, remark: remark.into(), parts: Vec::new(), nodes: Vec::new() }
    }
}

/// The trace's process id for the launcher.
const LAUNCHER: u32 = 0;

#[derive(Serialize)]
struct Trace {
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Serialize)]
struct Event {
    name: String,
    /// Kind of event: `X` for a span, `M` for a name.
    ph: &'static str,
    pid: u32,
    tid: u32,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    args: serde_json::Map<String, serde_json::Value>,
}

/// # Errors
/// The file cannot be written.
pub fn write(file: File, stamps: &Stamps, phases: &[Phase], parts: &[TracePart]) -> io::Result<()> {
    let mut scribe = Scribe { origin_ns: stamps.process_ns, events: Vec::new() };
    scribe.launcher(stamps);
    phases.iter().for_each(|phase| scribe.phase(phase));
    for part in parts {
        scribe.node(part);
    }
    let mut file = BufWriter::new(file);
    serde_json::to_writer(&mut file, &Trace { unit: "ms", events: scribe.events })?;
    file.flush()
}

struct Scribe {
    origin_ns: u64,
    events: Vec<Event>,
}

impl Scribe {
    fn launcher(&mut self, stamps: &Stamps) {
        self.name("process_name", LAUNCHER, 0, "launcher");
        self.span("resolve", LAUNCHER, 0, stamps.process_ns, stamps.resolved_ns);
        self.span("begin", LAUNCHER, 0, stamps.resolved_ns, stamps.begun_ns);
        self.span("start", LAUNCHER, 0, stamps.begun_ns, stamps.started_ns);
        self.span("run", LAUNCHER, 0, stamps.started_ns, stamps.ended_ns);
        self.span("leave", LAUNCHER, 0, stamps.ended_ns, stamps.left_ns);
    }

    fn phase(&mut self, phase: &Phase) {
        self.span(&phase.name, LAUNCHER, 0, phase.from_ns, phase.to_ns);
        for part in &phase.parts {
            self.span(&part.name, LAUNCHER, 0, part.from_ns, part.to_ns);
        }
        for (node, to_ns) in &phase.nodes {
            self.span(&phase.name, node.0 + 1, 0, phase.from_ns, *to_ns);
        }
    }

    fn node(&mut self, part: &TracePart) {
        let pid = part.node.0 + 1;
        self.name("process_name", pid, 0, &format!("node {} {}", part.node, part.host));
        self.name("thread_name", pid, 0, "agent");
        self.span("bootstrap", pid, 0, part.process_ns, part.bootstrap_ns);
        self.span("connect", pid, 0, part.bootstrap_ns, part.linked_ns);
        let first = part.ranks.iter().map(|rank| rank.spawn_ns).filter(|at| *at > 0).min().unwrap_or(0);
        let last = part.ranks.iter().map(|rank| rank.exec_ns).max().unwrap_or(0);
        self.span("spawn", pid, 0, first, last);
        for fence in &part.fences {
            self.fence(pid, fence);
        }
        self.traffic(pid, &part.traffic);
        for rank in &part.ranks {
            self.rank(pid, rank);
        }
    }

    fn fence(&mut self, pid: u32, fence: &FenceTrace) {
        self.span(&format!("{} {}", fence.collective, fence.epoch), pid, 0, fence.first_in_ns, fence.out_ns);
        if let Some(event) = self.events.last_mut() {
            event.args.insert("bytes_up".into(), fence.bytes_up.into());
            event.args.insert("bytes_down".into(), fence.bytes_down.into());
            event.args.insert("last_rank".into(), fence.last_rank.0.into());
        }
    }

    /// The traffic of a node's agent for the job's collectives, as an event without a time.
    fn traffic(&mut self, pid: u32, traffic: &ExchangeTraffic) {
        let mut args = serde_json::Map::new();
        for (way, Traffic { frames_in, bytes_in, frames_out, bytes_out }) in
            [("up", traffic.up), ("down", traffic.down), ("direct", traffic.direct)]
        {
            let numbers = serde_json::json!({
                "frames_in": frames_in, "bytes_in": bytes_in, "frames_out": frames_out, "bytes_out": bytes_out,
            });
            args.insert(way.into(), numbers);
        }
        self.events.push(Event { name: "exchange traffic".into(), ph: "M", pid, tid: 0, ts: 0.0, dur: None, args });
    }

    fn rank(&mut self, pid: u32, rank: &RankTrace) {
        let tid = rank.rank.0 + 1;
        self.name("thread_name", pid, tid, &format!("rank {}", rank.rank));
        self.span("exec", pid, tid, rank.spawn_ns, rank.exec_ns);
        self.span("load and init", pid, tid, rank.exec_ns, rank.init_ns);
        let begun = if rank.init_ns > 0 { rank.init_ns } else { rank.exec_ns };
        let ended = if rank.finalize_ns > 0 { rank.finalize_ns } else { rank.exit_ns };
        self.span("run", pid, tid, begun, ended);
        self.span("exit", pid, tid, rank.finalize_ns, rank.exit_ns);
    }

    /// A span, unless one of its ends is missing.
    fn span(&mut self, name: &str, pid: u32, tid: u32, begin_ns: u64, end_ns: u64) {
        if begin_ns == 0 || end_ns < begin_ns {
            return;
        }
        let micros = |ns: u64| ns as f64 / 1000.0;
        self.events.push(Event {
            name: name.into(),
            ph: "X",
            pid,
            tid,
            ts: micros(begin_ns.saturating_sub(self.origin_ns)),
            dur: Some(micros(end_ns - begin_ns)),
            args: serde_json::Map::new(),
        });
    }

    fn name(&mut self, what: &str, pid: u32, tid: u32, name: &str) {
        let mut args = serde_json::Map::new();
        args.insert("name".into(), name.into());
        self.events.push(Event { name: what.into(), ph: "M", pid, tid, ts: 0.0, dur: None, args });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::Rank;

    #[test]
    fn a_phase_is_a_span_of_the_launcher_and_of_each_node() {
        let mut scribe = Scribe { origin_ns: 1_000, events: Vec::new() };
        let parts = vec![Phase::new("send", 3_000, 6_000, "")];
        let nodes = vec![(NodeId(0), 5_000), (NodeId(2), 6_000)];
        scribe.phase(&Phase { parts, nodes, ..Phase::new("stage", 2_000, 7_000, "") });
        let spans: Vec<_> =
            scribe.events.iter().map(|event| (event.name.as_str(), event.pid, event.ts, event.dur)).collect();
        assert_eq!(
            spans,
            [
                ("stage", 0, 1.0, Some(5.0)),
                ("send", 0, 2.0, Some(3.0)),
                ("stage", 1, 1.0, Some(3.0)),
                ("stage", 3, 1.0, Some(4.0))
            ]
        );
    }

    #[test]
    fn spans_are_relative_to_the_origin_and_incomplete_ones_left_out() {
        let mut scribe = Scribe { origin_ns: 1_000, events: Vec::new() };
        scribe.rank(
            1,
            &RankTrace { rank: Rank(4), spawn_ns: 2_000, exec_ns: 5_000, exit_ns: 9_000, ..RankTrace::default() },
        );
        let spans: Vec<_> = scribe.events.iter().filter(|event| event.ph == "X").collect();
        assert_eq!(spans.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["exec", "run"]);
        assert_eq!((spans[0].ts, spans[0].dur, spans[0].tid), (1.0, Some(3.0), 5));
    }
}
