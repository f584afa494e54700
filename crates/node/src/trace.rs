//! Writes the time stamps of a run as a trace file for Perfetto and `chrome://tracing`.
//!
//! Each node is a process in the trace (and so is the launcher), each rank a thread; thread 0 of a node is its agent. A
//! root agent without ranks is thread 1 of the launcher. Times are microseconds of the machine's monotonic clock since
//! the start of the launcher.

use crate::launcher::Stamps;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};
use wireup_coll::Tree;
use wireup_wire::ids::{AgentId, NodeId};
use wireup_wire::peer::{ExchangeTraffic, FenceTrace, RankTrace, TracePart, Traffic};

/// A part of a run (sending files, starting a session) as the launcher has seen it, with times of the launcher's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    pub name: String,
    pub from_ns: u64,
    pub to_ns: u64,
    pub remark: String,
    pub parts: Vec<Phase>,
    /// Time at which each node had completed the phase (ns).
    pub nodes: Vec<(NodeId, u64)>,
}

impl Phase {
    pub fn new(name: impl Into<String>, from_ns: u64, to_ns: u64, remark: impl Into<String>) -> Phase {
        Phase { name: name.into(), from_ns, to_ns, remark: remark.into(), parts: Vec::new(), nodes: Vec::new() }
    }
}

/// The trace's process id for the launcher.
pub const LAUNCHER: u32 = 0;

#[derive(Serialize, Deserialize, Debug)]
pub struct Trace {
    #[serde(rename = "displayTimeUnit", default)]
    unit: String,
    #[serde(rename = "otherData", default)]
    pub about: About,
    #[serde(rename = "traceEvents")]
    pub events: Vec<Event>,
}

/// Description of the run.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct About {
    /// The version of wireup.
    pub wireup: String,
    pub program: String,
    /// The settings that wireup chose (PMI, binding, tree, exchange), one line each, with the reason.
    pub settings: Vec<String>,
    /// Most children of an agent in the job's tree.
    pub fanout: u32,
    /// How the agents of a real run were started: `local` (on this machine), `ssh` (by a remote shell) or `srun` (by a
    /// batch system).
    pub start: String,
    /// Whether the agents of a real run belonged to a session and ran already.
    pub in_session: bool,
    /// The machine on which the run was simulated; `None`: the run was real.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Event {
    pub name: String,
    /// Kind of event: `X` for a span, `M` for metadata.
    pub ph: String,
    pub pid: u32,
    #[serde(default)]
    pub tid: u32,
    #[serde(default)]
    pub ts: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dur: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Box<Args>>,
}

/// Details of an event, by what it describes.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(untagged)]
pub enum Args {
    Fence {
        /// Time at which the last rank of the node entered the fence (µs, like `ts`).
        last_in: f64,
        /// When the parts of the node's subtree were complete, and when the result had arrived (µs, like `ts`). The
        /// span ends when the ranks of the node were answered.
        #[serde(default)]
        gathered: f64,
        #[serde(default)]
        received: f64,
        last_rank: u32,
        bytes_up: u64,
        bytes_down: u64,
    },
    Node {
        /// Hops from the root of the job's tree.
        level: u32,
        /// The error bound of the alignment of the node's clock (µs); `None`: the clock could not be aligned.
        clock_error: Option<f64>,
        up: Traffic,
        down: Traffic,
        direct: Traffic,
    },
    Name {
        name: String,
    },
}

impl Trace {
    pub fn new(about: About, stamps: &Stamps, phases: &[Phase], parts: &[TracePart]) -> Trace {
        let mut scribe = Scribe { origin_ns: stamps.process_ns, events: Vec::new() };
        scribe.launcher(stamps);
        phases.iter().for_each(|phase| scribe.phase(phase));
        let root = AgentId(0);
        let agents: BTreeSet<AgentId> = parts.iter().map(|part| part.agent).chain([root]).collect();
        let tree = Tree::new(agents.len() as u32, about.fanout);
        let levels: BTreeMap<AgentId, u32> =
            agents.into_iter().zip(0..).map(|(agent, position)| (agent, tree.depth(AgentId(position)))).collect();
        for part in parts {
            scribe.node(part, levels[&part.agent]);
        }
        Trace { unit: "ms".into(), about, events: scribe.events }
    }

    pub fn write(&self, file: impl Write) -> io::Result<()> {
        let mut file = BufWriter::new(file);
        serde_json::to_writer(&mut file, self)?;
        file.flush()
    }
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

