//! The PMIx server process: the only code that knows the PMIx library.
//!
//! An agent starts one for each of its jobs that needs it (`wireup pmix-server`), so that the library's threads, memory
//! and faults stay out of the agent; the library is opened at run time, so that one program runs with and without it.
//! What goes between agent and server process is `wire::pmix`: this crate turns it into calls and callbacks of the
//! library (`pmix_server.h`, versions 4.2 to 6) and back. It knows nothing of other nodes.
//!
//! `sys` is the ABI, `library` finds it; `infos` and `read` are lists of infos, ours and the library's; `server` is the process.
//! `unsafe` is where C is called or calls. No panic crosses a border to C: Rust ends the process instead, and the agent the
//! job.

mod infos;
mod library;
mod outbox;
mod packing;
mod read;
mod server;
mod sys;

pub use library::{LibraryError, VARIABLE};
pub use server::main;
