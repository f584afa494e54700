//! What agents share with their ranks, counted: an array is gone when the last rank has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use wireup_proto::arena::Arena;
use wireup_proto::memory::{Heap, Memory, MemoryError, Region, Shared};
use wireup_wire::shared::rows::Rows;

/// How many arrays of allgathers there are, of one agent.
#[derive(Clone, Debug, Default)]
pub struct Arrays(Arc<AtomicUsize>);

impl Arrays {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Memory of the simulator's process.
pub struct Counted {
    pub arrays: Arrays,
}

impl Memory for Counted {
    fn share(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Shared, MemoryError> {
        let mut bytes = vec![0; len].into_boxed_slice();
        fill(&mut bytes);
        let arrays = Rows::read(&bytes).is_ok().then(|| self.arrays.clone());
        if let Some(arrays) = &arrays {
            arrays.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Shared::new(Page { bytes, arrays }))
    }

    fn arena(&mut self, slot_len: usize) -> Option<Box<dyn Arena>> {
        Heap.arena(slot_len)
    }
}

struct Page {
    bytes: Box<[u8]>,
    /// Counts this page, if it is an array.
    arrays: Option<Arrays>,
}

impl Region for Page {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(arrays) = &self.arrays {
            arrays.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
