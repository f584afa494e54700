//! Reads the output of a job's ranks, or leaves it in their pipes while the state machine has paused the reading.

use crate::agent::token::{JobSlot, Token};
use crate::agent::turn::Turn;
use bytes::Bytes;
use std::io;
use std::os::fd::OwnedFd;
use wireup_os::reactor::Interest;
use wireup_proto::io::{Input, JobEvent, Stream};
use wireup_wire::ids::{JobId, LocalRank};

/// Time for which a pseudo-terminal is read after its rank has ended (ns): a grandchild may hold it open forever.
const TERMINAL_NS_MAX: u64 = 200_000_000;
/// Most reads of a pseudo-terminal after that time. The kernel's buffer of a terminal holds less than one read; what
/// follows is from other processes.
const READS_MAX: u32 = 8;

pub struct RankOutput {
    job: JobId,
    slot: JobSlot,
    /// Standard output and error of each rank; `None`: not open.
    pipes: Vec<[Option<OutputPipe>; 2]>,
    /// Whether standard output and error are not read for now; `parked`: the ranks whose pipes were removed from the
    /// reactor for this reason.
    paused: [bool; 2],
    parked: [Vec<LocalRank>; 2],
    /// Pseudo-terminals of ranks that have ended, which are still open.
    terminals: Vec<OpenTerminal>,
}

/// The pseudo-terminal of a rank that has ended, which a process that the rank has started may hold.
struct OpenTerminal {
    /// Time at which the terminal is read again, or given up (ns).
    until_ns: u64,
    local: LocalRank,
    /// Number of further reads that are made as long as the terminal holds more than fits into one read.
    reads_left: u32,
}

const fn index(stream: Stream) -> usize {
    stream as usize - 1
}

impl RankOutput {
    pub fn new(job: JobId, slot: JobSlot) -> RankOutput {
        let (pipes, parked) = (Vec::new(), Default::default());
        RankOutput { job, slot, pipes, paused: [false; 2], parked, terminals: Vec::new() }
    }

    /// Sets the number of the job's local ranks, which have no output yet.
    pub fn set_ranks(&mut self, count: usize) {
        self.pipes.resize_with(count, Default::default);
    }

    /// Takes over a stream of a rank that has started.
    pub fn watch(
        &mut self,
        local: LocalRank,
        stream: Stream,
        fd: OwnedFd,
        is_terminal: bool,
        turn: &mut Turn<'_>,
    ) -> io::Result<()> {
        turn.reactor.add(&fd, Token::Output(self.slot, local, stream).pack(), Interest::READABLE)?;
        self.pipes[local.index()][index(stream)] = Some(OutputPipe::new(fd, is_terminal));
        Ok(())
    }

    fn pipe(&mut self, local: LocalRank, stream: Stream) -> Option<&mut OutputPipe> {
        self.pipes.get_mut(local.index())?[index(stream)].as_mut()
    }

    /// A pipe of the rank's output is readable.
    pub fn on_readable(&mut self, local: LocalRank, stream: Stream, turn: &mut Turn<'_>) {
        if !self.paused[index(stream)] {
            self.pump(local, stream, turn);
            return;
        }
        let Some(pipe) = self.pipe(local, stream) else { return };
        if !std::mem::replace(&mut pipe.parked, true) {
            let _ = turn.reactor.remove(&pipe.fd);
            self.parked[index(stream)].push(local);
        }
    }

    /// Resumes or pauses reading one stream of all ranks.
    pub fn read_stdio(&mut self, stream: Stream, on: bool, turn: &mut Turn<'_>) {
        self.paused[index(stream)] = !on;
        if !on {
            return;
        }
        for local in std::mem::take(&mut self.parked[index(stream)]) {
            let token = Token::Output(self.slot, local, stream).pack();
            if let Some(pipe) = self.pipe(local, stream) {
                pipe.parked = turn.reactor.add(&pipe.fd, token, Interest::READABLE).is_err();
            }
        }
        // Pipes of ranks that ended while the stream was paused are read now: the reactor does not report an empty
        // pipe.
        for local in (0..self.pipes.len()).map(|rank| LocalRank(rank as u16)) {
            if self.pipe(local, stream).is_some_and(|pipe| pipe.left.is_some()) {
                self.pump(local, stream, turn);
            }
        }
    }

    fn pump(&mut self, local: LocalRank, stream: Stream, turn: &mut Turn<'_>) -> Pumped {
        let job = self.job;
        let Some(pipe) = self.pipe(local, stream) else { return Pumped::Closed };
        let Turn { buffer, inputs, .. } = turn;
        let pumped = pipe.pump(buffer, |bytes| {
            inputs.push(Input::Job { job, event: JobEvent::StdioBytes { local, stream, bytes } });
        });
        if pumped == Pumped::Closed {
            self.close(local, stream, turn);
        }
        pumped
    }

