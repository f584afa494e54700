//! PMI as ranks speak it: requests, replies, two dialects.
//!
//! [`table`] lists every command once, with its names and fields in both dialects; encoders and decoders of
//! both ends come from it. [`RequestReader`] and [`encode_reply`] are the server's half,
//! [`encode_request`] and [`ReplyReader`] the client's.
//!
//! - **PMI-1**: one text line a message, `cmd=NAME key=value …\n`; spawn alone is a block of lines.
//! - **PMI-2**: the first exchange is PMI-1's `init`, then six characters of length and a body
//!   `cmd=NAME;key=value;…`. A doubled `;` stands for one inside a value (libpmi2 writes it so); values are
//!   handed over and sent as they are on the wire, so what one libpmi2 doubles the other one halves.
//!
//! A message whose frame is whole but whose fields are wrong is a [`Request::Malformed`]: that client gets an
//! error. A broken frame is a [`PmiError`]: nothing after it can be read, the link is beyond repair.
//!
//! Cost: one copy of the bytes into the reader's buffer; a request other than spawn is read from there without
//! any allocation.

mod encode;
mod error;
pub mod escape;
mod framing;
mod macros;
mod pairs;
mod read_reply;
mod read_request;
#[cfg(test)]
mod round_trips;
mod spawn;
pub mod table;
#[cfg(test)]
mod tests;
mod value;

pub use encode::{NotInDialect, encode_barrier_refusal, encode_reply, encode_request, encode_unknown};
pub use error::{Excerpt, PmiError, Problem};
pub use read_reply::{ReplyFields, ReplyReader};
pub use read_request::{Envelope, RequestReader};
pub use spawn::{SpawnCommand, SpawnRequest};
pub use table::{Command, Reply, ReplyKind, Request};

/// What a link speaks after its `init`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Dialect {
    Pmi1,
    Pmi2,
}
