//! The map: a hash table of the staged names, in a file that all ranks of a node map into their memory.
//!
//! ```text
//!   "WIREUPM1"  tree: u32  library: u32  slots: u32 (a power of two)  bits: u32  place: u32
//!   tree, library, place                 up to the next multiple of 8. The head has the lengths of these three texts;
//!                                        `bits` are the write bits of most files.
//!   slots x { hash: u32, record: u32 }   0: an empty slot; collisions go to the next one
//!   records { kind: u8, name: u16, more: u16, name, more }
//! ```

/// Numbers in a map are in native byte order: a map never leaves its machine.
pub(crate) const MAGIC: &[u8; 8] = b"WIREUPM1";
pub(crate) const HEAD_LEN: usize = 28;
pub(crate) const RECORD_HEAD_LEN: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StagedKind {
    /// A staged folder: everything in it is taken from the copy, and a name that the copy lacks does not exist.
    Folder = b'd' as isize,
    /// A file that was staged on its own, not as part of a folder.
    File = b'f' as isize,
    /// A symbolic link, with its target.
    Link = b'l' as isize,
    /// A file in a staged folder that was itself not staged; the original is used.
    Original = b'o' as isize,
    /// A folder above something staged; the map does not have all names in it.
    Open = b'a' as isize,
    /// A folder above something staged; the map has the names of all entries in it.
    Closed = b'c' as isize,
    /// An entry of a closed folder that was not staged.
    Other = b'n' as isize,
    /// The folder that holds the staged copies.
    Tree = b't' as isize,
    /// A record in addition to the name's other one: the write bits of the original, which its copy does not have.
    Bits = b'w' as isize,
}

impl StagedKind {
    fn from_byte(byte: u8) -> Option<StagedKind> {
        use StagedKind::*;
        [Folder, File, Link, Original, Open, Closed, Other, Tree, Bits].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The write permission bits of owner, group and others.
pub const WRITE: u32 = 0o222;

#[derive(Clone, Copy)]
pub struct Map<'a> {
    tree: &'a [u8],
    library: &'a [u8],
    place: &'a [u8],
    slots: &'a [u8],
    bits: u32,
    all: &'a [u8],
}

/// FNV-1a hash of a path, computed from the hash of its folder and the last name.
#[derive(Clone, Copy)]
pub struct Hash(pub u32);

impl Hash {
    pub const EMPTY: Hash = Hash(0x811c_9dc5);

    pub fn with(self, bytes: &[u8]) -> Hash {
        Hash(bytes.iter().fold(self.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)))
    }
}

impl<'a> Map<'a> {
    /// `None`: the bytes are not a map.
    pub fn read(all: &'a [u8]) -> Option<Map<'a>> {
        let head = all.get(..HEAD_LEN)?.strip_prefix(MAGIC)?;
        let number = |at: usize| Some(u32::from_ne_bytes(*head.get(at..)?.first_chunk()?) as usize);
        let (tree, library, slots, bits) = (number(0)?, number(4)?, number(8)?, number(12)?);
        let place = number(16)?;
        let texts = all.get(HEAD_LEN..)?;
        let table = (HEAD_LEN + tree + library + place).next_multiple_of(8);
        let map = Map {
            tree: texts.get(..tree)?,
            library: texts.get(tree..tree + library)?,
            place: texts.get(tree + library..tree + library + place)?,
            slots: all.get(table..table + slots.checked_mul(8)?)?,
            bits: bits as u32 & WRITE,
            all,
        };
        (slots.is_power_of_two() && map.tree.starts_with(b"/")).then_some(map)
    }

    /// The folder of the copies; the path of a copy below it is the original's path.
    pub fn tree(&self) -> &'a [u8] {
        self.tree
    }

    /// The mount namespace in which the names are valid: the text that `/proc/self/ns/mnt` links to.
    pub fn place(&self) -> &'a [u8] {
        self.place
    }

    /// The path of the `libwireup-staged` that uses this map.
    pub fn library(&self) -> &'a [u8] {
        self.library
    }

    /// The kind of a name, and the further bytes of its record; `None`: the map lacks the name.
    pub fn find(&self, name: &[u8], hash: Hash) -> Option<(StagedKind, &'a [u8])> {
        self.find_where(name, hash, |kind| kind != StagedKind::Bits)
    }

    /// The permission bits of an original: those of its copy, with the original's write bits.
    pub fn mode(&self, name: &[u8], mode: u32) -> u32 {
        let found = self.find_where(name, Hash::EMPTY.with(name), |kind| kind == StagedKind::Bits);
        let bits = match found.map(|(_, more)| more) {
            Some(&[low, high]) => u32::from(u16::from_le_bytes([low, high])) & WRITE,
            _ => self.bits,
        };
        mode & !WRITE | bits
    }

    fn find_where(&self, name: &[u8], hash: Hash, fits: impl Fn(StagedKind) -> bool) -> Option<(StagedKind, &'a [u8])> {
        let count = self.slots.len() / 8;
        for step in 0..count {
            let at = (hash.0 as usize).wrapping_add(step) & (count - 1);
            let slot = self.slots.get(at * 8..at * 8 + 8)?;
            let number = |at: usize| Some(u32::from_ne_bytes(*slot.get(at..)?.first_chunk()?));
            let record = number(4)? as usize;
            if record == 0 {
                return None;
            }
            if number(0)? != hash.0 {
                continue;
            }
            let (kind, found, more) = self.record(record)?;
            if found == name && fits(kind) {
                return Some((kind, more));
            }
        }
        None
    }

    fn record(&self, at: usize) -> Option<(StagedKind, &'a [u8], &'a [u8])> {
        let record = self.all.get(at..)?;
        let number = |at: usize| Some(usize::from(u16::from_ne_bytes(*record.get(at..)?.first_chunk()?)));
        let (name, more) = (number(1)?, number(3)?);
        let texts = record.get(RECORD_HEAD_LEN..)?;
        Some((StagedKind::from_byte(*record.first()?)?, texts.get(..name)?, texts.get(name..name + more)?))
    }

    /// The original path of a path below the folder of the copies.
    pub fn original<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        path.strip_prefix(self.tree).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }
}
