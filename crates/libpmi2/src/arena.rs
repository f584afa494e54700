//! The memory where our server lays short arrays down: mapped once, read again and again.

use crate::requests::Id;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};
use wireup_capi::ints;
use wireup_capi::mapping::Mapping;
use wireup_wire::shared::rows::{ARENA_SLOTS, Rows};

/// What an allgather has brought, in memory that the server has written.
#[derive(Debug)]
pub enum Values {
    /// Mapped for it alone.
    Apart(Mapping),
    /// In the arena; nobody writes there as long as this lives.
    Placed { arena: Arc<Arena>, slot: u32, len: usize },
}

#[derive(Debug)]
pub struct Arena {
    number: u32,
    memory: Mapping,
    /// A bit for each slot that was read and that the server has not been told of.
    freed: AtomicU32,
}

impl Arena {
    fn start(&self, slot: u32) -> usize {
        self.memory.len() / ARENA_SLOTS as usize * slot as usize
    }
}

impl Deref for Values {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Values::Apart(mapping) => mapping,
            // The cut was made when it came.
            Values::Placed { arena, slot, len } => {
                arena.memory.get(arena.start(*slot)..).and_then(|rest| rest.get(..*len)).unwrap_or_default()
            }
        }
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        if let Values::Placed { arena, slot, .. } = self {
            arena.freed.fetch_or(1 << *slot, Ordering::Release);
        }
    }
}

/// The arena that is known.
#[derive(Default)]
pub struct Known(Option<Arc<Arena>>);

impl Known {
    /// What lies at `place`; `memory` is that of a new arena. `None`: it is not mapped, for want of room.
    pub fn values(&mut self, place: u32, memory: Option<Mapping>) -> Option<Values> {
        let number = place / ARENA_SLOTS;
        if let Some(memory) = memory {
            self.0 = Some(Arc::new(Arena { number, memory, freed: AtomicU32::new(0) }));
        }
        let arena = self.0.as_ref().filter(|arena| arena.number == number)?;
        let slot = place % ARENA_SLOTS;
        let len = Rows::cut(&arena.memory, arena.start(slot)).ok()?.len();
        Some(Values::Placed { arena: Arc::clone(arena), slot, len })
    }

    /// The places that were read since the last time, separated by commas.
    pub fn take_freed(&self, text: &mut Vec<u8>) {
        text.clear();
        let Some(arena) = &self.0 else { return };
        let freed = arena.freed.swap(0, Ordering::Acquire);
        for slot in (0..ARENA_SLOTS).filter(|slot| freed & 1 << slot != 0) {
            if !text.is_empty() {
                text.push(b',');
            }
            ints::push((arena.number * ARENA_SLOTS + slot) as Id, text);
        }
    }
}
