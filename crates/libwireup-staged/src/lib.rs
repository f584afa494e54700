//! `libwireup-staged.so.0`: shows staged files under their original names to a process that cannot have mounts of its
//! own.
//!
//! ```text
//!   the loader of programs ── LD_AUDIT ──► audit, search ──────┐
//!   open, stat, access, …  ── LD_PRELOAD ──► files, names ────┤
//!   unlink, mkstemp, … ────── LD_PRELOAD ──► changes, temporary ──► means ──► staged: the map of this job
//!   execve, posix_spawn, … ── LD_PRELOAD ──► exec ──► start ──┘                └──► redirect (without I/O)
//! ```
//!
//! `arguments` makes of what C passes types that are safe to use, `real` calls the C library's function of the same
//! name, `kernel` makes system calls: nearly all `unsafe` code is in these three.
//!
//! The variable `WIREUP_STAGED` names a map: which names are staged, and the folder of the copies. A copy is only ever
//! read: a call that would change it fails as on a read-only file system, also by way of an open folder. A call that
//! this library does not understand, a path that is very long, and whatever is not staged go to the C library
//! unchanged.
//!
//! Each function takes no lock and allocates nothing, so that it can be called where its original can: in a signal
//! handler, after `fork`. Those that look at files use less than 4 KiB of the stack, those that start programs less
//! than 16 KiB.
//!
//! Not covered: static programs, other C libraries than glibc, programs with special rights (the loader ignores both
//! variables for them), direct system calls, and what the C library opens for itself (`glob`, `nftw`, `scandir`): they
//! use the originals.
//!
//! The functions have no version: with one they would not take the place of those of the C library.
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
mod temporary;
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

/// What the unwind tables of compiled-in memory functions name, which have nothing to clean up: unwinding goes on to
/// the caller. Not every linker leaves out those tables.
#[cfg(feature = "bare")]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> libc::c_int {
    const URC_CONTINUE_UNWIND: libc::c_int = 8;
    URC_CONTINUE_UNWIND
}
