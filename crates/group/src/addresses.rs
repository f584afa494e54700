//! Finds the addresses of group members that this member does not know (S2's address requests).
//!
//! ```text
//!   me ── where is 77? ──► the member nearest to 77 that I know ──► its own answer, or a member nearer to 77
//! ```
//!
//! The asker itself asks the next member, so a member that is asked keeps no state; the asker caches each answer. With
//! links at all powers of two on both sides, a search takes at most `ceil(log2 P / 2)` questions: any distance is a sum
//! of signed powers of two of which no two are consecutive.

use crate::collectives::Sends;
use crate::message::{Malformed, Message, MessageKind, decode_peer, encode_peer};
use crate::outbox::{Context, Request};
use crate::shape::{Peer, Shape};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A request or message that waits until the address of a member is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Waiter {
    Address(Request),
    /// Send this message to the member once its address is known, which completes the request.
    Message(Request, Vec<u8>),
    /// The member is a neighbour in a group that is being created with this context; `true`: its left neighbour.
    Neighbour(Context, bool),
}

impl Waiter {
    /// The request that this waiter completes. `None` for a neighbour: a group that is being created has one request
    /// for both its neighbours.
    fn request(&self) -> Option<Request> {
        match self {
            Waiter::Address(request) | Waiter::Message(request, _) => Some(*request),
            Waiter::Neighbour(..) => None,
        }
    }
}

#[derive(Default)]
pub struct Addresses {
    /// Addresses received in answers, by the member's place in the group. Members whose addresses are in the group's
    /// `Shape` are left out.
    cached: BTreeMap<u32, Peer>,
    /// Questions that are not answered yet, by question number.
    questions: BTreeMap<u32, Question>,
    last: u32,
    /// Requests and messages that wait for the address of a member, by the member's place.
    waiting: BTreeMap<u32, Vec<Waiter>>,
}

struct Question {
    member: u32,
    distance: u32,
    /// The place in the group of the member that was asked; `None`: nobody was asked yet.
    asked: Option<u32>,
}

impl Addresses {
    pub fn get<'a>(&'a self, shape: &'a Shape, member: u32) -> Option<&'a Peer> {
        let linked = shape.known().find(|(place, _)| *place == member).map(|(_, peer)| peer);
        linked.or_else(|| self.cached.get(&member))
    }

    /// The members whose addresses are known, from the shape or from answers.
    pub fn known<'a>(&'a self, shape: &'a Shape) -> impl Iterator<Item = &'a Peer> {
        shape.known().map(|(_, peer)| peer).chain(self.cached.values())
    }

    /// Adds `waiter` to the waiters for this member's address. The first waiter for a member sends a question.
    pub fn ask(&mut self, context: u64, shape: &Shape, member: u32, waiter: Waiter, out: &mut Sends) {
        let waiting = self.waiting.entry(member).or_default();
        waiting.push(waiter);
        if waiting.len() == 1 {
            self.last = self.last.wrapping_add(1);
            let (number, distance) = (self.last, u32::MAX);
            self.questions.insert(number, Question { member, distance, asked: None });
            self.repeat(context, shape, number, out);
        }
    }

    /// The members to which a question was sent that they have not answered yet.
    pub fn asked<'a>(&'a self, shape: &'a Shape) -> impl Iterator<Item = &'a Peer> {
        self.questions.values().filter_map(|question| self.get(shape, question.asked?))
    }

    /// Whether a message or request waits for this member's address: a new message must then queue behind it.
    pub fn is_awaited(&self, member: u32) -> bool {
        self.waiting.contains_key(&member)
    }

    pub fn take_waiting(&mut self, member: u32) -> Vec<Waiter> {
        self.waiting.remove(&member).unwrap_or_default()
    }

    /// Gives up all searches; returns the requests that waited for them.
    pub fn stop(&mut self) -> Vec<Request> {
        self.questions.clear();
        let waiting = core::mem::take(&mut self.waiting).into_values().flatten();
        waiting.filter_map(|waiter| waiter.request()).collect()
    }

    /// Answers another member's question: with the peer that it asks for, or with the known peer nearest to that one.
    pub fn answer(&self, context: u64, shape: &Shape, (member, question): (u32, u32)) -> Option<Vec<u8>> {
        let (place, peer) = self.nearest(shape, member)?;
        let kind = MessageKind::ThereIs { member: place, question };
        Some(Message { context, kind, payload: &encode_peer(peer) }.encode())
    }

    /// Handles an answer. Returns the peer in it, and the peer's place if it is the member that was searched for;
    /// otherwise asks the nearest member that is known now.
    ///
    /// # Errors
    /// There is no such question, or the peer in the answer is no nearer than the member that was asked.
    pub fn on_answer(
        &mut self,
        context: u64,
        shape: &Shape,
        (place, number): (u32, u32),
        payload: &[u8],
        out: &mut Sends,
    ) -> Result<(Peer, Option<u32>), Malformed> {
        let question = self.questions.get_mut(&number).ok_or(Malformed)?;
        let peer = decode_peer(payload)?;
        let member = question.member;
        let is_member = place < shape.size && place != shape.me;
        if !is_member || distance(shape, place, member) >= question.distance {
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

    /// Sends the question to the known member that is nearest to the one searched for.
    fn repeat(&mut self, context: u64, shape: &Shape, number: u32, out: &mut Sends) {
        let Some(member) = self.questions.get(&number).map(|question| question.member) else { return };
        let Some((place, rank)) = self.nearest(shape, member).map(|(place, peer)| (place, peer.rank)) else { return };
        let distance = distance(shape, place, member);
        self.questions.insert(number, Question { member, distance, asked: Some(place) });
        let message = Message { context, kind: MessageKind::WhereIs { member, question: number }, payload: &[] };
        out.messages.push((rank, message.encode()));
        out.counts.questions += 1;
        out.counts.rounds += 1;
    }

    /// The known member that is nearest to `member`, which may be `member` itself.
    fn nearest<'a>(&'a self, shape: &'a Shape, member: u32) -> Option<(u32, &'a Peer)> {
        let cached = self.cached.iter().map(|(place, peer)| (*place, peer));
        shape.known().chain(cached).min_by_key(|(place, _)| distance(shape, *place, member))
    }
}

/// Distance between two places around the ring, in the shorter direction.
fn distance(shape: &Shape, one: u32, other: u32) -> u32 {
    let apart = one.abs_diff(other);
    apart.min(shape.size - apart)
}
