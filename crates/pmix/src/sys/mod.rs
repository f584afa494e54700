//! The PMIx server library's ABI: types, constants, and its functions, which are looked up by name in an open library.

pub mod constants;
pub mod types;

#[cfg(test)]
mod tests;

use libloading::os::unix::Library;
use std::ffi::{c_char, c_int, c_void};
use types::{
    DmodexCallback, OpCallback, PmixCpuset, PmixDataBuffer, PmixInfo, PmixProc, PmixValue, ServerModule, Status,
};

macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($type:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions declared in `pmix_server.h` and `pmix.h` (4.2). Each must be called as the header says.
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Functions {
            /// # Errors
            /// A symbol is missing: this is not a PMIx library, or one older than 4.2.
            pub fn find(library: &Library) -> Result<Functions, libloading::Error> {
                Ok(Functions {
                    // SAFETY: the types are the header's; the ABI test compares the structures. A PMIx library keeps
                    // its functions' signatures within its ABI (`libpmix.so.2`). The library is never closed.
                    $($name: unsafe { *library.get($symbol)? },)*
                })
            }
        }
    };
}

functions! {
    error_string = b"PMIx_Error_string\0": fn(Status) -> *const c_char;
    server_init = b"PMIx_server_init\0": fn(*mut ServerModule, *mut PmixInfo, usize) -> Status;
    server_finalize = b"PMIx_server_finalize\0": fn() -> Status;
    register_nspace = b"PMIx_server_register_nspace\0":
        fn(*const c_char, c_int, *mut PmixInfo, usize, Option<OpCallback>, *mut c_void) -> Status;
    deregister_nspace = b"PMIx_server_deregister_nspace\0": fn(*const c_char, Option<OpCallback>, *mut c_void);
    register_client = b"PMIx_server_register_client\0":
        fn(*const PmixProc, libc::uid_t, libc::gid_t, *mut c_void, Option<OpCallback>, *mut c_void) -> Status;
    deregister_client = b"PMIx_server_deregister_client\0": fn(*const PmixProc, Option<OpCallback>, *mut c_void);
    setup_fork = b"PMIx_server_setup_fork\0": fn(*const PmixProc, *mut *mut *mut c_char) -> Status;
    get = b"PMIx_Get\0":
        fn(*const PmixProc, *const c_char, *const PmixInfo, usize, *mut *mut PmixValue) -> Status;
    dmodex_request = b"PMIx_server_dmodex_request\0":
        fn(*const PmixProc, Option<DmodexCallback>, *mut c_void) -> Status;
    register_resources = b"PMIx_server_register_resources\0":
        fn(*mut PmixInfo, usize, Option<OpCallback>, *mut c_void) -> Status;
    generate_locality = b"PMIx_server_generate_locality_string\0": fn(*const PmixCpuset, *mut *mut c_char) -> Status;
    parse_cpuset = b"PMIx_Parse_cpuset_string\0": fn(*const c_char, *mut PmixCpuset) -> Status;
    notify_event = b"PMIx_Notify_event\0":
        fn(Status, *const PmixProc, u8, *const PmixInfo, usize, Option<OpCallback>, *mut c_void) -> Status;
    data_pack = b"PMIx_Data_pack\0": fn(*const PmixProc, *mut PmixDataBuffer, *mut c_void, i32, u16) -> Status;
    data_unpack = b"PMIx_Data_unpack\0": fn(*const PmixProc, *mut PmixDataBuffer, *mut c_void, *mut i32, u16) -> Status;
    value_destruct = b"PMIx_Value_destruct\0": fn(*mut PmixValue);
}
