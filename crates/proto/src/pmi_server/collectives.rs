//! Starts fences, allgathers, rings and barriers of groups (PMI 1.2) for one rank, and answers the rank.
//!
//! A text client has at most one collective outstanding and waits for it; our own clients have any number, identified
//! by their ids.
//!
//! A lazy fence (S1 IV-E, note) is answered before it is complete, if the rank has put something since its last fence.
//! From then on the rank's gets wait until all of its fences are complete; a get that waits delays the requests after
//! it, so that answers stay in order.

use super::connection::PmiLink;
use super::dialects::{UNSPEAKABLE, shown, stored};
use super::endpoints::MustAsk;
use super::state::{Event, State};
use super::turn::{Effect, Next, Turn, UNREADABLE, WaitingGet};
use crate::collective::{Entry, ReplyTo};
use bytes::Bytes;
use wireup_coll::scan::Place;
use wireup_wire::group::{Group, tag_of};
use wireup_wire::limits::{ALLGATHER_LEN_MAX, GROUP_BARRIERS_PER_RANK_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::{Command, Envelope, Reply, encode_barrier_refusal, encode_reply, escape};

/// The result that a rank receives when its collective is complete.
pub enum Completion<'a> {
    /// A fence. `version`: a number that each fence with published pairs increments.
    Fence {
        version: u32,
    },
    /// An allgather. `place`: the array's place in the arena; `None`: the array has memory of its own. `new`: whether
    /// the rank has not used this arena before.
    Array {
        place: Option<u32>,
        new: bool,
    },
    Place(&'a Place),
}

/// PMI 1.2 clients identify barriers by their tags; the barrier of all ranks belongs to no group and has tag 0, as in
/// Hydra.
fn barrier_out(subversion: u32) -> Reply<'static> {
    Reply::BarrierOut { tag: (subversion >= 2).then_some(0) }
}

impl PmiLink {
    /// A collective is complete: writes its reply.
    pub fn answer(&mut self, reply_to: &ReplyTo, told: &Completion<'_>, reply: &mut Vec<u8>) {
        if self.state == State::Closed {
            return;
        }
        let mut encode = |command, thread: &Option<Vec<u8>>, answer: &Reply<'_>| {
            encode_reply(self.dialect, command, thread.as_deref(), answer, reply);
        };
        match (reply_to, told) {
            (ReplyTo::Fence { thread }, Completion::Fence { .. }) => {
                encode(Command::Barrier, thread, &barrier_out(self.subversion))
            }
            (ReplyTo::Ring { thread }, Completion::Place(place)) => {
                let answer = Reply::Ring { count: place.position as i32, left: &place.left, right: &place.right };
                encode(Command::Ring, thread, &answer);
            }
            (ReplyTo::OwnFence { id }, Completion::Fence { version }) => {
                encode(Command::FenceNb, &None, &Reply::FenceNb { id: *id, version: *version });
            }
            (ReplyTo::Allgather { id }, Completion::Array { place, new }) => {
                encode(Command::Allgather, &None, &Reply::Allgather { id: *id, place: *place, new: new.then_some(1) });
            }
            (ReplyTo::Lazy | ReplyTo::Server | ReplyTo::Endpoints, _) => {}
            (reply_to, _) => panic!("the result does not match the collective: {reply_to:?}"),
        }
        match reply_to {
            ReplyTo::Fence { .. } | ReplyTo::Ring { .. } => {
                // The link may have been closed in the meantime.
                self.state = self.state.next(Event::Release).unwrap_or(self.state);
            }
            ReplyTo::OwnFence { .. } | ReplyTo::Allgather { .. } => self.outstanding -= 1,
            ReplyTo::Lazy => self.lazy -= 1,
            ReplyTo::Server | ReplyTo::Endpoints => {}
        }
    }

    /// Records which arena the rank uses; returns whether it has changed.
    pub fn see_arena(&mut self, number: u32) -> bool {
        std::mem::replace(&mut self.arena, number) != number
    }

    /// Whether a get waits for the rank's lazy fences and these are complete.
    pub fn may_resume(&self) -> bool {
        self.waiting_get.is_some() && self.lazy == 0
    }
}

