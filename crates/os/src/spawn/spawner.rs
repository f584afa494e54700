//! Starts children, several at once, with a stack and a task for each, and has the steps of a child between `clone` and
//! `exec`.
//!
//! The child runs on a separate stack in its parent's memory, at the same time as the parent. It only reads its
//! [`Task`] and a flag of the spawner, writes two words of the task and makes raw system calls. All signals are blocked
//! until its last step but one.

use super::program::{Environment, Execution, One, SHELL};
use super::raw::{clone, syscall};
use super::{Command, EXTRA_TARGETS, Failure, LOWEST_SOURCE, Program, Session, Step};
use crate::process::Attributes;
use libc::{c_char, c_int};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::thread::futex;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

/// Bytes of a child's stack. A child needs less than 1 KiB; in unoptimised code a few KiB.
const STACK_BYTES: usize = 64 << 10;

/// Starts programs; a fixed number of starts may be in progress at once.
pub struct Spawner {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Indexes of the slots of the children being started, oldest first.
    flying: VecDeque<usize>,
    own_pid: i32,
    /// Whether another child is started at once. Children read the flag until they have left this process's memory.
    more_follow: Box<AtomicBool>,
    /// Scheduling attributes of children that share the session.
    attributes: Option<Box<Attributes>>,
}

/// The result of a start: the child runs its program, or it failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Executed {
    /// The token passed to [`Spawner::start`].
    pub token: u32,
    pub pid: u32,
    /// Whether the program was executed. Also `Ok` for a child that was killed before `exec`, as its exit status shows.
    pub result: Result<(), Failure>,
}

struct Slot {
    stack: Stack,
    /// The child's task, at the same address until the child has been returned by `poll`. `None`: the slot is free.
    task: Box<Option<Task>>,
    token: u32,
    pid: u32,
    /// Data to which pointers in the task lead.
    program: Option<Rc<Program>>,
    environment: Environment,
    cpus: Vec<u64>,
    limits: Vec<One>,
}

impl Spawner {
    /// A spawner for this process with `at_once` slots; about four per CPU keep all CPUs busy.
    pub fn new(at_once: usize) -> io::Result<Spawner> {
        let slots = (0..at_once.max(1)).map(|_| Slot::new()).collect::<io::Result<Vec<_>>>()?;
        Ok(Spawner {
            free: (0..slots.len()).rev().collect(),
            flying: VecDeque::with_capacity(slots.len()),
            slots,
            own_pid: rustix::process::getpid().as_raw_nonzero().get(),
            more_follow: Box::default(),
            attributes: Attributes::with_short_slice().map(Box::new),
        })
    }

    /// Whether another child can be started now.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// The number of children that have been started and not yet returned by `poll`.
    pub fn under_way(&self) -> usize {
        self.flying.len()
    }

    /// Notes that the caller starts no other child for now, so that children need not yield to it.
    pub fn pause(&self) {
        self.more_follow.store(false, Ordering::Relaxed);
    }

    /// Starts a child and returns its pid. [`Spawner::poll`] later reports the result under `token`; the caller may
    /// close the child's descriptors at once.
    ///
    /// # Errors
    /// The process cannot be created ([`Step::Clone`]); a variable contains a zero byte (`EINVAL`).
    ///
    /// # Panics
    /// If no slot is free, or a descriptor breaks the rule of [`Command::stdio`].
    pub fn start(&mut self, command: &Command<'_>, token: u32) -> Result<u32, Failure> {
        let index = self.free.pop().expect("the caller has checked has_room()");
        let started = self.start_in(index, command, token);
        match started {
            Ok(_) => self.flying.push_back(index),
            Err(_) => self.free.push(index),
        }
        started
    }

