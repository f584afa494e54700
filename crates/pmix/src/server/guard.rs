//! Lets only processes of this user connect to the PMIx library's server, whatever the library itself believes.
//!
//! Since PMIx 4 clients connect over TCP at a loopback port, which every user of the machine can reach, and the library
//! believes the user number that a client sends. The library also reads a client's first message on its only thread and
//! waits for the message without a limit. So this program defines `accept` and `accept4` itself. The dynamic loader
//! finds a function of the main program before a function of the C library: the PMIx library calls the two functions of
//! this program for each client, before it reads a byte.
//!
//! ```text
//!   library ── accept ──► the kernel's accept ── whose is the other end? ── this user's ──► the socket
//!                                                          └── another's, or unknown ──► closed; -1, EAGAIN
//! ```
//!
//! Nothing promises that a version of the library calls these functions. So after the library has begun to listen, this
//! process connects to each of its own ports, and the connection must arrive here ([`prove`]); otherwise there is no
//! PMIx on this node.
//!
//! A client of this user that connects and does not complete its first message holds up the library's thread, and so
//! the fences of the job. A separate thread ends such a connection ([`watch_handshakes`]): the main thread may itself
//! be waiting for the library's thread.
//!
//! Until [`arm`] is called, in this process and in all others of this program, both functions are the kernel's.

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wireup_os::socket::local_address;
use wireup_os::tcp_peer::{NotOwn, PeerLookup};

/// Time limit from the kernel's accept to the end of the library's handshake. Chosen: a client sends its first message
/// at once, so this is the time that a machine with thousands of ranks per core may need until each of them has run.
const HANDSHAKE_MAX: Duration = Duration::from_secs(20);
/// Time limit until the library accepts the connection that proves this guard: the library's thread only has to wake
/// up.
const PROOF_MAX: Duration = Duration::from_secs(10);
/// Maximum number of accepted connections that wait for the main thread, and of connections with an unfinished
/// handshake; further connections are served without early acknowledgements and without the time limit `HANDSHAKE_MAX`.
const WAITING_MAX: usize = 1 << 16;

static ARMED: AtomicBool = AtomicBool::new(false);
static GUARD: Mutex<Guard> = Mutex::new(Guard {
    lookup: None,
    probe: None,
    accepted: Vec::new(),
    handshakes: VecDeque::new(),
    has_refused: false,
});
/// Notified when the connection that proves the guard has arrived.
static PROVEN: Condvar = Condvar::new();
/// Notified when a handshake begins.
static BEGUN: Condvar = Condvar::new();

struct Guard {
    lookup: Option<PeerLookup>,
    /// Local address of the connection that proves the guard; `None`: the connection has arrived, or no connection is
    /// open.
    probe: Option<SocketAddr>,
    /// Connections that the main thread has not collected yet.
    accepted: Vec<Accepted>,
    /// Connections whose handshake is not known to be complete, the oldest first.
    handshakes: VecDeque<Handshake>,
    /// Whether a refusal was reported.
    has_refused: bool,
}

/// A connection that the library has received from `accept`.
#[derive(Clone, Copy)]
pub struct Accepted(RawFd);

/// A connection whose handshake may not be complete.
#[derive(Clone, Copy)]
struct Handshake {
    fd: RawFd,
    /// The kernel's number of the socket, which tells whether `fd` still belongs to this connection.
    cookie: u64,
    until: Instant,
}

/// From now on this process accepts only connections of its own user.
///
/// # Errors
/// The kernel does not report who owns a connection; the error is a text for the user.
pub fn arm() -> Result<(), String> {
    let lookup = PeerLookup::tried().map_err(|error| {
        let advice = match error {
            NotOwn::Ambiguous(_) => "run as another user, or with --contain none",
            _ => "load the kernel's module tcp_diag, or mount /proc",
        };
        format!("clients cannot be told apart from those of other users: {error}; {advice}")
    })?;
    guard().lookup = Some(lookup);
    ARMED.store(true, Ordering::Release);
    Ok(())
}

/// Proves that the library, which listens by now, accepts its clients through this guard.
///
/// # Errors
/// The library does not listen, or does not accept clients through this guard; the error is a text for the user.
pub fn prove() -> Result<(), String> {
    let listeners = listeners().map_err(|error| format!("the library's sockets cannot be listed: {error}"))?;
    if listeners.is_empty() {
        return Err("the library does not listen for clients; use another version of it (--pmix-library)".into());
    }
    for listener in listeners {
        let seen = sees_connection_to(listener).map_err(|error| format!("cannot connect to the library: {error}"))?;
        if !seen {
            return Err("the library accepts clients in a way that does not keep other users out; \
                        use another version of it (--pmix-library)"
                .into());
        }
    }
    Ok(())
}

/// The addresses at which this process listens.
fn listeners() -> Result<Vec<SocketAddr>, Errno> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(open("/proc/self/fd")?)? {
        let Ok(entry) = entry else { continue };
        let Some(fd) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) else { continue };
        let fd = borrow(fd);
        if sockopt::socket_acceptconn(fd) == Ok(true) {
            found.push(local_address(fd).map_err(|_| Errno::AFNOSUPPORT)?);
        }
    }
    Ok(found)
}

