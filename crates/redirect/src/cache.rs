//! Reads the system's list of libraries, as `ldconfig` writes it: `/etc/ld.so.cache` of glibc 2.2 and later.
//!
//! ```text
//!   [an older list]
//!   "glibc-ld.so.cache1.1"  count u32  strings u32  flags u8  .. 48 bytes in all
//!   count x { flags i32, key u32, value u32, os u32, hwcap u64 }     offsets from the head above
//!   strings
//! ```

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEAD_LEN: usize = 48;
const ENTRY_LEN: usize = 24;
/// Flags of an entry (kind and architecture, as in glibc's `ldconfig.h`): a glibc library for this architecture.
const FLAGS: u32 = if cfg!(target_arch = "aarch64") { 0x0a03 } else { 0x0303 };
/// The bits of an entry's flags that contain its architecture.
const ARCHITECTURE: u32 = 0xff00;

/// An entry of the list for this architecture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Absolute path, with a zero byte at its end.
    pub path: &'a [u8],
    /// Whether the library may be used on all processors of this architecture, not only on some.
    pub is_for_all: bool,
    flags: u32,
}

/// The entries for this name, in the order in which the loader tries them; `None`: the list is damaged, and later items
/// are meaningless.
pub fn entries<'a>(cache: &'a [u8], name: &[u8]) -> impl Iterator<Item = Option<Entry<'a>>> {
    let head = match cache.starts_with(MAGIC) {
        true => 0,
        false => cache.windows(MAGIC.len()).position(|window| window == MAGIC).unwrap_or(cache.len()),
    };
    let cache = &cache[head..];
    let number = |at: usize| Some(u32::from_ne_bytes(*cache.get(at..)?.first_chunk()?));
    let count = number(MAGIC.len()).unwrap_or(0);
    let numbers = move |index: u32| {
        let at = HEAD_LEN + index as usize * ENTRY_LEN;
        let is_for_all = number(at + 16)? == 0 && number(at + 20)? == 0;
        Some((number(at)?, cache.get(number(at + 4)? as usize..)?, cache.get(number(at + 8)? as usize..)?, is_for_all))
    };
    (0..count).map(numbers).filter_map(move |numbers| {
        let Some((flags, key, value, is_for_all)) = numbers else { return Some(None) };
        let is_named = key.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0));
        let is_meant = (flags ^ FLAGS) & ARCHITECTURE == 0 && is_named && value.starts_with(b"/");
        is_meant.then(|| {
            let zero = value.iter().position(|byte| *byte == 0)?;
            Some(Entry { path: &value[..=zero], is_for_all, flags })
        })
    })
}

/// The path of a library, with a zero at its end. `None`: the list is damaged, or the loader would have a choice of
/// entries, or the only entry is not for all processors.
pub fn find<'a>(cache: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut found = entries(cache, name);
    let only = found.next()?.filter(|entry| entry.is_for_all && entry.flags == FLAGS)?;
    found.next().is_none().then_some(only.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn cache(entries: &[(u32, u32, &str, &str)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((entries.len() as u32).to_ne_bytes());
        bytes.resize(HEAD_LEN, 0);
        let mut texts = Vec::new();
        let begin = HEAD_LEN + entries.len() * ENTRY_LEN;
        for (flags, hwcap, key, value) in entries {
            let mut place = |text: &str| {
                let at = begin + texts.len();
                texts.extend_from_slice(text.as_bytes());
                texts.push(0);
                at as u32
            };
            let (key, value) = (place(key), place(value));
            for number in [*flags, key, value, 0, *hwcap, 0] {
                bytes.extend(number.to_ne_bytes());
            }
        }
        bytes.extend(texts);
        bytes
    }

    #[test]
    fn a_library_is_found_if_there_is_no_choice() {
        let entries = [
            (FLAGS, 0, "libc.so.6", "/lib/libc.so.6"),
            (FLAGS, 2, "libm.so.6", "/lib/v3/libm.so.6"),
            (FLAGS, 0, "libm.so.6", "/lib/libm.so.6"),
            (3, 0, "libold.so", "/lib32/libold.so"),
            (FLAGS, 0, "libodd.so", "odd"),
        ];
        let cache = cache(&entries);
        let find = |name: &str| find(&cache, name.as_bytes());
        assert_eq!(find("libc.so.6"), Some(&b"/lib/libc.so.6\0"[..]));
        for name in ["libm.so.6", "libold.so", "libodd.so", "libc.so", ""] {
            assert_eq!(find(name), None, "{name}");
        }
        let behind = [&[1; 24][..], &cache].concat();
        assert_eq!(super::find(&behind, b"libc.so.6"), Some(&b"/lib/libc.so.6\0"[..]));
        (0..cache.len()).for_each(|len| {
            let _ = super::find(&cache[..len], b"libodd.so");
        });
    }

    #[test]
    fn entries_for_certain_processors_keep_their_place() {
        let list =
            [(FLAGS, 1 << 30, "libx.so", "/v3/libx.so"), (FLAGS, 0, "libx.so", "/a/libx.so"), (3, 0, "libx.so", "/b")];
        let cache = cache(&list);
        let found: Vec<_> = entries(&cache, b"libx.so").flatten().map(|entry| (entry.path, entry.is_for_all)).collect();
        assert_eq!(found, [(&b"/v3/libx.so\0"[..], false), (b"/a/libx.so\0", true)]);
    }

    #[test]
    fn nothing_is_found_in_a_list_that_is_damaged_behind_the_first_entry() {
        let mut cache = cache(&[(FLAGS, 0, "libx.so", "/a/libx.so"), (FLAGS, 0, "liby.so", "/a/liby.so")]);
        assert!(find(&cache, b"libx.so").is_some());
        let key_of_the_second = HEAD_LEN + ENTRY_LEN + 4;
        cache[key_of_the_second..][..4].fill(0xff);
        assert_eq!(find(&cache, b"libx.so"), None);
    }

    #[test]
    fn a_damaged_list_does_not_panic_the_reader() {
        let whole = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
        if std::fs::exists("/lib64/ld-linux-x86-64.so.2").is_ok_and(|exists| exists) {
            assert!(find(&whole, b"libc.so.6").is_some_and(|path| path.ends_with(b"/libc.so.6\0")));
        }
        for cut in (0..whole.len()).step_by(211) {
            let _ = find(&whole[..cut], b"libc.so.6");
        }
        let mut noise = whole;
        for (index, byte) in noise.iter_mut().enumerate().skip(64).step_by(3) {
            *byte = (index * 31) as u8;
        }
        let _ = find(&noise, b"libc.so.6");
        assert_eq!(find(&[], b"libc.so.6"), None);
    }
}
