//! Joins this process's agent as a secondary client: another library of this process has the inherited socket (see
//! `wireup_wire::secondary_client`).
//!
//! Any process of the machine can bind the agent's name, and send to a socket that has a name. So this process's socket
//! is connected to the agent's before it gets a name: from then on the kernel refuses datagrams of every other socket.
//! The answer counts only if the kernel says that a process of this user has sent it: then the agent's name has not
//! been taken by another user.

use crate::mapping::Descriptor;
use crate::server::Socket;
use crate::text::variable;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::mem::{MaybeUninit, offset_of};
use wireup_client::number;
use wireup_wire::ids::LocalRank;
pub use wireup_wire::limits::SECONDARY_CLIENTS_PER_RANK_MAX as LIBRARIES_MAX;
pub use wireup_wire::secondary_client::is_name;
use wireup_wire::secondary_client::{Answer, Hello, LOCAL_RANK_VARIABLE, VARIABLE, agent};

/// How long an agent may take to answer (s). Chosen: as long as a new connection between agents may.
const ANSWER_S_MAX: c_int = 30;

/// Why a library cannot connect to its process's agent as a secondary client.
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
    /// A process of another user answers at the agent's name, or the kernel does not tell this process which user's it
    /// is.
    Foreign,
}

/// Whether this process's launcher lets further libraries connect to the agent.
pub fn is_offered() -> bool {
    variable(VARIABLE).is_some()
}

/// Connects to this process's agent, under a name that no other library of this process has.
///
/// # Errors
/// See [`NotJoined`].
pub fn join(name: &[u8]) -> Result<Socket, NotJoined> {
    let value = variable(VARIABLE).ok_or(NotJoined::NoAgent)?;
    let (job, agent) = agent(&value).ok_or(NotJoined::NoAgent)?;
    let local = variable(LOCAL_RANK_VARIABLE).and_then(|text| number::parse::<u16>(&text));
    let hello = Hello { job, local: LocalRank(local.ok_or(NotJoined::NoAgent)?), name };
    let mailbox = Mailbox::connected_to(agent)?;
    mailbox.send(&hello.encode())?;
    let (answer, socket) = mailbox.receive()?;
    match answer {
        Answer::Joined => socket.map(|socket| Socket::inherited(socket.into_raw())).ok_or(NotJoined::NoRoom),
        Answer::Taken => Err(NotJoined::Taken),
        Answer::Full => Err(NotJoined::Full),
        Answer::NoRoom => Err(NotJoined::NoRoom),
        Answer::NoRank => Err(NotJoined::NoAgent),
    }
}

/// A socket for datagrams to and from the agent, with a name that the kernel has chosen, so that it can be answered.
struct Mailbox(Descriptor);

impl Mailbox {
    fn connected_to(agent: &[u8]) -> Result<Mailbox, NotJoined> {
        if agent.len() >= PATH_BYTES {
            return Err(NotJoined::NoAgent);
        }
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
        if fd < 0 {
            return Err(NotJoined::NoRoom);
        }
        let mailbox = Mailbox(Descriptor::new(fd));
        let (agent, own) = (address(agent), address(&[]));
        // The order matters. A socket that asks for credentials gets a name when it is connected, and one that has a
        // name before it is connected receives from anybody. SAFETY: pointers and lengths are those of the values.
        if unsafe { libc::connect(fd, (&raw const agent.0).cast(), agent.1) } != 0 {
            return Err(NotJoined::NoAgent);
        }
        let limit = libc::timeval { tv_sec: ANSWER_S_MAX.into(), tv_usec: 0 };
        let is_ready = mailbox.set(libc::SO_SNDTIMEO, &limit)
            && mailbox.set(libc::SO_RCVTIMEO, &limit)
            && mailbox.set::<c_int>(libc::SO_PASSCRED, &1)
            // SAFETY: pointer and length are those of the value.
            && unsafe { libc::bind(fd, (&raw const own.0).cast(), own.1) == 0 };
        if is_ready { Ok(mailbox) } else { Err(NotJoined::NoRoom) }
    }

