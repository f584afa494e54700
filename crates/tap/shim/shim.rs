//! The library that a rank preloads: counts and times the rank's calls of the PMIx library, each of which is passed on
//! unchanged.
//!
//! It needs no other library, allocates nothing and writes only to the shared page (`page`). The functions that it
//! calls are those of the rank's own C library; they are weak symbols, because in older C libraries `dlsym` is in a
//! separate library.
#![no_std]
#![allow(non_snake_case, reason = "the names of the PMIx library")]

mod caller;
mod lookup;
#[path = "../src/page.rs"]
mod page;

use caller::outer;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use lookup::real;
use page::{Family, MAGIC, PAGE_BYTES, Page};

type Status = c_int;
type OpDone = Option<unsafe extern "C" fn(Status, *mut c_void)>;

const SUCCESS: Status = 0;
/// `PMIX_ERR_NOT_SUPPORTED`, the result if the PMIx library has no function of the name.
const NOT_SUPPORTED: Status = -47;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn mmap(at: *mut c_void, length: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    fn abort() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: `abort` only ends the process.
    unsafe { abort() }
}

/// The shared page; null: there is none, so no calls are counted.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(null_mut());
/// Time at which the loader had loaded this process's initial libraries (ns).
static LOADED_NS: AtomicU64 = AtomicU64::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Runs when the initial libraries of the process are loaded, before the program's own code.
extern "C" fn start() {
    const O_RDWR_CLOEXEC: c_int = 2 | 0o2_000_000;
    const READ_WRITE: c_int = 1 | 2;
    const SHARED: c_int = 1;
    // SAFETY: the strings end in 0; the mapping is as long as a page and is never unmapped.
    unsafe {
        let path = getenv(c"WIREUP_TAP_PAGE".as_ptr());
        if path.is_null() {
            return;
        }
        let fd = open(path, O_RDWR_CLOEXEC);
        if fd < 0 {
            return;
        }
        let at = mmap(null_mut(), PAGE_BYTES, READ_WRITE, SHARED, fd, 0);
        close(fd);
        if at as isize == -1 {
            return;
        }
        let page = at.cast::<Page>();
        if (*page).magic.load(Relaxed) == MAGIC {
            LOADED_NS.store(now_ns(), Relaxed);
            PAGE.store(page, Release);
        }
    }
}

fn page() -> Option<&'static Page> {
    // SAFETY: the pointer is null or that of the mapping, which is never unmapped and only accessed by atomics.
    unsafe { PAGE.load(Acquire).as_ref() }
}

