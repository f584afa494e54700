//! The library that a rank preloads, and the page on which it counts.

use crate::page::{MAGIC, PAGE_BYTES, VARIABLE};
use crate::tally::Tally;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::process::Command;
use wireup_os::process::own_pid;

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libtap.so"));

/// Both are files in memory, which the rank reaches through `/proc` as long as this process lives.
pub struct Preload {
    library: File,
    page: File,
}

impl Preload {
    /// # Errors
    /// No memory or no descriptor is left.
    pub fn new() -> io::Result<Preload> {
        let library = wireup_os::files::sealed_memory(LIBRARY)?.into();
        let page: File = rustix::fs::memfd_create(c"wireup-tap", rustix::fs::MemfdFlags::CLOEXEC)?.into();
        page.set_len(PAGE_BYTES as u64)?;
        page.write_all_at(&MAGIC.to_ne_bytes(), 0)?;
        Ok(Preload { library, page })
    }

    /// Lets the program of `command` preload the library, after what it preloads already.
    pub fn add_to(&self, command: &mut Command) {
        // In a PID namespace `/proc` may still be that of another one.
        let own =
            std::fs::read_link("/proc/self").map_or_else(|_| own_pid().to_string(), |pid| pid.display().to_string());
        let path = |file: &File| format!("/proc/{own}/fd/{}", file.as_raw_fd());
        let mut preload = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()).unwrap_or_default();
        if !preload.is_empty() {
            preload.push(":");
        }
        preload.push(OsString::from(path(&self.library)));
        command.env("LD_PRELOAD", preload).env(VARIABLE, path(&self.page));
    }

    /// What was counted so far.
    pub fn tally(&self) -> Tally {
        let mut bytes = [0; PAGE_BYTES];
        match self.page.read_exact_at(&mut bytes, 0) {
            Ok(()) => Tally::of_bytes(&bytes),
            // The rank has shortened it.
            Err(_) => Tally::default(),
        }
    }

    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.library.as_fd(), self.page.as_fd()]
    }
}
