//! The system's list of libraries, `/etc/ld.so.cache`, as glibc 2.2 and later write it.

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEAD_LEN: usize = 48;
const ENTRY_LEN: usize = 24;
/// The kind and the architecture of an entry (glibc's `ldconfig.h`): libraries of glibc for this processor.
const FLAGS: u32 = if cfg!(target_arch = "aarch64") { 0x0a03 } else { 0x0303 };

/// The path of a library, with a zero at its end, if the loader would have no choice.
pub fn find<'a>(cache: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    // An older list may come before this one.
    let cache = match cache.starts_with(MAGIC) {
        true => cache,
        false => &cache[cache.windows(MAGIC.len()).position(|window| window == MAGIC)?..],
    };
    let number = |at: usize| Some(u32::from_ne_bytes(*cache.get(at..)?.first_chunk()?));
    let text = |at: u32| {
        let from = cache.get(at as usize..)?;
        from.iter().position(|byte| *byte == 0).map(|zero| &from[..=zero])
    };
    let mut found = None;
    for index in 0..number(MAGIC.len())? as usize {
        let at = HEAD_LEN + index * ENTRY_LEN;
        if text(number(at + 4)?)?.strip_suffix(b"\0") != Some(name) {
            continue;
        }
        let is_plain = number(at)? == FLAGS && number(at + 16)? == 0 && number(at + 20)? == 0;
        // One of several, or one for certain processors or kernels only: the loader chooses.
        // For another processor.
        if (number(at)? ^ FLAGS) & 0xff00 != 0 {
            continue;
        }
        if !is_plain || found.is_some() {
            return None;
        }
        found = text(number(at + 8)?).filter(|path| path.starts_with(b"/"));
    }
    found
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
    fn the_list_of_this_machine_is_read() {
        let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
        if std::fs::exists("/lib64/ld-linux-x86-64.so.2").is_ok_and(|exists| exists) {
            assert!(find(&cache, b"libc.so.6").is_some_and(|path| path.ends_with(b"/libc.so.6\0")));
        }
    }
}
