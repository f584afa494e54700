//! Shell patterns for one file name, on bytes: names need not be UTF-8.
//!
//! The C library (`fnmatch`) decides whether a name matches: `*` any bytes, `?` one byte, `[a-z]` and `[!a-z]` one byte
//! of a list, `\` the next byte as it is. A leading dot is matched by a dot only.

use std::ffi::CString;

/// Whether a part of a path is more than a plain name.
pub fn is_pattern(part: &[u8]) -> bool {
    let mut bytes = part.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'*' | b'?' | b'[' => return true,
            _ => {}
        }
    }
    false
}

/// Whether a part ends with a `\` that no byte follows: such a part matches nothing.
pub fn ends_escape(part: &[u8]) -> bool {
    part.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The name that a part without a pattern stands for.
pub fn plain(part: &[u8]) -> Vec<u8> {
    let (mut out, mut bytes) = (Vec::with_capacity(part.len()), part.iter());
    while let Some(byte) = bytes.next() {
        let byte = if *byte == b'\\' { bytes.next().unwrap_or(byte) } else { byte };
        out.push(*byte);
    }
    out
}

/// Writes a name so that it matches itself only.
pub fn escaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        if b"*?[]\\".contains(byte) {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out
}

/// Whether a name matches a pattern; a text with a zero byte never does.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (CString::new(pattern), CString::new(name)) {
        (Ok(pattern), Ok(name)) => wireup_os::c_library::matches(&pattern, &name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn names_match_as_in_a_shell() {
        let yes = [(&b"out.*.dat"[..], &b"out.17.dat"[..]), (b"[!a-c]x", b"dx"), (b".*", b".hidden"), (b"\\*", b"*")];
        let no = [(&b"*"[..], &b".hidden"[..]), (b"[a-c]x", b"dx"), (b"?", b"xy"), (b"\\*", b"a"), (b"*", b"a\0b")];
        // A byte that is not valid UTF-8 is treated as any other byte.
        let bytes = [(&b"*\xff*"[..], &b"a\xffb"[..]), (b"?", b"\xff"), (b"[\xf0-\xff]", b"\xfe")];
        for (pattern, name) in yes.into_iter().chain(bytes) {
            assert!(matches(pattern, name), "{} {}", pattern.escape_ascii(), name.escape_ascii());
        }
        for (pattern, name) in no {
            assert!(!matches(pattern, name), "{} {}", pattern.escape_ascii(), name.escape_ascii());
        }
    }

    #[test]
    fn patterns_are_told_from_plain_names() {
        for part in [&b"a*"[..], b"?", b"[x]"] {
            assert!(is_pattern(part));
        }
        assert!(!is_pattern(b"a\\*b") && !is_pattern(b"plain"));
        assert_eq!(plain(b"a\\*b\\"), b"a*b\\");
    }

    proptest! {
        #[test]
        fn an_escaped_name_matches_itself_only(name in vec(1u8.., 1..12), other in vec(1u8.., 1..12)) {
            let pattern = escaped(&name);
            prop_assert!(matches(&pattern, &name) && !is_pattern(&pattern));
            prop_assert_eq!(plain(&pattern), name.clone());
            prop_assert_eq!(matches(&pattern, &other), name == other);
        }
    }
}
