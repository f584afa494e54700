//! Decides which PMIx calls are counted: those of the rank's own process, except calls from inside the PMIx library.

use crate::page::Page;
use crate::{lookup, page};
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Most threads that are tracked in calls at the same time; calls nested in those of further threads are also counted.
const THREADS_MAX: usize = 64;
/// Longest value of `LD_PRELOAD` (bytes) from which this library is removed.
const LIST_BYTES: usize = 8192;

unsafe extern "C" {
    fn getpid() -> c_int;
    fn pthread_self() -> usize;
    fn getenv(name: *const c_char) -> *const c_char;
    fn setenv(name: *const c_char, value: *const c_char, replaces: c_int) -> c_int;
    fn unsetenv(name: *const c_char) -> c_int;
}

/// The threads that are in a call of the PMIx library; 0: a free entry.
static INSIDE: [AtomicUsize; THREADS_MAX] = [const { AtomicUsize::new(0) }; THREADS_MAX];

/// Marks this thread as being in a call of the PMIx library until dropped.
pub struct Mark(Option<&'static AtomicUsize>);

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some(entry) = self.0 {
            entry.store(0, Release);
        }
    }
}

/// Marks an outermost call of this thread. `None`: this process is not counted, or the call is nested in another one.
pub fn outer() -> Option<(&'static Page, Mark)> {
    let page = page()?;
    // SAFETY: the functions have no arguments.
    let (process, thread) = unsafe { (getpid() as u64, pthread_self()) };
    if page.pid.load(Relaxed) != process || INSIDE.iter().any(|entry| entry.load(Relaxed) == thread) {
        return None;
    }
    let free = INSIDE.iter().find(|entry| entry.compare_exchange(0, thread, Acquire, Relaxed).is_ok());
    Some((page, Mark(free)))
}

/// Registers this process as the rank, unless a process is registered already. `true`: it was registered by this call.
pub fn claim() -> bool {
    // SAFETY: the function has no arguments.
    page().is_some_and(|page| page.pid.compare_exchange(0, unsafe { getpid() } as u64, Relaxed, Relaxed).is_ok())
}

/// Removes this library from the environment, because programs that the rank starts are not ranks and must not load it.
pub fn clean_environment() {
    // SAFETY: the strings end in 0. The PMIx library changes the environment at this time too, so threads that use it
    // now would have a race anyway.
    unsafe {
        unsetenv(c"WIREUP_TAP_PAGE".as_ptr());
        let list = getenv(c"LD_PRELOAD".as_ptr());
        let Some(own) = lookup::own_file().filter(|_| !list.is_null()) else { return };
        let mut rest = [0; LIST_BYTES];
        match without(CStr::from_ptr(list).to_bytes(), own.to_bytes(), &mut rest) {
            Some(0) => unsetenv(c"LD_PRELOAD".as_ptr()),
            Some(_) => setenv(c"LD_PRELOAD".as_ptr(), rest.as_ptr().cast(), 1),
            None => 0,
        };
    }
}

/// Writes the list without `entry`, and a 0, to `rest`. Returns its length; `None`: `rest` is too short.
fn without(list: &[u8], entry: &[u8], rest: &mut [u8]) -> Option<usize> {
    if list.len() >= rest.len() {
        return None;
    }
    let mut length = 0;
    let others = list.split(|&byte| byte == b':' || byte == b' ').filter(|other| !other.is_empty() && *other != entry);
    for other in others {
        if length > 0 {
            *rest.get_mut(length)? = b':';
            length += 1;
        }
        rest.get_mut(length..length + other.len())?.copy_from_slice(other);
        length += other.len();
    }
    *rest.get_mut(length)? = 0;
    Some(length)
}