    fn close(&mut self, local: LocalRank, stream: Stream, turn: &mut Turn<'_>) {
        if let Some(pipe) = self.pipes[local.index()][index(stream)].take() {
            if !pipe.parked {
                let _ = turn.reactor.remove(&pipe.fd);
            }
            turn.push_event(self.job, JobEvent::StdioClosed { local, stream });
        }
    }

    /// The rank has ended: what it has left in its pipes is read.
    pub fn on_exited(&mut self, local: LocalRank, turn: &mut Turn<'_>) {
        for stream in [Stream::Out, Stream::Err] {
            let Some(pipe) = self.pipe(local, stream) else { continue };
            pipe.on_exit();
            if pipe.terminal {
                let until_ns = turn.now_ns + TERMINAL_NS_MAX;
                self.terminals.push(OpenTerminal { until_ns, local, reads_left: READS_MAX });
            }
            if !self.paused[index(stream)] {
                self.pump(local, stream, turn);
            }
        }
    }

    /// Every rank has ended with its keeper: from now on all output is read, even that of a paused stream.
    pub fn on_keeper_lost(&mut self) {
        self.paused = [false; 2];
    }

    /// Reads everything that a rank that has ended has left in its pipes.
    pub fn read_rest(&mut self, local: LocalRank, turn: &mut Turn<'_>) {
        for stream in [Stream::Out, Stream::Err] {
            while self.pipe(local, stream).is_some_and(|pipe| pipe.left.is_some()) {
                self.pump(local, stream, turn);
            }
        }
    }

    /// Gives up pseudo-terminals whose ranks have been gone for long. There is no time limit while the stream is
    /// paused.
    pub fn on_tick(&mut self, turn: &mut Turn<'_>) {
        let due: Vec<OpenTerminal> =
            self.terminals.extract_if(.., |terminal| terminal.until_ns <= turn.now_ns).collect();
        for OpenTerminal { local, reads_left, .. } in due {
            let until_ns = turn.now_ns + TERMINAL_NS_MAX;
            if self.paused[index(Stream::Out)] {
                self.terminals.push(OpenTerminal { until_ns, local, reads_left });
            } else if self.pump(local, Stream::Out, turn) == Pumped::More && reads_left > 0 {
                self.terminals.push(OpenTerminal { until_ns, local, reads_left: reads_left - 1 });
            } else {
                self.close(local, Stream::Out, turn);
            }
        }
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.terminals.iter().map(|terminal| terminal.until_ns).min()
    }
}

/// Most bytes per read of a rank's output; a rank that copies a large file fills each read.
pub const READ_BYTES: usize = 64 << 10;
/// Maximum number of reads of one stream in one turn of the event loop, so that a rank with much output does not delay
/// other ranks.
const READS_PER_TURN: usize = 4;

/// A rank's standard output or error.
pub struct OutputPipe {
    pub fd: OwnedFd,
    /// Whether the stream is a pseudo-terminal, which ends with `EIO` and does not report reliably how many bytes it
    /// holds.
    pub terminal: bool,
    /// Once the rank has ended: the number of bytes that it left in the pipe. Output of a grandchild that still holds
    /// the pipe is not read.
    pub left: Option<usize>,
    /// Whether the pipe is removed from the reactor until the job's stream is read again.
    pub parked: bool,
}

/// The result of reading a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pumped {
    /// As much has been read as one turn may read; the pipe may hold more.
    More,
    /// The pipe is empty for now; the reactor reports more.
    Later,
    /// The stream has ended.
    Closed,
}

impl OutputPipe {
    pub fn new(fd: OwnedFd, terminal: bool) -> Self {
        OutputPipe { fd, terminal, left: None, parked: false }
    }

    /// Notes that the rank has ended: from now on only the bytes that it left in the pipe are read.
    pub fn on_exit(&mut self) {
        if !self.terminal {
            self.left = Some(waiting_bytes(&self.fd));
        }
    }

    /// Fills the buffer. A read from a terminal returns at most 4 KiB, so terminals are read until the buffer is full
    /// or nothing is left.
    fn fill(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        let mut filled = rustix::io::read(&self.fd, &mut *buffer)?;
        while self.terminal && filled > 0 && filled < buffer.len() {
            match rustix::io::read(&self.fd, &mut buffer[filled..]) {
                Ok(read) if read > 0 => filled += read,
                // An end or an error here is not lost: the next read gets it again.
                _ => break,
            }
        }
        Ok(filled)
    }

