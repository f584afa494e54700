//! Takes away rights from a thread that parses untrusted data, with Landlock (Linux 5.13, if it is enabled).

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::io;
use std::path::Path;

/// The newest version of Landlock's rules that is requested; an older kernel enforces the rules that it knows.
const NEWEST: ABI = ABI::V6;

/// Rights that a confined thread keeps. Descriptors that are already open are not affected.
#[derive(Clone, Copy, Debug)]
pub struct Confinement<'a> {
    /// Files and folders (with everything below them) that may be read and executed.
    pub read_only: &'a [&'a Path],
    /// Files and folders (with everything below them) that may also be written, created and removed.
    pub read_write: &'a [&'a Path],
    /// Folders below which files and folders may be removed.
    pub remove: &'a [&'a Path],
    /// Whether the thread may bind and connect TCP sockets (refused from Linux 6.7 on), connect to abstract sockets of
    /// unconfined processes and signal those processes (refused from Linux 6.12 on).
    pub network: bool,
}

/// Confines the calling thread, and threads that it starts from now on, until they end. They can no longer gain rights
/// by `exec` (`no_new_privs`) or mount file systems.
///
/// # Errors
/// `Unsupported`: the kernel has no Landlock, or it is disabled; then nothing is refused. A path cannot be opened.
pub fn confine(confinement: &Confinement<'_>) -> io::Result<()> {
    let all = AccessFs::from_all(NEWEST);
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    ruleset = ruleset.handle_access(all).map_err(io::Error::other)?;
    if !confinement.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST)).map_err(io::Error::other)?;
        ruleset = ruleset.scope(Scope::from_all(NEWEST)).map_err(io::Error::other)?;
    }
    let mut created = ruleset.create().map_err(io::Error::other)?;
    let (read_only, read_write) = (confinement.read_only.iter(), confinement.read_write.iter());
    let read = AccessFs::from_read(NEWEST);
    let remove = confinement.remove.iter().map(|path| (path, AccessFs::RemoveFile | AccessFs::RemoveDir));
    for (path, access) in read_only.map(|path| (path, read)).chain(read_write.map(|path| (path, all))).chain(remove) {
        created = created.add_rule(beneath(path, access)?).map_err(io::Error::other)?;
    }
    let status = created.restrict_self().map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(io::ErrorKind::Unsupported.into()),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

fn beneath(path: &Path, access: BitFlags<AccessFs>) -> io::Result<PathBeneath<PathFd>> {
    let is_folder = std::fs::metadata(path)?.is_dir();
    let access = if is_folder { access } else { access & AccessFs::from_file(NEWEST) };
    Ok(PathBeneath::new(PathFd::new(path).map_err(io::Error::other)?, access))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::TcpListener;

    #[test]
    fn a_confined_thread_reaches_only_what_it_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let [own, other, shared] = ["own", "other", "shared"].map(|name| folder.path().join(name));
        for path in [&own, &other, &shared] {
            fs::create_dir_all(path).unwrap();
            fs::write(path.join("file"), "text").unwrap();
        }
        let confined = || {
            let read_only = [Path::new("/proc")];
            let confinement =
                Confinement { read_only: &read_only, read_write: &[&own], remove: &[&shared], network: false };
            match confine(&confinement) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    println!("SKIPPED: this kernel has no Landlock");
                    return;
                }
                done => done.unwrap(),
            }
            let kind = |result: io::Result<()>| result.map_err(|error| error.kind());
            let denied = Err(io::ErrorKind::PermissionDenied);
            assert_eq!(kind(fs::rename(own.join("file"), own.join("renamed"))), Ok(()));
            assert_eq!(kind(fs::write(own.join("new"), "")), Ok(()));
            assert_eq!(kind(fs::read_to_string("/proc/self/stat").map(drop)), Ok(()));
            assert_eq!(kind(fs::read(other.join("file")).map(drop)), denied);
            assert_eq!(kind(fs::write(other.join("file"), "")), denied);
            assert_eq!(kind(fs::remove_file(other.join("file"))), denied);
            assert_eq!(kind(fs::write(shared.join("new"), "")), denied);
            assert_eq!(kind(fs::remove_file(shared.join("file"))), Ok(()));
            assert_eq!(kind(fs::read_dir("/").map(drop)), denied);
            assert_eq!(kind(TcpListener::bind("127.0.0.1:0").map(drop)), denied);
        };
        std::thread::scope(|scope| scope.spawn(confined).join().unwrap());
    }
}
