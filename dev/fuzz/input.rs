//! Reads the input of a fuzz target piece by piece. Zeros follow its end.

pub fn byte(input: &mut &[u8]) -> u8 {
    let Some((first, rest)) = input.split_first() else { return 0 };
    *input = rest;
    *first
}

/// As many bytes as the next byte says, or all that are left.
pub fn some<'a>(input: &mut &'a [u8]) -> &'a [u8] {
    let len = usize::from(byte(input)).min(input.len());
    let (some, rest) = input.split_at(len);
    *input = rest;
    some
}