impl Turn<'_, '_> {
    pub(super) fn on_fence(&mut self, envelope: &Envelope<'_>) {
        let has_put = std::mem::take(self.has_put);
        if self.facts.lazy_fence && has_put {
            *self.state = State::Ready;
            *self.lazy += 1;
            self.effects.push(Effect::Enter { entry: Entry::Fence, reply_to: ReplyTo::Lazy });
            return self.answer(envelope, &barrier_out(self.subversion));
        }
        let reply_to = ReplyTo::Fence { thread: envelope.thread.map(<[u8]>::to_vec) };
        self.effects.push(Effect::Enter { entry: Entry::Fence, reply_to });
    }

    pub(super) fn on_own_fence(&mut self, id: u32) {
        *self.outstanding += 1;
        *self.has_put = false;
        self.effects.push(Effect::Enter { entry: Entry::Fence, reply_to: ReplyTo::OwnFence { id } });
    }

    /// The rank has finished with arrays in the arena.
    pub(super) fn on_freed(&mut self, places: &[u8]) {
        for place in
            places.split(|byte| *byte == b',').filter_map(|place| std::str::from_utf8(place).ok()?.parse().ok())
        {
            self.effects.push(Effect::Freed { place });
        }
    }

    pub(super) fn on_allgather(&mut self, envelope: &Envelope<'_>, id: u32, max_len: u32, shared: bool, value: &[u8]) {
        let mut plain = Vec::new();
        let value = escape::halve(value, &mut plain);
        if max_len == 0 || max_len as usize > ALLGATHER_LEN_MAX || value.len() > max_len as usize {
            return self.refuse(envelope, "value_is_longer_than_the_maximum");
        }
        *self.outstanding += 1;
        let entry = Entry::Allgather { max_len, shared, value: Bytes::copy_from_slice(value) };
        self.effects.push(Effect::Enter { entry, reply_to: ReplyTo::Allgather { id } });
    }

    /// Answers where the ranks listen, at once or when it is known.
    pub(super) fn on_endpoints(&mut self, envelope: &Envelope<'_>) {
        if !self.facts.has_endpoints {
            return self.refuse(envelope, "the_ranks_of_this_job_have_no_sockets");
        }
        if let Some(table) = self.tables.endpoints.ask(self.who.client, envelope.thread) {
            let Self { tables, reply, dialect, .. } = self;
            encode_reply(*dialect, Command::Endpoints, envelope.thread, &Reply::Done, reply);
            tables.handed.push(table);
        }
    }

    /// Answers with the secret of the job's ranks, at once or when it is known.
    pub(super) fn on_secret(&mut self, envelope: &Envelope<'_>) {
        let Self { tables, reply, dialect, effects, who, .. } = self;
        match tables.endpoints.ask_secret(who.client, envelope.thread) {
            Ok(secret) => encode_reply(*dialect, Command::Secret, envelope.thread, &Reply::Secret(secret), reply),
            Err(MustAsk(true)) => effects.push(Effect::NeedSecret),
            Err(MustAsk(false)) => {}
        }
    }

    pub(super) fn on_ring(&mut self, envelope: &Envelope<'_>, left: &[u8], right: &[u8]) {
        // Forwarded as written, including a doubled `;`: the neighbour's client parses it as this client would.
        let value = left;
        let problem = if left != right {
            Some("a_rank_gives_one_value_to_both_sides")
        } else if value.len() > 2 * VALUE_LEN_MAX {
            Some("value_is_longer_than_1024")
        } else {
            None
        };
        if let Some(message) = problem {
            *self.state = State::Ready;
            return self.refuse(envelope, message);
        }
        let reply_to = ReplyTo::Ring { thread: envelope.thread.map(<[u8]>::to_vec) };
        let entry = Entry::Ring { value: Bytes::copy_from_slice(value) };
        self.effects.push(Effect::Enter { entry, reply_to });
    }

