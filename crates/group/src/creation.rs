//! Creates groups from a list of members of another group, without the other members (as `MPI_Comm_create_group`).
//!
//! Each member looks up its two neighbours of the new ring in the other group, and sends them the hashes of the name
//! and of the list of members, and the new group's context. Once both neighbours have sent the same, the graph is
//! built. A member that sends another list under this name disagrees, which fails the creation.
//!
//! The context is derived from the name, the list and how many groups this member has created with both, so all members
//! derive the same context.

use crate::message::{Malformed, Message, MessageKind};
use crate::outbox::{Context, Failure, Outbox, Request, derived};
use crate::shape::Peer;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Maximum number of announcements kept for groups that this process has not begun to create. Chosen: far more groups
/// than a process can lag behind.
const EARLY_MAX: usize = 65_536;

/// The sender of an announcement, a member of the other group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    pub rank: u32,
    pub place: u32,
}

/// The message that a member sends to its neighbours in a group that is being created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announcement {
    pub name: u64,
    pub members: u64,
    pub context: Context,
}

#[derive(Clone)]
pub struct Creation {
    pub request: Request,
    /// The existing group whose members create this one.
    pub of: Context,
    own: Announcement,
    pub me: u32,
    /// Places of the members in the existing group, in the order of the new one.
    pub members: Vec<u32>,
    /// The two neighbours; `None`: the neighbour's address is not known yet.
    left: Option<Peer>,
    right: Option<Peer>,
    /// Ranks that have announced the same name, list and context.
    agreed: BTreeSet<u32>,
}

#[derive(Default)]
pub struct Creations {
    /// Groups for which a neighbour's address or its matching announcement is missing.
    in_progress: Vec<Creation>,
    /// Groups whose graph is being built.
    building: Vec<Creation>,
    /// Groups given up before both neighbours' addresses were known: context, reason, number of neighbours still to be
    /// informed.
    ended: Vec<(Context, Failure, usize)>,
    /// Announcements of groups that this process has not begun to create: sender, existing group, announcement.
    early: Vec<(Sender, Context, Announcement)>,
    /// Number of groups created, by the existing group, the hash of the name and the hash of the list.
    made: BTreeMap<(Context, u64, u64), u32>,
}

pub struct Begun {
    pub context: Context,
    /// The left and the right neighbour's place in the existing group; `None`: this process is the only member.
    pub neighbours: Option<(u32, u32)>,
    /// Announcements for this group that arrived before, with what follows from each.
    pub heard: Vec<(Sender, Heard)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// Nothing yet: the announcement is kept.
    Nothing,
    /// Both neighbours of this group may now have agreed.
    Agreed(Context),
    /// The sender has another list of members for a group that this process creates.
    Disagrees { own: Context, others: Context },
}

impl Announcement {
    /// `from`: this member's place in the existing group `of`.
    fn encode(&self, of: Context, from: u32) -> Vec<u8> {
        let payload: Vec<u8> = [self.name, self.members, self.context].into_iter().flat_map(u64::to_le_bytes).collect();
        Message { context: of, kind: MessageKind::Creates { from }, payload: &payload }.encode()
    }

    pub fn decode(payload: &[u8]) -> Result<Announcement, Malformed> {
        let (numbers, []) = payload.as_chunks::<8>() else { return Err(Malformed) };
        let [name, members, context] = numbers else { return Err(Malformed) };
        let [name, members, context] = [name, members, context].map(|bytes| u64::from_le_bytes(*bytes));
        Ok(Announcement { name, members, context })
    }
}

impl Creation {
    pub fn found(&self) -> impl Iterator<Item = &Peer> {
        [&self.left, &self.right].into_iter().flatten()
    }

    /// Ranks of neighbours whose addresses are known but whose announcement has not arrived.
    fn awaited(&self) -> impl Iterator<Item = u32> {
        self.found().map(|peer| peer.rank).filter(|rank| !self.agreed.contains(rank))
    }

    /// Both neighbours, if their addresses are known and they have sent the same announcement.
    fn complete(&self) -> Option<(&Peer, &Peer)> {
        let (left, right) = (self.left.as_ref()?, self.right.as_ref()?);
        (self.agreed.contains(&left.rank) && self.agreed.contains(&right.rank)).then_some((left, right))
    }
}

