//! Where the sessions of a user are found: a directory for each, which nobody else can enter.
//!
//! ```text
//! $WIREUP_RUNTIME_DIR           /NAME     where it is set, nowhere else
//! $XDG_RUNTIME_DIR      /wireup /NAME     or /run/user/UID, as long as it is the user's
//! /tmp/wireup-UID               /NAME     where there is no such directory, or it may go before the session does
//! ```
//!
//! Below the first directory nothing is believed: each step is opened without following links, and must be a directory of
//! ours with no rights for others. What lies in it is reached through the descriptor, so that nobody can put another one in
//! its place meanwhile.

use crate::keeper;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::env;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Takes the place of all others; for tests, and for machines without a usable one.
pub const RUNTIME_DIR: &str = "WIREUP_RUNTIME_DIR";
/// The session that is meant where none is named.
pub const DEFAULT_NAME: &str = "default";
/// Longest name of a session.
pub const NAME_LEN_MAX: usize = 64;

/// A session that ends is removed while the next one begins: tried again so often.
const RACES_MAX: usize = 16;
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

#[derive(thiserror::Error, Debug)]
pub enum PlaceError {
    #[error(
        "{name:?} is no name for a session; use up to {NAME_LEN_MAX} letters, digits, dots, dashes and underscores, the \
         first of them a letter or a digit"
    )]
    Name { name: String },
    #[error("{path} belongs to user {owner}, not to you; remove it, or set {RUNTIME_DIR} to a directory of yours")]
    Foreign { path: String, owner: u32 },
    #[error("{path} can be entered by others (mode {mode:04o}); chmod 700 {path}, if nobody has put anything there")]
    Open { path: String, mode: u32 },
    #[error("{path} is no directory; remove it, or set {RUNTIME_DIR} to a directory of yours")]
    NoDirectory { path: String },
    #[error("{path}: {error}")]
    System { path: String, error: io::Error },
}

/// The directory of one session.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    directory: OwnedFd,
}

/// What came of the attempt to have a place for oneself.
#[derive(Debug)]
pub enum Claim {
    /// Until the descriptor is closed, in every process that has inherited it.
    Ours,
    /// A session lives there.
    Taken,
}

impl Place {
    /// The place of a session, if there is one.
    pub fn find(name: &str) -> Result<Option<Place>, PlaceError> {
        check_name(name)?;
        for base in bases() {
            if let Some(above) = base.open(false)?
                && let Some(directory) = enter(&above, &base.path, name, false)?
            {
                return Ok(Some(Place { path: base.path.join(name), directory }));
            }
        }
        Ok(None)
    }

    /// The place of a session, made if need be, and claimed if nobody else has. `lasting`: it outlives log-ins.
    pub fn claim(name: &str, lasting: bool) -> Result<(Place, Claim), PlaceError> {
        for _ in 0..RACES_MAX {
            let place = match Place::find(name)? {
                Some(place) => place,
                None => match Place::make(name, lasting) {
                    // The last session of all has removed the directory above meanwhile.
                    Err(PlaceError::System { error, .. }) if error.kind() == io::ErrorKind::NotFound => continue,
                    made => made?,
                },
            };
            match rustix::fs::flock(&place.directory, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Ok((place, Claim::Taken)),
                Err(error) => return Err(system(&place.path, error)),
                // Else its session has removed it meanwhile.
                Ok(()) if place.is_there() => return Ok((place, Claim::Ours)),
                Ok(()) => {}
            }
        }
        Err(system(Path::new(name), Errno::AGAIN))
    }

    fn make(name: &str, lasting: bool) -> Result<Place, PlaceError> {
        let bases = bases();
        let fits = |base: &&Base| base.lasts || !lasting;
        let base = bases.iter().find(fits).or(bases.last()).expect("there is always one");
        // Made where it was not there.
        let above = base.open(true)?.ok_or_else(|| system(&base.path, Errno::NOENT))?;
        let directory = enter(&above, &base.path, name, true)?;
        let path = base.path.join(name);
        Ok(Place { directory: directory.ok_or_else(|| system(&path, Errno::NOENT))?, path })
    }

