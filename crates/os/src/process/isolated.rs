//! Creates a PID namespace for a process and all of its descendants: if the process ends, for whatever reason, the
//! kernel kills all of them.
//!
//! The first process of a PID namespace has the number 1 in it. A `/proc` that shows other numbers than `getpid`
//! returns would mislead programs (UCX opens `/proc/PID/fd/N` of its peers, for example), so the process also gets a
//! mount namespace, in which `/proc` is that of the PID namespace. All other mounts stay shared with the outside, as
//! far as they were shared before.
//!
//! Programs put their pid into names of files in `/tmp` or `/dev/shm`. Processes in different namespaces may have equal
//! pids, so each namespace begins to assign pids at another number.
//!
//! Needs `CAP_SYS_ADMIN`. Without it, if the caller asks for that, both namespaces belong to a new user namespace in
//! which only this user and group exist. Cost, measured: 0.1 ms for the start, 0.5 ms for the end.

use super::{Ended, Fork, block_all_signals, fork, fork_with_signals_blocked, leave, set_subreaper, wait_for};
use rustix::fs::{Mode, OFlags, fstat, open, openat, stat};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, PidfdFlags, getegid, geteuid, pidfd_open};
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, UnshareFlags, capabilities, move_into_link_name_space, unshare_unsafe,
};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The pid of the first process of a PID namespace.
const FIRST: u32 = 1;
/// Lowest pid that the kernel assigns after its pid counter has wrapped around.
const LOWEST: u64 = 300;
/// `_IOR(0xb7, 8, int)` in `linux/nsfs.h`: translates a pid of this process's namespace to the descriptor's namespace.
const NS_GET_PID_IN_PIDNS: u32 = 2 << 30 | 4 << 16 | 0xb7 << 8 | 8;
/// Most bytes that are read from a pidfd's `/proc/self/fdinfo` file: about six short lines, one of which is `Pid:`.
const INFO_BYTES_MAX: usize = 512;
/// Distance between the first pids of two namespaces whose creators have consecutive pids. Chosen: more than a node's
/// ranks.
const APART: u64 = 1021;

/// Whether this process may make namespaces without a user namespace.
pub fn may_isolate() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// The PID namespace in which [`fork_isolated`] puts the child.
pub enum PidNamespace {
    /// A new namespace, with the child as its first process; with `by_user`, in a user namespace if this process may
    /// not make the namespace otherwise.
    New { by_user: bool },
    /// An existing namespace, with the mounts of its first process, so that `/proc` is mounted once.
    Of {
        /// The user namespace of that first process, if it is not that of this process.
        user: Option<OwnedFd>,
        numbers: OwnedFd,
        mounts: OwnedFd,
    },
}

impl PidNamespace {
    /// The PID namespace of a process that has called [`Isolated::enter`].
    ///
    /// # Errors
    /// There is no such process, or it belongs to another user.
    pub fn of(process: u32) -> io::Result<PidNamespace> {
        let process = process.to_string();
        let (own, user) = (open_namespace("self", "user")?, open_namespace(&process, "user")?);
        let user = (number(&own)? != number(&user)?).then_some(user);
        Ok(PidNamespace::Of {
            user,
            numbers: open_namespace(&process, "pid")?,
            mounts: open_namespace(&process, "mnt")?,
        })
    }
}

fn number(namespace: &OwnedFd) -> io::Result<u64> {
    Ok(fstat(namespace)?.st_ino)
}

