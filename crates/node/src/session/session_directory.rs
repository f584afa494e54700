//! Makes and finds the directories of a user's sessions: one per session, which no other user can enter.
//!
//! ```text
//! $WIREUP_RUNTIME_DIR           /NAME     if it is set, the only place
//! $XDG_RUNTIME_DIR      /wireup /NAME     or /run/user/UID, if it belongs to the user and nobody else may write to it
//! /tmp/wireup-UID               /NAME     if there is no such directory, or it may be removed before the session ends
//! /tmp/wireup-UID-RANDOM        /NAME     if another user has taken that name (`wireup_os::own_directory`)
//! ```
//!
//! A file that another user has put at one of these paths counts as absent. Below the first directory nothing is
//! trusted: each component is opened without following links, and must be a directory of this user without rights for
//! others. The contents of a directory are accessed through its descriptor, so that no other directory can be
//! substituted in the meantime.

use crate::keeper;
use crate::remedy::Advised;
use rustix::fs::{Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::env;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wireup_os::own_directory::{self, OwnDirectory};

/// Variable that replaces all other places; for tests, and for machines where none of the other places is usable.
pub const RUNTIME_DIR: &str = "WIREUP_RUNTIME_DIR";
/// Name of the session if the user specifies none.
pub const DEFAULT_NAME: &str = "default";
/// Longest name of a session.
pub const NAME_LEN_MAX: usize = 64;

/// Most attempts, since a session that ends may remove its directory while the next one starts.
const RACES_MAX: usize = 16;
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

#[derive(thiserror::Error, Debug)]
pub enum SessionDirectoryError {
    #[error(
        "{name:?} is not a valid session name; use up to {NAME_LEN_MAX} letters, digits, dots, dashes and underscores, \
         beginning with a letter or digit"
    )]
    Name { name: String },
    #[error("{path} belongs to user {owner}, not to you; remove it, or set {RUNTIME_DIR} to one of your directories")]
    Foreign { path: String, owner: u32 },
    #[error(
        "{path} is accessible to other users (mode {mode:04o}); run chmod 700 {path} after checking that nobody has \
         put anything there"
    )]
    Open { path: String, mode: u32 },
    #[error(
        "{path} is not a directory, or is a symbolic link; remove it, or set {RUNTIME_DIR} to one of your directories"
    )]
    NoDirectory { path: String },
    #[error("no directory for sessions can be made in {path}: {error}; set {RUNTIME_DIR} to one of your directories")]
    Shared { path: String, error: io::Error },
    #[error("{path}: {}", Advised(.error))]
    System { path: String, error: io::Error },
}

/// The directory of one session.
#[derive(Debug)]
pub struct SessionDirectory {
    path: PathBuf,
    directory: OwnedFd,
}

/// The result of claiming a session's directory.
#[derive(Debug)]
pub enum Claim {
    /// The directory is claimed until the descriptor is closed in every process that has inherited it.
    Ours,
    /// Another session is running in the directory.
    Taken,
}

impl SessionDirectory {
    /// The directory of a session, if it exists.
    pub fn find(name: &str) -> Result<Option<SessionDirectory>, SessionDirectoryError> {
        check_name(name)?;
        for base in bases() {
            let Some(above) = base.existing()? else { continue };
            if let Some(directory) = enter(&above.directory, &above.path, name, false)? {
                return Ok(Some(SessionDirectory { path: above.path.join(name), directory }));
            }
        }
        Ok(None)
    }

