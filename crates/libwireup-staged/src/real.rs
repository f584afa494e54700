//! What this library needs of the C library: the functions behind those that it replaces, the number of the last error,
//! and the environment.
//!
//! They are weak: where the loader opens this library for its questions there is no C library, and none of them is
//! called. `dlsym` may be missing later, too: before glibc 2.34 it is in a library of its own.

use crate::arguments::{Argument, CText, Words};
use core::arch::global_asm;
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

global_asm!(
    ".weak dlsym", ".weak __errno_location", ".weak environ",
    // The compiler takes the address of a function for one that is not null: this one is read.
    ".pushsection .data.rel,\"aw\"", ".balign 8", ".globl wireup_staged_dlsym", ".hidden wireup_staged_dlsym",
    "wireup_staged_dlsym: .quad dlsym", ".popsection",
);

unsafe extern "C" {
    safe static wireup_staged_dlsym: AtomicUsize;
    /// The table of all [`Real`]s: the linker defines its ends.
    safe static __start_wireup_real: u8;
    safe static __stop_wireup_real: u8;
    safe fn __errno_location() -> *mut c_int;
    static environ: *const *const c_char;
}

/// A function of the C library. All are looked up when this library is initialized: a later look-up could deadlock,
/// since it takes the loader's lock, whose holder may be waiting for the calling thread.
pub struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

/// A [`Real`] with its type.
pub struct Function<F>(&'static Real, PhantomData<F>);

/// The name of a function as a C string.
macro_rules! name {
    ($name:ident) => {
        match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name without zeros"),
        }
    };
}
pub(crate) use name;

/// Adds the C library's function of this name to the table of functions that are looked up; yields it with its type.
macro_rules! real {
    ($name:ident: $type:ty) => {{
        // The compiler sees no use of the entry: `ready` reads the table from its beginning to its end.
        #[used]
        #[unsafe(link_section = "wireup_real")]
        static REAL: $crate::real::Real = $crate::real::Real::named($crate::real::name!($name));
        // SAFETY: the C library's function of this name has this type.
        unsafe { $crate::real::Function::<$type>::of_type(&REAL) }
    }};
}
pub(crate) use real;

/// Calls the C library's function of this name with `argument => its type in C`; `fail`: where there is none.
macro_rules! call_real {
    ($name:ident($($argument:expr => $type:ty),* $(,)?) -> $result:ty, $fail:expr) => {
        match $crate::real::real!($name: unsafe extern "C" fn($($type),*) -> $result).get() {
            // SAFETY: these are the arguments that this library's function of this name has got, whose caller
            // guarantees them; a path among them may be one in their place, which ends with a zero and is still there.
            Some(real) => unsafe { real($($argument),*) },
            None => $fail(libc::ENOSYS),
        }
    };
}
pub(crate) use call_real;

/// Set when the table is complete. Before, the C library's look-up of a function may need memory of an allocator that
/// is just opening files.
static IS_READY: AtomicBool = AtomicBool::new(false);

extern "C" fn ready() {
    let ends = (&raw const __start_wireup_real)..(&raw const __stop_wireup_real);
    let len = (ends.end.addr() - ends.start.addr()) / size_of::<Real>();
    // SAFETY: the linker has put the table together from entries of this type and nothing else, one behind the other.
    let all = unsafe { core::slice::from_raw_parts(ends.start.cast::<Real>(), len) };
    for real in all {
        real.find();
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

    /// Returns the function's address. Shared by functions of all types, which keeps the library small.
    #[inline(never)]
    fn get(&self) -> *mut c_void {
        let known = self.at.load(Ordering::Relaxed);
        if known.is_null() && !IS_READY.load(Ordering::Acquire) { self.find() } else { known }
    }

    fn find(&self) -> *mut c_void {
        let dlsym = wireup_staged_dlsym.load(Ordering::Relaxed);
        if dlsym == 0 {
            return core::ptr::null_mut();
        }
        type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
        // SAFETY: the loader has put the address of the C library's function of this name there before anything here
        // runs, or null; it has these parameters, and the name ends with a zero.
        let found = unsafe { core::mem::transmute::<usize, Find>(dlsym)(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.at.store(found, Ordering::Relaxed);
        found
    }
}

impl<F: Copy> Function<F> {
    /// # Safety
    /// `F` is a pointer to a function, of the type that the C library's function of this name has.
    pub const unsafe fn of_type(real: &'static Real) -> Function<F> {
        Function(real, PhantomData)
    }

    /// `None`: it is too early, or this C library has no such function.
    #[inline(always)]
    pub fn known(&self) -> Option<F> {
        Self::typed(self.0.at.load(Ordering::Relaxed))
    }

    /// `None`: this C library has no such function. Only what runs before the table is complete, when there is one
    /// thread, looks here.
    #[inline(always)]
    pub fn get(&self) -> Option<F> {
        Self::typed(self.0.get())
    }

    #[inline(always)]
    fn typed(at: *mut c_void) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: it is the address of a function of this type, as `of_type` demands, and not null.
        (!at.is_null()).then(|| unsafe { core::mem::transmute_copy::<*mut c_void, F>(&at) })
    }
}

/// The number of this thread's last error.
fn errno() -> &'static Cell<c_int> {
    // SAFETY: it points to this thread's number for as long as the thread exists, and a cell stays on its thread.
    unsafe { &*__errno_location().cast() }
}

/// What a call that failed returns; the caller finds the number of the error in `errno`.
pub fn fail(number: c_int) -> c_int {
    errno().set(number);
    -1
}

/// As [`fail`], for functions that return a pointer.
pub fn null<T>(number: c_int) -> *mut T {
    fail(number);
    core::ptr::null_mut()
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
    let malloc = real!(malloc: unsafe extern "C" fn(usize) -> *mut c_char).get();
    // SAFETY: any length is permitted.
    malloc.map_or(core::ptr::null_mut(), |malloc| unsafe { malloc(bytes) })
}

pub fn last_error() -> c_int {
    errno().get()
}

pub fn environment() -> Words<'static> {
    // SAFETY: the C library defines it, as a list of texts that ends with a null. Those that use it do not change it at
    // the same time.
    unsafe { Words::from_c(environ) }
}

/// A variable of the environment as it is now.
pub fn variable(name: &[u8]) -> Option<&'static [u8]> {
    let mut all = environment().all().filter_map(CText::bytes);
    all.find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"="))
}