fn open_namespace(process: &str, kind: &str) -> io::Result<OwnedFd> {
    Ok(open(format!("/proc/{process}/ns/{kind}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Like [`super::fork_with_signals_blocked`], but the child is in another PID namespace. The child must pass the
/// returned descriptor, which refers to this process's namespace, to [`Isolated::enter`].
///
/// # Errors
/// The namespace may not be entered or has ended, or [`fork`] fails.
pub fn fork_isolated(namespace: &PidNamespace) -> io::Result<(Fork, OwnedFd)> {
    let own = open_namespace("self", "pid")?;
    match namespace {
        PidNamespace::New { by_user: true } if !may_isolate() => Ok((fork_by_user(namespace)?, own)),
        PidNamespace::Of { user: Some(_), .. } => Ok((fork_by_user(namespace)?, own)),
        PidNamespace::New { .. } | PidNamespace::Of { .. } => fork_directly(namespace, own),
    }
}

fn fork_directly(namespace: &PidNamespace, own: OwnedFd) -> io::Result<(Fork, OwnedFd)> {
    let back = || move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID));
    // Checks, before anything changes, that this process is permitted to return to its own PID namespace.
    back()?;
    let before = block_all_signals();
    let moved = match namespace {
        // SAFETY: `unshare` with this flag does not affect the descriptor table.
        PidNamespace::New { .. } => unsafe { unshare_unsafe(UnshareFlags::NEWPID) },
        PidNamespace::Of { numbers, .. } => {
            move_into_link_name_space(numbers.as_fd(), Some(LinkNameSpaceType::ProcessID))
        }
    };
    let forked = match moved {
        Ok(()) => fork(),
        Err(error) => Err(error.into()),
    };
    if !matches!(forked, Ok(Fork::Child)) {
        if let Err(error) = back() {
            // This process must not continue, since all processes that it starts would be in the other namespace. The
            // child dies with its parent.
            eprintln!("wireup: cannot return to this process's PID namespace (setns): {}", io::Error::from(error));
            leave(1);
        }
        before.restore();
    }
    Ok((forked?, own))
}

/// Forks a child into a namespace of another user namespace. A process cannot leave a user namespace, so an
/// intermediate process enters it, forks the child, and exits. The child is then a child of this process, a subreaper.
fn fork_by_user(namespace: &PidNamespace) -> io::Result<Fork> {
    set_subreaper()?;
    let (told, tells) = crate::files::pipe()?;
    let Fork::Parent { child: between } = fork_with_signals_blocked()? else {
        match enter_as_user(namespace).and_then(|()| fork()) {
            Ok(Fork::Child) => return Ok(Fork::Child),
            Ok(Fork::Parent { child }) => {
                let is_told = rustix::io::write(&tells, &child.to_ne_bytes()).is_ok();
                leave(if is_told { 0 } else { libc::EPIPE });
            }
            Err(error) => leave(error.raw_os_error().unwrap_or(libc::EPERM)),
        }
    };
    drop(tells);
    match wait_for(between)? {
        Ended::Exited(0) => {}
        Ended::Exited(number) => return Err(io::Error::from_raw_os_error(number.into())),
        Ended::Signalled { .. } => return Err(io::ErrorKind::Interrupted.into()),
    }
    let mut child = [0; size_of::<u32>()];
    rustix::io::read(&told, &mut child)?;
    Ok(Fork::Parent { child: u32::from_ne_bytes(child) })
}

fn enter_as_user(namespace: &PidNamespace) -> io::Result<()> {
    if let PidNamespace::Of { user: Some(user), numbers, .. } = namespace {
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
        return Ok(move_into_link_name_space(numbers.as_fd(), Some(LinkNameSpaceType::ProcessID))?);
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: `unshare` with these flags does not affect the descriptor table.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWPID) }?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// The state of a process that has entered a PID namespace.
pub struct Isolated {
    /// The PID namespace around this one.
    outer: OwnedFd,
    /// The folder `/proc/self/fdinfo` of the outer namespace.
    descriptors: OwnedFd,
}

impl Isolated {
    /// Makes `/proc` show the processes of the namespace that [`fork_isolated`] has put this process into.
    ///
    /// # Errors
    /// Mounting is not permitted, `/proc` is no separate mount, or the namespace's first process has another root.
    pub fn enter(outer: OwnedFd, namespace: &PidNamespace) -> io::Result<Isolated> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = open("/proc/self/fdinfo", flags, Mode::empty())?;
        let own = fs::read_link("/proc/self")?;
        match namespace {
            PidNamespace::New { .. } => mount_own_proc()?,
            PidNamespace::Of { mounts, .. } => use_mounts(mounts.as_fd())?,
        }
        let isolated = Isolated { outer, descriptors };
        isolated.outer_pid(super::own_pid())?;
        if super::own_pid() == FIRST {
            // Programs put pids into the names of files, so pids should not be equal in several namespaces.
            let _ = own.to_str().and_then(|own| own.parse().ok()).map(begin_to_count);
        }
        Ok(isolated)
    }

    /// Whether this is the first process of the namespace and other processes, zombies included, are in it.
    pub fn has_others(&self) -> bool {
        // SAFETY: the call touches no memory, and sends nothing.
        super::own_pid() == FIRST && unsafe { libc::kill(-1, 0) } == 0
    }

    /// The descriptors that `Isolated` needs and that must stay open.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.outer.as_fd(), self.descriptors.as_fd()]
    }

    /// The pid that a process of this namespace, which must not have been reaped yet, has in the outer namespace.
    ///
    /// # Errors
    /// There is no such process; no descriptor is left; Linux before 5.3.
    pub fn outer_pid(&self, pid: u32) -> io::Result<u32> {
        // SAFETY: the call touches no memory of this process.
        let outer_pid = unsafe { libc::ioctl(self.outer.as_raw_fd(), NS_GET_PID_IN_PIDNS as _, pid) };
        if outer_pid > 0 { Ok(outer_pid as u32) } else { self.outer_pid_by_proc(pid) }
    }

    /// Does what [`Isolated::outer_pid`] does, but through `/proc`, for Linux before 6.12, which lacks the `ioctl`.
    /// Takes 40 times as long.
    fn outer_pid_by_proc(&self, pid: u32) -> io::Result<u32> {
        let pid = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let info = openat(&self.descriptors, process.as_raw_fd().to_string(), flags, Mode::empty())?;
        let mut text = [0; INFO_BYTES_MAX];
        let read = rustix::io::read(info, &mut text)?;
        let text = String::from_utf8_lossy(&text[..read]);
        let number = text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
        number.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn mount_own_proc() -> io::Result<()> {
    // SAFETY: `unshare` with this flag does not affect the descriptor table.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    // A private `/proc`, so that the mount below does not appear outside this namespace.
    mount_change("/proc", MountPropagationFlags::PRIVATE)?;
    mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
    Ok(())
}

/// Joins a mount namespace; this changes root and working directory, so the latter is restored.
fn use_mounts(mounts: BorrowedFd<'_>) -> io::Result<()> {
    let root = || stat("/").map(|root| (root.st_dev, root.st_ino));
    let (before, directory) = (root()?, std::env::current_dir()?);
    move_into_link_name_space(mounts, Some(LinkNameSpaceType::Mount))?;
    if root()? != before {
        return Err(io::ErrorKind::NotFound.into());
    }
    std::env::set_current_dir(directory)
}

/// Makes this namespace assign pids from a number that others do not use. `own`: the pid of this process outside.
fn begin_to_count(own: u64) -> io::Result<()> {
    let max = fs::read_to_string("/proc/sys/kernel/pid_max")?.trim().parse().unwrap_or(32_768u64);
    let last = LOWEST + own * APART % max.saturating_sub(LOWEST).max(1);
    fs::write("/proc/sys/kernel/ns_last_pid", last.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::{Ended, leave, own_pid, wait_for};
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const NEW: PidNamespace = PidNamespace::New { by_user: false };

    /// Runs a test as the first process of a namespace; skips it if that is not permitted.
    fn within(test: impl FnOnce(Isolated)) {
        if !may_isolate() {
            return println!("not run: it needs CAP_SYS_ADMIN");
        }
        let (forked, outer) = fork_isolated(&NEW).unwrap();
        let Fork::Parent { child } = forked else {
            let outcome = catch_unwind(AssertUnwindSafe(|| test(Isolated::enter(outer, &NEW).unwrap())));
            leave(outcome.is_err().into());
        };
        assert_eq!(wait_for(child).unwrap(), Ended::Exited(0));
        // `fork` after that makes a child in this process's own namespace again.
        let Fork::Parent { child } = fork().unwrap() else { leave((own_pid() == 1).into()) };
        assert_eq!(wait_for(child).unwrap(), Ended::Exited(0));
    }

    #[test]
    fn numbers_agree_with_proc_and_are_translated() {
        let here = fs::read_link("/proc/self/ns/pid").unwrap();
        within(|isolated| {
            assert_eq!((own_pid(), fs::read_link("/proc/self").unwrap().to_str()), (1, Some("1")));
            let Fork::Parent { child } = fork().unwrap() else {
                loop {
                    std::thread::park();
                }
            };
            assert!(fs::exists(format!("/proc/{child}")).unwrap());
            let outer = isolated.outer_pid(child).unwrap();
            assert_eq!(isolated.outer_pid_by_proc(child).unwrap(), outer);
            assert!(outer != child && outer > isolated.outer_pid(1).unwrap());
            assert_eq!(super::super::descendants(), [child]);
        });
        assert_eq!(fs::read_link("/proc/self/ns/pid").unwrap(), here);
    }

    /// Forks a sleeping process in a namespace; returns its pid.
    fn sleeper(namespace: &PidNamespace) -> u32 {
        let (forked, outer) = fork_isolated(namespace).unwrap();
        let Fork::Parent { child } = forked else {
            let entered = Isolated::enter(outer, namespace);
            loop {
                std::thread::park();
                assert!(entered.is_ok());
            }
        };
        child
    }

    #[test]
    fn processes_of_different_parents_share_a_namespace_that_ends_with_its_first() {
        if !may_isolate() {
            return println!("not run: it needs CAP_SYS_ADMIN");
        }
        let first = sleeper(&NEW);
        let shared = PidNamespace::of(first).unwrap();
        let second = sleeper(&shared);
        let of = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
        assert!(of(first) == of(second) && of(first) != fs::read_link("/proc/self/ns/pid").unwrap());
        super::super::kill(first, libc::SIGKILL).unwrap();
        // The kernel lets a namespace's first process end only when all its other processes have been reaped; `second`
        // is a child of this process, which therefore has to reap it before `first`.
        assert_eq!(wait_for(second).unwrap(), Ended::Signalled { signal: libc::SIGKILL, core_dumped: false });
        wait_for(first).unwrap();
        assert!(fork_isolated(&shared).is_err(), "it has ended");
        let Fork::Parent { child } = fork().unwrap() else { leave((own_pid() == 1).into()) };
        assert_eq!(wait_for(child).unwrap(), Ended::Exited(0));
    }
}
