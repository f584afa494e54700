//! Write bits of files that are shown without mounts: nothing else keeps a process from changing them, so they have none.
//!
//! Files of several sets may be one, so the bits are put back, where there are mounts, for each set that is kept in a store in which any were
//! removed.

use super::{InUse, Result, at};
use crate::set::{Entry, Kind};
use rustix::fs::{AtFlags, CWD, Mode, chmodat, lstat};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const WRITE: u32 = 0o222;

impl InUse {
    /// Removes the write bits.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn protect(&self) -> Result<()> {
        let mark = self.root.join("protected");
        at(&mark, File::create(&mark).map(drop))?;
        let tree = self.tree();
        let mut above = BTreeSet::new();
        for entry in self.set.entries.iter().filter(|entry| !matches!(entry.kind, Kind::Link(_))) {
            let path = in_tree(&tree, entry);
            set_mode(&path, entry.mode & !WRITE)?;
            above.extend(path.ancestors().skip(1).take_while(|folder| folder.starts_with(&tree)).map(Path::to_owned));
        }
        let above = above.iter().filter(|folder| {
            let original = folder.strip_prefix(&tree).map(|inside| Path::new("/").join(inside));
            original.is_ok_and(|original| self.set.find(&original).is_none())
        });
        above.into_iter().try_for_each(|folder| set_mode(folder, 0o555))
    }

    /// Puts the write bits back that [`InUse::protect`] has removed.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn restore(&self) -> Result<()> {
        if !self.is_tree() || !self.root.join("protected").exists() {
            return Ok(());
        }
        let tree = self.tree();
        let entries = self.set.entries.iter().filter(|entry| !matches!(entry.kind, Kind::Link(_)));
        entries.into_iter().try_for_each(|entry| set_mode(&in_tree(&tree, entry), entry.mode))
    }
}

fn in_tree(tree: &Path, entry: &Entry) -> PathBuf {
    tree.join(OsStr::from_bytes(entry.path.strip_prefix(b"/").unwrap_or(&entry.path)))
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    let found = at(path, lstat(path).map_err(Into::into))?;
    match Mode::from_raw_mode(found.st_mode) == Mode::from_raw_mode(mode) {
        true => Ok(()),
        false => at(path, chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty()).map_err(Into::into)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::Set;
    use crate::store::{Form, Store};
    use crate::testing::stage;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn write_bits_are_removed_and_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("env/file");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, b"content").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        let set = Set::collect([&*folder.path().join("env")]).unwrap();
        let store = Store::open(&folder.path().join("store"), 1 << 20).unwrap().with_form(Form::Tree);
        stage(&store, &set).unwrap();
        let kept = store.take(&set.digest()).unwrap().unwrap();
        let mode = |path: &Path| lstat(kept.tree().join(path.strip_prefix("/").unwrap())).unwrap().st_mode & 0o7777;
        kept.restore().unwrap();
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o664, 0o755));
        kept.protect().unwrap();
        assert_eq!((mode(&file), mode(file.parent().unwrap()), mode(folder.path())), (0o444, 0o555, 0o555));
        kept.restore().unwrap();
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o664, 0o755));
        kept.protect().unwrap();
        drop(kept);
        assert!(store.drop_set(&store.sets().unwrap()[0].name).unwrap());
        assert!(store.sets().unwrap().is_empty());
    }
}
