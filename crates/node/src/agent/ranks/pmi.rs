//! The PMI sockets of ranks: reads requests, writes replies.

use super::{JobRanks, RankIo};
use crate::agent::memory::Shared;
use crate::agent::outgoing::{Outgoing, WriteState};
use crate::agent::pipes::{READ_BYTES, read_requests, waiting_bytes};
use crate::agent::token::{JobSlot, Token};
use crate::agent::turn::Turn;
use bytes::Bytes;
use std::io;
use std::os::fd::OwnedFd;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_proto::io::{Input, JobEvent};
use wireup_wire::ids::{Client, LocalRank};

/// The agent's end of a conversation with a PMI library in a rank.
#[derive(Default)]
pub struct PmiSocket {
    pub out: Outgoing,
    /// Whether the rank must read before more can be written.
    pub is_blocked: bool,
}

impl PmiSocket {
    /// Without a socket there is no conversation.
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn watched(fd: Option<OwnedFd>, slot: JobSlot, client: Client, reactor: &Reactor) -> io::Result<Self> {
        if let Some(fd) = &fd {
            reactor.add(fd, Token::Pmi(slot, client).pack(), Interest::READABLE)?;
        }
        Ok(PmiSocket { out: fd.map_or_else(Outgoing::default, Outgoing::to), is_blocked: false })
    }
}

impl RankIo {
    fn socket(&mut self, client: Client) -> Option<&mut PmiSocket> {
        self.pmi.get_mut(usize::from(client.number)).filter(|socket| socket.out.fd.is_some())
    }
}

impl JobRanks {
    fn socket(&mut self, client: Client) -> Option<&mut PmiSocket> {
        self.ranks.get_mut(client.local.index())?.socket(client)
    }

    /// A PMI socket is ready.
    pub fn on_pmi_event(&mut self, client: Client, event: Event, turn: &mut Turn<'_>) {
        if event.writable {
            self.flush_pmi(client, turn.reactor);
        }
        if event.hangup || event.readable {
            self.on_pmi(client, turn);
        }
    }

    /// A PMI socket is readable.
    fn on_pmi(&mut self, client: Client, turn: &mut Turn<'_>) {
        let job = self.job;
        let Some(out) = self.socket(client).map(|socket| &mut socket.out) else { return };
        let Some(fd) = &out.fd else { return };
        match read_requests(fd, turn.buffer) {
            Ok(Some(bytes)) if !bytes.is_empty() => {
                turn.inputs.push(Input::Job { job, event: JobEvent::ClientBytes { client, bytes } })
            }
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => {
                let _ = turn.reactor.remove(fd);
                out.fd = None;
                turn.inputs.push(Input::Job { job, event: JobEvent::ClientGone { client } });
            }
        }
    }

    /// The rank has ended: reads the requests that it had sent and no more, even if another process holds the sockets.
    pub(super) fn on_last_pmi(&mut self, local: LocalRank, turn: &mut Turn<'_>) {
        for number in 0..self.ranks[local.index()].pmi.len() as u16 {
            let client = Client { local, number };
            let Some(waiting) = self.socket(client).and_then(|socket| socket.out.fd.as_ref()).map(waiting_bytes) else {
                continue;
            };
            for _ in 0..waiting.div_ceil(READ_BYTES) {
                self.on_pmi(client, turn);
            }
            if let Some(fd) = self.socket(client).and_then(|socket| socket.out.fd.take()) {
                let _ = turn.reactor.remove(&fd);
                turn.inputs.push(Input::Job { job: self.job, event: JobEvent::ClientGone { client } });
            }
        }
        self.ranks[local.index()].pmi.clear();
    }

    /// Sends PMI bytes, and with them descriptors of shared memory. While a client does not read its replies, its
    /// requests are not read either.
    pub fn reply(&mut self, client: Client, bytes: Bytes, shares: Vec<Shared>, reactor: &Reactor) {
        if self.socket(client).is_some_and(|socket| !socket.out.write_now(bytes, shares)) {
            self.flush_pmi(client, reactor);
        }
    }

    pub fn flush_pmi(&mut self, client: Client, reactor: &Reactor) {
        let token = Token::Pmi(self.slot, client).pack();
        let Some(out) = self.socket(client).map(|socket| &mut socket.out) else { return };
        let (state, is_closing) = (out.flush().state, out.closing);
        let blocked = match state {
            WriteState::Idle => false,
            WriteState::Full => true,
            // No event reports that fewer descriptors are in flight, and the socket itself has room.
            WriteState::FdLimit => {
                self.fd_backoff.push(client);
                false
            }
            // The end of file that follows is reported to the state machine.
            WriteState::Closed if !is_closing => false,
            WriteState::Closed => {
                if let Some(fd) = out.fd.take() {
                    let _ = reactor.remove(&fd);
                }
                return;
            }
        };
        if let Some(socket) = self.socket(client)
            && blocked != std::mem::replace(&mut socket.is_blocked, blocked)
            && let Some(fd) = &socket.out.fd
        {
            let interest = if blocked { Interest::WRITABLE } else { Interest::READABLE };
            let _ = reactor.modify(fd, token, interest);
        }
    }

    pub fn close_client(&mut self, client: Client, reactor: &Reactor) {
        if let Some(socket) = self.socket(client) {
            socket.out.closing = true;
            self.flush_pmi(client, reactor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::keepers::Keepers;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    use wireup_proto::io::KernelSession;
    use wireup_wire::ids::JobId;

    /// One turn of the reactor; returns the inputs for the state machine.
    fn turn(job: &mut JobRanks, reactor: &mut Reactor) -> Vec<Input> {
        let events = reactor.wait(Some(Duration::ZERO)).unwrap().to_vec();
        let (mut buffer, mut inputs) = (vec![0; 64 << 10], Vec::new());
        let turn = &mut Turn { now_ns: 0, reactor, buffer: &mut buffer, inputs: &mut inputs };
        for event in events {
            if let Some(Token::Pmi(_, client)) = Token::unpack(event.token) {
                job.on_pmi_event(client, event, turn);
            }
        }
        inputs
    }

    #[test]
    fn a_rank_with_unread_replies_is_not_read() {
        const REPLY_BYTES: usize = 4 << 20;
        let mut reactor = Reactor::new().unwrap();
        let mut job =
            JobRanks::begin(JobId(1), JobSlot(1), KernelSession::Own, &mut Keepers::default(), &reactor).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let client: Client = LocalRank(0).into();
        let socket = PmiSocket::watched(Some(ours.into()), JobSlot(1), client, &reactor).unwrap();
        job.ranks.push(RankIo { pmi: vec![socket], ..RankIo::default() });
        theirs.write_all(b"cmd=get\n").unwrap();
        job.reply(client, vec![7; REPLY_BYTES].into(), Vec::new(), &reactor);
        assert!(job.ranks[0].pmi[0].is_blocked);
        assert!(turn(&mut job, &mut reactor).is_empty());
        let reader = std::thread::spawn(move || theirs.read_exact(&mut vec![0; REPLY_BYTES]).map(|()| theirs));
        let read = (0..).map(|_| turn(&mut job, &mut reactor)).find(|inputs| !inputs.is_empty()).unwrap();
        assert!(
            matches!(
                &read[..],
                [Input::Job { event: JobEvent::ClientBytes { bytes, .. }, .. }] if bytes == &b"cmd=get\n"[..]
            ),
            "{read:?}"
        );
        drop(reader.join().unwrap().unwrap());
        let _ = job.into_keeper().into_keeper(&reactor).close();
    }
}
