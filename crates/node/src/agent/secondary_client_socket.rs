//! The socket at which secondary clients (PMI libraries in a rank, other than the one that has the inherited socket)
//! connect: the client sends a datagram, and the answer carries its end of a new pair of sockets.
//!
//! The socket's name is in the environment of ranks. Any process of this machine (in the same network namespace) can
//! send to it; only processes of this process's user are answered. So a client can connect as any rank of that user's
//! jobs on this node, which may trace each other's memory anyway.

use super::jobs::Jobs;
use super::token::Token;
use super::turn::Turn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use wireup_os::local::{self, Letter};
use wireup_os::reactor::{Interest, Reactor};
use wireup_wire::secondary_client::{Answer, HELLO_LEN_MAX, Hello};

/// The beginning of the socket's name.
const KIND: &[u8] = b"wireup-further-";
/// Maximum number of datagrams handled in one turn of the event loop, so that a busy sender does not delay others.
/// Chosen: as many as the kernel lets wait by default.
const LETTERS_PER_TURN: usize = 10;

#[derive(Default)]
pub struct SecondaryClientSocket {
    mailbox: Option<(OwnedFd, String)>,
}

impl SecondaryClientSocket {
    /// The socket's name; the first call makes the socket. `None`: the system has no room for the socket, and no
    /// secondary client can connect.
    pub fn name(&mut self, reactor: &Reactor) -> Option<&str> {
        if self.mailbox.is_none() {
            let (socket, name) = local::mailbox(KIND).ok()?;
            reactor.add(&socket, Token::SecondaryClients.pack(), Interest::READABLE).ok()?;
            self.mailbox = Some((socket, String::from_utf8(name).ok()?));
        }
        self.mailbox.as_ref().map(|(_, name)| name.as_str())
    }

    /// The socket is readable.
    pub fn on_event(&self, jobs: &mut Jobs, turn: &mut Turn<'_>) {
        let Some((socket, _)) = &self.mailbox else { return };
        // One byte more than the longest datagram, so that a longer one is noticed.
        let mut bytes = [0; HELLO_LEN_MAX + 1];
        for _ in 0..LETTERS_PER_TURN {
            let letter = match local::receive_letter(socket, &mut bytes) {
                Ok(letter) => letter,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => continue,
            };
            let hello = Hello::decode(&bytes[..letter.bytes]).filter(|_| is_own(&letter));
            let Some(hello) = hello else { continue };
            let joined = match jobs.get_mut(&hello.job) {
                Some(ranks) => ranks.clients.on_hello(&hello, turn),
                None => Err(Answer::NoRank),
            };
            // An error is ignored: a client that does not get its end of the pair cannot use it, and both ends are
            // closed.
            let _ = match &joined {
                Ok(far) => local::answer_letter(socket, &letter, &[Answer::Joined.encode()], &[far.as_fd()]),
                Err(answer) => local::answer_letter(socket, &letter, &[answer.encode()], &[]),
            };
        }
    }
}

fn is_own(letter: &Letter) -> bool {
    letter.user == rustix::process::geteuid().as_raw()
}
