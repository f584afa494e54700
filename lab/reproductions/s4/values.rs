//! The values that processes exchange: for each peer the address of a socket that only this peer may use.
//!
//! In S4 a process creates a queue pair for each peer, and two processes are connected once each knows the number of
//! the other's queue pair. Here it creates a socket for each peer, and a connection is accepted only from the socket
//! that the peer has made for it.
use std::net::{Ipv4Addr, SocketAddrV4};

/// IPv4 address and port.
pub const VALUE_LEN: usize = 6;

pub fn encode(values: impl IntoIterator<Item = SocketAddrV4>) -> Vec<u8> {
    let bytes = |value: SocketAddrV4| value.ip().octets().into_iter().chain(value.port().to_be_bytes());
    values.into_iter().flat_map(bytes).collect()
}

/// `None` if the length is wrong.
pub fn decode(bytes: &[u8]) -> Option<Vec<SocketAddrV4>> {
    let (values, []) = bytes.as_chunks::<VALUE_LEN>() else { return None };
    let value = |&[a, b, c, d, high, low]: &[u8; VALUE_LEN]| {
        SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
    };
    Some(values.iter().map(value).collect())
}

/// Where the value for `peer` is in the row of `owner`, which has none for itself.
pub fn place(owner: u16, peer: u16) -> usize {
    usize::from(if peer < owner { peer } else { peer - 1 })
}

/// The value for `peer` in the encoded row of `owner`.
pub fn picked(row: &[u8], owner: u16, peer: u16) -> &[u8] {
    let at = place(owner, peer) * VALUE_LEN;
    &row[at..at + VALUE_LEN]
}

/// What all rows have for `peer`, by owner (data reassembly). `rows` has the encoded row of each process.
pub fn reassembled(rows: &[Vec<u8>], peer: u16) -> Vec<u8> {
    let others = (0..rows.len() as u16).filter(|owner| *owner != peer);
    others.flat_map(|owner| picked(&rows[usize::from(owner)], owner, peer).to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a pair shows whose it is.
    pub fn value(owner: u16, peer: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::from(u32::from(owner)), peer + 1)
    }

    #[test]
    fn values_survive_as_bytes() {
        let values = [value(1, 2), value(300, 65_000)];
        assert_eq!(decode(&encode(values)), Some(values.to_vec()));
        assert_eq!(decode(&[0; VALUE_LEN + 1]), None);
    }

    #[test]
    fn reassembly_gives_each_process_what_is_meant_for_it() {
        let size = 5;
        let others = |owner: u16| (0..size).filter(move |peer| *peer != owner);
        let rows: Vec<Vec<u8>> = (0..size).map(|owner| encode(others(owner).map(|peer| value(owner, peer)))).collect();
        for peer in 0..size {
            let wanted: Vec<SocketAddrV4> = others(peer).map(|owner| value(owner, peer)).collect();
            assert_eq!(decode(&reassembled(&rows, peer)), Some(wanted));
        }
    }
}
