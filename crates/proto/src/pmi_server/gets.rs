//! Gets of pairs, and gets and puts of attributes of the job and the node.
//!
//! A rank's gets wait until all of its lazy fences are complete ([`PmiLink::on_fence`]); a get that waits delays the
//! requests after it, so that answers stay in order.

use super::connection::{Asked, PmiClient, PmiLink, RefusalText, Tables, UNREADABLE, WaitingGet, fail_unreadable};
use super::kvs::{UNSPEAKABLE, shown, stored};
use super::node_attrs::Parked;
use crate::io::Output;
use crate::job::cx::Cx;
use wireup_wire::ids::Client;
use wireup_wire::limits::{KEY_LEN_MAX, THREAD_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::{Command, Envelope, Reply, encode_reply};

impl PmiLink {
    pub(super) fn on_get(
        &mut self,
        cx: &mut Cx<'_>,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        key: &[u8],
    ) -> Option<Asked> {
        if key.starts_with(b"PMI_") || key == b"universeSize" {
            return self.client.on_job_attr(cx, t, envelope, key);
        }
        self.on_get_pair(cx, t, envelope, key);
        None
    }

    /// Handles a get of a pair: answers it immediately, or when the rank's lazy fences are complete.
    fn on_get_pair(&mut self, cx: &mut Cx<'_>, t: &mut Tables, envelope: &Envelope<'_>, key: &[u8]) {
        if self.lazy == 0 {
            return self.client.answer_get(cx, t, key, envelope.thread);
        }
        self.waiting_get = Some(WaitingGet::Key { key: key.to_vec(), thread: envelope.thread.map(<[u8]>::to_vec) });
    }

    /// Answers the get that was waiting.
    pub(super) fn answer_waiting(&mut self, cx: &mut Cx<'_>, t: &mut Tables) {
        match self.waiting_get.take() {
            None => {}
            Some(WaitingGet::Key { key, thread }) => self.client.answer_get(cx, t, &key, thread.as_deref()),
            Some(WaitingGet::Number(number)) => self.client.answer_number(cx, t, number),
        }
    }
}

impl PmiClient {
    /// Answers a get. A rank that reads a pair put by the spawner of its job is about to connect to the spawner's job,
    /// so the driver is informed.
    fn answer_get(&self, cx: &mut Cx<'_>, t: &mut Tables, key: &[u8], thread: Option<&[u8]>) {
        let Tables { kvs, reply, .. } = t;
        let (mut key_room, mut value_room) = (Vec::new(), Vec::new());
        let key = stored(self.dialect, key, &mut key_room);
        let spawned = cx.facts.spec.spawned.as_ref();
        if spawned.is_some_and(|spawned| spawned.preput.iter().any(|(left, _)| left == key)) {
            cx.output(Output::MeetsFamily { job: cx.facts.id() });
        }
        let answer = match kvs.get(key) {
            Ok(Some(value)) => shown(self.dialect, value, &mut value_room).map_or(UNSPEAKABLE, Reply::Value),
            Ok(None) => Reply::NotFound,
            Err(error) => {
                fail_unreadable(cx, error);
                Reply::Failed { message: UNREADABLE }
            }
        };
        encode_reply(self.dialect, Command::Get, thread, &answer, reply);
    }

    /// Answers with the segments that a client must map. `have`: the versions where its segments end, oldest first,
    /// separated by commas.
    pub(super) fn on_kvs_map(
        &self,
        cx: &mut Cx<'_>,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        have: &[u8],
    ) -> Result<(), RefusalText> {
        let have = numbers(have).ok_or("have_is_not_a_list_of_numbers")?;
        let mapping = t.kvs.map(&have, &mut t.shares).map_err(|error| {
            fail_unreadable(cx, error);
            UNREADABLE
        })?;
        let ends: Vec<String> = mapping.fresh.iter().map(|(end, _)| end.to_string()).collect();
        self.answer(t, envelope, &Reply::KvsMap { keep: mapping.keep, ends: ends.join(",").as_bytes() });
        t.handed.extend(mapping.fresh.into_iter().map(|(_, share)| share));
        Ok(())
    }

    pub(super) fn answer_number(&self, cx: &mut Cx<'_>, t: &mut Tables, number: u32) {
        let Tables { kvs, reply, .. } = t;
        let (mut key_room, mut value_room) = (Vec::new(), Vec::new());
        let answer = match kvs.at(number) {
            Ok(Some((pair, next))) => match i32::try_from(next) {
                Ok(next_index) => {
                    let key = shown(self.dialect, pair.key, &mut key_room);
                    let value = shown(self.dialect, pair.value, &mut value_room);
                    key.zip(value).map_or(UNSPEAKABLE, |(key, value)| Reply::Pair { next_index, key, value })
                }
                Err(_) => Reply::Failed { message: "there_are_more_pairs_than_idx_can_number" },
            },
            Ok(None) => Reply::NotFound,
            Err(error) => {
                fail_unreadable(cx, error);
                Reply::Failed { message: UNREADABLE }
            }
        };
        encode_reply(self.dialect, Command::GetByIdx, None, &answer, reply);
    }

    pub(super) fn on_job_attr(
        &self,
        cx: &Cx<'_>,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        key: &[u8],
    ) -> Option<Asked> {
        let options = &cx.facts.spec.options;
        // The universe has the job's size by default, as under Slurm, whose clients rely on it.
        let size = options.pmi.universe_size.unwrap_or(cx.facts.job_size).to_string();
        let is_mapping = key == b"PMI_process_mapping";
        let Tables { process_mapping, reply, .. } = t;
        let value = match key {
            _ if is_mapping => process_mapping.as_deref(),
            b"PMI_mpi_memory_alloc_kinds" => options.pmi.memory_alloc_kinds.as_deref().map(str::as_bytes),
            b"universeSize" => Some(size.as_bytes()),
            b"hasNameServ" => Some(&b"TRUE"[..]),
            _ => None,
        };
        let answer = value.map_or(Reply::NotFound, Reply::Value);
        encode_reply(self.dialect, envelope.request.command(), envelope.thread, &answer, reply);
        (is_mapping && !self.id.is_secondary()).then_some(Asked::MeetsNode)
    }

    pub(super) fn on_put_attr(
        &self,
        cx: &mut Cx<'_>,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), RefusalText> {
        if key.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX {
            return Err("key_or_value_is_too_long".into());
        }
        let parked = t.attrs.put(key, value).ok_or("too_many_node_attributes")?;
        self.answer(t, envelope, &Reply::Done);
        for Parked { local, dialect, thread, .. } in parked {
            let mut woken = Vec::new();
            encode_reply(dialect, Command::GetNodeAttr, thread.as_deref(), &Reply::Value(value), &mut woken);
            if Client::from(local) == self.id {
                t.reply.append(&mut woken);
            } else {
                t.send(cx, local.into(), woken.into(), Vec::new());
            }
        }
        Ok(())
    }

    pub(super) fn on_get_attr(
        &self,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        key: &[u8],
        wait: bool,
    ) -> Result<(), RefusalText> {
        let Tables { attrs, reply, .. } = t;
        let answer = match attrs.get(key) {
            Some(value) => Reply::Value(value),
            None if !wait => Reply::NotFound,
            None if key.len() > KEY_LEN_MAX || envelope.thread.is_some_and(|id| id.len() > THREAD_LEN_MAX) => {
                return Err("key_or_thrid_is_too_long".into());
            }
            None => {
                let thread = envelope.thread.map(<[u8]>::to_vec);
                let (local, dialect) = (self.id.local, self.dialect);
                let parked = Parked { local, dialect, key: key.to_vec(), thread };
                return attrs.park(parked).ok_or("too_many_gets_wait".into());
            }
        };
        encode_reply(self.dialect, envelope.request.command(), envelope.thread, &answer, reply);
        Ok(())
    }
}

fn numbers(text: &[u8]) -> Option<Vec<u32>> {
    let text = std::str::from_utf8(text).ok()?;
    text.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().ok()).collect()
}
