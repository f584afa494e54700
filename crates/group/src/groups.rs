//! The groups of one process: routes messages to them, and reports completed requests.
//!
//! A group's context is a number that its members derive alike, from the group that it was made from, the number of
//! that collective and the place of its first member. Messages carry it, so any number of groups and libraries share
//! the links between processes.
//!
//! The loss of a rank fails the groups that it was in: members with a link to it inform all members that they have
//! links to, which do the same.

use crate::addresses::{Addresses, Graph, Waiter};
use crate::algorithms::{Algorithm, Barrier, Build, NewPlace, Outcome, Split, Wanted};
use crate::collectives::{Over, Sends, Then};
use crate::creation::{Announcement, Begun, Creation, Creations, Heard, Sender};
use crate::early_messages::EarlyMessages;
use crate::group::{Awaited, Group};
use crate::message::{self, Malformed, Message, MessageKind};
use crate::outbox::{Context, Counts, Done, Failure, Outbox, Output, Request, derived};
use crate::shape::{Peer, Shape};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Maximum size of one rank's messages that wait here for a group, a collective or a receive, in bytes. Chosen: much
/// more than start-up protocols need. From a rank that exceeds it, the driver reads no further messages until they are
/// wanted (see [`Groups::is_behind`]).
pub const KEPT_BYTES_MAX: usize = 64 << 20;

pub struct Groups {
    pub counts: Counts,
    /// Whether this process leaves its job and starts nothing any more. Messages for receives and for groups that do
    /// not exist here are dropped then, so no rank has to wait until this process wants them. Other messages are
    /// handled as before: members may still ask for addresses, or need this process's part in a collective.
    pub is_leaving: bool,
    groups: BTreeMap<Context, Group>,
    early: EarlyMessages,
    creations: Creations,
    out: Outbox,
}

impl Groups {
    pub fn new(own: Peer) -> Groups {
        Groups {
            counts: Counts::default(),
            is_leaving: false,
            groups: BTreeMap::new(),
            early: EarlyMessages::default(),
            creations: Creations::default(),
            out: Outbox::new(own),
        }
    }

    pub fn own(&self) -> &Peer {
        &self.out.own
    }

    /// Makes a group of a process that knows its two neighbours in the ring, and builds its graph.
    pub fn form(&mut self, context: Context, me: u32, size: u32, left: Peer, right: Peer) -> Request {
        let request = self.out.request();
        self.add(
            context,
            Group::new(context, Shape::new(me, size, left, right)),
            Some((request, Box::new(Build::default()))),
        );
        request
    }

    /// Makes a group without messages, for a driver that finds the address of each member itself; `find` is by place.
    /// `is_known`: it is the group of all ranks, so a place is a rank. All members call this with the same context, see
    /// [`derived`].
    pub fn form_whole(&mut self, context: Context, (me, size): (u32, u32), is_known: bool, find: &dyn Fn(u32) -> Peer) {
        let mut group = Group::new(context, Shape::whole(me, size, find));
        group.is_known = is_known;
        self.add(context, group, None);
    }

    /// The number of a group's next collective, for [`derived`]. All members call it in the same order as they start
    /// collectives.
    ///
    /// # Errors
    /// There is no such group.
    pub fn reserve(&mut self, of: Context) -> Result<u32, Failure> {
        self.groups.get_mut(&of).map(|group| group.collectives.next_epoch()).ok_or(Failure::NoGroup)
    }

    /// Makes a group of the members of group `of`, with a context of its own, so that messages of the two groups are
    /// never confused. No message is sent.
    pub fn duplicate(&mut self, of: Context) -> Result<Context, Failure> {
        let Group { collectives, is_known, .. } = self.groups.get_mut(&of).ok_or(Failure::NoGroup)?;
        let (context, is_known) = (derived(of, collectives.next_epoch(), u32::MAX), *is_known);
        let mut group = Group::new(context, collectives.shape.clone());
        group.is_known = is_known;
        self.add(context, group, None);
        Ok(context)
    }

    /// Splits a group by colour and key, as `MPI_Comm_split`.
    pub fn split(&mut self, of: Context, wanted: Wanted) -> Request {
        let split = Split::new(wanted, self.out.own.clone());
        let request = self.out.request();
        self.start_algorithm(request, of, Box::new(split), Then::Build);
        request
    }

