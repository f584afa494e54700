//! Starts fences, allgathers, rings and barriers of groups (PMI 1.2) for one rank, and answers the rank.
//!
//! A text client has at most one collective outstanding and waits for it; our own clients have any number, identified
//! by their ids.
//!
//! A lazy fence (S1 IV-E, note) is answered before it is complete, if the rank has put something since its last fence.
//! From then on the rank's gets wait until all of its fences are complete; a get that waits delays the requests after
//! it, so that answers stay in order.

use super::connection::{Asked, Tables, UNREADABLE, fail_unreadable};
use super::connection::{PmiClient, PmiLink, WaitingGet};
use super::dialects::{UNSPEAKABLE, shown, stored};
use super::endpoints::MustAsk;
use super::state::{Event, State};
use crate::collective::{Entry, ReplyTo};
use crate::io::Output;
use crate::job::cx::Cx;
use bytes::Bytes;
use wireup_coll::scan::Down;
use wireup_wire::group::{Group, tag_of};
use wireup_wire::job::PmiFence;
use wireup_wire::limits::{ALLGATHER_LEN_MAX, GROUP_BARRIERS_PER_RANK_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::{Command, Envelope, Reply, encode_barrier_refusal, encode_reply, escape};

/// The result that a rank receives when its collective is complete.
pub enum Completion<'a> {
    /// A fence. `version`: a number that each fence with published pairs increments.
    Fence { version: u32 },
    /// An allgather. `place`: the array's place in the arena; `None`: the array has memory of its own. `new`: whether
    /// the rank has not used this arena before.
    Array { place: Option<u32>, new: bool },
    /// A ring: the rank's place in it.
    Place(&'a Down),
}

/// PMI 1.2 clients identify barriers by their tags; the barrier of all ranks belongs to no group and has tag 0, as in
/// Hydra.
fn barrier_out(subversion: u32) -> Reply<'static> {
    Reply::BarrierOut { tag: (subversion >= 2).then_some(0) }
}

impl PmiLink {
    /// A collective is complete: writes its reply.
    pub fn answer_collective(&mut self, reply_to: &ReplyTo, told: &Completion<'_>, reply: &mut Vec<u8>) {
        if self.state == State::Closed {
            return;
        }
        let mut encode = |command, thread: &Option<Vec<u8>>, answer: &Reply<'_>| {
            encode_reply(self.client.dialect, command, thread.as_deref(), answer, reply);
        };
        match (reply_to, told) {
            (ReplyTo::Fence { thread }, Completion::Fence { .. }) => {
                encode(Command::Barrier, thread, &barrier_out(self.subversion))
            }
            (ReplyTo::Ring { thread }, Completion::Place(place)) => {
                let answer = Reply::Ring { count: place.before as i32, left: &place.left, right: &place.right };
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

impl PmiLink {
    pub(super) fn on_fence(&mut self, cx: &Cx<'_>, t: &mut Tables, envelope: &Envelope<'_>) -> Asked {
        let has_put = std::mem::take(&mut self.has_put);
        if has_put && cx.facts.spec.options.pmi.fence == PmiFence::Lazy {
            self.state = State::Ready;
            self.lazy += 1;
            self.client.answer(t, envelope, &barrier_out(self.subversion));
            return Asked::Enter { entry: Entry::Fence, reply_to: ReplyTo::Lazy };
        }
        let reply_to = ReplyTo::Fence { thread: envelope.thread.map(<[u8]>::to_vec) };
        Asked::Enter { entry: Entry::Fence, reply_to }
    }

    pub(super) fn on_own_fence(&mut self, id: u32) -> Asked {
        self.outstanding += 1;
        self.has_put = false;
        Asked::Enter { entry: Entry::Fence, reply_to: ReplyTo::OwnFence { id } }
    }

    /// A rank enters an allgather. The array of the values may need an arena, which is requested now.
    pub(super) fn on_allgather(
        &mut self,
        cx: &mut Cx<'_>,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        id: u32,
        (max_len, shared): (u32, bool),
        value: &[u8],
    ) -> Option<Asked> {
        let mut plain = Vec::new();
        let value = escape::halve(value, &mut plain);
        if max_len == 0 || max_len as usize > ALLGATHER_LEN_MAX || value.len() > max_len as usize {
            self.client.refuse(t, envelope, "value_is_longer_than_the_maximum");
            return None;
        }
        self.outstanding += 1;
        t.arenas.prepare(cx.facts.job_size, max_len, shared, &mut t.shares);
        t.shares.put_made(cx);
        let entry = Entry::Allgather { max_len, shared, value: Bytes::copy_from_slice(value) };
        Some(Asked::Enter { entry, reply_to: ReplyTo::Allgather { id } })
    }

    pub(super) fn on_ring(
        &mut self,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        left: &[u8],
        right: &[u8],
    ) -> Option<Asked> {
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
            self.state = State::Ready;
            self.client.refuse(t, envelope, message);
            return None;
        }
        let reply_to = ReplyTo::Ring { thread: envelope.thread.map(<[u8]>::to_vec) };
        Some(Asked::Enter { entry: Entry::Ring { value: Bytes::copy_from_slice(value) }, reply_to })
    }

    /// A get of a pair: answered immediately, or when the rank's lazy fences are complete.
    pub(super) fn on_get_pair(&mut self, cx: &mut Cx<'_>, t: &mut Tables, envelope: &Envelope<'_>, key: &[u8]) {
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

    /// A group's barrier is complete.
    pub fn answer_group(&mut self, tag: i64, reply: &mut Vec<u8>) {
        self.groups -= 1;
        encode_reply(
            self.client.dialect,
            Command::Barrier,
            None,
            &Reply::BarrierOut { tag: i32::try_from(tag).ok() },
            reply,
        );
    }

    pub(super) fn on_group(
        &mut self,
        cx: &Cx<'_>,
        t: &mut Tables,
        envelope: &Envelope<'_>,
        text: &[u8],
    ) -> Option<Asked> {
        if self.subversion < 2 {
            self.client.refuse(t, envelope, "group_barriers_need_PMI_1.2");
            return None;
        }
        let problem = match Group::parse(text, cx.facts.job_size) {
            Err(problem) => problem.to_string(),
            Ok(group) if !group.members.contains(self.client.rank) => "the caller is not in the group".into(),
            Ok(_) if self.groups >= GROUP_BARRIERS_PER_RANK_MAX => "too many barriers of groups under way".into(),
            Ok(group) => {
                self.groups += 1;
                return Some(Asked::EnterGroup { group, value: None });
            }
        };
        encode_barrier_refusal(tag_of(text).unwrap_or(0), &problem, &mut t.reply);
        None
    }
}

impl PmiClient {
    /// A rank that reads a pair which the rank that spawned its job has put is about to connect to that rank.
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
                fail_unreadable(cx, &error);
                Reply::Failed { message: UNREADABLE }
            }
        };
        encode_reply(self.dialect, Command::Get, thread, &answer, reply);
    }

