//! A set as a file system image: names, permission bits and times; the contents lie in other files, the packs.
//!
//! The format is EROFS, which the kernel mounts from files (Linux 6.12 and later), with one additional device for each
//! pack:
//!
//! ```text
//!   1024   superblock (128 bytes), how LZ4 is used (in the next 128), then a slot of 128 bytes for each pack
//!   …      inodes of 64 bytes, each followed by what belongs to it: the last part of a folder's names, where a link
//!          leads, or the place of a file: one chunk, however long it is, by pack and block; if clusters of it are
//!          packed, a place for each block of it
//!   …      whole blocks of folders' names, and links that are too long for the place beside their inode
//! ```
//!
//! A folder's names are sorted, in blocks that are sorted too, so that the kernel finds one by bisection. An inode's
//! number is its place in units of 32 bytes. The index of a packed file names no packs: it numbers the blocks of the
//! image and of all packs consecutively. Layout: Linux, `fs/erofs/erofs_fs.h`.

#[cfg(test)]
mod tests;

use crate::set::{EntryKind, Set};
use crate::stream::{BLOCK, CLUSTER_LEN, blocks};
use std::os::unix::ffi::OsStrExt;

const BLOCK_LEN: usize = BLOCK as usize;
/// 4 KiB, which every kernel with EROFS supports; pages, the other usual size of blocks, are larger on some machines.
const BLOCK_BITS: u8 = 12;
const SUPER_AT: usize = 1024;
const SUPER_LEN: usize = 128;
/// Position of the first slot of a pack, in slots of 128 bytes from the superblock.
const SLOTS_AT: usize = 2;
const MAGIC: u32 = 0xE0F5_E1E2;
/// A packed cluster ends where its last block ends; the method is described behind the superblock.
const PADDED: u32 = 0x1;
const PACKED_FILES: u32 = 0x2;
const CHUNKED_FILES: u32 = 0x4;
const DEVICE_TABLE: u32 = 0x8;
/// Size of an inode (bytes).
const INODE_LEN: usize = 64;
/// Unit of the numbers of inodes (bytes): a number is a position in the image.
const NUMBER_UNIT: usize = 32;
const DIRENT_LEN: usize = 12;
/// Forms of an inode: 64 bytes, with its data elsewhere, packed, behind it, or in chunks.
const PLAIN: u16 = 1;
const PACKED: u16 = 1 | 1 << 1;
const INLINE: u16 = 1 | 2 << 1;
const CHUNKED: u16 = 1 | 4 << 1;
/// Inode flag: the address of each chunk includes a device number.
const WITH_DEVICE: u16 = 0x20;
const CHUNK_LEN: usize = 8;

/// The location of a content.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct ContentLocation {
    /// The index of the pack in the set's list of packs.
    pub pack: u16,
    pub block: u32,
    /// The number of blocks that each cluster of the content takes; empty: no cluster is packed.
    pub clusters: Vec<u8>,
}