    /// Makes a group of these members of `of`, in this order, as `MPI_Comm_create_group`. Exactly these members call
    /// it, with the same list and name.
    pub fn create(&mut self, of: Context, members: &[u32], name: &[u8]) -> Request {
        let request = self.out.request();
        let last = members.iter().copied().max().ok_or(Failure::NoMember);
        let own = last.and_then(|last| usable(&mut self.groups, of, last)).map(|group| group.shape().me);
        match own.and_then(|own| self.creations.start_creation((request, of, own), members, name)) {
            Err(failure) => self.out.done(request, Err(failure)),
            Ok(Begun { context, neighbours: None, .. }) => {
                let own = &self.out.own;
                self.add(
                    context,
                    Group::new(context, Shape::new(0, 1, own.clone(), own.clone())),
                    Some((request, Box::new(Build::default()))),
                );
            }
            Ok(Begun { context, neighbours: Some((left, right)), heard }) => {
                // Another member may have given up the group already, and its message may have arrived.
                self.take_early(context);
                self.toward(of, left, Waiter::Neighbour(context, true));
                self.toward(of, right, Waiter::Neighbour(context, false));
                heard.into_iter().for_each(|(from, heard)| self.on_heard(from, heard));
            }
        }
        request
    }

    fn on_heard(&mut self, from: Sender, heard: Heard) {
        match heard {
            Heard::Nothing => {}
            Heard::Agreed(context) => self.go_on_with(context),
            Heard::Disagrees { own, others } => {
                self.out.tell_failure(others, Failure::Disagrees { rank: self.out.own.rank }, from.rank);
                let failure = Failure::Disagrees { rank: from.rank };
                self.end_creation(own, failure);
                self.fail(own, failure);
            }
        }
    }

    /// Builds a group's graph if both its neighbours are known and agree.
    fn go_on_with(&mut self, context: Context) {
        let Some((creation, left, right)) = self.creations.take_complete(context) else { return };
        let Creation { request, of, me, members, .. } = creation;
        let size = members.len() as u32;
        if self.groups.get(&of).is_some_and(|group| group.is_known) {
            // In group `of`, place `n` is rank `n` of the job.
            let find = |place: u32| Peer { rank: members[place as usize], address: Vec::new() };
            let mut group = Group::new(context, Shape::whole(me, size, &find));
            group.made_from = Some(of);
            // The barrier completes unless members disagree somewhere in the new group.
            return self.add(context, group, Some((request, Box::new(Barrier::default()))));
        }
        let mut group = Group::new(context, Shape::new(me, size, left, right));
        group.made_from = Some(of);
        self.add(context, group, Some((request, Box::new(Build::default()))));
    }

    /// Gives up a group that is being created, and drops its late messages; `false`: no such group is being created.
    fn end_creation(&mut self, context: Context, failure: Failure) -> bool {
        let is_ended = self.creations.end(&mut self.out, context, failure);
        if is_ended {
            self.early.forget(context);
        }
        is_ended
    }

    /// Starts a collective. All members must start the same collectives in the same order.
    pub fn start(&mut self, of: Context, algorithm: Box<dyn Algorithm>) -> Request {
        let request = self.out.request();
        self.start_algorithm(request, of, algorithm, Then::Tell);
        request
    }

    pub fn locate(&mut self, of: Context, member: u32) -> Request {
        let request = self.out.request();
        self.toward(of, member, Waiter::Address(request));
        request
    }

    /// Sends bytes to a member, which receives them by `tag`. The request completes once the message is handed to the
    /// driver.
    pub fn send_tagged(&mut self, to: u32, of: Context, tag: u32, payload: &[u8]) -> Request {
        let request = self.out.request();
        let from = self.shape(of).map_or(0, |shape| shape.me);
        let message = Message { context: of, kind: MessageKind::Tagged { from, tag }, payload };
        self.toward(of, to, Waiter::Message(request, message.encode()));
        request
    }

    /// Receives the next message that a member has sent with this tag.
    pub fn receive_tagged(&mut self, from: u32, of: Context, tag: u32) -> Request {
        let request = self.out.request();
        match usable(&mut self.groups, of, from) {
            Err(failure) => self.out.done(request, Err(failure)),
            Ok(group) => {
                if let Some(bytes) = group.tagged.receive((from, tag), request) {
                    self.out.done(request, Ok(Done::Bytes(bytes)));
                }
            }
        }
        request
    }

    /// Cancels a receive that still waits, so that the next receive gets its message; `false`: the request is no
    /// receive, or has completed.
    pub fn cancel_receive(&mut self, request: Request) -> bool {
        self.groups.values_mut().any(|group| group.tagged.cancel(request))
    }

