use super::*;
use crate::socket;
use rustix::fs::{Mode, OFlags};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

impl MappedRegion {
    /// Maps a sealed file for reading.
    fn read_only(fd: &OwnedFd, len: usize) -> MappedRegion {
        MappedRegion::new(fd, len, ProtFlags::READ, MapFlags::PRIVATE).unwrap()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped and allocated from `start` on as long as `self` lives; the tests' writes are
        // ordered with their reads.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }
}

fn sealed(text: &[u8]) -> OwnedFd {
    sealed_memory("test", text.len(), |bytes| bytes.copy_from_slice(text)).unwrap()
}

/// The descriptor as another process would receive it.
fn received(memory: &OwnedFd) -> OwnedFd {
    let (left, right) = socket::pair().unwrap();
    assert_eq!(socket::send(&left, b"x", &[memory.as_fd()]).unwrap(), 1);
    let mut fds = VecDeque::new();
    assert_eq!(socket::receive(&right, &mut [0; 8], &mut fds).unwrap(), 1);
    fds.pop_front().expect("a descriptor was received")
}

/// Between fork and exec a child has all mappings of its parent, except those marked not to be inherited.
#[test]
fn memory_is_sealed_while_another_thread_forks() {
    let mut child = None;
    sealed_memory("test", 1, |_| {
        child = Some(thread::spawn(|| {
            let mut command = Command::new("true");
            let waits = || {
                thread::sleep(Duration::from_millis(500));
                Ok(())
            };
            // SAFETY: sleeping is all that the child does before it executes the program.
            unsafe { command.pre_exec(waits) };
            command.status()
        }));
        thread::sleep(Duration::from_millis(200));
    })
    .expect("no child has the mapping");
    child.expect("the memory was written").join().expect("no panic").expect("a child");
}

#[test]
fn the_initial_content_is_read_by_every_mapping() {
    let memory = sealed_memory("test", 10_000, |bytes| bytes[9_998..].copy_from_slice(b"ab")).unwrap();
    let fd = received(&memory);
    drop(MappedRegion::read_only(&fd, 10_000));
    let client = MappedRegion::read_only(&fd, 10_000);
    for bytes in [MappedRegion::read_only(&memory, 10_000).bytes(), client.bytes()] {
        assert!(bytes[..9_998].iter().all(|byte| *byte == 0) && bytes.ends_with(b"ab"));
    }
    assert_eq!(rustix::fs::fstat(&fd).unwrap().st_size, 10_000);
    drop((memory, fd));
    assert!(client.bytes().ends_with(b"ab"), "it lives as long as a reader maps it");
}

#[test]
fn a_client_cannot_change_sealed_memory() {
    let memory = sealed(&[7; 8192]);
    let fd = received(&memory);
    // The memory is also reopened for writing, in case only the mode of the received descriptor prevents writing.
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let reopened = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for fd in [&fd, &reopened] {
        let writable = MappedRegion::writable(fd, 8192);
        assert_eq!(writable.map(|_| ()), Err(Errno::PERM));
        assert_eq!(rustix::io::write(fd, b"x"), Err(Errno::PERM));
        assert_eq!(rustix::io::pwrite(fd, b"x", 4096), Err(Errno::PERM));
        for len in [0, 4096, 16_384] {
            assert_eq!(rustix::fs::ftruncate(fd, len), Err(Errno::PERM), "to {len}");
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(fd, punch, 0, 4096), Err(Errno::PERM));
        assert_eq!(rustix::fs::fallocate(fd, FallocateFlags::empty(), 8192, 4096), Err(Errno::PERM));
        assert_eq!(rustix::fs::fcntl_add_seals(fd, SealFlags::FUTURE_WRITE), Err(Errno::PERM), "seals are final");
    }
    // A reader may change its own private mapping; nothing else sees that.
    let mut own = MappedRegion::new(&fd, 8192, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE).unwrap();
    own.bytes_mut().fill(9);
    assert_eq!(MappedRegion::read_only(&memory, 8192).bytes(), [7; 8192]);
}

#[test]
fn memory_descriptors_are_not_inherited() {
    let memory = sealed(b"x");
    let flags = rustix::io::fcntl_getfd(&memory).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn a_failure_names_the_failed_step() {
    let error = sealed_memory(&"x".repeat(300), 1, |_| unreachable!()).unwrap_err();
    assert_eq!(error.to_string(), "making a memory file failed: Invalid argument (os error 22)");
}

#[test]
fn only_the_owner_can_write_an_arena() {
    let mut memory = ArenaMemory::new("test", 4 * 4096).unwrap();
    memory.bytes_mut(4096, 3).unwrap().copy_from_slice(b"one");
    let fd = memory.share().unwrap();
    let reader = MappedRegion::read_only(&fd, 4 * 4096);
    assert_eq!(&reader.bytes()[4096..4099], b"one");
    memory.bytes_mut(4096, 3).unwrap().copy_from_slice(b"two");
    assert_eq!(&reader.bytes()[4096..4099], b"two");
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let reopened = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for fd in [&fd, &reopened] {
        assert_eq!(MappedRegion::writable(fd, 4096).map(|_| ()), Err(Errno::PERM));
        assert_eq!(rustix::io::pwrite(fd, b"x", 4096), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(fd, 0), Err(Errno::PERM));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(fd, punch, 0, 4096), Err(Errno::PERM));
        assert_eq!(rustix::fs::fcntl_add_seals(fd, SealFlags::WRITE), Err(Errno::PERM), "seals are final");
    }
}
