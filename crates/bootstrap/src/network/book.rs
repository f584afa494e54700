//! Where all ranks listen, as the job's server says.

use super::carrier::Transport;
use wireup_capi::job::Endpoints;
use wireup_group::Peer;

/// A rank in the book; without an address if that must be asked for. The server's sockets are those of TCP.
pub fn known(book: &Endpoints, rank: u32) -> Peer {
    let address = book.address(rank).map(|address| Transport::Tcp.address(&address));
    Peer { rank, address: address.unwrap_or_default() }
}
