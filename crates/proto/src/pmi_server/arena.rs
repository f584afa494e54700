//! Where the short arrays of a job's allgathers lie on a node: memory that its ranks map once, used again and again.
//!
//! An array takes a slot; whoever is told of it holds the slot until it says that it has done, or is gone. Where no slot is free,
//! as with many allgathers outstanding, the array gets memory of its own. A longer array than the slots takes makes a new arena; the
//! one before goes with the last who has mapped it.
//!
//! Old kernels cannot make such memory. So an arena is asked for when the first rank enters an allgather and used once it is there;
//! arrays that are complete before get memory of their own, and so do all of them if it could not be made.
//!
//! Memory: two slots of at most [`SLOT_LEN_MAX`] stay as long as the job; what no array was written to takes none.

use super::shares::Shares;
use crate::memory::{Content, ShareId};
use wireup_wire::ids::LocalRank;
use wireup_wire::shared::rows::{ARENA_SLOTS, HEADER_LEN};
use wireup_wire::values::encoded_len;

/// Shortest slot: few ranks with short values fit, whatever else they gather.
const SLOT_LEN_MIN: usize = 16 << 10;
/// Longest slot (chosen): beyond it a mapping and a descriptor are little beside the copying, and what stays would be much.
pub const SLOT_LEN_MAX: usize = 1 << 20;

/// A job's arenas: at most one is used at a time.
#[derive(Default)]
pub struct Arenas {
    /// How many there have been; the present one's number. Slots only grow, by powers of two: they are few.
    count: u32,
    current: Option<Current>,
    /// Asked for and not there yet.
    asked: Vec<Asked>,
    /// One could not be made: none is asked for any more.
    failed: bool,
}

struct Asked {
    share: ShareId,
    slot_len: usize,
}

struct Current {
    share: ShareId,
    slot_len: usize,
    slots: [Slot; ARENA_SLOTS as usize],
}

/// Who holds it; sorted.
#[derive(Default)]
struct Slot {
    held: Vec<LocalRank>,
}

/// Where an array lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// As ranks know it.
    pub number: u32,
    pub share: ShareId,
    pub slot: u32,
}

impl Arenas {
    /// An allgather of values of at most `max_len` bytes begins: asks for an arena if there is none that its array fits into.
    pub fn prepare(&mut self, job_size: u32, max_len: u32, rows: bool, shares: &mut Shares) {
        let ranks = job_size as usize;
        let longest = HEADER_LEN + ranks * if rows { max_len as usize } else { encoded_len(max_len as usize) };
        // Rows are as long as that whatever the values are; packed values may be shorter.
        let is_too_long = rows && longest > SLOT_LEN_MAX;
        let slot_len = longest.min(SLOT_LEN_MAX).next_power_of_two().max(SLOT_LEN_MIN);
        let there = self.current.iter().map(|current| current.slot_len);
        let largest = there.chain(self.asked.iter().map(|asked| asked.slot_len)).max();
        if !self.failed && !is_too_long && largest.is_none_or(|largest| largest < slot_len) {
            let share = shares.make(Content::Slots { slot_len });
            self.asked.push(Asked { share, slot_len });
        }
    }

    /// An arena that was asked for is there.
    pub fn on_made(&mut self, share: ShareId, shares: &mut Shares) {
        let Some(Asked { slot_len, .. }) = self.take_asked(share) else { return };
        self.count += 1;
        let before = self.current.replace(Current { share, slot_len, slots: Default::default() });
        if let Some(before) = before {
            shares.give_up(before.share);
        }
    }

    /// Memory could not be made. True if that was an arena, which arrays can do without.
    pub fn on_failed(&mut self, share: ShareId) -> bool {
        let was_asked = self.take_asked(share).is_some();
        self.failed |= was_asked;
        was_asked
    }

    /// They are there, or fail, in the order in which they were asked for: each is larger than the one before.
    fn take_asked(&mut self, share: ShareId) -> Option<Asked> {
        let at = self.asked.iter().position(|asked| asked.share == share)?;
        Some(self.asked.remove(at))
    }

    /// A place for an array of `len` bytes that these ranks will read. `None`: it needs memory of its own.
    pub fn place(&mut self, len: usize, ranks: impl Iterator<Item = LocalRank>) -> Option<Place> {
        let current = self.current.as_mut().filter(|current| len <= current.slot_len)?;
        let slot = current.slots.iter().position(|slot| slot.held.is_empty())?;
        let held = &mut current.slots[slot].held;
        held.extend(ranks);
        held.sort_unstable();
        held.dedup();
        let slot = slot as u32;
        Some(Place { number: self.count * ARENA_SLOTS + slot, share: current.share, slot })
    }

    /// A rank has done with what lies there. Whoever says so of a place that it does not hold changes nothing.
    pub fn free(&mut self, local: LocalRank, place: u32) {
        if place / ARENA_SLOTS == self.count
            && let Some(current) = &mut self.current
        {
            current.slots[(place % ARENA_SLOTS) as usize].let_go(local);
        }
    }

    /// A rank is gone.
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

impl Place {
    /// The number of its arena; never 0.
    pub fn arena(self) -> u32 {
        self.number / ARENA_SLOTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::JobId;

    /// Arenas, with one that is asked for, and is there, for values of that length of 16 ranks.
    fn prepared(arenas: &mut Arenas, shares: &mut Shares, max_len: u32) -> Option<ShareId> {
        arenas.prepare(16, max_len, true, shares);
        let share = arenas.asked.first().map(|asked| asked.share)?;
        arenas.on_made(share, shares);
        Some(share)
    }

    fn place(arenas: &mut Arenas, len: usize, ranks: u16) -> Option<Place> {
        arenas.place(len, (0..ranks).map(LocalRank))
    }

    #[test]
    fn a_slot_is_written_again_when_all_have_done_with_it() {
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
        assert_eq!(prepared(&mut arenas, &mut shares, 900), None, "it is large enough");
        let old = place(&mut arenas, 1, 1).unwrap();
        assert_eq!(place(&mut arenas, SLOT_LEN_MIN + 1, 1), None);
        assert!(prepared(&mut arenas, &mut shares, 2000).is_some_and(|large| large != small));
        let new = place(&mut arenas, SLOT_LEN_MIN + 1, 1).unwrap();
        assert_eq!((old.arena(), new.arena()), (1, 2));
        arenas.free(LocalRank(0), old.number);
        assert_eq!(place(&mut arenas, 1, 1).unwrap().arena(), 2);
        assert_eq!(place(&mut arenas, 1, 1), None);
        assert_eq!(prepared(&mut arenas, &mut shares, 1 << 20), None, "no slot is so long");
        assert_eq!(place(&mut arenas, SLOT_LEN_MAX + 1, 1), None);
    }

    #[test]
    fn no_arena_is_used_before_it_is_there_or_asked_for_once_more() {
        let (mut arenas, mut shares) = (Arenas::default(), Shares::new(JobId(1)));
        arenas.prepare(16, 8, false, &mut shares);
        arenas.prepare(16, 8, false, &mut shares);
        let asked: Vec<ShareId> = arenas.asked.iter().map(|asked| asked.share).collect();
        assert_eq!((asked.len(), place(&mut arenas, 1, 1)), (1, None));
        assert!(arenas.on_failed(asked[0]) && !arenas.on_failed(asked[0]));
        assert_eq!((prepared(&mut arenas, &mut shares, 8), place(&mut arenas, 1, 1)), (None, None));
    }
}
