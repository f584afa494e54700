//! Makes the network of ranks when it is first needed: an exchange among all ranks by the server, then messages among
//! ranks only (S2).
//!
//! ```text
//!   Auto, with sockets of the server    the server's table of addresses ──► the world: no exchange
//!   Auto, with wireup's server          own address ──► the server; others' on request ──► the world: no exchange
//!   Allgather, and Auto elsewhere       public key, own address; sealed keys ──► secret, left, right
//!                                       ──► ring ──► binomial graph ──► the world
//!   Ring                                the same, own address by PMIX_Ring, in the server's order
//!                                       ──► ring ──► binomial graph ──► split by rank
//! ```
//!
//! Wireup's server reports a rank's address as soon as that rank has sent it to its own server, so the first two ways
//! wait for no other rank. With a ring, a rank knows O(log P) addresses and asks other ranks for more; the split of a
//! ring takes `3 log² P` steps.

use crate::agents;
use crate::agreement::agree;
use crate::error::Error;
use crate::network::proof::of_library;
use crate::network::{Listener, Network, SERVER, Transport};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::net::SocketAddr;
use wireup_capi::job::{Endpoints, Job};
use wireup_capi::net::{self, Errno, now_ns};
use wireup_group::algorithms::Wanted;
use wireup_group::{Context, Done, Peer, Request, WORLD};
use wireup_wire::hex;
use wireup_wire::limits::VALUE_LEN_MAX;
use wireup_wire::rank_address;

/// How the network of ranks is started: how ranks learn each other's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Start {
    /// The fastest way that the server offers.
    #[default]
    Auto,
    Allgather,
    Ring,
}

/// How long it took to make the network of ranks on this rank, including waits for other ranks (ns).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Phases {
    /// Time to open the endpoint at which other ranks reach this rank; 0: the server has opened it.
    pub endpoint_ns: u64,
    /// Time of the exchanges by the server.
    pub exchange_ns: u64,
    /// Time from these exchanges to the graph of all ranks.
    pub graph_ns: u64,
    /// Time to bring a group in the server's order into the order of ranks; 0: the graph has that order.
    pub world_ns: u64,
}

impl Phases {
    /// `stamps`: the clock at the start and after each phase (ns).
    fn between(stamps: [u64; 5]) -> Phases {
        let [begin, opened, exchanged, formed, ordered] = stamps;
        Phases {
            endpoint_ns: opened - begin,
            exchange_ns: exchanged - opened,
            graph_ns: formed - exchanged,
            world_ns: ordered - formed,
        }
    }
}

/// The network of ranks, which is made when it is first needed, and the sockets that the server may have bound for it.
#[derive(Default)]
pub struct LazyNetwork {
    pub start: Start,
    transport: Transport,
    connections_max: Option<usize>,
    /// Addresses at which all ranks listen. `None`: the server was not asked yet; `Some(None)`: the server has bound no
    /// sockets.
    book: Option<Option<Arc<Endpoints>>>,
    /// Whether the sockets that the server has bound are listening; if not, they only reserve their ports.
    they_listen: bool,
    /// The network of ranks, and the context of the group of all ranks; `None`: not made yet.
    made: Option<(Network, Context)>,
    /// A second group of all ranks, for barriers during fences, if the server answers a fence before all ranks have
    /// started theirs.
    pub fences: Option<Context>,
    /// How long it took to make the network of ranks; 0 without one.
    pub phases: Phases,
}

impl LazyNetwork {
    pub fn new(start: Start, transport: Transport) -> LazyNetwork {
        LazyNetwork { start, transport, ..LazyNetwork::default() }
    }

    pub fn made(&self) -> Option<&Network> {
        self.made.as_ref().map(|(network, _)| network)
    }

    pub fn made_mut(&mut self) -> Option<&mut Network> {
        self.made.as_mut().map(|(network, _)| network)
    }

    /// Makes the network on the first call; returns it with the context of the group of all ranks. Where the server
    /// does not answer questions for addresses, the first call waits for all ranks.
    pub fn make(&mut self, job: &mut Job) -> Result<&mut (Network, Context), Error> {
        if self.made.is_none() {
            let book = if self.wants_sockets() { self.book(job)?.filter(|_| self.they_listen) } else { None };
            let (mut network, world, phases) = network(job, self.start, self.transport, book)?;
            if let Some(open_max) = self.connections_max {
                network.bound_connections(open_max);
            }
            if !agents::fence_waits(job) {
                self.fences = Some(network.groups.duplicate(world).map_err(Error::Group)?);
            }
            (self.made, self.phases) = (Some((network, world)), phases);
        }
        self.made.as_mut().ok_or(Error::Mismatch)
    }

