//! Standard streams of the ranks: pipes of limited size between each rank and its agent's driver.

use crate::clock::Event;
use crate::cx::Cx;
use crate::jobs::{Jobs, Node};
use crate::ranks::{Doing, Proc};
use crate::workload;
use bytes::Bytes;
use std::collections::VecDeque;
use wireup_proto::io::{JobEvent, Stream};
use wireup_wire::limits::STDIO_CHUNK_MAX;

/// The capacity of a pipe (bytes).
const PIPE_BYTES: usize = 64 << 10;

/// The pipe of a rank's standard output or error.
#[derive(Debug)]
pub struct Pipe {
    /// Number of the rank among the ranks of all jobs; `stream`: 1 or 2.
    id: u32,
    stream: u8,
    bytes: Vec<u8>,
    /// Number of lines written so far.
    pub lines: u32,
    /// Whether a read of the pipe is scheduled.
    due: bool,
    /// Whether the driver has reported the end of the pipe to the agent.
    closed: bool,
}

/// The pipe of a rank's standard input.
#[derive(Debug)]
pub struct StdinPipe {
    id: u32,
    /// Bytes that the agent has written and that do not yet fit into the pipe.
    pending: VecDeque<Bytes>,
    in_pipe: Vec<u8>,
    /// The number of bytes that the rank has read.
    read: u64,
    ended: bool,
    due: bool,
}

impl Pipe {
    pub fn new(id: u32, stream: u8) -> Self {
        Pipe { id, stream, bytes: Vec::new(), lines: 0, due: false, closed: false }
    }

    /// Writes lines as long as the pipe has room; returns their number.
    pub fn write(&mut self, lines_max: u32, line_bytes: u16) -> u32 {
        let before = self.lines;
        while self.lines < before + lines_max && self.bytes.len() < PIPE_BYTES {
            workload::line(self.stream, self.id, self.lines, line_bytes, &mut self.bytes);
            self.lines += 1;
        }
        self.lines - before
    }

    /// Schedules a read, if the driver is to read this stream and the pipe has bytes or has ended.
    pub fn schedule_read(&mut self, cx: &mut Cx, node: &Node, writer_is_over: bool) {
        let has_something = writer_is_over || !self.bytes.is_empty();
        if has_something && !self.due && !self.closed && node.reads(self.stream) {
            self.due = true;
            cx.after(cx.spec.timing.stdio, Event::StdioRead(self.id, self.stream));
        }
    }

    /// Reads all bytes in the pipe, or sometimes only some of them.
    fn read(&mut self, cx: &mut Cx) -> Bytes {
        let most = self.bytes.len().min(STDIO_CHUNK_MAX);
        let some = cx.rng.between(1, most as u64) as usize;
        let take = if cx.rng.chance(700) { most } else { some };
        let rest = self.bytes.split_off(take);
        Bytes::from(std::mem::replace(&mut self.bytes, rest))
    }
}

impl StdinPipe {
    pub fn new(id: u32) -> Self {
        StdinPipe { id, pending: VecDeque::new(), in_pipe: Vec::new(), read: 0, ended: false, due: false }
    }

    /// The agent writes bytes into the pipe; empty `bytes` mean the end of the standard input.
    pub fn write(&mut self, cx: &mut Cx, bytes: Bytes) {
        self.pending.push_back(bytes);
        self.schedule(cx);
    }

    pub fn schedule(&mut self, cx: &mut Cx) {
        if !self.due && !self.pending.is_empty() {
            self.due = true;
            cx.after(cx.spec.timing.stdio, Event::StdinMove(self.id));
        }
    }

    /// Moves the bytes that fit into the pipe; if the rank has ended, all bytes are discarded. Returns the number of
    /// bytes moved.
    fn fill(&mut self, is_over: bool) -> u32 {
        let mut room = if is_over { usize::MAX } else { PIPE_BYTES - self.in_pipe.len() };
        let mut taken = 0;
        while let Some(front) = self.pending.front_mut() {
            if front.is_empty() {
                self.ended = true;
                self.pending.clear();
                break;
            }
            let part = front.split_to(front.len().min(room));
            if part.is_empty() {
                break;
            }
            room -= part.len();
            taken += part.len() as u32;
            if !is_over {
                self.in_pipe.extend_from_slice(&part);
            }
            if front.is_empty() {
                self.pending.pop_front();
            }
        }
        taken
    }

