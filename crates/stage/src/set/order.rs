//! The order of paths by their components, as that of [`std::path::Path`], for plain paths: the slash comes before all
//! other bytes. Of paths that are in order, most have the same beginning, which is compared in large steps.

use std::cmp::Ordering;

const STEP: usize = 16;

pub(super) fn order(one: &[u8], other: &[u8]) -> Ordering {
    order_from(one, other, shared(one, other))
}

/// Length of the common prefix, in bytes.
pub(super) fn shared(one: &[u8], other: &[u8]) -> usize {
    let steps = one.chunks_exact(STEP).zip(other.chunks_exact(STEP));
    let same = STEP * steps.take_while(|(one, other)| one == other).count();
    same + one[same..].iter().zip(&other[same..]).take_while(|(one, other)| one == other).count()
}

/// Compares two paths whose common beginning is `shared` bytes long.
pub(super) fn order_from(one: &[u8], other: &[u8], shared: usize) -> Ordering {
    let rank = |path: &[u8]| path.get(shared).map(|byte| if *byte == b'/' { 0 } else { *byte });
    rank(one).cmp(&rank(other))
}

pub(super) fn is_below(folder: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Whether a path is absolute and without `.`, `..` and empty parts, if a path that shares its first bytes is so.
pub(super) fn is_plain_from(path: &[u8], shared: usize) -> bool {
    let known = path[..shared].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let is_plain = |part: &[u8]| ![&b""[..], b".", b".."].contains(&part) && !part.contains(&0);
    path[known..].strip_prefix(b"/").is_some_and(|rest| rest.split(|byte| *byte == b'/').all(is_plain))
}