    pub fn awaited(&self) -> Awaited {
        let mut awaited = Awaited::default();
        self.groups.iter().for_each(|(context, group)| group.add_awaited(*context, &mut awaited));
        awaited.parts.extend(self.creations.awaited());
        awaited.parts.remove(&self.out.own.rank);
        awaited
    }

    /// Whether the messages of a rank that wait here exceed their limit while this process waits for no message of the
    /// rank. If so, the driver stops reading the rank's messages, so that the rank cannot fill this process's memory.
    /// The rank stays connected: it has broken no rule, and its messages are read as soon as this process waits for one
    /// of them, or leaves.
    pub fn is_behind(&self, rank: u32) -> bool {
        if self.is_leaving {
            return false;
        }
        if kept_bytes(self) <= KEPT_BYTES_MAX {
            return false;
        }
        let in_groups = self.groups.values().map(|group| group.kept_bytes_of(rank)).sum::<usize>();
        if self.early.bytes_of(rank) + in_groups <= KEPT_BYTES_MAX {
            return false;
        }
        let awaited = self.awaited();
        !awaited.has(rank) && awaited.unknown.is_empty()
    }

    pub fn shape(&self, of: Context) -> Option<&Shape> {
        self.groups.get(&of).map(Group::shape)
    }

    /// Removes a group; its requests in progress fail.
    pub fn free(&mut self, context: Context) {
        let Some(mut group) = self.groups.remove(&context) else { return };
        self.early.forget(context);
        for made in self.creations.find(|creation| creation.of == context) {
            self.end_creation(made, Failure::Cancelled);
        }
        group.stop().into_iter().for_each(|request| self.out.done(request, Err(Failure::Cancelled)));
    }

    /// Handles a message from another rank.
    ///
    /// # Errors
    /// The message is not one that a correct process sends. The connection to its sender should be closed.
    pub fn on_message(&mut self, from: u32, bytes: &[u8]) -> Result<(), Malformed> {
        let Message { context, kind, payload } = message::decode(bytes)?;
        // A rank that sends has not left: it could only not be reached for an inquiry.
        self.out.left.remove(&from);
        let failure = match kind {
            MessageKind::Failed { rank } => Some(Failure::Lost { rank }),
            MessageKind::Disagrees { rank } => Some(Failure::Disagrees { rank }),
            _ => None,
        };
        if let Some(failure) = failure
            && self.end_creation(context, failure)
        {
            return Ok(());
        }
        let Some(group) = self.groups.get_mut(&context) else {
            if !self.is_leaving {
                self.early.keep(from, context, bytes);
            }
            return Ok(());
        };
        if let Some(failure) = failure {
            self.fail(context, failure);
            return Ok(());
        }
        match kind {
            MessageKind::Failed { .. } | MessageKind::Disagrees { .. } => {}
            _ if group.failed.is_some() => {}
            MessageKind::Step { epoch, step } => {
                let mut sends = Sends::default();
                let over = group.collectives.on_step(from, (epoch, step), payload, &mut sends)?;
                self.carry_out(context, sends, over);
            }
            MessageKind::WhereIs { member, question } => {
                let mut sends = Sends::default();
                let (addresses, graph) = group.searching(context, &self.out);
                addresses.on_question(graph, from, (member, question), payload, &mut sends)?;
                self.carry_out(context, sends, None);
            }
            MessageKind::ThereIs { member, question } => {
                let mut sends = Sends::default();
                let (addresses, graph) = group.searching(context, &self.out);
                let found = addresses.on_answer(graph, (member, question), payload, &mut sends)?;
                self.carry_out(context, sends, None);
                if let Some(peer) = found {
                    self.out.queue.push_back(Output::Learnt(peer));
                    self.on_located(context, member);
                }
            }
            MessageKind::Creates { from: place } => {
                let from = Sender { rank: from, place };
                let heard = self.creations.hear(from, context, Announcement::decode(payload)?)?;
                self.on_heard(from, heard);
            }
            MessageKind::Tagged { .. } if self.is_leaving => {}
            MessageKind::Tagged { from: place, tag } => {
                if let Some(request) = group.tagged.on_message((place, tag), from, payload) {
                    self.out.done(request, Ok(Done::Bytes(payload.to_vec())));
                }
            }
        }
        Ok(())
    }

    /// Records that a rank is lost, and fails the groups that it was in.
    pub fn on_lost(&mut self, rank: u32) {
        self.out.lost.insert(rank);
        let with: Vec<Context> = self.groups.iter().filter(|(_, group)| group.has(rank)).map(|(at, _)| *at).collect();
        for context in with {
            self.fail(context, Failure::Lost { rank });
        }
        for context in self.creations.find(|creation| creation.found().any(|peer| peer.rank == rank)) {
            self.end_creation(context, Failure::Lost { rank });
        }
    }

