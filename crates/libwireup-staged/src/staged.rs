//! What is staged for this process, and which path is opened for a path.

use crate::kernel::{self, File};
use crate::paths::{self, Found, LEN_MAX, PathBuffer};
use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The environment variable that names the folder.
const VARIABLE: &[u8] = b"WIREUP_STAGED=";
/// How many links are followed, as by the kernel.
const LINKS_MAX: u32 = 40;
/// A longer list of names, or environment, is not read. Chosen: thousands of libraries.
const LEN_READ_MAX: usize = 4 << 20;

/// What is staged. It is made once and kept.
pub struct Staged {
    /// Where the copies are: the original path is appended.
    tree: PathBuffer,
    roots: &'static [u8],
}

static STAGED: AtomicPtr<Staged> = AtomicPtr::new(ptr::null_mut());
/// Its address stands for: nothing is staged.
static NOTHING: u8 = 0;

fn nothing() -> *mut Staged {
    (&raw const NOTHING).cast_mut().cast()
}

/// `None`: nothing is staged for this process.
pub fn staged() -> Option<&'static Staged> {
    let mut known = STAGED.load(Ordering::Acquire);
    if known.is_null() {
        let made = Staged::read().unwrap_or(nothing());
        // Of two threads that come here at once, one wins; the other's memory stays unused.
        known = match STAGED.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(other) => other,
        };
    }
    // SAFETY: what is not the sign for nothing was made by `read` and is never freed.
    (known != nothing()).then(|| unsafe { &*known })
}

/// The content of a file; `None`: it cannot be read, is empty or too long.
fn content(path: *const c_char) -> Option<&'static [u8]> {
    let file = File::open(path)?;
    let memory = kernel::memory(LEN_READ_MAX)?;
    let len = file.read(memory);
    (len > 0 && len < LEN_READ_MAX).then_some(&memory[..len])
}

impl Staged {
    fn read() -> Option<*mut Staged> {
        // That of the start: the C library's may not exist yet.
        let environment = content(c"/proc/self/environ".as_ptr())?;
        let folder = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(VARIABLE))?;
        let roots = content(PathBuffer::of(&[folder, b"/roots"])?.as_ptr())?;
        let tree = PathBuffer::of(&[folder, b"/tree"])?;
        let place: *mut Staged = kernel::memory(size_of::<Staged>())?.as_mut_ptr().cast();
        // SAFETY: the memory is large enough, and pages are aligned for every type.
        unsafe { place.write(Staged { tree, roots }) };
        Some(place)
    }

    /// What the user has staged, as [`paths::find`] reads it.
    pub fn roots(&self) -> &'static [u8] {
        self.roots
    }

    /// Where the copy of an original is.
    pub fn copy(&self, original: &[u8]) -> Option<PathBuffer> {
        PathBuffer::of(&[self.tree.as_bytes(), original])
    }

    /// The path to be used in place of this one; `None`: this one. `follows`: whether a link is followed.
    fn instead(&self, path: &[u8], follows: bool) -> Option<PathBuffer> {
        let mut folder = [0; LEN_MAX];
        let len = if path.starts_with(b"/") { 0 } else { kernel::working_folder(&mut folder)? };
        let (mut original, mut climbs) = paths::plain(path, &folder[..len])?;
        let mut is_changed = false;
        if paths::is_within(original.as_bytes(), self.tree.as_bytes()) {
            // Into the tree: what is not there is where it was.
            if exists(&original) {
                return None;
            }
            original = PathBuffer::of(&[&original.as_bytes()[self.tree.as_bytes().len()..]])?;
            is_changed = true;
        }
        for _ in 0..LINKS_MAX {
            if let Some(link) =
                paths::link_of(self.roots, original.as_bytes()).filter(|link| follows || original.as_bytes() != *link)
            {
                let mut target = [0; LEN_MAX];
                let len = read_link(&self.copy(link)?, &mut target)?;
                let path = PathBuffer::of(&[&target[..len], &original.as_bytes()[link.len()..]])?;
                (original, climbs) = paths::plain(path.as_bytes(), paths::parent(link))?;
                is_changed = true;
                continue;
            }
            let found = paths::find(self.roots, original.as_bytes());
            if found == Found::Elsewhere {
                return is_changed.then_some(original);
            }
            let copy = self.copy(original.as_bytes())?;
            if climbs && !exists(&copy) {
                return None;
            }
            let mut target = [0; LEN_MAX];
            let Some(len) = follows.then(|| read_link(&copy, &mut target)).flatten() else { return Some(copy) };
            (original, climbs) = paths::plain(&target[..len], paths::parent(original.as_bytes()))?;
            is_changed = true;
        }
        None
    }
}

fn exists(path: &PathBuffer) -> bool {
    kernel::permits(path.as_ptr(), libc::F_OK)
}

/// Where a link leads; `None`: it is none, or leads too far.
fn read_link(path: &PathBuffer, target: &mut [u8; LEN_MAX]) -> Option<usize> {
    usize::try_from(kernel::read_link(libc::AT_FDCWD, path.as_ptr(), target))
        .ok()
        .filter(|len| (1..LEN_MAX).contains(len))
}

/// The path that is opened in place of this one, relative to the working folder; null stays null.
///
/// # Safety
/// `path` is null, or ends with a zero.
pub unsafe fn instead(path: *const c_char, follows: bool) -> Option<PathBuffer> {
    let staged = staged()?;
    if path.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    staged.instead(path, follows)
}

/// The same for a path that begins at an open folder.
///
/// # Safety
/// As for [`instead`].
pub unsafe fn instead_at(folder: c_int, path: *const c_char, follows: bool) -> Option<PathBuffer> {
    // SAFETY: guaranteed by the caller; a path has at least the zero.
    let is_absolute = !path.is_null() && unsafe { *path } == b'/' as c_char;
    // What is below an open folder of the tree is in the tree.
    // SAFETY: as above.
    (folder == libc::AT_FDCWD || is_absolute).then(|| unsafe { instead(path, follows) }).flatten()
}

/// The original of a path in the tree.
pub fn original(path: &[u8]) -> Option<&[u8]> {
    let tree = staged()?.tree.as_bytes();
    if paths::is_within(path, tree) { path.get(tree.len()..) } else { None }
}
