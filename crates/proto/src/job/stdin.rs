//! Moves standard input of a job through one agent.
//!
//! Input from above goes to the ranks that read it; credit is returned for the bytes that all of them have taken. Each
//! job has one [`InputSpread`]. Bytes are forwarded immediately to every sink (a local rank or a child's subtree); the
//! source may have up to [`STDIN_WINDOW_BYTES`] outstanding that not all sinks have taken. A sink that ends no longer
//! counts; when none is left no credit is returned, so that the source stops. An agent whose parent has other sinks
//! must not hold those up: without a sink of its own it returns credit for everything ([`InputSpread::draining`]).

use super::cx::Cx;
use super::facts::Facts;
use bytes::Bytes;
use std::collections::BTreeMap;
use wireup_coll::tree::Hop;
use wireup_wire::frame::{Frame, UpFrame};
use wireup_wire::ids::{AgentId, LocalRank, Rank};
use wireup_wire::job::StdinTarget;
use wireup_wire::limits::STDIN_WINDOW_BYTES;
use wireup_wire::peer::Cause;

pub struct Stdin {
    spread: InputSpread,
}

impl Stdin {
    pub fn new(facts: &Facts) -> Self {
        // If all ranks read standard input, all other nodes read the same input, so this node must not hold it up.
        let drains = !facts.root && facts.spec.options.stdio.stdin.is_all();
        let spread = if drains { InputSpread::draining(sinks(facts)) } else { InputSpread::new(sinks(facts)) };
        Stdin { spread }
    }

    /// Handles standard input from the parent or launcher. The root ensures that no agent gets more than a window.
    /// Returns the local ranks that receive it.
    pub fn on_input(&mut self, cx: &mut Cx<'_>, frame: &Frame) -> Vec<LocalRank> {
        if cx.facts.root && !self.spread.has_room(frame.payload.len()) {
            let problem = "it sent more standard input than its credit allows".into();
            cx.fail_by(Cause::Launcher { problem });
            return Vec::new();
        }
        let mut locals = Vec::new();
        for sink in self.spread.on_bytes(frame.payload.len()) {
            match sink {
                Sink::Local(local) => locals.push(local),
                Sink::Child(child) => cx.agent.links.send_peer(cx.facts.below[child], frame.clone()),
            }
        }
        grant_input(cx, self.spread.new_credit());
        locals
    }

    /// A local rank or a child's subtree took some of the input.
    pub fn on_taken(&mut self, cx: &mut Cx<'_>, sink: Sink, bytes: u32) {
        grant_input(cx, self.spread.on_taken(sink, bytes));
    }

    /// A local rank, or every rank in a child's subtree, reads no more input.
    pub fn on_gone(&mut self, cx: &mut Cx<'_>, sink: Sink) {
        grant_input(cx, self.spread.on_gone(sink));
    }
}

fn grant_input(cx: &mut Cx<'_>, bytes: u32) {
    if bytes > 0 {
        cx.agent.links.send_job_up(cx.common.up, cx.facts.frame(UpFrame::InputCredit, 0, bytes, Bytes::new()));
    }
}

/// The receivers of standard input on this agent.
fn sinks(facts: &Facts) -> Vec<Sink> {
    let options = &facts.spec.options;
    match options.stdio.stdin {
        StdinTarget::None => Vec::new(),
        StdinTarget::One(_) if options.stdio.stdin_inherit => Vec::new(),
        StdinTarget::All | StdinTarget::AllByMemory => {
            let locals = (0..facts.local_size()).map(|local| Sink::Local(LocalRank(local as u16)));
            locals.chain((0..facts.below.len()).map(Sink::Child)).collect()
        }
        StdinTarget::One(rank) => sink_of(facts, rank).into_iter().collect(),
    }
}

/// The next hop of standard input to the only rank that reads it.
fn sink_of(facts: &Facts, rank: Rank) -> Option<Sink> {
    let (node, local) = facts.mapping.place(rank)?;
    let child = |agent: AgentId| facts.child_index(agent).map(Sink::Child);
    match facts.tree.next_hop(facts.agent_of(node)) {
        Hop::Here => Some(Sink::Local(local)),
        Hop::Child(agent) => child(agent),
        Hop::Parent => None,
    }
}

/// A receiver of standard input on this agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Sink {
    Local(LocalRank),
    /// A child agent, by its index among the job's children.
    Child(usize),
}

#[derive(Default)]
pub struct InputSpread {
    /// Bytes that each sink has taken since the job's start.
    sinks: BTreeMap<Sink, u64>,
    passed: u64,
    credited: u64,
    ended: bool,
    drains: bool,
}

impl InputSpread {
    pub fn new(sinks: impl IntoIterator<Item = Sink>) -> Self {
        InputSpread { sinks: sinks.into_iter().map(|sink| (sink, 0)).collect(), ..Self::default() }
    }

