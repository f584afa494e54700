//! Finds the addresses of members that this one does not know (S2's address requests).
//!
//! ```text
//!   me ── where is 77? ──► the member nearest to 77 that I know ──► its own answer, or a member nearer to 77
//! ```
//!
//! The asker repeats the question, so a member that is asked keeps nothing, and each answer is cached. With links at
//! all powers of two on both sides, each answer at least halves the distance: at most `ceil(log2 P / 2)` questions,
//! since the steps that lead to any distance are powers of two with signs, of which no two in a row are needed.

use crate::algorithms::{push_peer, take_peer};
use crate::collectives::Send;
use crate::message::{Malformed, Message, MessageKind};
use crate::request::{Context, Request};
use crate::shape::{Peer, Shape};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What waits for the address of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Waiter {
    /// A request for the address itself.
    Address(Request),
    /// A message to the member, which is sent when the address is known; the request is over then.
    Message(Request, Vec<u8>),
    /// A group that is being made, with this context, in which the member is a neighbour; `true`: on the left.
    Neighbour(Context, bool),
}

impl Waiter {
    /// The request that is over when this waiter is served. A neighbour has none: a group that is being made has one
    /// request for both neighbours.
    fn request(&self) -> Option<Request> {
        match self {
            Waiter::Address(request) | Waiter::Message(request, _) => Some(*request),
            Waiter::Neighbour(..) => None,
        }
    }
}

#[derive(Default)]
pub struct Addresses {
    /// Addresses that answers have told, by the member's place. Addresses that the shape contains are not repeated
    /// here.
    cached: BTreeMap<u32, Peer>,
    /// Questions that are not answered yet, by number.
    questions: BTreeMap<u32, Question>,
    last: u32,
    /// Messages with questions that this member has sent, since they were taken.
    asked: u64,
    /// What waits for the address of a member, by the member's place.
    waiting: BTreeMap<u32, Vec<Waiter>>,
}

struct Question {
    member: u32,
    distance: u32,
    /// The place of the member that was asked.
    asked: Option<u32>,
}

impl Addresses {
    pub fn get<'a>(&'a self, shape: &'a Shape, member: u32) -> Option<&'a Peer> {
        let linked = shape.known().find(|(place, _)| *place == member).map(|(_, peer)| peer);
        linked.or_else(|| self.cached.get(&member))
    }

    /// The members whose addresses are held, with those of the shape.
    pub fn known<'a>(&'a self, shape: &'a Shape) -> impl Iterator<Item = &'a Peer> {
        shape.known().map(|(_, peer)| peer).chain(self.cached.values())
    }

    /// Asks for a member whose address is not known, unless that is asked already.
    pub fn ask(&mut self, context: u64, shape: &Shape, member: u32, waiter: Waiter, out: &mut Vec<Send>) {
        let waiting = self.waiting.entry(member).or_default();
        waiting.push(waiter);
        if waiting.len() == 1 {
            self.last = self.last.wrapping_add(1);
            let (number, distance) = (self.last, u32::MAX);
            self.questions.insert(number, Question { member, distance, asked: None });
            self.repeat(context, shape, number, out);
        }
    }

    /// The members that are to answer questions.
    pub fn asked<'a>(&'a self, shape: &'a Shape) -> impl Iterator<Item = &'a Peer> {
        self.questions.values().filter_map(|question| self.get(shape, question.asked?))
    }

    /// Messages with questions, since the last time.
    pub fn take_asked(&mut self) -> u64 {
        core::mem::take(&mut self.asked)
    }

    /// Whether messages to this member wait: later ones must not overtake them.
    pub fn is_awaited(&self, member: u32) -> bool {
        self.waiting.contains_key(&member)
    }

    /// What waited for a member's address.
    pub fn take_waiting(&mut self, member: u32) -> Vec<Waiter> {
        self.waiting.remove(&member).unwrap_or_default()
    }

    /// Gives up; the requests that were in progress.
    pub fn stop(&mut self) -> Vec<Request> {
        self.questions.clear();
        let waiting = core::mem::take(&mut self.waiting).into_values().flatten();
        waiting.filter_map(|waiter| waiter.request()).collect()
    }

    /// Another member asks: the member itself, or the nearest one known.
    pub fn answer(&self, context: u64, shape: &Shape, (member, question): (u32, u32)) -> Option<Vec<u8>> {
        let (place, peer) = self.nearest(shape, member)?;
        let mut payload = Vec::new();
        push_peer(&mut payload, peer);
        Some(Message { context, kind: MessageKind::ThereIs { member: place, question }, payload: &payload }.encode())
    }

    /// An answer: who is known now, and the member if it is the one that was looked for; else asks on.
    ///
    /// # Errors
    /// Nobody asked, or the answer leads no nearer.
    pub fn on_answer(
        &mut self,
        context: u64,
        shape: &Shape,
        (place, number): (u32, u32),
        mut payload: &[u8],
        out: &mut Vec<Send>,
    ) -> Result<(Peer, Option<u32>), Malformed> {
        let question = self.questions.get_mut(&number).ok_or(Malformed)?;
        let peer = take_peer(&mut payload)?;
        let member = question.member;
        let is_member = place < shape.size && place != shape.me;
        if !is_member || !payload.is_empty() || distance(shape, place, member) >= question.distance {
            return Err(Malformed);
        }
        self.cached.insert(place, peer.clone());
        if place == member {
            self.questions.remove(&number);
            return Ok((peer, Some(member)));
        }
        self.repeat(context, shape, number, out);
        Ok((peer, None))
    }

    /// Asks the nearest member that is known now.
    fn repeat(&mut self, context: u64, shape: &Shape, number: u32, out: &mut Vec<Send>) {
        let Some(member) = self.questions.get(&number).map(|question| question.member) else { return };
        let Some((place, rank)) = self.nearest(shape, member).map(|(place, peer)| (place, peer.rank)) else { return };
        let distance = distance(shape, place, member);
        self.questions.insert(number, Question { member, distance, asked: Some(place) });
        let message = Message { context, kind: MessageKind::WhereIs { member, question: number }, payload: &[] };
        out.push((rank, message.encode()));
        self.asked += 1;
    }

    /// The known member that is nearest to another one, which may be that itself.
    fn nearest<'a>(&'a self, shape: &'a Shape, member: u32) -> Option<(u32, &'a Peer)> {
        let cached = self.cached.iter().map(|(place, peer)| (*place, peer));
        shape.known().chain(cached).min_by_key(|(place, _)| distance(shape, *place, member))
    }
}

/// Between two places of the group, around the ring, the shorter way.
fn distance(shape: &Shape, one: u32, other: u32) -> u32 {
    let apart = one.abs_diff(other);
    apart.min(shape.size - apart)
}
