//! Another user of the same machine, for tests of what that user can reach. Only root can become another user.

use super::folders;
use super::folders::Folder;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user and group id of the stranger. No account has it, and it is not the kernel's overflow id (65534).
pub const STRANGER: u32 = 61_002;

/// Whether this process can run programs as another user; prints why if it cannot.
pub fn can_be_stranger() -> bool {
    let can = rustix::process::geteuid().is_root();
    if !can {
        println!("SKIPPED: only root can act as another user");
    }
    can
}

/// A command for `program`, run by the stranger: without supplementary groups and without variables of this process
/// other than `PATH`.
pub fn stranger(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.uid(STRANGER).gid(STRANGER).env_clear().current_dir("/");
    command.envs(std::env::vars_os().filter(|(name, _)| name == "PATH"));
    command
}

/// A folder that every user may enter, with copies of programs that every user may run.
pub struct Public(Folder);

impl Public {
    pub fn new(name: &str) -> Self {
        let folder = Folder::new(&format!("public-{name}"));
        std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o755)).expect("open the folder");
        Self(folder)
    }

    pub fn folder(&self) -> &Path {
        &self.0.0
    }

    /// Copies a program into the folder.
    pub fn program(&self, from: &Path) -> PathBuf {
        let to = self.folder().join(from.file_name().expect("a program has a name"));
        folders::copy_program(from, &to);
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).expect("let all run it");
        to
    }
}
