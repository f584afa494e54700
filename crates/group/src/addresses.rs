//! Finds the addresses of group members that this member does not know (S2's address requests).
//!
//! ```text
//!   me ── where is 77? ──► the nearest to 77 of its links ──► … ──► a member that knows 77
//!    ◄──────────────── the address, by the way that the question has come ────┘
//! ```
//!
//! Questions and answers travel over the links of the group's graph only, so a search makes no connection of its own.
//! A question carries the ranks that it has passed, so a member on the way keeps no state, and questions that cross do
//! not concern each other. Each member on the way is nearer to the member that is searched for. With links at all
//! powers of two on both sides, at most `ceil(log2 P / 2)` members are asked: any distance is a sum of signed powers of
//! two of which no two are consecutive. The asker alone caches the answer.
//!
//! A member on the way that is lost fails the group. If a connection was closed because there were too many, the exit
//! of the member at its other end goes unnoticed. A question or answer that cannot be sent to such a member is dropped,
//! and a question that is not answered for long is asked again, over another link. If all members that a question could
//! go to have left, the group fails as if one of them were lost.
//!
//! An answer is accepted if this member has asked for that member. The address in it is not proved, but its use is:
//! whoever is dialled there must prove that it is the rank.

use crate::collectives::Sends;
use crate::message::{Malformed, Message, MessageKind, encode_peer, take_peer};
use crate::outbox::{Context, Request};
use crate::shape::{Peer, Shape};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Number of calls of [`Addresses::ask_again`] after which a question is asked again; later pauses are each twice as
/// long. Chosen, for a call in each second: longer than answers take on a busy machine.
const LOOKS_MIN: u32 = 8;
/// Maximum number of ranks that a question may have passed. A longer way exists only while the members on it build
/// their graphs: the question is dropped, and asked again later. Chosen: four times what 2^32 members need.
const PASSED_MAX: usize = 64;

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

/// The group in which members search.
#[derive(Clone, Copy)]
pub struct Graph<'a> {
    pub context: Context,
    pub shape: &'a Shape,
    /// The rank and address of this member.
    pub own: &'a Peer,
    /// Ranks that have left the job in an orderly way, or could not be reached for an inquiry.
    pub left: &'a BTreeSet<u32>,
}

