//! Staged files without mounts: a library that the loader opens in each rank (`libwireup-staged`) shows the copies under the original names.
//!
//! The library is one of the staged files. The shell starts the program, so that it is looked up, and its first line read, by a process that has
//! the library: the keeper has not.

use super::protocol::{Batch, Program};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use wireup_os::spawn::find_program;
use wireup_stage::set::is_library;
use wireup_stage::store::InUse;

const FOLDER: &[u8] = b"WIREUP_STAGED=";
/// The loader's variables that name libraries, each with others behind a colon.
const LOADED: [&[u8]; 2] = [b"LD_AUDIT=", b"LD_PRELOAD="];

/// A set whose files are shown in this way; it is in use as long as this is held.
pub struct Redirected {
    folder: PathBuf,
    library: PathBuf,
    _kept: InUse,
}

impl Redirected {
    /// # Errors
    /// Why the files cannot be shown.
    pub fn of(kept: InUse) -> Result<Redirected, &'static str> {
        let folder = kept.tree_folder().ok_or("they are kept as an image, which only mounts can show")?;
        let library = kept.set.roots().map(|entry| entry.path()).find(|path| is_library(path));
        let library =
            library.ok_or("libwireup-staged.so.0 was not beside wireup when they were staged, nor in ../lib")?;
        let library = in_tree(&folder, library);
        Ok(Redirected { folder, library, _kept: kept })
    }

    /// Lets the programs of a batch see the staged files.
    pub fn apply(&self, batch: &mut Batch) {
        for program in &mut batch.programs {
            if self.has(program) {
                let shell: [&[u8]; 3] = [b"/bin/sh", b"-c", b"exec \"$0\" \"$@\""];
                program.argv.splice(0..0, shell.map(<[u8]>::to_vec));
            }
            let library = self.library.as_os_str().as_bytes();
            for name in LOADED {
                let others =
                    program.env.iter().rev().find_map(|variable| variable.strip_prefix(name)).unwrap_or_default();
                let between: &[u8] = if others.is_empty() { b"" } else { b":" };
                program.env.push([name, library, between, others].concat());
            }
            program.env.push([FOLDER, self.folder.as_os_str().as_bytes()].concat());
        }
    }

    /// Whether the program is staged or can be found: otherwise the error names it and not the shell.
    fn has(&self, program: &Program) -> bool {
        let name = program.argv.first().map_or(&b""[..], Vec::as_slice);
        let cwd = if program.cwd.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(&program.cwd)) };
        let search = program.env.iter().rev().find_map(|variable| variable.strip_prefix(b"PATH="));
        let is_staged = || in_tree(&self.folder, &cwd.join(OsStr::from_bytes(name))).exists();
        find_program(name, search, cwd).is_ok() || (name.contains(&b'/') && is_staged())
    }
}

/// Where the copy of an absolute path is.
fn in_tree(folder: &Path, original: &Path) -> PathBuf {
    let mut path = folder.join("tree").into_os_string().into_vec();
    path.extend_from_slice(original.as_os_str().as_bytes());
    PathBuf::from(OsStr::from_bytes(&path))
}
