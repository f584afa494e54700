//! The child's steps between `clone` and `exec`.
//!
//! The child runs on a separate stack in its parent's memory, at the same time as the parent. It only reads its
//! [`Task`] and a flag of the spawner, writes two words of the task and makes raw system calls. All signals are blocked
//! until its last step but one.

use super::program::{Execution, One, SHELL};
use super::raw::syscall;
use super::{Session, Step};
use crate::process::Attributes;
use libc::{c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// Number of target descriptors: 0, 1, 2 and the extra ones.
pub(super) const TARGETS: usize = 3 + super::EXTRA_TARGETS.len();

/// Data of one child, in memory that does not change until `running` is 0, except for atomics.
pub(super) struct Task {
    /// Whether the child still uses this memory: 1 until it executes another program or dies; then the kernel writes 0.
    pub running: AtomicU32,
    /// The [`Step`] that failed, or 0; `errno`: its error number.
    pub step: AtomicU32,
    pub errno: AtomicI32,
    pub parent: Parent,
    /// Whether the parent will start another child at once. The spawner keeps the flag alive.
    pub more_follow: *const AtomicBool,
    pub execution: Execution,
    /// Descriptors of the child as (source, target); a negative source means none.
    pub fds: [(c_int, c_int); TARGETS],
    pub session: Session,
    /// Scheduling attributes; null: the parent's.
    pub attributes: *const Attributes,
    /// The CPUs of the child; null: the parent's.
    pub cpus: *const u64,
    pub cpus_bytes: usize,
    pub umask: libc::mode_t,
    pub limits: *const One,
    pub limit_count: usize,
}

/// The process that creates the child.
pub(super) struct Parent {
    pub pid: c_int,
    /// The CPU on which the process runs; -1: unknown.
    pub cpu: c_int,
    /// Pid of the parent of that process. Under the security module Yama that grandparent and its descendants may trace
    /// the child; 0: it is outside of this PID namespace.
    pub tracer: c_int,
}

/// The child's entry point.
pub(super) extern "C" fn run_child(task: *mut Task) -> ! {
    // SAFETY: the spawner passes a task that it keeps alive and unchanged (except for its atomics) while `running` is
    // 1.
    let task = unsafe { &*task.cast_const() };
    let (step, errno) = match prepare(task) {
        Ok(()) => execute(&task.execution),
        Err(failure) => failure,
    };
    task.errno.store(errno, Ordering::Relaxed);
    task.step.store(step as u32, Ordering::Release);
    leave()
}

type Failure = (Step, c_int);

fn prepare(task: &Task) -> Result<(), Failure> {
    // The attributes are set before the yield, which costs the child one time slice: they make the slice short.
    if !task.attributes.is_null() {
        // If the kernel refuses, the only effect is that the child is slower on a loaded machine.
        let _ = call(Step::Group, libc::SYS_sched_setattr, [0, task.attributes as usize, 0, 0]);
    }
    // SAFETY: the spawner keeps the flag alive while `running` is 1.
    let more_follow = unsafe { &*task.more_follow };
    // The yield comes before `setsid`, because `sched_yield` yields only to processes of the same scheduling group.
    if more_follow.load(Ordering::Relaxed) && cpu() == task.parent.cpu {
        let _ = call(Step::Group, libc::SYS_sched_yield, [0; 4]);
    }
    match task.session {
        Session::Shared => call(Step::Group, libc::SYS_setpgid, [0; 4])?,
        Session::Own | Session::OwnWithTerminal => call(Step::Group, libc::SYS_setsid, [0; 4])?,
    };
    let kill = libc::SIGKILL as usize;
    call(Step::Group, libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as usize, kill, 0, 0])?;
    if call(Step::Group, libc::SYS_getppid, [0; 4])? != task.parent.pid as usize {
        leave();
    }
    // The error that Yama is not enabled is ignored.
    let _ = call(Step::Group, libc::SYS_prctl, [libc::PR_SET_PTRACER as usize, task.parent.tracer as usize, 0, 0]);
    for (source, target) in task.fds {
        if source == target && source >= 0 {
            call(Step::Stdio, libc::SYS_fcntl, [source as usize, libc::F_SETFD as usize, 0, 0])?;
        } else if source >= 0 {
            call(Step::Stdio, libc::SYS_dup3, [source as usize, target as usize, 0, 0])?;
        }
    }
    if task.session == Session::OwnWithTerminal {
        call(Step::Stdio, libc::SYS_ioctl, [0, libc::TIOCSCTTY as usize, 0, 0])?;
    }
    if !task.cpus.is_null() {
        call(Step::Affinity, libc::SYS_sched_setaffinity, [0, task.cpus_bytes, task.cpus as usize, 0])?;
    }
    for index in 0..task.limit_count {
        // SAFETY: the task has `limit_count` entries and keeps them alive.
        let limit = unsafe { &*task.limits.add(index) };
        let bounds: *const libc::rlimit64 = &limit.bounds;
        call(Step::Limit, libc::SYS_prlimit64, [0, limit.resource as usize, bounds as usize, 0])?;
    }
    call(Step::Limit, libc::SYS_umask, [task.umask as usize, 0, 0, 0])?;
    let cwd = task.execution.cwd;
    if !cwd.is_null() {
        call(Step::Directory, libc::SYS_chdir, [cwd as usize, 0, 0, 0])?;
    }
    let none = 0u64;
    let mask: *const u64 = &none;
    call(Step::Group, libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, mask as usize, 0, size_of::<u64>()])?;
    Ok(())
}

