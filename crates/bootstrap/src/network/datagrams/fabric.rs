//! Datagrams of libfabric: one endpoint for all ranks (`FI_EP_DGRAM`).
//!
//! A place is a libfabric endpoint address. Providers report neither the source of a datagram nor the exit of the
//! process at the other end: so hellos contain the sender's place, and no dial is ever refused.

use super::Wire;
use super::endpoint::WireAddress;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_fabric::{ADDRESS_LEN_MAX, Endpoint, Error, Peer};
use wireup_wire::rank_address;

// The exchange of addresses has room for a libfabric address, and a hello stores the address's length in one byte.
const _: () = assert!(ADDRESS_LEN_MAX <= rank_address::LEN_MAX && ADDRESS_LEN_MAX <= u8::MAX as usize);

pub struct Fabric {
    endpoint: Endpoint,
    /// Peers by place. They are ranks only, because the place in a hello is read after the hello's code was checked.
    peers: BTreeMap<WireAddress, Option<Peer>>,
}

impl Fabric {
    /// # Errors
    /// There is no libfabric, or no provider.
    pub fn open() -> Result<Fabric, Error> {
        Ok(Fabric { endpoint: Endpoint::open()?, peers: BTreeMap::new() })
    }

    /// The address at which other ranks reach this one.
    pub fn address(&self) -> Vec<u8> {
        self.endpoint.address().to_vec()
    }
}

impl Wire for Fabric {
    fn fd(&self) -> c_int {
        self.endpoint.fd()
    }

    fn own_place(&self) -> WireAddress {
        self.endpoint.address().to_vec()
    }

    fn datagram_len(&self) -> usize {
        self.endpoint.datagram_len()
    }

    fn understands(&self, address: &[u8]) -> bool {
        self.endpoint.understands(address)
    }

    fn place(&self, address: &[u8]) -> Option<WireAddress> {
        self.understands(address).then(|| address.to_vec())
    }

    fn send(&mut self, to: &[u8], bytes: &[u8]) -> bool {
        if !self.peers.contains_key(to) {
            let peer = self.endpoint.peer(to);
            self.peers.insert(to.to_vec(), peer);
        }
        let peer = self.peers.get(to).copied().flatten();
        peer.is_none_or(|peer| self.endpoint.send(peer, bytes))
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.endpoint.receive(buffer)
    }
}