    /// A started child that no longer uses this process's memory, with the result of its start; `None`: there is none
    /// now.
    pub fn poll(&mut self) -> Option<Executed> {
        let is_gone = |task: &Task| task.running.load(Ordering::Acquire) == 0;
        let gone = |&index: &usize| (*self.slots[index].task).as_ref().is_some_and(is_gone);
        let place = self.flying.iter().position(gone)?;
        let index = self.flying.remove(place)?;
        self.free.push(index);
        let slot = &mut self.slots[index];
        slot.program = None;
        let task = slot.task.take()?;
        let step = Step::from_word(task.step.load(Ordering::Acquire));
        let errno = task.errno.load(Ordering::Relaxed);
        let result = step.map_or(Ok(()), |step| Err(Failure { step, errno }));
        Some(Executed { token: slot.token, pid: slot.pid, result })
    }

    /// Waits at most `timeout` until the oldest child being started no longer uses this process's memory.
    pub fn wait_oldest(&self, timeout: Duration) {
        let Some(task) = self.flying.front().and_then(|&index| (*self.slots[index].task).as_ref()) else { return };
        let timeout = rustix::time::Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()) as _,
        };
        // The futex must not be private: the kernel wakes this word as a shared one. After any error (the word has
        // changed, a signal, the timeout) the caller checks again.
        let _ = futex::wait(&task.running, futex::Flags::empty(), 1, Some(&timeout));
    }

    fn start_in(&mut self, index: usize, command: &Command<'_>, token: u32) -> Result<u32, Failure> {
        self.more_follow.store(command.more_follow, Ordering::Relaxed);
        let attributes = self.attributes.as_deref().filter(|_| command.session == Session::Shared);
        let slot = &mut self.slots[index];
        let invalid = Failure { step: Step::Execute, errno: libc::EINVAL };
        slot.environment.set(command.program, command.environment).map_err(|_| invalid)?;
        slot.cpus.clear();
        slot.cpus.extend(command.cpus.iter().flat_map(|set| set.words()));
        slot.limits.clear();
        slot.limits.extend_from_slice(command.limits.list());
        let task = Task {
            running: AtomicU32::new(1),
            step: AtomicU32::new(0),
            errno: AtomicI32::new(0),
            parent: Parent {
                pid: self.own_pid,
                cpu: own_cpu(),
                tracer: rustix::process::Pid::as_raw(rustix::process::getppid()),
            },
            more_follow: &raw const *self.more_follow,
            execution: command.program.execution(&slot.environment),
            fds: places(command),
            session: command.session,
            attributes: attributes.map_or(std::ptr::null(), std::ptr::from_ref),
            cpus: if slot.cpus.is_empty() { std::ptr::null() } else { slot.cpus.as_ptr() },
            cpus_bytes: slot.cpus.len() * 8,
            umask: command.umask as libc::mode_t,
            limits: slot.limits.as_ptr(),
            limit_count: slot.limits.len(),
        };
        slot.program = Some(Rc::clone(command.program));
        slot.token = token;
        slot.pid = slot.clone_child(task).map_err(|errno| Failure { step: Step::Clone, errno })?;
        Ok(slot.pid)
    }
}

impl Drop for Spawner {
    /// Waits for the children that still use this process's memory.
    fn drop(&mut self) {
        while !self.flying.is_empty() {
            self.wait_oldest(Duration::from_secs(1));
            while self.poll().is_some() {}
        }
    }
}

fn places(command: &Command<'_>) -> [(i32, i32); TARGETS] {
    let place = |source: BorrowedFd<'_>, target: i32| {
        let source = source.as_raw_fd();
        assert!(source == target || source >= LOWEST_SOURCE, "descriptor {source} would be overwritten");
        (source, target)
    };
    let [stdin, stdout, stderr] = command.stdio;
    let extra = |index: usize| command.extra[index].map_or((-1, -1), |extra| place(extra, EXTRA_TARGETS[index]));
    [place(stdin, 0), place(stdout, 1), place(stderr, 2), extra(0), extra(1)]
}

/// The CPU on which this process runs; -1: unknown.
fn own_cpu() -> i32 {
    // SAFETY: `sched_getcpu` only returns a number.
    unsafe { libc::sched_getcpu() }
}