    /// A get of a pair: answered immediately, or when the rank's lazy fences are complete.
    pub(super) fn on_get_pair(&mut self, envelope: &Envelope<'_>, key: &[u8]) -> Next {
        if *self.lazy == 0 {
            self.answer_get(key, envelope.thread);
            return Next::Go;
        }
        *self.waiting_get = Some(WaitingGet::Key { key: key.to_vec(), thread: envelope.thread.map(<[u8]>::to_vec) });
        Next::Wait
    }

    /// Answers the get that was waiting.
    pub(super) fn answer_waiting(&mut self) {
        match self.waiting_get.take() {
            None => {}
            Some(WaitingGet::Key { key, thread }) => self.answer_get(&key, thread.as_deref()),
            Some(WaitingGet::Number(number)) => self.answer_number(number),
        }
    }

    fn answer_get(&mut self, key: &[u8], thread: Option<&[u8]>) {
        let Self { tables, facts, reply, dialect, effects, .. } = self;
        let (mut key_room, mut value_room) = (Vec::new(), Vec::new());
        let key = stored(*dialect, key, &mut key_room);
        if facts.spawned.is_some_and(|spawned| spawned.preput.iter().any(|(left, _)| left == key)) {
            effects.push(Effect::MeetsFamily);
        }
        let answer = match tables.kvs.get(key) {
            Ok(Some(value)) => shown(*dialect, value, &mut value_room).map_or(UNSPEAKABLE, Reply::Value),
            Ok(None) => Reply::NotFound,
            Err(error) => {
                effects.push(Effect::unreadable(error));
                Reply::Failed { message: UNREADABLE }
            }
        };
        encode_reply(*dialect, Command::Get, thread, &answer, reply);
    }
}

impl PmiLink {
    /// Answers a rank that has asked where the ranks listen.
    pub fn answer_endpoints(&mut self, thread: Option<&[u8]>, reply: &mut Vec<u8>) {
        if self.state != State::Closed {
            encode_reply(self.dialect, Command::Endpoints, thread, &Reply::Done, reply);
        }
    }

    /// Answers a rank that has asked for the secret.
    pub fn answer_secret(&mut self, thread: Option<&[u8]>, secret: &[u8], reply: &mut Vec<u8>) {
        if self.state != State::Closed {
            encode_reply(self.dialect, Command::Secret, thread, &Reply::Secret(secret), reply);
        }
    }

    /// A group's barrier is complete.
    pub fn answer_group(&mut self, tag: i64, reply: &mut Vec<u8>) {
        if self.state == State::Closed {
            return;
        }
        self.groups -= 1;
        encode_reply(self.dialect, Command::Barrier, None, &Reply::BarrierOut { tag: i32::try_from(tag).ok() }, reply);
    }
}

impl Turn<'_, '_> {
    pub(super) fn on_group(&mut self, envelope: &Envelope<'_>, text: &[u8]) {
        if self.subversion < 2 {
            return self.refuse(envelope, "group_barriers_need_PMI_1.2");
        }
        let problem = match Group::parse(text, self.facts.job_size) {
            Err(problem) => problem.to_string(),
            Ok(group) if !group.members.contains(self.who.rank) => "the caller is not in the group".into(),
            Ok(_) if *self.groups >= GROUP_BARRIERS_PER_RANK_MAX => "too many barriers of groups under way".into(),
            Ok(group) => {
                *self.groups += 1;
                return self.effects.push(Effect::EnterGroup { group, value: None });
            }
        };
        encode_barrier_refusal(tag_of(text).unwrap_or(0), &problem, self.reply);
    }
}