impl Graph<'_> {
    /// The rank of the `nth` nearest to `member` of the linked members that are nearer to it than this member
    /// and have not left. If all have left: the nearest one; the question to it fails the group.
    fn next_hop(self, member: u32, nth: usize) -> Option<u32> {
        let from_member = |place| distance(self.shape, place, member);
        let mut nearer: Vec<(u32, u32)> = self.shape.known().map(|(place, peer)| (place, peer.rank)).collect();
        let mut seen = BTreeSet::new();
        nearer.retain(|(place, _)| from_member(*place) < from_member(self.shape.me) && seen.insert(*place));
        nearer.sort_by_key(|(place, rank)| (self.left.contains(rank), from_member(*place)));
        let remaining = nearer.iter().filter(|(_, rank)| !self.left.contains(rank)).count();
        nearer.get(nth % remaining.max(1)).map(|(_, rank)| *rank)
    }

    fn push_question(self, to: u32, question: &Message<'_>, out: &mut Sends) {
        if self.left.contains(&to) { &mut out.messages } else { &mut out.inquiries }.push((to, question.encode()));
        out.counts.questions += 1;
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
    /// The rank of the member that was asked last; `None`: nobody was asked yet.
    asked: Option<u32>,
    /// Number of calls of [`Addresses::ask_again`] since the search began.
    looks: u32,
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
    pub fn ask(&mut self, graph: Graph<'_>, member: u32, waiter: Waiter, out: &mut Sends) {
        if let Some(search) = self.searches.get_mut(&member) {
            return search.waiters.push(waiter);
        }
        self.last = self.last.wrapping_add(1);
        let search = Search { number: self.last, asked: None, looks: 0, waiters: vec![waiter] };
        self.searches.insert(member, search);
        out.counts.rounds += 1;
        self.send_question(graph, member, 0, out);
    }

    /// Ranks that were asked and have not answered yet.
    pub fn asked(&self) -> impl Iterator<Item = u32> {
        self.searches.values().filter_map(|search| search.asked)
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

    /// Asks again, over another link, what was not answered for long.
    pub fn ask_again(&mut self, graph: Graph<'_>, out: &mut Sends) {
        let looked = self.searches.iter_mut().map(|(member, search)| {
            search.looks = search.looks.saturating_add(1);
            (*member, search.looks)
        });
        let due = looked.filter(|(_, looks)| *looks >= LOOKS_MIN && looks.is_power_of_two());
        for (member, looks) in due.collect::<Vec<(u32, u32)>>() {
            let nth = 1 + looks.ilog2() - LOOKS_MIN.ilog2();
            self.send_question(graph, member, nth as usize, out);
        }
    }

    /// Asks other members what `rank`, which has left the job, has not answered.
    pub fn on_left(&mut self, graph: Graph<'_>, rank: u32, out: &mut Sends) {
        let of_rank = self.searches.iter().filter(|(_, search)| search.asked == Some(rank)).map(|(member, _)| *member);
        for member in of_rank.collect::<Vec<u32>>() {
            self.send_question(graph, member, 0, out);
        }
    }

    /// Handles another member's question, which `from` has sent or passed on: sends the member's address back to
    /// `from`, or passes the question on. `passed`: the ranks that the question had passed before `from`.
    ///
    /// # Errors
    /// There is no such member, or `passed` is no list of ranks.
    pub fn on_question(
        &self,
        graph: Graph<'_>,
        from: u32,
        (member, question): (u32, u32),
        passed: &[u8],
        out: &mut Sends,
    ) -> Result<(), Malformed> {
        let Graph { context, shape, own, .. } = graph;
        if member >= shape.size || !passed.len().is_multiple_of(size_of::<u32>()) {
            return Err(Malformed);
        }
        // The asker may have got a link to this member after its search began; the repeated question then arrives here.
        let found = if member == shape.me { Some(own) } else { self.get(shape, member) };
        if let Some(peer) = found {
            let payload = [&encode_peer(peer), passed].concat();
            let answer = Message { context, kind: MessageKind::ThereIs { member, question }, payload: &payload };
            out.inquiries.push((from, answer.encode()));
        } else if let Some(to) = graph.next_hop(member, 0)
            && passed.len() / size_of::<u32>() < PASSED_MAX
        {
            let payload = [passed, &from.to_le_bytes()].concat();
            let kind = MessageKind::WhereIs { member, question };
            graph.push_question(to, &Message { context, kind, payload: &payload }, out);
        }
        Ok(())
    }

    /// Handles an answer: passes it on, or returns the peer that this member has searched for; `None`: there is nothing
    /// more to do.
    ///
    /// # Errors
    /// The answer is not well-formed, or this member has never sent the question.
    pub fn on_answer(
        &mut self,
        Graph { context, left, .. }: Graph<'_>,
        (member, question): (u32, u32),
        payload: &[u8],
        out: &mut Sends,
    ) -> Result<Option<Peer>, Malformed> {
        let mut passed = payload;
        let peer = take_peer(&mut passed)?;
        if !passed.len().is_multiple_of(size_of::<u32>()) {
            return Err(Malformed);
        }
        if let Some((passed, to)) = passed.split_last_chunk() {
            let to = u32::from_le_bytes(*to);
            if !left.contains(&to) {
                let payload = [&encode_peer(&peer), passed].concat();
                let kind = MessageKind::ThereIs { member, question };
                out.inquiries.push((to, Message { context, kind, payload: &payload }.encode()));
            }
            return Ok(None);
        }
        match self.searches.iter().find(|(_, search)| search.number == question) {
            Some((searched, _)) if *searched == member => {
                self.cached.insert(member, peer.clone());
                Ok(Some(peer))
            }
            // The second answer to a question that was asked twice.
            None if (1..=self.last).contains(&question) => Ok(None),
            Some(_) | None => Err(Malformed),
        }
    }

    fn send_question(&mut self, graph: Graph<'_>, member: u32, nth: usize, out: &mut Sends) {
        let Some(to) = graph.next_hop(member, nth) else { return };
        let Some(search) = self.searches.get_mut(&member) else { return };
        search.asked = Some(to);
        let kind = MessageKind::WhereIs { member, question: search.number };
        graph.push_question(to, &Message { context: graph.context, kind, payload: &[] }, out);
    }
}

/// Distance between two places around the ring, in the shorter direction.
fn distance(shape: &Shape, one: u32, other: u32) -> u32 {
    let apart = one.abs_diff(other);
    apart.min(shape.size - apart)
}