    /// The names of all places that there are, in order.
    pub fn names() -> Vec<String> {
        let mut names = Vec::new();
        for base in bases() {
            let entries = std::fs::read_dir(&base.path).into_iter().flatten().flatten();
            names.extend(entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|n| is_name(n)));
        }
        names.sort();
        names.dedup();
        names
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether no session lives in it.
    pub fn is_free(&self) -> bool {
        match rustix::fs::flock(&self.directory, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _ = rustix::fs::flock(&self.directory, FlockOperation::Unlock);
                true
            }
            Err(_) => false,
        }
    }

    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Place> {
        Ok(Place { path: self.path.clone(), directory: self.directory.try_clone()? })
    }

    #[cfg(test)]
    pub fn at(path: &Path) -> Place {
        let directory = rustix::fs::open(path, OPEN, Mode::empty()).expect("it is there");
        Place { path: path.to_owned(), directory }
    }

    /// A path to something in it that leads nowhere else, for as long as this lives: for system calls that take no
    /// descriptor, and no long names (a socket's has 107 bytes).
    pub fn inside(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()))
    }

    /// Whether the path leads here still.
    fn is_there(&self) -> bool {
        wireup_os::files::is_at(&self.directory, &self.path)
    }

    /// Removes all that is in it, and itself. For whoever has claimed it.
    pub fn remove(&self) {
        // What cannot be removed is told by the next session of that name.
        let _ = self.clear();
        let _ = std::fs::remove_dir(&self.path);
        // The directory above is shared by all sessions: it goes with the last one.
        if let Some(above) = self.path.parent().filter(|above| Some(*above) != given_base().as_deref()) {
            let _ = std::fs::remove_dir(above);
        }
    }

    /// Removes all that a session that did not end properly has left.
    pub fn clear(&self) -> io::Result<()> {
        keeper::clear(&self.inside(""))
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// A directory that may hold sessions.
struct Base {
    path: PathBuf,
    /// The part of the path that is not ours to make, nor to judge beyond its owner.
    given: PathBuf,
    lasts: bool,
}

impl Base {
    /// `None`: it is not there.
    fn open(&self, make: bool) -> Result<Option<OwnedFd>, PlaceError> {
        if make && self.given == self.path {
            // It is there, most often.
            let _ = rustix::fs::mkdir(&self.given, Mode::RWXU);
        }
        let given = match rustix::fs::open(&self.given, OPEN, Mode::empty()) {
            Ok(given) => given,
            Err(Errno::NOENT) if !make => return Ok(None),
            Err(error) => return Err(system(&self.given, error)),
        };
        match self.path.strip_prefix(&self.given).ok().and_then(Path::to_str) {
            None | Some("") => check_owner(&given, &self.given).map(|()| Some(given)),
            Some(rest) => enter(&given, &self.given, rest, make),
        }
    }
}

/// In the order in which they are looked at.
fn bases() -> Vec<Base> {
    let user = rustix::process::geteuid().as_raw();
    if let Some(given) = given_base() {
        return vec![Base { path: given.clone(), given, lasts: true }];
    }
    let named = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let candidates = named.into_iter().chain([PathBuf::from(format!("/run/user/{user}"))]);
    // Another user's, where `su` has kept the variable, is not meant for us.
    let is_own = |path: &PathBuf| rustix::fs::stat(path).is_ok_and(|stat| stat.st_uid == user);
    let own = candidates.into_iter().find(is_own);
    let tmp = PathBuf::from("/tmp");
    own.into_iter()
        .map(|given| Base { path: given.join("wireup"), given, lasts: false })
        .chain([Base { path: tmp.join(format!("wireup-{user}")), given: tmp, lasts: true }])
        .collect()
}

/// What the user has given is not ours to remove.
fn given_base() -> Option<PathBuf> {
    env::var_os(RUNTIME_DIR).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Opens a directory in another one.
fn enter(above: &OwnedFd, path: &Path, name: &str, make: bool) -> Result<Option<OwnedFd>, PlaceError> {
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
        Err(Errno::LOOP | Errno::NOTDIR) => Err(PlaceError::NoDirectory { path: shown(&path) }),
        // Ours could be opened.
        Err(Errno::ACCESS) => match rustix::fs::lstat(&path) {
            Ok(stat) if stat.st_uid != rustix::process::geteuid().as_raw() => {
                Err(PlaceError::Foreign { path: shown(&path), owner: stat.st_uid })
            }
            _ => Err(system(&path, Errno::ACCESS)),
        },
        Err(error) => Err(system(&path, error)),
    }
}

fn check(directory: &OwnedFd, path: &Path) -> Result<(), PlaceError> {
    check_owner(directory, path)?;
    let stat = rustix::fs::fstat(directory).map_err(|error| system(path, error))?;
    match stat.st_mode & 0o777 {
        mode if mode & 0o077 == 0 => Ok(()),
        mode => Err(PlaceError::Open { path: shown(path), mode }),
    }
}

fn check_owner(directory: &OwnedFd, path: &Path) -> Result<(), PlaceError> {
    let owner = rustix::fs::fstat(directory).map_err(|error| system(path, error))?.st_uid;
    match owner == rustix::process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(PlaceError::Foreign { path: shown(path), owner }),
    }
}

