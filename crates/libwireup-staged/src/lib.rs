//! `libwireup-staged.so.0`: shows staged files under their original names to a process that cannot have mounts of its own.
//!
//! ```text
//!   the loader of programs ── LD_AUDIT ────► audit ─┐
//!   open, stat, access, … ── LD_PRELOAD ──► files ──┼──► staged: what is staged, and where the copy is ──► paths (without I/O)
//!   execve, posix_spawn, … ── LD_PRELOAD ──► exec ──┘
//! ```
//!
//! The variable `WIREUP_STAGED` names a folder of the node's memory: in `tree` are the files below their original paths, in `roots` the names
//! that the user has staged. What is below a staged folder is looked up in the copy only, so a name that does not exist costs the file server
//! nothing; what is opened to be written is the original. A path that leads into the tree and does not exist there (a program looks beside
//! itself for a file that was not staged) becomes the original path again.
//!
//! Not covered: static programs, other C libraries than glibc, programs with special rights (the loader ignores both variables for them), direct
//! system calls, `execl` and its like, what the C library opens for itself (`glob`, `nftw`, `realpath`), and folders on the way that are absolute links.
//!
//! The functions have no version: with one they would not take the place of those of the C library.
#![no_std]
#[cfg(not(feature = "bare"))]
extern crate std;

mod audit;
mod exec;
mod files;
mod kernel;
pub mod paths;
mod real;
mod staged;

#[cfg(feature = "bare")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: the process ends.
    unsafe { kernel::call(libc::SYS_exit_group, [134, 0, 0, 0]) };
    loop {
        core::hint::spin_loop();
    }
}
