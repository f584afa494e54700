//! Finds libucp, opens it, and makes its context and one worker.
//!
//! UCX would hook the program's memory functions, catch its signals and start a thread for monitoring. None of that is wanted in an
//! agent. These are settings of the whole library, which it takes from the environment when it is loaded: they are there for that
//! moment only, so that no rank inherits them. What the user has set counts more.

use crate::UcxError;
use crate::sys::{self, Functions, Handle, OK, Params, WorkerParams};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::c_uint;
use std::ptr;

const SONAME: &str = "libucp.so.0";
/// Settings of the library as a whole, where the user has none.
const SETTINGS: [(&str, &str); 4] = [
    ("UCX_MEM_EVENTS", "no"),
    ("UCX_HANDLE_ERRORS", "none"),
    ("UCX_VFS_ENABLE", "no"),
    // A problem is told by its status; lines of a library on an agent's standard error are nobody's.
    ("UCX_LOG_LEVEL", "fatal"),
];
/// And of what is made from it: no hooks are asked for, whatever the library's version calls them.
const MODIFIED: [(&std::ffi::CStr, &std::ffi::CStr); 2] = [(c"MEM_EVENTS", c"no"), (c"MEM_MMAP_HOOK_MODE", c"none")];

pub(crate) struct Opened {
    pub functions: Functions,
    pub context: Handle,
    pub worker: Handle,
}

/// Variables that are set while this lives.
struct Settings(Vec<&'static str>);

impl Settings {
    fn set() -> Settings {
        let wanted = SETTINGS.iter().filter(|(name, _)| std::env::var_os(name).is_none());
        let set = wanted.map(|(name, value)| {
            // SAFETY: whoever else reads the environment in this process does so through the same lock: no C code of it runs in
            // another thread.
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

pub(crate) fn open() -> Result<Opened, UcxError> {
    let _settings = Settings::set();
    // SAFETY: its initialisers read the environment and prepare tables; it is never closed.
    let library = unsafe { Library::open(Some(SONAME), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| UcxError::Missing(error.to_string()))?;
    // SAFETY: it is leaked below, or the program goes on without its functions.
    let functions = unsafe { Functions::of(&library) }.map_err(|error| UcxError::Missing(error.to_string()))?;
    std::mem::forget(library);
    let (mut major, mut minor, mut release): (c_uint, c_uint, c_uint) = (0, 0, 0);
    // SAFETY: three integers to write to.
    unsafe { (functions.get_version)(&mut major, &mut minor, &mut release) };
    if major != sys::API.0 || minor < sys::API.1 {
        return Err(UcxError::Version(format!("{major}.{minor}.{release}")));
    }
    let context = make_context(&functions)?;
    let params = WorkerParams {
        field_mask: 0,
        thread_mode: 0,
        cpu_mask: [0; 16],
        events: 0,
        user_data: ptr::null(),
        event_fd: 0,
        flags: 0,
        name: ptr::null(),
        am_alignment: 0,
        client_id: 0,
    };
    let mut worker = ptr::null_mut();
    // SAFETY: the context is alive; no field of the parameters is marked as set.
    match unsafe { (functions.worker_create)(context, &params, &mut worker) } {
        OK => Ok(Opened { functions, context, worker }),
        status => {
            // SAFETY: nothing was made of the context.
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
        // A version that does not know it has taken it from the settings above.
        // SAFETY: two strings that it copies.
        let _ = unsafe { (functions.config_modify)(config, name.as_ptr(), value.as_ptr()) };
    }
    let params = Params {
        field_mask: sys::PARAM_FIELD_FEATURES,
        features: sys::FEATURE_TAG | sys::FEATURE_WAKEUP,
        request_size: 0,
        request_init: ptr::null(),
        request_cleanup: ptr::null(),
        tag_sender_mask: 0,
        mt_workers_shared: 0,
        estimated_num_eps: 0,
        estimated_num_ppn: 0,
        name: ptr::null(),
    };
    let mut context = ptr::null_mut();
    // SAFETY: parameters and configuration live across the call, which keeps neither.
    let status = unsafe { (functions.init)(sys::API.0, sys::API.1, &params, config, &mut context) };
    // SAFETY: made above, used by nobody any more.
    unsafe { (functions.config_release)(config) };
    if status == OK { Ok(context) } else { Err(UcxError::Call { what: "finding a network", status }) }
}