/// The image. `place` has where the content of each entry lies, `packs` the lengths of the packs, `owner` the user and
/// the group of all files. `None`: the image would have more inodes or blocks than the format can number.
pub(crate) fn image<'a>(
    set: &Set,
    place: impl Fn(usize) -> Option<&'a ContentLocation>,
    packs: &[u64],
    owner: (u32, u32),
) -> Option<Vec<u8>> {
    let nodes = nodes(set);
    let mut layout = Layout::new(packs.len());
    let places: Vec<Laid> = nodes.iter().map(|node| layout.lay(set, node, &place)).collect();
    let data_at = layout.at.next_multiple_of(BLOCK_LEN);
    let len = data_at + layout.data;
    let mut out = vec![0; len];
    let starts = write_super(&mut out, nodes.len(), number(&places[0]), packs)?;
    for (node, laid) in nodes.iter().zip(&places) {
        let entry = node.entry.map(|index| set.entry(index));
        let (kind, data) = match entry.map(|entry| entry.kind) {
            None | Some(EntryKind::Folder) => (FOLDER, names(node, &places, &nodes)),
            Some(EntryKind::Link(target)) => (LINK, target.to_vec()),
            Some(EntryKind::File { .. } | EntryKind::Original) => (FILE, Vec::new()),
        };
        let content = node.entry.zip(entry).and_then(|(index, entry)| match entry.kind {
            EntryKind::File { len: len @ 1.., .. } => Some((len, place(index))),
            _ => None,
        });
        let (form, size, union) = match content {
            Some((len, at)) if at.is_some_and(|at| !at.clusters.is_empty()) => {
                let at = at?;
                let start = starts.get(usize::from(at.pack))?.checked_add(at.block)?;
                let blocks = write_packed(&mut out[laid.at + INODE_LEN..], start, len, &at.clusters)?;
                (PACKED, len, blocks)
            }
            Some((len, at)) => {
                let at = at?;
                let chunk = [&[0, 0], &(at.pack + 1).to_le_bytes()[..], &at.block.to_le_bytes()].concat();
                put(&mut out, laid.at + INODE_LEN, &chunk);
                (CHUNKED, len, u32::from(WITH_DEVICE) | chunk_bits(len))
            }
            None => {
                let beside = laid.beside;
                let (blocks, rest) = data.split_at(data.len() - beside);
                put(&mut out, data_at + laid.data, blocks);
                put(&mut out, laid.at + INODE_LEN, rest);
                let form = if beside > 0 { INLINE } else { PLAIN };
                (form, data.len() as u64, ((data_at + laid.data) / BLOCK_LEN) as u32)
            }
        };
        let bits = match entry {
            // The kernel ignores the permission bits of a symbolic link.
            Some(entry) if kind == LINK => entry.mode | 0o777,
            Some(entry) => entry.mode,
            None => 0o755,
        };
        let (seconds, nanoseconds) = entry.map_or((0, 0), |entry| entry.modified);
        let inode = &mut out[laid.at..laid.at + INODE_LEN];
        put(inode, 0, &form.to_le_bytes());
        put(inode, 4, &(kind | bits as u16).to_le_bytes());
        put(inode, 8, &size.to_le_bytes());
        put(inode, 16, &union.to_le_bytes());
        put(inode, 20, &((laid.at / NUMBER_UNIT) as u32).to_le_bytes());
        put(inode, 24, &owner.0.to_le_bytes());
        put(inode, 28, &owner.1.to_le_bytes());
        put(inode, 32, &seconds.to_le_bytes());
        put(inode, 40, &nanoseconds.to_le_bytes());
        put(inode, 44, &node.links.to_le_bytes());
    }
    Some(out)
}

const FOLDER: u16 = 0o040_000;
const FILE: u16 = 0o100_000;
const LINK: u16 = 0o120_000;

/// EROFS types of directory entries.
const FILE_ENTRY: u8 = 1;
const FOLDER_ENTRY: u8 = 2;
const LINK_ENTRY: u8 = 7;

struct Node<'a> {
    /// The index of the entry in the set; `None`: a folder above the staged paths.
    entry: Option<usize>,
    /// The names in a folder, in order, with `.` and `..`, each with the index of its node.
    names: Vec<(&'a [u8], usize)>,
    file_type: u8,
    links: u32,
}

/// All nodes of the image of a set; the first one is the root.
fn nodes(set: &Set) -> Vec<Node<'_>> {
    let mut all = vec![Node { entry: None, names: Vec::new(), file_type: FOLDER_ENTRY, links: 2 }];
    // The folders on the way to the last entry.
    let mut way: Vec<(&[u8], usize)> = Vec::new();
    for (index, entry) in set.entries().enumerate() {
        let parts: Vec<&[u8]> = entry.path().iter().skip(1).map(OsStrExt::as_bytes).collect();
        let shared = way.iter().zip(&parts).take_while(|((name, _), part)| name == *part).count();
        way.truncate(shared);
        for (depth, part) in parts.iter().enumerate().skip(shared) {
            let above = way.last().map_or(0, |(_, node)| *node);
            let is_last = depth + 1 == parts.len();
            let file_type = match &entry.kind {
                EntryKind::File { .. } | EntryKind::Original if is_last => FILE_ENTRY,
                EntryKind::Link(_) if is_last => LINK_ENTRY,
                _ => FOLDER_ENTRY,
            };
            let node = all.len();
            all.push(Node { entry: is_last.then_some(index), names: Vec::new(), file_type, links: 1 });
            all[above].names.push((part, node));
            if file_type == FOLDER_ENTRY {
                all[node].names.extend([(&b"."[..], node), (b"..", above)]);
                all[node].links = 2;
                all[above].links += 1;
            }
            way.push((part, node));
        }
    }
    all[0].names.extend([(&b"."[..], 0), (b"..", 0)]);
    all.iter_mut().for_each(|node| node.names.sort_unstable());
    all
}

