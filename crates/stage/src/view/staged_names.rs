//! The names of a set's files and folders as a tree.

use crate::set::{Entry, Set, is_library};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Component;

/// The names of staged files and folders, from the root down.
#[derive(Default)]
pub(super) struct Node<'a> {
    pub staged: Option<Entry<'a>>,
    pub children: BTreeMap<OsString, Node<'a>>,
}

impl<'a> Node<'a> {
    pub fn of(set: &'a Set) -> Node<'a> {
        let mut root = Node::default();
        set.roots().filter(|entry| !is_library(entry.path())).for_each(|entry| root.add(entry));
        root
    }

    fn add(&mut self, entry: Entry<'a>) {
        let parts = entry.path().components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        });
        parts.fold(self, |node, name| node.children.entry(name).or_default()).staged = Some(entry);
    }
}
