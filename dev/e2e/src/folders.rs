//! Folders for the files of one test.

use std::fs;
use std::path::PathBuf;

/// A folder in the temporary one, removed with this value.
pub struct Folder(pub PathBuf);

impl Folder {
    /// # Panics
    /// It cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("wireup-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays is no reason to fail.
        let _ = fs::remove_dir_all(&self.0);
    }
}
