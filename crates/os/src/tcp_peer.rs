//! Finds out from the kernel which user owns the other end of a TCP connection within this machine.
//!
//! TCP has no `SO_PEERCRED`. But the kernel knows the user of every socket of this network namespace, and the other end
//! of a local connection is the socket with the same two addresses in reverse order. The query goes to the kernel's
//! socket diagnostics (`NETLINK_SOCK_DIAG`, one exact look-up); if the kernel has none, the user is read from
//! `/proc/self/net/tcp`.
//!
//! Two rules make the answer a proof:
//!
//! - Only an *established* socket counts. The kernel reports user 0 for sockets that belong to no process any more, or
//!   not yet, and a look-up also finds listening sockets.
//! - This process's end must still be established *after* the answer. As long as it is, the other end has not been
//!   closed, so no other socket can have taken the other end's address in the meantime.
//!
//! Cost: one message to the kernel and one answer, about 10 µs.

use crate::socket::{TCP_ESTABLISHED, is_established, local_address, plain};
use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Why a connection's other end does not count as a socket of this user.
#[derive(Debug, thiserror::Error)]
pub enum NotOwn {
    #[error("its other end belongs to user {0}")]
    Foreign(u32),
    #[error("no process of this network namespace has its other end")]
    NotHere,
    #[error("it has been closed")]
    Closed,
    #[error(
        "user {0} stands for all users who have no number in this user namespace, and this process runs as that user"
    )]
    Ambiguous(u32),
    #[error("the kernel does not tell whose it is: {0}")]
    Unknown(#[from] io::Error),
}

/// The interface of the kernel that is queried.
#[derive(Debug)]
enum Source {
    Diagnostics { socket: OwnedFd, sequence: u32 },
    Table,
}

/// Determines whether connections come from the effective user of this process.
#[derive(Debug)]
pub struct PeerLookup {
    source: Source,
    own: u32,
}

/// Most connections that [`PeerLookup::tried`] accepts to find this process's own among those of other users.
const STRANGERS_MAX: usize = 64;

impl PeerLookup {
    /// A lookup that has been tested with a connection of this process to itself.
    ///
    /// # Errors
    /// Neither interface of the kernel knows the user of that connection, or there is no loopback interface.
    pub fn tried() -> Result<PeerLookup, NotOwn> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let own = near.local_addr()?;
        for _ in 0..STRANGERS_MAX {
            // Another user may have connected to the listener first.
            let (far, from) = listener.accept()?;
            if from == own {
                return PeerLookup::new(far);
            }
        }
        Err(NotOwn::NotHere)
    }

    /// A lookup that uses the first interface that knows `probe`, a connection of this process to itself.
    ///
    /// # Errors
    /// Neither interface of the kernel knows the user of `probe`, so neither can be trusted for other connections.
    pub fn new(probe: impl AsFd) -> Result<PeerLookup, NotOwn> {
        let own = rustix::process::geteuid().as_raw();
        if stands_for_others(own, &read("/proc/self/uid_map"), &read("/proc/sys/kernel/overflowuid")) {
            return Err(NotOwn::Ambiguous(own));
        }
        let mut lookup = PeerLookup { source: diagnostics().unwrap_or(Source::Table), own };
        if let Err(problem) = lookup.check(&probe) {
            if matches!(lookup.source, Source::Table) {
                return Err(problem);
            }
            // Kernels without `tcp_diag` answer "not found", as they do for a socket that does not exist: try the
            // table.
            lookup.source = Source::Table;
            lookup.check(&probe)?;
        }
        Ok(lookup)
    }

    /// The descriptor that the lookup needs, for a process that closes all others; `None`: it needs none.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Diagnostics { socket, .. } => Some(socket.as_fd()),
            Source::Table => None,
        }
    }

    /// # Errors
    /// The other end of `connection` is not a socket of this user, or its user is unknown.
    pub fn check(&mut self, connection: impl AsFd) -> Result<(), NotOwn> {
        let here = local_address(&connection)?;
        let there = net::getpeername(&connection).map_err(gone)?.ok_or(NotOwn::Closed)?;
        let there = plain(SocketAddr::try_from(there).map_err(io::Error::from)?);
        let user = match &mut self.source {
            Source::Diagnostics { socket, sequence } => {
                *sequence = sequence.wrapping_add(1);
                ask(socket, *sequence, there, here)?
            }
            Source::Table => row(there, here)?,
        };
        // The check must come after the answer: see the head of this file.
        if !is_established(&connection)? {
            return Err(NotOwn::Closed);
        }
        match user {
            Some(user) if user == self.own => Ok(()),
            Some(user) => Err(NotOwn::Foreign(user)),
            None => Err(NotOwn::NotHere),
        }
    }
}

