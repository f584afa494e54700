//! The declarations of libucp that this crate uses: types and functions of `ucp/api/ucp.h`, UCX 1.10 to 1.x (a test
//! compares them with the headers of 1.13).
//!
//! Each structure of parameters carries a mask of the fields that are set, and the library reads no others: so only the
//! beginnings up to the last used field are declared.

#![allow(non_camel_case_types)]

use libloading::os::unix::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// `ucs_status_t`: a packed enum, one byte.
pub type Status = i8;
pub const OK: Status = 0;
pub const IN_PROGRESS: Status = 1;
pub const BUSY: Status = -15;
/// `UCS_ERR_LAST`: a pointer whose value as a signed number is in `LAST..0` is a status.
pub const LAST: isize = -100;

/// Handles: `ucp_context_h`, `ucp_worker_h`, `ucp_ep_h`, `ucp_config_t *`, `ucp_address_t *`, `ucp_tag_message_h`.
pub type Handle = *mut c_void;
/// `ucs_status_ptr_t`: null (complete), an error, or a request in progress.
pub type StatusPtr = *mut c_void;

/// The API version of these calls and structures.
pub const API: (c_uint, c_uint) = (1, 10);

pub const PARAM_FIELD_FEATURES: u64 = 1;
pub const FEATURE_TAG: u64 = 1;
pub const FEATURE_WAKEUP: u64 = 1 << 4;
pub const EP_FIELD_REMOTE_ADDRESS: u64 = 1;
pub const EP_FIELD_ERR_HANDLING_MODE: u64 = 1 << 1;
pub const EP_FIELD_ERR_HANDLER: u64 = 1 << 2;
pub const ERR_HANDLING_PEER: c_int = 1;
pub const OP_FIELD_FLAGS: u32 = 1 << 4;
pub const EP_CLOSE_FORCE: u32 = 1;

/// The beginning of `ucp_params_t`.
#[repr(C)]
pub struct Params {
    pub field_mask: u64,
    pub features: u64,
}

/// The beginning of `ucp_worker_params_t`.
#[repr(C)]
pub struct WorkerParams {
    pub field_mask: u64,
}

pub type ErrorCallback = unsafe extern "C" fn(arg: *mut c_void, ep: Handle, status: Status);

/// The beginning of `ucp_ep_params_t`, with `ucp_err_handler_t` in it.
#[repr(C)]
pub struct EpParams {
    pub field_mask: u64,
    pub address: *const c_void,
    pub err_mode: c_int,
    pub err_callback: Option<ErrorCallback>,
    pub err_arg: *mut c_void,
}

/// The beginning of `ucp_request_param_t`.
#[repr(C)]
pub struct RequestParam {
    pub op_attr_mask: u32,
    pub flags: u32,
}

/// `ucp_tag_recv_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TagInfo {
    pub sender_tag: u64,
    pub length: usize,
}

macro_rules! functions {
    ($($name:ident: $symbol:literal fn($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of an open library.
        #[derive(Clone, Copy)]
        pub struct Functions { $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)* }

        impl Functions {
            /// # Safety
            /// The library is libucp 1.x and is never closed.
            pub unsafe fn find(library: &Library) -> Result<Functions, libloading::Error> {
                Ok(Functions {
                    // SAFETY: each symbol has the type declared in the header; the library stays open.
                    $($name: unsafe { *library.get($symbol)? },)*
                })
            }
        }
    };
}

functions! {
    get_version: b"ucp_get_version\0" fn(*mut c_uint, *mut c_uint, *mut c_uint);
    config_read: b"ucp_config_read\0" fn(*const c_char, *const c_char, *mut Handle) -> Status;
    config_modify: b"ucp_config_modify\0" fn(Handle, *const c_char, *const c_char) -> Status;
    config_release: b"ucp_config_release\0" fn(Handle);
    init: b"ucp_init_version\0" fn(c_uint, c_uint, *const Params, Handle, *mut Handle) -> Status;
    cleanup: b"ucp_cleanup\0" fn(Handle);
    worker_create: b"ucp_worker_create\0" fn(Handle, *const WorkerParams, *mut Handle) -> Status;
    worker_destroy: b"ucp_worker_destroy\0" fn(Handle);
    worker_address: b"ucp_worker_get_address\0" fn(Handle, *mut Handle, *mut usize) -> Status;
    release_address: b"ucp_worker_release_address\0" fn(Handle, Handle);
    worker_fd: b"ucp_worker_get_efd\0" fn(Handle, *mut c_int) -> Status;
    worker_arm: b"ucp_worker_arm\0" fn(Handle) -> Status;
    worker_progress: b"ucp_worker_progress\0" fn(Handle) -> c_uint;
    ep_create: b"ucp_ep_create\0" fn(Handle, *const EpParams, *mut Handle) -> Status;
    ep_close: b"ucp_ep_close_nbx\0" fn(Handle, *const RequestParam) -> StatusPtr;
    tag_send: b"ucp_tag_send_nbx\0" fn(Handle, *const c_void, usize, u64, *const RequestParam) -> StatusPtr;
    tag_probe: b"ucp_tag_probe_nb\0" fn(Handle, u64, u64, c_int, *mut TagInfo) -> Handle;
    tag_receive: b"ucp_tag_msg_recv_nbx\0" fn(Handle, *mut c_void, usize, Handle, *const RequestParam) -> StatusPtr;
    request_status: b"ucp_request_check_status\0" fn(*mut c_void) -> Status;
    request_free: b"ucp_request_free\0" fn(*mut c_void);
}

/// Parameters of a request in which no field is set.
pub const NO_PARAM: RequestParam = RequestParam { op_attr_mask: 0, flags: 0 };

/// Decodes a `ucs_status_ptr_t`.
pub fn outcome(pointer: StatusPtr) -> Result<Option<*mut c_void>, Status> {
    match pointer as isize {
        0 => Ok(None),
        value if (LAST..0).contains(&value) => Err(value as Status),
        _ => Ok(Some(pointer)),
    }
}