    /// The directory of a session: created if necessary, and claimed unless another session runs in it. `lasting`: the
    /// session outlives the user's logins.
    pub fn claim(name: &str, lasting: bool) -> Result<(SessionDirectory, Claim), SessionDirectoryError> {
        for _ in 0..RACES_MAX {
            let place = match SessionDirectory::find(name)? {
                Some(place) => place,
                None => match SessionDirectory::make(name, lasting) {
                    // Another session that has ended has removed the parent directory in the meantime.
                    Err(SessionDirectoryError::System { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                        continue;
                    }
                    made => made?,
                },
            };
            match rustix::fs::flock(&place.directory, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Ok((place, Claim::Taken)),
                Err(error) => return Err(system(&place.path, error)),
                // Otherwise a session that has ended has removed the directory in the meantime: try again.
                Ok(()) if place.is_there() => return Ok((place, Claim::Ours)),
                Ok(()) => {}
            }
        }
        Err(system(Path::new(name), Errno::AGAIN))
    }

    fn make(name: &str, lasting: bool) -> Result<SessionDirectory, SessionDirectoryError> {
        let bases = bases();
        let fits = |base: &&Base| base.lasts() || !lasting;
        let above = bases.iter().find(fits).or(bases.last()).expect("`bases` is never empty").made()?;
        let directory = enter(&above.directory, &above.path, name, true)?;
        let path = above.path.join(name);
        Ok(SessionDirectory { directory: directory.ok_or_else(|| system(&path, Errno::NOENT))?, path })
    }

    /// The names of all existing session directories, sorted.
    ///
    /// # Errors
    /// A directory that may contain session directories cannot be used.
    pub fn names() -> Result<Vec<String>, SessionDirectoryError> {
        let mut names = Vec::new();
        for base in bases() {
            let Some(above) = base.existing()? else { continue };
            let entries = Dir::read_from(&above.directory).map_err(|error| system(&above.path, error))?;
            for entry in entries {
                let entry = entry.map_err(|error| system(&above.path, error))?;
                names.extend(entry.file_name().to_str().ok().filter(|name| is_name(name)).map(str::to_owned));
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether no session is running in the directory.
    pub fn is_free(&self) -> bool {
        match rustix::fs::flock(&self.directory, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _ = rustix::fs::flock(&self.directory, FlockOperation::Unlock);
                true
            }
            Err(_) => false,
        }
    }

    pub fn try_clone(&self) -> io::Result<SessionDirectory> {
        Ok(SessionDirectory { path: self.path.clone(), directory: self.directory.try_clone()? })
    }

    #[cfg(test)]
    pub fn at(path: &Path) -> SessionDirectory {
        let directory = rustix::fs::open(path, OPEN, Mode::empty()).expect("the directory exists");
        SessionDirectory { path: path.to_owned(), directory }
    }

    /// A path to an entry of the directory, valid and impossible to redirect while `self` lives. For system calls that
    /// take no directory descriptor, or only short paths (a Unix socket's has at most 107 bytes).
    pub fn inside(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()))
    }

    /// Whether the path still leads to this directory, which has not been removed or replaced.
    fn is_there(&self) -> bool {
        wireup_os::files::is_at(&self.directory, &self.path)
    }

    /// Removes the directory with its contents. Only the process that has claimed the directory may do so.
    pub fn remove(&self) {
        // Errors are ignored: the next session of that name reports what cannot be removed.
        let _ = self.clear();
        let _ = std::fs::remove_dir(&self.path);
        // The parent directory is shared by all sessions, so this fails until the last one is gone.
        if let Some(above) = self.path.parent().filter(|above| Some(*above) != given_base().as_deref()) {
            let _ = std::fs::remove_dir(above);
        }
    }

    /// Removes all files that a session left in the directory when it did not end properly.
    pub fn clear(&self) -> io::Result<()> {
        keeper::clear(&self.inside(""))
    }
}

impl AsFd for SessionDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// A directory that may contain session directories of this user.
enum Base {
    /// The directory that the user has set in `WIREUP_RUNTIME_DIR`.
    Given(PathBuf),
    /// The folder `wireup` in the user's runtime directory, which the system removes when the user is logged in
    /// nowhere.
    LogIn(PathBuf),
    /// A directory in `/tmp`.
    Shared,
}

const SHARED: &str = "/tmp";

impl Base {
    fn lasts(&self) -> bool {
        !matches!(self, Base::LogIn(_))
    }

    /// The directory, if it exists.
    fn existing(&self) -> Result<Option<OwnDirectory>, SessionDirectoryError> {
        match self {
            Base::Shared => {
                let found = own_directory::find(Path::new(SHARED), &shared_name());
                let found = found.map_err(|error| SessionDirectoryError::System { path: SHARED.into(), error })?;
                found.iter().try_for_each(|own| check(&own.directory, &own.path))?;
                Ok(found)
            }
            Base::Given(path) => open_given(path),
            Base::LogIn(above) => inside(above, false),
        }
    }

