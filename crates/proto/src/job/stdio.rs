//! Bytes of standard input, output and error through this agent.

use super::{Context, Job};
use crate::input::Sink;
use crate::io::{Output, Stream};
use bytes::Bytes;
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::{AgentId, LocalRank};
use wireup_wire::job::StdinTarget;
use wireup_wire::peer::Cause;

impl Job {
    pub fn on_stdio_bytes(&mut self, local: LocalRank, stream: Stream, bytes: &Bytes, cx: &Context<'_>) {
        let Some(process) = self.processes.get(local.index()) else {
            return;
        };
        // Who reads the terminal may prompt; others' lines stay whole.
        let prompt = self.facts.spec.options.stdin == StdinTarget::One(process.rank)
            || self.facts.spec.options.pty.is_some_and(|pty| pty.rank == process.rank);
        self.output[stream as usize - 1].on_bytes(cx.now, local, process.rank, bytes, prompt);
    }

    pub(super) fn on_child_output(&mut self, agent: AgentId, frame: Frame) {
        if let (Some(child), 1..=2) = (self.child_index(agent), frame.stream) {
            self.output[frame.stream as usize - 1].on_child(child, frame.arg, frame.payload);
        }
    }

    pub(super) fn on_output_credit(&mut self, frame: &Frame) {
        if let 1..=2 = frame.stream {
            self.output[frame.stream as usize - 1].on_credit(frame.arg);
        }
    }

    /// Sends what the credit allows, grants the children what was sent, reads the ranks or leaves them.
    pub(super) fn flush_output(&mut self, cx: &mut Context<'_>) {
        let job = self.facts.spec.job;
        for output in &mut self.output {
            let stream = output.stream;
            while let Some(ready) = output.poll_ready() {
                let granted = ready.bytes.len() as u32;
                cx.send_up(stdio_frame(Kind::Output, stream as u16, job.0, ready.arg, ready.bytes));
                if let Some(child) = ready.from {
                    let credit = stdio_frame(Kind::OutputCredit, stream as u16, job.0, granted, Bytes::new());
                    cx.send_child(self.children[child].agent, credit);
                }
            }
            if let Some(on) = output.poll_reading() {
                cx.out.push(Output::ReadStdio { job, stream, on });
            }
        }
    }

    /// Standard input from above. The root sees to it that all others get no more than a window.
    pub(super) fn on_input(&mut self, frame: Frame, cx: &mut Context<'_>) {
        if self.facts.root && !self.input.has_room(frame.payload.len()) {
            let problem = "it sent more standard input than the ranks had room for".into();
            return self.fail_by(Cause::Launcher { problem }, cx);
        }
        for sink in self.input.on_bytes(frame.payload.len()) {
            match sink {
                Sink::Local(local) => {
                    self.tell_ranks(
                        Output::Write { job: self.facts.spec.job, local, bytes: frame.payload.clone() },
                        cx,
                    );
                }
                Sink::Child(child) => {
                    let agent = self.children[child].agent;
                    cx.send_child(agent, frame.clone());
                }
            }
        }
    }

    pub fn on_stdin_taken(&mut self, local: LocalRank, bytes: u32, cx: &mut Context<'_>) {
        let credit = self.input.on_taken(Sink::Local(local), bytes);
        self.send_input_credit(credit, cx);
    }

    pub(super) fn on_input_credit(&mut self, agent: AgentId, bytes: u32, cx: &mut Context<'_>) {
        if let Some(child) = self.child_index(agent) {
            let credit = self.input.on_taken(Sink::Child(child), bytes);
            self.send_input_credit(credit, cx);
        }
    }

    pub(super) fn send_input_credit(&mut self, credit: u32, cx: &mut Context<'_>) {
        if credit > 0 {
            cx.send_up(stdio_frame(Kind::InputCredit, 0, self.facts.spec.job.0, credit, Bytes::new()));
        }
    }
}

fn stdio_frame(kind: Kind, stream: u16, job: u32, arg: u32, payload: Bytes) -> Frame {
    // Credit must not wait behind the very bytes that it is about.
    let class = match kind {
        Kind::OutputCredit | Kind::InputCredit => Class::Control,
        _ => Class::Stdio,
    };
    Frame { kind, class, stream, job, arg, payload }
}
