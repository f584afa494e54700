//! Datagrams over UDP: one socket for all ranks.

use super::Wire;
use super::endpoint::{Refusal, WireAddress};
use super::open::QUOTE_LEN;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::net::{IpAddr, SocketAddr};
use wireup_capi::net::{self, Descriptor, Errno, Received};
use wireup_wire::rank_address;

/// Fits the minimum MTU of IPv6 (1,280 bytes with all headers), so that no datagram is fragmented.
const DATAGRAM_LEN: usize = 1_232;

pub struct Udp {
    socket: net::Datagrams,
    host: u64,
    /// The address at which other ranks reach this one.
    pub address: Vec<u8>,
    /// Sockets over which agents relay datagrams, each to and from one rank; `None`: the relay has ended.
    relays: Vec<Option<Descriptor>>,
    /// Relays that have ended and whose end was not reported yet.
    ended: Vec<WireAddress>,
}

impl Udp {
    /// # Errors
    /// There is no free port, or no free descriptor.
    pub fn open() -> Result<Udp, Errno> {
        let (socket, port) = net::Datagrams::open()?;
        let host = net::host_number();
        let address = rank_address::encode(host, port, &net::addresses());
        Ok(Udp { socket, host, address, relays: Vec::new(), ended: Vec::new() })
    }
}

impl Wire for Udp {
    fn fd(&self) -> c_int {
        self.socket.fd()
    }

    /// Answers go to the source address of each hello, because a network may have translated the address.
    fn own_place(&self) -> WireAddress {
        WireAddress::new()
    }

    fn datagram_len(&self) -> usize {
        DATAGRAM_LEN
    }

    fn places(&self, address: &[u8]) -> Vec<WireAddress> {
        rank_address::candidates(address, self.host).iter().map(place).collect()
    }

    fn send(&mut self, to: &[u8], bytes: &[u8]) -> bool {
        match socket_address(to) {
            Some(to) => self.socket.send(&to, bytes),
            None => {
                self.send_to_relay(to, bytes);
                true
            }
        }
    }

    fn receive(&mut self, from: &mut WireAddress, buffer: &mut [u8]) -> Option<usize> {
        let Some((len, address)) = self.socket.receive(buffer) else { return self.receive_from_relays(from, buffer) };
        from.clear();
        append(&address, from);
        Some(len)
    }

    fn add_relay(&mut self, socket: Descriptor) -> Option<WireAddress> {
        self.relays.push(Some(socket));
        Some(relay_place(self.relays.len() - 1))
    }

    fn refused(&mut self) -> Option<(WireAddress, Refusal)> {
        let mut quote = vec![0; QUOTE_LEN];
        let Some((address, len)) = self.socket.refused(&mut quote) else {
            return self.ended.pop().map(|relay| (relay, Refusal::Certain));
        };
        quote.truncate(len);
        Some((place(&address), Refusal::Quotes(quote)))
    }
}

impl Udp {
    /// A datagram for which the socket has no room is lost, as on any network.
    fn send_to_relay(&mut self, to: &[u8], bytes: &[u8]) {
        let Some(at) = to.try_into().ok().map(u32::from_le_bytes) else { return };
        if let Some(Some(socket)) = self.relays.get(at as usize) {
            // If the relay has ended, the next read reports it.
            let _ = net::write(socket, bytes);
        }
    }

    fn receive_from_relays(&mut self, from: &mut WireAddress, buffer: &mut [u8]) -> Option<usize> {
        for (at, relay) in self.relays.iter_mut().enumerate() {
            match relay.as_ref().map(|socket| net::read(socket, buffer)) {
                Some(Ok(Received::Bytes(len))) => {
                    *from = relay_place(at);
                    return Some(len);
                }
                Some(Ok(Received::End) | Err(_)) => {
                    *relay = None;
                    self.ended.push(relay_place(at));
                }
                Some(Ok(Received::Nothing)) | None => {}
            }
        }
        None
    }
}

/// The wire address of a relay. It is shorter than an IP address with its port, which tells the two apart.
fn relay_place(at: usize) -> WireAddress {
    (at as u32).to_le_bytes().to_vec()
}

fn place(address: &SocketAddr) -> WireAddress {
    let mut place = WireAddress::with_capacity(18);
    append(address, &mut place);
    place
}

/// Appends the bytes of the IP address, and the port.
fn append(address: &SocketAddr, out: &mut WireAddress) {
    match address.ip() {
        IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
    }
    out.extend_from_slice(&address.port().to_le_bytes());
}

fn socket_address(place: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = place.split_last_chunk()?;
    let ip: IpAddr = match ip.len() {
        4 => <[u8; 4]>::try_from(ip).ok()?.into(),
        _ => <[u8; 16]>::try_from(ip).ok()?.into(),
    };
    Some(SocketAddr::new(ip, u16::from_le_bytes(*port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_addresses() {
        for text in ["10.1.2.3:99", "[fd00::1]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(socket_address(&place(&address)), Some(address));
        }
        assert_eq!((socket_address(&[]), socket_address(&[1; 7])), (None, None));
    }
}