/// The CPU on which this process runs; -2: unknown.
fn cpu() -> c_int {
    let mut cpu: u32 = 0;
    let told = call(Step::Group, libc::SYS_getcpu, [(&raw mut cpu) as usize, 0, 0, 0]);
    told.map_or(-2, |_| cpu as c_int)
}

/// Executes the program; returns only if `exec` failed.
fn execute(program: &Execution) -> Failure {
    let mut errno = execve(program.path, program.argv, program.envp);
    if errno == libc::ENOEXEC && is_text(program.path) {
        errno = execve(SHELL.as_ptr(), program.shell_argv, program.envp);
    }
    let here = [libc::AT_FDCWD as usize, program.path as usize, libc::F_OK as usize, 0];
    if errno == libc::ENOENT && call(Step::Execute, libc::SYS_faccessat, here).is_ok() {
        return (Step::Interpreter, errno);
    }
    (Step::Execute, errno)
}

/// Whether the first line of the file has no zero byte, by which shells recognize a script. (A program for another
/// machine has one.)
fn is_text(path: *const c_char) -> bool {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let opened = call(Step::Execute, libc::SYS_openat, [libc::AT_FDCWD as usize, path as usize, flags, 0]);
    let Ok(file) = opened else { return false };
    let mut start = [0u8; 128];
    let read = call(Step::Execute, libc::SYS_read, [file, start.as_mut_ptr() as usize, start.len(), 0]);
    let start = start.get(..read.unwrap_or(0)).unwrap_or_default();
    start.iter().take_while(|byte| **byte != b'\n').all(|byte| *byte != 0)
}

fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    match call(Step::Execute, libc::SYS_execve, [path as usize, argv as usize, envp as usize, 0]) {
        Ok(_) => 0,
        Err((_, errno)) => errno,
    }
}

#[inline(always)]
fn call(step: Step, number: libc::c_long, arguments: [usize; 4]) -> Result<usize, Failure> {
    // SAFETY: pointers among the arguments come from the task (see `Task`) or from this stack.
    let result = unsafe { syscall(number, arguments) };
    if result < 0 { Err((step, -result as c_int)) } else { Ok(result as usize) }
}

fn leave() -> ! {
    loop {
        // SAFETY: ends this process; the parent's memory is not touched.
        unsafe { syscall(libc::SYS_exit_group, [127, 0, 0, 0]) };
    }
}