fn gone(error: Errno) -> NotOwn {
    if error == Errno::NOTCONN { NotOwn::Closed } else { NotOwn::Unknown(error.into()) }
}

/// Whether other users' sockets may be reported with this process's own user id: in a user namespace, users without an
/// id there are reported as the overflow user.
fn stands_for_others(own: u32, uid_map: &str, overflow: &str) -> bool {
    let overflow = overflow.trim().parse().unwrap_or(65_534);
    let has_all_users = uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
    own == overflow && !has_all_users
}

fn read(path: &str) -> String {
    let mut text = String::new();
    // If the file is missing, `text` is empty, for which `stands_for_others` uses defaults.
    let _ = File::open(path).and_then(|file| file.take(4096).read_to_string(&mut text));
    text
}

/// `SOCK_DIAG_BY_FAMILY`: type of the request and of the answer.
const BY_FAMILY: u16 = 20;
/// `NLMSG_ERROR`: type of an answer that is an error number.
const ERROR: u16 = 2;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// Bytes of `nlmsghdr`, `inet_diag_req_v2` and `inet_diag_msg`.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
const ANSWER_BYTES: usize = 72;
/// Positions of the state and the user in `inet_diag_msg`.
const STATE_AT: usize = 1;
const USER_AT: usize = 64;

fn diagnostics() -> io::Result<Source> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(SOCK_DIAG))?;
    Ok(Source::Diagnostics { socket, sequence: 0 })
}

