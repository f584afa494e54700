//! What the loader of programs asks (`LD_AUDIT`, rtld-audit(7)): which file it opens for a library.
//!
//! A name without a folder is searched in all folders of `RPATH`, `LD_LIBRARY_PATH` and `RUNPATH`, and the loader itself looks at each folder in
//! which it does not find one. So a program that is staged gets the answer at once: the copy of the only staged file of this name, or the
//! system's library, if none of these folders has one. All other programs, and names that leave a choice, are left to the loader.

use crate::kernel::{self, File};
use crate::staged::{Staged, staged};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_uint, c_void};
use wireup_redirect::{Found, Text, Walk, cache};

/// Flag of a question about the name that the program has used; later ones are about places where it may be.
const ORIGINAL: c_uint = 1;

/// The beginning of the loader's `struct link_map`, which is public.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *mut c_char,
    dynamic: *const Dynamic,
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_RPATH: i64 = 15;
const DT_RUNPATH: i64 = 29;

/// How many answers stay readable: the loader copies each before it asks for the next library.
const ANSWERS: usize = 16;
/// Folders in which libraries are searched. With more of them the loader searches by itself.
const FOLDERS_MAX: usize = 64;

struct State {
    answers: [Text; ANSWERS],
    next: usize,
    /// Paths, one behind the other, each with a zero.
    folders: [u8; 8192],
    len: usize,
    count: usize,
    /// A search goes to folders that are not known here.
    is_open: bool,
    is_staged: Whether,
    cache: Option<&'static [u8]>,
}

/// Zero at first, so that the state takes no room in the library's file.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Whether {
    Unknown = 0,
    Yes,
    No,
}

/// The loader asks one question at a time: it holds a lock.
struct Shared(UnsafeCell<State>);

// SAFETY: as above.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(UnsafeCell::new(State {
    answers: [const { Text::new() }; ANSWERS],
    next: 0,
    folders: [0; 8192],
    len: 0,
    count: 0,
    is_open: false,
    is_staged: Whether::Unknown,
    cache: None,
}));

fn state() -> &'static mut State {
    // SAFETY: only the functions that the loader calls use it, one at a time, and none keeps it.
    unsafe { &mut *STATE.0.get() }
}

#[unsafe(no_mangle)]
extern "C" fn la_version(offered: c_uint) -> c_uint {
    // 0: the loader goes on without this library. What is used here is the same in all versions of its interface.
    if staged().is_some() { offered } else { 0 }
}

/// Gives a library the name of its original, which programs are told (`dladdr`), and learns where it searches for others.
///
/// # Safety
/// `object` is one of the loader's.
#[unsafe(no_mangle)]
unsafe extern "C" fn la_objopen(object: *mut c_void, _namespace: isize, _cookie: *mut usize) -> c_uint {
    let Some(staged) = staged() else { return 0 };
    // SAFETY: guaranteed by the caller.
    let object = unsafe { &mut *object.cast::<LinkMap>() };
    if object.name.is_null() {
        return 0;
    }
    // SAFETY: the loader's names end with a zero.
    let name = unsafe { CStr::from_ptr(object.name) }.to_bytes();
    if let Some(original) = staged.map.original(name).filter(|original| !original.is_empty()) {
        // SAFETY: it is the end of the same memory, which the loader has made for this name, with the zero.
        unsafe { core::ptr::copy(original.as_ptr(), object.name.cast(), original.len() + 1) };
    }
    // SAFETY: the dynamic section ends with a null.
    unsafe { state().learn(staged, object) };
    0
}

/// # Safety
/// `name` ends with a zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn la_objsearch(name: *const c_char, _cookie: *mut usize, flag: c_uint) -> *const c_char {
    let Some(staged) = staged() else { return name };
    if name.is_null() {
        return name;
    }
    // SAFETY: guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(name) }.to_bytes();
    if !text.contains(&b'/') {
        return if flag == ORIGINAL { state().library(staged, text).unwrap_or(name) } else { name };
    }
    let mut walk = Walk::new();
    match staged.resolve(&mut walk, text, None, true) {
        Found::Unknown => name,
        // One place of many: it is not there.
        Found::Absent if flag != ORIGINAL => core::ptr::null(),
        Found::Copy if flag != ORIGINAL && kernel::exists(walk.copy()).is_err() => core::ptr::null(),
        Found::Absent | Found::Copy => state().answer(walk.copy().to_bytes()).unwrap_or(name),
        Found::Original | Found::Folder => state().answer(walk.original().to_bytes()).unwrap_or(name),
    }
}

impl State {
    fn answer(&mut self, path: &[u8]) -> Option<*const c_char> {
        self.next = (self.next + 1) % ANSWERS;
        let answer = &mut self.answers[self.next];
        answer.cut(0);
        answer.push(path)?;
        Some(answer.as_ptr())
    }

    /// Where the library of this name is.
    fn library(&mut self, staged: &Staged, name: &[u8]) -> Option<*const c_char> {
        if self.is_staged == Whether::Unknown {
            self.is_staged = if is_staged(staged) { Whether::Yes } else { Whether::No };
        }
        if self.is_staged == Whether::No {
            return None;
        }
        let mut walk = Walk::new();
        if let Some(path) = staged.map.library_named(name) {
            let folder = &path[..path.len().saturating_sub(name.len() + 1)];
            let is_alone = !self.is_open && self.lacks(staged, &mut walk, name, folder);
            let is_copy = is_alone && staged.resolve(&mut walk, path, None, true) == Found::Copy;
            let is_there = is_copy && kernel::permits(walk.copy(), libc::R_OK).is_ok();
            return if is_there { self.answer(walk.copy().to_bytes()) } else { None };
        }
        if self.is_open || !self.lacks(staged, &mut walk, name, b"") {
            return None;
        }
        let cache = *self.cache.get_or_insert_with(|| {
            File::open(c"/etc/ld.so.cache").ok().and_then(|file| file.map()).unwrap_or_default()
        });
        let path = CStr::from_bytes_with_nul(cache::find(cache, name)?).ok()?;
        kernel::permits(path, libc::R_OK).is_ok().then(|| self.answer(path.to_bytes()))?
    }

