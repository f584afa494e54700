//! Memory that the local ranks of one job read, and places in it for short allgather arrays.
//!
//! The requests for memory that are made while an input is handled are collected ([`Shares`]): memory must exist before
//! a reply names it, and is released after that reply.
//!
//! Short arrays are placed in memory that the job's ranks map once and that is reused ([`Arenas`]).
//!
//! An array occupies a slot; every rank that is told of it holds the slot until it reports that it has finished, or
//! ends. If no slot is free, as with many allgathers outstanding, the array gets memory of its own. An array longer
//! than the slots causes a new arena; the old one is freed when the last rank that has mapped it unmaps it.
//!
//! Old kernels cannot create such memory. So an arena is requested when the first rank enters an allgather and used
//! once it exists; arrays that are complete before get memory of their own, and so do all arrays if the arena could not
//! be created.
//!
//! Memory: two slots of at most [`SLOT_LEN_MAX`] for the duration of the job; unwritten parts take none.

use crate::io::Output;
use crate::job::cx::Cx;
use crate::memory::{Array, Content, ShareId};
use wireup_wire::ids::{JobId, LocalRank};
use wireup_wire::shared::rows::{ARENA_SLOTS, HEADER_LEN};
use wireup_wire::values::encoded_len;

/// Shortest slot: enough for a few ranks with short values in any form.
const SLOT_LEN_MIN: usize = 16 << 10;
/// Longest slot (chosen): above it a mapping and a descriptor cost little compared with the copying, and the slots
/// would occupy much memory.
pub const SLOT_LEN_MAX: usize = 1 << 20;

/// A job's arenas: at most one is in use at a time.
#[derive(Default)]
pub struct Arenas {
    /// Number of arenas so far, which is the number of the current one. Slots only grow, by powers of two, so there are
    /// few arenas.
    count: u32,
    current: Option<Current>,
    /// Arenas that were requested and are not created yet.
    requested: Vec<Requested>,
    /// Whether an arena could not be created: no more are requested.
    failed: bool,
}

struct Requested {
    share: ShareId,
    slot_len: usize,
}

struct Current {
    share: ShareId,
    slot_len: usize,
    slots: [Slot; ARENA_SLOTS as usize],
}

/// A slot of an arena, with the ranks that hold it, sorted.
#[derive(Default)]
struct Slot {
    held: Vec<LocalRank>,
}

/// The location of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayLocation {
    /// The number by which messages to ranks refer to the slot.
    pub number: u32,
    pub share: ShareId,
    pub slot: u32,
}

impl Arenas {
    /// An allgather with values of at most `max_len` bytes starts: requests an arena if its array fits into no existing
    /// one.
    pub fn prepare(&mut self, job_size: u32, max_len: u32, rows: bool, shares: &mut Shares) {
        let ranks = job_size as usize;
        let longest = HEADER_LEN + ranks * if rows { max_len as usize } else { encoded_len(max_len as usize) };
        // Rows have this length whatever the values are; packed values may be shorter.
        let is_too_long = rows && longest > SLOT_LEN_MAX;
        let slot_len = longest.min(SLOT_LEN_MAX).next_power_of_two().max(SLOT_LEN_MIN);
        let there = self.current.iter().map(|current| current.slot_len);
        let largest = there.chain(self.requested.iter().map(|requested| requested.slot_len)).max();
        if !self.failed && !is_too_long && largest.is_none_or(|largest| largest < slot_len) {
            let share = shares.make(Content::Slots { slot_len });
            self.requested.push(Requested { share, slot_len });
        }
    }

    /// A requested arena exists.
    pub fn on_made(&mut self, share: ShareId, shares: &mut Shares) {
        let Some(Requested { slot_len, .. }) = self.take_asked(share) else { return };
        self.count += 1;
        let before = self.current.replace(Current { share, slot_len, slots: Default::default() });
        if let Some(before) = before {
            shares.give_up(before.share);
        }
    }

    /// Memory could not be created. Returns whether it was an arena, which arrays can do without.
    pub fn on_failed(&mut self, share: ShareId) -> bool {
        let was_asked = self.take_asked(share).is_some();
        self.failed |= was_asked;
        was_asked
    }

    /// Requests succeed or fail in the order in which they were made: each is larger than the one before.
    fn take_asked(&mut self, share: ShareId) -> Option<Requested> {
        let at = self.requested.iter().position(|requested| requested.share == share)?;
        Some(self.requested.remove(at))
    }

    /// A place for an array of `len` bytes that these ranks will read. `None`: the array needs memory of its own.
    pub fn place(&mut self, len: usize, ranks: impl Iterator<Item = LocalRank>) -> Option<ArrayLocation> {
        let current = self.current.as_mut().filter(|current| len <= current.slot_len)?;
        let slot = current.slots.iter().position(|slot| slot.held.is_empty())?;
        let held = &mut current.slots[slot].held;
        held.extend(ranks);
        held.sort_unstable();
        held.dedup();
        let slot = slot as u32;
        Some(ArrayLocation { number: self.count * ARENA_SLOTS + slot, share: current.share, slot })
    }

    /// A rank has finished with a place. Ignored if the rank does not hold it.
    pub fn free(&mut self, local: LocalRank, place: u32) {
        if place / ARENA_SLOTS == self.count
            && let Some(current) = &mut self.current
        {
            current.slots[(place % ARENA_SLOTS) as usize].let_go(local);
        }
    }

    /// A rank has ended.
    pub fn on_gone(&mut self, local: LocalRank) {
        for slot in self.current.iter_mut().flat_map(|current| &mut current.slots) {
            slot.let_go(local);
        }
    }
}

