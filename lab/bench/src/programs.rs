//! The embedded test programs, unpacked into a private directory for the duration of a benchmark.
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use tempfile::TempDir;

// Defines `PROGRAMS`: names and contents of the test programs, written by the build script.
include!(concat!(env!("OUT_DIR"), "/programs.rs"));

/// Name of the folder inside a `Scratch` in which wireup keeps the benchmark's sessions.
const SESSIONS: &str = "sessions";

/// A directory of mode 0700 that contains the programs and the files of the runs; removed when dropped. Its name
/// contains the pid of the process that has created it.
pub struct Scratch(TempDir);

impl Scratch {
    /// Creates a directory in the folder `parent`, which other hosts may have to see as well.
    pub fn create_in(parent: &Path) -> io::Result<Scratch> {
        let prefix = format!("wireup-bench-{}-", std::process::id());
        let private = Permissions::from_mode(0o700);
        let scratch = Scratch(tempfile::Builder::new().prefix(&prefix).permissions(private).tempdir_in(parent)?);
        DirBuilder::new().mode(0o700).create(scratch.file(SESSIONS))?;
        for (name, image) in PROGRAMS {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o700)
                .open(scratch.program(name))?
                .write_all(image)?;
        }
        Ok(scratch)
    }

    /// Path of the compiled program `programs/NAME.c`.
    pub fn program(&self, name: &str) -> PathBuf {
        assert!(PROGRAMS.iter().any(|(known, _)| *known == name), "there is no test program {name}");
        self.file(name)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Path of a new copy of this file in the directory: the same path on all hosts that see the directory.
    pub fn copy_of(&self, file: &Path) -> io::Result<PathBuf> {
        let copy = self.file(&file.file_name().unwrap_or_default().to_string_lossy());
        if !copy.exists() && fs::hard_link(file, &copy).is_err() {
            fs::copy(file, &copy)?;
        }
        Ok(copy)
    }

    /// Path of an empty file of this name, which replaces one from an earlier run.
    pub fn empty_file(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.file(name);
        fs::write(&path, b"")?;
        Ok(path)
    }
}

/// Creates a fifo and opens it for reading and writing at once, so that opening it never blocks.
pub fn fifo(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    OpenOptions::new().read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}

/// Path of the sessions' folder of a `Scratch`, given the path of any file in that `Scratch`.
pub fn sessions_beside(file: &Path) -> PathBuf {
    file.with_file_name(SESSIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scratch_directory_is_private_and_removed() {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let dir = scratch.file("");
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        for (name, _) in PROGRAMS {
            assert_eq!(&fs::read(scratch.program(name)).unwrap()[..4], b"\x7fELF");
        }
        drop(scratch);
        assert!(!dir.exists());
    }
}
