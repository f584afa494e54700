//! Answers one request of a rank, or records it.

use super::clients::is_offered;
use super::dialects::{UNSPEAKABLE, shown, stored};
use super::node_attrs::{Full, Parked};
use super::state::{Event, Refused, State};
use super::turn::{Effect, Next, Turn, UNREADABLE, WaitingGet};
use wireup_wire::blob::PAIR_OVERHEAD;
use wireup_wire::job::PmiVersion;
use wireup_wire::limits::{KEY_LEN_MAX, KVSNAME_LEN_MAX, PENDING_PUT_BYTES_MAX, THREAD_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::{Command, Envelope, Reply, Request, encode_reply};

/// The version of our own clients' commands.
const EXTENSION_VERSION: u32 = 1;

const MAXES: Reply<'_> =
    Reply::Maxes { kvsname: KVSNAME_LEN_MAX as u32, key: KEY_LEN_MAX as u32, value: VALUE_LEN_MAX as u32 };

impl Turn<'_, '_> {
    pub(super) fn on_request(&mut self, envelope: &Envelope<'_>) -> Next {
        if self.is_further && !is_offered(&envelope.request) {
            self.refuse(envelope, "not_offered_to_further_libraries");
            return Next::Go;
        }
        let event = match &envelope.request {
            Request::Init { version: 2, .. } => Event::Init2,
            Request::Init { .. } => Event::Init1,
            Request::FullInit { .. } => Event::FullInit,
            Request::Barrier { group: None } | Request::Ring { .. } => Event::Fence,
            Request::Finalize if *self.outstanding > 0 => {
                self.refuse(envelope, "finalize_with_collectives_outstanding");
                return Next::Go;
            }
            Request::Finalize if *self.groups > 0 => {
                self.refuse(envelope, "finalize_while_in_the_barrier_of_a_group");
                return Next::Go;
            }
            Request::Finalize => Event::Finalize,
            Request::Abort { code, message, .. } => {
                let message = String::from_utf8_lossy(message).into_owned();
                self.effects.push(Effect::Abort { code: *code, message });
                return Next::Go;
            }
            // The match below lists each command.
            _ => Event::Ask,
        };
        let before = *self.state;
        match self.state.next(event) {
            Ok(next) => *self.state = next,
            Err(Refused) => {
                let problem = refusal(*self.state, event);
                self.refuse(envelope, problem);
                return Next::Go;
            }
        }
        match &envelope.request {
            Request::Init { version: 2, .. } => {
                self.answer(envelope, &Reply::Init { version: 2, subversion: 0, rc: 0 });
                return Next::SwitchToPmi2;
            }
            Request::Init { version, subversion, extension } => {
                return self.on_init(envelope, before, (*version, *subversion), extension.is_some());
            }
            Request::Barrier { group: None } => self.on_fence(envelope),
            Request::Barrier { group: Some(group) } => self.on_group(envelope, group),
            Request::Finalize => {
                if !self.is_further {
                    self.effects.push(Effect::Finalized);
                }
                self.answer(envelope, &Reply::Done);
            }
            Request::Put { key, value, kvsname } => self.on_put(envelope, *kvsname, key, value),
            Request::Get { key, kvsname, .. } => return self.on_get(envelope, *kvsname, key),
            Request::GetByIdx { kvsname, index } => return self.on_get_by_index(envelope, *kvsname, *index),
            Request::FenceNb { id } => self.on_own_fence(*id),
            Request::Allgather { id, max_len, shared, freed, value } => {
                self.on_freed(freed);
                self.on_allgather(envelope, *id, *max_len, *shared, value.0);
            }
            Request::Ring { left, right, .. } => self.on_ring(envelope, left, right),
            Request::GroupSet { group, members, tag } => self.on_group_set(envelope, *group, members, tag),
            Request::GroupFree { group } => self.on_group_free(envelope, *group),
            Request::Gather { id, group, value } => self.on_gather(envelope, *id, *group, value.0),
            Request::Endpoints => self.on_endpoints(envelope),
            Request::Secret => self.on_secret(envelope),
            Request::AddressSet { name, value } => self.on_address_set(envelope, name, value),
            Request::AddressGet { id, rank, name } => self.on_address_get(envelope, *id, *rank, name),
            Request::Relay { datagrams, rank, name } => self.on_relay(envelope, *datagrams, *rank, name),
            Request::KvsMap { have } => self.on_kvs_map(envelope, have),
            Request::PutNodeAttr { key, value } => self.on_put_attr(envelope, key, value),
            Request::GetNodeAttr { key, wait } => self.on_get_attr(envelope, key, *wait),
            Request::FullInit { .. } => self.on_full_init(envelope),
            Request::GetMaxes => self.answer(envelope, &MAXES),
            Request::GetUniverseSize => {
                let size = self.facts.universe_size.map_or(-1, |size| i32::try_from(size).unwrap_or(i32::MAX));
                self.answer(envelope, &Reply::UniverseSize(size));
            }
            Request::GetAppnum => self.answer(envelope, &Reply::Appnum(self.who.appnum.into())),
            Request::GetMyKvsname => self.answer(envelope, &Reply::KvsName(self.facts.nspace.as_bytes())),
            Request::JobGetId => self.answer(envelope, &Reply::JobId(self.facts.nspace.as_bytes())),
            Request::GetJobAttr { key } => self.on_job_attr(envelope, key),
            Request::Malformed { problem, .. } => self.refuse(envelope, &problem.to_string().replace(' ', "_")),
            Request::Spawn(request) => return self.on_spawn(envelope, request),
            Request::PublishName { name, port } => return self.on_publish(envelope, name, port),
            Request::UnpublishName { name } => return self.on_unpublish(envelope, name),
            Request::LookupName { name } => return self.on_look_up(envelope, name),
            // An abort was handled above and has no answer.
            Request::Abort { .. } => {}
            Request::JobConnect { .. }
            | Request::JobDisconnect { .. }
            | Request::CreateKvs
            | Request::DestroyKvs { .. }
            | Request::InitAck { .. }
            | Request::SingInit { .. }
            | Request::Unknown { .. } => self.refuse(envelope, "command_not_supported"),
        }
        Next::Go
    }

    /// A client that requests PMI 1.1 gets 1.1 unless the user chooses otherwise: with 1.2 MPICH's client would spin
    /// while it waits in barriers of groups.
    fn on_init(
        &mut self,
        envelope: &Envelope<'_>,
        before: State,
        (version, subversion): (u32, u32),
        own: bool,
    ) -> Next {
        if version != 1 {
            *self.state = before;
            self.answer(envelope, &Reply::Init { version: 1, subversion: 1, rc: -1 });
            return Next::Go;
        }
        let subversion = match self.facts.pmi_version {
            PmiVersion::Asked if subversion >= 2 || own => 2,
            PmiVersion::Asked | PmiVersion::Plain => 1,
            PmiVersion::Groups => 2,
        };
        if before == State::Fresh {
            self.effects.push(Effect::Initialised);
        }
        self.answer(envelope, &Reply::Init { version: 1, subversion, rc: 0 });
        Next::Agreed(subversion)
    }

    fn on_full_init(&mut self, envelope: &Envelope<'_>) {
        if !self.is_further {
            self.effects.push(Effect::Initialised);
        }
        let reply = Reply::FullInit {
            version: 2,
            subversion: 0,
            rank: self.who.rank.0,
            size: self.facts.job_size,
            appnum: self.who.appnum.into(),
            spawner: self.facts.spawned.map(|spawned| spawned.nspace.as_bytes()),
            extension: Some(EXTENSION_VERSION),
        };
        self.answer(envelope, &reply);
    }

    pub(super) fn refuse(&mut self, envelope: &Envelope<'_>, message: &str) {
        self.answer(envelope, &Reply::Failed { message });
    }

    fn on_put(&mut self, envelope: &Envelope<'_>, kvsname: Option<&[u8]>, key: &[u8], value: &[u8]) {
        let problem = if !self.is_own_kvs(kvsname) {
            Some("kvsname_is_not_that_of_this_job")
        } else if key.is_empty() || key.len() > KEY_LEN_MAX {
            Some("key_is_empty_or_longer_than_64")
        } else if value.len() > VALUE_LEN_MAX {
            Some("value_is_longer_than_1024")
        } else if key.starts_with(b"PMI_") {
            Some("keys_that_begin_with_PMI__are_reserved")
        } else if self.tables.kvs.pending_bytes() + PAIR_OVERHEAD + key.len() + value.len() > PENDING_PUT_BYTES_MAX {
            Some("too_many_puts_without_a_fence")
        } else {
            None
        };
        match problem {
            Some(message) => self.refuse(envelope, message),
            None => {
                let (mut key_room, mut value_room) = (Vec::new(), Vec::new());
                let key = stored(self.dialect, key, &mut key_room);
                self.tables.kvs.put(key, stored(self.dialect, value, &mut value_room));
                *self.has_put = true;
                self.answer(envelope, &Reply::Done);
            }
        }
    }

    fn on_get(&mut self, envelope: &Envelope<'_>, kvsname: Option<&[u8]>, key: &[u8]) -> Next {
        if !self.is_own_kvs(kvsname) {
            self.refuse(envelope, "kvsname_is_not_that_of_this_job");
        } else if key.starts_with(b"PMI_") || key == b"universeSize" {
            self.on_job_attr(envelope, key);
        } else {
            return self.on_get_pair(envelope, key);
        }
        Next::Go
    }

    fn on_job_attr(&mut self, envelope: &Envelope<'_>, key: &[u8]) {
        // The universe has the job's size by default, as under Slurm, whose clients rely on it.
        let size = self.facts.universe_size.unwrap_or(self.facts.job_size).to_string();
        let value = match key {
            b"PMI_process_mapping" => {
                if !self.is_further {
                    self.effects.push(Effect::MeetsNode);
                }
                self.facts.process_mapping
            }
            b"PMI_mpi_memory_alloc_kinds" => self.facts.memory_alloc_kinds.map(str::as_bytes),
            b"universeSize" => Some(size.as_bytes()),
            b"hasNameServ" => Some(&b"TRUE"[..]),
            _ => None,
        };
        self.answer(envelope, &value.map_or(Reply::NotFound, Reply::Value));
    }

    fn on_put_attr(&mut self, envelope: &Envelope<'_>, key: &[u8], value: &[u8]) {
        if key.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX {
            self.refuse(envelope, "key_or_value_is_too_long");
            return;
        }
        match self.tables.attrs.put(key, value) {
            Err(Full) => self.refuse(envelope, "too_many_node_attributes"),
            Ok(parked) => {
                self.answer(envelope, &Reply::Done);
                if !parked.is_empty() {
                    self.effects.push(Effect::Woken { parked, value: value.to_vec() });
                }
            }
        }
    }

    fn on_get_attr(&mut self, envelope: &Envelope<'_>, key: &[u8], wait: bool) {
        let Self { tables, reply, dialect, who, .. } = self;
        let answer = match tables.attrs.get(key) {
            Some(value) => Reply::Value(value),
            None if wait
                && (key.len() > KEY_LEN_MAX || envelope.thread.is_some_and(|id| id.len() > THREAD_LEN_MAX)) =>
            {
                Reply::Failed { message: "key_or_thrid_is_too_long" }
            }
            None if wait => {
                let thread = envelope.thread.map(<[u8]>::to_vec);
                match tables.attrs.park(Parked { local: who.client.local, key: key.to_vec(), thread }) {
                    Ok(()) => return,
                    Err(Full) => Reply::Failed { message: "too_many_gets_wait" },
                }
            }
            None => Reply::NotFound,
        };
        encode_reply(*dialect, envelope.request.command(), envelope.thread, &answer, reply);
    }

    pub(super) fn is_own_kvs(&self, kvsname: Option<&[u8]>) -> bool {
        kvsname.is_none_or(|name| name.is_empty() || name == self.facts.nspace.as_bytes())
    }

    pub(super) fn answer(&mut self, envelope: &Envelope<'_>, reply: &Reply<'_>) {
        encode_reply(self.dialect, envelope.request.command(), envelope.thread, reply, self.reply);
    }
}

fn refusal(state: State, event: Event) -> &'static str {
    match (state, event) {
        (State::Fresh | State::Greeted, _) => "not_initialised",
        (State::Finalized | State::Closed, _) => "already_finalized",
        (State::Fenced, Event::Fence) => "already_in_a_fence",
        (State::Fenced, Event::Finalize) => "finalize_while_in_a_fence",
        (State::Ready | State::Fenced, _) => "already_initialised",
    }
}

