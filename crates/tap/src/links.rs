//! The links between a rank and its PMI server: one, or with `PMI_PORT` as many as the rank opens. Only requests on the
//! first link are counted.

use crate::observer::Observer;
use crate::port::Port;
use crate::relay::Relay;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use wireup_os::process::SignalFd;

/// Most simultaneous links besides the first; further connections of the rank wait to be accepted.
const FURTHER_MAX: usize = 16;

#[derive(Default)]
pub struct Links {
    port: Option<Port>,
    first: First,
    further: Vec<Relay>,
}

#[derive(Default)]
enum First {
    #[default]
    None,
    Open(Box<Relay>),
    /// The link has been closed in both directions; its observer is kept.
    Over(Box<Observer>),
}

/// What has happened during a call of [`Links::wait`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Happened {
    pub on_links: bool,
    pub signal: bool,
    /// Whether the rank has sent its first bytes.
    pub first_words: bool,
}

impl Links {
    pub fn of_socket(relay: Relay) -> Links {
        Links { first: First::Open(Box::new(relay)), ..Links::default() }
    }

    pub fn of_port(port: Port) -> Links {
        Links { port: Some(port), ..Links::default() }
    }

    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let relays = self.relays().flat_map(Relay::fds);
        self.port.iter().flat_map(Port::fds).chain(relays).collect()
    }

    /// The observer of the first link; `None`: the rank has no link yet.
    pub fn observer(&self) -> Option<&Observer> {
        match &self.first {
            First::Open(relay) => Some(&relay.observer),
            First::Over(observer) => Some(observer),
            First::None => None,
        }
    }

    fn are_open(&self) -> bool {
        self.relays().next().is_some()
    }

    /// Delivers the bytes that the rank had sent before it exited; waits up to `limit` for a slow server.
    pub fn carry_last_words(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.are_open() && Instant::now() < deadline {
            // Checked before the wait, because the wait may deliver the last requests.
            let holds_requests = self.relays().any(Relay::holds_requests);
            match self.wait(None, Some(Duration::from_millis(1))) {
                Ok(happened) if happened.on_links || holds_requests => {}
                // Nothing has happened and no requests are held, so no more bytes are left to deliver.
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn relays(&self) -> impl Iterator<Item = &Relay> {
        let first = if let First::Open(relay) = &self.first { Some(&**relay) } else { None };
        first.into_iter().chain(&self.further)
    }

    /// Waits at most `limit` for events of links and for signals, and passes on the bytes that have arrived.
    pub fn wait(&mut self, signals: Option<&SignalFd>, limit: Option<Duration>) -> io::Result<Happened> {
        let mut ready: Vec<PollFd<'_>> =
            signals.into_iter().map(|signals| PollFd::new(signals, PollFlags::IN)).collect();
        let at_port = ready.len();
        if let Some(port) = &self.port {
            let interest = port.interest(port.dials() + self.further.len() < FURTHER_MAX);
            ready.extend(interest.into_iter().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        }
        let at_relays = ready.len();
        let mut places = Vec::new();
        for relay in self.relays() {
            let mut at = [None; 2];
            for (at, (fd, flags)) in at.iter_mut().zip(relay.interest().into_iter().flatten()) {
                // A descriptor without flags is not polled, since `poll` reports hang-ups of it and would return at
                // once every time.
                if !flags.is_empty() {
                    *at = Some(ready.len());
                    ready.push(PollFd::from_borrowed_fd(fd, flags));
                }
            }
            places.push(at);
        }
        let timeout = self.timeout(limit);
        rustix::io::retry_on_intr(|| poll(&mut ready, timeout.as_ref()))?;
        let happened: Vec<PollFlags> = ready.iter().map(PollFd::revents).collect();
        drop(ready);
        let first_words = self.on_relays(&places, &happened);
        self.on_port(&happened[at_port..at_relays]);
        let any = |flags: &[PollFlags]| flags.iter().any(|flags| !flags.is_empty());
        Ok(Happened { on_links: any(&happened[at_port..]), signal: any(&happened[..at_port]), first_words })
    }

    fn timeout(&self, limit: Option<Duration>) -> Option<Timespec> {
        let deadline = self.port.as_ref().and_then(Port::deadline);
        let of_port = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let limit = limit.into_iter().chain(of_port).min()?;
        Some(Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() })
    }

    fn on_relays(&mut self, places: &[[Option<usize>; 2]], happened: &[PollFlags]) -> bool {
        let first = if let First::Open(relay) = &mut self.first { Some(&mut **relay) } else { None };
        let is_first_open = first.is_some();
        let mut first_words = false;
        for (number, (relay, at)) in first.into_iter().chain(&mut self.further).zip(places).enumerate() {
            let [rank, server] = at.map(|at| at.map_or(PollFlags::empty(), |at| happened[at]));
            first_words |= relay.step(rank, server) && number == 0 && is_first_open;
        }
        if matches!(&self.first, First::Open(relay) if relay.interest().is_none())
            && let First::Open(relay) = std::mem::take(&mut self.first)
        {
            self.first = First::Over(Box::new(relay.observer));
        }
        self.further.retain(|relay| relay.interest().is_some());
        first_words
    }

    fn on_port(&mut self, happened: &[PollFlags]) {
        let Some(port) = &mut self.port else { return };
        for (rank, server) in port.step(happened) {
            if matches!(self.first, First::None) {
                self.first = First::Open(Box::new(Relay::new(rank, server, Observer::default())));
            } else {
                self.further.push(Relay::new(rank, server, Observer::blind()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Family;
    use crate::record::Tally;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    const ANSWER: [u8; 21] = *b"cmd=barrier_out rc=0\n";

    /// Runs the links until `rank`, the rank's end of the test, has returned.
    fn with_rank(links: &mut Links, rank: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            let rank = scope.spawn(rank);
            while !rank.is_finished() {
                links.wait(None, Some(Duration::from_millis(5))).expect("memory");
            }
            rank.join().expect("the rank");
        });
    }

    fn ask(stream: &mut TcpStream, line: &[u8]) {
        stream.write_all(line).expect("a request");
        let mut answer = [0; ANSWER.len()];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, ANSWER);
    }

    #[test]
    fn each_connection_is_passed_on_and_the_first_is_counted() {
        let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = Port::listen(&server.local_addr().expect("an address").to_string()).expect("a port");
        let address = port.address().expect("an address");
        let mut links = Links::of_port(port);
        let serve = std::thread::spawn(move || {
            let answer = |stream: std::io::Result<TcpStream>| {
                std::thread::spawn(move || {
                    let mut stream = stream.expect("a connection");
                    while stream.read(&mut [0; 100]).is_ok_and(|count| count > 0) {
                        stream.write_all(&ANSWER).expect("an answer");
                    }
                })
            };
            let threads: Vec<_> = server.incoming().take(2).map(answer).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("a server"));
        });
        with_rank(&mut links, || {
            let mut streams = [0; 2].map(|_| TcpStream::connect(address).expect("the tap"));
            for _ in 0..3 {
                streams.iter_mut().for_each(|stream| ask(stream, b"cmd=barrier_in\n"));
            }
        });
        while links.are_open() {
            links.wait(None, Some(Duration::from_millis(5))).expect("memory");
        }
        serve.join().expect("a server");
        let tally = Tally::of(&links.observer().expect("a link").page);
        assert_eq!((tally.fences, tally.family(Family::Put).calls), (3, 0));
    }

    #[test]
    fn a_server_that_is_not_there_closes_the_connection_only() {
        let gone = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("an address");
        let port = Port::listen(&gone.to_string()).expect("a port");
        let address = port.address().expect("an address");
        let mut links = Links::of_port(port);
        with_rank(&mut links, || {
            for _ in 0..2 {
                let mut stream = TcpStream::connect(address).expect("the tap");
                assert_eq!(stream.read(&mut [0; 1]).ok().filter(|&count| count > 0), None);
            }
        });
        assert!(links.observer().is_none());
        assert!(Port::listen("nowhere").is_err());
    }

    #[test]
    fn a_server_that_is_slow_gets_what_a_rank_has_sent_before_its_end() {
        // The server begins to read at a different time in each round, relative to the intervals at which the tap
        // waits.
        (0..10).for_each(|round| a_server_that_begins_late_gets_all(Duration::from_micros(2_000 + 100 * round)));
    }

    fn a_server_that_begins_late_gets_all(delay: Duration) {
        let (rank, own) = wireup_os::socket::pair().expect("a pair");
        let (to_server, server) = wireup_os::socket::pair().expect("a pair");
        let mut links = Links::of_socket(Relay::new(own, to_server, Observer::blind()));
        // Sends until neither the server nor the tap takes more bytes.
        let (mut sent, mut refused) = (0, 0);
        while refused < 5 {
            match wireup_os::socket::send(&rank, &[b'x'; 4096], &[]) {
                Ok(count) => (sent, refused) = (sent + count, 0),
                Err(_) => refused += 1,
            }
            links.wait(None, Some(Duration::from_millis(1))).expect("memory");
        }
        drop(rank);
        let reader = std::thread::spawn(move || {
            std::thread::sleep(delay);
            let mut stream = std::os::unix::net::UnixStream::from(server);
            stream.set_nonblocking(false).expect("a socket");
            std::io::copy(&mut stream, &mut std::io::sink()).expect("bytes")
        });
        links.carry_last_words(Duration::from_secs(20));
        drop(links);
        assert_eq!(reader.join().expect("a server"), sent as u64);
    }
}
