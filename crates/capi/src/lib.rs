//! What the C libraries share: blocking calls that drive the engine of `wireup-client`, and the C side of every
//! function.
//!
//! A crate of its own, because `libpmi` and `libpmi2` are linked from it and `client` alone: no group, no cipher and no
//! thread gets into them. It has all the calls into the C library, so the crates above it need no `unsafe` for those.
//!
//! `start` finds the PMI server through the environment; `secondary_client` joins the agent where another library of
//! the process has the inherited socket. `server` drives the conversation with the PMI server over its socket, and maps
//! the memory that this server shares (`mapping`). `job` is everything that a process does in its job: put, get,
//! collectives, names, addresses; it has the one static of a library, behind a lock, and detects that the process was
//! forked. `net` has TCP, UDP and timers for connections between ranks.
//!
//! `thread` has threads and locks of the C library. `text` reads and writes C strings, `clique` finds the ranks of this
//! node, `codes` are return values. `scripted` is a server for tests.
//!
//! With the feature `bare`, which the shipped libraries are built with, memory comes from the C library (`memory`), a
//! panic aborts, and Rust's standard library is not used. Without it the crates are ordinary crates, for checks and
//! tests.
#![no_std]
extern crate alloc;
#[cfg(not(feature = "bare"))]
extern crate std;

#[cfg(any(test, feature = "bare"))]
mod memory;

pub mod clique;
pub mod codes;
pub mod job;
pub mod mapping;
pub mod net;
#[cfg(any(test, feature = "scripted"))]
pub mod scripted;
pub mod secondary_client;
pub mod server;
pub mod start;
pub mod text;
pub mod thread;

pub use server::{Failure, Server};
pub use wireup_client::number;

/// Ends the process without running the handlers of `exit`.
pub fn exit_now(code: core::ffi::c_int) -> ! {
    // SAFETY: `_exit` may be called at any time.
    unsafe { libc::_exit(code) }
}

/// Memory that C code may free.
pub fn allocate(bytes: usize) -> Option<*mut u8> {
    // SAFETY: `malloc` accepts any size.
    let memory: *mut u8 = unsafe { libc::malloc(bytes.max(1)) }.cast();
    (!memory.is_null()).then_some(memory)
}

/// # Safety
/// `memory` is null, or came from [`allocate`] and is not used afterwards.
pub unsafe fn free(memory: *mut u8) {
    // SAFETY: guaranteed by the caller.
    unsafe { libc::free(memory.cast()) }
}
