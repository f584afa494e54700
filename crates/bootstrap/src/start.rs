//! Makes the network of ranks: an exchange among all ranks by the server, then messages among ranks only (S2).
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

use crate::agreement::agree;
use crate::error::Error;
use crate::network::proof::of_library;
use crate::network::{Listener, Network, Transport, known};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use wireup_capi::job::{Endpoints, Job};
use wireup_capi::net::{self, Errno, now_ns};
use wireup_group::algorithms::Wanted;
use wireup_group::{Context, Done, Peer, Request, WORLD};
use wireup_wire::hex;
use wireup_wire::limits::VALUE_LEN_MAX;

/// How the network of ranks is started: how ranks learn each other's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// The fastest way that the server offers.
    Auto,
    Allgather,
    Ring,
}

/// How long it took to make the network of ranks on this rank, including waits for other ranks (ns).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Phases {
    /// Time of the exchanges by the server.
    pub ring_ns: u64,
    /// Time from the ring to the group of all ranks.
    pub group_ns: u64,
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
    let phases = |ring_done| Phases { ring_ns: ring_done - begin, group_ns: now_ns() - ring_done };
    if let Some(book) = bound {
        let listening = net::inherited(book.listening().unwrap_or(-1)).map_err(system)?;
        let address = book.address(job.rank).unwrap_or_default();
        let network = with_book(job, Listener::bound(listening, address), book)?;
        return Ok((network, WORLD, phases(begin)));
    }
    let listener = Listener::new(transport)?;
    if start == Start::Auto && job.answers_questions() {
        let name = address_name(job);
        let book = job.told_endpoints(&name, &listener.address()).map_err(Error::Server)?;
        let told = now_ns();
        let mut network = with_book(job, listener, Arc::new(book))?;
        // The neighbours' addresses are needed soon, and their requests detect differing transports: if ranks use more
        // than one, some rank has a neighbour with another transport.
        let neighbours = [job.size - 1, 1].map(|distance| (job.rank + distance) % job.size);
        neighbours.into_iter().filter(|rank| *rank != job.rank).for_each(|rank| network.book.want(rank));
        return Ok((network, WORLD, phases(told)));
    }
    let own = [&job.rank.to_le_bytes()[..], &listener.address()].concat();
    let neighbours = [job.size - 1, 1].map(|distance| (job.rank + distance) % job.size);
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
        return Ok((network, WORLD, phases(ring_done)));
    }
    let formed = network.groups.form(RING, place, job.size, left, right);
    wait(&mut network, formed)?;
    let split = network.groups.split(RING, Wanted { colour: Some(Vec::new()), key: job.rank.into() });
    let Done::Group(Some(world)) = wait(&mut network, split)? else { return Err(Error::Mismatch) };
    network.groups.free(RING);
    Ok((network, world, phases(ring_done)))
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
    network.groups.form_whole(WORLD, (job.rank, job.size), true, &|rank| known(&book, rank));
    network.use_endpoints(book);
    network.pump();
    Ok(network)
}

fn watch_server(network: &Network, job: &mut Job) -> Result<(), Error> {
    let Ok(server) = job.server() else { return Ok(()) };
    network.watch_server(server.socket().fd()).map_err(system)
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
