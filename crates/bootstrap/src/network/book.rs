//! The addresses of ranks: those that groups have learnt, those that the job's server has sent, and the ranks whose
//! addresses must still be requested from the server.

use super::carrier::Transport;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use wireup_capi::job::Endpoints;

#[derive(Default)]
pub struct AddressBook {
    pub transport: Transport,
    /// Addresses learnt from groups or from the server's answers.
    pub learnt: BTreeMap<u32, Vec<u8>>,
    /// The server's table of all ranks' addresses; it is empty if each address must be requested from the server.
    /// `None`: the server has no table, and answers no requests.
    pub endpoints: Option<Arc<Endpoints>>,
    /// `sought`: ranks whose address is needed and has not arrived; `wanted`: the ranks of `sought` whose address has
    /// not been requested from the server yet.
    pub sought: BTreeSet<u32>,
    pub wanted: Vec<u32>,
    /// Ranks that use another transport than this one.
    pub misfits: BTreeSet<u32>,
}

impl AddressBook {
    pub fn new(transport: Transport) -> AddressBook {
        AddressBook { transport, ..AddressBook::default() }
    }

    /// Whether every rank's address is known or can be requested from the server.
    pub fn has_all(&self) -> bool {
        self.endpoints.is_some()
    }

    /// The address of a rank; empty if it is not known.
    pub fn address(&self, rank: u32) -> Vec<u8> {
        self.learnt.get(&rank).cloned().unwrap_or_else(|| self.told(rank))
    }

    /// A rank's address from the server's table; empty if it must be requested, or without a table. The server's
    /// sockets are TCP sockets.
    pub fn told(&self, rank: u32) -> Vec<u8> {
        let address = self.endpoints.as_ref().and_then(|endpoints| endpoints.address(rank));
        address.map(|address| Transport::Tcp.address(&address)).unwrap_or_default()
    }

    /// Marks a rank's address as wanted, unless it is known or marked already.
    pub fn want(&mut self, rank: u32) {
        if self.address(rank).is_empty() && self.sought.insert(rank) {
            self.wanted.push(rank);
        }
    }

    /// Records that the server has answered the request for this rank's address.
    pub fn on_answer(&mut self, rank: u32) {
        self.sought.remove(&rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_asked_for_once_at_a_time_until_its_address_is_known() {
        let mut book = AddressBook::new(Transport::Udp);
        [7, 8, 7].into_iter().for_each(|rank| book.want(rank));
        assert_eq!(core::mem::take(&mut book.wanted), [7, 8]);
        book.on_answer(7);
        book.want(7);
        book.on_answer(8);
        book.learnt.insert(8, [2, 9].into());
        book.want(8);
        assert_eq!((&book.wanted[..], &book.sought), (&[7][..], &[7].into()));
        assert_eq!((book.address(8), book.address(7), book.learnt.len()), ([2, 9].into(), [].into(), 1));
    }
}