    fn node(&mut self, part: &TracePart, level: u32) {
        // A root agent without ranks is on no node of the job, so it is shown as a thread of the launcher.
        let (pid, tid) = if part.host.is_empty() { (LAUNCHER, 1) } else { (part.node.0 + 1, 0) };
        if pid != LAUNCHER {
            self.name("process_name", pid, 0, &format!("node {} {}", part.node, part.host));
        }
        self.name("thread_name", pid, tid, "agent");
        self.span("bootstrap", pid, tid, part.process_ns, part.bootstrap_ns);
        self.span("connect", pid, tid, part.bootstrap_ns, part.linked_ns);
        self.span("receive job", pid, tid, part.bootstrap_ns, part.job_ns);
        let first = part.ranks.iter().map(|rank| rank.spawn_ns).filter(|at| *at > 0).min().unwrap_or(0);
        let last = part.ranks.iter().map(|rank| rank.exec_ns).max().unwrap_or(0);
        self.span("spawn", pid, 0, first, last);
        for fence in &part.fences {
            self.fence(pid, fence);
        }
        let clock_error = (part.clock_error_ns < u64::MAX).then(|| micros(part.clock_error_ns));
        let ExchangeTraffic { up, down, direct } = part.traffic;
        self.metadata("exchange traffic", pid, tid, Args::Node { level, clock_error, up, down, direct });
        for rank in &part.ranks {
            self.rank(pid, rank);
        }
    }

    fn fence(&mut self, pid: u32, fence: &FenceTrace) {
        let FenceTrace { last_in_ns, gathered_ns, received_ns, last_rank, bytes_up, bytes_down, .. } = *fence;
        let [last_in, gathered, received] =
            [last_in_ns, gathered_ns, received_ns].map(|at| micros(at.saturating_sub(self.origin_ns)));
        let args = Args::Fence { last_in, gathered, received, last_rank: last_rank.0, bytes_up, bytes_down };
        let name = format!("{} {}", fence.collective, fence.epoch);
        if let Some(event) = self.span(&name, pid, 0, fence.first_in_ns, fence.out_ns) {
            event.args = Some(Box::new(args));
        }
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

    /// Adds a span, unless one of its ends is missing, or all of it precedes the start of the launcher, as in a
    /// session.
    fn span(&mut self, name: &str, pid: u32, tid: u32, begin_ns: u64, end_ns: u64) -> Option<&mut Event> {
        if begin_ns == 0 || end_ns < begin_ns.max(self.origin_ns) {
            return None;
        }
        let begin_ns = begin_ns.max(self.origin_ns);
        let (ts, dur) = (micros(begin_ns - self.origin_ns), Some(micros(end_ns - begin_ns)));
        self.events.push(Event { name: name.into(), ph: "X".into(), pid, tid, ts, dur, args: None });
        self.events.last_mut()
    }

    fn name(&mut self, what: &str, pid: u32, tid: u32, name: &str) {
        self.metadata(what, pid, tid, Args::Name { name: name.into() });
    }

    fn metadata(&mut self, what: &str, pid: u32, tid: u32, args: Args) {
        let args = Some(Box::new(args));
        self.events.push(Event { name: what.into(), ph: "M".into(), pid, tid, ts: 0.0, dur: None, args });
    }
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::Rank;

    #[test]
    fn agents_have_their_level_in_the_tree_and_a_root_without_ranks_is_with_the_launcher() {
        let part = |agent: u32, host: &str| TracePart {
            agent: AgentId(agent),
            node: NodeId(agent.saturating_sub(1)),
            host: host.to_owned(),
            process_ns: 500,
            bootstrap_ns: 900,
            job_ns: 2_000,
            fences: vec![FenceTrace { first_in_ns: 3_000, last_in_ns: 4_000, out_ns: 6_000, ..FenceTrace::default() }],
            ..TracePart::default()
        };
        let stamps = Stamps { process_ns: 1_000, ..Stamps::default() };
        let about = About { fanout: 1, ..About::default() };
        let Trace { events, .. } = Trace::new(about, &stamps, &[], &[part(0, ""), part(1, "n0"), part(4, "n3")]);
        let levels = events.iter().filter_map(|event| match event.args.as_deref() {
            Some(Args::Node { level, .. }) => Some((event.pid, event.tid, *level)),
            _ => None,
        });
        assert_eq!(levels.collect::<Vec<_>>(), [(LAUNCHER, 1, 0), (1, 0, 1), (4, 0, 2)]);
        let named = events.iter().filter(|event| event.name == "process_name").map(|event| event.pid);
        assert_eq!(named.collect::<Vec<_>>(), [LAUNCHER, 1, 4]);
        // The agents of a session started before the launcher, so their bootstrap is not shown.
        assert!(events.iter().all(|event| event.name != "bootstrap"));
        let job = events.iter().find(|event| event.name == "receive job").expect("the job arrives");
        assert_eq!((job.ts, job.dur), (0.0, Some(1.0)));
        let fence = events.iter().find(|event| event.name == "fence 0").expect("a fence");
        assert!(matches!(fence.args.as_deref(), Some(Args::Fence { last_in, .. }) if *last_in == 3.0), "{fence:?}");
    }

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