    /// Sets a bound on connections: while more than `open_max` are open, the least recently used ones are closed,
    /// except those over which an end waits for a message. Has no effect where a connection costs no descriptor.
    pub fn bound_connections(&mut self, open_max: usize) {
        self.connections_max = Some(open_max);
        self.made_mut().into_iter().for_each(|network| network.bound_connections(open_max));
    }

    /// Whether the network would use the server's sockets, which are TCP sockets, provided that they listen.
    fn wants_sockets(&self) -> bool {
        self.start == Start::Auto && self.transport == Transport::Tcp
    }

    /// The ports of all ranks, if the server has bound sockets for them; waits until all nodes have bound theirs.
    fn book(&mut self, job: &mut Job) -> Result<Option<Arc<Endpoints>>, Error> {
        if let Some(book) = &self.book {
            return Ok(book.clone());
        }
        // The server binds no sockets for a secondary library.
        let is_secondary = !job.name.is_empty();
        let book = if is_secondary { None } else { job.bound_endpoints().map_err(Error::Server)?.map(Arc::new) };
        if let Some(socket) = book.as_ref().and_then(|book| book.listening()) {
            self.they_listen = net::listens(socket).map_err(system)?;
        }
        Ok(self.book.insert(book).clone())
    }

    /// The socket that the server has bound for this rank; `None`: it has bound none, or the network uses it.
    pub fn listening(&mut self, job: &mut Job) -> Result<Option<c_int>, Error> {
        let book = self.book(job)?;
        let is_used = self.wants_sockets() && self.they_listen;
        Ok(book.filter(|_| !is_used).and_then(|book| book.listening()))
    }

    /// The addresses of the socket that the server has bound for a rank, best first; `None`: it has bound none, or
    /// there is no such rank. Sockets that do not listen have the same addresses on all ranks, the ones for other
    /// hosts, because the program's own sockets may listen at one of them.
    pub fn listens_at(&mut self, job: &mut Job, rank: u32) -> Result<Option<Vec<SocketAddr>>, Error> {
        let Some(book) = self.book(job)? else { return Ok(None) };
        let Some(address) = book.address(rank) else { return Ok(None) };
        if !self.they_listen {
            return Ok(Some(rank_address::for_all(&address)));
        }
        let host = book.address(job.rank).as_deref().and_then(rank_address::host);
        Ok(host.map(|host| rank_address::candidates(&address, host)))
    }
}

/// The name under which ranks publish the addresses of this library; a secondary library has a name of its own.
pub fn address_name(job: &Job) -> Vec<u8> {
    if job.name.is_empty() { b"wireup".into() } else { [b"/", &job.name[..]].concat() }
}

/// How long a rank that gives up still informs other ranks of the reason (ms).
const ABANDON_MS_MAX: u64 = 1_000;

/// The context of the group in the order of the server's ring.
const RING: Context = 2;

/// The network, the context of the group of all ranks, and how long they took to make.
type Made = (Network, Context, Phases);

