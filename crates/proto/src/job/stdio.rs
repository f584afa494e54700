//! Moves standard input, output and error of a job through one agent.
//!
//! Output of local ranks and of children goes up as credit allows; input from above goes to the ranks that read it. The
//! streams themselves are in `crate::output` and `crate::input`; this part turns them into frames.

use super::cx::Cx;
use super::facts::Facts;
use super::ranks::Process;
use crate::input::{InputSpread, Sink};
use crate::io::{Output, Stream};
use crate::output::{Next, OutputStream, Style};
use crate::time::Instant;
use bytes::Bytes;
use wireup_coll::tree::Hop;
use wireup_wire::frame::{DownFrame, Frame, UpFrame};
use wireup_wire::ids::{AgentId, LocalRank, Rank};
use wireup_wire::job::StdinTarget;
use wireup_wire::peer::Cause;

pub struct Stdio {
    output: [OutputStream; 2],
    input: InputSpread,
}

impl Stdio {
    pub fn new(facts: &Facts) -> Self {
        let options = &facts.spec.options;
        let style = Style {
            label: options.stdio.label,
            job: facts.spec.shown_number(),
            split: options.stdio.split_output,
            whole_lines_only: options.stdio.line_buffered,
        };
        let stream = |stream| OutputStream::new(stream, style, facts.local_size() as usize);
        // With input for all ranks, all other nodes read the same input, so this one must not hold it up.
        let drains = !facts.root && options.stdio.stdin.is_all();
        let input = if drains { InputSpread::draining(sinks(facts)) } else { InputSpread::new(sinks(facts)) };
        Stdio { output: [stream(Stream::Out), stream(Stream::Err)], input }
    }

    /// A local rank wrote output, or the agent writes for it.
    pub fn on_bytes(&mut self, cx: &Cx<'_>, local: LocalRank, stream: Stream, bytes: &Bytes) {
        let Some(Process { rank, .. }) = cx.common.ranks.get(local.index()) else { return };
        let (rank, options) = (*rank, &cx.facts.spec.options);
        // A rank that reads the terminal may show a prompt; the lines of other ranks are shown whole.
        let options = &options.stdio;
        let prompt = options.stdin == StdinTarget::One(rank) || options.pty.is_some_and(|pty| pty.rank == rank);
        self.stream(stream).on_bytes(cx.now(), local, rank, bytes, prompt);
    }

    /// A rank's stream ended.
    pub fn on_ended(&mut self, (local, rank): (LocalRank, Rank), stream: Stream) {
        self.stream(stream).on_closed(local, rank);
    }

    /// No more events about the local ranks are expected.
    pub fn give_ranks_up(&mut self, cx: &mut Cx<'_>) {
        for (local, stream) in cx.common.ranks.give_up() {
            self.on_ended((local, cx.rank(local)), stream);
        }
    }

    fn stream(&mut self, stream: Stream) -> &mut OutputStream {
        &mut self.output[stream as usize - 1]
    }

    /// A child's output.
    pub fn on_child_output(&mut self, child: usize, frame: Frame) {
        if let Some((stream, next)) = Next::of_field(frame.stream) {
            self.stream(stream).on_child(child, frame.arg, next, frame.payload);
        }
    }

    pub fn on_output_credit(&mut self, frame: &Frame) {
        if let 1..=2 = frame.stream {
            self.output[frame.stream as usize - 1].on_credit(frame.arg);
        }
    }

    /// Sends what the credit allows, grants the children credit for it, and starts or stops reading the ranks.
    pub fn flush(&mut self, cx: &mut Cx<'_>) {
        let facts = cx.facts;
        let job = facts.id();
        for output in &mut self.output {
            let stream = output.stream;
            while let Some(ready) = output.poll_ready() {
                let granted = ready.bytes.len() as u32;
                let frame = facts.frame(UpFrame::Output, ready.next.field(stream), ready.arg, ready.bytes);
                cx.up(frame);
                if let Some(child) = ready.from {
                    let credit = facts.frame(DownFrame::OutputCredit, stream as u16, granted, Bytes::new());
                    cx.for_child(child, credit);
                }
            }
            if let Some(on) = output.poll_reading() {
                cx.output(Output::ReadStdio { job, stream, on });
            }
        }
    }

    /// Standard input from above. The root ensures that no agent gets more than a window. Returns the local ranks that
    /// get it.
    pub fn on_input(&mut self, cx: &mut Cx<'_>, frame: &Frame) -> Vec<LocalRank> {
        if cx.facts.root && !self.input.has_room(frame.payload.len()) {
            let problem = "it sent more standard input than its credit allows".into();
            cx.fail_by(Cause::Launcher { problem });
            return Vec::new();
        }
        let mut locals = Vec::new();
        for sink in self.input.on_bytes(frame.payload.len()) {
            match sink {
                Sink::Local(local) => locals.push(local),
                Sink::Child(child) => cx.for_child(child, frame.clone()),
            }
        }
        grant_input(cx, self.input.new_credit());
        locals
    }

    /// A local rank or a child's subtree took some of the input.
    pub fn on_taken(&mut self, cx: &mut Cx<'_>, sink: Sink, bytes: u32) {
        grant_input(cx, self.input.on_taken(sink, bytes));
    }

    /// A local rank, or everybody below a child, reads no more.
    pub fn on_sink_gone(&mut self, cx: &mut Cx<'_>, sink: Sink) {
        grant_input(cx, self.input.on_gone(sink));
    }

    /// Nobody reads the output any more: drop it.
    pub fn discard(&mut self) {
        self.output.iter_mut().for_each(OutputStream::discard);
    }

    /// Whether no output waits here.
    pub fn is_flushed(&self) -> bool {
        self.output.iter().all(OutputStream::is_empty)
    }

    pub fn on_tick(&mut self, cx: &Cx<'_>) {
        self.output.iter_mut().for_each(|stream| stream.on_tick(cx.now(), |local| cx.rank(local)));
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.output.iter().filter_map(OutputStream::deadline).min()
    }

    /// Bytes of output buffered here, for the simulator's checkers.
    pub fn held_bytes(&self) -> usize {
        self.output.iter().map(OutputStream::held_bytes).sum()
    }
}

fn grant_input(cx: &mut Cx<'_>, bytes: u32) {
    if bytes > 0 {
        cx.up(cx.facts.frame(UpFrame::InputCredit, 0, bytes, Bytes::new()));
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
