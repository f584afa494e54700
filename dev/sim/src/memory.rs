//! The memory that agents share with their ranks, on the heap of this process. Arrays are reference-counted; an array
//! is freed when the last rank releases it. Contents that several agents share with their ranks are stored once: on
//! thousands of nodes, an array of all ranks for each agent would not fit into the memory of a machine.

use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;
use wireup_client::memory::Memory;
use wireup_proto::memory::{Array, Content, ShareId, Values};
use wireup_wire::shared::rows::ARENA_SLOTS;

/// Counter of one agent's allgather arrays that have a piece of memory of their own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arrays(Rc<Cell<usize>>);

/// The memory that one agent shares with the ranks of one job.
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

/// Immutable bytes that may have several owners.
#[derive(PartialEq, Eq, Debug)]
pub struct Page {
    bytes: Bytes,
    /// The counter of this page, if it is an array with a piece of memory of its own.
    counted: Option<Arrays>,
}

/// The arrays that agents share with their ranks. Each array is stored with the values that it was last built from; the
/// addresses of these values identify it.
#[derive(Default)]
pub struct Contents {
    arrays: Vec<(Array, Bytes)>,
}

impl Arrays {
    fn add(&self, more: isize) {
        self.0.set(self.0.get().wrapping_add_signed(more));
    }
}

impl JobMemory {
    /// Number of allgather arrays with memory of their own that the agent or its ranks still hold.
    pub fn array_count(&self) -> usize {
        self.arrays.0.get()
    }

    /// Creates memory. Returns true if the memory is an arena: the agent must then be notified.
    pub fn share(&mut self, share: ShareId, content: Content, contents: &mut Contents) -> bool {
        let shared = match content {
            Content::Slots { .. } => Shared::Arena(Rc::default()),
            Content::Array(array) => {
                self.arrays.add(1);
                let counted = Some(self.arrays.clone());
                Shared::Page(Rc::new(Page { bytes: contents.of_array(array), counted }))
            }
            Content::Bytes(bytes) => Shared::Page(Rc::new(Page { bytes, counted: None })),
        };
        let is_arena = matches!(shared, Shared::Arena(_));
        self.pieces.insert(share, shared);
        is_arena
    }

    /// Length of the array in a slot (bytes); 0 if nothing was written there.
    pub fn slot_len(&self, share: ShareId, slot: u32) -> usize {
        self.pieces.get(&share).and_then(|arena| arena.slot(slot)).map_or(0, |array| array.len())
    }

    /// Writes an array into a slot; an error if there is no such arena.
    pub fn write(&mut self, share: ShareId, slot: u32, bytes: Bytes) -> Result<(), String> {
        let Some(Shared::Arena(slots)) = self.pieces.get(&share) else {
            return Err(format!("writes into {share:?}, which is not an arena"));
        };
        slots.borrow_mut()[slot as usize] = Some(Rc::new(Page { bytes, counted: None }));
        Ok(())
    }

    /// Releases memory; an error if there is no such memory.
    pub fn unshare(&mut self, share: ShareId) -> Result<(), String> {
        self.pieces.remove(&share).map(drop).ok_or_else(|| format!("releases {share:?}, which does not exist"))
    }

    pub fn clear(&mut self) {
        self.pieces.clear();
    }

    /// The shared memory that is passed along with a reply.
    pub fn for_reply(&self, shares: &[ShareId]) -> Result<Vec<Shared>, String> {
        let find = |share: &ShareId| {
            self.pieces.get(share).cloned().ok_or_else(|| format!("passes {share:?} on, which does not exist"))
        };
        shares.iter().map(find).collect()
    }
}

impl Contents {
    /// The bytes of an array: built once, then shared until nobody holds them.
    pub fn of_array(&mut self, array: Array) -> Bytes {
        self.arrays.retain(|(_, bytes)| !bytes.is_unique());
        if let Some((_, bytes)) = self.arrays.iter().find(|(known, _)| are_same(known, &array)) {
            return bytes.clone();
        }
        let mut bytes = vec![0; array.byte_len()];
        array.fill(&mut bytes);
        // Agents that received the values in different frames have laid out the same array.
        if let Some((latest, known)) = self.arrays.iter_mut().find(|(_, known)| *known == bytes) {
            *latest = array;
            return known.clone();
        }
        let bytes = Bytes::from(bytes);
        self.arrays.push((array, bytes.clone()));
        bytes
    }
}

/// Whether two arrays consist of the same slices of the same frames, which can be seen without comparing their bytes.
fn are_same(one: &Array, other: &Array) -> bool {
    let is_same = |(one, other): (&Bytes, &Bytes)| (one.as_ptr(), one.len()) == (other.as_ptr(), other.len());
    match (&one.values, &other.values) {
        (Values::InOrder(ones), Values::InOrder(others)) | (Values::ByRank(ones), Values::ByRank(others)) => {
            one.layout == other.layout && ones.len() == others.len() && ones.iter().zip(others).all(is_same)
        }
        _ => false,
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

impl PageBytes {
    /// The bytes of the page; agents with equal contents share one copy.
    pub fn bytes(&self) -> &Bytes {
        &self.0.bytes
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::shared::rows::Layout;

    #[test]
    fn equal_arrays_are_held_once_as_long_as_anybody_holds_them() {
        let array = |values: [&[u8]; 2]| {
            let values = values.map(Bytes::copy_from_slice).to_vec();
            Array { layout: Layout::rows(2, 3), values: Values::ByRank(values) }
        };
        let mut contents = Contents::default();
        let [first, again, other] = [[b"abc", b"def"], [b"abc", b"def"], [b"abc", b"xyz"]]
            .map(|[one, two]| contents.of_array(array([one, two])));
        assert_eq!((first.as_ptr(), &first[64..]), (again.as_ptr(), &b"abcdef"[..]));
        assert_eq!(&other[64..], b"abcxyz");
        drop((first, again));
        contents.of_array(array([b"new", b"row"]));
        assert_eq!(contents.arrays.len(), 2, "nobody holds the first one");
    }
}
