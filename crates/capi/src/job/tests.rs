//! A process and its one place in a job.

use super::*;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use wireup_wire::pmi::Dialect;

#[test]
fn calls_in_a_forked_child_fail_at_once() {
    extern "C" fn nothing() {}
    let slot = JobSlot::<u32>::new();
    slot.on_fork();
    assert_eq!(slot.take(), Err(Code::INIT));
    assert_eq!(slot.init(|| Ok(7), nothing), Ok(()), "a child of a process that has not joined may join");
    assert_eq!(slot.init(|| Err(Code::FAIL), nothing), Ok(()), "a second init does nothing");
    assert_eq!((slot.with(|job| Ok(*job)), slot.is_initialised()), (Ok(7), true));
    slot.job.with(|_| {
        // The child of a fork does not have the thread that holds the lock.
        slot.on_fork();
        assert_eq!(slot.with(|job| Ok(*job)), Err(Code::INIT));
        assert_eq!((slot.init(|| Ok(8), nothing), slot.take()), (Err(Code::FAIL), Err(Code::INIT)));
        assert!(!slot.is_initialised() && slot.socket().is_none());
    });
}

#[test]
fn a_child_forked_during_init_does_not_wait() {
    extern "C" fn nothing() {}
    let slot = JobSlot::<u32>::new();
    let joined = slot.init(
        || {
            slot.on_fork();
            assert_eq!(slot.with(|job| Ok(*job)), Err(Code::INIT));
            assert!(!slot.is_initialised());
            Ok(7)
        },
        nothing,
    );
    assert_eq!(joined, Ok(()));
}

#[test]
fn a_child_does_not_wait_for_a_thread_that_was_about_to_join() {
    extern "C" fn nothing() {}
    let slot: &JobSlot<u32> = std::boxed::Box::leak(std::boxed::Box::new(JobSlot::new()));
    let (locked, is_locked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        slot.job.with(|_| {
            locked.send(()).unwrap();
            loop {
                std::thread::park();
            }
        })
    });
    is_locked.recv().unwrap();
    assert!(!slot.is_initialised());
    assert_eq!((slot.with(|job| Ok(*job)), slot.take()), (Err(Code::INIT), Err(Code::INIT)));
    slot.on_fork();
    assert_eq!(slot.init(|| Ok(7), nothing), Ok(()));
    assert_eq!(slot.with(|job| Ok(*job)), Ok(7));
}

#[test]
fn an_inherited_descriptor_is_taken_once() {
    let slot = JobSlot::<()>::new();
    let file = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(slot.take_inherited(file.as_raw_fd()), Err(Gone));
    let (here, there) = UnixStream::pair().unwrap();
    let fd = here.into_raw_fd();
    // SAFETY: no memory is passed. The call clears `FD_CLOEXEC`, which an inherited descriptor never has.
    unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    let socket = slot.take_inherited(fd).unwrap();
    assert_eq!(JobSlot::<()>::new().take_inherited(fd), Err(Gone), "another copy of the library");
    drop(there);
    assert_eq!(slot.leave(With::Server(Server::new(socket, Dialect::Pmi1))), Err(Code::FAIL));
    // A connection that the program has made itself is not taken, whatever its number is.
    let (other, _) = UnixStream::pair().unwrap();
    assert_eq!(slot.take_inherited(other.as_raw_fd()), Err(Gone));
}
