//! The entries of a manifest: each is read in place, without a copy.
//!
//! ```text
//!   kind u8 | bits u16 | seconds i64 | nanoseconds u32 | length u32, path
//!           of a file: | length u64, digest
//!           of a link: | length u32, target
//! ```
//!
//! All numbers are little-endian.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most entries of a set. Chosen: twenty times those of a Python environment, which has some 50,000.
pub const ENTRIES_MAX: usize = 1 << 20;
/// Longest manifest of a set, in bytes.
pub const MANIFEST_LEN_MAX: usize = 256 << 20;

/// BLAKE3 of a file's content, or of a manifest.
pub type Digest = [u8; 32];

const FOLDER: u8 = 0;
const LINK: u8 = 1;
const FILE: u8 = 2;
const ORIGINAL: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind<'a> {
    Folder,
    /// A symbolic link, with its target as written.
    Link(&'a [u8]),
    File {
        len: u64,
        digest: Digest,
    },
    /// A file with rights that a copy would not have: the original is shown.
    Original,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The original path: absolute, without `.` and `..`; any bytes but zero.
    pub path: &'a [u8],
    /// The permission bits.
    pub mode: u32,
    /// Time of modification of the original, in seconds and nanoseconds: Python compares it with that of its compiled
    /// files.
    pub modified: (i64, u32),
    pub kind: EntryKind<'a>,
}

impl<'a> Entry<'a> {
    pub fn path(&self) -> &'a Path {
        Path::new(OsStr::from_bytes(self.path))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self.kind {
            EntryKind::Folder => FOLDER,
            EntryKind::Link(_) => LINK,
            EntryKind::File { .. } => FILE,
            EntryKind::Original => ORIGINAL,
        };
        let (seconds, nanoseconds) = self.modified;
        out.push(kind);
        out.extend_from_slice(&(self.mode as u16).to_le_bytes());
        out.extend_from_slice(&seconds.to_le_bytes());
        out.extend_from_slice(&nanoseconds.to_le_bytes());
        put(self.path, out);
        match self.kind {
            EntryKind::File { len, digest } => {
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(&digest);
            }
            EntryKind::Link(target) => put(target, out),
            EntryKind::Folder | EntryKind::Original => {}
        }
    }

    /// Decodes the first entry; returns it and the bytes after it. `None`: there is none, or it is incomplete.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<(Entry<'a>, &'a [u8])> {
        let (&[kind], rest) = bytes.split_first_chunk()?;
        let (&mode, rest) = rest.split_first_chunk()?;
        let (&seconds, rest) = rest.split_first_chunk()?;
        let (&nanoseconds, rest) = rest.split_first_chunk()?;
        let (path, rest) = take_prefixed(rest)?;
        let (kind, rest) = match kind {
            FOLDER => (EntryKind::Folder, rest),
            LINK => {
                let (target, rest) = take_prefixed(rest)?;
                (EntryKind::Link(target), rest)
            }
            FILE => {
                let (&len, rest) = rest.split_first_chunk()?;
                let (&digest, rest) = rest.split_first_chunk()?;
                (EntryKind::File { len: u64::from_le_bytes(len), digest }, rest)
            }
            ORIGINAL => (EntryKind::Original, rest),
            _ => return None,
        };
        let modified = (i64::from_le_bytes(seconds), u32::from_le_bytes(nanoseconds));
        Some((Entry { path, mode: u16::from_le_bytes(mode).into(), modified, kind }, rest))
    }
}

/// Appends the length of the bytes, then the bytes.
fn put(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}
