//! A rank's requests about published names, for processes, and about addresses. The first two go to the root
//! (`job/names`), whose answers are passed on; addresses are looked up.
//!
//! A rank's later requests wait for the answer, so that answers stay in order. As under Hydra any rank of a job may
//! withdraw what another one has published.

use super::addresses::Question;
use super::connection::{Asked, Handled, PmiClient, PmiLink, PmiServer, RefusalText, Tables, WaitingName};
use super::kvs::stored;
use super::state::State;
use crate::io::RelayAct;
use crate::job::cx::Cx;
use bytes::Bytes;
use wireup_wire::ids::{Client, NodeId, Rank};
use wireup_wire::limits::{ADDRESS_QUESTIONS_MAX, KEY_LEN_MAX, NAME_LEN_MAX, THREAD_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::names::{Answer, Ask, Item, Keep, NewJob, Publisher, Range, Refusal, Value};
use wireup_wire::pmi::escape::{doubled, halve};
use wireup_wire::pmi::{Command, Dialect, Envelope, Reply, SpawnCommand, SpawnRequest, encode_reply};
use wireup_wire::relay::Target;

impl PmiLink {
    pub(super) fn on_publish(&mut self, envelope: &Envelope<'_>, name: &[u8], port: &[u8]) -> Handled {
        let port = self.client.plain(port);
        if port.len() > NAME_LEN_MAX {
            return Err("port_is_longer_than_1023".into());
        }
        let items = vec![Item { name: self.name(name)?, value: Value::Text(port) }];
        self.ask_root(envelope, Ask::Publish { items, range: Range::Session, keep: Keep::Job })
    }

    pub(super) fn on_unpublish(&mut self, envelope: &Envelope<'_>, name: &[u8]) -> Handled {
        let names = vec![self.name(name)?];
        self.ask_root(envelope, Ask::Withdraw { names, range: Range::Session, by: Publisher::Job })
    }

    pub(super) fn on_look_up(&mut self, envelope: &Envelope<'_>, name: &[u8]) -> Handled {
        let names = vec![self.name(name)?];
        self.ask_root(envelope, Ask::LookUp { names, range: Range::Session, wait: 0, timeout_s: None })
    }

    fn name(&self, name: &[u8]) -> Result<Bytes, RefusalText> {
        let name = self.client.plain(name);
        if name.is_empty() || name.len() > NAME_LEN_MAX {
            return Err("name_is_empty_or_longer_than_1023".into());
        }
        Ok(name)
    }

    pub(super) fn on_spawn(&mut self, envelope: &Envelope<'_>, request: &SpawnRequest) -> Handled {
        request.check().map_err(|unfit| unfit.to_string())?;
        self.ask_root(envelope, Ask::Spawn(self.client.plain_request(request)))
    }

    /// Sends a request to the root. The rank's later requests wait for the answer.
    fn ask_root(&mut self, envelope: &Envelope<'_>, ask: Ask) -> Handled {
        if envelope.thread.is_some_and(|id| id.len() > THREAD_LEN_MAX) {
            return Err("thrid_is_too_long".into());
        }
        let thread = envelope.thread.map(<[u8]>::to_vec);
        self.waiting_name = Some(WaitingName { command: envelope.request.command(), thread });
        Ok(Some(Asked::Name { client: self.client.id, ask }))
    }
}

/// The answer about an unknown name, in both dialects: PMI-2 has no other way to express it.
const NOT_FOUND: Reply<'static> = Reply::Failed { message: "service_not_found" };

impl PmiServer {
    /// The root's answer to a rank's request about a name or for processes. The rank's further requests can be answered
    /// now.
    pub fn on_named(&mut self, cx: &mut Cx<'_>, client: Client, answer: Answer) {
        self.resumed.push_back(client);
        let Some(link) = self.clients.open(client) else { return };
        self.tables.send(cx, client, link.answer_name(answer).into(), Vec::new());
    }
}

impl PmiLink {
    /// The root has answered the request that waits. A closed client gets no answer.
    pub fn answer_name(&mut self, answer: Answer) -> Vec<u8> {
        let waiting = self.waiting_name.take().filter(|_| self.state != State::Closed);
        let Some(WaitingName { command, thread }) = waiting else { return Vec::new() };
        let (mut room, mut codes) = (Vec::new(), String::new());
        let told = match &answer {
            Answer::Spawned(job) => spawn_reply(job, &mut codes),
            Answer::NotSpawned { problem } => Reply::Failed { message: problem },
            Answer::Done => Reply::Done,
            Answer::Found(found) => match found.first().map(|found| &found.item.value) {
                Some(Value::Text(port)) if !self.client.can_send(port) => {
                    Reply::Failed { message: "value_cannot_be_sent" }
                }
                Some(Value::Text(port)) if self.client.dialect == Dialect::Pmi2 => {
                    Reply::Port(doubled(port, &mut room))
                }
                Some(Value::Text(port)) => Reply::Port(port),
                Some(Value::Packed(_)) => Reply::Failed { message: "value_is_no_text" },
                None => NOT_FOUND,
            },
            Answer::Refused(Refusal::NotFound | Refusal::TimedOut) => NOT_FOUND,
            Answer::Refused(Refusal::Taken) => Reply::Failed { message: "key_already_present" },
            Answer::Refused(Refusal::Full) => Reply::Failed { message: "too_much_is_published" },
            // These are answers to requests that no PMI client sends.
            Answer::Joined(_) | Answer::Fetched(_) | Answer::Failed(_) | Answer::Order(_) => NOT_FOUND,
        };
        self.client.encode(command, thread.as_deref(), &told)
    }
}

impl PmiClient {
    /// The text without its PMI-2 escapes (doubled `;`).
    pub(super) fn plain(&self, text: &[u8]) -> Bytes {
        let mut room = Vec::new();
        Bytes::copy_from_slice(if self.dialect == Dialect::Pmi2 { halve(text, &mut room) } else { text })
    }

    /// Whether this text can be sent to the rank; a PMIx client may have published a port that PMI cannot express.
    fn can_send(&self, port: &[u8]) -> bool {
        port.len() <= NAME_LEN_MAX && (self.dialect == Dialect::Pmi2 || port.iter().all(|byte| *byte > b' '))
    }
}

/// Error codes are listed for at most this many ranks: older clients of PMI-1 read lines of 1,024 bytes, and assume
/// that there was no error if there is no list.
const ERROR_CODES_MAX: u32 = 256;

/// The reply to a rank whose requested processes run.
fn spawn_reply<'a>(job: &'a NewJob, codes: &'a mut String) -> Reply<'a> {
    *codes = vec!["0"; job.ranks.min(ERROR_CODES_MAX) as usize].join(",");
    let are_all = job.ranks <= ERROR_CODES_MAX;
    Reply::Spawned { job_id: Some(job.nspace.as_bytes()), errcodes: are_all.then_some(codes.as_bytes()) }
}

impl PmiClient {
    /// The request with the texts as the rank means them: arguments unescaped, pairs as a kvs stores them.
    fn plain_request(&self, request: &SpawnRequest) -> SpawnRequest {
        let plain = |text: &[u8]| self.plain(text).to_vec();
        let in_kvs = |text: &[u8]| stored(self.dialect, text, &mut Vec::new()).to_vec();
        let command = |command: &SpawnCommand| SpawnCommand {
            program: plain(&command.program),
            args: command.args.iter().map(|arg| plain(arg)).collect(),
            ranks: command.ranks,
            info: command.info.iter().map(|(key, value)| (plain(key), plain(value))).collect(),
            env: command.env.clone(),
        };
        SpawnRequest {
            commands: request.commands.iter().map(command).collect(),
            preput: request.preput.iter().map(|(key, value)| (in_kvs(key), in_kvs(value))).collect(),
        }
    }
}

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

/// The node of a rank; `None`: the rank is on this node.
fn other_node(cx: &Cx<'_>, rank: Rank) -> Option<NodeId> {
    cx.facts.mapping.place(rank).map(|(node, _)| node).filter(|node| Some(*node) != cx.facts.node)
}

impl PmiClient {
    pub(super) fn on_address_set(&self, t: &mut Tables, name: &[u8], value: &[u8]) -> Result<(), RefusalText> {
        // The value is stored as written: a client that requests it parses it as this client would.
        let (name, value) = (self.plain(name), Bytes::copy_from_slice(value));
        if name.is_empty() || name.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX {
            return Err("name_or_value_is_empty_or_too_long".into());
        }
        t.addresses.tell(name, self.rank, value)?;
        Ok(())
    }

    /// Handles a rank's request for a connection to a rank that it cannot reach itself. The driver sends the answer
    /// together with a socket.
    pub(super) fn on_relay(
        &self,
        cx: &Cx<'_>,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        rank: u32,
        name: &[u8],
    ) -> Result<(), RefusalText> {
        let name = self.plain(name);
        if name.len() > KEY_LEN_MAX || rank >= cx.facts.job_size {
            return Err("no_such_rank_or_name".into());
        }
        let encoded = |reply| Bytes::from(self.encode(Command::Relay, envelope.thread, &reply));
        let refusal = encoded(Reply::Failed { message: "the_agents_have_no_connection_to_the_rank" });
        let target = Target { rank: Rank(rank), name };
        let act = RelayAct::Hand { client: self.id, reply: encoded(Reply::Done), refusal: refusal.clone() };
        let opened = other_node(cx, target.rank).is_some_and(|node| t.relays.open(node, target, act));
        if !opened {
            t.reply.extend_from_slice(&refusal);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_are_listed_for_small_jobs() {
        let mut codes = String::new();
        let job = |ranks| NewJob { nspace: "job-2".into(), ranks };
        let small = Reply::Spawned { job_id: Some(b"job-2"), errcodes: Some(b"0,0,0") };
        assert_eq!(spawn_reply(&job(3), &mut codes), small);
        let large = Reply::Spawned { job_id: Some(b"job-2"), errcodes: None };
        assert_eq!(spawn_reply(&job(ERROR_CODES_MAX + 1), &mut codes), large);
    }
}
