//! The PMI protocol of ranks: requests and replies in two dialects.
//!
//! [`table`] lists every command once, with its names and fields in both dialects; encoders and decoders for both ends
//! are generated from it. [`RequestReader`] and [`encode_reply`] are the server's half, [`encode_request`] and
//! [`ReplyReader`] the client's.
//!
//! - **PMI-1**: one text line per message, `cmd=NAME key=value …\n`; only spawn is a block of lines.
//! - **PMI-2**: the first exchange is PMI-1's `init`; afterwards each message is six characters of length and a body
//!   `cmd=NAME;key=value;…`. A doubled `;` represents one inside a value (libpmi2 writes it so); values are returned
//!   and sent as they are on the wire, so one libpmi2 halves what the other has doubled.
//!
//! A message with valid framing but invalid fields is a [`Request::Malformed`]: that client gets an error. Invalid
//! framing is a [`PmiError`]: nothing after it can be read, and the link cannot recover.
//!
//! Cost: one copy of the bytes into the reader's buffer; any request except spawn is read from there without
//! allocation.

mod codec;
mod error;
pub mod escape;
mod framing;
mod macros;
mod pairs;
#[cfg(test)]
mod round_trips;
mod spawn;
mod spawn_request;
pub mod table;
#[cfg(test)]
mod tests;
mod value;

pub use codec::{
    Envelope, NotInDialect, ReplyReader, RequestReader, encode_barrier_refusal, encode_reply, encode_request,
    encode_unknown,
};
pub use error::{Excerpt, PmiError, Problem};
pub use pairs::ReplyFields;
pub use spawn_request::{AddedHost, HostFiles, SpawnCommand, SpawnInfo, SpawnLayout, SpawnRequest, Unfit};
pub use table::{Command, Reply, ReplyKind, Request};
pub use value::Raw;

/// The beginning of the name of our server's sockets (in the abstract namespace): a client that is connected to such a
/// socket may send further requests before it has received the answer to `init`.
pub const SERVER_NAME: [u8; 8] = *b"\0wireup1";

/// The dialect of a link after its `init`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Dialect {
    Pmi1,
    Pmi2,
}