    fn set<T>(&self, option: c_int, value: &T) -> bool {
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: pointer and length are those of the value.
        unsafe { libc::setsockopt(self.0.fd(), libc::SOL_SOCKET, option, (&raw const *value).cast(), len) == 0 }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), NotJoined> {
        // SAFETY: pointer and length are those of the slice.
        let sent = unsafe { libc::send(self.0.fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        if sent < 0 { Err(NotJoined::NoAgent) } else { Ok(()) }
    }

    fn receive(&self) -> Result<(Answer, Option<Descriptor>), NotJoined> {
        let (mut descriptors, mut answer) = (Vec::new(), None);
        let socket = Socket::inherited(self.0.fd());
        if !socket.await_input(1_000 * ANSWER_S_MAX) {
            return Err(NotJoined::NoAgent);
        }
        let received = socket.receive_with_sender(&mut descriptors, &mut |bytes| answer = Answer::decode(bytes));
        let sender = received.map_err(|_| NotJoined::NoAgent)?;
        if !is_own(sender) {
            return Err(NotJoined::Foreign);
        }
        answer.map(|answer| (answer, descriptors.pop())).ok_or(NotJoined::NoAgent)
    }
}

/// Whether a message was sent by a process of this process's own user. The kernel reports every user who has no uid in
/// this user namespace under the same uid (`overflowuid`); a process with that uid accepts no sender.
fn is_own(sender: Option<libc::uid_t>) -> bool {
    // SAFETY: it cannot fail.
    let own = unsafe { libc::getuid() };
    sender == Some(own) && own != unknown_user()
}

/// The uid that the kernel reports for users without a uid in this user namespace.
fn unknown_user() -> libc::uid_t {
    /// The kernel's default, which an administrator can change.
    const DEFAULT: libc::uid_t = 65_534;
    let mut text = [0_u8; 16];
    // SAFETY: the path ends with a zero byte; at most as many bytes are written as there is room for.
    let got = unsafe {
        let fd = libc::open(c"/proc/sys/kernel/overflowuid".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return DEFAULT;
        }
        let file = Descriptor::new(fd);
        libc::read(file.fd(), text.as_mut_ptr().cast(), text.len())
    };
    let text = usize::try_from(got).ok().and_then(|got| text.get(..got)).unwrap_or_default();
    number::parse(text.trim_ascii()).unwrap_or(DEFAULT)
}

const PATH_BYTES: usize = 108;

/// An abstract socket address; if `name` is empty, the kernel chooses the name.
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

    /// A socket at which libraries join, as an agent has it.
    fn bound(name: &str) -> UnixDatagram {
        let name = std::format!("wireup-test-{name}-{}", std::process::id());
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap()
    }

    fn name(socket: &UnixDatagram) -> Vec<u8> {
        socket.local_addr().unwrap().as_abstract_name().unwrap().to_vec()
    }

    /// Does something as a user who is a stranger, in a thread of its own: the system call changes the user of the
    /// thread that makes it. `None`: only root can.
    fn as_stranger<T: Send>(act: impl FnOnce() -> T + Send) -> Option<T> {
        const STRANGER: libc::uid_t = 61_002;
        std::thread::scope(|scope| {
            let stranger = scope.spawn(|| {
                // SAFETY: no memory is passed.
                let is_stranger = unsafe { libc::syscall(libc::SYS_setresuid, STRANGER, STRANGER, STRANGER) } == 0;
                is_stranger.then(act)
            });
            stranger.join().unwrap()
        })
    }

    #[test]
    fn an_agent_is_asked_and_answers() {
        let agent = bound("asked");
        let mailbox = Mailbox::connected_to(&name(&agent)).unwrap();
        mailbox.send(b"hello").unwrap();
        let mut bytes = [0; 16];
        let (len, from) = agent.recv_from(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"hello");
        agent.send_to_addr(&[Answer::Taken.encode()], &from).unwrap();
        assert!(matches!(mailbox.receive(), Ok((Answer::Taken, None))));
        agent.send_to_addr(b"something else", &from).unwrap();
        assert!(matches!(mailbox.receive(), Err(NotJoined::NoAgent)));
        let gone = name(&agent);
        drop(agent);
        assert_eq!(mailbox.send(b"hello"), Err(NotJoined::NoAgent));
        assert_eq!(Mailbox::connected_to(&gone).err(), Some(NotJoined::NoAgent));
        assert_eq!(Mailbox::connected_to(&[b'x'; 200]).err(), Some(NotJoined::NoAgent));
    }

    #[test]
    fn only_the_agent_can_send_to_a_library_that_joins() {
        let agent = bound("only");
        let mailbox = Mailbox::connected_to(&name(&agent)).unwrap();
        mailbox.send(b"hello").unwrap();
        let (_, from) = agent.recv_from(&mut [0; 16]).unwrap();
        let forge = || UnixDatagram::unbound().unwrap().send_to_addr(&[Answer::Joined.encode()], &from);
        // Neither another socket of this user nor one of another user can send to the mailbox.
        let forged = [Some(forge()), as_stranger(forge)];
        assert!(forged.into_iter().flatten().all(|sent| sent.is_err()), "the kernel lets others send");
        agent.send_to_addr(&[Answer::Taken.encode()], &from).unwrap();
        assert!(matches!(mailbox.receive(), Ok((Answer::Taken, None))));
    }

    #[test]
    fn a_stranger_who_has_taken_the_agents_name_is_not_believed() {
        let Some(agent) = as_stranger(|| bound("taken")) else { return };
        let mailbox = Mailbox::connected_to(&name(&agent)).unwrap();
        mailbox.send(b"hello").unwrap();
        let (_, from) = agent.recv_from(&mut [0; 16]).unwrap();
        as_stranger(|| agent.send_to_addr(&[Answer::Joined.encode()], &from).unwrap());
        assert!(matches!(mailbox.receive(), Err(NotJoined::Foreign)));
    }

    #[test]
    fn a_user_that_the_kernel_does_not_tell_is_foreign() {
        // SAFETY: it cannot fail.
        let own = unsafe { libc::getuid() };
        assert!(is_own(Some(own)) || own == unknown_user());
        assert!(!is_own(None) && !is_own(Some(own + 1)) && !is_own(Some(unknown_user())));
    }
}