impl Slot {
    fn let_go(&mut self, local: LocalRank) {
        if let Ok(at) = self.held.binary_search(&local) {
            self.held.remove(at);
        }
    }
}

impl ArrayLocation {
    /// The number of the slot's arena; never 0.
    pub fn arena(self) -> u32 {
        self.number / ARENA_SLOTS
    }
}

pub struct Shares {
    job: JobId,
    next: u32,
    /// Memory to be created or written, in order.
    made: Vec<Output>,
    dropped: Vec<ShareId>,
}

impl Shares {
    pub fn new(job: JobId) -> Self {
        Shares { job, next: 0, made: Vec::new(), dropped: Vec::new() }
    }

    /// Requests memory.
    pub fn make(&mut self, content: Content) -> ShareId {
        let share = ShareId(self.next);
        self.next += 1;
        self.made.push(Output::Share { job: self.job, share, content });
        share
    }

    /// Writes into memory that is known to exist.
    pub fn write(&mut self, share: ShareId, slot: u32, array: Array) {
        self.made.push(Output::WriteSlot { job: self.job, share, slot, array });
    }

    /// Releases memory; ranks that have mapped it keep it.
    pub fn give_up(&mut self, share: ShareId) {
        self.dropped.push(share);
    }

    /// The contents of requested memory that was not output yet.
    #[cfg(test)]
    pub fn content(&self, id: ShareId) -> &Content {
        let content = self.made.iter().find_map(|output| match output {
            Output::Share { share, content, .. } if *share == id => Some(content),
            _ => None,
        });
        content.expect("it was requested")
    }

    /// Must be called before the replies that name the requested memory.
    pub fn put_made(&mut self, cx: &mut Cx<'_>) {
        self.made.drain(..).for_each(|output| cx.output(output));
    }

    /// Must be called after the replies that may name the released memory.
    pub fn put_dropped(&mut self, cx: &mut Cx<'_>) {
        let job = self.job;
        self.dropped.drain(..).for_each(|share| cx.output(Output::Unshare { job, share }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prepares for values of this length of 16 ranks; if that requests an arena, it is created.
    fn prepared(arenas: &mut Arenas, shares: &mut Shares, max_len: u32) -> Option<ShareId> {
        arenas.prepare(16, max_len, true, shares);
        let share = arenas.requested.first().map(|requested| requested.share)?;
        arenas.on_made(share, shares);
        Some(share)
    }

    fn place(arenas: &mut Arenas, len: usize, ranks: u16) -> Option<ArrayLocation> {
        arenas.place(len, (0..ranks).map(LocalRank))
    }

    #[test]
    fn a_slot_is_reused_when_all_ranks_have_released_it() {
        let (mut arenas, mut shares) = (Arenas::default(), Shares::new(JobId(1)));
        let share = prepared(&mut arenas, &mut shares, 8).unwrap();
        let (first, second) = (place(&mut arenas, 3, 2).unwrap(), place(&mut arenas, 3, 2).unwrap());
        assert_eq!((first.share, first.slot, second.slot), (share, 0, 1));
        assert_eq!(place(&mut arenas, 3, 2), None);
        arenas.free(LocalRank(0), first.number);
        arenas.free(LocalRank(0), first.number);
        arenas.free(LocalRank(7), first.number);
        assert_eq!(place(&mut arenas, 3, 2), None);
        arenas.free(LocalRank(1), first.number);
        assert_eq!(place(&mut arenas, 3, 2), Some(first));
        for local in [0, 1].map(LocalRank) {
            arenas.on_gone(local);
        }
        assert_eq!(place(&mut arenas, 2, 0), Some(first));
    }

    #[test]
    fn a_longer_array_makes_a_new_arena() {
        let (mut arenas, mut shares) = (Arenas::default(), Shares::new(JobId(1)));
        let small = prepared(&mut arenas, &mut shares, 8).unwrap();
        assert_eq!(prepared(&mut arenas, &mut shares, 900), None, "the arena is large enough");
        let old = place(&mut arenas, 1, 1).unwrap();
        assert_eq!(place(&mut arenas, SLOT_LEN_MIN + 1, 1), None);
        assert!(prepared(&mut arenas, &mut shares, 2000).is_some_and(|large| large != small));
        let new = place(&mut arenas, SLOT_LEN_MIN + 1, 1).unwrap();
        assert_eq!((old.arena(), new.arena()), (1, 2));
        arenas.free(LocalRank(0), old.number);
        assert_eq!(place(&mut arenas, 1, 1).unwrap().arena(), 2);
        assert_eq!(place(&mut arenas, 1, 1), None);
        assert_eq!(prepared(&mut arenas, &mut shares, 1 << 20), None, "too long for a slot");
        assert_eq!(place(&mut arenas, SLOT_LEN_MAX + 1, 1), None);
    }

    #[test]
    fn an_arena_is_used_when_it_exists_and_requested_once() {
        let (mut arenas, mut shares) = (Arenas::default(), Shares::new(JobId(1)));
        arenas.prepare(16, 8, false, &mut shares);
        arenas.prepare(16, 8, false, &mut shares);
        let requested: Vec<ShareId> = arenas.requested.iter().map(|requested| requested.share).collect();
        assert_eq!((requested.len(), place(&mut arenas, 1, 1)), (1, None));
        assert!(arenas.on_failed(requested[0]) && !arenas.on_failed(requested[0]));
        assert_eq!((prepared(&mut arenas, &mut shares, 8), place(&mut arenas, 1, 1)), (None, None));
    }
}
