//! The structures of the PMIx ABI that we use, in C layout (`pmix_common.h`, `pmix_server.h` of 4.2).
//!
//! The structures have been the same since 4.0 except for [`ServerModule`], which grows at its end: our module is as
//! long as the longest known version, with null for functions that we do not provide. A test compares all structures
//! with the C headers.

use std::ffi::{c_char, c_int, c_void};

/// Maximum length of a job's name, without the terminating NUL.
pub const NSPACE_LEN_MAX: usize = 255;
/// Maximum length of a key, without the terminating NUL.
pub const KEY_LEN_MAX: usize = 511;

pub type Status = c_int;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PmixProc {
    pub nspace: [c_char; NSPACE_LEN_MAX + 1],
    pub rank: u32,
}

/// `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PmixByteObject {
    pub bytes: *mut c_char,
    pub size: usize,
}

/// `pmix_data_array_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PmixDataArray {
    pub kind: u16,
    pub size: usize,
    pub array: *mut c_void,
}

/// `pmix_envar_t`: the largest member of the union [`PmixData`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PmixEnvar {
    pub name: *mut c_char,
    pub value: *mut c_char,
    pub separator: c_char,
}

/// The members of a value that we use.
#[repr(C)]
#[derive(Clone, Copy)]
pub union PmixData {
    pub flag: bool,
    pub string: *mut c_char,
    pub size: usize,
    pub pid: libc::pid_t,
    pub int8: i8,
    pub int16: i16,
    pub int32: i32,
    pub int64: i64,
    pub uint8: u8,
    pub uint16: u16,
    pub uint32: u32,
    pub uint64: u64,
    pub rank: u32,
    pub proc: *mut PmixProc,
    pub bytes: PmixByteObject,
    pub array: *mut PmixDataArray,
    pub envar: PmixEnvar,
}

/// `pmix_value_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PmixValue {
    pub kind: u16,
    pub data: PmixData,
}

/// `pmix_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PmixInfo {
    pub key: [c_char; KEY_LEN_MAX + 1],
    pub flags: u32,
    pub value: PmixValue,
}

/// `pmix_pdata_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PmixPdata {
    pub proc: PmixProc,
    pub key: [c_char; KEY_LEN_MAX + 1],
    pub value: PmixValue,
}

/// `pmix_query_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PmixQuery {
    /// An array that ends with a null pointer.
    pub keys: *mut *mut c_char,
    pub qualifiers: *mut PmixInfo,
    pub qualifier_count: usize,
}

/// `pmix_proc_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PmixProcInfo {
    pub proc: PmixProc,
    pub hostname: *mut c_char,
    pub executable: *mut c_char,
    pub pid: libc::pid_t,
    pub exit_code: c_int,
    pub state: u8,
}

/// `pmix_app_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PmixApp {
    pub cmd: *mut c_char,
    /// Arrays that end with a null pointer.
    pub argv: *mut *mut c_char,
    pub env: *mut *mut c_char,
    pub cwd: *mut c_char,
    pub maxprocs: c_int,
    pub info: *mut PmixInfo,
    pub info_count: usize,
}

/// `pmix_cpuset_t`.
#[repr(C)]
pub struct PmixCpuset {
    pub source: *mut c_char,
    pub bitmap: *mut c_void,
}

/// `pmix_data_buffer_t`.
#[repr(C)]
pub struct PmixDataBuffer {
    pub base: *mut c_char,
    pub pack: *mut c_char,
    pub unpack: *mut c_char,
    pub bytes_allocated: usize,
    pub bytes_used: usize,
}