fn open(path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, rustix::fs::Mode::empty())
}

/// Connects to this address, and returns whether the connection arrives at this guard.
fn sees_connection_to(listener: SocketAddr) -> Result<bool, Errno> {
    let loopback = match listener.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    };
    let family = if loopback.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let client = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    net::bind(&client, &SocketAddr::new(loopback, 0))?;
    let mut guard = guard();
    guard.probe = Some(local_address(&client).map_err(|_| Errno::AFNOSUPPORT)?);
    match net::connect(&client, &SocketAddr::new(loopback, listener.port())) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error),
    }
    let waiting = |guard: &mut Guard| guard.probe.is_some();
    let (mut guard, _) = PROVEN.wait_timeout_while(guard, PROOF_MAX, waiting).unwrap_or_else(PoisonError::into_inner);
    Ok(guard.probe.take().is_none())
}

/// The connections that the library has received since the last call.
pub fn accepted() -> Vec<Accepted> {
    std::mem::take(&mut guard().accepted)
}

fn guard() -> MutexGuard<'static, Guard> {
    GUARD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guard {
    /// Decides whether the library receives this connection.
    fn judge(&mut self, connection: BorrowedFd<'_>, fd: RawFd) -> Verdict {
        let checked = match &mut self.lookup {
            Some(lookup) => lookup.check(connection),
            None => return Verdict::Refused(None),
        };
        if let Err(why) = checked {
            // A flood of strangers must not flood the user's terminal.
            let is_first = !std::mem::replace(&mut self.has_refused, true);
            return Verdict::Refused(is_first.then_some(why));
        }
        let peer = net::getpeername(connection).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
        if self.probe.is_some() && self.probe == peer {
            self.probe = None;
            PROVEN.notify_all();
            return Verdict::Refused(None);
        }
        if self.accepted.len() < WAITING_MAX {
            self.accepted.push(Accepted(fd));
        }
        if let (true, Ok(cookie)) = (self.handshakes.len() < WAITING_MAX, sockopt::socket_cookie(connection)) {
            self.handshakes.push_back(Handshake { fd, cookie, until: Instant::now() + HANDSHAKE_MAX });
            BEGUN.notify_one();
        }
        Verdict::Admitted
    }

    /// Removes and returns the handshakes whose time limit has passed.
    fn overdue(&mut self, now: Instant) -> Vec<Handshake> {
        let over = self.handshakes.iter().take_while(|one| one.until <= now).count();
        self.handshakes.drain(..over).collect()
    }
}

/// The decision about an accepted connection.
enum Verdict {
    Admitted,
    /// The connection is closed; the error is reported, if there is one.
    Refused(Option<NotOwn>),
}

/// Writes a text to standard error, which the agent shows to the user. Standard error may be closed or full, which must
/// not end this process.
fn report(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The function that the PMIx library calls instead of the C library's `accept`.
///
/// # Safety
/// The requirements of the C library's `accept`: `address` and `length` are null or lead to memory of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(socket: c_int, address: *mut libc::sockaddr, length: *mut libc::socklen_t) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { accept4(socket, address, length, 0) }
}

