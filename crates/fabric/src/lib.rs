//! libfabric, opened at run time: one endpoint for unreliable datagrams (`FI_EP_DGRAM`).
//!
//! ```text
//!   Endpoint ── send ──► slots of a pool ──► provider      (a completion frees the slot)
//!            ◄─ receive ─ slots that are posted ahead ◄──  (read, copied, posted again)
//! ```
//!
//! `sys` has the declarations, `library` opens the library, `provider` chooses what to use, `objects` makes and closes
//! the library's objects, `pool` is memory that providers read and write. The standard library is not used: `libwireup`
//! has none.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod endpoint;
mod library;
mod objects;
mod pool;
mod provider;
mod sys;
#[cfg(test)]
mod tests;

use core::ffi::c_int;
pub use endpoint::{Endpoint, Peer};

/// Longest address of an endpoint (bytes). Providers for datagrams have 16 to 32; the rest is room for those to come.
pub const ADDRESS_LEN_MAX: usize = provider::KIND_LEN + objects::NAME_LEN_MAX;

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
