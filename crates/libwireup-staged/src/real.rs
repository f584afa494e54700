//! What this library needs of the C library: the functions behind those that it replaces, the number of the last error,
//! and the environment.
//!
//! They are weak: where the loader opens this library for its questions there is no C library, and none of them is
//! called. `dlsym` may be missing later, too: before glibc 2.34 it is in a library of its own.

use core::arch::global_asm;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

global_asm!(
    ".weak dlsym",
    ".weak __errno_location",
    ".weak environ",
    // The compiler takes the address of a function for one that is not null: this one is read.
    ".pushsection .data.rel,\"aw\"",
    ".balign 8",
    ".globl wireup_staged_dlsym",
    ".hidden wireup_staged_dlsym",
    "wireup_staged_dlsym: .quad dlsym",
    ".popsection",
);

unsafe extern "C" {
    static wireup_staged_dlsym: AtomicUsize;
    /// The table of all [`Real`]s: the linker defines its ends.
    static __start_wireup_real: u8;
    static __stop_wireup_real: u8;
    fn __errno_location() -> *mut c_int;
    static environ: *const *const c_char;
}

/// A function of the C library. All are looked up when this library is initialized: a look-up takes the loader's lock,
/// which another thread may hold that waits for the one that calls.
pub struct Real {
    name: &'static CStr,
    at: AtomicPtr<libc::c_void>,
}

/// A function of the C library with this name, as an entry of the table.
macro_rules! real {
    ($name:expr) => {{
        // Also in ways that the compiler does not see: by the ends of the table.
        #[used]
        #[unsafe(link_section = "wireup_real")]
        static REAL: $crate::real::Real = $crate::real::Real::named($name);
        &REAL
    }};
}
pub(crate) use real;

/// Set when the table is complete. Before, the C library's look-up of a function may need memory of an allocator that
/// is just opening files.
static IS_READY: AtomicBool = AtomicBool::new(false);

extern "C" fn ready() {
    let ends = [&raw const __start_wireup_real, &raw const __stop_wireup_real];
    let [mut next, end] = ends.map(|end| end.cast::<Real>());
    while next < end {
        // SAFETY: the linker has put the table together from entries of this type and nothing else.
        unsafe {
            (*next).find();
            next = next.add(1);
        }
    }
    IS_READY.store(true, Ordering::Release);
}

#[used]
#[unsafe(link_section = ".init_array")]
static READY: extern "C" fn() = ready;

impl Real {
    pub const fn named(name: &'static CStr) -> Real {
        Real { name, at: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// `None`: it is too early, or this C library has no such function.
    pub fn known(&self) -> Option<*mut libc::c_void> {
        let known = self.at.load(Ordering::Relaxed);
        (!known.is_null()).then_some(known)
    }

    /// Null: this C library has no such function. Only what runs before the table is complete, when there is one
    /// thread, looks here.
    pub fn get(&self) -> *mut libc::c_void {
        let known = self.at.load(Ordering::Relaxed);
        if known.is_null() && !IS_READY.load(Ordering::Acquire) { self.find() } else { known }
    }

    fn find(&self) -> *mut libc::c_void {
        // SAFETY: the loader has put the function's address there before anything here runs, or null.
        let dlsym = unsafe { wireup_staged_dlsym.load(Ordering::Relaxed) };
        if dlsym == 0 {
            return core::ptr::null_mut();
        }
        type Find = unsafe extern "C" fn(*mut libc::c_void, *const c_char) -> *mut libc::c_void;
        // SAFETY: the C library's function of this name has these parameters, and the name ends with a zero.
        let found = unsafe { core::mem::transmute::<usize, Find>(dlsym)(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.at.store(found, Ordering::Relaxed);
        found
    }
}

/// What a call that failed returns; the caller finds the number of the error in `errno`.
pub fn fail(number: c_int) -> c_int {
    // SAFETY: it points to this thread's number for as long as the thread exists.
    unsafe { *__errno_location() = number };
    -1
}

/// The result of a system call as the C library returns it.
pub fn returned(result: isize) -> isize {
    match c_int::try_from(-result) {
        Ok(number @ 1..) => fail(number) as isize,
        Ok(_) | Err(_) => result,
    }
}

/// Memory from the C library, which the caller frees; null if there is none.
pub fn allocate(bytes: usize) -> *mut c_char {
    let malloc = real!(c"malloc").get();
    if malloc.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: the C library's function of this name has this parameter.
    let malloc: unsafe extern "C" fn(usize) -> *mut c_char = unsafe { core::mem::transmute(malloc) };
    // SAFETY: any length is permitted.
    unsafe { malloc(bytes) }
}

pub fn last_error() -> c_int {
    // SAFETY: as in `fail`.
    unsafe { *__errno_location() }
}

pub fn environment() -> *const *const c_char {
    // SAFETY: the C library defines it; it is read once.
    unsafe { environ }
}

/// A variable of the environment as it is now.
pub fn variable(name: &[u8]) -> Option<&'static [u8]> {
    let mut next = environment();
    // SAFETY: the environment is a list of texts that ends with a null; those that use it do not change it at the same
    // time.
    while let Some(entry) = unsafe { next.as_ref() }.filter(|entry| !entry.is_null()) {
        // SAFETY: as above.
        let value =
            unsafe { CStr::from_ptr(*entry) }.to_bytes().strip_prefix(name).and_then(|rest| rest.strip_prefix(b"="));
        if value.is_some() {
            return value;
        }
        // SAFETY: this was not the null at its end.
        next = unsafe { next.add(1) };
    }
    None
}
