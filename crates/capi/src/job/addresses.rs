//! Addresses of ranks: reported to the server, and requested when needed. Servers other than wireup's get puts and gets
//! instead.

use super::Job;
use crate::codes::{Code, Result};
use crate::net::{self, Descriptor};
use alloc::vec::Vec;
use wireup_wire::hex;
use wireup_wire::limits::KEY_LEN_MAX;
use wireup_wire::pmi::Request;

/// Longest address: as hexadecimal digits it fits into a value of every server (Hydra: a little less than the announced
/// 1,024 bytes).
pub const ADDRESS_LEN_MAX: usize = 500;
/// Longest name of a network that a program may give; this library adds a letter.
pub const ADDRESS_NAME_LEN_MAX: usize = 32;

/// Precedes an address that is put as a kvs pair: MPICH's servers do not accept empty values.
const MARK: &[u8] = b"x";

impl Job {
    /// Whether the server answers requests for addresses. Otherwise addresses are kvs pairs, which a fence publishes.
    pub fn answers_questions(&self) -> bool {
        self.collectives.own.is_some()
    }

    /// Reports where this rank is reached, once under each name. Does not wait.
    ///
    /// # Errors
    /// Name or address are too long, or the server is gone.
    pub fn set_address(&mut self, name: &[u8], address: &[u8]) -> Result {
        if name.len() > KEY_LEN_MAX || address.len() > ADDRESS_LEN_MAX {
            return Err(Code::INVALID_ARG);
        }
        let value = hex::encode(address);
        if self.answers_questions() {
            return Ok(self.server()?.tell(&Request::AddressSet { name, value: &value })?);
        }
        self.put(&key(name, self.rank), &[MARK, &value].concat())
    }

    /// Asks the agents for a connection to a rank of another node that cannot be connected to directly. Waits for the
    /// server only. `None`: there is none.
    pub fn relay(&mut self, name: &[u8], rank: u32) -> Option<Descriptor> {
        if !self.answers_questions() {
            return None;
        }
        let server = self.server().ok()?;
        server.tell(&Request::Relay { rank, name }).ok()?;
        net::received(server.link.take_memory().pop()??.into_socket()?).ok()
    }

    /// Where a rank is reached, as it reported before the last fence; for servers other than wireup's.
    ///
    /// # Errors
    /// The server is gone.
    pub fn look_up_address(&mut self, name: &[u8], rank: u32) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        let source = i32::try_from(rank).unwrap_or(-1);
        match self.get(b"", source, &key(name, rank), &mut |value| {
            found = value.strip_prefix(MARK).and_then(hex::decode);
        }) {
            // Some servers refuse a get of a key that does not exist.
            Ok(_) | Err(Code::OTHER) => Ok(found),
            Err(code) => Err(code),
        }
    }
}

fn key(name: &[u8], rank: u32) -> Vec<u8> {
    [b"wireup-", name, b"-", &hex::encode(&rank.to_be_bytes())].concat()
}
