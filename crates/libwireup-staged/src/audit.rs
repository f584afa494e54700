//! Tells the dynamic loader which file to open for a library (`LD_AUDIT`, see rtld-audit(7)).
//!
//! A library name without a slash is searched in the directories of `RPATH`, `LD_LIBRARY_PATH` and `RUNPATH`, and then
//! in the system's list. The loader itself would check each of these directories in the file system. So for a staged
//! program this library searches in the same order (`search`) and gives the loader the result. If it lacks information
//! for the search, the loader searches by itself.

use crate::arguments::{CText, interposed};
use crate::kernel::{self, File};
use crate::search::{Folders, Has, first};
use crate::staged::{Staged, staged};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_uint, c_void};
use wireup_redirect::{Found, Text, Walk, cache};

/// `LA_SER_ORIG`: the loader passes the name as the object states it, not a path that it tries for this name.
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

/// Number of results that stay valid: the loader copies each one before it asks for the next library.
const ANSWERS: usize = 16;

struct State {
    answers: [Text; ANSWERS],
    next: usize,
    folders: Folders,
    is_staged: Whether,
    cache: Option<&'static [u8]>,
}

/// A truth value, if known. `Unknown` is 0, so that the initial state lies in `.bss` and not in the library's file.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Whether {
    Unknown = 0,
    Yes,
    No,
}

/// State of the audit functions. The loader calls only one of them at a time, because it holds a lock.
struct Shared(UnsafeCell<State>);

// SAFETY: only the audit functions use the state, and the loader calls one at a time.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(UnsafeCell::new(State {
    answers: [const { Text::new() }; ANSWERS],
    next: 0,
    folders: Folders::new(),
    is_staged: Whether::Unknown,
    cache: None,
}));

fn state() -> &'static mut State {
    // SAFETY: only the audit functions use the state; the loader calls one at a time, and none keeps the reference.
    unsafe { &mut *STATE.0.get() }
}

interposed! {
    fn la_version(offered: c_uint) -> c_uint {
        // The result 0 turns auditing off. All versions of the audit interface have what is used here, but on aarch64
        // version 1 does not save the registers in which functions receive large values.
        let is_safe = cfg!(not(target_arch = "aarch64")) || offered >= 2;
        if is_safe && staged().is_some() { offered } else { 0 }
    }

    /// Renames a copied library in the loader to its original, so that `dladdr` reports that path, and notes the
    /// directories in which this library's own dependencies are searched.
    fn la_objopen(object: *mut c_void, _namespace: isize, cookie: *mut usize) -> c_uint {
        let Some(staged) = staged() else { return 0 };
        // SAFETY: the loader passes one of its objects, whose name ends with a zero, and whose dynamic section ends
        // with a null. The original's name is the end of the same memory, which the loader has made for this name. The
        // cookie is memory of the loader, or null.
        unsafe {
            let object = &mut *object.cast::<LinkMap>();
            if object.name.is_null() {
                return 0;
            }
            let name = CStr::from_ptr(object.name).to_bytes();
            if let Some(original) = staged.map.original(name).filter(|original| !original.is_empty()) {
                core::ptr::copy(original.as_ptr(), object.name.cast(), original.len() + 1);
            }
            learn(staged, object, cookie.as_ref().copied().unwrap_or_default());
        }
        0
    }

    fn la_objsearch(name: CText<'_>, cookie: *mut usize, flag: c_uint) -> *const c_char {
        let given = name.as_ptr();
        let (Some(staged), Some(text)) = (staged(), name.bytes()) else { return given };
        if text.contains(&b'$') {
            // The loader has not yet expanded `$ORIGIN` or similar in this name.
            return given;
        }
        if !text.contains(&b'/') {
            // SAFETY: the loader passes a pointer to a cookie of its own, which holds a number for the object, or null.
            let object = unsafe { cookie.as_ref() }.filter(|_| flag == ORIGINAL);
            return object.and_then(|object| state().library(staged, text, *object)).unwrap_or(given);
        }
        let mut walk = Walk::new();
        match staged.resolve(&mut walk, text, None, true) {
            Found::Unknown => given,
            // If the file does not exist, its copy does not exist either: with the copy's path the loader fails to open
            // it and searches on. A null result would end the search, depending on `errno`.
            Found::Absent | Found::Copy if is_reachable(staged) => {
                state().answer(walk.copy().to_bytes()).unwrap_or(given)
            }
            Found::Absent | Found::Copy => given,
            Found::Original | Found::Folder => state().answer(walk.original().to_bytes()).unwrap_or(given),
        }
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

    /// The path of the library `name` for the object that requests it; `None`: the loader must search.
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

/// Notes the directories in which the loader searches for the dependencies of an object.
///
/// # Safety
/// The object's name ends with a zero, its dynamic section with a null, and the loader has mapped its strings.
unsafe fn learn(staged: &Staged, object: &LinkMap, cookie: usize) {
    let (mut strings, mut rpath, mut runpath) = (0, 0, 0);
    let mut entry = object.dynamic;
    // SAFETY: guaranteed by the caller: nothing after the `DT_NULL` entry is read.
    while let Some(found) = unsafe { entry.as_ref() }.filter(|entry| entry.tag != DT_NULL) {
        match found.tag {
            DT_STRTAB => strings = found.value,
            DT_RPATH => rpath = found.value,
            DT_RUNPATH => runpath = found.value,
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    if strings < object.address {
        // The value is still an offset: the loader has not yet added the object's base address.
        strings += object.address;
    }
    // The loader ignores `RPATH` if there is a `RUNPATH`.
    let offset = if runpath == 0 { rpath } else { runpath };
    let folders = &mut state().folders;
    folders.forget(cookie);
    if offset == 0 {
        return;
    }
    // SAFETY: guaranteed by the caller.
    let (name, list) = unsafe { (CStr::from_ptr(object.name), CStr::from_ptr((strings + offset) as *const c_char)) };
    let (name, list) = (name.to_bytes(), list.to_bytes());
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

/// Whether the copies can still be reached at their paths, which is not the case after `chroot`.
fn is_reachable(staged: &Staged) -> bool {
    let mut tree = Text::new();
    tree.push(staged.map.tree()).is_some() && kernel::permits(tree.from(0), libc::F_OK).is_ok()
}

/// The path of the running program: if it is a copy, the path of its original.
fn running(staged: &Staged, into: &mut Text) -> Option<()> {
    into.fill(|into| kernel::read_link(c"/proc/self/exe", into))?;
    if staged.map.original(into.as_bytes()).is_some() {
        into.replace_begin(staged.map.tree().len(), b"")?;
    }
    Some(())
}

/// Whether the running program is staged; for other programs the loader searches libraries itself.
fn is_staged(staged: &Staged) -> bool {
    let (mut path, mut walk) = (Text::new(), Walk::new());
    running(staged, &mut path).is_some() && staged.resolve(&mut walk, path.as_bytes(), None, true) == Found::Copy
}
