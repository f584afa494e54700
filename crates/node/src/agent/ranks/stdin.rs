//! Passes input to a job's ranks: standard input, and the size of a terminal.

use crate::agent::outgoing::{Outgoing, WriteState};
use crate::agent::token::{JobSlot, Token};
use crate::agent::turn::Turn;
use bytes::Bytes;
use std::os::fd::OwnedFd;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::{JobEvent, SpawnPlan};
use wireup_wire::ids::{JobId, LocalRank};
use wireup_wire::job::StdinTarget;

pub struct RankStdin {
    job: JobId,
    slot: JobSlot,
    ranks: Vec<Stdin>,
}

struct Stdin {
    out: Outgoing,
    is_terminal: bool,
    /// Whether the last byte passed to the rank was not a newline.
    line_open: bool,
}

impl RankStdin {
    pub fn new(job: JobId, slot: JobSlot) -> RankStdin {
        RankStdin { job, slot, ranks: Vec::new() }
    }

    /// Prepares the input of a job's ranks. Bytes for a rank that has not started yet are queued.
    pub fn set_ranks(&mut self, plan: &SpawnPlan) {
        let by_memory = plan.stdio.stdin == StdinTarget::AllByMemory;
        let ranks = plan.ranks.iter().map(|rank| Stdin {
            out: if by_memory { Outgoing::by_memory() } else { Outgoing::default() },
            is_terminal: rank.pty.is_some(),
            line_open: false,
        });
        self.ranks = ranks.collect();
    }

    /// Whether the rank has a terminal, which is its standard output too.
    pub fn is_terminal(&self, local: LocalRank) -> bool {
        self.ranks.get(local.index()).is_some_and(|rank| rank.is_terminal)
    }

    /// The rank has started: takes over its standard input; `None`: it reads none.
    pub fn adopt(&mut self, local: LocalRank, fd: Option<OwnedFd>, turn: &mut Turn<'_>) {
        self.ranks[local.index()].out.fd = fd;
        self.flush(local, turn);
    }

    /// Writes or queues bytes for the rank's standard input; no bytes mean its end.
    pub fn write(&mut self, local: LocalRank, bytes: Bytes, turn: &mut Turn<'_>) {
        let Some(Stdin { out, is_terminal, line_open }) = self.ranks.get_mut(local.index()) else { return };
        if !bytes.is_empty() {
            *line_open = bytes.last() != Some(&b'\n');
            out.push(bytes);
        } else if *is_terminal {
            // ^D on an empty line ends a terminal's input; elsewhere ^D only passes the line on.
            out.push(Bytes::from_static(if *line_open { &[4, 4] } else { &[4] }));
        } else {
            out.closing = true;
        }
        self.flush(local, turn);
    }

    /// Writes what fits.
    pub fn flush(&mut self, local: LocalRank, turn: &mut Turn<'_>) {
        let (job, token) = (self.job, Token::Stdin(self.slot, local));
        let Some(out) = self.ranks.get_mut(local.index()).map(|rank| &mut rank.out) else { return };
        let wrote = out.flush();
        if wrote.bytes > 0 {
            turn.push_event(job, JobEvent::StdinTaken { local, bytes: wrote.bytes as u32 });
        }
        match wrote.state {
            WriteState::Full => out.watch(out.room(), token, turn.reactor),
            WriteState::Idle => out.watch(Interest::NONE, token, turn.reactor),
            WriteState::FdLimit => {}
            WriteState::Closed => out.vanish(turn.reactor),
        }
    }

    /// The rank reads no more, for example because it has ended: all further bytes for it count as written.
    pub fn close(&mut self, local: LocalRank, reactor: &Reactor) {
        if let Some(rank) = self.ranks.get_mut(local.index()) {
            rank.out.vanish(reactor);
        }
    }

    pub fn resize(&mut self, local: LocalRank, rows: u16, columns: u16) {
        if let Some(rank) = self.ranks.get(local.index()).filter(|rank| rank.is_terminal)
            && let Some(fd) = &rank.out.fd
        {
            // If a terminal cannot be resized, it keeps its size.
            let _ = wireup_os::pty::resize(fd, rows, columns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Read};
    use wireup_proto::io::Input;

    #[test]
    fn the_end_of_a_terminals_input_is_a_character_and_that_of_a_pipe_closes_it() {
        for (is_terminal, input, expected) in
            [(true, "a\n", &b"a\n\x04"[..]), (true, "a", b"a\x04\x04"), (false, "a", b"a")]
        {
            let (mut reader, writer) = io::pipe().unwrap();
            let (reactor, mut inputs) = (Reactor::new().unwrap(), Vec::new());
            let turn = &mut Turn { now_ns: 0, reactor: &reactor, buffer: &mut [], inputs: &mut inputs };
            let rank = Stdin { out: Outgoing::default(), is_terminal, line_open: false };
            let mut stdin = RankStdin { job: JobId(1), slot: JobSlot(0), ranks: vec![rank] };
            let local = LocalRank(0);
            stdin.write(local, Bytes::from_static(input.as_bytes()), turn);
            stdin.write(local, Bytes::new(), turn);
            stdin.adopt(local, Some(writer.into()), turn);
            assert_eq!(stdin.ranks[0].out.fd.is_some(), is_terminal);
            stdin.close(local, turn.reactor);
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            assert_eq!(read, expected);
            stdin.write(local, Bytes::from_static(b"late"), turn);
            let taken = inputs.iter().map(|input| match input {
                Input::Job { event: JobEvent::StdinTaken { bytes, .. }, .. } => *bytes as usize,
                other => panic!("{other:?}"),
            });
            assert_eq!(taken.collect::<Vec<_>>(), [expected.len(), 4]);
        }
    }
}
