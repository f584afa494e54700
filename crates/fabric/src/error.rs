//! Why libfabric cannot be used.

use core::ffi::c_int;

/// Why there is no endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// There is no `libfabric.so.1`, or it cannot be loaded, or it is too old.
    Missing,
    /// No provider has datagrams here, or those that have are excluded by `FI_PROVIDER`.
    NoProvider,
    /// There is no memory.
    Memory,
    /// A call has failed, with this number of `fi_errno`.
    Call { what: &'static str, number: c_int },
}