fn now_ns() -> u64 {
    const MONOTONIC: c_int = 1;
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: `time` is a writable `timespec`.
    unsafe { clock_gettime(MONOTONIC, &mut time) };
    (time.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(time.nanoseconds as u64)
}

/// Calls the PMIx library's function of this name and type.
macro_rules! real {
    ($name:literal, fn($($argument:ident: $type:ty),* $(,)?)) => {{
        static KEPT: AtomicUsize = AtomicUsize::new(0);
        let found = real($name, &KEPT);
        if found == 0 {
            return NOT_SUPPORTED;
        }
        // SAFETY: the PMIx library's function of this name has this type.
        let function: unsafe extern "C" fn($($type),*) -> Status = unsafe { core::mem::transmute(found) };
        // SAFETY: the arguments are passed on from the caller.
        unsafe { function($($argument),*) }
    }};
}

/// Makes a call and counts it, unless it is nested in another PMIx call.
fn timed(family: Family, call: impl FnOnce() -> Status) -> Status {
    let Some((page, _mark)) = outer() else { return call() };
    let from_ns = now_ns();
    page.first(from_ns);
    let status = call();
    page.add(family, 0, 0, from_ns, now_ns());
    status
}

#[unsafe(no_mangle)]
extern "C" fn PMIx_Init(process: *mut c_void, infos: *mut c_void, count: usize) -> Status {
    let is_new = caller::claim();
    if is_new {
        caller::clean_environment();
    }
    if let Some(page) = page().filter(|_| is_new) {
        page.loaded_ns.store(LOADED_NS.load(Relaxed), Relaxed);
    }
    timed(Family::Init, || real!(c"PMIx_Init", fn(process: *mut c_void, infos: *mut c_void, count: usize)))
}

#[unsafe(no_mangle)]
extern "C" fn PMIx_Finalize(infos: *const c_void, count: usize) -> Status {
    if let Some((page, _mark)) = outer() {
        // Several libraries of a process may initialise and finalize PMIx in sequence: the last time is kept.
        page.finalize_ns.store(now_ns(), Relaxed);
    }
    timed(Family::Finalize, || real!(c"PMIx_Finalize", fn(infos: *const c_void, count: usize)))
}

/// `pmix_value_t`: the type, then a union of which only two members are read.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Data {
    text: *const c_char,
    bytes: Bytes,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Bytes {
    start: *const c_char,
    length: usize,
}

/// The length in bytes of a value that is a text or a byte object; 0 for other values.
///
/// # Safety
/// `value` is null or a value of the PMIx library.
unsafe fn length(value: *const Value) -> u64 {
    const STRING: u16 = 3;
    const BYTE_OBJECT: u16 = 27;
    // SAFETY: as the caller promises; the type says which part of the union is valid.
    unsafe {
        match value.as_ref() {
            Some(value) if value.kind == STRING && !value.data.text.is_null() => {
                CStr::from_ptr(value.data.text).count_bytes() as u64
            }
            Some(value) if value.kind == BYTE_OBJECT => value.data.bytes.length as u64,
            _ => 0,
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn PMIx_Put(scope: u8, key: *const c_char, value: *mut c_void) -> Status {
    let call = || real!(c"PMIx_Put", fn(scope: u8, key: *const c_char, value: *mut c_void));
    let Some((page, _mark)) = outer() else { return call() };
    // SAFETY: the caller passes a valid `pmix_value_t` or null.
    let sent = unsafe { length(value.cast()) };
    let from_ns = now_ns();
    let status = call();
    page.add(Family::Put, sent, 0, from_ns, now_ns());
    status
}

#[unsafe(no_mangle)]
extern "C" fn PMIx_Commit() -> Status {
    timed(Family::Commit, || real!(c"PMIx_Commit", fn()))
}

#[unsafe(no_mangle)]
extern "C" fn PMIx_Get(
    process: *const c_void,
    key: *const c_char,
    infos: *const c_void,
    count: usize,
    value: *mut *mut c_void,
) -> Status {
    let call = || {
        real!(
            c"PMIx_Get",
            fn(process: *const c_void, key: *const c_char, infos: *const c_void, count: usize, value: *mut *mut c_void)
        )
    };
    let Some((page, _mark)) = outer() else { return call() };
    let from_ns = now_ns();
    let status = call();
    let to_ns = now_ns();
    // SAFETY: on success the library has stored a pointer to a value in `*value`.
    let received = if status == SUCCESS && !value.is_null() { unsafe { length((*value).cast()) } } else { 0 };
    page.add(Family::Get, 0, received, from_ns, to_ns);
    status
}

/// `pmix_proc_t`.
#[repr(C)]
struct Process {
    namespace: [c_char; 256],
    rank: u32,
}

/// Whether a fence is one of all ranks: without a list of processes, or with one entry for all ranks.
///
/// # Safety
/// `processes` is null or has `count` entries.
unsafe fn is_of_all(processes: *const Process, count: usize) -> bool {
    const WILDCARD: u32 = u32::MAX - 1;
    // SAFETY: as the caller promises.
    processes.is_null() || count == 0 || (count == 1 && unsafe { (*processes).rank } == WILDCARD)
}

#[unsafe(no_mangle)]
extern "C" fn PMIx_Fence(processes: *const c_void, count: usize, infos: *const c_void, info_count: usize) -> Status {
    let call =
        || real!(c"PMIx_Fence", fn(processes: *const c_void, count: usize, infos: *const c_void, info_count: usize));
    // SAFETY: the caller passes a list with `count` entries, or null.
    let of_all = unsafe { is_of_all(processes.cast(), count) };
    if !of_all {
        return timed(Family::Other, call);
    }
    let Some((page, _mark)) = outer() else { return call() };
    let from_ns = now_ns();
    let number = page.fence_begins(from_ns);
    let status = call();
    page.fence_ends(number, from_ns, now_ns());
    status
}

/// A non-blocking fence that has not completed; its callback notes its end.
struct Pending {
    /// 0: the entry is free; 1: it is in use.
    state: AtomicUsize,
    done: AtomicUsize,
    data: AtomicPtr<c_void>,
    number: AtomicUsize,
    from_ns: AtomicU64,
}

const PENDING_MAX: usize = 32;
static PENDING: [Pending; PENDING_MAX] = [const {
    Pending {
        state: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        data: AtomicPtr::new(null_mut()),
        number: AtomicUsize::new(0),
        from_ns: AtomicU64::new(0),
    }
}; PENDING_MAX];

unsafe extern "C" fn fence_done(status: Status, pending: *mut c_void) {
    // SAFETY: the pointer is that of a static entry, which `PMIx_Fence_nb` has filled in.
    let pending = unsafe { &*pending.cast::<Pending>() };
    if let Some(page) = page() {
        page.fence_ends(pending.number.load(Relaxed), pending.from_ns.load(Relaxed), now_ns());
    }
    let (done, data) = (pending.done.load(Relaxed), pending.data.load(Relaxed));
    pending.state.store(0, Release);
    // SAFETY: the function is the caller's own callback, which is not null.
    unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(Status, *mut c_void)>(done)(status, data) };
}

#[unsafe(no_mangle)]
extern "C" fn PMIx_Fence_nb(
    processes: *const c_void,
    count: usize,
    infos: *const c_void,
    info_count: usize,
    done: OpDone,
    data: *mut c_void,
) -> Status {
    let call = |done: OpDone, data: *mut c_void| {
        real!(
            c"PMIx_Fence_nb",
            fn(
                processes: *const c_void,
                count: usize,
                infos: *const c_void,
                info_count: usize,
                done: OpDone,
                data: *mut c_void,
            )
        )
    };
    // SAFETY: the caller passes a list with `count` entries, or null.
    let of_all = unsafe { is_of_all(processes.cast(), count) };
    let (Some(own), true) = (done, of_all) else { return call(done, data) };
    let Some((page, _mark)) = outer() else { return call(Some(own), data) };
    let from_ns = now_ns();
    let free = PENDING.iter().find(|pending| pending.state.compare_exchange(0, 1, Acquire, Relaxed).is_ok());
    let Some(pending) = free else { return call(done, data) };
    let number = page.fence_begins(from_ns);
    pending.done.store(own as usize, Relaxed);
    pending.data.store(data, Relaxed);
    pending.number.store(number, Relaxed);
    pending.from_ns.store(from_ns, Release);
    let status = call(Some(fence_done), (&raw const *pending).cast_mut().cast());
    if status != SUCCESS {
        // The fence has completed at once, or has failed: its callback will not be called.
        page.fence_ends(number, from_ns, now_ns());
        pending.state.store(0, Release);
    }
    status
}

#[unsafe(no_mangle)]
extern "C" fn PMIx_Connect(processes: *const c_void, count: usize, infos: *const c_void, info_count: usize) -> Status {
    timed(Family::Other, || {
        real!(c"PMIx_Connect", fn(processes: *const c_void, count: usize, infos: *const c_void, info_count: usize))
    })
}