/// Requests of our own clients for segments, so that they read the kvs themselves. A client sends one when a fence's
/// version is newer than its mapped segments; its look-ups are then plain memory accesses.
impl Turn<'_, '_> {
    /// Answers with the segments that a client must map. `have`: the versions where its segments end, oldest first,
    /// separated by commas.
    fn on_kvs_map(&mut self, envelope: &Envelope<'_>, have: &[u8]) {
        let Some(have) = numbers(have) else {
            return self.refuse(envelope, "have_is_not_a_list_of_numbers");
        };
        match self.tables.kvs.map(&have, self.tables.shares) {
            Ok(mapping) => {
                let ends: Vec<String> = mapping.fresh.iter().map(|(end, _)| end.to_string()).collect();
                self.answer(envelope, &Reply::KvsMap { keep: mapping.keep, ends: ends.join(",").as_bytes() });
                self.tables.handed.extend(mapping.fresh.into_iter().map(|(_, share)| share));
            }
            Err(error) => {
                self.effects.push(Effect::unreadable(error));
                self.refuse(envelope, UNREADABLE);
            }
        }
    }
}

fn numbers(text: &[u8]) -> Option<Vec<u32>> {
    let text = std::str::from_utf8(text).ok()?;
    text.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().ok()).collect()
}