/// Where the parts of a node (a file, folder or symbolic link) lie in the image.
struct Laid {
    /// The offset of the node's inode from the beginning of the image, in bytes.
    at: usize,
    /// The offset of the node's blocks from the first block of data, in bytes.
    data: usize,
    /// Number of bytes of the node's data that lie right behind its inode instead of in a block.
    beside: usize,
}

struct Layout {
    at: usize,
    data: usize,
}

impl Layout {
    fn new(packs: usize) -> Layout {
        Layout { at: SUPER_AT + SUPER_LEN * (SLOTS_AT + packs), data: 0 }
    }

    fn lay<'a>(&mut self, set: &Set, node: &Node, place: &impl Fn(usize) -> Option<&'a ContentLocation>) -> Laid {
        let is_packed = node.entry.and_then(place).is_some_and(|place| !place.clusters.is_empty());
        let (data, chunk) = match node.entry.map(|index| set.entry(index).kind) {
            None | Some(EntryKind::Folder) => (names_len(node), 0),
            Some(EntryKind::Link(target)) => (target.len(), 0),
            Some(EntryKind::File { len, .. }) if is_packed => (0, packed_len(len)),
            Some(EntryKind::File { len: 1.., .. }) => (0, CHUNK_LEN),
            Some(EntryKind::File { .. } | EntryKind::Original) => (0, 0),
        };
        let rest = data % BLOCK_LEN;
        let beside = if INODE_LEN + rest <= BLOCK_LEN { rest } else { 0 };
        let len = INODE_LEN + beside + chunk;
        // The bytes behind an inode lie in the same block as the inode, except for the index of a packed file.
        let together = if is_packed { INODE_LEN } else { len };
        if self.at / BLOCK_LEN != (self.at + together - 1) / BLOCK_LEN {
            self.at = self.at.next_multiple_of(BLOCK_LEN);
        }
        let laid = Laid { at: self.at, data: self.data, beside };
        self.at = (self.at + len).next_multiple_of(NUMBER_UNIT);
        self.data += (data - beside).next_multiple_of(BLOCK_LEN);
        laid
    }
}

fn number(laid: &Laid) -> u64 {
    (laid.at / NUMBER_UNIT) as u64
}

/// Length of the list of a folder's names in the image (bytes). An entry and its name lie in one block, so blocks other
/// than the last may have unused bytes at their end, which count.
fn names_len(node: &Node) -> usize {
    let mut whole = 0;
    let mut last = 0;
    for (name, _) in &node.names {
        let len = DIRENT_LEN + name.len();
        if last + len > BLOCK_LEN {
            (whole, last) = (whole + BLOCK_LEN, 0);
        }
        last += len;
    }
    whole + last
}

/// The blocks of a folder: in each, entries of twelve bytes, then their names.
fn names(node: &Node, places: &[Laid], nodes: &[Node]) -> Vec<u8> {
    let mut out = Vec::with_capacity(names_len(node));
    let mut left = &node.names[..];
    while !left.is_empty() {
        let mut len = 0;
        let fits = |(name, _): &&(&[u8], usize)| {
            len += DIRENT_LEN + name.len();
            len <= BLOCK_LEN
        };
        let count = left.iter().take_while(fits).count();
        let (here, rest) = left.split_at(count);
        let mut name_at = DIRENT_LEN * count;
        for (name, node) in here {
            out.extend(number(&places[*node]).to_le_bytes());
            out.extend((name_at as u16).to_le_bytes());
            out.extend([nodes[*node].file_type, 0]);
            name_at += name.len();
        }
        here.iter().for_each(|(name, _)| out.extend_from_slice(name));
        if !rest.is_empty() {
            out.resize(out.len().next_multiple_of(BLOCK_LEN), 0);
        }
        left = rest;
    }
    out
}

/// The exponent of the smallest chunk, in blocks, that holds so many bytes.
fn chunk_bits(len: u64) -> u32 {
    blocks(len).next_power_of_two().trailing_zeros()
}

