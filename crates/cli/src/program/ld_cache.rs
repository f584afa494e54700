//! The system's list of libraries (`redirect::cache`), read when the first library is looked up.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use wireup_redirect::cache::{Entry, entries};

const FILE: &str = "/etc/ld.so.cache";

/// The bytes of the system's list; empty if there is none.
#[derive(Default)]
pub struct LdCache(OnceCell<Vec<u8>>);

impl From<Vec<u8>> for LdCache {
    fn from(bytes: Vec<u8>) -> LdCache {
        LdCache(OnceCell::from(bytes))
    }
}

impl LdCache {
    fn entries(&self, name: &str) -> impl Iterator<Item = (PathBuf, bool)> {
        let list = self.0.get_or_init(|| std::fs::read(FILE).unwrap_or_default());
        let path = |entry: &Entry| PathBuf::from(OsStr::from_bytes(&entry.path[..entry.path.len() - 1]));
        entries(list, name.as_bytes()).map_while(|entry| entry).map(move |entry| (path(&entry), !entry.is_for_all))
    }

    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.entries(name).next().map(|(path, _)| path)
    }

    /// Every path that the loader may take for this name, in its order: those for certain processors (`true`), then the
    /// first of those for all.
    pub fn find_all(&self, name: &str) -> Vec<(PathBuf, bool)> {
        let mut is_over = false;
        self.entries(name).take_while(|(_, is_special)| !std::mem::replace(&mut is_over, !is_special)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_for_certain_processors_come_before_the_one_for_all() {
        let flags: u32 = if cfg!(target_arch = "aarch64") { 0x0a03 } else { 0x0303 };
        let strings = b"libx.so\0/v3/libx.so\0/a/libx.so\0/b/libx.so\0";
        let (head_len, entry_len) = (48, 24);
        let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
        bytes.extend(3_u32.to_ne_bytes());
        bytes.resize(head_len, 0);
        let at = |offset: usize| (head_len + 3 * entry_len + offset) as u32;
        for (value, hwcap) in [(8, 1_u64 << 62), (20, 0), (31, 0)] {
            bytes.extend([flags, at(0), at(value), 0].map(u32::to_ne_bytes).concat());
            bytes.extend(hwcap.to_ne_bytes());
        }
        bytes.extend(strings);
        let cache = LdCache::from(bytes);
        assert_eq!(cache.find_all("libx.so"), [("/v3/libx.so".into(), true), ("/a/libx.so".into(), false)]);
    }

    #[test]
    fn the_c_library_is_found_in_the_loader_cache() {
        let cache = LdCache::default();
        let libc = cache.find("libc.so.6").expect("glibc is here");
        assert!(libc.ends_with("libc.so.6") && libc.exists(), "{libc:?}");
        assert_eq!(cache.find("libno-such.so.1"), None);
        assert_eq!(cache.find(""), None);
        assert!(cache.find_all("libc.so.6").contains(&(libc, false)));
    }
}