    /// The rank reads the bytes in its pipe. Returns true if it has read at least `until` bytes so far, or is at the
    /// end of `all_bytes`, the length of the launcher's standard input.
    pub fn read(&mut self, cx: &mut Cx, job: u32, all_bytes: u64, until: u64) -> Result<bool, String> {
        let bytes = std::mem::take(&mut self.in_pipe);
        // No branch for each byte, so that the processor compares many bytes at once: all nodes read the staged bytes.
        let first = self.read as u32;
        let compare =
            |differs, (at, byte): (u32, &u8)| differs | byte ^ workload::stdin_byte(job, first.wrapping_add(at));
        let wrong = (0..).zip(&bytes).fold(0, compare) != 0;
        self.read += bytes.len() as u64;
        cx.checks.stdin_bytes += bytes.len() as u64;
        if wrong {
            return Err(format!("reads wrong standard input before byte {}", self.read));
        }
        self.schedule(cx);
        if self.ended && self.read != all_bytes {
            return Err(format!("reads {} bytes of standard input, then its end", self.read));
        }
        Ok(self.ended || self.read >= until)
    }
}

/// The work of the agent's driver on the streams of a rank.
impl Proc {
    /// The driver reads from a pipe of a rank; `None`: there is nothing to report to the agent.
    pub fn on_stdio_read(&mut self, cx: &mut Cx, node: &Node, stream: u8) -> Option<JobEvent> {
        let (local, is_over) = (self.local, self.is_over());
        let pipe = &mut self.pipes[usize::from(stream) - 1];
        pipe.due = false;
        if !node.reading[usize::from(stream) - 1] || node.job_is_gone {
            return None;
        }
        if !self.start_is_known {
            // The agent receives the pipe only with the report that the rank runs; that report schedules the read.
            return None;
        }
        let stream = if stream == 1 { Stream::Out } else { Stream::Err };
        if pipe.bytes.is_empty() {
            pipe.closed = is_over;
            return is_over.then_some(JobEvent::StdioClosed { local, stream });
        }
        let bytes = pipe.read(cx);
        let has_room = pipe.bytes.len() < PIPE_BYTES;
        if has_room && self.doing == Doing::PipeSpace && self.is_running() {
            self.next_step(cx);
        }
        Some(JobEvent::StdioBytes { local, stream, bytes })
    }

    /// Schedules the driver's read of a pipe, if the driver can read the pipe.
    pub fn schedule_read(&mut self, cx: &mut Cx, node: &Node, stream: u8) {
        let is_over = self.is_over();
        self.pipes[usize::from(stream) - 1].schedule_read(cx, node, is_over);
    }

    /// The driver moves bytes that the agent has written to a rank's standard input into the pipe of that rank.
    pub fn on_stdin_move(&mut self, cx: &mut Cx, node: &Node) -> Option<JobEvent> {
        self.stdin.due = false;
        let bytes = self.stdin.fill(!self.exists());
        if self.doing == Doing::Stdin {
            self.next_step(cx);
        }
        let is_told = bytes > 0 && !node.job_is_gone;
        is_told.then_some(JobEvent::StdinTaken { local: self.local, bytes })
    }
}

impl Jobs {
    /// The agent's driver starts or stops reading a stream of a node's ranks.
    pub fn read_stdio(&mut self, cx: &mut Cx, node: u32, stream: Stream, on: bool) {
        let at = &mut self.nodes[node as usize];
        if std::mem::replace(&mut at.reading[stream as usize - 1], on) != on {
            at.ranks.iter().for_each(|id| self.procs[*id as usize].schedule_read(cx, at, stream as u8));
        }
    }
}
