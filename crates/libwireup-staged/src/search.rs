//! The directories in which the loader searches for a library whose name has no slash, and what they contain.

use crate::kernel::{self, File};
use crate::staged::Staged;
use core::ffi::CStr;
use wireup_redirect::program::{LIBRARY_LEN, is_library};
use wireup_redirect::{Found, Text, Walk};

const FOLDERS_MAX: usize = 128;
const TEXT_MAX: usize = 16 << 10;

/// Subdirectories, for certain processors, in which the loader looks before the directory itself.
#[cfg(target_arch = "x86_64")]
const SPECIAL: [&[u8]; 6] = [b"glibc-hwcaps", b"tls", b"haswell", b"xeon_phi", b"avx512_1", b"x86_64"];
#[cfg(target_arch = "aarch64")]
const SPECIAL: [&[u8]; 4] = [b"glibc-hwcaps", b"tls", b"atomics", b"aarch64"];

#[derive(Clone, Copy)]
struct Folder {
    object: usize,
    from: u16,
    to: u16,
    /// Whether the directory is listed in the program itself, not in one of its libraries.
    is_main: bool,
    /// Whether the folder is in the object's `RUNPATH`, which applies to this object only.
    is_own: bool,
}

/// The directories that loaded objects name (`RPATH`, `RUNPATH`), in the order in which the objects were loaded.
pub struct Folders {
    text: [u8; TEXT_MAX],
    len: usize,
    all: [Folder; FOLDERS_MAX],
    count: usize,
    /// Whether the list is incomplete, so that the loader may find a library that a search here would not.
    is_open: bool,
}

/// The result of a search.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Has {
    /// A copy, whose path is in the walk.
    Copy,
    Nothing,
    /// The search here cannot decide; the loader itself must search.
    Unknown,
}

impl Folders {
    pub const fn new() -> Folders {
        let none = Folder { object: 0, from: 0, to: 0, is_main: false, is_own: false };
        Folders { text: [0; TEXT_MAX], len: 0, all: [none; FOLDERS_MAX], count: 0, is_open: false }
    }

    /// Removes the directories of an object, because its number now belongs to a new object.
    pub fn forget(&mut self, object: usize) {
        let mut kept = 0;
        for at in 0..self.count {
            if self.all[at].object != object {
                self.all[kept] = self.all[at];
                kept += 1;
            }
        }
        self.count = kept;
    }

    /// Adds a directory of an object. `origin`: the directory of the object, which replaces `$ORIGIN`.
    pub fn add(&mut self, object: usize, is_main: bool, is_own: bool, folder: &[u8], origin: &[u8]) {
        let mut path = Text::new();
        let rest = folder.strip_prefix(b"$ORIGIN").or_else(|| folder.strip_prefix(b"${ORIGIN}"));
        let made = match rest {
            Some(rest) => path.push(origin).and_then(|()| path.push(rest)),
            None => path.push(folder),
        };
        let path = path.as_bytes();
        let is_known = made.is_some() && path.starts_with(b"/") && !path.contains(&b'$');
        let place = self.place(path).filter(|_| is_known && self.count < FOLDERS_MAX);
        let Some((from, to)) = place else {
            self.is_open = true;
            return;
        };
        self.all[self.count] = Folder { object, from, to, is_main, is_own };
        self.count += 1;
    }

    /// The range of a path in `text`; a new path is appended.
    fn place(&mut self, path: &[u8]) -> Option<(u16, u16)> {
        let known = self.all[..self.count].iter().find(|folder| self.path(folder) == path);
        if let Some(known) = known {
            return Some((known.from, known.to));
        }
        let end = self.len + path.len();
        self.text.get_mut(self.len..end)?.copy_from_slice(path);
        let place = (self.len as u16, end as u16);
        self.len = end;
        Some(place)
    }

    fn path(&self, folder: &Folder) -> &[u8] {
        &self.text[usize::from(folder.from)..usize::from(folder.to)]
    }
}

/// Searches as the loader does for an object: in the `RPATH` of the object and of the program, then in
/// `LD_LIBRARY_PATH`, then in the object's `RUNPATH`, which also disables all `RPATH`s. The loader also searches the
/// `RPATH` of the objects that led to this one, which are not known here: if a directory of any other object has such a
/// library, the result is `Unknown`.
pub fn first(folders: &Folders, staged: &Staged, walk: &mut Walk, object: usize, name: &[u8]) -> Has {
    if folders.is_open {
        return Has::Unknown;
    }
    let all = || folders.all[..folders.count].iter();
    let has_own = all().any(|folder| folder.object == object && folder.is_own);
    let is_of_object = |folder: &&Folder| folder.object == object;
    let is_of_main = |folder: &&Folder| folder.object != object && folder.is_main;
    let is_of_other = |folder: &&Folder| folder.object != object && !folder.is_main;
    let mut look = |path: &[u8]| has(staged, walk, path, name);
    if !has_own {
        for folder in all().filter(|folder| !folder.is_own).filter(is_of_other) {
            if look(folders.path(folder)) != Has::Nothing {
                return Has::Unknown;
            }
        }
        let certain = all().filter(is_of_object).chain(all().filter(is_of_main));
        for folder in certain.filter(|folder| !folder.is_own) {
            match look(folders.path(folder)) {
                Has::Nothing => {}
                found => return found,
            }
        }
    }
    if !staged.search.is_empty() {
        for folder in staged.search.split(|byte| [b':', b';'].contains(byte)) {
            match look(folder) {
                Has::Nothing => {}
                found => return found,
            }
        }
    }
    for folder in all().filter(is_of_object).filter(|folder| folder.is_own) {
        match look(folders.path(folder)) {
            Has::Nothing => {}
            found => return found,
        }
    }
    Has::Nothing
}

/// Whether a directory has a library of this name.
fn has(staged: &Staged, walk: &mut Walk, folder: &[u8], name: &[u8]) -> Has {
    if !folder.starts_with(b"/") || folder.contains(&b'$') {
        return Has::Unknown;
    }
    let mut path = Text::new();
    for name in SPECIAL.iter().chain(&[name]) {
        path.cut(0);
        if path.push(folder).and_then(|()| path.push(b"/")).and_then(|()| path.push(name)).is_none() {
            return Has::Unknown;
        }
        let path = path.from(0);
        let found = staged.resolve(walk, path.to_bytes(), None, true);
        let there = match found {
            Found::Absent => continue,
            Found::Copy => kernel::exists(walk.copy()),
            // The directory is not staged, but the loader would look there too.
            Found::Unknown => kernel::exists(path),
            Found::Original | Found::Folder => kernel::exists(walk.original()),
        };
        match there {
            Err(libc::ENOENT | libc::ENOTDIR) => {}
            _ if found == Found::Copy && !SPECIAL.contains(name) && fits(walk.copy()) => return Has::Copy,
            _ => return Has::Unknown,
        }
    }
    Has::Nothing
}

/// Whether a copy is a library for this processor.
fn fits(path: &CStr) -> bool {
    let mut begin = [0; LIBRARY_LEN];
    File::open(path).is_ok_and(|file| file.read(&mut begin) == LIBRARY_LEN) && is_library(&begin)
}
