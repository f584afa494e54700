//! Memory that the server shares with its ranks. The driver maps it, the engine reads it.

use core::ops::Deref;

/// One piece of shared memory: an array, a segment of the kvs, or an arena of [`ARENA_SLOTS`] slots.
///
/// [`ARENA_SLOTS`]: wireup_wire::shared::rows::ARENA_SLOTS
pub trait Memory {
    /// Bytes that do not change while the value exists.
    type SharedBytes: Deref<Target = [u8]>;

    /// The whole piece; `None` if the memory is an arena, of which only slots can be read.
    fn whole(&self) -> Option<Self::SharedBytes>;

    /// The bytes from the beginning of a slot of an arena.
    fn slot(&self, slot: u32) -> Option<Self::SharedBytes>;
}

/// The memory type of a conversation with a server that shares no memory.
#[derive(Debug)]
pub enum NoMemory {}

impl Memory for NoMemory {
    type SharedBytes = &'static [u8];

    fn whole(&self) -> Option<&'static [u8]> {
        None
    }

    fn slot(&self, _: u32) -> Option<&'static [u8]> {
        None
    }
}