impl Slot {
    fn new() -> io::Result<Slot> {
        Ok(Slot {
            stack: Stack::new()?,
            task: Box::default(),
            token: 0,
            pid: 0,
            program: None,
            environment: Environment::default(),
            cpus: Vec::new(),
            limits: Vec::new(),
        })
    }

    fn clone_child(&mut self, task: Task) -> Result<u32, i32> {
        let flags = libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
        let task: *mut Task = self.task.insert(task);
        // SAFETY: the stack belongs to this slot alone and the slot is free, so no other child uses it. The task and
        // all that it points into (program, environment, CPUs, limits, in this slot; the spawner's flag and attributes)
        // is neither changed, except for atomics, nor moved or dropped before `running` is 0: a slot in use is not in
        // `free`, and `Spawner::drop` waits. The child shares this process's memory without being one of its threads;
        // `run_child` reads the task, writes only its atomics, calls neither the allocator nor the C library, and never
        // returns. `running` is in the task and is the word that CLEARTID clears.
        let pid = unsafe {
            let cleared = (&raw mut (*task).running).cast::<u32>();
            clone(flags, self.stack.top(), run_child, task, cleared)
        };
        if pid < 0 {
            *self.task = None;
            return Err(-pid as i32);
        }
        Ok(pid as u32)
    }
}

/// Memory for a child's stack, with an inaccessible guard page below.
struct Stack {
    base: *mut c_void,
    bytes: usize,
}

impl Stack {
    fn new() -> io::Result<Stack> {
        let page = rustix::param::page_size();
        let bytes = STACK_BYTES + page;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; its lowest page is made inaccessible before
        // any other code knows the address.
        unsafe {
            let base = mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE)?;
            let stack = Stack { base, bytes };
            mprotect(base, page, MprotectFlags::empty())?;
            Ok(stack)
        }
    }

    /// The highest address of the stack, at which it begins.
    fn top(&self) -> *mut u8 {
        self.base.wrapping_byte_add(self.bytes).cast()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this `Stack`; `Spawner::drop` has waited for the child that ran on it.
        let _ = unsafe { munmap(self.base, self.bytes) };
    }
}

/// Number of target descriptors: 0, 1, 2 and the extra ones.
const TARGETS: usize = 3 + EXTRA_TARGETS.len();

/// Data of one child, in memory that does not change until `running` is 0, except for atomics.
struct Task {
    /// Whether the child still uses this memory: 1 until it executes another program or dies; then the kernel writes 0.
    running: AtomicU32,
    /// The [`Step`] that failed, or 0; `errno`: its error number.
    step: AtomicU32,
    errno: AtomicI32,
    parent: Parent,
    /// Whether the parent will start another child at once. The spawner keeps the flag alive.
    more_follow: *const AtomicBool,
    execution: Execution,
    /// Descriptors of the child as (source, target); a negative source means none.
    fds: [(c_int, c_int); TARGETS],
    session: Session,
    /// Scheduling attributes; null: the parent's.
    attributes: *const Attributes,
    /// The CPUs of the child; null: the parent's.
    cpus: *const u64,
    cpus_bytes: usize,
    umask: libc::mode_t,
    limits: *const One,
    limit_count: usize,
}

/// The process that creates the child.
struct Parent {
    pid: c_int,
    /// The CPU on which the process runs; -1: unknown.
    cpu: c_int,
    /// Pid of the parent of that process. Under the security module Yama that grandparent and its descendants may trace
    /// the child; 0: it is outside of this PID namespace.
    tracer: c_int,
}

/// The child's entry point.
extern "C" fn run_child(task: *mut Task) -> ! {
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

/// The step of a child that failed, and its error number.
type Failed = (Step, c_int);

fn prepare(task: &Task) -> Result<(), Failed> {
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
fn execute(program: &Execution) -> Failed {
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
fn call(step: Step, number: libc::c_long, arguments: [usize; 4]) -> Result<usize, Failed> {
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