pub fn check_name(name: &str) -> Result<(), PlaceError> {
    if is_name(name) { Ok(()) } else { Err(PlaceError::Name { name: name.to_owned() }) }
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

fn system(path: &Path, error: Errno) -> PlaceError {
    PlaceError::System { path: shown(path), error: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A directory of this test's own.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = env::temp_dir().join(format!("wireup-place-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn open(&self) -> OwnedFd {
            rustix::fs::open(&self.0, OPEN, Mode::empty()).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn names_are_file_names_without_surprises() {
        for good in ["default", "lab-2", "a.b_c", "9"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".", "..", ".x", "-x", "a/b", "a b", "é", &"x".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_directory_is_made_for_its_owner_alone() {
        let folder = Folder::new("made");
        let above = folder.open();
        assert!(enter(&above, &folder.0, "s", false).unwrap().is_none());
        let made = enter(&above, &folder.0, "s", true).unwrap().expect("it was made");
        assert_eq!(rustix::fs::fstat(&made).unwrap().st_mode & 0o7777, 0o700);
        assert!(enter(&above, &folder.0, "s", true).unwrap().is_some());
    }

    #[test]
    fn what_others_can_enter_or_have_put_there_is_refused() {
        let folder = Folder::new("refused");
        let above = folder.open();
        let refused = |name: &str| enter(&above, &folder.0, name, true).expect_err(name).to_string();
        fs::create_dir(folder.0.join("open")).unwrap();
        fs::set_permissions(folder.0.join("open"), fs::Permissions::from_mode(0o750)).unwrap();
        assert!(refused("open").contains("mode 0750"), "{}", refused("open"));
        fs::create_dir(folder.0.join("target")).unwrap();
        fs::set_permissions(folder.0.join("target"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink(folder.0.join("target"), folder.0.join("link")).unwrap();
        assert!(refused("link").contains("is no directory"), "{}", refused("link"));
        fs::write(folder.0.join("file"), "").unwrap();
        assert!(refused("file").contains("is no directory"));
        if rustix::process::geteuid().is_root() {
            fs::create_dir(folder.0.join("other")).unwrap();
            std::os::unix::fs::chown(folder.0.join("other"), Some(12345), None).unwrap();
            assert!(refused("other").contains("belongs to user 12345"));
        }
    }

    #[test]
    fn one_claims_it_and_all_goes_with_it() {
        let folder = Folder::new("claim");
        let path = folder.0.join("base/s");
        fs::create_dir_all(&path).unwrap();
        let (first, second) = (Place::at(&path), Place::at(&path));
        let lock = |place: &Place| rustix::fs::flock(&place.directory, FlockOperation::NonBlockingLockExclusive);
        lock(&first).unwrap();
        assert_eq!(lock(&second), Err(Errno::WOULDBLOCK));
        fs::write(first.inside("socket"), "").unwrap();
        fs::create_dir(first.inside("jobs")).unwrap();
        fs::write(first.inside("jobs/1"), "").unwrap();
        first.remove();
        assert!(!folder.0.join("base").exists());
        drop(first);
        lock(&second).unwrap();
        assert!(!second.is_there());
    }
}