    /// The rank has finished with arrays in the arena.
    pub(super) fn on_freed(&self, t: &mut Tables, places: &[u8]) {
        let places = places.split(|byte| *byte == b',').filter_map(|place| std::str::from_utf8(place).ok());
        places.filter_map(|place| place.parse().ok()).for_each(|place| t.arenas.free(self.id.local, place));
    }

    /// Answers where the ranks listen, at once or when it is known.
    pub(super) fn on_endpoints(&self, cx: &Cx<'_>, t: &mut Tables, envelope: &Envelope<'_>) {
        if cx.facts.spec.options.process.rank_ports.is_none() {
            return self.refuse(t, envelope, "the_ranks_of_this_job_have_no_sockets");
        }
        if let Some(table) = t.endpoints.ask(self.id, envelope.thread) {
            self.answer(t, envelope, &Reply::Done);
            t.handed.push(table);
        }
    }

    /// Answers with the secret of the job's ranks, at once or when it is known.
    pub(super) fn on_secret(&self, cx: &mut Cx<'_>, t: &mut Tables, envelope: &Envelope<'_>) {
        let Tables { endpoints, reply, .. } = t;
        match endpoints.ask_secret(self.id, envelope.thread) {
            Ok(secret) => encode_reply(self.dialect, Command::Secret, envelope.thread, &Reply::Secret(secret), reply),
            Err(MustAsk(true)) => cx.output(Output::TellSecret { job: cx.facts.id() }),
            Err(MustAsk(false)) => {}
        }
    }

    /// Answers a rank that has asked where the ranks listen.
    pub fn answer_endpoints(&self, thread: Option<&[u8]>, reply: &mut Vec<u8>) {
        encode_reply(self.dialect, Command::Endpoints, thread, &Reply::Done, reply);
    }

    /// Answers a rank that has asked for the secret.
    pub fn answer_secret(&self, thread: Option<&[u8]>, secret: &[u8], reply: &mut Vec<u8>) {
        encode_reply(self.dialect, Command::Secret, thread, &Reply::Secret(secret), reply);
    }
}
