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
use crate::memory::{Array, Content, ShareId, Values};
use bytes::Bytes;
use std::cmp::Ordering;
use wireup_coll::mapping::Mapping;
use wireup_wire::block::{self, Block};
use wireup_wire::ids::{JobId, LocalRank};
use wireup_wire::shared::rows::{ARENA_SLOTS, HEADER_LEN, Layout};
use wireup_wire::values::{self, encoded_len};

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
    /// arena.
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

    /// Handles the report that a requested arena exists.
    pub fn on_made(&mut self, share: ShareId, shares: &mut Shares) {
        let Some(Requested { slot_len, .. }) = self.take_asked(share) else { return };
        self.count += 1;
        let before = self.current.replace(Current { share, slot_len, slots: Default::default() });
        if let Some(before) = before {
            shares.give_up(before.share);
        }
    }

    /// Memory could not be created. Returns whether it was for an arena; arrays are then given memory of their own.
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

    /// Reserves a slot for an array of `len` bytes that these ranks will read. `None`: the array needs memory of its
    /// own.
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

    /// A rank has finished with a slot. Ignored if the rank does not hold it.
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

    /// Requests that memory with this content be created.
    pub fn make(&mut self, content: Content) -> ShareId {
        let share = ShareId(self.next);
        self.next += 1;
        self.made.push(Output::Share { job: self.job, share, content });
        share
    }

    /// Requests that an array be written into a slot of memory that exists.
    pub fn write(&mut self, share: ShareId, slot: u32, array: Array) {
        self.made.push(Output::WriteSlot { job: self.job, share, slot, array });
    }

    /// Releases memory; ranks that have mapped it keep their mapping.
    pub fn give_up(&mut self, share: ShareId) {
        self.dropped.push(share);
    }

    /// The content of memory that was requested and not output yet.
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

/// Lays out the values of an allgather for the ranks of this node: one array, each value copied once.
///
/// The array has rows of the maximum length if a local rank wants to use it directly; otherwise the values are packed,
/// which takes less memory, and each rank copies them in one pass. It is also packed if a value is longer than the
/// maximum (from a node with a larger one): then the reader detects that it does not fit, and nothing is truncated.
///
/// # Errors
/// A message: a node's values are not one for each of its ranks.
pub fn lay_out(mapping: &Mapping, (max_len, rows): (u32, bool), parts: &[Bytes]) -> Result<Array, String> {
    let gathered = Gathered::check(mapping, parts)?;
    let stride = gathered.longest.max(max_len);
    let layout = if rows && stride == max_len {
        Layout::rows(mapping.job_size(), max_len)
    } else {
        Layout::packed(mapping.job_size(), stride, gathered.packed_len)
    };
    let values = if gathered.in_order {
        Values::InOrder(gathered.nodes.into_iter().map(|node| node.bytes).collect())
    } else {
        Values::ByRank(gathered.by_rank(mapping))
    };
    Ok(Array { layout, values })
}

/// The values of all nodes, checked once.
struct Gathered {
    /// Blocks of values, by node.
    nodes: Vec<Block>,
    /// Whether all ranks of each node precede the ranks of the next node, so that the nodes' blocks in a row have the
    /// values in rank order.
    in_order: bool,
    longest: u32,
    packed_len: usize,
}

impl Gathered {
    fn check(mapping: &Mapping, parts: &[Bytes]) -> Result<Gathered, String> {
        let plain = |block: Block| Ok(Block { node: block.node, compressed: false, bytes: block.into_plain()? });
        let blocks = parts.iter().cloned().flat_map(block::blocks);
        let nodes: Result<Vec<_>, block::Truncated> = blocks.map(|block| block.and_then(plain)).collect();
        let mut nodes = nodes.map_err(|error| error.to_string())?;
        nodes.sort_unstable_by_key(|block| block.node);
        if let Some(twice) = nodes.windows(2).find(|pair| pair[0].node == pair[1].node) {
            return Err(format!("node {} sent its values for an allgather twice", twice[0].node));
        }
        let (mut in_order, mut longest, mut packed_len, mut before) = (true, 0, 0, 0);
        for block in &nodes {
            let node = block.node;
            let mut count = 0;
            for value in values::values(&block.bytes) {
                let value = value.map_err(|error| error.to_string())?;
                longest = longest.max(value.len() as u32);
                count += 1;
            }
            match count.cmp(&mapping.local_size(node)) {
                Ordering::Less => return Err(format!("node {node} sent too few values for an allgather")),
                Ordering::Greater => return Err(format!("node {node} sent too many values for an allgather")),
                Ordering::Equal => {}
            }
            in_order &= count == 0 || mapping.run_of(node) == Some(before..before + count);
            packed_len += block.bytes.len();
            before += count;
        }
        if before != mapping.job_size() {
            return Err("not every node has sent its values for an allgather".into());
        }
        Ok(Gathered { nodes, in_order, longest, packed_len })
    }

