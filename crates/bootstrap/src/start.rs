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

use crate::context::Error;
use crate::network::Network;
use crate::network::proof::Secret;
use alloc::vec::Vec;
use wireup_capi::job::Job;
use wireup_group::algorithms::Wanted;
use wireup_group::{Context, Done, Peer, Request, WORLD};

/// How ranks learn their neighbours' addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    Allgather,
    Ring,
}

/// The group in the order of the server's ring.
const RING: Context = 2;
/// Longest secret as text.
const SECRET_TEXT_LEN: usize = 2 * size_of::<Secret>();

/// All ranks must call it, and it waits for them.
pub fn network(job: &mut Job, start: Start) -> Result<(Network, Context), Error> {
    let secret = secret(job)?;
    let mut network = Network::new(job.rank, secret).map_err(|error| Error::System(error.0))?;
    if let Ok(server) = job.server() {
        let fd = server.socket().fd();
        network.watch_server(fd).map_err(|error| Error::System(error.0))?;
    }
    let mut own = job.rank.to_le_bytes().to_vec();
    own.extend_from_slice(network.own_address());
    let own = hex(&own);
    let ring = match start {
        Start::Allgather => job.neighbours(&own),
        Start::Ring => job.ring(&own),
    };
    let ring = ring.map_err(Error::Server)?;
    let (left, right) = (peer(&ring.left)?, peer(&ring.right)?);
    if start == Start::Allgather {
        let formed = network.groups.form(WORLD, job.rank, job.size, left, right);
        wait(&mut network, formed)?;
        return Ok((network, WORLD));
    }
    let formed = network.groups.form(RING, ring.position, job.size, left, right);
    wait(&mut network, formed)?;
    let split = network.groups.split(RING, Wanted { colour: Some(Vec::new()), key: job.rank.into() });
    let Done::Group(Some(world)) = wait(&mut network, split)? else { return Err(Error::Mismatch) };
    network.groups.free(RING);
    Ok((network, world))
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
    let text = if job.rank == 0 { hex(&own) } else { Vec::new() };
    let id = job.start_allgather(&text, SECRET_TEXT_LEN, false);
    let gathered = job.collect(id).map_err(Error::Server)?;
    let mut secret = None;
    let got = job.values(&gathered, &[0], &mut |_, text| {
        secret = unhex(text).and_then(|bytes| bytes.try_into().ok());
        Ok(())
    });
    got.map_err(Error::Server)?;
    secret.ok_or(Error::Mismatch)
}

fn peer(text: &[u8]) -> Result<Peer, Error> {
    let bytes = unhex(text).ok_or(Error::Mismatch)?;
    let (rank, address) = bytes.split_first_chunk().ok_or(Error::Mismatch)?;
    Ok(Peer { rank: u32::from_le_bytes(*rank), address: address.to_vec() })
}

/// Values of servers are text.
fn hex(bytes: &[u8]) -> Vec<u8> {
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_as_text() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&bytes)), Some(bytes));
        for wrong in [&b"0"[..], b"0g", b"-1"] {
            assert_eq!(unhex(wrong), None);
        }
        assert!(peer(b"01000000aa").is_ok_and(|peer| peer.rank == 1 && peer.address == [0xaa]));
        assert_eq!(peer(b"0100").map(|_| ()), Err(Error::Mismatch));
    }
}