impl Creations {
    /// Starts to create a group of these members of `of`, in which this process has the place `own`.
    ///
    /// # Errors
    /// This process is not in `members`, or a member appears twice.
    pub fn start_creation(
        &mut self,
        (request, of, own): (Request, Context, u32),
        members: &[u32],
        name: &[u8],
    ) -> Result<Begun, Failure> {
        let me = members.iter().position(|member| *member == own).ok_or(Failure::NoMember)?;
        let mut sorted = members.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Failure::NoMember);
        }
        let own = self.announcement(of, name, members);
        let context = own.context;
        let size = members.len();
        if size == 1 {
            return Ok(Begun { context, neighbours: None, heard: Vec::new() });
        }
        let neighbours = Some((members[(me + size - 1) % size], members[(me + 1) % size]));
        let members = members.to_vec();
        let creation =
            Creation { request, of, own, me: me as u32, members, left: None, right: None, agreed: BTreeSet::new() };
        self.in_progress.push(creation);
        let early = self.early.extract_if(.., |(_, through, heard)| *through == of && heard.name == own.name);
        let early: Vec<(Sender, Context, Announcement)> = early.collect();
        let heard = early.into_iter().filter_map(|(from, of, heard)| Some((from, self.hear(from, of, heard).ok()?)));
        let heard = heard.collect();
        Ok(Begun { context, neighbours, heard })
    }

    /// The announcement that this member sends for a group that it starts to create.
    fn announcement(&mut self, of: Context, name: &[u8], members: &[u32]) -> Announcement {
        let members = hash(members.iter().flat_map(|member| member.to_le_bytes()));
        let name = hash(name.iter().copied());
        let made = self.made.entry((of, name, members)).or_default();
        let context = derived(derived(of, 0, u32::MAX) ^ name, *made, u32::MAX) ^ members;
        *made += 1;
        Announcement { name, members, context }
    }

    fn get_mut(&mut self, context: Context) -> Option<&mut Creation> {
        self.in_progress.iter_mut().find(|creation| creation.own.context == context)
    }

    /// Moves a group whose neighbours are known and agree to `building`, so that the caller builds its graph.
    pub fn take_complete(&mut self, context: Context) -> Option<(Creation, Peer, Peer)> {
        let at = self.position(context)?;
        let (left, right) = self.in_progress[at].complete()?;
        let (left, right) = (left.clone(), right.clone());
        let creation = self.in_progress.swap_remove(at);
        self.building.push(creation.clone());
        Some((creation, left, right))
    }

    pub fn awaited(&self) -> impl Iterator<Item = u32> {
        self.in_progress.iter().flat_map(Creation::awaited)
    }

    fn position(&self, context: Context) -> Option<usize> {
        self.in_progress.iter().position(|creation| creation.own.context == context)
    }

    /// Removes a group from `building`: its graph has been built, or never will be.
    pub fn on_built(&mut self, context: Context) {
        self.building.retain(|building| building.own.context != context);
    }

    /// Gives up a group that is being created, and informs its neighbours, which inform theirs; `false`: no such group
    /// is being created.
    pub fn end(&mut self, out: &mut Outbox, context: Context, failure: Failure) -> bool {
        let Some(at) = self.position(context) else { return false };
        let creation = self.in_progress.swap_remove(at);
        let missing = 2 - creation.found().count();
        if missing > 0 {
            self.ended.push((context, failure, missing));
        }
        creation.found().for_each(|peer| out.tell_failure(context, failure, peer.rank));
        out.done(creation.request, Err(failure));
        true
    }

    /// The address of a neighbour in a group that is being created is known now: sends it this member's announcement,
    /// or the reason if the group was given up meanwhile.
    pub fn on_neighbour(&mut self, out: &mut Outbox, context: Context, peer: &Peer, is_left: bool) {
        if let Some(at) = self.ended.iter().position(|(ended, ..)| *ended == context) {
            let (_, failure, missing) = &mut self.ended[at];
            out.tell_failure(context, *failure, peer.rank);
            *missing -= 1;
            if *missing == 0 {
                self.ended.swap_remove(at);
            }
            return;
        }
        let Some(creation) = self.get_mut(context) else { return };
        let other = if is_left { &mut creation.left } else { &mut creation.right };
        *other = Some(peer.clone());
        // In a group of two both neighbours are the same rank, which gets one announcement.
        if creation.left.as_ref().map(|left| left.rank) != creation.right.as_ref().map(|right| right.rank) {
            out.send(peer.rank, creation.own.encode(creation.of, creation.members[creation.me as usize]));
        }
    }

    pub fn find(&self, is_wanted: impl Fn(&Creation) -> bool) -> Vec<Context> {
        self.in_progress.iter().filter(|creation| is_wanted(creation)).map(|creation| creation.own.context).collect()
    }

    /// Handles another rank's announcement of a group of members of `of`.
    ///
    /// # Errors
    /// `EARLY_MAX` early announcements are kept already.
    pub fn hear(&mut self, from: Sender, of: Context, heard: Announcement) -> Result<Heard, Malformed> {
        if let Some(creation) = self.get_mut(heard.context) {
            creation.agreed.insert(from.rank);
            return Ok(Heard::Agreed(heard.context));
        }
        let differs = |creation: &&Creation| {
            (creation.of, creation.own.name) == (of, heard.name)
                && creation.own.members != heard.members
                && creation.members.contains(&from.place)
        };
        if let Some(creation) = self.in_progress.iter().chain(&self.building).find(differs) {
            return Ok(Heard::Disagrees { own: creation.own.context, others: heard.context });
        }
        if self.early.len() >= EARLY_MAX {
            return Err(Malformed);
        }
        self.early.push((from, of, heard));
        Ok(Heard::Nothing)
    }
}

/// A 64-bit hash of these bytes (FNV-1a).
fn hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
