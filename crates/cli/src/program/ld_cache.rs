//! The system's list of libraries (`redirect::cache`), read when the first library is looked up.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use wireup_redirect::cache::{Entry, entries};

const FILE: &str = "/etc/ld.so.cache";

/// The list; empty if there is none.
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
        entries(list, name.as_bytes()).map(move |entry| (path(&entry), !entry.is_for_all))
    }

    /// The path of the library with this name.
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
    fn the_c_library_is_found_in_the_loader_cache() {
        let cache = LdCache::default();
        let libc = cache.find("libc.so.6").expect("glibc is here");
        assert!(libc.ends_with("libc.so.6") && libc.exists(), "{libc:?}");
        assert_eq!(cache.find("libno-such.so.1"), None);
        assert_eq!(cache.find(""), None);
        assert!(cache.find_all("libc.so.6").contains(&(libc, false)));
    }
}
