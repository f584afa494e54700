//! What this library needs from the C library: the functions that it replaces, `errno`, and the environment.
//!
//! The symbols are weak: when the loader opens this library as its auditor, there is no C library, and none of these
//! functions is called. Later, too, `dlsym` may be missing: before glibc 2.34 it is in a separate library.

use crate::arguments::{Argument, CText, Words};
use core::arch::global_asm;
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

global_asm!(
    ".weak dlsym", ".weak __errno_location", ".weak environ",
    // The compiler assumes that a function's address is not null, so the address is stored in a variable and read.
    ".pushsection .data.rel,\"aw\"", ".balign 8", ".globl wireup_staged_dlsym", ".hidden wireup_staged_dlsym",
    "wireup_staged_dlsym: .quad dlsym", ".popsection",
);

unsafe extern "C" {
    safe static wireup_staged_dlsym: AtomicUsize;
    /// Start of the table of all [`Real`]s; the linker defines the symbols of its start and end.
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

/// A [`Real`] together with the type of its function.
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

/// Calls the C library's function of this name with `argument => its C type`; calls `fail` if there is none.
macro_rules! call_real {
    ($name:ident($($argument:expr => $type:ty),* $(,)?) -> $result:ty, $fail:expr) => {
        match $crate::real::real!($name: unsafe extern "C" fn($($type),*) -> $result).get() {
            // SAFETY: these are the arguments of the replacing function, whose caller guarantees them; a path may have
            // been replaced by another one, which ends with a zero and is still alive.
            Some(real) => unsafe { real($($argument),*) },
            None => $fail(libc::ENOSYS),
        }
    };
}
pub(crate) use call_real;

/// Set when all functions have been looked up. Before that, `get` looks up a function on first use, but `known` does
/// not: `dlsym` may need memory from an allocator that is just opening files.
static IS_READY: AtomicBool = AtomicBool::new(false);

extern "C" fn ready() {
    let ends = (&raw const __start_wireup_real)..(&raw const __stop_wireup_real);
    let len = (ends.end.addr() - ends.start.addr()) / size_of::<Real>();
    // SAFETY: the linker has placed all entries, which are of this type, one after another between the two symbols.
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
        // SAFETY: the loader has stored the address of `dlsym`, or null, there before any code of this library runs;
        // `dlsym` has these parameters, and the name ends with a zero.
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

    /// `None`: the function has not been looked up yet, or this C library does not have it.
    #[inline(always)]
    pub fn known(&self) -> Option<F> {
        Self::typed(self.0.at.load(Ordering::Relaxed))
    }

    /// `None`: this C library has no such function. Looks the function up if the table is not complete yet; at that
    /// time the process has one thread.
    #[inline(always)]
    pub fn get(&self) -> Option<F> {
        Self::typed(self.0.get())
    }

    #[inline(always)]
    fn typed(at: *mut c_void) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: `at` is not null, and is the address of a function of type `F`, as `of_type` demands.
        (!at.is_null()).then(|| unsafe { core::mem::transmute_copy::<*mut c_void, F>(&at) })
    }
}

/// `errno` of this thread.
fn errno() -> &'static Cell<c_int> {
    // SAFETY: the pointer is valid for as long as the thread exists, and a `Cell` stays on its thread.
    unsafe { &*__errno_location().cast() }
}

/// Sets `errno` and returns -1, as a C function that failed.
pub fn fail(number: c_int) -> c_int {
    errno().set(number);
    -1
}

/// As [`fail`], for functions that return a pointer.
pub fn null<T>(number: c_int) -> *mut T {
    fail(number);
    core::ptr::null_mut()
}

/// Converts the kernel's result of a system call into that of the C library: -1 and `errno` for an error.
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
    // SAFETY: the C library defines `environ` as a null-terminated array of texts. Its users do not change it at the
    // same time.
    unsafe { Words::from_c(environ) }
}

/// The current value of an environment variable.
pub fn variable(name: &[u8]) -> Option<&'static [u8]> {
    let mut all = environment().all().filter_map(CText::bytes);
    all.find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"="))
}