    /// Whether no folder in which libraries are searched, but this one, has one of this name, nor folders for certain processors.
    fn lacks(&self, staged: &Staged, walk: &mut Walk, name: &[u8], but: &[u8]) -> bool {
        const SPECIAL: [&[u8]; 6] = [b"glibc-hwcaps", b"tls", b"haswell", b"x86_64", b"aarch64", b"atomics"];
        let own = self.folders[..self.len].split(|byte| *byte == 0).filter(|folder| !folder.is_empty());
        let environment = staged.search.split(|byte| [b':', b';'].contains(byte));
        let environment = environment.filter(|_| !staged.search.is_empty());
        let mut path = Text::new();
        own.chain(environment).filter(|folder| *folder != but).all(|folder| {
            folder.starts_with(b"/")
                && !folder.contains(&b'$')
                && SPECIAL.iter().chain(&[name]).all(|name| {
                    path.cut(0);
                    let whole = path.push(folder).and_then(|()| path.push(b"/")).and_then(|()| path.push(name));
                    whole.is_some() && !exists(staged, walk, &path)
                })
        })
    }

    /// # Safety
    /// The dynamic section ends with a null.
    unsafe fn learn(&mut self, staged: &Staged, object: &LinkMap) {
        let (mut strings, mut paths) = (0, [0; 2]);
        let mut entry = object.dynamic;
        // SAFETY: guaranteed by the caller.
        while let Some(found) = unsafe { entry.as_ref() }.filter(|entry| entry.tag != DT_NULL) {
            match found.tag {
                DT_STRTAB => strings = found.value,
                DT_RPATH => paths[0] = found.value,
                DT_RUNPATH => paths[1] = found.value,
                _ => {}
            }
            // SAFETY: this was not the end.
            entry = unsafe { entry.add(1) };
        }
        if strings < object.address {
            // The loader has not made an address of it.
            strings += object.address;
        }
        for offset in paths.into_iter().filter(|offset| *offset != 0) {
            // SAFETY: the loader has mapped the object's strings, which end with zeros.
            let folders = unsafe { CStr::from_ptr((strings + offset) as *const c_char) }.to_bytes();
            // SAFETY: the loader's names end with a zero.
            let name = unsafe { CStr::from_ptr(object.name) }.to_bytes();
            for folder in folders.split(|byte| *byte == b':') {
                if self.add(staged, folder, name).is_none() {
                    self.is_open = true;
                }
            }
        }
    }

    /// Notes a folder; `None`: it is not known which.
    fn add(&mut self, staged: &Staged, folder: &[u8], object: &[u8]) -> Option<()> {
        let mut path = Text::new();
        let rest = match folder.strip_prefix(b"$ORIGIN").or_else(|| folder.strip_prefix(b"${ORIGIN}")) {
            Some(rest) => {
                match object.is_empty() {
                    true => running(staged, &mut path)?,
                    false => path.push(object)?,
                }
                let slash = path.as_bytes().iter().rposition(|byte| *byte == b'/')?;
                path.cut(slash);
                rest
            }
            None => folder,
        };
        path.push(rest)?;
        let path = path.as_bytes();
        if !path.starts_with(b"/") || path.contains(&b'$') {
            return None;
        }
        if self.folders[..self.len].split(|byte| *byte == 0).any(|known| known == path) {
            return Some(());
        }
        let end = self.len + path.len() + 1;
        if end > self.folders.len() || self.count == FOLDERS_MAX {
            return None;
        }
        self.folders[self.len..end - 1].copy_from_slice(path);
        self.folders[end - 1] = 0;
        (self.len, self.count) = (end, self.count + 1);
        Some(())
    }
}

fn exists(staged: &Staged, walk: &mut Walk, path: &Text) -> bool {
    let path = path.from(0);
    let there = match staged.resolve(walk, path.to_bytes(), None, true) {
        Found::Absent => return false,
        Found::Copy => kernel::exists(walk.copy()),
        // The loader would look there too.
        Found::Unknown => kernel::exists(path),
        Found::Original | Found::Folder => kernel::exists(walk.original()),
    };
    !matches!(there, Err(libc::ENOENT | libc::ENOTDIR))
}

/// The path of the running program, as the user has named it.
fn running(staged: &Staged, into: &mut Text) -> Option<()> {
    into.fill(|into| usize::try_from(kernel::read_link(c"/proc/self/exe", into)).ok())?;
    if staged.map.original(into.as_bytes()).is_some() {
        into.replace_begin(staged.map.tree().len(), b"")?;
    }
    Some(())
}

/// Whether the running program is staged: others find their own libraries.
fn is_staged(staged: &Staged) -> bool {
    let (mut path, mut walk) = (Text::new(), Walk::new());
    running(staged, &mut path).is_some()
        && staged.resolve(&mut walk, path.as_bytes(), None, true) == Found::Copy
}

