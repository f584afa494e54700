//! The numbers by which the kernel knows files.
//!
//! A file that takes the place of another gets a new number, so the kernel never mistakes one for the other. Numbers
//! are kept until the server ends: the memory for this is proportional to the number of files that were ever looked up.
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fuser::{FileType, INodeNo};
use rustix::fs::Stat;

use super::source::kind_of;

/// Properties by which the server recognizes that two paths or requests mean the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
    pub kind: FileType,
}

impl Identity {
    pub fn of(stat: &Stat) -> Identity {
        Identity { device: stat.st_dev, inode: stat.st_ino, kind: kind_of(stat) }
    }
}

/// Properties that change with the contents of a file: size and time of modification.
type Version = (i64, i64, u64);

struct Node {
    identity: Identity,
    /// Path at which the file was last found; a file can have several names.
    path: PathBuf,
    /// Version of the file when it was last opened.
    opened: Option<Version>,
}

pub struct Nodes {
    /// Files by number; the first one is the root folder, with the number 1.
    list: Vec<Node>,
    numbers: HashMap<Identity, INodeNo>,
}

impl Nodes {
    pub fn new(root: &Stat) -> Nodes {
        let mut nodes = Nodes { list: Vec::new(), numbers: HashMap::new() };
        assert_eq!(nodes.number(Identity::of(root), PathBuf::new()), INodeNo::ROOT);
        nodes
    }

    /// The number of the file with this identity, which was found at `path`.
    pub fn number(&mut self, identity: Identity, path: PathBuf) -> INodeNo {
        if let Some(known) = self.numbers.get(&identity) {
            self.list[index(*known)].path = path;
            return *known;
        }
        self.list.push(Node { identity, path, opened: None });
        let number = INodeNo(self.list.len() as u64);
        self.numbers.insert(identity, number);
        number
    }

    pub fn path(&self, number: INodeNo) -> &Path {
        &self.list[index(number)].path
    }

    pub fn identity(&self, number: INodeNo) -> Identity {
        self.list[index(number)].identity
    }

    /// Records that a file is opened; returns whether it is unchanged since it was last opened.
    pub fn is_unchanged(&mut self, number: INodeNo, stat: &Stat) -> bool {
        let version = (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        self.list[index(number)].opened.replace(version) == Some(version)
    }
}

/// The kernel uses only numbers that it has received from this server, which start at 1.
fn index(number: INodeNo) -> usize {
    number.0 as usize - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_files_and_not_names() {
        let stat = rustix::fs::stat("/").expect("the root");
        let mut nodes = Nodes::new(&stat);
        let identity = |inode| Identity { device: 0, inode, kind: FileType::RegularFile };
        let first = nodes.number(identity(7), "a".into());
        assert_ne!(nodes.number(identity(8), "a".into()), first);
        assert_eq!(nodes.number(identity(7), "b".into()), first);
        assert_eq!((nodes.path(first), nodes.path(INodeNo::ROOT)), (Path::new("b"), Path::new("")));
        assert!(!nodes.is_unchanged(first, &stat));
        assert!(nodes.is_unchanged(first, &stat));
    }
}