    /// The value of each rank, as a slice of the block of the rank's node.
    fn by_rank(&self, mapping: &Mapping) -> Vec<Bytes> {
        let mut whole = vec![Bytes::new(); mapping.job_size() as usize];
        for Block { node, bytes, .. } in &self.nodes {
            let values = values::values(bytes).filter_map(Result::ok).map(|value| bytes.slice_ref(value));
            mapping.ranks_of(*node).zip(values).for_each(|(rank, value)| whole[rank.index()] = value);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 16 ranks start an allgather with values of at most `max_len` bytes. Returns the memory of the arena that is
    /// requested for it, after reporting that the arena exists; `None`: no new arena is requested.
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
    use wireup_coll::mapping::by_ppn;
    use wireup_wire::ids::NodeId;
    use wireup_wire::shared::rows::{Form, Rows};

    fn laid(mapping: &Mapping, (max_len, rows): (u32, bool), parts: &[Bytes]) -> Result<Vec<u8>, String> {
        let array = lay_out(mapping, (max_len, rows), parts)?;
        let mut out = vec![0xaa; array.byte_len()];
        array.fill(&mut out);
        Ok(out)
    }

    /// Lays out the values of two nodes, with the ranks 0, 2 and 1, 3; `first`: the values of node 0.
    fn gathered(max_len: u32, rows: bool, first: &[&[u8]]) -> Result<Vec<u8>, String> {
        let mapping = Mapping::new(&by_ppn(2, 1, 4), 4, 2).unwrap();
        let mut parts = Vec::new();
        for (node, own) in [(1, &[&b"one"[..], b"three"][..]), (0, first)] {
            let (mut bytes, mut part) = (Vec::new(), Vec::new());
            own.iter().for_each(|value| values::push(&mut bytes, value));
            block::push(&mut part, NodeId(node), false, &bytes);
            parts.push(Bytes::from(part));
        }
        laid(&mapping, (max_len, rows), &parts)
    }

    #[test]
    fn values_are_in_the_order_of_ranks() {
        for (rows, form) in [(true, Form::Rows), (false, Form::Packed)] {
            let shared = gathered(5, rows, &[b"zero", b""]).unwrap();
            let read = Rows::read(&shared).unwrap();
            assert_eq!((read.form(), read.count(), read.stride()), (form, 4, 5));
            let mut buffer = [b'x'; 20];
            read.fill(&mut buffer, 5).unwrap();
            assert_eq!(&buffer, b"zero\0one\0\0\0\0\0\0\0three");
        }
    }

    #[test]
    fn values_of_ranks_placed_by_block_are_in_order() {
        let mapping = Mapping::new(&by_ppn(3, 2, 5), 5, 3).unwrap();
        let mut parts = Vec::new();
        for (node, own) in [(2, &[&b"e"[..]][..]), (0, &[b"a", b"bb"]), (1, &[b"ccc", b""])] {
            let (mut bytes, mut part) = (Vec::new(), Vec::new());
            own.iter().for_each(|value| values::push(&mut bytes, value));
            block::push(&mut part, NodeId(node), false, &bytes);
            parts.push(Bytes::from(part));
        }
        for rows in [true, false] {
            let shared = laid(&mapping, (3, rows), &parts).unwrap();
            let read = Rows::read(&shared).unwrap();
            assert_eq!((read.form() == Form::Rows, read.count()), (rows, 5));
            let mut buffer = [b'x'; 15];
            read.fill(&mut buffer, 3).unwrap();
            assert_eq!(&buffer, b"a\0\0bb\0ccc\0\0\0e\0\0");
        }
        assert!(laid(&mapping, (3, true), &parts[1..]).unwrap_err().contains("not every node"));
        parts.push(parts[0].clone());
        assert!(
            laid(&mapping, (3, true), &parts).unwrap_err().contains("node 2 sent its values for an allgather twice")
        );
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error() {
        let shared = gathered(4, true, &[b"zero", b""]).unwrap();
        let read = Rows::read(&shared).unwrap();
        assert_eq!(read.form(), Form::Packed);
        assert!(read.fill(&mut [0; 16], 4).is_err());
    }

    #[test]
    fn compressed_values_are_unpacked_first() {
        let mapping = Mapping::new(&by_ppn(1, 1, 1), 1, 1).unwrap();
        let (mut values, mut part) = (Vec::new(), Vec::new());
        values::push(&mut values, &[b'a'; 200]);
        let packed = wireup_wire::packed::pack(&values).unwrap();
        block::push(&mut part, NodeId(0), true, &packed);
        let shared = laid(&mapping, (200, true), &[Bytes::from(part)]).unwrap();
        assert_eq!(Rows::read(&shared).unwrap().values().next().unwrap(), Ok(&[b'a'; 200][..]));
        let mut part = Vec::new();
        block::push(&mut part, NodeId(0), true, b"\x07none");
        assert!(laid(&mapping, (200, true), &[Bytes::from(part)]).is_err());
    }

    #[test]
    fn a_node_that_gives_too_little_or_too_much_is_named() {
        assert!(gathered(5, true, &[b"zero"]).unwrap_err().contains("node 0 sent too few"));
        assert!(gathered(5, true, &[b"a", b"b", b"c"]).unwrap_err().contains("node 0 sent too many"));
    }
}
