//! Where all ranks listen: a table in the memory of each node, from the server that has bound their sockets, or gathered by the ranks.

use super::{Gathered, Job, Values, value};
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
    size: u32,
    /// `PMI_process_mapping`.
    mapping: Vec<u8>,
    table: Table,
}

enum Table {
    /// A row for each node, with the lowest port of its ranks.
    Bound { rows: Part, listening: c_int },
    /// What each rank has told, as text.
    Gathered(Values),
}

impl Job {
    /// From the server, without an exchange among the ranks; `None`: it has bound no sockets. Waits until those of all nodes are bound.
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
            size,
            mapping: mapping.ok_or(Code::OTHER)?,
            table: Table::Bound { rows: table.ok_or(Code::NOMEM)?, listening },
        }))
    }

    /// By one exchange among all ranks; `None`: the server keeps no table for a node, or does not tell where ranks are. `secret` is rank
    /// 0's for all.
    ///
    /// # Errors
    /// The server is gone, or breaks the rules.
    pub fn gather_endpoints(&mut self, secret: &[u8; 32], address: &[u8]) -> Result<Option<Endpoints>> {
        if self.collectives.own.is_none() {
            return Ok(None);
        }
        let Some(mapping) = self.look_up(&Request::GetJobAttr { key: b"PMI_process_mapping" })? else {
            return Ok(None);
        };
        let told = if self.rank == 0 { [secret, address].concat() } else { address.to_vec() };
        let id = self.start_allgather(&hex::encode(&told), TOLD_LEN_MAX, false);
        let Gathered::Array(values) = self.collect(id)? else { return Err(Code::OTHER) };
        let first = nth(&values, 0).ok_or(Code::OTHER)?;
        let secret = *first.first_chunk().ok_or(Code::OTHER)?;
        Ok(Some(Endpoints { secret, size: self.size, mapping, table: Table::Gathered(values) }))
    }
}

/// Longest text of a rank: a secret, a byte for its transport, an address.
const TOLD_LEN_MAX: usize = 2 * (32 + 1 + rank_address::LEN_MAX);

fn nth(values: &[u8], rank: u32) -> Option<Vec<u8>> {
    hex::decode(Rows::read(values).ok()?.values().nth(rank as usize)?.ok()?)
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

    /// The number of this rank's socket, if the server has bound it.
    pub fn listening(&self) -> Option<c_int> {
        match &self.table {
            Table::Bound { listening, .. } => Some(*listening),
            Table::Gathered(_) => None,
        }
    }

    /// Where a rank listens: as it has told, or, if the server has bound its socket, as in `wireup_wire::rank_address`. `None`: there is no
    /// such rank.
    pub fn address(&self, rank: u32) -> Option<Vec<u8>> {
        let (node, place) = place(&self.mapping, rank).filter(|_| rank < self.size)?;
        match &self.table {
            Table::Bound { rows, .. } => rank_address::further(Rows::read(rows).ok()?.row(node)?, place),
            Table::Gathered(values) => {
                let mut told = nth(values, rank)?;
                if rank == 0 {
                    told.drain(..32.min(told.len()));
                }
                Some(told)
            }
        }
    }
}
