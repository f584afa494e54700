//! libfabric, opened at run time: one reliable endpoint for messages to and from any other (`FI_EP_RDM`).
//!
//! A crate of its own, because it holds all declarations of libfabric, which a test compares with the headers, and the
//! `unsafe` code that calls it; `bootstrap` sees only endpoints, and works where the library is missing.
//!
//! ```text
//!   Endpoint ── send ──► slots of a pool ──► provider   (a completion frees the slot, or reports a failure)
//!            ◄── poll ── slots that are posted ahead ◄──  (read, copied, posted again)
//! ```
//!
//! `sys` has the declarations, `library` opens the library, `provider` chooses a provider, `objects` makes and closes
//! the library's objects, `pool` is memory that providers read and write. The standard library is not used, because
//! `libwireup` has none.
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

pub use endpoint::{Endpoint, Event, Peer};
pub use library::Error;
pub use objects::Posted;

/// Maximum length of an endpoint's address (bytes). Known providers use 16 to 64; the rest is for future ones.
pub const ADDRESS_LEN_MAX: usize = provider::KIND_LEN + objects::NAME_LEN_MAX;
