//! What our own server knows of the ranks' network: the secret of the job, who is on which node, and, if it has bound
//! the ranks' sockets, where all ranks listen (a table in the memory of each node).

use super::{Job, value};
use crate::clique::place;
use crate::codes::{Code, Result};
use crate::mapping::MappedBytes;
use crate::text::variable;
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_client::link::Answer;
use wireup_client::memory::Memory;
use wireup_client::number;
use wireup_wire::hex;
use wireup_wire::pmi::{Command, Request};
use wireup_wire::rank_address;
use wireup_wire::shared::rows::Rows;

pub struct Endpoints {
    /// The secret of the job, which only its ranks know.
    pub secret: [u8; 32],
    size: u32,
    /// `PMI_process_mapping`; empty if it is too long for a value.
    mapping: Vec<u8>,
    bound: Option<Bound>,
}

/// The listening sockets of all ranks, if the server has bound them.
struct Bound {
    /// A row for each node, with the lowest port of its ranks.
    rows: MappedBytes,
    listening: c_int,
}

impl Job {
    /// The endpoints, without an exchange among the ranks; `None`: the server has bound no sockets. Waits until the
    /// sockets of all nodes are bound.
    ///
    /// # Errors
    /// The server is gone, or breaks the rules.
    pub fn bound_endpoints(&mut self) -> Result<Option<Endpoints>> {
        let Some(listening) = variable("WIREUP_LISTEN_FD").and_then(|text| number::parse(&text)) else {
            return Ok(None);
        };
        if !self.answers_questions() {
            return Ok(None);
        }
        let mut endpoints = self.ask_endpoints(&Request::Endpoints)?;
        let table = self.server()?.link.take_memory().pop().flatten().and_then(|memory| memory.whole());
        if endpoints.mapping.is_empty() {
            return Err(Code::OTHER);
        }
        endpoints.bound = Some(Bound { rows: table.ok_or(Code::NOMEM)?, listening });
        Ok(Some(endpoints))
    }

    /// Reports to the server where this rank is reached, so that other ranks may ask for it
    /// ([`ask_address`](crate::Server::ask_address)). Waits for the server only.
    ///
    /// # Errors
    /// The server is gone, is not ours, or has been told another address of this name.
    pub fn told_endpoints(&mut self, name: &[u8], address: &[u8]) -> Result<Endpoints> {
        self.ask_endpoints(&Request::AddressSet { name, value: &hex::encode(address) })
    }

    /// Asks for the secret and the process mapping together with `request`, in one round trip.
    fn ask_endpoints(&mut self, request: &Request<'_>) -> Result<Endpoints> {
        let size = self.size;
        let server = self.server()?;
        let (mut mapping, mut secret, mut is_done) = (Vec::new(), None, false);
        server.link.ask(&Request::GetJobAttr { key: b"PMI_process_mapping" })?;
        server.link.ask(&Request::Secret)?;
        server.link.ask(request)?;
        server.settle(&mut |Answer { command, fields, .. }| match command {
            Command::GetJobAttr => mapping = value(fields),
            Command::Secret => {
                secret = fields.get("secret").and_then(hex::decode).and_then(|bytes| bytes.try_into().ok());
            }
            _ => is_done = fields.succeeded(),
        })?;
        let secret = secret.filter(|_| is_done).ok_or(Code::OTHER)?;
        Ok(Endpoints { secret, size, mapping, bound: None })
    }
}

impl Endpoints {
    /// The descriptor of this rank's listening socket, if the server has bound it.
    pub fn listening(&self) -> Option<c_int> {
        self.bound.as_ref().map(|bound| bound.listening)
    }

    /// Where a rank listens whose socket the server has bound, as in `wireup_wire::rank_address`.
    pub fn address(&self, rank: u32) -> Option<Vec<u8>> {
        let bound = self.bound.as_ref().filter(|_| rank < self.size)?;
        let (node, place) = place(&self.mapping, rank)?;
        rank_address::shift_port(Rows::read(&bound.rows).ok()?.row(node)?, place)
    }
}
