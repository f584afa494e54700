//! What agents measure among themselves before the ranks start (S3, backup slides 1 and 2).
//!
//! Between two agents a message goes there and back, as often as asked for each size; among all, allgathers follow each other, each as
//! soon as the last is over at the node. Frames and collectives are those of any job, so what is measured is what jobs get. A tenth of
//! each size's iterations goes before those that count. One agent tells: the first of the two, or that of the first node.

use super::{Context, Job};
use crate::exchange::{Entry, Site};
use crate::pmi_link::Ticket;
use crate::time::Instant;
use bytes::Bytes;
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::{AgentId, LocalRank, NodeId};
use wireup_wire::job::{AgentBench, BenchStep, BenchTask, JobSpec};
use wireup_wire::peer::{Control, Note};

/// `stream` of a [`Kind::Bench`] frame.
const THERE: u16 = 0;
const BACK: u16 = 1;
const OVER: u16 = 2;

pub struct Bench {
    part: Part,
    steps: Vec<BenchStep>,
    step: usize,
    /// Iterations of the step that are over, those before what counts included.
    done: u32,
    /// When the one under way began.
    begun: Instant,
    times_ns: Vec<u64>,
    message: Bytes,
}

/// What this node does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Sends, and measures how long the answer takes.
    First { other: AgentId },
    /// Answers.
    Second { other: AgentId },
    /// Takes part in allgathers; one node tells how long they take.
    Among { tells: bool },
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Again,
    Over,
}

impl Bench {
    /// This node's part, if it has one.
    pub fn new(spec: &JobSpec, node: Option<NodeId>, site: &Site) -> Option<Bench> {
        let AgentBench { task, steps } = spec.options.bench.as_ref()?;
        let agent = |node: NodeId| spec.nodes.get(node.index()).map(|node| node.agent);
        let part = match *task {
            BenchTask::PingPong { first, second } if node == Some(first) => Part::First { other: agent(second)? },
            BenchTask::PingPong { first, second } if node == Some(second) => Part::Second { other: agent(first)? },
            BenchTask::PingPong { .. } => return None,
            // Alone there is nobody to wait for: one collective would end within the other.
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

    /// An iteration is over; what is told of its step if it was the last.
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

impl Job {
    /// Begins what is to be measured.
    pub(super) fn begin_bench(&mut self, cx: &mut Context<'_>) {
        match self.bench.as_mut().map(|bench| bench.part) {
            Some(Part::First { other }) => self.send_there(other, cx),
            Some(Part::Among { .. }) => self.gather(cx),
            Some(Part::Second { .. }) | None => {}
        }
    }

    fn send_there(&mut self, other: AgentId, cx: &mut Context<'_>) {
        let message = self.bench.as_ref().map(|bench| bench.message.clone()).unwrap_or_default();
        cx.send_child(other, self.bench_frame(THERE, message));
    }

    /// A message of the other agent.
    pub fn on_bench(&mut self, from: AgentId, frame: Frame, cx: &mut Context<'_>) {
        let Some(bench) = &mut self.bench else { return };
        match (bench.part, frame.stream) {
            (Part::Second { other }, THERE) if from == other => {
                let answer = self.bench_frame(BACK, frame.payload);
                cx.send_child(other, answer);
            }
            (Part::Second { other }, OVER) if from == other => self.end_bench(cx),
            (Part::First { other }, BACK) if from == other => {
                if self.bench_goes_on(cx) {
                    self.send_there(other, cx);
                } else {
                    cx.send_child(other, self.bench_frame(OVER, Bytes::new()));
                }
            }
            (Part::First { .. } | Part::Second { .. } | Part::Among { .. }, _) => {}
        }
    }

    /// The node's only rank, which has not started, enters the next allgather.
    fn gather(&mut self, cx: &mut Context<'_>) {
        let Some(value) = self.bench.as_ref().map(|bench| bench.message.clone()) else { return };
        let entry = Entry::Allgather { max_len: value.len() as u32, shared: false, value };
        self.on_enter(LocalRank(0), entry, Ticket::Lazy, cx);
    }

    /// An allgather is over; `false`: it is none that is measured.
    pub(super) fn on_bench_gathered(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.bench.as_ref().is_some_and(|bench| matches!(bench.part, Part::Among { .. })) {
            return false;
        }
        if self.bench_goes_on(cx) {
            self.gather(cx);
        }
        true
    }

    /// One more is measured; whether another one follows.
    fn bench_goes_on(&mut self, cx: &mut Context<'_>) -> bool {
        let agent = self.facts.me;
        let Some(bench) = &mut self.bench else { return false };
        let (next, note) = bench.on_iteration(cx.now, agent);
        if let Some(note) = note.filter(|_| bench.part != Part::Among { tells: false }) {
            cx.control_up(self.id(), &Control::Note(note));
        }
        if next == Next::Over {
            self.end_bench(cx);
        }
        next == Next::Again
    }

    /// Nothing is left to measure: the ranks start.
    fn end_bench(&mut self, cx: &mut Context<'_>) {
        self.bench = None;
        self.spawn_held(cx);
    }

    fn bench_frame(&self, stream: u16, payload: Bytes) -> Frame {
        Frame { kind: Kind::Bench, class: Class::Exchange, stream, job: self.id().0, arg: 0, payload }
    }
}
