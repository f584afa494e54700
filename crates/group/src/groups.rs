//! The groups of one process: routes messages to them, and tells when requests are over.
//!
//! A group's context is a number that its members derive alike, from the group that it was made from, the number of
//! that collective and the place of its first member. Messages carry it, so any number of groups and libraries share
//! the links between processes.
//!
//! A rank that is lost fails the groups that it was in: the members who had a link to it tell all whom they have a link
//! to, and so on.

use crate::addresses::{Addresses, Waiter};
use crate::algorithms::{Algorithm, Barrier, Build, NewPlace, Outcome, Split, Wanted};
use crate::creation::{Announcement, Creation, Creations, Heard, Sender, hash};
use crate::group::{Group, Over, Send};
use crate::message::{self, Kind, Malformed, Message};
use crate::request::{Context, Done, Failure, Request, derived};
use crate::shape::{Peer, Shape};
use crate::tagged::Tagged;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Messages of one rank that wait here for a group, a collective or a receive (bytes). Chosen: much more than start-up
/// protocols need. Of a rank with more the driver takes no further messages until they are wanted (see
/// [`Groups::is_behind`]).
pub const KEPT_BYTES_MAX: usize = 64 << 20;
/// Contexts of groups that were given up, whose late messages are dropped.
const GONE_MAX: usize = 1024;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    Send {
        to: u32,
        message: Vec<u8>,
    },
    /// The address of a rank to which messages may follow.
    Learnt(Peer),
    Done {
        request: Request,
        result: Result<Done, Failure>,
    },
}

/// What a process has done since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Waits for messages of others, one behind the other in each collective and in each search for an address.
    pub rounds: u64,
    /// Questions where a member is.
    pub questions: u64,
}

/// Whom a process waits for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Awaited {
    /// For their parts in collectives, in the making of groups, in searches for addresses.
    pub parts: BTreeSet<u32>,
    /// For messages that receives were started for.
    pub senders: BTreeSet<u32>,
    /// Senders whose ranks are not known: groups and places.
    pub unknown: Vec<(Context, u32)>,
}

impl Awaited {
    pub fn has(&self, rank: u32) -> bool {
        self.parts.contains(&rank) || self.senders.contains(&rank)
    }
}

pub struct Groups {
    own: Peer,
    groups: BTreeMap<Context, Entry>,
    /// Messages of groups that do not exist here yet.
    early: Vec<(u32, Vec<u8>)>,
    early_bytes: usize,
    gone: VecDeque<Context>,
    creations: Creations,
    lost: BTreeSet<u32>,
    last_request: Request,
    counts: Counts,
    out: VecDeque<Output>,
}

struct Entry {
    group: Group,
    addresses: Addresses,
    tagged: Tagged,
    /// What the callers wait for, by epoch.
    requests: BTreeMap<u32, (Request, Then)>,
    failed: Option<Failure>,
    /// The group that this one is being made from: some members may have failed in it, and never join this one.
    made_from: Option<Context>,
    /// Each place is that rank, and the driver finds its address.
    is_known: bool,
    /// Peers of the shape that were reported, and how many links it had then.
    learnt: BTreeSet<u32>,
    learnt_links: usize,
}

/// What follows when a collective is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Tell,
    /// Build the graph of the new group.
    Build,
    /// The group can be used.
    Join,
}

impl Groups {
    pub fn new(own: Peer) -> Groups {
        Groups {
            own,
            groups: BTreeMap::new(),
            early: Vec::new(),
            early_bytes: 0,
            gone: VecDeque::new(),
            creations: Creations::default(),
            lost: BTreeSet::new(),
            last_request: 0,
            counts: Counts::default(),
            out: VecDeque::new(),
        }
    }