    /// Records that a rank has left the job in an orderly way, or cannot be reached for an inquiry: what it has not
    /// answered is asked elsewhere.
    pub fn on_left(&mut self, rank: u32) {
        self.out.left.insert(rank);
        go_on_searching(self, |addresses, graph, sends| addresses.on_left(graph, rank, sends));
    }

    /// Repeats questions for addresses that were not answered for long. The driver calls it about once a second.
    pub fn ask_again(&mut self) {
        go_on_searching(self, Addresses::ask_again);
    }

    pub fn poll(&mut self) -> Option<Output> {
        self.out.queue.pop_front()
    }

    /// Serves `waiter` at once if the member's address is known, otherwise after a search for it.
    fn toward(&mut self, of: Context, member: u32, waiter: Waiter) {
        let own = self.out.own.clone();
        let group = match usable(&mut self.groups, of, member) {
            Ok(group) => group,
            Err(failure) => {
                return match waiter {
                    Waiter::Address(request) | Waiter::Message(request, _) => self.out.done(request, Err(failure)),
                    Waiter::Neighbour(context, _) => drop(self.end_creation(context, failure)),
                };
            }
        };
        let known = group.is_known.then(|| Peer { rank: member, address: Vec::new() });
        if member == group.shape().me {
            return match waiter {
                Waiter::Address(request) => self.out.done(request, Ok(Done::Peer(own))),
                // A member is not its own neighbour.
                Waiter::Neighbour(..) => {}
                Waiter::Message(request, message) => {
                    let arrived = self.on_message(own.rank, &message);
                    self.out.done(request, arrived.map(|()| Done::Nothing).map_err(|Malformed| Failure::Malformed));
                }
            };
        }
        let (addresses, graph) = group.searching(of, &self.out);
        match addresses.get(graph.shape, member).filter(|_| !addresses.is_awaited(member)).cloned().or(known) {
            Some(peer) => self.go_on(peer, waiter),
            None => {
                let mut sends = Sends::default();
                addresses.ask(graph, member, waiter, &mut sends);
                self.carry_out(of, sends, None);
            }
        }
    }

    /// Serves a waiter once its member's address is known.
    fn go_on(&mut self, peer: Peer, waiter: Waiter) {
        match waiter {
            Waiter::Address(request) => self.out.done(request, Ok(Done::Peer(peer))),
            Waiter::Neighbour(context, is_left) => {
                self.creations.on_neighbour(&mut self.out, context, &peer, is_left);
                self.go_on_with(context);
            }
            Waiter::Message(request, message) => {
                self.out.send(peer.rank, message);
                self.out.done(request, Ok(Done::Nothing));
            }
        }
    }

    fn on_located(&mut self, of: Context, member: u32) {
        let Some(Group { collectives, addresses, .. }) = self.groups.get_mut(&of) else { return };
        let Some(peer) = addresses.get(&collectives.shape, member).cloned() else { return };
        if self.out.lost.contains(&peer.rank) {
            return self.fail(of, Failure::Lost { rank: peer.rank });
        }
        let waiting = addresses.take_waiting(member);
        waiting.into_iter().for_each(|waiter| self.go_on(peer.clone(), waiter));
    }

    fn start_algorithm(&mut self, request: Request, of: Context, algorithm: Box<dyn Algorithm>, then: Then) {
        // Every group has a member 0.
        match usable(&mut self.groups, of, 0) {
            Err(failure) => self.out.done(request, Err(failure)),
            Ok(group) => {
                let mut sends = Sends::default();
                let over = group.collectives.start((request, then), algorithm, &mut sends);
                self.carry_out(of, sends, over);
            }
        }
    }

    /// Adds a new group, starts the algorithm after which it can be used, and handles its early messages.
    fn add(&mut self, context: Context, group: Group, first: Option<(Request, Box<dyn Algorithm>)>) {
        self.groups.insert(context, group);
        self.carry_out(context, Sends::default(), None);
        if let Some((request, algorithm)) = first {
            self.start_algorithm(request, context, algorithm, Then::Join);
        }
        self.take_early(context);
    }

    fn take_early(&mut self, context: Context) {
        for (from, bytes) in self.early.take(context) {
            if self.on_message(from, &bytes).is_err() {
                self.end_all(context, Failure::Malformed);
            }
        }
    }

