//! The PMIx server process: the only code that uses the PMIx library.
//!
//! An agent starts one such process for each of its jobs that needs it (`wireup pmix-server`), so that the library's
//! threads, memory and faults stay out of the agent. The library is opened at run time, so that one program works with
//! and without it. Agent and server process exchange the messages of `wire::pmix`; this crate translates them into
//! calls and callbacks of the library (`pmix_server.h`, versions 4.2 to 6) and back. This crate knows nothing about
//! other nodes. `sys` is the ABI, `library` opens the library; `infos` makes lists of infos, `read` reads infos of the
//! library; `server` runs the process. `unsafe` is used only where we call C or C calls us. No panic crosses into C: a
//! panic ends the process, and the agent then ends the job.

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
