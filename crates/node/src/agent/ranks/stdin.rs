//! Passes input to ranks: standard input, and the size of a terminal.

use super::JobRanks;
use crate::agent::outgoing::{Outgoing, WriteState};
use crate::agent::token::Token;
use crate::agent::turn::Turn;
use bytes::Bytes;
use wireup_proto::io::{Input, JobEvent};
use wireup_wire::ids::LocalRank;

impl JobRanks {
    /// Bytes for the rank's standard input; empty: its end.
    pub fn write_stdin(&mut self, local: LocalRank, bytes: Bytes, turn: &mut Turn<'_>) {
        if let Some(rank) = self.ranks.get_mut(local.index()) {
            if bytes.is_empty() {
                rank.stdin.closing = true;
                if rank.terminal {
                    // ^D on an empty line ends a terminal's input; elsewhere ^D only passes the line on.
                    let end: &[u8] = if rank.line_open { &[4, 4] } else { &[4] };
                    rank.stdin.push(Bytes::from_static(end));
                    rank.stdin.closing = false;
                }
            } else {
                rank.line_open = bytes.last() != Some(&b'\n');
                rank.stdin.push(bytes);
            }
            self.flush_stdin(local, turn);
        }
    }

    pub fn flush_stdin(&mut self, local: LocalRank, turn: &mut Turn<'_>) {
        let (job, token) = (self.job, Token::Stdin(self.slot, local).pack());
        let Some(rank) = self.ranks.get_mut(local.index()) else {
            return;
        };
        let stdin = &mut rank.stdin;
        let wrote = stdin.flush();
        if wrote.bytes > 0 {
            turn.inputs.push(Input::Job { job, event: JobEvent::StdinTaken { local, bytes: wrote.bytes as u32 } });
        }
        let Some(fd) = &stdin.fd else {
            return;
        };
        match wrote.state {
            WriteState::Full if !std::mem::replace(&mut stdin.watched, true) => {
                let _ = turn.reactor.add(fd, token, stdin.room());
            }
            WriteState::Idle if std::mem::replace(&mut stdin.watched, false) => {
                let _ = turn.reactor.remove(fd);
            }
            WriteState::Full | WriteState::Idle | WriteState::FdLimit => {}
            WriteState::Closed => {
                if stdin.watched {
                    let _ = turn.reactor.remove(fd);
                }
                *stdin = Outgoing::vanished();
            }
        }
    }

    pub fn resize(&mut self, local: LocalRank, rows: u16, columns: u16) {
        if let Some(rank) = self.ranks.get(local.index()).filter(|rank| rank.terminal)
            && let Some(fd) = &rank.stdin.fd
        {
            // If a terminal cannot be resized, it keeps its size.
            let _ = wireup_os::pty::resize(fd, rows, columns);
        }
    }
}