    /// Reads at most [`READS_PER_TURN`] times.
    pub fn pump(&mut self, buffer: &mut [u8], mut give: impl FnMut(Bytes)) -> Pumped {
        for _ in 0..READS_PER_TURN {
            let length = self.left.unwrap_or(READ_BYTES).min(READ_BYTES);
            if length == 0 {
                return Pumped::Closed;
            }
            match self.fill(&mut buffer[..length]) {
                Ok(0) => return Pumped::Closed,
                Ok(read) => {
                    give(Bytes::copy_from_slice(&buffer[..read]));
                    if let Some(left) = &mut self.left {
                        *left -= read;
                    } else if read < length {
                        return Pumped::Later;
                    }
                }
                Err(rustix::io::Errno::AGAIN) if self.left.is_none() => return Pumped::Later,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Pumped::Closed,
            }
        }
        if self.left == Some(0) { Pumped::Closed } else { Pumped::More }
    }
}

/// The number of bytes waiting in a socket or pipe.
pub fn waiting_bytes(fd: &OwnedFd) -> usize {
    rustix::io::ioctl_fionread(fd).map_or(0, |bytes| bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;
    use wireup_os::reactor::Reactor;

    const LOCAL: LocalRank = LocalRank(1);

    struct Rig {
        reactor: Reactor,
        output: RankOutput,
    }

    impl Rig {
        fn is_readable(&mut self) -> bool {
            !self.reactor.wait(Some(Duration::ZERO)).unwrap().is_empty()
        }

        /// Returns the text that was read; `$`: the stream is closed.
        fn act(&mut self, act: impl FnOnce(&mut RankOutput, &mut Turn<'_>)) -> String {
            let (mut buffer, mut inputs) = (vec![0; 64 << 10], Vec::new());
            act(
                &mut self.output,
                &mut Turn { now_ns: 0, reactor: &self.reactor, buffer: &mut buffer, inputs: &mut inputs },
            );
            let texts = inputs.iter().map(|input| match input {
                Input::Job { event: JobEvent::StdioBytes { bytes, .. }, .. } => std::str::from_utf8(bytes).unwrap(),
                Input::Job { event: JobEvent::StdioClosed { .. }, .. } => "$",
                other => panic!("{other:?}"),
            });
            texts.collect()
        }
    }

    #[test]
    fn output_of_a_paused_stream_stays_in_its_pipe_even_if_the_rank_ends() {
        let mut rig = Rig { reactor: Reactor::new().unwrap(), output: RankOutput::new(JobId(1), JobSlot(0)) };
        rig.output.set_ranks(2);
        let (reader, mut writer) = io::pipe().unwrap();
        rig.act(|output, turn| output.watch(LOCAL, Stream::Out, reader.into(), false, turn).unwrap());
        rig.act(|output, turn| output.read_stdio(Stream::Out, false, turn));
        writer.write_all(b"one").unwrap();
        assert!(rig.is_readable());
        assert_eq!(rig.act(|output, turn| output.on_readable(LOCAL, Stream::Out, turn)), "");
        assert!(!rig.is_readable(), "the pipe is not watched while the stream is paused");
        assert_eq!(rig.act(|output, turn| output.read_stdio(Stream::Out, true, turn)), "");
        assert!(rig.is_readable());
        rig.act(|output, turn| output.read_stdio(Stream::Out, false, turn));
        assert_eq!(rig.act(|output, turn| output.on_exited(LOCAL, turn)), "");
        writer.write_all(b" of another process").unwrap();
        assert_eq!(rig.act(|output, turn| output.read_stdio(Stream::Out, true, turn)), "one$");
    }

    #[test]
    fn a_lost_keeper_ends_the_pause() {
        let mut rig = Rig { reactor: Reactor::new().unwrap(), output: RankOutput::new(JobId(1), JobSlot(0)) };
        rig.output.set_ranks(2);
        let (reader, mut writer) = io::pipe().unwrap();
        rig.act(|output, turn| output.watch(LOCAL, Stream::Err, reader.into(), false, turn).unwrap());
        rig.act(|output, turn| output.read_stdio(Stream::Err, false, turn));
        writer.write_all(b"last words").unwrap();
        rig.output.on_keeper_lost();
        assert_eq!(rig.act(|output, turn| output.on_exited(LOCAL, turn)), "last words$");
        assert_eq!(rig.act(|output, turn| output.read_rest(LOCAL, turn)), "");
    }
}
