//! Starts programs, several at once, without copying the parent's memory and without waiting for `exec`.
//!
//! A child is created by `clone` with `CLONE_VM` but without `CLONE_VFORK`: it shares the parent's memory until it
//! executes its program, while both keep running. It has a stack of its own from a pool. The kernel clears one word of
//! the shared memory when the child no longer uses that memory, after `exec` or its death (`CLONE_CHILD_CLEARTID`), so
//! the parent can see that without a system call, or wait for it with a futex. A child that fails writes the step and
//! `errno` into its task before it exits.
//!
//! Measured on 2 CPUs, 1,024 processes of an empty static program: 50 to 60 ms for `vfork` one after the other
//! without any descriptors; 47 ms with 4 or more at once including two pipes and a socket pair each (one at a time, as
//! with `fork`, takes 80 ms). `clone` copies the descriptor table and `exec` closes what is close-on-exec, so a caller
//! should keep its table small while it spawns.
//!
//! The kernel may run a child at once in place of the parent, and if all CPUs are busy the parent continues only at a
//! tick of the kernel's clock, milliseconds later. So a child that finds itself on its parent's CPU yields first while
//! its parent has more children to start.
//!
//! Requirements on the caller (none concerns memory safety): signals are blocked and dispositions are default (the
//! child empties the mask as its last step, and a handler must never run in it); descriptors are close-on-exec; the
//! spawner stays on one thread, whose end triggers the children's parent-death signal.

mod find;
mod program;
mod raw;
mod spawner;

pub use find::{FindError, candidates, check_directory, find_program, is_program};
pub use program::{Limits, Program};
pub use spawner::{Executed, Spawner};

use crate::bind::CpuSet;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

/// The step at which a start failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Step {
    /// Setting the process group or kernel session, the parent-death signal and the signal mask.
    Group = 1,
    /// Setting up the standard streams, the extra descriptors and the controlling terminal.
    Stdio = 2,
    Affinity = 3,
    /// Setting the resource limits and the file mode mask.
    Limit = 4,
    /// Changing to the working directory.
    Directory = 5,
    Execute = 6,
    /// The file exists, but its interpreter (`#!` or the loader of the ELF file) does not.
    Interpreter = 7,
    /// The process could not be created.
    Clone = 8,
}

impl Step {
    /// The step with this number.
    pub fn from_word(word: u32) -> Option<Step> {
        use Step::*;
        [Group, Stdio, Affinity, Limit, Directory, Execute, Interpreter, Clone]
            .into_iter()
            .find(|&step| step as u32 == word)
    }
}

/// Why a program could not be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    pub step: Step,
    pub errno: i32,
}

/// The kernel session of a child, which with Linux's autogroups also sets its scheduling group. A child always leads a
/// process group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Session {
    /// The spawner's session. Such a child has the shortest time slice, if `Spawner::new` was called in a process with
    /// the usual one.
    Shared,
    /// A new session.
    Own,
    /// A new session, with standard input as its controlling terminal.
    OwnWithTerminal,
}

/// A child to be started. The descriptors are borrowed only during the call of [`Spawner::start`].
pub struct Command<'a> {
    pub program: &'a Rc<Program>,
    /// The child's own variables, `NAME=VALUE`; they take precedence over the program's.
    pub environment: &'a [Vec<u8>],
    /// Standard input, output, error. A descriptor numbered below [`LOWEST_SOURCE`] must already have its target
    /// number.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Further descriptors of the child, which have the numbers [`EXTRA_TARGETS`] in it.
    pub extra: [Option<BorrowedFd<'a>>; EXTRA_TARGETS.len()],
    pub session: Session,
    pub cpus: Option<&'a CpuSet>,
    pub umask: u32,
    pub limits: &'a Limits,
    /// Whether the caller starts another child right after this one.
    pub more_follow: bool,
}

/// The numbers that [`Command::extra`] has in the child.
pub const EXTRA_TARGETS: [i32; 2] = [3, 4];
/// The lowest allowed number for sources of a child's descriptors, so that no target overwrites a source.
pub const LOWEST_SOURCE: i32 = 5;

#[cfg(test)]
mod tests;