/// Iteration over all pairs by number (`getbyidx`): the published pairs, as look-ups would find them.
impl Turn<'_, '_> {
    pub(super) fn on_get_by_index(&mut self, envelope: &Envelope<'_>, kvsname: Option<&[u8]>, index: i32) -> Next {
        let Ok(number) = u32::try_from(index) else {
            self.refuse(envelope, "idx_is_negative");
            return Next::Go;
        };
        if !self.is_own_kvs(kvsname) {
            self.refuse(envelope, "kvsname_is_not_that_of_this_job");
        } else if *self.lazy > 0 {
            *self.waiting_get = Some(WaitingGet::Number(number));
            return Next::Wait;
        } else {
            self.answer_number(number);
        }
        Next::Go
    }

    pub(super) fn answer_number(&mut self, number: u32) {
        let Self { tables, reply, dialect, effects, .. } = self;
        let (mut key_room, mut value_room) = (Vec::new(), Vec::new());
        let answer = match tables.kvs.at(number) {
            Ok(Some((pair, next))) => match i32::try_from(next) {
                Ok(next_index) => {
                    let key = shown(*dialect, pair.key, &mut key_room);
                    let value = shown(*dialect, pair.value, &mut value_room);
                    key.zip(value).map_or(UNSPEAKABLE, |(key, value)| Reply::Pair { next_index, key, value })
                }
                Err(_) => Reply::Failed { message: "there_are_more_pairs_than_idx_can_number" },
            },
            Ok(None) => Reply::NotFound,
            Err(error) => {
                effects.push(Effect::unreadable(error));
                Reply::Failed { message: UNREADABLE }
            }
        };
        encode_reply(*dialect, Command::GetByIdx, None, &answer, reply);
    }
}