    /// Like [`InputSpread::new`], but once no sink is left, all input that arrives is dropped and its credit returned.
    pub fn draining(sinks: impl IntoIterator<Item = Sink>) -> Self {
        InputSpread { drains: true, ..InputSpread::new(sinks) }
    }

    /// Whether the source may send this many more bytes.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.passed - self.credited + bytes as u64 <= STDIN_WINDOW_BYTES as u64
    }

    /// Handles `bytes` of input from above (0: end of file, after which all input is ignored); returns the sinks that
    /// receive them.
    pub fn on_bytes(&mut self, bytes: usize) -> impl Iterator<Item = Sink> + use<> {
        let counts = !self.ended;
        self.ended |= bytes == 0;
        self.passed += if counts { bytes as u64 } else { 0 };
        self.sinks.keys().copied().filter(|_| counts).collect::<Vec<_>>().into_iter()
    }

    /// A sink took `bytes`; returns the credit to send up.
    pub fn on_taken(&mut self, sink: Sink, bytes: u32) -> u32 {
        if let Some(taken) = self.sinks.get_mut(&sink) {
            *taken = (*taken + u64::from(bytes)).min(self.passed);
        }
        self.new_credit()
    }

    /// A sink has ended; returns the credit to send up.
    pub fn on_gone(&mut self, sink: Sink) -> u32 {
        self.sinks.remove(&sink);
        self.new_credit()
    }

    /// The credit to send up now: for the input that all sinks have taken or, if there is no sink left and this agent
    /// drains, for all input that has arrived.
    pub fn new_credit(&mut self) -> u32 {
        let slowest = match self.sinks.values().min() {
            Some(slowest) => *slowest,
            None if self.drains => self.passed,
            None => return 0,
        };
        // A credit has 32 bits. A source that stays within its window never needs more; the rest of a larger credit
        // follows with the next one.
        let credit = slowest.saturating_sub(self.credited).min(u64::from(u32::MAX));
        self.credited += credit;
        credit as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Sink = Sink::Local(LocalRank(0));
    const B: Sink = Sink::Child(0);

    #[test]
    fn credit_follows_the_slowest_sink() {
        let mut spread = InputSpread::new([A, B]);
        assert_eq!(spread.on_bytes(100).collect::<Vec<_>>(), [A, B]);
        assert_eq!(spread.on_taken(A, 60), 0);
        assert_eq!(spread.on_taken(B, 40), 40);
        assert_eq!(spread.on_taken(B, 60), 20);
        assert_eq!(spread.on_gone(A), 40);
    }

    #[test]
    fn without_sinks_no_credit_is_returned() {
        let mut spread = InputSpread::new([A]);
        assert_eq!(spread.on_bytes(10).count(), 1);
        assert_eq!(spread.on_gone(A), 0);
        assert_eq!(spread.on_bytes(10).count(), 0);
    }

    #[test]
    fn an_agent_that_drains_returns_credit_without_sinks() {
        let mut spread = InputSpread::draining([A]);
        assert_eq!(spread.on_bytes(10).count(), 1);
        assert_eq!(spread.new_credit(), 0, "its rank has taken nothing yet");
        assert_eq!(spread.on_gone(A), 10);
        assert_eq!((spread.on_bytes(7).count(), spread.new_credit(), spread.new_credit()), (0, 7, 0));
        let mut spread = InputSpread::draining([]);
        assert_eq!((spread.on_bytes(5).count(), spread.new_credit()), (0, 5), "it never had a rank");
    }

    #[test]
    fn a_source_that_exceeds_its_window_is_detected() {
        let mut spread = InputSpread::new([A, B]);
        assert!(spread.has_room(STDIN_WINDOW_BYTES) && !spread.has_room(STDIN_WINDOW_BYTES + 1));
        assert_eq!(spread.on_bytes(3 * u32::MAX as usize).count(), 2);
        assert!(!spread.has_room(0));
        assert_eq!((0..3).map(|_| spread.on_taken(A, u32::MAX)).sum::<u32>(), 0);
        assert_eq!(spread.on_gone(B), u32::MAX, "the largest credit of one message");
        assert_eq!(spread.on_taken(A, 0), u32::MAX);
    }

    #[test]
    fn input_after_the_end_is_ignored() {
        let mut spread = InputSpread::new([A]);
        assert_eq!(spread.on_bytes(0).collect::<Vec<_>>(), [A]);
        assert_eq!(spread.on_bytes(0).count(), 0);
        assert_eq!(spread.on_bytes(10).count(), 0);
        assert_eq!(spread.on_taken(A, 10), 0);
    }

    #[test]
    fn a_sink_cannot_acknowledge_more_than_it_got() {
        let mut spread = InputSpread::new([A]);
        assert_eq!(spread.on_bytes(10).count(), 1);
        assert_eq!(spread.on_taken(A, 4_000_000_000), 10);
    }
}
