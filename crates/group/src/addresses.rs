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
    /// Searches in progress, by the place of the member that is searched for.
    searches: BTreeMap<u32, Search>,
    /// Number of the latest search.
    last: u32,
}

/// A question that is not answered yet.
struct Search {
    number: u32,
    distance: u32,
    /// The place in the group of the member that was asked; `None`: nobody was asked yet.
    asked: Option<u32>,
    waiters: Vec<Waiter>,
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
        if let Some(search) = self.searches.get_mut(&member) {
            return search.waiters.push(waiter);
        }
        self.last = self.last.wrapping_add(1);
        let search = Search { number: self.last, distance: u32::MAX, asked: None, waiters: vec![waiter] };
        self.searches.insert(member, search);
        self.repeat(context, shape, member, out);
    }

    /// The members to which a question was sent that they have not answered yet.
    pub fn asked<'a>(&'a self, shape: &'a Shape) -> impl Iterator<Item = &'a Peer> {
        self.searches.values().filter_map(|search| self.get(shape, search.asked?))
    }

    /// Whether a message or request waits for this member's address: a new message must then queue behind it.
    pub fn is_awaited(&self, member: u32) -> bool {
        self.searches.contains_key(&member)
    }

    pub fn take_waiting(&mut self, member: u32) -> Vec<Waiter> {
        self.searches.remove(&member).map_or_else(Vec::new, |search| search.waiters)
    }

    /// Gives up all searches; returns the requests that waited for them.
    pub fn stop(&mut self) -> Vec<Request> {
        let searches = core::mem::take(&mut self.searches).into_values();
        searches.flat_map(|search| search.waiters).filter_map(|waiter| waiter.request()).collect()
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
        let (&member, search) = self.searches.iter().find(|(_, search)| search.number == number).ok_or(Malformed)?;
        let peer = decode_peer(payload)?;
        let is_member = place < shape.size && place != shape.me;
        if !is_member || distance(shape, place, member) >= search.distance {
            return Err(Malformed);
        }
        self.cached.insert(place, peer.clone());
        if place == member {
            return Ok((peer, Some(member)));
        }
        self.repeat(context, shape, member, out);
        Ok((peer, None))
    }

    /// Sends the question to the known member that is nearest to the one searched for.
    fn repeat(&mut self, context: u64, shape: &Shape, member: u32, out: &mut Sends) {
        let Some((place, rank)) = self.nearest(shape, member).map(|(place, peer)| (place, peer.rank)) else { return };
        let Some(search) = self.searches.get_mut(&member) else { return };
        (search.distance, search.asked) = (distance(shape, place, member), Some(place));
        let kind = MessageKind::WhereIs { member, question: search.number };
        let message = Message { context, kind, payload: &[] };
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
