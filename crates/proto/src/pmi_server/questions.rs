//! Checks and answers a rank's requests about addresses.

use super::addresses::Question;
use super::connection::{PmiClient, PmiLink, RefusalText, Tables};
use crate::io::RelayAct;
use crate::job::cx::Cx;
use bytes::Bytes;
use wireup_wire::ids::{NodeId, Rank};
use wireup_wire::limits::{ADDRESS_QUESTIONS_MAX, KEY_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::{Command, Envelope, Reply, encode_reply};
use wireup_wire::relay::Target;

impl PmiLink {
    pub(super) fn on_address_get(
        &mut self,
        cx: &Cx<'_>,
        t: &mut Tables,
        id: u32,
        rank: u32,
        name: &[u8],
    ) -> Result<(), RefusalText> {
        let name = self.client.plain(name);
        if name.is_empty() || name.len() > KEY_LEN_MAX {
            return Err("name_is_empty_or_longer_than_64".into());
        } else if rank >= cx.facts.job_size {
            return Err("rank_is_not_in_the_job".into());
        } else if self.questions == ADDRESS_QUESTIONS_MAX {
            return Err("too_many_questions_for_addresses".into());
        }
        self.questions += 1;
        let (rank, client) = (Rank(rank), self.client.id);
        t.addresses.ask(Question { client, id }, name, rank, other_node(cx, rank));
        Ok(())
    }

    pub fn answer_address(&mut self, id: u32, value: Option<&[u8]>, reply: &mut Vec<u8>) {
        self.questions -= 1;
        encode_reply(self.client.dialect, Command::AddressGet, None, &Reply::Address { id, value }, reply);
    }
}

/// The node of a rank, if it is not this one.
fn other_node(cx: &Cx<'_>, rank: Rank) -> Option<NodeId> {
    cx.facts.mapping.place(rank).map(|(node, _)| node).filter(|node| Some(*node) != cx.facts.node)
}

impl PmiClient {
    pub(super) fn on_address_set(&self, t: &mut Tables, name: &[u8], value: &[u8]) -> Result<(), RefusalText> {
        // The value is passed on as written: the client that asks parses it as this one would.
        let (name, value) = (self.plain(name), Bytes::copy_from_slice(value));
        if name.is_empty() || name.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX {
            return Err("name_or_value_is_empty_or_too_long".into());
        }
        t.addresses.tell(name, self.rank, value)?;
        Ok(())
    }

    /// A rank wants a connection to another rank that it cannot reach itself. The driver sends the answer together with
    /// a socket.
    pub(super) fn on_relay(
        &self,
        cx: &Cx<'_>,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        datagrams: bool,
        rank: u32,
        name: &[u8],
    ) -> Result<(), RefusalText> {
        let name = self.plain(name);
        if name.len() > KEY_LEN_MAX || rank >= cx.facts.job_size {
            return Err("no_such_rank_or_name".into());
        }
        let encoded = |reply| Bytes::from(self.encode(Command::Relay, envelope.thread, &reply));
        let refusal = encoded(Reply::Failed { message: "the_agents_have_no_connection_to_the_rank" });
        let target = Target { rank: Rank(rank), name, datagrams };
        let act = RelayAct::Hand { client: self.id, datagrams, reply: encoded(Reply::Done), refusal: refusal.clone() };
        let opened = other_node(cx, target.rank).is_some_and(|node| t.relays.open(node, target, act));
        if !opened {
            t.reply.extend_from_slice(&refusal);
        }
        Ok(())
    }
}
