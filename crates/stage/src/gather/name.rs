//! Shell patterns for one file name, on bytes: names need not be UTF-8.
//!
//! `*` any bytes, `?` one byte, `[a-z]` and `[!a-z]` one byte of a list, `\` the next byte as it is. A leading dot is
//! matched by a dot only.

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

pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && !pattern.starts_with(b".") && !pattern.starts_with(b"\\.") {
        return false;
    }
    let (mut pattern, mut name) = (pattern, name);
    // After the last star, and the name there: it takes one byte more at each return.
    let mut back: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some(rest) = pattern.strip_prefix(b"*") {
            pattern = rest;
            back = Some((pattern, name));
            continue;
        }
        let step = match name.split_first() {
            None if pattern.is_empty() => return true,
            None => return false,
            Some((byte, rest)) => one(pattern, *byte).map(|pattern| (pattern, rest)),
        };
        match (step, back) {
            (Some((next, rest)), _) => (pattern, name) = (next, rest),
            (None, Some((after, [_, rest @ ..]))) => {
                (pattern, name) = (after, rest);
                back = Some((after, rest));
            }
            (None, _) => return false,
        }
    }
}

/// What is left of the pattern when its first part takes this byte; `None`: it does not.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'\\', literal, rest @ ..] => (*literal == byte).then_some(rest),
        [b'[', rest @ ..] => match list(rest, byte) {
            Some((is_in, after)) => is_in.then_some(after),
            // Without an end it is a bracket.
            None => (byte == b'[').then_some(rest),
        },
        [literal, rest @ ..] => (*literal == byte).then_some(rest),
    }
}

/// Whether the byte is in the list, and what follows the list; `None`: it has no end.
fn list(pattern: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (is_negated, mut rest) = match pattern {
        [b'!' | b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (mut is_in, mut is_first) = (false, true);
    loop {
        match rest {
            [] => return None,
            [b']', after @ ..] if !is_first => return Some((is_in != is_negated, after)),
            [low, b'-', high, after @ ..] if *high != b']' => {
                is_in |= (*low..=*high).contains(&byte);
                rest = after;
            }
            [literal, after @ ..] => {
                is_in |= *literal == byte;
                rest = after;
            }
        }
        is_first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_match_as_in_a_shell() {
        let yes: [(&[u8], &[u8]); 14] = [
            (b"*", b"a"),
            (b"*", b""),
            (b"a*b*c", b"axxbxbc"),
            (b"?", b"x"),
            (b"[a-c]x", b"bx"),
            (b"[!a-c]x", b"dx"),
            (b"[]]", b"]"),
            (b"[a-]", b"-"),
            (b"[a", b"[a"),
            (b"\\*", b"*"),
            (b".*", b".hidden"),
            (b"*\xff*", b"a\xffb"),
            (b"out.*.dat", b"out.17.dat"),
            (b"", b""),
        ];
        for (pattern, name) in yes {
            assert!(matches(pattern, name), "{} {}", pattern.escape_ascii(), name.escape_ascii());
        }
        let no: [(&[u8], &[u8]); 9] = [
            (b"*", b".hidden"),
            (b"?", b""),
            (b"?", b"xy"),
            (b"[a-c]x", b"dx"),
            (b"[!a-c]x", b"bx"),
            (b"\\*", b"a"),
            (b"a*b", b"a"),
            (b"*b", b"ba"),
            (b"", b"a"),
        ];
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
        fn an_escaped_name_matches_itself_only(name in proptest::collection::vec(1u8.., 1..12), other in proptest::collection::vec(1u8.., 1..12)) {
            let pattern = escaped(&name);
            prop_assert!(matches(&pattern, &name) && !is_pattern(&pattern));
            prop_assert_eq!(plain(&pattern), name.clone());
            prop_assert_eq!(matches(&pattern, &other), name == other);
        }

        #[test]
        fn any_pattern_ends(pattern in proptest::collection::vec(any::<u8>(), 0..30), name in proptest::collection::vec(any::<u8>(), 0..30)) {
            let _ = matches(&pattern, &name);
        }
    }
}
