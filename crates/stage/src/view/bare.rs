//! The names of staged files as a tree, and the folders in it that contain nothing else.

use crate::file_system::Mounts;
use crate::set::{Entry, Set, is_library};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

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

    /// The entries of the folder that this node stands for, without those in the tree; `None`: there are more than
    /// `most`.
    pub fn others(&self, folder: &Path, most: usize) -> io::Result<Option<Vec<fs::DirEntry>>> {
        let is_other = |inside: &fs::DirEntry| !self.children.contains_key(&inside.file_name());
        let others = fs::read_dir(folder)?.filter(|inside| inside.as_ref().map_or(true, is_other));
        let found = others.take(most + 1).collect::<io::Result<Vec<_>>>()?;
        Ok(Some(found).filter(|found| found.len() <= most))
    }

    fn add(&mut self, entry: Entry<'a>) {
        let parts = entry.path().components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        });
        parts.fold(self, |node, name| node.children.entry(name).or_default()).staged = Some(entry);
    }
}

/// Most bare folders that are sent to the nodes; nodes look into further folders themselves (chosen: a program has some
/// dozens of folders).
const FOLDERS_MAX: usize = 1024;

/// A bare folder, as the launcher has seen it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BareFolder {
    pub path: PathBuf,
    /// The name of the folder by which all nodes mean the same folder of the same server: see `Mounts::name_of`.
    pub name: Vec<u8>,
    /// The permission bits of the folder.
    pub mode: u32,
}

/// The permission bits of the bare folders that this node has, too.
#[derive(Default, Debug)]
pub struct Bare(BTreeMap<PathBuf, u32>);

impl Bare {
    /// The bare folders on the way to the files of a set, to be sent to all nodes; only those of network file systems.
    pub fn of(set: &Set) -> Vec<BareFolder> {
        Bare::among(set, &Mounts::own())
    }

    fn among(set: &Set, mounts: &Mounts) -> Vec<BareFolder> {
        let mut found = Vec::new();
        add(Path::new("/"), &Node::of(set), mounts, &mut found);
        found
    }

    /// The permission bits of each folder in `folders` that is the same folder of the same server on this node.
    pub fn here(folders: impl Iterator<Item = BareFolder>) -> Bare {
        let mut folders = folders.peekable();
        let mounts = if folders.peek().is_some() { Mounts::own() } else { Mounts::default() };
        Bare::here_by(folders, &mounts)
    }

    fn here_by(folders: impl Iterator<Item = BareFolder>, mounts: &Mounts) -> Bare {
        let same = folders.filter(|folder| mounts.name_of(&folder.path).as_ref() == Some(&folder.name));
        Bare(same.map(|folder| (folder.path, folder.mode & 0o7777)).collect())
    }

    pub(super) fn mode(&self, folder: &Path) -> Option<u32> {
        self.0.get(folder).copied()
    }
}

fn add(path: &Path, node: &Node, mounts: &Mounts, found: &mut Vec<BareFolder>) {
    if node.staged.is_some() || found.len() >= FOLDERS_MAX {
        return;
    }
    if let Some(name) = mounts.name_of(path)
        && let Some(mode) = look(path, node)
    {
        found.push(BareFolder { path: path.to_owned(), name, mode });
    }
    node.children.iter().for_each(|(name, child)| add(&path.join(name), child, mounts, found));
}

/// The permission bits of a folder in which only files of the set exist.
fn look(path: &Path, node: &Node) -> Option<u32> {
    let meta = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir)?;
    node.others(path, 0).ok()??;
    Some(meta.permissions().mode() & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::folder_with;

    #[test]
    fn folders_with_nothing_else_in_them_are_found_and_compared_by_their_server() {
        let names = ["env/bin/program", "env/lib/one", "env/lib/other", "env/share/data"];
        let folder = folder_with(names.map(|name| (name, &b""[..])));
        let at = |name: &str| folder.path().join(name);
        let set = Set::collect([&*at("env/bin/program"), &*at("env/lib/one"), &*at("env/share")]).unwrap();
        for name in ["", "env", "env/bin"] {
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let top = folder.path().canonicalize().unwrap();
        let list = |source: &str| {
            format!("1 0 0:1 / / rw - ext4 disk rw\n2 1 0:2 / {} rw - nfs4 {source} rw\n", top.display())
        };
        let named = |source: &str| Mounts::parse(list(source).as_bytes());
        let found = Bare::among(&set, &named("server:/export"));
        let paths: Vec<_> = found.iter().map(|bare| bare.path.strip_prefix(&top).unwrap().to_owned()).collect();
        assert_eq!(paths, ["", "env", "env/bin"].map(PathBuf::from), "env/lib has another file");
        assert_eq!(Bare::among(&set, &named("localhost:/export")), []);
        let here = |source: &str| Bare::here_by(found.iter().cloned(), &named(source));
        assert!(paths.iter().all(|path| here("server:/export").mode(&top.join(path)) == Some(0o755)));
        assert_eq!(here("other:/export").0.len(), 0, "another server under the same name");
        // The folders of this test are on no server, so this node has none of them.
        assert_eq!(Bare::here(found.clone().into_iter()).0.len(), 0);
    }
}
