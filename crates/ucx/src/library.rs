//! Finds and opens libucp, and makes its context and one worker.
//!
//! By default UCX hooks the program's memory functions, catches its signals and starts a thread for monitoring. An
//! agent wants none of these. The settings apply to the whole library, which reads them from the environment when it is
//! loaded: the variables are set only at that time, so that no rank inherits them. The user's own settings take
//! precedence.

use crate::sys::{self, Functions, Handle, OK, Params, Status, WorkerParams};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::c_uint;
use std::ptr;
use thiserror::Error;

const SONAME: &str = "libucp.so.0";
/// Settings of the whole library, used unless the user has set them.
const SETTINGS: [(&str, &str); 4] = [
    ("UCX_MEM_EVENTS", "no"),
    ("UCX_HANDLE_ERRORS", "none"),
    ("UCX_VFS_ENABLE", "no"),
    // Errors are reported by their status; the library must not print to an agent's standard error.
    ("UCX_LOG_LEVEL", "fatal"),
];
/// Settings of the context: no memory hooks, under the two names that different versions of the library use.
const MODIFIED: [(&std::ffi::CStr, &std::ffi::CStr); 2] = [(c"MEM_EVENTS", c"no"), (c"MEM_MMAP_HOOK_MODE", c"none")];

/// Why no worker could be made.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum UcxError {
    #[error("libucp cannot be opened ({0}); install libucx0 (Debian) or ucx")]
    Missing(String),
    #[error("libucp is version {0}, expected 1.{min} or later of 1", min = sys::API.1)]
    Version(String),
    #[error("UCX failed while {what}: status {status}")]
    Call { what: &'static str, status: Status },
}

/// Environment variables that stay set as long as this value lives.
struct Settings(Vec<&'static str>);

impl Settings {
    fn set() -> Settings {
        let wanted = SETTINGS.iter().filter(|(name, _)| std::env::var_os(name).is_none());
        let set = wanted.map(|(name, value)| {
            // SAFETY: all readers of the environment in this process use the standard library's lock, because no C code
            // runs in another thread.
            unsafe { std::env::set_var(name, value) };
            *name
        });
        Settings(set.collect())
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for name in &self.0 {
            // SAFETY: as above.
            unsafe { std::env::remove_var(name) };
        }
    }
}

/// Opens the library, and makes a context and a worker.
pub(crate) fn open() -> Result<(Functions, Handle, Handle), UcxError> {
    let _settings = Settings::set();
    // SAFETY: the library's initialisers read the environment and prepare tables; it is never closed.
    let library = unsafe { Library::open(Some(SONAME), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| UcxError::Missing(error.to_string()))?;
    // SAFETY: the library is leaked below, or its functions are never used.
    let functions = unsafe { Functions::find(&library) }.map_err(|error| UcxError::Missing(error.to_string()))?;
    std::mem::forget(library);
    let (mut major, mut minor, mut release): (c_uint, c_uint, c_uint) = (0, 0, 0);
    // SAFETY: the library writes to these three integers.
    unsafe { (functions.get_version)(&mut major, &mut minor, &mut release) };
    if major != sys::API.0 || minor < sys::API.1 {
        return Err(UcxError::Version(format!("{major}.{minor}.{release}")));
    }
    let context = make_context(&functions)?;
    let params = WorkerParams { field_mask: 0 };
    let mut worker = ptr::null_mut();
    // SAFETY: the context is alive; no field of the parameters is marked as set.
    match unsafe { (functions.worker_create)(context, &params, &mut worker) } {
        OK => Ok((functions, context, worker)),
        status => {
            // SAFETY: no object made from the context exists.
            unsafe { (functions.cleanup)(context) };
            Err(UcxError::Call { what: "making a worker", status })
        }
    }
}

fn make_context(functions: &Functions) -> Result<Handle, UcxError> {
    let mut config = ptr::null_mut();
    // SAFETY: no prefix and no file; the configuration is released below.
    let status = unsafe { (functions.config_read)(ptr::null(), ptr::null(), &mut config) };
    if status != OK {
        return Err(UcxError::Call { what: "reading its configuration", status });
    }
    for (name, value) in MODIFIED {
        // A version without this setting has got the equivalent from the environment variables above.
        // SAFETY: UCX copies the two strings.
        let _ = unsafe { (functions.config_modify)(config, name.as_ptr(), value.as_ptr()) };
    }
    let features = sys::FEATURE_TAG | sys::FEATURE_WAKEUP;
    let params = Params { field_mask: sys::PARAM_FIELD_FEATURES, features };
    let mut context = ptr::null_mut();
    // SAFETY: parameters and configuration live during the call, which keeps neither.
    let status = unsafe { (functions.init)(sys::API.0, sys::API.1, &params, config, &mut context) };
    // SAFETY: the configuration was made above and is not used any more.
    unsafe { (functions.config_release)(config) };
    if status == OK { Ok(context) } else { Err(UcxError::Call { what: "finding a network", status }) }
}