    /// Updates the counts, sends `sends` and reports a completed collective, after a group has changed.
    fn carry_out(&mut self, context: Context, sends: Sends, over: Option<Over>) {
        self.counts.rounds += sends.counts.rounds;
        self.counts.questions += sends.counts.questions;
        if let Some(rank) = self.groups.get_mut(&context).and_then(|group| group.learn(&mut self.out)) {
            self.fail(context, Failure::Lost { rank });
        }
        sends.messages.into_iter().for_each(|(to, message)| self.out.send(to, message));
        let inquiries = sends.inquiries.into_iter();
        self.out.queue.extend(inquiries.map(|(to, message)| Output::Send { to, message, is_needed: false }));
        if let Some(over) = over {
            self.on_over(context, over);
        }
    }

    fn on_over(&mut self, context: Context, Over { epoch, request, then, result }: Over) {
        if let Some(failure) = self.groups.get(&context).and_then(|group| group.failed) {
            return self.out.done(request, Err(failure));
        }
        let result = match (result, then) {
            (Err(Malformed), _) => Err(Failure::Malformed),
            (Ok(Outcome::Place(Some(place))), Then::Build) => {
                let NewPlace { me, size, left, right, first, is_consecutive } = place;
                let made = derived(context, epoch, first);
                let mut shape = Shape::new(me, size, left, right);
                shape.is_consecutive = is_consecutive;
                let mut group = Group::new(made, shape);
                group.made_from = Some(context);
                return self.add(made, group, Some((request, Box::new(Build::default()))));
            }
            (Ok(_), Then::Build) => Ok(Done::Group(None)),
            (Ok(_), Then::Join) => {
                self.creations.on_built(context);
                if let Some(group) = self.groups.get_mut(&context) {
                    group.made_from = None;
                }
                Ok(Done::Group(Some(context)))
            }
            (Ok(Outcome::Bytes(bytes)), Then::Tell) => Ok(Done::Bytes(bytes)),
            (Ok(Outcome::Rows(rows)), Then::Tell) => Ok(Done::Rows(rows)),
            (Ok(Outcome::Nothing | Outcome::Place(_)), Then::Tell) => Ok(Done::Nothing),
        };
        self.out.done(request, result);
    }

    /// Fails a group in which a rank is lost or disagrees, and informs the members that this process has links to.
    fn fail(&mut self, context: Context, failure: Failure) {
        let Some(group) = self.groups.get_mut(&context).filter(|group| group.failed.is_none()) else { return };
        group.failed = Some(failure);
        let peers: BTreeSet<u32> = group.shape().known().map(|(_, peer)| peer.rank).collect();
        for to in peers {
            self.out.tell_failure(context, failure, to);
        }
        self.end_all(context, failure);
        let made = self.groups.iter().filter(|(_, group)| group.made_from == Some(context)).map(|(made, _)| *made);
        for made in made.collect::<Vec<Context>>() {
            self.fail(made, failure);
        }
    }

    fn end_all(&mut self, context: Context, failure: Failure) {
        let Some(group) = self.groups.get_mut(&context) else { return };
        group.stop().into_iter().for_each(|request| self.out.done(request, Err(failure)));
        // Groups being made from this one fail too: their members communicate through it until they agree.
        for made in self.creations.find(|creation| creation.of == context) {
            self.end_creation(made, failure);
        }
        self.creations.on_built(context);
    }
}

/// Size of the messages that wait at a process for a group, a collective or a receive, in bytes.
pub fn kept_bytes(groups: &Groups) -> usize {
    groups.early.bytes() + groups.groups.values().map(Group::kept_bytes).sum::<usize>()
}

fn go_on_searching(groups: &mut Groups, go_on: impl Fn(&mut Addresses, Graph<'_>, &mut Sends)) {
    for context in groups.groups.keys().copied().collect::<Vec<Context>>() {
        let Some(group) = groups.groups.get_mut(&context) else { continue };
        let mut sends = Sends::default();
        let (addresses, graph) = group.searching(context, &groups.out);
        go_on(addresses, graph, &mut sends);
        groups.carry_out(context, sends, None);
    }
}

/// The group `of`, if it has not failed and has this member.
fn usable(groups: &mut BTreeMap<Context, Group>, of: Context, member: u32) -> Result<&mut Group, Failure> {
    let group = groups.get_mut(&of).ok_or(Failure::NoGroup)?;
    match group.failed {
        Some(failure) => Err(failure),
        None if member >= group.shape().size => Err(Failure::NoMember),
        None => Ok(group),
    }
}

#[cfg(test)]
mod tests;
