//! The ranks' pipes: a writer that waits while a pipe is full, and a driver that reads when it is told to.

use crate::clock::Event;
use crate::ranks::{Doing, Phase, Proc};
use crate::steps::PIPE_BYTES;
use crate::workload;
use crate::world::World;
use bytes::Bytes;
use std::collections::VecDeque;
use wireup_proto::io::{Input, JobEvent, Stream};
use wireup_wire::ids::LocalRank;
use wireup_wire::limits::STDIO_CHUNK_MAX;

/// Standard output or error of a rank.
#[derive(Debug, Default)]
pub struct Pipe {
    bytes: Vec<u8>,
    /// Lines written so far.
    pub lines: u32,
    /// Whether a read is scheduled.
    due: bool,
    /// Whether the end of the pipe was reported.
    closed: bool,
}

/// Standard input of a rank.
#[derive(Debug, Default)]
pub struct StdinPipe {
    /// Bytes that the agent has written and that do not yet fit into the pipe.
    pending: VecDeque<Bytes>,
    in_pipe: Vec<u8>,
    /// The number of bytes that the rank has read.
    pub read: u64,
    ended: bool,
    due: bool,
}

impl World {
    /// One attempt of a `Write` step: writes as many lines as fit into the pipe.
    pub(crate) fn write_lines(&mut self, id: u32, stream: u8, lines: u32, line_bytes: u16) {
        let proc = &mut self.procs[id as usize];
        let pipe = &mut proc.pipes[usize::from(stream) - 1];
        while proc.nth < lines && pipe.bytes.len() < PIPE_BYTES {
            workload::line(stream, id, pipe.lines, line_bytes, &mut pipe.bytes);
            pipe.lines += 1;
            proc.nth += 1;
        }
        let done = proc.nth == lines;
        if !done {
            proc.doing = Doing::PipeSpace;
        }
        self.schedule_read(id, stream);
        if done {
            self.step_done(id);
        }
    }

    /// Schedules a read of a pipe, if the driver is told to read and there is something to read.
    pub(crate) fn schedule_read(&mut self, id: u32, stream: u8) {
        let which = usize::from(stream) - 1;
        let proc = &mut self.procs[id as usize];
        let pipe = &mut proc.pipes[which];
        let is_over = matches!(proc.phase, Phase::Ended(_) | Phase::Vanished);
        if pipe.due || pipe.closed || (!is_over && pipe.bytes.is_empty()) {
            return;
        }
        let node = &self.nodes[proc.node as usize];
        if node.reading[which] && node.agent.is_some_and(|agent| self.agents[agent as usize].is_running()) {
            pipe.due = true;
            let delay_ns = self.spec.timing.stdio.draw(&mut self.rng);
            self.clock.after(delay_ns, Event::StdioRead(id, stream));
        }
    }

    pub(crate) fn on_stdio_read(&mut self, id: u32, stream: u8) {
        let which = usize::from(stream) - 1;
        let proc = &mut self.procs[id as usize];
        let (at, local) = (proc.node, proc.local);
        let pipe = &mut proc.pipes[which];
        pipe.due = false;
        let node = &self.nodes[at as usize];
        if !node.reading[which] || node.job_is_gone {
            return;
        }
        if !proc.start_is_known {
            // The agent receives the pipe together with the report that the rank runs.
            if !node.keeper.is_empty() {
                self.schedule_read(id, stream);
            }
            return;
        }
        let stream = if stream == 1 { Stream::Out } else { Stream::Err };
        if pipe.bytes.is_empty() {
            if matches!(proc.phase, Phase::Ended(_) | Phase::Vanished) {
                pipe.closed = true;
                self.tell_node(at, |job| Input::Job { job, event: JobEvent::StdioClosed { local, stream } });
            }
            return;
        }
        let most = pipe.bytes.len().min(STDIO_CHUNK_MAX);
        let some = self.rng.between(1, most as u64) as usize;
        let take = if self.rng.chance(700) { most } else { some };
        let rest = pipe.bytes.split_off(take);
        let bytes = Bytes::from(std::mem::replace(&mut pipe.bytes, rest));
        let has_room = pipe.bytes.len() < PIPE_BYTES;
        if has_room && proc.doing == Doing::PipeSpace && proc.phase == Phase::Running {
            self.next_step(id);
        }
        self.tell_node(at, |job| Input::Job { job, event: JobEvent::StdioBytes { local, stream, bytes } });
        self.schedule_read(id, stream as u8);
    }

    /// The agent writes standard input; no bytes mean its end.
    pub(crate) fn write_stdin(&mut self, node: u32, local: LocalRank, bytes: Bytes) {
        let id = self.nodes[node as usize].ranks[local.index()];
        self.procs[id as usize].stdin.pending.push_back(bytes);
        self.schedule_stdin(id);
    }

    pub(crate) fn schedule_stdin(&mut self, id: u32) {
        let proc = &mut self.procs[id as usize];
        if proc.stdin.due || proc.stdin.pending.is_empty() {
            return;
        }
        proc.stdin.due = true;
        let delay_ns = self.spec.timing.stdio.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::StdinMove(id));
    }

    /// The driver moves what fits into the pipe; for a rank that has ended, everything is discarded.
    pub(crate) fn on_stdin_move(&mut self, id: u32) {
        let proc = &mut self.procs[id as usize];
        let (node, local) = (proc.node, proc.local);
        let is_over = !proc.exists();
        let stdin = &mut proc.stdin;
        stdin.due = false;
        let mut room = if is_over { usize::MAX } else { PIPE_BYTES - stdin.in_pipe.len() };
        let mut taken = 0;
        while let Some(front) = stdin.pending.front_mut() {
            if front.is_empty() {
                stdin.ended = true;
                stdin.pending.clear();
                break;
            }
            let part = front.split_to(front.len().min(room));
            if part.is_empty() {
                break;
            }
            room -= part.len();
            taken += part.len() as u32;
            if !is_over {
                stdin.in_pipe.extend_from_slice(&part);
            }
            if front.is_empty() {
                stdin.pending.pop_front();
            }
        }
        if proc.doing == Doing::Stdin {
            self.next_step(id);
        }
        if taken > 0 && !self.nodes[node as usize].job_is_gone {
            self.tell_node(node, |job| Input::Job { job, event: JobEvent::StdinTaken { local, bytes: taken } });
        }
    }

    /// One attempt of a `ReadStdin` step.
    pub(crate) fn read_stdin(&mut self, id: u32) {
        let Proc { job, ref mut stdin, .. } = self.procs[id as usize];
        let bytes = std::mem::take(&mut stdin.in_pipe);
        let wrong = bytes.iter().zip(stdin.read..).any(|(byte, at)| *byte != workload::stdin_byte(job, at));
        stdin.read += bytes.len() as u64;
        self.checks.stdin_bytes += bytes.len() as u64;
        let (ended, read) = (stdin.ended, stdin.read);
        if wrong {
            return self.rank_problem(id, &format!("reads wrong standard input before byte {read}"));
        }
        self.procs[id as usize].doing = Doing::Stdin;
        self.schedule_stdin(id);
        if !ended {
            return;
        }
        if read != self.plan_of(id).stdin_bytes {
            return self.rank_problem(id, &format!("reads {read} bytes of standard input, then its end"));
        }
        self.step_done(id);
    }
}
