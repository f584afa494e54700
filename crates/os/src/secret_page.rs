//! Keeps a secret in a separate page, which is left out of core dumps, is zero in a forked process, and is wiped when
//! it is dropped.
//!
//! A process of the same user can still read the page (`ptrace`). Callers must wipe copies that they make.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::{NonNull, null_mut};

const LEN: usize = 32;

pub struct SecretPage {
    start: NonNull<[u8; LEN]>,
}

impl SecretPage {
    pub fn new(secret: &[u8; LEN]) -> io::Result<SecretPage> {
        // SAFETY: the kernel chooses an address where nothing is mapped, and no other code knows it before this
        // returns.
        let start = unsafe { mmap_anonymous(null_mut(), LEN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }?;
        let start = NonNull::new(start.cast::<[u8; LEN]>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let page = SecretPage { start };
        for advice in [Advice::LinuxDontDump, Advice::LinuxWipeOnFork] {
            // SAFETY: this is this value's own mapping, and contains nothing yet. A kernel without the advice (wiping
            // came with Linux 4.14) refuses, and the secret is then stored like any other memory.
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
        // memory. SAFETY: as in `new`; a reference to the page borrows `self`, so none is left. The compiler must not
        // omit a volatile write.
        unsafe { self.start.as_ptr().write_volatile([0; LEN]) };
        // SAFETY: the range is exactly the mapping. `munmap` cannot fail for a whole mapping.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's flags for the mapping at an address: `dd`: not dumped; `wf`: wiped on fork.
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