    /// Opens the directory, which is created if it is missing.
    fn made(&self) -> Result<OwnDirectory, SessionDirectoryError> {
        let missing = |path: &Path| system(path, Errno::NOENT);
        match self {
            Base::Shared => {
                let made = own_directory::find_or_make(Path::new(SHARED), &shared_name());
                let made = made.map_err(|error| SessionDirectoryError::Shared { path: SHARED.into(), error })?;
                check(&made.directory, &made.path).map(|()| made)
            }
            Base::Given(path) => {
                // The directory usually exists.
                let _ = rustix::fs::mkdir(path, Mode::RWXU);
                open_given(path)?.ok_or_else(|| missing(path))
            }
            Base::LogIn(above) => inside(above, true)?.ok_or_else(|| missing(above)),
        }
    }
}

fn shared_name() -> String {
    format!("wireup-{}", rustix::process::geteuid().as_raw())
}

/// Opens the directory that the user has set. Checks that no other user can replace it or rename entries in it.
fn open_given(path: &Path) -> Result<Option<OwnDirectory>, SessionDirectoryError> {
    let Some(directory) = open_own(path, OFlags::NOFOLLOW)? else { return Ok(None) };
    match rustix::fs::fstat(&directory).map_err(|error| system(path, error))?.st_mode & 0o777 {
        mode if mode & 0o022 != 0 => Err(SessionDirectoryError::Open { path: shown(path), mode }),
        _ => Ok(Some(OwnDirectory { path: path.to_owned(), directory })),
    }
}

fn open_own(path: &Path, flags: OFlags) -> Result<Option<OwnedFd>, SessionDirectoryError> {
    match rustix::fs::open(path, OPEN | flags, Mode::empty()) {
        Ok(directory) => check_owner(&directory, path).map(|()| Some(directory)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP | Errno::NOTDIR) => Err(SessionDirectoryError::NoDirectory { path: shown(path) }),
        Err(error) => Err(system(path, error)),
    }
}

/// Opens the folder `wireup` in a directory of this user.
fn inside(above: &Path, make: bool) -> Result<Option<OwnDirectory>, SessionDirectoryError> {
    let Some(directory) = open_own(above, OFlags::empty())? else { return Ok(None) };
    let directory = enter(&directory, above, "wireup", make)?;
    Ok(directory.map(|directory| OwnDirectory { path: above.join("wireup"), directory }))
}

/// The candidate directories, in order of preference.
fn bases() -> Vec<Base> {
    let user = rustix::process::geteuid().as_raw();
    if let Some(given) = given_base() {
        return vec![Base::Given(given)];
    }
    let named = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let candidates = named.into_iter().chain([PathBuf::from(format!("/run/user/{user}"))]);
    // `XDG_RUNTIME_DIR` is used only if it belongs to this user (`su` may have kept another user's variable), and if
    // others cannot rename entries in it.
    let is_own = |path: &PathBuf| {
        rustix::fs::stat(path).is_ok_and(|stat| {
            stat.st_uid == user && stat.st_mode & 0o022 == 0 && FileType::from_raw_mode(stat.st_mode).is_dir()
        })
    };
    let own = candidates.into_iter().find(is_own);
    own.map(Base::LogIn).into_iter().chain([Base::Shared]).collect()
}

/// The directory that the user has set in `WIREUP_RUNTIME_DIR`; wireup does not remove it.
pub(super) fn given_base() -> Option<PathBuf> {
    env::var_os(RUNTIME_DIR).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Opens a directory inside another one.
fn enter(above: &OwnedFd, path: &Path, name: &str, make: bool) -> Result<Option<OwnedFd>, SessionDirectoryError> {
    let path = path.join(name);
    if make {
        match rustix::fs::mkdirat(above, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(system(&path, error)),
        }
    }
    match rustix::fs::openat(above, name, OPEN | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(directory) => check(&directory, &path).map(|()| Some(directory)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP | Errno::NOTDIR) => Err(SessionDirectoryError::NoDirectory { path: shown(&path) }),
        // The parent directory could be opened, so access was denied by the directory `path`, which may belong to
        // another user.
        Err(Errno::ACCESS) => match rustix::fs::lstat(&path) {
            Ok(stat) if stat.st_uid != rustix::process::geteuid().as_raw() => {
                Err(SessionDirectoryError::Foreign { path: shown(&path), owner: stat.st_uid })
            }
            _ => Err(system(&path, Errno::ACCESS)),
        },
        Err(error) => Err(system(&path, error)),
    }
}

fn check(directory: &OwnedFd, path: &Path) -> Result<(), SessionDirectoryError> {
    check_owner(directory, path)?;
    let stat = rustix::fs::fstat(directory).map_err(|error| system(path, error))?;
    match stat.st_mode & 0o777 {
        mode if mode & 0o077 == 0 => Ok(()),
        mode => Err(SessionDirectoryError::Open { path: shown(path), mode }),
    }
}

fn check_owner(directory: &OwnedFd, path: &Path) -> Result<(), SessionDirectoryError> {
    let owner = rustix::fs::fstat(directory).map_err(|error| system(path, error))?.st_uid;
    match owner == rustix::process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(SessionDirectoryError::Foreign { path: shown(path), owner }),
    }
}

pub fn check_name(name: &str) -> Result<(), SessionDirectoryError> {
    if is_name(name) { Ok(()) } else { Err(SessionDirectoryError::Name { name: name.to_owned() }) }
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    name.len() <= NAME_LEN_MAX
        && name.bytes().all(fits)
        && name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
}

fn shown(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

fn system(path: &Path, error: Errno) -> SessionDirectoryError {
    SessionDirectoryError::System { path: shown(path), error: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn open(folder: &tempfile::TempDir) -> OwnedFd {
        rustix::fs::open(folder.path(), OPEN, Mode::empty()).unwrap()
    }

    #[test]
    fn session_names_are_plain_file_names() {
        for good in ["default", "lab-2", "a.b_c", "9"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".", "..", ".x", "-x", "a/b", "a b", "é", &"x".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_session_directory_is_made_private() {
        let folder = tempfile::tempdir().unwrap();
        let above = open(&folder);
        assert!(enter(&above, folder.path(), "s", false).unwrap().is_none());
        let made = enter(&above, folder.path(), "s", true).unwrap().expect("it was just created");
        assert_eq!(rustix::fs::fstat(&made).unwrap().st_mode & 0o7777, 0o700);
        assert!(enter(&above, folder.path(), "s", true).unwrap().is_some());
    }

    #[test]
    fn open_foreign_or_linked_session_directories_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let above = open(&folder);
        let refused = |name: &str| enter(&above, folder.path(), name, true).expect_err(name).to_string();
        fs::create_dir(folder.path().join("open")).unwrap();
        fs::set_permissions(folder.path().join("open"), fs::Permissions::from_mode(0o750)).unwrap();
        assert!(refused("open").contains("mode 0750"), "{}", refused("open"));
        fs::create_dir(folder.path().join("target")).unwrap();
        fs::set_permissions(folder.path().join("target"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink(folder.path().join("target"), folder.path().join("link")).unwrap();
        assert!(refused("link").contains("is not a directory"), "{}", refused("link"));
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(refused("file").contains("is not a directory"));
        if rustix::process::geteuid().is_root() {
            fs::create_dir(folder.path().join("other")).unwrap();
            std::os::unix::fs::chown(folder.path().join("other"), Some(12345), None).unwrap();
            assert!(refused("other").contains("belongs to user 12345"));
        }
    }

    #[test]
    fn a_link_or_a_directory_that_others_can_write_is_not_used_for_sessions() {
        let folder = tempfile::tempdir().unwrap();
        let (given, link) = (folder.path().join("given"), folder.path().join("link"));
        assert!(open_given(&given).unwrap().is_none());
        fs::create_dir(&given).unwrap();
        symlink(&given, &link).unwrap();
        let mode = |mode| fs::set_permissions(&given, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        assert_eq!(open_given(&given).unwrap().expect("it is there").path, given);
        let refused = |path: &Path| open_given(path).expect_err("it is not safe").to_string();
        assert!(refused(&link).contains("is a symbolic link"), "{}", refused(&link));
        for bits in [0o775, 0o757] {
            mode(bits);
            assert!(refused(&given).contains(&format!("mode {bits:04o}")), "{}", refused(&given));
        }
    }

    #[test]
    fn a_session_directory_has_one_owner_and_is_removed_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("base/s");
        fs::create_dir_all(&path).unwrap();
        let (first, second) = (SessionDirectory::at(&path), SessionDirectory::at(&path));
        let lock =
            |place: &SessionDirectory| rustix::fs::flock(&place.directory, FlockOperation::NonBlockingLockExclusive);
        lock(&first).unwrap();
        assert_eq!(lock(&second), Err(Errno::WOULDBLOCK));
        fs::write(first.inside("socket"), "").unwrap();
        fs::create_dir(first.inside("jobs")).unwrap();
        fs::write(first.inside("jobs/1"), "").unwrap();
        first.remove();
        assert!(!folder.path().join("base").exists());
        drop(first);
        // A child that another test has forked holds the lock too, until it executes a program.
        rustix::io::retry_on_intr(|| rustix::fs::flock(&second.directory, FlockOperation::LockExclusive)).unwrap();
        assert!(!second.is_there());
    }
}