/// The user of the established socket with the address `here`, connected to `there`; `None`: there is no such socket.
fn ask(socket: &OwnedFd, sequence: u32, here: SocketAddr, there: SocketAddr) -> io::Result<Option<u32>> {
    let request = question(sequence, here, there);
    net::sendto(socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut buffer = [0; 512];
    loop {
        // Without a wait: the kernel answers before `sendto` returns.
        let (length, _, from) = net::recvfrom(socket, &mut buffer[..], RecvFlags::DONTWAIT)?;
        let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
        if from.is_some_and(|from| from.pid() == 0)
            && let Some(answer) = answer(&buffer[..length], sequence)
        {
            return answer;
        }
    }
}

fn question(sequence: u32, here: SocketAddr, there: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    bytes.extend_from_slice(&((HEADER_BYTES + REQUEST_BYTES) as u32).to_ne_bytes());
    bytes.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes.extend_from_slice(&REQUEST.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    let family = if here.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    bytes.extend_from_slice(&[family.as_raw() as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    bytes.extend_from_slice(&(1u32 << TCP_ESTABLISHED).to_ne_bytes());
    for address in [here, there] {
        bytes.extend_from_slice(&address.port().to_be_bytes());
    }
    for address in [here, there] {
        let mut words = [0; 16];
        match address.ip() {
            IpAddr::V4(v4) => words[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => words.copy_from_slice(&v6.octets()),
        }
        bytes.extend_from_slice(&words);
    }
    // The request is for any interface and any cookie.
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    bytes.extend_from_slice(&[0xff; 8]);
    bytes
}

/// Reads an answer; `None`: it is the answer to another request.
fn answer(bytes: &[u8], sequence: u32) -> Option<io::Result<Option<u32>>> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if word(8)? != sequence {
        return None;
    }
    let body = bytes.get(HEADER_BYTES..)?;
    match u16::from_ne_bytes([bytes[4], bytes[5]]) {
        ERROR => match word(HEADER_BYTES)?.wrapping_neg() as i32 {
            libc::ENOENT => Some(Ok(None)),
            error => Some(Err(io::Error::from_raw_os_error(error))),
        },
        BY_FAMILY if body.len() >= ANSWER_BYTES && body[STATE_AT] == TCP_ESTABLISHED => {
            Some(Ok(word(HEADER_BYTES + USER_AT)))
        }
        _ => Some(Ok(None)),
    }
}

/// The user of the established socket with the address `here`, connected to `there`, as listed in `/proc/self/net`. An
/// IPv6 socket that uses IPv4 is listed in the second table.
fn row(here: SocketAddr, there: SocketAddr) -> io::Result<Option<u32>> {
    let mut missing = 0;
    for path in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        match File::open(path) {
            Ok(file) => {
                if let Some(user) = user_in(BufReader::new(file), here, there)? {
                    return Ok(Some(user));
                }
            }
            // Without IPv6 there is no second table.
            Err(error) if error.kind() == io::ErrorKind::NotFound && missing == 0 => missing += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn user_in(table: impl BufRead, here: SocketAddr, there: SocketAddr) -> io::Result<Option<u32>> {
    let wanted = [in_table(here), in_table(there)];
    let mapped = [in_table(mapped(here)), in_table(mapped(there))];
    for line in table.lines() {
        let line = line?;
        let mut fields = line.split_whitespace().skip(1);
        let (Some(local), Some(remote), Some(state)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let is_it = [&wanted, &mapped].iter().any(|pair| pair[0] == local && pair[1] == remote);
        if is_it && u8::from_str_radix(state, 16) == Ok(TCP_ESTABLISHED) {
            return Ok(fields.nth(3).and_then(|user| user.parse().ok()));
        }
    }
    Ok(None)
}

/// An address in the form of the tables: its 32-bit words in the machine's byte order, hexadecimal.
fn in_table(address: SocketAddr) -> String {
    let octets = match address.ip() {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let words = octets.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let words: String = words.map(|word| format!("{word:08X}")).collect();
    format!("{words}:{:04X}", address.port())
}

/// The IPv4-mapped IPv6 form of an IPv4 address; an IPv6 address unchanged.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    /// Connects to a listener; returns the accepted end and the client's end.
    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    /// A lookup with each interface of the kernel, both tested with a connection of this process.
    fn lookups() -> [PeerLookup; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (probe, _client) = connection(&listener);
        let by_diagnostics = PeerLookup::new(&probe).unwrap();
        assert!(matches!(by_diagnostics.source, Source::Diagnostics { .. }), "this kernel has socket diagnostics");
        let mut by_table = PeerLookup { source: Source::Table, own: by_diagnostics.own };
        by_table.check(&probe).unwrap();
        [by_diagnostics, by_table]
    }

    #[test]
    fn connections_of_this_user_are_known_over_both_families() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let (server, client) = connection(&listener);
            for mut lookup in lookups() {
                lookup.check(&server).unwrap();
                lookup.check(&client).unwrap();
            }
        }
        // An IPv6 socket that listens for IPv4 as well.
        let listener = TcpListener::bind("[::]:0").unwrap();
        let client = TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap();
        let (server, _) = listener.accept().unwrap();
        for mut lookup in lookups() {
            lookup.check(&server).unwrap();
            lookup.check(&client).unwrap();
        }
    }

    #[test]
    fn a_client_that_has_gone_or_has_stopped_sending_does_not_count() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for mut lookup in lookups() {
            let (server, client) = connection(&listener);
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(lookup.check(&server).is_err());
            let (server, client) = connection(&listener);
            drop(client);
            let refused = lookup.check(&server).unwrap_err();
            assert!(matches!(refused, NotOwn::Closed | NotOwn::NotHere), "{refused}");
        }
    }

    /// If there is no exact match, the kernel's look-up falls back to a listening socket with the wanted local address.
    #[test]
    fn a_listening_socket_is_not_taken_for_the_other_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
        let Source::Diagnostics { socket, .. } = diagnostics().unwrap() else { panic!("diagnostics") };
        assert_eq!(ask(&socket, 1, at, nobody).unwrap(), None);
        assert_eq!(row(at, nobody).unwrap(), None);
    }

    /// A client of another user, which keeps its connection until it is killed.
    struct Stranger(Child);

    impl Drop for Stranger {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_connection_of_another_user_is_foreign() {
        const STRANGER: u32 = 61_002;
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can act as another user");
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; read", listener.local_addr().unwrap().port());
        let mut command = Command::new("/bin/bash");
        command.args(["-c", &script]).uid(STRANGER).gid(STRANGER).stdin(Stdio::piped()).current_dir("/");
        let _stranger = Stranger(command.spawn().unwrap());
        let (server, _) = listener.accept().unwrap();
        for mut lookup in lookups() {
            assert!(matches!(lookup.check(&server), Err(NotOwn::Foreign(STRANGER))));
        }
    }

    #[test]
    fn rows_match_as_the_kernel_writes_them() {
        if cfg!(target_endian = "big") {
            return;
        }
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout \
            inode\n   \
            0: 0100007F:1F90 0100007F:C001 06 00000000:00000000 03:00000E8A 00000000     0        0 0 3 0\n   \
            1: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000  1000        0 77 1 0\n   \
            2: 0000000000000000FFFF00000100007F:1F91 0000000000000000FFFF00000100007F:C001 01 0:0 0:0 0  1001 0 78\n";
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(user_in(table.as_bytes(), at(0x1f90), at(0xc001)).unwrap(), Some(1000));
        assert_eq!(user_in(table.as_bytes(), at(0x1f91), at(0xc001)).unwrap(), Some(1001));
        assert_eq!(user_in(table.as_bytes(), at(0xc001), at(0x1f90)).unwrap(), None);
    }

    #[test]
    fn the_overflow_user_of_a_namespace_stands_for_others() {
        let (everybody, one) = ("         0          0 4294967295\n", "         0       1000          1\n");
        assert!(!stands_for_others(65_534, everybody, "65534\n"));
        assert!(stands_for_others(65_534, "65534 1000 1\n", "65534\n"));
        assert!(stands_for_others(65_534, "", ""));
        assert!(!stands_for_others(0, one, "65534\n"));
        assert!(stands_for_others(7, "7 7 1\n", "7\n"));
    }

    #[test]
    fn answers_to_other_questions_and_errors_are_told_apart() {
        let mut bytes = vec![0; HEADER_BYTES + ANSWER_BYTES];
        bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        bytes[8..12].copy_from_slice(&7u32.to_ne_bytes());
        bytes[HEADER_BYTES + STATE_AT] = TCP_ESTABLISHED;
        bytes[HEADER_BYTES + USER_AT..][..4].copy_from_slice(&1000u32.to_ne_bytes());
        assert!(answer(&bytes, 8).is_none());
        assert_eq!(answer(&bytes, 7).unwrap().unwrap(), Some(1000));
        assert_eq!(answer(&bytes[..bytes.len() - 1], 7).unwrap().unwrap(), None);
        bytes[HEADER_BYTES + STATE_AT] = 6;
        assert_eq!(answer(&bytes, 7).unwrap().unwrap(), None);
        bytes[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        bytes[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(answer(&bytes, 7).unwrap().unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert!(answer(&bytes[..10], 7).is_none());
    }
}
