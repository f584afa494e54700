//! The contents of a set: several files may have one.

use super::{Digest, EntryKind, Set};
use std::collections::HashSet;
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    pub digest: Digest,
    pub len: u64,
    /// The first entry that has it.
    pub entry: usize,
}

impl Set {
    /// The different contents, numbered in the order of the entries. Empty files have none.
    pub fn contents(&self) -> &[Content] {
        self.contents.get_or_init(|| {
            let mut seen = HashSet::with_capacity(self.begins.len());
            let new = |(entry, found)| match found {
                EntryKind::File { len: len @ 1.., digest } => {
                    seen.insert(digest).then_some(Content { digest, len, entry })
                }
                _ => None,
            };
            self.entries().map(|entry| entry.kind).enumerate().filter_map(new).collect()
        })
    }

    /// A file that has a content of this set.
    pub fn path_of(&self, content: &Content) -> &Path {
        self.entry(content.entry).path()
    }
}
