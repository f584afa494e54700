//! What the loader of programs asks (`LD_AUDIT`, rtld-audit(7)): which file it opens for a library.
//!
//! A name without a folder is searched in the folders of `RPATH`, `LD_LIBRARY_PATH` and `RUNPATH`, and then in the
//! system's list. The loader itself looks whether each of these folders exists. So for a staged program the search is
//! made here, in the same order (`search`), and the loader gets its result. Where something is not known here, it
//! searches by itself.

use crate::kernel::{self, File};
use crate::search::{Folders, Has, first};
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

struct State {
    answers: [Text; ANSWERS],
    next: usize,
    folders: Folders,
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
    folders: Folders::new(),
    is_staged: Whether::Unknown,
    cache: None,
}));

fn state() -> &'static mut State {
    // SAFETY: only the functions that the loader calls use it, one at a time, and none keeps it.
    unsafe { &mut *STATE.0.get() }
}

#[unsafe(no_mangle)]
extern "C" fn la_version(offered: c_uint) -> c_uint {
    // 0: the loader goes on without its questions. What is used here is the same in all versions of its interface, but
    // on these processors the first one loses registers in which functions get large values.
    let is_safe = cfg!(not(target_arch = "aarch64")) || offered >= 2;
    if is_safe && staged().is_some() { offered } else { 0 }
}

/// Gives a library the name of its original, which programs are told (`dladdr`), and learns where it searches for
/// others.
///
/// # Safety
/// `object` is one of the loader's.
#[unsafe(no_mangle)]
unsafe extern "C" fn la_objopen(object: *mut c_void, _namespace: isize, cookie: *mut usize) -> c_uint {
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
    // SAFETY: guaranteed by the caller; the dynamic section ends with a null.
    unsafe { learn(staged, object, *cookie) };
    0
}

/// # Safety
/// `name` ends with a zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn la_objsearch(name: *const c_char, cookie: *mut usize, flag: c_uint) -> *const c_char {
    let Some(staged) = staged() else { return name };
    if name.is_null() {
        return name;
    }
    // SAFETY: guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(name) }.to_bytes();
    if text.contains(&b'$') {
        // The loader has not yet put in what this stands for.
        return name;
    }
    if !text.contains(&b'/') {
        if flag != ORIGINAL || cookie.is_null() {
            return name;
        }
        // SAFETY: guaranteed by the caller.
        return state().library(staged, text, unsafe { *cookie }).unwrap_or(name);
    }
    let mut walk = Walk::new();
    match staged.resolve(&mut walk, text, None, true) {
        Found::Unknown => name,
        // What is not there is not there among the copies either. No answer at all would end the search: the loader
        // looks at `errno` then.
        Found::Absent | Found::Copy if is_reachable(staged) => state().answer(walk.copy().to_bytes()).unwrap_or(name),
        Found::Absent | Found::Copy => name,
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

    /// Where the library of this name is, for an object that asks for it.
    fn library(&mut self, staged: &Staged, name: &[u8], object: usize) -> Option<*const c_char> {
        if self.is_staged == Whether::Unknown {
            self.is_staged = if is_staged(staged) { Whether::Yes } else { Whether::No };
        }
        if self.is_staged == Whether::No {
            return None;
        }
        let mut walk = Walk::new();
        match first(&self.folders, staged, &mut walk, object, name) {
            Has::Copy => return self.answer(walk.copy().to_bytes()),
            Has::Unknown => return None,
            Has::Nothing => {}
        }
        let cache = *self.cache.get_or_insert_with(|| {
            File::open(c"/etc/ld.so.cache").ok().and_then(|file| file.map()).unwrap_or_default()
        });
        let path = CStr::from_bytes_with_nul(cache::find(cache, name)?).ok()?;
        let path = match staged.resolve(&mut walk, path.to_bytes(), None, true) {
            Found::Copy => walk.copy(),
            _ => path,
        };
        kernel::permits(path, libc::R_OK).is_ok().then(|| self.answer(path.to_bytes()))?
    }
}

/// Notes where an object searches.
///
/// # Safety
/// The dynamic section ends with a null.
unsafe fn learn(staged: &Staged, object: &LinkMap, cookie: usize) {
    let (mut strings, mut rpath, mut runpath) = (0, 0, 0);
    let mut entry = object.dynamic;
    // SAFETY: guaranteed by the caller.
    while let Some(found) = unsafe { entry.as_ref() }.filter(|entry| entry.tag != DT_NULL) {
        match found.tag {
            DT_STRTAB => strings = found.value,
            DT_RPATH => rpath = found.value,
            DT_RUNPATH => runpath = found.value,
            _ => {}
        }
        // SAFETY: this was not the end.
        entry = unsafe { entry.add(1) };
    }
    if strings < object.address {
        // The loader has not made an address of it.
        strings += object.address;
    }
    // SAFETY: the loader's names end with a zero.
    let name = unsafe { CStr::from_ptr(object.name) }.to_bytes();
    let folders = &mut state().folders;
    folders.forget(cookie);
    // The first is of no use where there is the second.
    let offset = if runpath == 0 { rpath } else { runpath };
    if offset == 0 {
        return;
    }
    // SAFETY: the loader has mapped the object's strings, which end with zeros.
    let list = unsafe { CStr::from_ptr((strings + offset) as *const c_char) }.to_bytes();
    let mut origin = Text::new();
    let is_known = match name.is_empty() {
        true => running(staged, &mut origin).is_some(),
        false => origin.push(name).is_some(),
    };
    let slash = origin.as_bytes().iter().rposition(|byte| *byte == b'/').filter(|_| is_known);
    origin.cut(slash.unwrap_or(0));
    for folder in list.split(|byte| *byte == b':') {
        folders.add(cookie, name.is_empty(), runpath != 0, folder, origin.as_bytes());
    }
}

/// Whether the copies are where they were: not after `chroot`.
fn is_reachable(staged: &Staged) -> bool {
    let mut tree = Text::new();
    tree.push(staged.map.tree()).is_some() && kernel::permits(tree.from(0), libc::F_OK).is_ok()
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
    running(staged, &mut path).is_some() && staged.resolve(&mut walk, path.as_bytes(), None, true) == Found::Copy
}
