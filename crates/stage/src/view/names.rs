//! The known names in the folders on the way to staged files, for processes that cannot have mounts.

use super::{Bare, Closing, Keep, Node, is_remote};
use crate::set::Set;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Most unstaged names in a closed folder; a folder with more stays open (chosen: folders of libraries have fewer).
const NAMES_MAX: usize = 4096;

/// The known names in a folder on the way to a staged file.
#[derive(PartialEq, Eq, Debug)]
pub enum Way {
    /// Nothing is known about names in the folder other than the names of staged files.
    Open,
    /// All names in the folder are known: the names of staged files, the names of folders on the way to staged files,
    /// and the names in this list.
    Closed(Vec<Vec<u8>>),
}

/// The folders on the way to the staged paths, without the root. Each is read only once.
pub fn ways(set: &Set, keep: &Keep, bare: &Bare) -> BTreeMap<PathBuf, Way> {
    ways_where(set, &Closing { keep, bare, is_remote })
}

pub(super) fn ways_where(set: &Set, closing: &Closing) -> BTreeMap<PathBuf, Way> {
    let root = Node::of(set);
    let mut ways = BTreeMap::new();
    add(Path::new("/"), &root, closing, &mut ways);
    ways.remove(Path::new("/"));
    ways
}

fn add(path: &Path, node: &Node, closing: &Closing, ways: &mut BTreeMap<PathBuf, Way>) {
    if node.staged.is_some() {
        return;
    }
    let way = match closing.bare(path).is_some() || path.is_dir() {
        true if closing.bare(path).is_some() => Way::Closed(Vec::new()),
        true if closing.closes(path, node) => others(path, node).map_or(Way::Open, Way::Closed),
        true => Way::Open,
        false => Way::Closed(Vec::new()),
    };
    ways.insert(path.to_owned(), way);
    node.children.iter().for_each(|(name, child)| add(&path.join(name), child, closing, ways));
}

/// The unstaged names in a folder; `None`: there are too many, or the user may not read it.
fn others(folder: &Path, node: &Node) -> Option<Vec<Vec<u8>>> {
    let others = node.others(folder, NAMES_MAX).ok()??;
    Some(others.into_iter().map(|inside| inside.file_name().into_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::folder_with;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn folders_on_a_network_are_known_and_those_where_files_are_made_are_not() {
        let folder = folder_with(["app/lib/libx.so", "app/lib/liby.so", "app/work/data"].map(|name| (name, &b""[..])));
        let at = |name: &str| folder.path().join(name);
        symlink("lib", at("app/latest")).unwrap();
        let set = Set::collect([&*at("app/lib/libx.so"), &*at("app/work/data")]).unwrap();
        let keep = Keep::from([at("app/work")]);
        let (bare, is_remote): (_, fn(&Path) -> bool) =
            (Bare::default(), |folder| folder.to_str().unwrap().contains("/app"));
        let ways = ways_where(&set, &Closing { keep: &keep, bare: &bare, is_remote });
        assert_eq!(ways[&at("app")], Way::Closed(vec![b"latest".to_vec()]));
        assert_eq!(ways[&at("app/lib")], Way::Closed(vec![b"liby.so".to_vec()]));
        assert_eq!((&ways[&at("app/work")], &ways[folder.path()]), (&Way::Open, &Way::Open));
        assert!(!ways.contains_key(Path::new("/")) && !ways.contains_key(&at("app/lib/libx.so")));
        // A folder that does not exist on this node has only the staged names.
        fs::remove_dir_all(at("app/work")).unwrap();
        let ways = ways_where(&set, &Closing { keep: &keep, bare: &bare, is_remote: |_| false });
        assert_eq!((&ways[&at("app/work")], &ways[&at("app/lib")]), (&Way::Closed(Vec::new()), &Way::Open));
    }
}
