//! The staged files of this process, and which file a path means to it.

use crate::arguments::CText;
use crate::kernel::{self, File};
use core::ffi::{CStr, c_int};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use wireup_redirect::walk::System;
use wireup_redirect::{Found, Map, Text, Walk, resolve};

/// The environment variable that contains the path of the map.
const VARIABLE: &[u8] = b"WIREUP_STAGED=";
/// Most bytes of an environment that is read: as much as the kernel passes on to a program at most, with the usual
/// stack limit.
const ENVIRONMENT_MAX: usize = 4 << 20;

/// The staged files of this process, created once and never freed.
pub struct Staged {
    pub map: Map<'static>,
    /// The environment entry `WIREUP_STAGED=…`.
    pub variable: &'static CStr,
    /// The value of `LD_LIBRARY_PATH` at program start.
    pub search: &'static [u8],
}

static STAGED: AtomicPtr<Staged> = AtomicPtr::new(ptr::null_mut());
/// A variable whose address in [`STAGED`] means that nothing is staged.
static NOTHING: u64 = 0;

fn nothing() -> *mut Staged {
    (&raw const NOTHING).cast_mut().cast()
}

/// `None`: nothing is staged for this process.
pub fn staged() -> Option<&'static Staged> {
    let mut known = STAGED.load(Ordering::Acquire);
    if known.is_null() {
        let made = Staged::read().unwrap_or(nothing());
        // If two threads get here at once, the first one's result is used; the memory of the second one is wasted.
        known = match STAGED.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(other) => other,
        };
    }
    // SAFETY: every pointer but that of `NOTHING` was made by `read` and is never freed.
    (known != nothing()).then(|| unsafe { &*known })
}

/// Sets the staged files in a test.
#[cfg(test)]
pub fn install(staged: Staged) {
    STAGED.store(std::boxed::Box::into_raw(std::boxed::Box::new(staged)), Ordering::Release);
}

/// Stops the use of staged files, because from now on file names mean other files than in the map.
pub fn forget() {
    STAGED.store(nothing(), Ordering::Release);
}

impl Staged {
    fn read() -> Option<*mut Staged> {
        // The environment at program start, since the C library may not have set up `environ` yet.
        let file = File::open(c"/proc/self/environ").ok()?;
        let environment = kernel::memory(ENVIRONMENT_MAX)?;
        let len = file.read(environment);
        let environment = environment.get(..len).filter(|_| len < ENVIRONMENT_MAX)?;
        let value = |name: &[u8]| {
            let begins = |entry: &&[u8]| entry.starts_with(name);
            environment.split_inclusive(|byte| *byte == 0).find(begins)
        };
        let variable = CStr::from_bytes_with_nul(value(VARIABLE)?).ok()?;
        let path = CStr::from_bytes_with_nul(&variable.to_bytes_with_nul()[VARIABLE.len()..]).ok()?;
        let map = Map::read(File::open(path).ok()?.map()?)?;
        let mut mounts = [0; 64];
        let len = kernel::read_link(c"/proc/self/ns/mnt", &mut mounts)?;
        if mounts.get(..len)? != map.place() {
            // This process is in another mount namespace, such as a container's: its paths name other files.
            return None;
        }
        let search = b"LD_LIBRARY_PATH=";
        let search =
            value(search).and_then(|entry| entry.strip_prefix(search)?.strip_suffix(b"\0")).unwrap_or_default();
        let kept: *mut Staged = kernel::memory(size_of::<Staged>())?.as_mut_ptr().cast();
        // SAFETY: the memory is large enough, and pages are aligned for every type.
        unsafe { kept.write(Staged { map, variable, search }) };
        Some(kept)
    }

    pub fn resolve(&self, walk: &mut Walk, path: &[u8], folder: Option<&[u8]>, follows: bool) -> Found {
        resolve(&self.map, walk, path, folder, follows, &Kernel)
    }

    /// The original path of an open copy, or of a folder of copies below the root; `path` is room for it.
    pub fn original_of<'t>(&self, fd: c_int, path: &'t mut Text) -> Option<&'t CStr> {
        path.fill(|into| kernel::path_of(fd, into))?;
        self.map.original(path.as_bytes()).filter(|original| !original.is_empty())?;
        Some(path.from(self.map.tree().len()))
    }

    /// Whether an open descriptor is that of a copy, or of a directory of copies.
    pub fn has(&self, fd: c_int) -> bool {
        let mut path = Text::new();
        fd >= 0 && path.fill(|into| kernel::path_of(fd, into)).is_some() && self.map.original(path.as_bytes()).is_some()
    }
}

struct Kernel;

impl System for Kernel {
    fn working_folder(&self, into: &mut [u8]) -> Option<usize> {
        kernel::working_folder(into)
    }

    fn is_folder(&self, path: &CStr) -> bool {
        File::open_as(path, libc::O_PATH | libc::O_DIRECTORY).is_ok()
    }
}

/// Finds what a path means to this process. `folder`: the open directory to which it is relative, or `AT_FDCWD`.
pub fn look(walk: &mut Walk, folder: c_int, path: CText<'_>, follows: bool) -> Found {
    let Some(staged) = staged() else { return Found::Unknown };
    let Some(path) = path.bytes() else { return Found::Unknown };
    if folder == libc::AT_FDCWD || path.starts_with(b"/") || path.is_empty() {
        return staged.resolve(walk, path, None, follows);
    }
    look_from(staged, walk, folder, path, follows)
}

/// A function of its own, so that only calls with an open directory need the stack space for another path.
#[inline(never)]
fn look_from(staged: &Staged, walk: &mut Walk, folder: c_int, path: &[u8], follows: bool) -> Found {
    let mut place = Text::new();
    match place.fill(|into| kernel::path_of(folder, into)) {
        Some(()) => staged.resolve(walk, path, Some(place.as_bytes()), follows),
        None => Found::Unknown,
    }
}

/// The original path of a path among the copies; `None`: the path is not in the tree of copies.
pub fn original(path: &[u8]) -> Option<&[u8]> {
    staged()?.map.original(path).filter(|original| !original.is_empty())
}

/// Whether this path is one of the kernel's names for a copy that is open or running.
#[inline(never)]
pub fn names_open_copy(path: CText<'_>) -> bool {
    let Some(path) = path.text() else { return false };
    let is_of_kernel =
        [&b"/proc/"[..], b"/dev/fd/", b"/dev/std"].iter().any(|begin| path.to_bytes().starts_with(begin));
    let mut target = Text::new();
    if !is_of_kernel || target.fill(|into| kernel::read_link(path, into)).is_none() {
        return false;
    }
    // `/dev/stdin` leads to `/proc/self/fd/0`.
    if target.as_bytes().starts_with(b"/proc/") {
        let mut next = Text::new();
        let _ = next.push(target.as_bytes());
        let _ = target.fill(|into| kernel::read_link(next.from(0), into));
    }
    original(target.as_bytes()).is_some()
}
