//! The library that a rank preloads, and the page on which that library counts.

use crate::page::{MAGIC, PAGE_BYTES, VARIABLE};
use crate::record::Tally;
use rustix::fs::{SealFlags, fcntl_add_seals};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::process::Command;
use wireup_os::process::own_pid;

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libtap.so"));

/// The preloaded library and the page: memfds, which the rank opens through `/proc` while this process lives.
pub struct Preload {
    library: File,
    page: File,
}

impl Preload {
    pub fn new() -> io::Result<Preload> {
        let library = wireup_os::files::sealed_memory(LIBRARY)?.into();
        let page: File = wireup_os::files::memory_file("wireup-tap")?.into();
        page.set_len(PAGE_BYTES as u64)?;
        // The size is sealed: if the page became shorter, a process that maps it would be killed by SIGBUS.
        fcntl_add_seals(&page, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        page.write_all_at(&MAGIC.to_ne_bytes(), 0)?;
        Ok(Preload { library, page })
    }

    /// Makes the program of `command` preload the library, after its other preloaded libraries.
    pub fn add_to(&self, command: &mut Command) {
        // Not `getpid`: in a PID namespace, `/proc` may still be that of another namespace.
        let own =
            std::fs::read_link("/proc/self").map_or_else(|_| own_pid().to_string(), |pid| pid.display().to_string());
        let path = |file: &File| format!("/proc/{own}/fd/{}", file.as_raw_fd());
        let others = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let is_tapped = std::env::var_os(VARIABLE).is_some();
        let mut preload = if is_tapped { without_taps(&others) } else { others };
        if !preload.is_empty() {
            preload.push(":");
        }
        preload.push(OsString::from(path(&self.library)));
        command.env("LD_PRELOAD", preload).env(VARIABLE, path(&self.page));
    }

    /// The counts on the page so far.
    pub fn tally(&self) -> Tally {
        let mut bytes = [0; PAGE_BYTES];
        match self.page.read_exact_at(&mut bytes, 0) {
            Ok(()) => Tally::of_bytes(&bytes),
            Err(_) => Tally::default(),
        }
    }

    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.library.as_fd(), self.page.as_fd()]
    }
}

/// The entries of `list`, a value of `LD_PRELOAD`, without the libraries of other taps that have started this one.
fn without_taps(list: &OsStr) -> OsString {
    let is_number = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    let is_taps = |entry: &[u8]| {
        let parts: Vec<&[u8]> = entry.split(|&byte| byte == b'/').collect();
        matches!(parts[..], [b"", b"proc", pid, b"fd", fd] if is_number(pid) && is_number(fd))
    };
    let entries = list.as_bytes().split(|&byte| byte == b':' || byte == b' ');
    let others: Vec<&[u8]> = entries.filter(|entry| !entry.is_empty() && !is_taps(entry)).collect();
    OsString::from_vec(others.join(&b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_another_tap_are_dropped() {
        let list = OsStr::new("/proc/12/fd/3:/lib/a.so /proc/self/fd/3:/proc/1/fd/4");
        assert_eq!(without_taps(list), "/lib/a.so:/proc/self/fd/3");
        assert_eq!(without_taps(OsStr::new("/proc/12/fd/3")), "");
    }

    #[test]
    fn the_page_cannot_be_shortened() {
        let preload = Preload::new().expect("memory");
        assert!(preload.page.set_len(0).is_err());
        assert_eq!(preload.tally(), Tally::default());
    }
}
