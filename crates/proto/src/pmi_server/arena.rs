//! Where the short arrays of a job's allgathers lie on a node: memory that its ranks map once, used again and again.
//!
//! An array takes a slot; whoever is told of it holds the slot until it says that it has done, or is gone. Where no slot is free,
//! as with many allgathers outstanding, the array gets memory of its own. A longer array than the slots takes makes a new arena; the
//! one before goes with the last who has mapped it.
//!
//! Memory: two slots of at most [`SLOT_LEN_MAX`] stay as long as the job, each as large as the longest array that was in it.

use crate::memory::{Memory, Shared};
use wireup_wire::ids::LocalRank;
use wireup_wire::shared::rows::ARENA_SLOTS;

/// Shortest slot: few ranks with short values fit, whatever else they gather.
const SLOT_LEN_MIN: usize = 16 << 10;
/// Longest slot (chosen): beyond it a mapping and a descriptor are little beside the copying, and what stays would be much.
pub const SLOT_LEN_MAX: usize = 1 << 20;

/// Memory of [`ARENA_SLOTS`] slots, which its driver can write and ranks can map and read.
pub trait Arena: Send {
    /// What ranks get.
    fn shared(&self) -> &Shared;

    /// Writes the first `len` bytes of a slot; `false`: there is no memory for them.
    fn write(&mut self, slot: usize, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> bool;
}

/// A job's arenas: there is one at a time.
#[derive(Default)]
pub struct Arenas {
    /// How many there have been; the present one's number.
    count: u32,
    current: Option<Current>,
}

struct Current {
    arena: Box<dyn Arena>,
    slot_len: usize,
    slots: [Slot; ARENA_SLOTS as usize],
}

/// Who holds it; sorted.
#[derive(Default)]
struct Slot {
    held: Vec<LocalRank>,
}

impl Arenas {
    /// Lays an array of `len` bytes down for these ranks: its place. `None`: it needs memory of its own.
    pub fn place(
        &mut self,
        len: usize,
        ranks: impl Iterator<Item = LocalRank>,
        memory: &mut dyn Memory,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Option<u32> {
        if len > SLOT_LEN_MAX {
            return None;
        }
        if self.current.as_ref().is_none_or(|current| current.slot_len < len) {
            let slot_len = len.next_power_of_two().max(SLOT_LEN_MIN);
            let arena = memory.arena(slot_len)?;
            // Never 0, and never again the number of one that a client may still have.
            self.count = self.count.checked_add(1).filter(|count| *count < u32::MAX / ARENA_SLOTS)?;
            self.current = Some(Current { arena, slot_len, slots: Default::default() });
        }
        let current = self.current.as_mut()?;
        let index = current.slots.iter().position(|slot| slot.held.is_empty())?;
        if !current.arena.write(index, len, fill) {
            return None;
        }
        let held = &mut current.slots[index].held;
        held.extend(ranks);
        held.sort_unstable();
        held.dedup();
        Some(self.count * ARENA_SLOTS + index as u32)
    }

    /// The arena of a place that is new.
    pub fn shared(&self) -> Option<&Shared> {
        self.current.as_ref().map(|current| current.arena.shared())
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

/// The number of an arena, by a place in it.
pub fn number_of(place: u32) -> u32 {
    place / ARENA_SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Heap;

    fn place(arenas: &mut Arenas, len: usize, ranks: u16, byte: u8) -> Option<u32> {
        arenas.place(len, (0..ranks).map(LocalRank), &mut Heap, &mut |bytes| bytes.fill(byte))
    }

    fn bytes(arenas: &Arenas, place: u32) -> Vec<u8> {
        arenas.shared().unwrap().slot((place % ARENA_SLOTS) as usize).unwrap().bytes().to_vec()
    }

    #[test]
    fn a_slot_is_written_again_when_all_have_done_with_it() {
        let mut arenas = Arenas::default();
        let (first, second) = (place(&mut arenas, 3, 2, 1).unwrap(), place(&mut arenas, 3, 2, 2).unwrap());
        assert_eq!((bytes(&arenas, first), bytes(&arenas, second)), (vec![1; 3], vec![2; 3]));
        assert_eq!(place(&mut arenas, 3, 2, 3), None);
        arenas.free(LocalRank(0), first);
        arenas.free(LocalRank(0), first);
        arenas.free(LocalRank(7), first);
        assert_eq!(place(&mut arenas, 3, 2, 3), None);
        arenas.free(LocalRank(1), first);
        assert_eq!(place(&mut arenas, 3, 2, 3), Some(first));
        assert_eq!(bytes(&arenas, first), vec![3; 3]);
        for local in [0, 1].map(LocalRank) {
            arenas.on_gone(local);
        }
        assert_eq!(place(&mut arenas, 2, 0, 4), Some(first));
    }

    #[test]
    fn a_longer_array_makes_a_new_arena() {
        let mut arenas = Arenas::default();
        let old = place(&mut arenas, 1, 1, 1).unwrap();
        let new = place(&mut arenas, SLOT_LEN_MIN + 1, 1, 2).unwrap();
        assert_eq!((number_of(old), number_of(new)), (1, 2));
        arenas.free(LocalRank(0), old);
        assert_eq!(number_of(place(&mut arenas, 1, 1, 3).unwrap()), 2);
        assert_eq!(place(&mut arenas, 1, 1, 4), None);
        assert_eq!(place(&mut arenas, SLOT_LEN_MAX + 1, 1, 5), None);
    }
}