/// The function that the PMIx library calls instead of the C library's `accept4`.
///
/// # Safety
/// The requirements of [`accept`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller guarantees what the kernel needs; the kernel sets `errno` as the C library would.
    let fd = unsafe { libc::syscall(libc::SYS_accept4, socket, address, length, flags) } as c_int;
    if !ARMED.load(Ordering::Acquire) {
        return fd;
    }
    if fd < 0 {
        return not_accepted(&io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened the descriptor, and nobody else uses it yet.
    let connection = unsafe { OwnedFd::from_raw_fd(fd) };
    let verdict = guard().judge(connection.as_fd(), fd);
    match verdict {
        Verdict::Admitted => {
            std::mem::forget(connection);
            return fd;
        }
        Verdict::Refused(None) => {}
        Verdict::Refused(Some(why)) => report(&format!(
            "refused a connection to this node's PMIx server: {why}; the job goes on, and further refusals are not \
             reported"
        )),
    }
    drop(connection);
    again()
}

/// Errors of `accept` that concern only the connection, not the listener (`accept(2)`).
const OF_CONNECTION: [c_int; 11] = [
    libc::EAGAIN,
    libc::EINTR,
    libc::ECONNABORTED,
    libc::EPROTO,
    libc::ENOPROTOOPT,
    libc::ENETDOWN,
    libc::EHOSTDOWN,
    libc::ENONET,
    libc::EHOSTUNREACH,
    libc::ENETUNREACH,
    libc::EOPNOTSUPP,
];
/// Errors that may be temporary: the machine has no file, buffer or memory left.
const PASSING: [c_int; 3] = [libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
/// Pause after a temporary error, and the number of pauses after which this process gives up (ten seconds in all).
const PAUSE: Duration = Duration::from_millis(20);
const PAUSES_MAX: u32 = 500;

/// Returns the error for the library after a failed `accept`. After any error but `EAGAIN` the library's thread would
/// stop listening, and clients would wait forever. So after an error of one connection the library gets `EAGAIN`; after
/// any other error (no descriptor is left) this process exits, which ends the job.
fn not_accepted(error: &io::Error) -> c_int {
    static PAUSES: AtomicU32 = AtomicU32::new(0);
    let is = |errors: &[c_int]| error.raw_os_error().is_some_and(|errno| errors.contains(&errno));
    if is(&PASSING) && PAUSES.fetch_add(1, Ordering::Relaxed) < PAUSES_MAX {
        std::thread::sleep(PAUSE);
    } else if !is(&OF_CONNECTION) {
        let advice = if is(&[libc::EMFILE]) { "; raise ulimit -n on the node" } else { "" };
        report(&format!("cannot accept the connections of ranks: {error}{advice}"));
        // SAFETY: `_exit` has no preconditions.
        unsafe { libc::_exit(1) };
    }
    again()
}

fn again() -> c_int {
    // SAFETY: the location is the calling thread's own `errno`.
    unsafe { *libc::__errno_location() = libc::EAGAIN };
    -1
}

/// Starts a thread that shuts down connections whose handshake takes too long: the library's thread then reads an end
/// of file, and drops the connection.
pub fn watch_handshakes() -> std::io::Result<()> {
    std::thread::Builder::new().name("handshakes".into()).spawn(|| {
        loop {
            let waiting = guard();
            let mut guard = match waiting.handshakes.front().map(|first| first.until) {
                // This wait has no time limit: it ends when a handshake begins, or with the process.
                None => BEGUN.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    drop(waiting);
                    std::thread::sleep(until.saturating_duration_since(Instant::now()));
                    self::guard()
                }
            };
            let overdue = guard.overdue(Instant::now());
            drop(guard);
            overdue.into_iter().for_each(Handshake::end);
        }
    })?;
    Ok(())
}

impl Handshake {
    /// Shuts down the connection unless its handshake is complete, after which the library makes the socket
    /// non-blocking.
    fn end(self) {
        // The library may close its descriptor at any time, and get the same number for another client.
        let Ok(own) = rustix::io::fcntl_dupfd_cloexec(borrow(self.fd), 0) else { return };
        let blocks = || rustix::fs::fcntl_getfl(&own).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
        if sockopt::socket_cookie(&own) == Ok(self.cookie) && blocks() {
            let seconds = HANDSHAKE_MAX.as_secs();
            report(&format!(
                "closed a connection of this user to this node's PMIx server, because it kept the ranks waiting: its \
                 first message was not complete after {seconds} s"
            ));
            // Errors are ignored, because the connection may have been closed just now.
            let _ = net::shutdown(&own, Shutdown::Both);
        }
    }
}

impl Accepted {
    pub fn fd(&self) -> BorrowedFd<'_> {
        borrow(self.0)
    }
}

/// A descriptor of the library, by its number, which may have been closed or reused.
pub fn borrow<'a>(number: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the number is used in single system calls, which fail if it is not open. If it belongs to another file by
    // now, these calls do no harm: they set options of TCP, or duplicate the descriptor, and the duplicate is checked
    // before its use.
    unsafe { BorrowedFd::borrow_raw(number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    /// This test changes what the whole test process accepts, so all cases are in one test.
    #[test]
    fn an_armed_guard_sees_each_connection_and_ends_handshakes_that_do_not_end() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        arm().unwrap();
        // The connection that proves the guard must not reach the library.
        listener.set_nonblocking(true).unwrap();
        let library = std::thread::spawn({
            let listener = listener.try_clone().unwrap();
            move || {
                wireup_os::socket::wait(&listener, true, false, Some(PROOF_MAX)).unwrap();
                listener.accept().map(drop).map_err(|error| error.kind())
            }
        });
        assert!(sees_connection_to(at).unwrap());
        assert_eq!(library.join().unwrap(), Err(std::io::ErrorKind::WouldBlock));
        assert!(listeners().unwrap().contains(&at));
        let _client = TcpStream::connect(at).unwrap();
        let (idle, _) = listener.accept().unwrap();
        let done = (TcpStream::connect(at).unwrap(), listener.accept().unwrap().0);
        done.1.set_nonblocking(true).unwrap();
        // Other tests of this process accept connections too.
        let ours = [idle.as_raw_fd(), done.1.as_raw_fd()];
        assert_eq!(accepted().iter().filter(|one| ours.contains(&one.0)).count(), 2);
        assert!(guard().overdue(Instant::now()).is_empty());
        let overdue = guard().overdue(Instant::now() + HANDSHAKE_MAX);
        let overdue: Vec<Handshake> = overdue.into_iter().filter(|one| ours.contains(&one.fd)).collect();
        assert_eq!(overdue.len(), 2);
        overdue.into_iter().for_each(Handshake::end);
        let mut byte = [0];
        assert_eq!(rustix::io::read(&idle, &mut byte), Ok(0), "the idle one was ended");
        assert_eq!(rustix::io::read(&done.1, &mut byte), Err(Errno::AGAIN), "the other one was not");
        ARMED.store(false, Ordering::Release);
    }
}
