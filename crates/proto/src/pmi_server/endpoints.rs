//! Answers requests for the addresses at which all ranks of a job listen, if they have listening sockets from their
//! start (S3: future work), and for the secret by which ranks authenticate their connections.
//!
//! ```text
//!   this node's sockets are bound ──► its ranks enter an allgather, the first of the job, with one address per node
//!   outcome of the allgather ──► a table in shared memory ──► the ranks that ask for it
//!   or the job has brought the table: the ports were reserved before (session/rank_ports)
//! ```
//!
//! The ranks start meanwhile: they wait for their own sockets, not for the table.

use super::arena::Shares;
use crate::collective::Entry;
use crate::memory::{Array, Content, ShareId, Values};
use bytes::Bytes;
use std::fmt::Write;
use wireup_wire::block;
use wireup_wire::ids::{Client, LocalRank};
use wireup_wire::peer::Secret;
use wireup_wire::rank_address;
use wireup_wire::shared::rows::Layout;
use wireup_wire::values::values;

/// A rank that waits for the table or for the secret, and the `thrid` of its request.
type Asker = (Client, Option<Vec<u8>>);

/// The secret is not known yet. `true`: this is the first request for it, so the caller must ask the driver.
pub struct MustAsk(pub bool);

#[derive(Default)]
pub struct Endpoints {
    /// The secret in hexadecimal digits; empty until it is known.
    pub secret: String,
    table: Option<ShareId>,
    /// This node's row of the table; empty until the table is known.
    own: Bytes,
    waiting: Vec<Asker>,
    /// Ranks that wait for the secret.
    waiting_for_secret: Vec<Asker>,
}

impl Endpoints {
    /// Stores the table of addresses: a row for each node; `own`: the row of this node. Returns the table's memory, and
    /// the ranks that wait for it.
    pub fn on_known(&mut self, own: Bytes, rows: Vec<Bytes>, shares: &mut Shares) -> (ShareId, Vec<Asker>) {
        let layout = Layout::rows(rows.len() as u32, rank_address::LEN_MAX as u32);
        let share = shares.make(Content::Array(Array { layout, values: Values::ByRank(rows) }));
        (self.table, self.own) = (Some(share), own);
        (share, std::mem::take(&mut self.waiting))
    }

    /// Handles a rank's request for the table: returns the table, or lets the rank wait for it.
    pub fn ask(&mut self, client: Client, thread: Option<&[u8]>) -> Option<ShareId> {
        if self.table.is_none() {
            self.waiting.push((client, thread.map(<[u8]>::to_vec)));
        }
        self.table
    }

    /// The address at which a local rank listens.
    pub fn own(&self, local: LocalRank) -> Option<Bytes> {
        rank_address::shift_port(&self.own, local.0.into()).map(Bytes::from)
    }

    /// Handles a rank's request for the secret: returns the secret, or lets the rank wait. The first rank that waits
    /// must request the secret.
    pub fn ask_secret(&mut self, client: Client, thread: Option<&[u8]>) -> Result<&[u8], MustAsk> {
        if self.secret.is_empty() {
            self.waiting_for_secret.push((client, thread.map(<[u8]>::to_vec)));
            return Err(MustAsk(self.waiting_for_secret.len() == 1));
        }
        Ok(self.secret.as_bytes())
    }

    /// Stores the secret. Returns the ranks that wait for it.
    pub fn on_secret(&mut self, secret: &Secret) -> Vec<Asker> {
        self.secret.clear();
        secret.0.iter().for_each(|byte| write!(self.secret, "{byte:02x}").expect("memory takes any text"));
        std::mem::take(&mut self.waiting_for_secret)
    }
}

/// The contribution of a local rank to the job's first allgather: the first rank contributes the node's address, the
/// others nothing.
pub fn entry(local: LocalRank, address: &Bytes) -> Entry {
    let value = if local == LocalRank(0) { address.clone() } else { Bytes::new() };
    Entry::Allgather { max_len: rank_address::LEN_MAX as u32, shared: false, value }
}

/// The table of addresses, from the contributions of all nodes.
///
/// # Errors
/// A message: a node has contributed something else than an address.
pub fn table(nodes: usize, parts: &[Bytes]) -> Result<Vec<Bytes>, String> {
    let mut rows = vec![Bytes::new(); nodes];
    for block in parts.iter().cloned().flat_map(block::blocks) {
        let block = block.map_err(|error| error.to_string())?;
        let node = block.node;
        let plain = block.into_plain().map_err(|error| error.to_string())?;
        let address = values(&plain).next().and_then(Result::ok).filter(|value| value.len() <= rank_address::LEN_MAX);
        let (Some(row), Some(address)) = (rows.get_mut(node.index()), address) else {
            return Err(format!("node {node} has sent something other than the address of its ranks"));
        };
        *row = plain.slice_ref(address);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::block::Block;
    use wireup_wire::ids::{JobId, NodeId};
    use wireup_wire::values;

    fn part(node: u32, own: &[&[u8]]) -> Bytes {
        let mut bytes = Vec::new();
        own.iter().for_each(|value| values::push(&mut bytes, value));
        Block { node: NodeId(node), compressed: false, bytes: bytes.into() }.encode()
    }

    #[test]
    fn ranks_that_asked_early_get_the_table_when_it_is_there() {
        let (mut endpoints, mut shares) = (Endpoints::default(), Shares::new(JobId(1)));
        assert_eq!(endpoints.ask(LocalRank(3).into(), Some(b"7")), None);
        let rows = table(3, &[part(2, &[b"two"]), part(0, &[b"zero", b"", b""])]).unwrap();
        let (share, waiting) = endpoints.on_known(Bytes::new(), rows, &mut shares);
        assert_eq!(waiting, [(LocalRank(3).into(), Some(b"7".to_vec()))]);
        assert_eq!(endpoints.ask(LocalRank(1).into(), None), Some(share));
        let Content::Array(array) = shares.content(share) else { panic!("a table is an array") };
        let Values::ByRank(rows) = &array.values else { panic!("a table has a row for each node") };
        assert_eq!(rows[..], [&b"zero"[..], b"", b"two"].map(Bytes::from_static));
    }

    #[test]
    fn nodes_that_send_something_else_are_named() {
        let long = [7; rank_address::LEN_MAX + 1];
        for wrong in [part(9, &[b"a"]), part(1, &[]), part(1, &[&long])] {
            let problem = table(2, &[wrong]).unwrap_err();
            assert!(problem.starts_with("node "), "{problem}");
        }
    }
}