/// Length of the head of a packed file's index, and of each entry after it (bytes).
const HEAD_LEN: usize = 16;
const INDEX_LEN: usize = 8;
/// Packed clusters take several blocks; plain blocks are stored unchanged.
const ADVICE: u16 = 0x2 | 0x10;
/// Kinds of entries: `FIRST` for the first block of a packed cluster, `OTHER` for its other blocks. The kind of a plain
/// block is 0.
const FIRST: u16 = 1;
const OTHER: u16 = 2;
/// Marks the number of stored blocks, which the second entry has instead of its distance to the first block.
const COUNT: u16 = 1 << 11;

/// The number of bytes after the inode of a packed file of this length.
fn packed_len(len: u64) -> usize {
    HEAD_LEN + INDEX_LEN * blocks(len) as usize
}

/// Writes the index of a packed file behind its inode, and returns the number of stored blocks: a head, then an entry
/// for each block of the content. In a packed cluster, the entry of the first block says where the cluster is stored,
/// the entry of the second one in how many blocks; from the second on, entries have the distances to the first block
/// and to the end of the cluster. In a plain cluster, each entry says where its block is stored. `None`: these clusters
/// do not fit a content of this length.
fn write_packed(out: &mut [u8], start: u32, len: u64, clusters: &[u8]) -> Option<u32> {
    put(out, 4, &ADVICE.to_le_bytes());
    if clusters.len() as u64 != len.div_ceil(CLUSTER_LEN as u64) {
        return None;
    }
    let mut at = start;
    let mut indexes = out[HEAD_LEN..packed_len(len)].chunks_exact_mut(INDEX_LEN);
    for (number, stored) in (0..).zip(clusters) {
        let count = blocks((len - number * CLUSTER_LEN as u64).min(CLUSTER_LEN as u64)) as u16;
        let stored = u16::from(*stored);
        let is_plain = stored == count;
        if stored == 0 || stored > count {
            return None;
        }
        for (block, index) in (0..count).zip(&mut indexes) {
            match block {
                _ if is_plain => put(index, 4, &(at + u32::from(block)).to_le_bytes()),
                0 => {
                    put(index, 0, &FIRST.to_le_bytes());
                    put(index, 4, &at.to_le_bytes());
                }
                _ => {
                    let back = if block == 1 { COUNT | stored } else { block };
                    put(index, 0, &OTHER.to_le_bytes());
                    put(index, 4, &back.to_le_bytes());
                    put(index, 6, &(count - block).to_le_bytes());
                }
            }
        }
        at = at.checked_add(stored.into())?;
    }
    Some(at - start)
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Returns the number of each pack's first block, where all blocks are numbered consecutively.
fn write_super(out: &mut [u8], inodes: usize, root: u64, packs: &[u64]) -> Option<Vec<u32>> {
    let mut end = u32::try_from(out.len() / BLOCK_LEN).ok()?;
    let at = &mut out[SUPER_AT..];
    put(at, 0, &MAGIC.to_le_bytes());
    put(at, 12, &[BLOCK_BITS, 0]);
    put(at, 14, &u16::try_from(root).ok()?.to_le_bytes());
    put(at, 16, &(inodes as u64).to_le_bytes());
    put(at, 36, &end.to_le_bytes());
    let features = PADDED | PACKED_FILES | CHUNKED_FILES | if packs.is_empty() { 0 } else { DEVICE_TABLE };
    put(at, 80, &features.to_le_bytes());
    // LZ4 is the first method: a description of 14 bytes, with the number of blocks of a cluster.
    put(at, 84, &1u16.to_le_bytes());
    put(at, SUPER_LEN, &14u16.to_le_bytes());
    put(at, SUPER_LEN + 4, &((CLUSTER_LEN / BLOCK_LEN) as u16).to_le_bytes());
    put(at, 86, &u16::try_from(packs.len()).ok()?.to_le_bytes());
    put(at, 88, &((SUPER_AT / SUPER_LEN + SLOTS_AT) as u16).to_le_bytes());
    let mut starts = Vec::new();
    for (index, pack) in packs.iter().enumerate() {
        let slot = SUPER_LEN * (SLOTS_AT + index);
        let count = u32::try_from(blocks(*pack)).ok()?;
        // Each device has a name, which nobody uses.
        put(at, slot, b"pack");
        put(at, slot + 64, &count.to_le_bytes());
        put(at, slot + 68, &end.to_le_bytes());
        starts.push(end);
        end = end.checked_add(count)?;
    }
    Some(starts)
}
