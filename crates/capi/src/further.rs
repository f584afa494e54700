//! Joins this process's agent as a further library: beside the one that has the inherited socket (see `wireup_wire::further`).

use crate::ints;
use crate::mapping::Descriptor;
use crate::socket::{Socket, variable};
use alloc::vec::Vec;
use core::ffi::c_int;
use core::mem::{MaybeUninit, offset_of};
pub use wireup_wire::further::is_name;
use wireup_wire::further::{Answer, Hello, LOCAL_RANK_VARIABLE, VARIABLE, agent};
use wireup_wire::ids::LocalRank;
pub use wireup_wire::limits::FURTHER_PER_RANK_MAX as LIBRARIES_MAX;

/// How long an agent may take to answer (s). Chosen: as long as a new connection between agents may.
const ANSWER_S_MAX: c_int = 30;

/// Why a library cannot join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotJoined {
    /// A library of this process has, or has had, this name.
    Taken,
    /// The process has had too many libraries.
    Full,
    /// Descriptors have run out, here or in the agent.
    NoRoom,
    /// The agent cannot be reached from here, or does not know this process, or does not answer.
    NoAgent,
}

/// Whether this process's launcher lets further libraries join.
pub fn is_offered() -> bool {
    variable(VARIABLE).is_some()
}

/// Joins under a name that the other libraries of this process do not have.
///
/// # Errors
/// See [`NotJoined`].
pub fn join(name: &[u8]) -> Result<Socket, NotJoined> {
    let value = variable(VARIABLE).ok_or(NotJoined::NoAgent)?;
    let (job, agent) = agent(&value).ok_or(NotJoined::NoAgent)?;
    let local = variable(LOCAL_RANK_VARIABLE).and_then(|text| ints::parse::<u16>(&text));
    let hello = Hello { job, local: LocalRank(local.ok_or(NotJoined::NoAgent)?), name };
    let mailbox = Mailbox::new()?;
    mailbox.send(agent, &hello.encode())?;
    let (answer, socket) = mailbox.receive()?;
    match answer {
        Answer::Joined => socket.map(|socket| Socket::inherited(socket.into_raw())).ok_or(NotJoined::NoRoom),
        Answer::Taken => Err(NotJoined::Taken),
        Answer::Full => Err(NotJoined::Full),
        Answer::NoRoom => Err(NotJoined::NoRoom),
        Answer::NoRank => Err(NotJoined::NoAgent),
    }
}

/// A socket for datagrams, with a name that the kernel has chosen, so that it can be answered.
struct Mailbox(Descriptor);

impl Mailbox {
    fn new() -> Result<Mailbox, NotJoined> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
        if fd < 0 {
            return Err(NotJoined::NoRoom);
        }
        let mailbox = Mailbox(Descriptor::new(fd));
        let limit = libc::timeval { tv_sec: ANSWER_S_MAX.into(), tv_usec: 0 };
        let len = size_of::<libc::timeval>() as libc::socklen_t;
        let own = address(&[]);
        // SAFETY: pointers and lengths are those of the values.
        let is_ready = unsafe {
            [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO]
                .iter()
                .all(|option| libc::setsockopt(fd, libc::SOL_SOCKET, *option, (&raw const limit).cast(), len) == 0)
                && libc::bind(fd, (&raw const own.0).cast(), own.1) == 0
        };
        if is_ready { Ok(mailbox) } else { Err(NotJoined::NoRoom) }
    }

    fn send(&self, to: &[u8], bytes: &[u8]) -> Result<(), NotJoined> {
        if to.len() >= PATH_BYTES {
            return Err(NotJoined::NoAgent);
        }
        let to = address(to);
        // SAFETY: pointers and lengths are those of the values.
        let sent = unsafe {
            libc::sendto(
                self.0.fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
                (&raw const to.0).cast(),
                to.1,
            )
        };
        if sent < 0 { Err(NotJoined::NoAgent) } else { Ok(()) }
    }

    fn receive(&self) -> Result<(Answer, Option<Descriptor>), NotJoined> {
        let (mut descriptors, mut answer) = (Vec::new(), None);
        let socket = Socket::inherited(self.0.fd());
        if !socket.await_input(1_000 * ANSWER_S_MAX) {
            return Err(NotJoined::NoAgent);
        }
        let received = socket.receive(&mut descriptors, &mut |bytes| answer = Answer::decode(bytes));
        received.ok().and(answer).map(|answer| (answer, descriptors.pop())).ok_or(NotJoined::NoAgent)
    }
}

const PATH_BYTES: usize = 108;

/// An abstract address; without a name, the kernel chooses one.
fn address(name: &[u8]) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: the structure consists of numbers.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    address.sun_path[1..].iter_mut().zip(name).for_each(|(to, from)| *to = *from as libc::c_char);
    let named = if name.is_empty() { 0 } else { 1 + name.len() };
    (address, (offset_of!(libc::sockaddr_un, sun_path) + named) as libc::socklen_t)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    #[test]
    fn an_agent_is_asked_and_answers() {
        let name = std::format!("wireup-test-{}", std::process::id());
        let agent = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let mailbox = Mailbox::new().unwrap();
        mailbox.send(name.as_bytes(), b"hello").unwrap();
        let mut bytes = [0; 16];
        let (len, from) = agent.recv_from(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"hello");
        agent.send_to_addr(&[Answer::Taken.encode()], &from).unwrap();
        assert!(matches!(mailbox.receive(), Ok((Answer::Taken, None))));
        agent.send_to_addr(b"something else", &from).unwrap();
        assert!(matches!(mailbox.receive(), Err(NotJoined::NoAgent)));
        drop(agent);
        assert_eq!(mailbox.send(name.as_bytes(), b"hello"), Err(NotJoined::NoAgent));
        assert_eq!(mailbox.send(&[b'x'; 200], b"hello"), Err(NotJoined::NoAgent));
    }
}
