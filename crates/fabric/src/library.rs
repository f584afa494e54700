//! Finds and opens libfabric.

use crate::sys::{DupInfo, FreeInfo, GetInfo, OpenFabric};
use core::ffi::{CStr, c_int, c_void};

const SONAME: &CStr = c"libfabric.so.1";

/// Why an endpoint could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// There is no `libfabric.so.1`, or it cannot be loaded, or it is too old.
    Missing,
    /// No provider offers such endpoints (`FI_EP_RDM`) between hosts here, or `FI_PROVIDER` excludes those that do.
    NoProvider,
    /// No memory is left.
    Memory,
    /// A call of libfabric has failed with this error number (`fi_errno`).
    Call { what: &'static str, number: c_int },
}

/// The library's functions that are not inline. The library stays open until the process ends.
#[derive(Clone, Copy)]
pub struct Library {
    pub getinfo: GetInfo,
    pub dupinfo: DupInfo,
    pub freeinfo: FreeInfo,
    pub fabric: OpenFabric,
}

impl Library {
    /// The library reads its settings (`FI_…`) from the environment when it is first asked for providers.
    pub fn open() -> Result<Library, Error> {
        // SAFETY: the name ends with a zero byte. The library's initialisers are trusted like its functions.
        let handle = unsafe { libc::dlopen(SONAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(Error::Missing);
        }
        // SAFETY: each symbol has the type that the header declares; the library is never closed.
        unsafe {
            Ok(Library {
                getinfo: core::mem::transmute::<*mut c_void, GetInfo>(symbol(handle, c"fi_getinfo")?),
                dupinfo: core::mem::transmute::<*mut c_void, DupInfo>(symbol(handle, c"fi_dupinfo")?),
                freeinfo: core::mem::transmute::<*mut c_void, FreeInfo>(symbol(handle, c"fi_freeinfo")?),
                fabric: core::mem::transmute::<*mut c_void, OpenFabric>(symbol(handle, c"fi_fabric")?),
            })
        }
    }
}

/// # Safety
/// `handle` is the handle of an open library.
unsafe fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, Error> {
    // SAFETY: guaranteed by the caller; the name ends with a zero byte.
    let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if symbol.is_null() { Err(Error::Missing) } else { Ok(symbol) }
}
