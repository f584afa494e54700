//! Finds the functions of the PMIx library that the functions of the same name in this library replace.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize};
use core::sync::atomic::Ordering::{Acquire, Release};

const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;
const RTLD_NEXT: *mut c_void = -1_isize as *mut c_void;
/// Longest path (`PATH_MAX`) and a zero.
const PATH_BYTES: usize = 4097;

/// Handle of the library in which the first function was found, or of a library that depends on it.
static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// `Dl_info`.
#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

/// The beginning of `dl_phdr_info`.
#[repr(C)]
struct Object {
    address: usize,
    name: *const c_char,
}

type Visit = unsafe extern "C" fn(*const Object, usize, *mut c_void) -> c_int;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlclose(handle: *mut c_void) -> c_int;
    fn dladdr(address: *const c_void, place: *mut DlInfo) -> c_int;
    fn dl_iterate_phdr(visit: Visit, data: *mut c_void) -> c_int;
}

core::arch::global_asm!(".weak dlsym", ".weak dlopen", ".weak dlclose", ".weak dladdr", ".weak dl_iterate_phdr");

/// Whether the process has these functions. The compiler assumes that a function's address is not null, unless the
/// address is hidden from it (`black_box`).
fn has_dl() -> bool {
    use core::hint::black_box;
    let needed = [dlsym as *const (), dlopen as *const (), dlclose as *const ()];
    let more = [dladdr as *const (), dl_iterate_phdr as *const ()];
    needed.into_iter().chain(more).all(|function| black_box(function as usize) != 0)
}

/// The PMIx library's function of this name; 0: there is none. `kept`: stores the result.
pub fn real(name: &CStr, kept: &AtomicUsize) -> usize {
    let known = kept.load(Acquire);
    if known != 0 || !has_dl() {
        return known;
    }
    // After the first function, the others are taken from the same library: a second copy may be loaded later.
    let library = LIBRARY.load(Acquire);
    if !library.is_null() {
        // SAFETY: the handle is never closed, the string ends in 0.
        let found = unsafe { dlsym(library, name.as_ptr()) } as usize;
        kept.store(found, Release);
        return found;
    }
    let mut found = next(name);
    // `RTLD_NEXT` does not search libraries opened with `dlopen`, nor their dependencies.
    if found.is_null() {
        found = of_library(c"libpmix.so.2", name);
    }
    if found.is_null() {
        found = of_any_library(name);
    }
    kept.store(found as usize, Release);
    found as usize
}

/// Finds the definition of `name` that follows this library's own in the loader's order; null: there is none. Prevents
/// the library with the definition from being unloaded.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the strings end in 0.
    unsafe {
        let found = dlsym(RTLD_NEXT, name.as_ptr());
        if let Some(place) = place(found) {
            LIBRARY.store(dlopen(place.file, RTLD_LAZY | RTLD_NOLOAD), Release);
        }
        found
    }
}

fn place(address: *const c_void) -> Option<DlInfo> {
    let mut place = DlInfo { file: null_mut(), base: null_mut(), symbol: null_mut(), address: null_mut() };
    // SAFETY: `place` is a writable `Dl_info`.
    let is_known = !address.is_null() && unsafe { dladdr(address, &raw mut place) } != 0 && !place.file.is_null();
    is_known.then_some(place)
}

/// The file that this library was loaded from.
pub fn own_file() -> Option<&'static CStr> {
    if !has_dl() {
        return None;
    }
    // SAFETY: the loader keeps the name as long as the library, which is never unloaded.
    place(own_file as *const c_void).map(|place| unsafe { CStr::from_ptr(place.file) })
}

/// The function `name` of a library that is already loaded, or of its dependencies. Prevents the library from being
/// unloaded.
fn of_library(file: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: the strings end in 0; the handle is open until it is closed here.
    unsafe {
        let library = dlopen(file.as_ptr(), RTLD_LAZY | RTLD_NOLOAD);
        if library.is_null() {
            return null_mut();
        }
        let found = dlsym(library, name.as_ptr());
        if found.is_null() || is_own(found) {
            dlclose(library);
            return null_mut();
        }
        LIBRARY.store(library, Release);
        found
    }
}

fn is_own(address: *const c_void) -> bool {
    let base = |address| place(address).map(|place| place.base);
    base(address) == base(is_own as *const c_void)
}

struct Nth {
    skip: usize,
    name: [u8; PATH_BYTES],
}

/// Copies the name of one loaded object. A library must not be opened in this callback, since the loader holds a lock.
unsafe extern "C" fn copy_nth(object: *const Object, _: usize, nth: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid object, and `of_any_library` a pointer to an `Nth`.
    unsafe {
        let nth = &mut *nth.cast::<Nth>();
        if nth.skip > 0 {
            nth.skip -= 1;
            return 0;
        }
        let name = (*object).name;
        let bytes = if name.is_null() { &[] } else { CStr::from_ptr(name).to_bytes() };
        // The last byte stays 0. A name that is too long is treated as empty.
        let bytes = if bytes.len() < PATH_BYTES { bytes } else { &[] };
        nth.name.fill(0);
        for (to, from) in nth.name.iter_mut().zip(bytes) {
            *to = *from;
        }
        1
    }
}

/// Searches each loaded library: a package may have renamed its PMIx library, or have loaded it with `RTLD_LOCAL`.
fn of_any_library(name: &CStr) -> *mut c_void {
    let mut nth = Nth { skip: 0, name: [0; PATH_BYTES] };
    for number in 0.. {
        nth.skip = number;
        // SAFETY: the callback uses only its arguments.
        if unsafe { dl_iterate_phdr(copy_nth, (&raw mut nth).cast()) } == 0 {
            break;
        }
        // The program itself has an empty name.
        let Ok(file) = CStr::from_bytes_until_nul(&nth.name) else { continue };
        if file.is_empty() {
            continue;
        }
        let found = of_library(file, name);
        if !found.is_null() {
            return found;
        }
    }
    null_mut()
}
