//! Makes the network of ranks: one exchange for the secret, one with both neighbours, then messages among ranks only (S2).
//!
//! ```text
//!   rank 0's secret ──► all        an allgather with one value
//!   own address ──► left, right    by an allgather (put, fence and two gets with other servers): a ring in the order of ranks
//!                                  by PMIX_Ring: a ring in the server's order ──► binomial graph ──► split with ranks as keys
//!   ring ──► binomial graph ──► the world
//! ```
//!
//! `PMIX_Ring` brings two addresses to a rank, the allgather those of all ranks to a node; but the split takes `3 log² P` steps. Measured
//! with 64 ranks on two cores: the network and a first split take 406 ms with the ring, 255 ms without. So the ring is for those who ask
//! for it.
//!
//! In a job whose ranks get listening sockets from their server all of this is known without an exchange ([`Start::Instant`]).

use crate::context::Error;
use crate::network::proof::Secret;
use crate::network::{Network, Transport, known};
use alloc::sync::Arc;
use alloc::vec::Vec;
use wireup_capi::hex;
use wireup_capi::job::{Endpoints, Job};
use wireup_capi::net::{self, now_ns};
use wireup_group::algorithms::Wanted;
use wireup_group::{Context, Done, Peer, Request, WORLD};

/// How ranks learn their neighbours' addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    Allgather,
    Ring,
    /// From the server, which has bound their sockets: no exchange, if it is so.
    Instant,
}

/// How long the network of ranks took to make on this rank, waits for other ranks included (ns).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Phases {
    /// The secret, and the addresses of both neighbours, by the server; with [`Start::Instant`] nothing.
    pub ring_ns: u64,
    /// From the ring to the group of all.
    pub group_ns: u64,
}

/// The group in the order of the server's ring.
const RING: Context = 2;
/// Longest secret as text.
const SECRET_TEXT_LEN: usize = 2 * size_of::<Secret>();

/// The network, the group of all, and how long that took.
type Made = (Network, Context, Phases);

/// All ranks must call it, and it waits for them, unless there is a book, which is for TCP.
pub fn network(job: &mut Job, start: Start, transport: Transport, book: Option<Arc<Endpoints>>) -> Result<Made, Error> {
    let begin = now_ns();
    if let Some(book) = book {
        let network = instant(job, book)?;
        return Ok((network, WORLD, Phases { ring_ns: 0, group_ns: now_ns() - begin }));
    }
    let secret = secret(job)?;
    let mut network = Network::new(job.rank, secret, transport).map_err(|error| Error::System(error.0))?;
    watch_server(&network, job)?;
    let mut own = job.rank.to_le_bytes().to_vec();
    own.extend_from_slice(network.own_address());
    let own = hex::encode(&own);
    let ring = match start {
        Start::Allgather | Start::Instant => job.neighbours(&own),
        Start::Ring => job.ring(&own),
    };
    let ring = ring.map_err(Error::Server)?;
    let (left, right) = (peer(&ring.left)?, peer(&ring.right)?);
    if [&left, &right].iter().any(|peer| !network.can_reach(&peer.address)) {
        return Err(Error::Mismatch);
    }
    let ring_done = now_ns();
    let phases = |done| Phases { ring_ns: ring_done - begin, group_ns: done - ring_done };
    if start != Start::Ring {
        let formed = network.groups.form(WORLD, job.rank, job.size, left, right);
        wait(&mut network, formed)?;
        return Ok((network, WORLD, phases(now_ns())));
    }
    let formed = network.groups.form(RING, ring.position, job.size, left, right);
    wait(&mut network, formed)?;
    let split = network.groups.split(RING, Wanted { colour: Some(Vec::new()), key: job.rank.into() });
    let Done::Group(Some(world)) = wait(&mut network, split)? else { return Err(Error::Mismatch) };
    network.groups.free(RING);
    Ok((network, world, phases(now_ns())))
}

/// All addresses are known: the graph needs no messages.
fn instant(job: &mut Job, endpoints: Arc<Endpoints>) -> Result<Network, Error> {
    let listening = net::inherited(endpoints.listening).map_err(|error| Error::System(error.0))?;
    let address = endpoints.address(job.rank).unwrap_or_default();
    let mut network =
        Network::on(listening, job.rank, address, endpoints.secret).map_err(|error| Error::System(error.0))?;
    watch_server(&network, job)?;
    network.groups.form_known(WORLD, job.rank, job.size, &|rank| known(&endpoints, rank));
    network.use_book(endpoints);
    network.pump();
    Ok(network)
}

fn watch_server(network: &Network, job: &mut Job) -> Result<(), Error> {
    let Ok(server) = job.server() else { return Ok(()) };
    network.watch_server(server.socket().fd()).map_err(|error| Error::System(error.0))
}

fn wait(network: &mut Network, request: Request) -> Result<Done, Error> {
    network.pump();
    loop {
        if let Some(done) = network.take_done(request) {
            return done.map_err(Error::Group);
        }
        network.progress(-1);
    }
}

fn secret(job: &mut Job) -> Result<Secret, Error> {
    let mut own = Secret::default();
    if job.rank == 0 {
        getrandom::fill(&mut own).map_err(|error| Error::System(error.raw_os_error().unwrap_or(0)))?;
    }
    if job.size == 1 {
        return Ok(own);
    }
    let text = if job.rank == 0 { hex::encode(&own) } else { Vec::new() };
    let id = job.start_allgather(&text, SECRET_TEXT_LEN, false);
    let gathered = job.collect(id).map_err(Error::Server)?;
    let mut secret = None;
    let got = job.values(&gathered, &[0], &mut |_, text| {
        secret = hex::decode(text).and_then(|bytes| bytes.try_into().ok());
        Ok(())
    });
    got.map_err(Error::Server)?;
    secret.ok_or(Error::Mismatch)
}

fn peer(text: &[u8]) -> Result<Peer, Error> {
    let bytes = hex::decode(text).ok_or(Error::Mismatch)?;
    let (rank, address) = bytes.split_first_chunk().ok_or(Error::Mismatch)?;
    Ok(Peer { rank: u32::from_le_bytes(*rank), address: address.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_its_rank_and_its_address() {
        assert!(peer(b"01000000aa").is_ok_and(|peer| peer.rank == 1 && peer.address == [0xaa]));
        assert_eq!(peer(b"0100").map(|_| ()), Err(Error::Mismatch));
    }
}
