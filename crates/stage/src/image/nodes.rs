//! All files, folders and symbolic links of a set's image, with the folders above the staged paths.

use crate::set::{EntryKind, Set};
use std::os::unix::ffi::OsStrExt;

/// EROFS types of directory entries.
const FILE: u8 = 1;
const FOLDER: u8 = 2;
const LINK: u8 = 7;

pub(super) struct Node<'a> {
    /// The index of the entry in the set; `None`: a folder above the staged paths.
    pub entry: Option<usize>,
    /// The names in a folder, in order, with `.` and `..`.
    pub names: Vec<Name<'a>>,
    pub file_type: u8,
    pub links: u32,
}

pub(super) struct Name<'a> {
    pub name: &'a [u8],
    pub node: usize,
}

/// All nodes of the image of a set; the first one is the root.
pub(super) fn nodes(set: &Set) -> Vec<Node<'_>> {
    let mut all = vec![Node { entry: None, names: Vec::new(), file_type: FOLDER, links: 2 }];
    // The folders on the way to the last entry.
    let mut way: Vec<(&[u8], usize)> = Vec::new();
    for (index, entry) in set.entries().enumerate() {
        let parts: Vec<&[u8]> = entry.path().iter().skip(1).map(OsStrExt::as_bytes).collect();
        let shared = way.iter().zip(&parts).take_while(|((name, _), part)| name == *part).count();
        way.truncate(shared);
        for (depth, part) in parts.iter().enumerate().skip(shared) {
            let above = way.last().map_or(0, |(_, node)| *node);
            let is_last = depth + 1 == parts.len();
            let file_type = match &entry.kind {
                EntryKind::File { .. } | EntryKind::Original if is_last => FILE,
                EntryKind::Link(_) if is_last => LINK,
                _ => FOLDER,
            };
            let node = all.len();
            all.push(Node { entry: is_last.then_some(index), names: Vec::new(), file_type, links: 1 });
            all[above].names.push(Name { name: part, node });
            if file_type == FOLDER {
                let itself = Name { name: b".", node };
                all[node].names.extend([itself, Name { name: b"..", node: above }]);
                all[node].links = 2;
                all[above].links += 1;
            }
            way.push((part, node));
        }
    }
    all[0].names.extend([Name { name: b".", node: 0 }, Name { name: b"..", node: 0 }]);
    for node in &mut all {
        node.names.sort_unstable_by_key(|name| name.name);
    }
    all
}
