//! The system's list of libraries, as `ldconfig` writes it: `/etc/ld.so.cache` of glibc 2.2 and later.
//!
//! ```text
//!   [an older list, up to the next multiple of 8]
//!   "glibc-ld.so.cache1.1"  count u32  strings u32  flags u8  .. 48 bytes in all
//!   count x { flags i32, key u32, value u32, os u32, hwcap u64 }     offsets from the head above
//!   strings
//! ```

use std::cell::OnceCell;
use std::path::PathBuf;

const FILE: &str = "/etc/ld.so.cache";
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEAD_LEN: usize = 48;
const ENTRY_LEN: usize = 24;
/// The architecture's byte of an entry's flags (glibc's `ldconfig.h`).
const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") { 0x0a } else { 0x03 };

/// The list, read when the first library is looked up; empty if there is none.
#[derive(Default)]
pub struct LdCache(OnceCell<List>);

struct List {
    bytes: Vec<u8>,
    head: usize,
}

impl From<Vec<u8>> for LdCache {
    fn from(bytes: Vec<u8>) -> LdCache {
        LdCache(OnceCell::from(List::parse(bytes)))
    }
}

impl LdCache {
    fn list(&self) -> &List {
        self.0.get_or_init(|| List::parse(std::fs::read(FILE).unwrap_or_default()))
    }

    /// The path of the library with this name.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.list().entries(name).next().map(|(path, _)| path)
    }

    /// Every path that the loader may take for this name, in its order: those for certain processors (`true`), then the
    /// first of those for all.
    pub fn find_all(&self, name: &str) -> Vec<(PathBuf, bool)> {
        let mut found = Vec::new();
        for (path, hwcap) in self.list().entries(name) {
            found.push((path, hwcap != 0));
            if hwcap == 0 {
                break;
            }
        }
        found
    }
}

impl List {
    fn parse(bytes: Vec<u8>) -> List {
        let head = memchr::memmem::find(&bytes, MAGIC).unwrap_or(bytes.len());
        List { bytes, head }
    }

    /// The entries with this name: the path, and for which processors it is (0: for all; bit 62: a folder of
    /// `glibc-hwcaps`).
    fn entries(&self, name: &str) -> impl Iterator<Item = (PathBuf, u64)> {
        let count = self.number(12 + 8).unwrap_or(0);
        let entries = (0..count as usize).map(|index| HEAD_LEN + index * ENTRY_LEN);
        let numbers = |at: usize| {
            let hwcap = u64::from(self.number(at + 16)?) | u64::from(self.number(at + 20)?) << 32;
            Some((self.number(at)?, self.number(at + 4)?, self.number(at + 8)?, hwcap))
        };
        let named = entries
            .map_while(numbers)
            .filter(move |&(flags, key, ..)| flags >> 8 & 0xff == ARCHITECTURE && self.is_text(key, name));
        named.filter_map(|(_, _, value, hwcap)| {
            let path = std::str::from_utf8(self.text(value)?).ok()?;
            Some((PathBuf::from(path), hwcap)).filter(|(path, _)| path.is_absolute())
        })
    }

    fn number(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(self.head + at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    }

    fn is_text(&self, at: u32, text: &str) -> bool {
        let from = self.bytes.get(self.head.saturating_add(at as usize)..).unwrap_or_default();
        from.strip_prefix(text.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }

    fn text(&self, at: u32) -> Option<&[u8]> {
        let from = self.bytes.get(self.head.checked_add(at as usize)?..)?;
        Some(&from[..memchr::memchr(0, from)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_found_in_the_loader_cache() {
        let cache = LdCache::default();
        let libc = cache.find("libc.so.6").expect("glibc is here");
        assert!(libc.ends_with("libc.so.6") && libc.exists(), "{libc:?}");
        assert_eq!(cache.find("libno-such.so.1"), None);
        assert_eq!(cache.find(""), None);
        assert!(cache.find_all("libc.so.6").contains(&(libc, false)));
    }

    #[test]
    fn paths_for_certain_processors_come_before_the_one_for_all() {
        let strings = b"libx.so\0/v3/libx.so\0/a/libx.so\0/b/libx.so\0";
        let at = |entry: usize, offset: usize| (HEAD_LEN + entry * ENTRY_LEN + offset) as u32;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(3_u32.to_ne_bytes());
        bytes.resize(HEAD_LEN, 0);
        for (value, hwcap) in [(8, 1_u64 << 62), (20, 0), (31, 0)] {
            bytes.extend((ARCHITECTURE << 8 | 3).to_ne_bytes());
            bytes.extend([at(3, 0), at(3, value), 0].map(u32::to_ne_bytes).concat());
            bytes.extend(hwcap.to_ne_bytes());
        }
        bytes.extend(strings);
        let cache = LdCache::from(bytes);
        assert_eq!(cache.find_all("libx.so"), [("/v3/libx.so".into(), true), ("/a/libx.so".into(), false)]);
    }

    #[test]
    fn a_damaged_loader_cache_does_not_panic_the_reader() {
        let whole = std::fs::read(FILE).unwrap();
        for cut in (0..whole.len()).step_by(211) {
            let _ = LdCache::from(whole[..cut].to_vec()).find("libc.so.6");
        }
        let mut noise = whole;
        for (index, byte) in noise.iter_mut().enumerate().skip(64).step_by(3) {
            *byte = (index * 31) as u8;
        }
        let _ = LdCache::from(noise).find("libc.so.6");
        assert_eq!(LdCache::from(Vec::new()).find("libc.so.6"), None);
    }
}
