//! Benchmarks that agents run before the ranks start (S3, backup slides 1 and 2).
//!
//! Between two agents a message makes round trips, as often as requested for each size; among all agents one allgather follows another,
//! each starting as soon as the node has the previous result. Frames and collectives are those of any job, so the results are what jobs
//! get. A tenth of each size's iterations is a warm-up. One agent reports: the first of the two, or that of the first node.

use super::effect::{Effect, Effects};
use super::facts::Facts;
use crate::collective::ReplyTo;
use crate::collective::{CollectiveConfig, Entry};
use crate::time::Instant;
use bytes::Bytes;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, LocalRank, NodeId};
use wireup_wire::job::{AgentBench, BenchStep, BenchTask};
use wireup_wire::peer::{Control, Note};

/// `stream` of a [`Kind::Bench`] frame.
const THERE: u16 = 0;
const BACK: u16 = 1;
const OVER: u16 = 2;

pub struct Bench {
    part: Part,
    steps: Vec<BenchStep>,
    step: usize,
    /// Completed iterations of the step, including the warm-up.
    done: u32,
    /// When the current iteration started.
    begun: Instant,
    times_ns: Vec<u64>,
    message: Bytes,
}

/// The role of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Sends, and measures the time until the answer.
    First { other: AgentId },
    /// Sends each message back.
    Second { other: AgentId },
    /// Takes part in allgathers; one node reports the times.
    Among { tells: bool },
}

/// What follows an iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Again,
    Over,
}

impl Bench {
    /// This node's role, if it has one.
    pub fn new(facts: &Facts, site: &CollectiveConfig) -> Option<Bench> {
        let (spec, node) = (&facts.spec, facts.node);
        let AgentBench { task, steps } = spec.options.bench.as_ref()?;
        let agent = |node: NodeId| spec.nodes.get(node.index()).map(|node| node.agent);
        let part = match *task {
            BenchTask::PingPong { first, second } if node == Some(first) => Part::First { other: agent(second)? },
            BenchTask::PingPong { first, second } if node == Some(second) => Part::Second { other: agent(first)? },
            BenchTask::PingPong { .. } => return None,
            // A single node would not wait for anyone: one collective would complete within another.
            BenchTask::Allgather if site.peers.len() < 2 || site.local_size != 1 => return None,
            BenchTask::Allgather => Part::Among { tells: site.place? == 0 },
        };
        if steps.iter().all(|step| step.iterations == 0) {
            return None;
        }
        let mut bench = Bench {
            part,
            steps: steps.iter().copied().filter(|step| step.iterations > 0).collect(),
            step: 0,
            done: 0,
            begun: Instant(0),
            times_ns: Vec::new(),
            message: Bytes::new(),
        };
        bench.prepare();
        Some(bench)
    }

    fn prepare(&mut self) {
        if let Some(step) = self.steps.get(self.step).filter(|_| !matches!(self.part, Part::Second { .. })) {
            self.message = vec![0; step.bytes as usize].into();
        }
    }

    /// Counts an iteration; returns the report about its step if it was the last one.
    fn on_iteration(&mut self, now: Instant, agent: AgentId) -> (Next, Option<Note>) {
        let BenchStep { bytes, iterations } = self.steps[self.step];
        let before = (iterations / 10).max(1);
        if self.done >= before {
            self.times_ns.push(now - self.begun);
        }
        self.done += 1;
        self.begun = now;
        if self.done < before + iterations {
            return (Next::Again, None);
        }
        let mut times = std::mem::take(&mut self.times_ns);
        times.sort_unstable();
        let total_ns = times.iter().sum();
        let (least_ns, median_ns) = (times[0], times[times.len() / 2]);
        let note = Note::Measured { agent, bytes, iterations, total_ns, median_ns, least_ns };
        (self.step, self.done) = (self.step + 1, 0);
        self.prepare();
        (if self.step < self.steps.len() { Next::Again } else { Next::Over }, Some(note))
    }
}

impl Bench {
    /// Starts the benchmark.
    pub fn begin(&self, facts: &Facts, out: &mut Effects) {
        match self.part {
            Part::First { other } => self.send_there(facts, other, out),
            Part::Among { .. } => self.gather(out),
            Part::Second { .. } => {}
        }
    }

    fn send_there(&self, facts: &Facts, other: AgentId, out: &mut Effects) {
        out.for_agent(other, facts.frame(Kind::Bench, THERE, 0, self.message.clone()));
    }

    /// A message from the other agent.
    pub fn on_frame(&mut self, now: Instant, facts: &Facts, from: AgentId, frame: Frame, out: &mut Effects) {
        match (self.part, frame.stream) {
            (Part::Second { other }, THERE) if from == other => {
                out.for_agent(other, facts.frame(Kind::Bench, BACK, 0, frame.payload));
            }
            (Part::Second { other }, OVER) if from == other => out.push(Effect::BenchOver),
            (Part::First { other }, BACK) if from == other => match self.go_on(now, facts, out) {
                Next::Again => self.send_there(facts, other, out),
                Next::Over => out.for_agent(other, facts.frame(Kind::Bench, OVER, 0, Bytes::new())),
            },
            (Part::First { .. } | Part::Second { .. } | Part::Among { .. }, _) => {}
        }
    }

    /// Enters the next allgather for the node's only rank, which has not started.
    fn gather(&self, out: &mut Effects) {
        let value = self.message.clone();
        let entry = Entry::Allgather { max_len: value.len() as u32, shared: false, value };
        out.push(Effect::Enter { local: LocalRank(0), entry, reply_to: ReplyTo::Lazy });
    }

    /// Whether the benchmark measures the job's collectives.
    pub fn gathers(&self) -> bool {
        matches!(self.part, Part::Among { .. })
    }

    /// An allgather is complete.
    pub fn on_gathered(&mut self, now: Instant, facts: &Facts, out: &mut Effects) {
        if self.go_on(now, facts, out) == Next::Again {
            self.gather(out);
        }
    }

    /// Records one iteration; returns whether another one follows.
    fn go_on(&mut self, now: Instant, facts: &Facts, out: &mut Effects) -> Next {
        let (next, note) = self.on_iteration(now, facts.me);
        if let Some(note) = note.filter(|_| self.part != Part::Among { tells: false }) {
            out.push(Effect::ControlUp(Control::Note(note)));
        }
        if next == Next::Over {
            out.push(Effect::BenchOver);
        }
        next
    }
}
