//! The PMIx server process: the only code that uses the PMIx library.
//!
//! An agent starts one for each of its jobs that needs it (`wireup pmix-server`), so that the library's threads, memory
//! and faults stay out of the agent. The library is opened at run time, so that one program runs with and without it.
//! Agent and server process exchange `wire::pmix`; this crate translates that into calls and callbacks of the
//! library (`pmix_server.h`, versions 4.2 to 6) and back. It knows nothing about other nodes.
//!
//! `sys` is the ABI, `library` opens the library; `infos` and `read` are lists of infos, ours and the library's;
//! `server` is the process. `unsafe` is only where we call C or C calls us. No panic crosses into C: a panic ends the
//! process, and the agent then ends the job.

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod infos;
mod library;
mod outbox;
mod packing;
mod read;
mod server;
mod sys;

pub use library::VARIABLE;
pub use server::main;