pub type OpCallback = unsafe extern "C" fn(Status, *mut c_void);
pub type ReleaseCallback = unsafe extern "C" fn(*mut c_void);
pub type ModexCallback = unsafe extern "C" fn(
    Status,
    data: *const c_char,
    len: usize,
    cbdata: *mut c_void,
    release: Option<ReleaseCallback>,
    release_data: *mut c_void,
);
pub type LookupCallback = unsafe extern "C" fn(Status, data: *mut PmixPdata, count: usize, cbdata: *mut c_void);
pub type InfoCallback = unsafe extern "C" fn(
    Status,
    info: *mut PmixInfo,
    count: usize,
    cbdata: *mut c_void,
    release: Option<ReleaseCallback>,
    release_data: *mut c_void,
);
pub type SpawnCallback = unsafe extern "C" fn(Status, nspace: *mut c_char, cbdata: *mut c_void);
/// Callback of `PMIx_server_dmodex_request`: the library keeps ownership of the data.
pub type DmodexCallback = unsafe extern "C" fn(Status, data: *mut c_char, len: usize, cbdata: *mut c_void);

/// Declares the module; a field without a type is a function that this server does not provide.
macro_rules! server_module {
    ($($name:ident $(($($argument:ty),*) -> $result:ty)?;)*) => {
        /// `pmix_server_module_t`, through `client_connected2` as in 4.2, then room for what later versions append.
        #[repr(C)]
        #[derive(Default)]
        pub struct ServerModule {
            $(pub $name: Option<unsafe extern "C" fn($($($argument),*)?) $(-> $result)?>,)*
            /// `session_control` and `resource_block` of 5, `tool_connected2` and `log2` of 6, and room for later
            /// versions.
            pub later: [Option<unsafe extern "C" fn()>; 8],
        }
    };
}

server_module! {
    client_connected;
    client_finalized(*const PmixProc, *mut c_void, Option<OpCallback>, *mut c_void) -> Status;
    abort(*const PmixProc, *mut c_void, c_int, *const c_char, *mut PmixProc, usize, Option<OpCallback>,
        *mut c_void) -> Status;
    fence_nb(*const PmixProc, usize, *const PmixInfo, usize, *mut c_char, usize, Option<ModexCallback>,
        *mut c_void) -> Status;
    direct_modex(*const PmixProc, *const PmixInfo, usize, Option<ModexCallback>, *mut c_void) -> Status;
    publish(*const PmixProc, *const PmixInfo, usize, Option<OpCallback>, *mut c_void) -> Status;
    lookup(*const PmixProc, *mut *mut c_char, *const PmixInfo, usize, Option<LookupCallback>, *mut c_void) -> Status;
    unpublish(*const PmixProc, *mut *mut c_char, *const PmixInfo, usize, Option<OpCallback>, *mut c_void) -> Status;
    spawn(*const PmixProc, *const PmixInfo, usize, *const PmixApp, usize, Option<SpawnCallback>, *mut c_void) -> Status;
    connect(*const PmixProc, usize, *const PmixInfo, usize, Option<OpCallback>, *mut c_void) -> Status;
    disconnect(*const PmixProc, usize, *const PmixInfo, usize, Option<OpCallback>, *mut c_void) -> Status;
    register_events(*mut Status, usize, *const PmixInfo, usize, Option<OpCallback>, *mut c_void) -> Status;
    deregister_events(*mut Status, usize, Option<OpCallback>, *mut c_void) -> Status;
    listener;
    notify_event(Status, *const PmixProc, u8, *mut PmixInfo, usize, Option<OpCallback>, *mut c_void) -> Status;
    query(*mut PmixProc, *mut PmixQuery, usize, Option<InfoCallback>, *mut c_void) -> Status;
    tool_connected;
    log(*const PmixProc, *const PmixInfo, usize, *const PmixInfo, usize, Option<OpCallback>, *mut c_void) -> ();
    allocate;
    job_control(*const PmixProc, *const PmixProc, usize, *const PmixInfo, usize, Option<InfoCallback>,
        *mut c_void) -> Status;
    monitor;
    get_credential;
    validate_credential;
    iof_pull;
    push_stdin;
    group(c_int, *mut c_char, *const PmixProc, usize, *const PmixInfo, usize, Option<InfoCallback>,
        *mut c_void) -> Status;
    fabric;
    client_connected2(*const PmixProc, *mut c_void, *mut PmixInfo, usize, Option<OpCallback>, *mut c_void) -> Status;
}
