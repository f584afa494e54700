//! `libwireup-staged.so.0`: shows staged files under their original names to a process that cannot have mounts of its
//! own.
//!
//! ```text
//!   the loader of programs ── LD_AUDIT ──► audit, search ──────┐
//!   open, stat, access, …  ── LD_PRELOAD ──► files, names ────┤
//!   unlink, mkstemp, … ────── LD_PRELOAD ──► changes ─────────┼───► means ──► staged: the map of this job
//!   execve, posix_spawn, … ── LD_PRELOAD ──► exec ──► start ──┘                └──► redirect (without I/O)
//! ```
//!
//! `arguments` turns C arguments into types that are safe to use, `real` calls the C library's function of the same
//! name, `kernel` makes system calls: nearly all `unsafe` code is in these three modules.
//!
//! The variable `WIREUP_STAGED` contains the path of a map: which paths are staged, and the directory of the copies. A
//! copy is only ever read: a call that would change it fails as on a read-only file system, also if it uses a
//! descriptor of a directory of copies. Calls that this library does not understand, very long paths and paths that are
//! not staged go to the C library unchanged.
//!
//! No function takes a lock or allocates, so it can be called wherever the replaced function can: in a signal handler,
//! after `fork`. Functions for files use less than 4 KiB of the stack, functions that start programs less than 16 KiB.
//!
//! Not covered: static programs, other C libraries than glibc, programs with special rights (the loader ignores both
//! variables for them), direct system calls, and what the C library opens for itself (`glob`, `nftw`, `scandir`): they
//! use the originals.
//!
//! The exported symbols have no version: versioned ones would not take precedence over those of the C library.
#![no_std]
#[cfg(not(feature = "bare"))]
extern crate std;

mod arguments;
mod audit;
mod changes;
#[cfg(feature = "bare")]
mod compiler;
mod exec;
mod files;
mod kernel;
mod means;
mod names;
mod real;
mod search;
mod staged;
mod start;
#[cfg(test)]
mod tests;
mod words;

#[cfg(feature = "bare")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    kernel::harmless(kernel::Harmless::End, [134, 0, 0, 0]);
    loop {
        core::hint::spin_loop();
    }
}

/// The unwind tables of the compiled-in memory functions refer to this function, and not every linker leaves those
/// tables out. There is nothing to clean up: unwinding continues in the caller.
#[cfg(feature = "bare")]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> libc::c_int {
    const URC_CONTINUE_UNWIND: libc::c_int = 8;
    URC_CONTINUE_UNWIND
}
