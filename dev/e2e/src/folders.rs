//! Folders for the files of one test, and programs that tests write and then start.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder for one test, which is removed when this value is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Creates a folder in the machine's temporary folder.
    ///
    /// # Panics
    /// The folder cannot be created. All functions below panic in this way, too.
    #[must_use]
    pub fn new(name: &str) -> Folder {
        Folder::below(&std::env::temp_dir(), name)
    }

    /// Creates a folder that the hosts of testbeds see as well.
    #[must_use]
    pub fn shared(name: &str) -> Folder {
        Folder::below(super::wireup().parent().expect("a program lies in a folder"), name)
    }

    #[must_use]
    pub fn below(place: &Path, name: &str) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = place.join(format!("wireup-{name}-{}-{count}", process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Folder(path)
    }

    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The flag `--stage` that stores staged files in this folder, apart from those of other tests.
    #[must_use]
    pub fn stage(&self) -> String {
        format!("--stage={}", self.at("store").display())
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, content).expect("a file");
        path
    }

    pub fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.write(name, format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its bits");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Folders of a store of staged files may be read-only, so that only root could remove them.
        if fs::remove_dir_all(&self.0).is_err() {
            let _ = Command::new("chmod").args(["-R", "u+w"]).arg(&self.0).status();
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Copies a program.
///
/// While a test writes a program, a child that another test's thread forks inherits the descriptor that is open for
/// writing; until that child closes it, the kernel refuses to execute the file ("text file busy"). So a separate
/// process, in which no test forks, writes each of these programs.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--").args([from, to]).status().expect("start cp");
    assert!(copied.success(), "copy {} to {}", from.display(), to.display());
}

/// Writes a program, in another process as [`copy_program`] does.
pub fn write_program(to: &Path, content: &str, mode: u32) {
    let file = to.to_str().expect("a path of plain text");
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$1\"", "sh", file])
        .stdin(Stdio::piped())
        .spawn()
        .expect("start a shell");
    shell.stdin.take().expect("its input").write_all(content.as_bytes()).expect("pass the content");
    assert!(shell.wait().expect("wait for the shell").success(), "write {file}");
    fs::set_permissions(to, Permissions::from_mode(mode)).expect("set the mode");
}
