//! The PMI sockets of ranks: reads requests, writes replies.

use super::JobRanks;
use crate::agent::memory::Shared;
use crate::agent::outgoing::WriteState;
use crate::agent::pipes::{READ_BYTES, read_requests, waiting_bytes};
use crate::agent::token::Token;
use crate::agent::turn::Turn;
use bytes::Bytes;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_proto::io::Input;
use wireup_wire::ids::LocalRank;

impl JobRanks {
    /// The rank's PMI socket is ready.
    pub fn on_pmi_event(&mut self, local: LocalRank, event: Event, turn: &mut Turn<'_>) {
        if event.writable {
            self.flush_pmi(local, turn.reactor);
        }
        // During a rest requests wait in their sockets, but the end of a rank is handled.
        if event.hangup || (event.readable && !self.is_resting()) {
            self.on_pmi(local, turn);
        }
    }

    /// The rank's PMI socket is readable.
    fn on_pmi(&mut self, local: LocalRank, turn: &mut Turn<'_>) {
        let job = self.job;
        let Some(rank) = self.ranks.get_mut(local.index()) else {
            return;
        };
        let Some(fd) = &rank.pmi.fd else {
            return;
        };
        match read_requests(fd, turn.buffer) {
            Ok(Some(bytes)) if !bytes.is_empty() => turn.inputs.push(Input::ClientBytes { job, local, bytes }),
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => {
                let _ = turn.reactor.remove(fd);
                rank.pmi.fd = None;
                turn.inputs.push(Input::ClientGone { job, local });
            }
        }
    }

    /// The rank is gone: reads what it had sent and no more, even if another process holds the socket.
    pub(super) fn on_last_pmi(&mut self, local: LocalRank, turn: &mut Turn<'_>) {
        let waiting = self.ranks[local.index()].pmi.fd.as_ref().map_or(0, waiting_bytes);
        for _ in 0..waiting.div_ceil(READ_BYTES) {
            self.on_pmi(local, turn);
        }
        if let Some(fd) = self.ranks[local.index()].pmi.fd.take() {
            let _ = turn.reactor.remove(&fd);
            turn.inputs.push(Input::ClientGone { job: self.job, local });
        }
    }

    /// Sends PMI bytes, and with them descriptors of shared memory. While a client does not read its replies, its requests are not
    /// read either.
    pub fn reply(&mut self, local: LocalRank, bytes: Bytes, shares: Vec<Shared>, reactor: &Reactor) {
        if let Some(rank) = self.ranks.get_mut(local.index()).filter(|rank| rank.pmi.fd.is_some())
            && !rank.pmi.write_now(bytes, shares)
        {
            self.flush_pmi(local, reactor);
        }
    }

    pub fn flush_pmi(&mut self, local: LocalRank, reactor: &Reactor) {
        let (token, resting) = (Token::Pmi(self.slot, local).pack(), self.is_resting());
        let Some(rank) = self.ranks.get_mut(local.index()) else {
            return;
        };
        let blocked = match rank.pmi.flush().state {
            WriteState::Idle => false,
            WriteState::Full => true,
            // No event reports an improvement, and the socket itself has room.
            WriteState::FdLimit => {
                self.fd_backoff.push(local);
                false
            }
            // The end of file that follows is reported to the state machine.
            WriteState::Closed if !rank.pmi.closing => false,
            WriteState::Closed => {
                if let Some(fd) = rank.pmi.fd.take() {
                    let _ = reactor.remove(&fd);
                }
                return;
            }
        };
        if blocked != std::mem::replace(&mut rank.pmi_blocked, blocked)
            && let Some(fd) = &rank.pmi.fd
        {
            let _ = reactor.modify(fd, token, interest(blocked, resting));
        }
    }

    pub fn close_client(&mut self, local: LocalRank, reactor: &Reactor) {
        if let Some(rank) = self.ranks.get_mut(local.index()) {
            rank.pmi.closing = true;
            self.flush_pmi(local, reactor);
        }
    }
}

/// The events to watch on a rank's PMI socket.
pub(super) fn interest(blocked: bool, resting: bool) -> Interest {
    match (blocked, resting) {
        (true, _) => Interest::WRITABLE,
        (false, true) => Interest::NONE,
        (false, false) => Interest::READABLE,
    }
}
