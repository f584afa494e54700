//! The library that shows staged files without mounts, at a path that outlives the job: what its processes have started
//! may still name it, and the loader of programs would complain.

use super::{InUse, Result, at, hex};
use crate::set::{Entry, EntryKind};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;

const NAME: &str = "libwireup-staged.so.0";

impl InUse {
    /// The path of a copy of this file. The copy is named by its content and is kept until the store is emptied.
    ///
    /// # Errors
    /// The copy cannot be made.
    pub fn library(&self, entry: &Entry) -> Result<PathBuf> {
        let EntryKind::File { digest, len } = entry.kind else {
            return at(entry.path(), Err(io::Error::from(io::ErrorKind::InvalidInput)));
        };
        let folder = self.root.join("libraries").join(hex(&digest));
        let place = folder.join(NAME);
        if fs::symlink_metadata(&place).is_ok_and(|meta| meta.is_file() && meta.len() == len) {
            // The copy may be of an earlier job, and every rank is to load the copy, so its content is checked.
            let kept = at(&place, fs::read(&place))?;
            if *blake3::hash(&kept).as_bytes() == digest {
                return at(&place, place.canonicalize());
            }
        }
        match DirBuilder::new().recursive(true).mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => at(&folder, made)?,
        }
        let from = self.tree().join(OsStr::from_bytes(entry.path.strip_prefix(b"/").unwrap_or(entry.path)));
        let mut new = at(&folder, tempfile::NamedTempFile::new_in(&folder))?;
        at(&from, File::open(&from).and_then(|mut file| io::copy(&mut file, &mut new)))?;
        at(new.path(), new.as_file().set_permissions(Permissions::from_mode(0o555)))?;
        at(&place, new.persist(&place).map_err(|error| error.error))?;
        at(&place, place.canonicalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::Set;
    use crate::store::{Form, Store};
    use crate::testing::stage;

    #[test]
    fn the_library_outlives_its_set() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libwireup-staged.so.0.0.0");
        fs::write(&file, b"content").unwrap();
        let set = Set::collect([&*file]).unwrap();
        let store = Store::open(&folder.path().join("store"), 1 << 20).unwrap().with_form(Form::Tree);
        stage(&store, &set).unwrap();
        let kept = store.use_set(&set.digest()).unwrap().unwrap();
        let entry = kept.set.entries().find(|entry| entry.path() == file).unwrap();
        let library = kept.library(&entry).unwrap();
        assert_eq!(kept.library(&entry).unwrap(), library);
        // A copy that is incomplete or has other contents is made again.
        for content in ["con", "CONTENT"] {
            fs::remove_file(&library).unwrap();
            fs::write(&library, content).unwrap();
            assert_eq!(kept.library(&entry).unwrap(), library);
            assert_eq!(fs::read(&library).unwrap(), b"content");
        }
        drop(kept);
        assert!(store.drop_set(&store.sets().unwrap()[0].name).unwrap());
        assert_eq!(fs::read(&library).unwrap(), b"content");
        assert_eq!(library.file_name().unwrap(), NAME);
    }
}
