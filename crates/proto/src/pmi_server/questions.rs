//! Checks and answers a rank's requests about addresses.

use super::connection::PmiLink;
use super::state::State;
use super::turn::{Effect, Turn};
use bytes::Bytes;
use wireup_wire::ids::Rank;
use wireup_wire::limits::{ADDRESS_QUESTIONS_MAX, KEY_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::{Command, Envelope, Reply, encode_reply};
use wireup_wire::relay::Target;

impl Turn<'_, '_> {
    pub(super) fn on_address_set(&mut self, envelope: &Envelope<'_>, name: &[u8], value: &[u8]) {
        // The value is passed on as written: the client that asks parses it as this one would.
        let (name, value) = (self.plain(name), Bytes::copy_from_slice(value));
        let told = if name.is_empty() || name.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX {
            Err("name_or_value_is_empty_or_too_long")
        } else {
            self.tables.addresses.tell(name, self.who.rank, value)
        };
        match told {
            Ok(()) => self.answer(envelope, &Reply::Done),
            Err(problem) => self.refuse(envelope, problem),
        }
    }

    pub(super) fn on_address_get(&mut self, envelope: &Envelope<'_>, id: u32, rank: u32, name: &[u8]) {
        let name = self.plain(name);
        if name.is_empty() || name.len() > KEY_LEN_MAX {
            self.refuse(envelope, "name_is_empty_or_longer_than_64");
        } else if rank >= self.facts.job_size {
            self.refuse(envelope, "rank_is_not_in_the_job");
        } else if *self.questions == ADDRESS_QUESTIONS_MAX {
            self.refuse(envelope, "too_many_questions_for_addresses");
        } else {
            *self.questions += 1;
            self.effects.push(Effect::AskAddress { id, rank: Rank(rank), name });
        }
    }

    /// A rank wants a connection to another rank that it cannot reach itself.
    pub(super) fn on_relay(&mut self, envelope: &Envelope<'_>, datagrams: bool, rank: u32, name: &[u8]) {
        let name = self.plain(name);
        if name.len() > KEY_LEN_MAX || rank >= self.facts.job_size {
            return self.refuse(envelope, "no_such_rank_or_name");
        }
        let encoded = |reply: &Reply<'_>| {
            let mut out = Vec::new();
            encode_reply(self.dialect, Command::Relay, envelope.thread, reply, &mut out);
            Bytes::from(out)
        };
        let refused = Reply::Failed { message: "the_agents_have_no_connection_to_the_rank" };
        let (reply, refusal) = (encoded(&Reply::Done), encoded(&refused));
        self.effects.push(Effect::Relay { target: Target { rank: Rank(rank), name, datagrams }, reply, refusal });
    }
}

impl PmiLink {
    pub fn answer_address(&mut self, id: u32, value: Option<&[u8]>, reply: &mut Vec<u8>) {
        if self.state != State::Closed {
            self.questions -= 1;
            encode_reply(self.dialect, Command::AddressGet, None, &Reply::Address { id, value }, reply);
        }
    }
}
