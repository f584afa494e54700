//! Where all ranks listen, in jobs whose ranks get listening sockets from the server: known without any exchange of their own.

use super::{Job, value};
use crate::clique::{place, ranks_across, ranks_beside};
use crate::codes::{Code, Result};
use crate::mapping::Part;
use crate::socket::variable;
use crate::{hex, ints};
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_client::memory::Memory;
use wireup_client::pipeline::Answer;
use wireup_wire::pmi::{Command, Request};
use wireup_wire::rank_address;
use wireup_wire::shared::rows::Rows;

pub struct Endpoints {
    /// Only the ranks of this job know it.
    pub secret: [u8; 32],
    /// The number of this rank's socket.
    pub listening: c_int,
    size: u32,
    /// `PMI_process_mapping`.
    mapping: Vec<u8>,
    table: Part,
}

impl Job {
    /// `None`: the ranks of this job have no such sockets. Waits until the sockets of all nodes are bound.
    ///
    /// # Errors
    /// The server is gone, or breaks the rules.
    pub fn endpoints(&mut self) -> Result<Option<Endpoints>> {
        let Some(listening) = variable("WIREUP_LISTEN_FD").and_then(|text| ints::parse(&text)) else { return Ok(None) };
        if self.collectives.own.is_none() {
            return Ok(None);
        }
        let size = self.size;
        let server = self.server()?;
        let (mut mapping, mut secret) = (None, None);
        // Both with one round trip.
        server.link.ask(&Request::GetJobAttr { key: b"PMI_process_mapping" })?;
        server.link.ask(&Request::Endpoints)?;
        server.settle(&mut |Answer { command, fields, .. }| match command {
            Command::GetJobAttr => mapping = Some(value(fields)),
            _ => secret = fields.get("secret").and_then(hex::decode).and_then(|bytes| bytes.try_into().ok()),
        })?;
        let table = server.link.take_memory().pop().flatten().and_then(|memory| memory.whole());
        Ok(Some(Endpoints {
            secret: secret.ok_or(Code::OTHER)?,
            listening,
            size,
            mapping: mapping.ok_or(Code::OTHER)?,
            table: table.ok_or(Code::NOMEM)?,
        }))
    }
}

impl Endpoints {
    /// The ranks on the node of `rank`, in ascending order.
    pub fn beside(&self, rank: u32) -> Vec<u32> {
        let beside = ranks_beside(&self.mapping, rank, self.size).unwrap_or_default();
        beside.into_iter().filter_map(|rank| u32::try_from(rank).ok()).collect()
    }

    /// The ranks with the same place on their nodes as `rank`, in ascending order.
    pub fn across(&self, rank: u32) -> Vec<u32> {
        ranks_across(&self.mapping, rank, self.size).unwrap_or_default()
    }

    /// Where a rank listens, as in `wireup_wire::rank_address`; `None`: there is no such rank.
    pub fn address(&self, rank: u32) -> Option<Vec<u8>> {
        let (node, place) = place(&self.mapping, rank).filter(|_| rank < self.size)?;
        rank_address::further(Rows::read(&self.table).ok()?.row(node)?, place)
    }
}
