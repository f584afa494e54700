//! The memory that agents share with their ranks, on the heap of this process. Arrays are counted; one is freed when
//! the last rank releases it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;
use wireup_client::memory::Memory;
use wireup_proto::memory::{Array, Content, ShareId};
use wireup_wire::shared::rows::ARENA_SLOTS;

/// The number of allgather arrays of one agent that have a piece of memory of their own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arrays(Rc<Cell<usize>>);

/// The memory of one agent's job.
#[derive(Default)]
pub struct JobMemory {
    pieces: BTreeMap<ShareId, Shared>,
    arrays: Arrays,
}

/// One piece of memory, with several owners.
#[derive(Clone, Debug)]
pub enum Shared {
    Page(Rc<Page>),
    Arena(Rc<RefCell<[Option<Rc<Page>>; ARENA_SLOTS as usize]>>),
}

/// Immutable bytes.
#[derive(PartialEq, Eq, Debug)]
pub struct Page {
    bytes: Box<[u8]>,
    /// The counter of this page, if it is an array with a piece of memory of its own.
    counted: Option<Arrays>,
}

impl Arrays {
    fn add(&self, more: isize) {
        self.0.set(self.0.get().wrapping_add_signed(more));
    }
}

impl JobMemory {
    /// How many counted arrays the agent or its ranks hold.
    pub fn array_count(&self) -> usize {
        self.arrays.0.get()
    }

    /// Creates memory. True if it is an arena: then the agent must be told.
    pub fn share(&mut self, share: ShareId, content: &Content) -> bool {
        let shared = match content {
            Content::Slots { .. } => Shared::Arena(Rc::default()),
            Content::Array(array) => Shared::Page(Rc::new(Page::of_array(array, Some(&self.arrays)))),
            Content::Bytes(bytes) => Shared::Page(Rc::new(Page { bytes: bytes[..].into(), counted: None })),
        };
        let is_arena = matches!(shared, Shared::Arena(_));
        self.pieces.insert(share, shared);
        is_arena
    }

    /// Writes an array into a slot; an error if there is no such arena.
    pub fn write(&mut self, share: ShareId, slot: u32, array: &Array) -> Result<(), String> {
        let Some(Shared::Arena(slots)) = self.pieces.get(&share) else {
            return Err(format!("writes into {share:?}, which is not an arena"));
        };
        slots.borrow_mut()[slot as usize] = Some(Rc::new(Page::of_array(array, None)));
        Ok(())
    }

    /// Releases memory; an error if there is no such memory.
    pub fn unshare(&mut self, share: ShareId) -> Result<(), String> {
        self.pieces.remove(&share).map(drop).ok_or_else(|| format!("releases {share:?}, which does not exist"))
    }

    pub fn clear(&mut self) {
        self.pieces.clear();
    }

    /// The memory that is passed with a reply.
    pub fn for_reply(&self, shares: &[ShareId]) -> Result<Vec<Shared>, String> {
        let find = |share: &ShareId| {
            self.pieces.get(share).cloned().ok_or_else(|| format!("passes {share:?} on, which does not exist"))
        };
        shares.iter().map(find).collect()
    }
}

impl Page {
    fn of_array(array: &Array, arrays: Option<&Arrays>) -> Page {
        let mut bytes = vec![0; array.byte_len()].into_boxed_slice();
        array.fill(&mut bytes);
        if let Some(arrays) = arrays {
            arrays.add(1);
        }
        Page { bytes, counted: arrays.cloned() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(arrays) = &self.counted {
            arrays.add(-1);
        }
    }
}

/// The bytes of a page, with shared ownership.
#[derive(Debug)]
pub struct PageBytes(Rc<Page>);

impl Deref for PageBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Memory for Shared {
    type SharedBytes = PageBytes;

    fn whole(&self) -> Option<PageBytes> {
        match self {
            Shared::Page(page) => Some(PageBytes(page.clone())),
            Shared::Arena(_) => None,
        }
    }

    fn slot(&self, slot: u32) -> Option<PageBytes> {
        match self {
            Shared::Arena(slots) => slots.borrow().get(slot as usize)?.clone().map(PageBytes),
            Shared::Page(_) => None,
        }
    }
}
