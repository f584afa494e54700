//! A part of a content that has arrived, and the error if the content is not the announced one.

use crate::set::Set;
use crate::store::problem_at;

/// A cluster that has arrived, of a content that the node lacked.
pub(super) struct Arrived<'a> {
    pub content: u32,
    pub offset: u64,
    pub len: usize,
    pub stored: &'a [u8],
    pub is_last: bool,
}

/// The message that a content of a set differs from the announced content.
pub(super) fn damaged(set: &Set, content: u32) -> String {
    let path = set.path_of(&set.contents()[content as usize]);
    problem_at(path, "its content is not what was announced")
}
