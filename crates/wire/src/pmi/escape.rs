//! How PMI-2 escapes a `;` inside a value: the writer doubles it, the reader halves it.

use alloc::vec::Vec;
use memchr::memchr;

/// Appends `text` to `out` with each `;` doubled.
pub fn double(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        out.push(byte);
        if byte == b';' {
            out.push(byte);
        }
    }
}

/// The text with each `;` doubled; if there is one, the result is stored in `room`.
pub fn doubled<'a>(text: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
    if memchr(b';', text).is_none() {
        return text;
    }
    room.clear();
    double(text, room);
    room
}

/// The value with each `;;` halved; if there is one, the result is stored in `plain`.
pub fn halve<'a>(value: &'a [u8], plain: &'a mut Vec<u8>) -> &'a [u8] {
    if memchr(b';', value).is_none() {
        return value;
    }
    plain.clear();
    let mut rest = value;
    while let Some((&byte, after)) = rest.split_first() {
        plain.push(byte);
        rest = if byte == b';' { after.strip_prefix(b";").unwrap_or(after) } else { after };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubled_semicolons_are_halved_again() {
        for text in [&b"plain"[..], b";", b";;", b"a;b;;c;", b""] {
            let (mut doubled, mut plain) = (Vec::new(), Vec::new());
            double(text, &mut doubled);
            assert_eq!(halve(&doubled, &mut plain), text);
            assert_eq!(super::doubled(text, &mut plain), doubled);
        }
    }
}
