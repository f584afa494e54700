//! Takes rights away from a thread that parses what others send, by Landlock (Linux 5.13, where it is switched on).

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::io;
use std::path::Path;

/// The newest set of rules that is asked for; an older kernel enforces the rules that it knows.
const NEWEST: ABI = ABI::V6;

/// Rights that a confined thread keeps. Descriptors that are open already are not affected.
#[derive(Clone, Copy, Debug)]
pub struct Confinement<'a> {
    /// Files and folders that may be read and run, with all below them.
    pub read_only: &'a [&'a Path],
    /// Files and folders that may also be written, made and removed, with all below them.
    pub read_write: &'a [&'a Path],
    /// Folders below which files and folders may be removed.
    pub remove: &'a [&'a Path],
    /// Whether the thread may bind and connect TCP sockets (refused from Linux 6.7 on), connect to abstract sockets and
    /// signal processes that are not confined with it (refused from Linux 6.12 on).
    pub network: bool,
}

/// Confines the calling thread, and those that it starts from now on, until they end. It gains no rights by `exec` any
/// more (`no_new_privs`) and can make no mounts.
///
/// # Errors
/// `Unsupported`: the kernel has no Landlock, or it is switched off; nothing is refused. A path cannot be opened.
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