    /// This process.
    pub fn own(&self) -> &Peer {
        &self.own
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Makes a group of a process that knows its two neighbours in the ring, and builds its graph.
    pub fn form(&mut self, context: Context, me: u32, size: u32, left: Peer, right: Peer) -> Request {
        let request = self.request();
        self.build(request, context, None, Shape::new(me, size, left, right));
        request
    }

    /// Makes the group of all ranks, whose places are their ranks, for a driver that finds the address of each of them.
    /// No message is sent.
    pub fn form_known(&mut self, context: Context, me: u32, size: u32, find: &dyn Fn(u32) -> Peer) {
        self.insert(context, Shape::whole(me, size, find));
        if let Some(entry) = self.groups.get_mut(&context) {
            entry.is_known = true;
        }
        self.take_early(context);
    }

    /// Makes a group, for a driver that finds the address of each member; `find` is by place. All members call this
    /// with the same context, see [`derived`]. No message is sent.
    pub fn form_part(&mut self, context: Context, (me, size): (u32, u32), find: &dyn Fn(u32) -> Peer) {
        self.insert(context, Shape::whole(me, size, find));
        self.take_early(context);
    }

    /// The number of a group's next collective, for [`derived`]. All members call it in the same order as they start
    /// collectives.
    ///
    /// # Errors
    /// There is no such group.
    pub fn reserve(&mut self, of: Context) -> Result<u32, Failure> {
        let entry = self.groups.get_mut(&of).ok_or(Failure::NoGroup)?;
        Ok(entry.group.next_epoch())
    }

    /// Makes a group of the members of group `of`, with a context of its own, so that messages of the two groups are
    /// never confused. No message is sent.
    pub fn duplicate(&mut self, of: Context) -> Result<Context, Failure> {
        let entry = self.groups.get_mut(&of).ok_or(Failure::NoGroup)?;
        let (shape, epoch, is_known) = (entry.group.shape.clone(), entry.group.next_epoch(), entry.is_known);
        let context = derived(of, epoch, u32::MAX);
        self.insert(context, shape);
        if let Some(entry) = self.groups.get_mut(&context) {
            entry.is_known = is_known;
        }
        self.take_early(context);
        Ok(context)
    }

    /// Divides a group.
    pub fn split(&mut self, of: Context, wanted: Wanted) -> Request {
        let split = Split::new(wanted, self.own.clone());
        self.begin(of, Box::new(split), Then::Build)
    }

    /// Makes a group of these members of another one, in this order. They call it with the same list and name, and
    /// nobody else calls it.
    pub fn create(&mut self, of: Context, members: &[u32], name: &[u8]) -> Request {
        let request = self.request();
        let result = self.begin_creation(request, of, members, name);
        if let Err(failure) = result {
            self.done(request, Err(failure));
        }
        request
    }

    fn begin_creation(&mut self, request: Request, of: Context, members: &[u32], name: &[u8]) -> Result<(), Failure> {
        let last = members.iter().copied().max().ok_or(Failure::NoMember)?;
        let own = self.usable(of, last)?.group.shape.me;
        let me = members.iter().position(|member| *member == own).ok_or(Failure::NoMember)? as u32;
        let mut sorted = members.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Failure::NoMember);
        }
        let (name, list) = (hash(name.iter().copied()), hash(members.iter().flat_map(|member| member.to_le_bytes())));
        let derive = |made| derived(derived(of, 0, u32::MAX) ^ name, made, u32::MAX) ^ list;
        let announcement = self.creations.announce(of, (name, list), derive);
        let context = announcement.context;
        if members.len() == 1 {
            self.build(request, context, None, Shape::new(0, 1, self.own.clone(), self.own.clone()));
            return Ok(());
        }
        let creation = Creation::new(request, of, announcement, me, members.to_vec());
        let (left, right) = creation.neighbours();
        let heard = self.creations.insert(creation);
        // Another member may have given up already.
        self.take_early(context);
        self.toward(of, left, Waiter::Neighbour(context, true));
        self.toward(of, right, Waiter::Neighbour(context, false));
        heard.into_iter().for_each(|(from, heard)| self.on_heard(from, heard));
        Ok(())
    }

    /// A neighbour in a group that is being made is found.
    fn on_neighbour(&mut self, context: Context, peer: Peer, is_left: bool) {
        if let Some(failure) = self.creations.take_ended(context) {
            return self.tell_failure(context, failure, peer.rank);
        }
        let Some(creation) = self.creations.get_mut(context) else { return };
        let other = if is_left { &mut creation.left } else { &mut creation.right };
        *other = Some(peer.clone());
        // In a group of two both neighbours are the same.
        if creation.left.as_ref().map(|left| left.rank) != creation.right.as_ref().map(|right| right.rank) {
            let message = creation.own.encode(creation.of, creation.members[creation.me as usize]);
            self.send(peer.rank, message);
        }
        self.go_on_with(context);
    }

    fn on_heard(&mut self, from: Sender, heard: Heard) {
        match heard {
            Heard::Nothing => {}
            Heard::Agreed(context) => self.go_on_with(context),
            Heard::Disagrees { own, others } => {
                self.tell_failure(others, Failure::Disagrees { rank: self.own.rank }, from.rank);
                let failure = Failure::Disagrees { rank: from.rank };
                self.end_creation(own, failure);
                self.fail(own, failure);
            }
        }
    }

    /// Builds a group's graph if its neighbours are found and agree.
    fn go_on_with(&mut self, context: Context) {
        let Some((creation, left, right)) = self.creations.take_complete(context) else { return };
        let Creation { request, of, me, members, .. } = creation;
        let size = members.len() as u32;
        if self.groups.get(&of).is_some_and(|entry| entry.is_known) {
            // Each place of the other group is that rank.
            let find = |place: u32| Peer { rank: members[place as usize], address: Vec::new() };
            self.insert(context, Shape::whole(me, size, &find));
            self.make_from(of, context);
            // Only a disagreement anywhere keeps it from its end.
            self.begin_as(request, context, Box::new(Barrier::default()), Then::Join);
            return self.take_early(context);
        }
        self.build(request, context, Some(of), Shape::new(me, size, left, right));
    }

    /// Gives up a group that is being made, and tells the neighbours, who tell theirs.
    fn end_creation(&mut self, context: Context, failure: Failure) {
        let Some(creation) = self.creations.end(context, failure) else { return };
        for peer in creation.found() {
            self.tell_failure(context, failure, peer.rank);
        }
        self.forget_late(context);
        self.done(creation.request, Err(failure));
    }

    /// Tells a member that a group has failed.
    fn tell_failure(&mut self, context: Context, failure: Failure, to: u32) {
        let (kind, rank) = match failure {
            Failure::Lost { rank } => (Kind::Failed { rank }, rank),
            Failure::Disagrees { rank } => (Kind::Disagrees { rank }, rank),
            _ => return,
        };
        if to != rank && to != self.own.rank && !self.lost.contains(&to) {
            self.send(to, Message { context, kind, payload: &[] }.encode());
        }
    }

    /// Late messages of this group are dropped.
    fn forget_late(&mut self, context: Context) {
        self.gone.push_back(context);
        if self.gone.len() > GONE_MAX {
            self.gone.pop_front();
        }
    }

    /// Starts a collective. All members start the same ones in the same order.
    pub fn start(&mut self, of: Context, algorithm: Box<dyn Algorithm>) -> Request {
        self.begin(of, algorithm, Then::Tell)
    }

    /// Asks for the address of a member.
    pub fn locate(&mut self, of: Context, member: u32) -> Request {
        let request = self.request();
        self.toward(of, member, Waiter::Address(request));
        request
    }

    /// Sends bytes to a member, which receives them by the tag. Over when they have left.
    pub fn send_tagged(&mut self, to: u32, of: Context, tag: u32, payload: &[u8]) -> Request {
        let request = self.request();
        let from = self.shape(of).map_or(0, |shape| shape.me);
        let message = Message { context: of, kind: Kind::Tagged { from, tag }, payload };
        self.toward(of, to, Waiter::Message(request, message.encode()));
        request
    }

    /// Receives the next message that a member has sent with this tag.
    pub fn receive_tagged(&mut self, from: u32, of: Context, tag: u32) -> Request {
        let request = self.request();
        match self.usable(of, from) {
            Err(failure) => self.done(request, Err(failure)),
            Ok(entry) => {
                if let Some(bytes) = entry.tagged.receive((from, tag), request) {
                    self.done(request, Ok(Done::Bytes(bytes)));
                }
            }
        }
        request
    }

    /// Gives up a receive that waits, so that the next one gets its message; `false`: the request is another one, or
    /// over.
    pub fn cancel_receive(&mut self, request: Request) -> bool {
        self.groups.values_mut().any(|entry| entry.tagged.cancel(request))
    }

    /// How many addresses a group's member holds.
    pub fn addresses(&self, of: Context) -> usize {
        self.groups.get(&of).map_or(0, |entry| entry.addresses.count(&entry.group.shape))
    }

    /// Whom this process waits for.
    pub fn awaited(&self) -> Awaited {
        let mut awaited = Awaited::default();
        for (context, entry) in &self.groups {
            awaited.parts.extend(entry.group.awaited());
            let shape = &entry.group.shape;
            awaited.parts.extend(entry.addresses.asked(shape).map(|peer| peer.rank));
            for place in entry.tagged.awaited().filter(|place| *place != shape.me) {
                match entry.addresses.get(shape, place) {
                    Some(peer) => drop(awaited.senders.insert(peer.rank)),
                    None if entry.is_known => drop(awaited.senders.insert(place)),
                    None => awaited.unknown.push((*context, place)),
                }
            }
        }
        awaited.parts.extend(self.creations.awaited());
        awaited.parts.remove(&self.own.rank);
        awaited
    }

    /// Whether more messages of this rank wait here than should, and none of them is what this process waits for. Then
    /// the driver takes no more of them, so that the rank cannot fill this process's memory. It stays connected: it has
    /// done nothing wrong, and its messages are taken as soon as this process wants one of them.
    pub fn is_behind(&self, rank: u32) -> bool {
        let stores = || self.groups.values().map(|entry| (entry.group.mail(), &entry.tagged));
        let all: usize = stores().map(|(mail, tagged)| mail.bytes() + tagged.bytes()).sum();
        if self.early_bytes + all <= KEPT_BYTES_MAX {
            return false;
        }
        let early: usize = self.early.iter().filter(|(from, _)| *from == rank).map(|(_, bytes)| bytes.len()).sum();
        let of_rank: usize = stores().map(|(mail, tagged)| mail.bytes_of(rank) + tagged.bytes_of(rank)).sum();
        if early + of_rank <= KEPT_BYTES_MAX {
            return false;
        }
        let awaited = self.awaited();
        !awaited.has(rank) && awaited.unknown.is_empty()
    }

    pub fn shape(&self, of: Context) -> Option<&Shape> {
        self.groups.get(&of).map(|entry| &entry.group.shape)
    }

    /// Forgets a group; what is in progress fails.
    pub fn free(&mut self, context: Context) {
        let Some(mut entry) = self.groups.remove(&context) else { return };
        self.forget_late(context);
        for made in self.creations.find(|creation| creation.of == context) {
            self.end_creation(made, Failure::Cancelled);
        }
        entry.stop().into_iter().for_each(|request| self.done(request, Err(Failure::Cancelled)));
    }

    /// A message of another rank.
    ///
    /// # Errors
    /// No correct process sends this. The link to it should be closed.
    pub fn on_message(&mut self, from: u32, bytes: &[u8]) -> Result<(), Malformed> {
        let Message { context, kind, payload } = message::decode(bytes)?;
        let failure = match kind {
            Kind::Failed { rank } => Some(Failure::Lost { rank }),
            Kind::Disagrees { rank } => Some(Failure::Disagrees { rank }),
            _ => None,
        };
        if let Some(failure) = failure
            && self.creations.get_mut(context).is_some()
        {
            self.end_creation(context, failure);
            return Ok(());
        }
        let Some(entry) = self.groups.get_mut(&context) else {
            if self.gone.contains(&context) {
                return Ok(());
            }
            self.early_bytes += bytes.len();
            self.early.push((from, bytes.to_vec()));
            return Ok(());
        };
        if let Some(failure) = failure {
            self.fail(context, failure);
            return Ok(());
        }
        match kind {
            Kind::Failed { .. } | Kind::Disagrees { .. } => {}
            _ if entry.failed.is_some() => {}
            Kind::Step { epoch, step } => {
                let mut sends = Vec::new();
                let over = entry.group.on_step(from, (epoch, step), payload, &mut sends)?;
                self.carry_out(context, sends, over);
            }
            Kind::WhereIs { member, .. } if member >= entry.group.shape.size => return Err(Malformed),
            Kind::WhereIs { member, question } => {
                let Entry { group, addresses, .. } = entry;
                if let Some(message) = addresses.answer(context, &group.shape, (member, question)) {
                    self.send(from, message);
                }
            }
            Kind::ThereIs { member, question } => {
                let Entry { group, addresses, .. } = entry;
                let mut sends = Vec::new();
                let answer = (member, question);
                let (peer, found) = addresses.on_answer(context, &group.shape, answer, payload, &mut sends)?;
                self.out.push_back(Output::Learnt(peer));
                self.carry_out(context, sends, None);
                if let Some(member) = found {
                    self.on_located(context, member);
                }
            }
            Kind::Creates { from: place } => {
                let from = Sender { rank: from, place };
                let heard = self.creations.hear(from, context, Announcement::decode(payload)?)?;
                self.on_heard(from, heard);
            }
            Kind::Tagged { from: place, tag } => {
                if let Some(request) = entry.tagged.on_message((place, tag), from, payload) {
                    self.done(request, Ok(Done::Bytes(payload.to_vec())));
                }
            }
        }
        Ok(())
    }

    /// A rank is gone.
    pub fn on_lost(&mut self, rank: u32) {
        self.lost.insert(rank);
        let with: Vec<Context> = self.groups.iter().filter(|(_, entry)| entry.has(rank)).map(|(at, _)| *at).collect();
        for context in with {
            self.fail(context, Failure::Lost { rank });
        }
        for context in self.creations.find(|creation| creation.found().any(|peer| peer.rank == rank)) {
            self.end_creation(context, Failure::Lost { rank });
        }
    }

    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    fn done(&mut self, request: Request, result: Result<Done, Failure>) {
        self.out.push_back(Output::Done { request, result });
    }

    /// A group that has not failed, and has this member.
    fn usable(&mut self, of: Context, member: u32) -> Result<&mut Entry, Failure> {
        let entry = self.groups.get_mut(&of).ok_or(Failure::NoGroup)?;
        match entry.failed {
            Some(failure) => Err(failure),
            None if member >= entry.group.shape.size => Err(Failure::NoMember),
            None => Ok(entry),
        }
    }

    /// Does something with a member whose address may have to be found first.
    fn toward(&mut self, of: Context, member: u32, waiter: Waiter) {
        let own = self.own.clone();
        let Entry { group, addresses, is_known, .. } = match self.usable(of, member) {
            Ok(entry) => entry,
            Err(failure) => {
                return match waiter {
                    Waiter::Address(request) | Waiter::Message(request, _) => self.done(request, Err(failure)),
                    Waiter::Neighbour(context, _) => self.end_creation(context, failure),
                };
            }
        };
        let shape = &group.shape;
        let known = is_known.then(|| Peer { rank: member, address: Vec::new() });
        if member == shape.me {
            return match waiter {
                Waiter::Address(request) => self.done(request, Ok(Done::Peer(own))),
                // A member is not its own neighbour.
                Waiter::Neighbour(..) => {}
                Waiter::Message(request, message) => {
                    let arrived = self.on_message(own.rank, &message);
                    self.done(request, arrived.map(|()| Done::Nothing).map_err(|Malformed| Failure::Malformed));
                }
            };
        }
        match addresses.get(shape, member).filter(|_| !addresses.is_awaited(member)).cloned().or(known) {
            Some(peer) => self.go_on(peer, waiter),
            None => {
                let mut sends = Vec::new();
                addresses.ask(of, shape, member, waiter, &mut sends);
                self.carry_out(of, sends, None);
            }
        }
    }

    /// The address is known.
    fn go_on(&mut self, peer: Peer, waiter: Waiter) {
        match waiter {
            Waiter::Address(request) => self.done(request, Ok(Done::Peer(peer))),
            Waiter::Neighbour(context, is_left) => self.on_neighbour(context, peer, is_left),
            Waiter::Message(request, message) => {
                self.send(peer.rank, message);
                self.done(request, Ok(Done::Nothing));
            }
        }
    }

    fn on_located(&mut self, of: Context, member: u32) {
        let Some(Entry { group, addresses, .. }) = self.groups.get_mut(&of) else { return };
        let waiting = addresses.take_waiting(member);
        let Some(peer) = addresses.get(&group.shape, member).cloned() else { return };
        if self.lost.contains(&peer.rank) {
            return self.fail(of, Failure::Lost { rank: peer.rank });
        }
        waiting.into_iter().for_each(|waiter| self.go_on(peer.clone(), waiter));
    }

    fn request(&mut self) -> Request {
        self.last_request += 1;
        self.last_request
    }

    fn begin(&mut self, of: Context, algorithm: Box<dyn Algorithm>, then: Then) -> Request {
        let request = self.request();
        self.begin_as(request, of, algorithm, then);
        request
    }

    fn begin_as(&mut self, request: Request, of: Context, algorithm: Box<dyn Algorithm>, then: Then) {
        let failure = match self.groups.get_mut(&of) {
            None => Failure::NoGroup,
            Some(Entry { failed: Some(failure), .. }) => *failure,
            Some(entry) => {
                let mut sends = Vec::new();
                let (epoch, over) = entry.group.start(algorithm, &mut sends);
                entry.requests.insert(epoch, (request, then));
                return self.carry_out(of, sends, over);
            }
        };
        self.done(request, Err(failure));
    }

    fn insert(&mut self, context: Context, shape: Shape) {
        let group = Group::new(context, shape);
        let (addresses, tagged) = (Addresses::default(), Tagged::default());
        let entry = Entry {
            group,
            addresses,
            tagged,
            requests: BTreeMap::new(),
            failed: None,
            made_from: None,
            is_known: false,
            learnt: BTreeSet::new(),
            learnt_links: 0,
        };
        self.groups.insert(context, entry);
        self.learn(context);
    }

    /// A new group, made from another one or not: builds its graph.
    fn build(&mut self, request: Request, context: Context, of: Option<Context>, shape: Shape) {
        self.insert(context, shape);
        of.into_iter().for_each(|of| self.make_from(of, context));
        self.begin_as(request, context, Box::new(Build::default()), Then::Join);
        self.take_early(context);
    }

    /// Until it is made, a group fails with the one that it is made from.
    fn make_from(&mut self, of: Context, context: Context) {
        if let Some(entry) = self.groups.get_mut(&context) {
            entry.made_from = Some(of);
        }
    }

    fn take_early(&mut self, context: Context) {
        let (early, later) = core::mem::take(&mut self.early).into_iter().partition(|(_, bytes): &(u32, Vec<u8>)| {
            message::decode(bytes).is_ok_and(|message| message.context == context)
        });
        self.early = later;
        for (from, bytes) in early {
            self.early_bytes -= bytes.len();
            if self.on_message(from, &bytes).is_err() {
                self.end_all(context, Failure::Malformed);
            }
        }
    }

    /// Reports the peers that a group's shape has and that were not reported.
    fn learn(&mut self, context: Context) {
        let Some(Entry { group, learnt, learnt_links, failed, .. }) = self.groups.get_mut(&context) else { return };
        if core::mem::replace(learnt_links, group.shape.links()) == group.shape.links() {
            return;
        }
        let new: Vec<Peer> =
            group.shape.known().filter(|(_, peer)| learnt.insert(peer.rank)).map(|(_, peer)| peer.clone()).collect();
        let lost = new.iter().find(|peer| self.lost.contains(&peer.rank)).filter(|_| failed.is_none());
        let lost = lost.map(|peer| peer.rank);
        let own = self.own.rank;
        self.out.extend(new.into_iter().filter(|peer| peer.rank != own).map(Output::Learnt));
        if let Some(rank) = lost {
            self.fail(context, Failure::Lost { rank });
        }
    }

    fn carry_out(&mut self, context: Context, sends: Vec<Send>, over: Option<Over>) {
        self.count(context);
        self.learn(context);
        for (to, message) in sends {
            self.send(to, message);
        }
        if let Some(over) = over {
            self.on_over(context, over);
        }
    }

    fn count(&mut self, context: Context) {
        let Some(Entry { group, addresses, .. }) = self.groups.get_mut(&context) else { return };
        let asked = addresses.take_asked();
        self.counts.rounds += group.take_rounds() + asked;
        self.counts.questions += asked;
    }

    fn send(&mut self, to: u32, message: Vec<u8>) {
        self.out.push_back(Output::Send { to, message });
    }

    fn on_over(&mut self, context: Context, Over { epoch, result }: Over) {
        let Some((request, then)) = self.groups.get_mut(&context).and_then(|entry| entry.requests.remove(&epoch))
        else {
            return;
        };
        let result = match (result, then) {
            (Err(Malformed), _) => Err(Failure::Malformed),
            (Ok(Outcome::Place(Some(place))), Then::Build) => {
                let NewPlace { me, size, left, right, first } = place;
                let shape = Shape::new(me, size, left, right);
                return self.build(request, derived(context, epoch, first), Some(context), shape);
            }
            (Ok(_), Then::Build) => Ok(Done::Group(None)),
            (Ok(_), Then::Join) => {
                self.creations.on_built(context);
                if let Some(entry) = self.groups.get_mut(&context) {
                    entry.made_from = None;
                }
                Ok(Done::Group(Some(context)))
            }
            (Ok(Outcome::Bytes(bytes)), Then::Tell) => Ok(Done::Bytes(bytes)),
            (Ok(Outcome::Rows(rows)), Then::Tell) => Ok(Done::Rows(rows)),
            (Ok(Outcome::Nothing | Outcome::Place(_)), Then::Tell) => Ok(Done::Nothing),
        };
        self.done(request, result);
    }

    /// A rank of this group is lost or disagrees: tells the members that this one has links to.
    fn fail(&mut self, context: Context, failure: Failure) {
        let Some(entry) = self.groups.get_mut(&context).filter(|entry| entry.failed.is_none()) else { return };
        entry.failed = Some(failure);
        let peers: BTreeSet<u32> = entry.group.shape.known().map(|(_, peer)| peer.rank).collect();
        for to in peers {
            self.tell_failure(context, failure, to);
        }
        self.end_all(context, failure);
        let made = self.groups.iter().filter(|(_, entry)| entry.made_from == Some(context)).map(|(made, _)| *made);
        for made in made.collect::<Vec<Context>>() {
            self.fail(made, failure);
        }
    }

    fn end_all(&mut self, context: Context, failure: Failure) {
        let Some(entry) = self.groups.get_mut(&context) else { return };
        entry.stop().into_iter().for_each(|request| self.done(request, Err(failure)));
        // Their members talk through this group until they agree.
        for made in self.creations.find(|creation| creation.of == context) {
            self.end_creation(made, failure);
        }
        self.creations.on_built(context);
    }
}

impl Entry {
    /// Whether a rank is known to be a member.
    fn has(&self, rank: u32) -> bool {
        let Entry { group, addresses, is_known, .. } = self;
        *is_known && rank < group.shape.size || addresses.known(&group.shape).any(|peer| peer.rank == rank)
    }

    /// Gives up what is in progress.
    fn stop(&mut self) -> Vec<Request> {
        self.group.stop();
        let collectives = core::mem::take(&mut self.requests).into_values().map(|(request, _)| request);
        collectives.chain(self.addresses.stop()).chain(self.tagged.stop()).collect()
    }
}

#[cfg(test)]
mod tests;
