//! Keeps a secret in a page of its own, which is left out of core dumps, is zero in a forked process, and is wiped at
//! the end.
//!
//! A process of the same user can still read it (`ptrace`). Copies that callers make of it are theirs to wipe.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::{NonNull, null_mut};

const LEN: usize = 32;

pub struct SecretPage {
    start: NonNull<[u8; LEN]>,
}

impl SecretPage {
    /// # Errors
    /// There is no memory.
    pub fn new(secret: &[u8; LEN]) -> io::Result<SecretPage> {
        // SAFETY: the kernel chooses an address where nothing is mapped, and no other code knows it before this
        // returns.
        let start = unsafe { mmap_anonymous(null_mut(), LEN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }?;
        let start = NonNull::new(start.cast::<[u8; LEN]>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let page = SecretPage { start };
        for advice in [Advice::LinuxDontDump, Advice::LinuxWipeOnFork] {
            // SAFETY: it is our own mapping, and holds nothing yet. A kernel without this (wiping came with Linux 4.14)
            // refuses, and the secret is then kept as any other memory is.
            let _ = unsafe { madvise(start.as_ptr().cast(), LEN, advice) };
        }
        // SAFETY: the mapping is writable, aligned to a page, and longer than the array; nobody else has its address.
        unsafe { start.as_ptr().write(*secret) };
        Ok(page)
    }

    pub fn bytes(&self) -> &[u8; LEN] {
        // SAFETY: the page is mapped and holds an array as long as `self` lives, and nothing writes to it after `new`.
        unsafe { self.start.as_ref() }
    }
}

impl Drop for SecretPage {
    fn drop(&mut self) {
        // The kernel never gives the contents of this page to another process, but keeps them until it needs the
        // memory. SAFETY: as in `new`; a slice of it borrows `self`, so none is left. The write is volatile, so it is
        // not left out.
        unsafe { self.start.as_ptr().write_volatile([0; LEN]) };
        // SAFETY: exactly the range that was mapped. It cannot fail for a whole mapping.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's flags of the mapping at an address: `dd`: not dumped; `wf`: wiped on fork.
    fn flags(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("the kernel lists mappings");
        let start = format!("{address:x}-");
        let own = maps.lines().skip_while(|line| !line.trim_start_matches('0').starts_with(&start));
        own.filter_map(|line| line.strip_prefix("VmFlags:")).next().expect("a mapping with flags").to_owned()
    }

    #[test]
    fn the_page_is_neither_dumped_nor_inherited() {
        let page = SecretPage::new(&[7; LEN]).expect("a page");
        assert_eq!(page.bytes(), &[7; LEN]);
        let flags = flags(page.start.as_ptr() as usize);
        for flag in ["dd", "wf"] {
            assert!(flags.split_whitespace().any(|own| own == flag), "{flag} of {flags}");
        }
    }
}