/// Makes the network of all ranks. `bound`: the addresses of all ranks, if the server has bound a TCP socket for each.
///
/// The function waits for no other rank if `bound` is given, or if `start` is [`Start::Auto`] and the server is
/// wireup's. Otherwise all ranks must call the function, and it waits for them.
pub fn network(
    job: &mut Job,
    start: Start,
    transport: Transport,
    bound: Option<Arc<Endpoints>>,
) -> Result<Made, Error> {
    let begin = now_ns();
    if let Some(book) = bound {
        let listening = net::inherited(book.listening().unwrap_or(-1)).map_err(system)?;
        let address = book.address(job.rank).unwrap_or_default();
        let network = with_book(job, Listener::bound(listening, &address), book)?;
        let formed = now_ns();
        return Ok((network, WORLD, Phases::between([begin, begin, begin, formed, formed])));
    }
    let listener = Listener::new(transport)?;
    let opened = now_ns();
    let neighbours = [job.size - 1, 1].map(|distance| (job.rank + distance) % job.size);
    if start == Start::Auto && job.answers_questions() {
        let name = address_name(job);
        let book = job.told_endpoints(&name, &listener.address).map_err(Error::Server)?;
        let told = now_ns();
        let mut network = with_book(job, listener, Arc::new(book))?;
        // The neighbours' addresses are needed soon, and their requests detect differing transports: if ranks use more
        // than one, some rank has a neighbour with another transport.
        neighbours.into_iter().filter(|rank| *rank != job.rank).for_each(|rank| network.book.want(rank));
        let formed = now_ns();
        return Ok((network, WORLD, Phases::between([begin, opened, told, formed, formed])));
    }
    let own = [&job.rank.to_le_bytes()[..], &listener.address].concat();
    let (place, secret, sides) = if start == Start::Ring {
        let secret = agree((job.rank, job.size), &[], &[], &mut |text, whose| exchange(job, text, whose))?.0;
        let ring = job.ring(&hex::encode(&own)).map_err(Error::Server)?;
        (ring.position, secret, [ring.left, ring.right].map(|text| hex::decode(&text)))
    } else {
        let identity = (job.rank, job.size);
        let (secret, told) = agree(identity, &own, &neighbours, &mut |text, whose| exchange(job, text, whose))?;
        (job.rank, secret, neighbours.map(|rank| told.get(&rank).cloned()))
    };
    let mut network = Network::new(job.rank, secret, listener).map_err(system)?;
    watch_server(&network, job)?;
    let [left, right] = sides.map(|side| side.and_then(|bytes| peer(&bytes)).ok_or(Error::Mismatch));
    let (left, right) = (left?, right?);
    if [&left, &right].iter().any(|peer| !network.can_reach(&peer.address)) {
        return Err(Error::Mismatch);
    }
    let ring_done = now_ns();
    if start != Start::Ring {
        let formed = network.groups.form(WORLD, job.rank, job.size, left, right);
        wait(&mut network, formed)?;
        let formed = now_ns();
        return Ok((network, WORLD, Phases::between([begin, opened, ring_done, formed, formed])));
    }
    let formed = network.groups.form(RING, place, job.size, left, right);
    wait(&mut network, formed)?;
    let formed = now_ns();
    let split = network.groups.split(RING, Wanted { colour: Some(Vec::new()), key: job.rank.into() });
    let Done::Group(Some(world)) = wait(&mut network, split)? else { return Err(Error::Mismatch) };
    network.groups.free(RING);
    Ok((network, world, Phases::between([begin, opened, ring_done, formed, now_ns()])))
}

fn system(error: Errno) -> Error {
    Error::System(error.0)
}

/// Makes the network from a complete table of addresses: the graph needs no messages.
fn with_book(job: &mut Job, listener: Listener, book: Arc<Endpoints>) -> Result<Network, Error> {
    // This cannot fail: the algorithm is compiled into this library.
    let secret = of_library(&book.secret, &job.name).map_err(|_| Error::System(0))?;
    let mut network = Network::new(job.rank, secret, listener).map_err(system)?;
    watch_server(&network, job)?;
    network.use_endpoints(book);
    let Network { groups, book, .. } = &mut network;
    groups.form_whole(WORLD, (job.rank, job.size), true, &|rank| Peer { rank, address: book.told(rank) });
    network.pump();
    Ok(network)
}

fn watch_server(network: &Network, job: &mut Job) -> Result<(), Error> {
    let Ok(server) = job.server() else { return Ok(()) };
    network.epoll().watch(server.socket().fd(), SERVER, false, true).map_err(system)
}

fn wait(network: &mut Network, request: Request) -> Result<Done, Error> {
    network.pump();
    loop {
        if let Some(done) = network.results.take(request) {
            if done.is_err() {
                network.abandon(ABANDON_MS_MAX);
            }
            return done.map_err(Error::Group);
        }
        network.progress(-1);
    }
}

/// Publishes a text to all ranks, and returns the texts of the ranks `whose`.
fn exchange(job: &mut Job, text: &[u8], whose: &BTreeSet<u32>) -> Result<BTreeMap<u32, Vec<u8>>, Error> {
    let id = job.start_allgather(text, VALUE_LEN_MAX, false);
    let gathered = job.collect(id).map_err(Error::Server)?;
    let (whose, mut texts) = (whose.iter().copied().collect::<Vec<u32>>(), BTreeMap::new());
    let got = job.values(&gathered, &whose, &mut |rank, text| {
        texts.insert(rank, text.to_vec());
        Ok(())
    });
    got.map_err(Error::Server)?;
    Ok(texts)
}

/// Decodes a rank and its address; `None`: the bytes are too short.
fn peer(bytes: &[u8]) -> Option<Peer> {
    let (rank, address) = bytes.split_first_chunk()?;
    Some(Peer { rank: u32::from_le_bytes(*rank), address: address.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_its_rank_and_its_address() {
        assert_eq!(peer(&[1, 0, 0, 0, 0xaa]), Some(Peer { rank: 1, address: [0xaa].into() }));
        assert_eq!(peer(&[1, 0]), None);
    }
}
