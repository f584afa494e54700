//! Finds or makes directories of this user in a directory where every user may make entries, such as `/tmp` or
//! `/dev/shm`.
//!
//! Another user may take any name there first, so a name alone proves nothing: an entry is used if it is a directory
//! (no symbolic link) that the kernel says belongs to this user, in the file system of the directory above: what is
//! mounted there may be another user's FUSE file system, which can report any owner. Nobody else can create such an
//! entry, and the sticky bit of the directory above keeps others from renaming or removing it. If another user has
//! taken the usual name, the directory's name is the usual name with a random ending, and later processes find it in
//! the listing of the directory above: no note is kept anywhere else, so a home directory that is missing, read-only or
//! shared by many machines does not matter.
//!
//! A user has only one directory of each usual name: a process that has created one looks for another one of this user,
//! and if there is one, removes its own and starts again. If the usual name is this user's, no listing is needed, which
//! would take long in a full directory. A third process may have found the directory that is removed: a caller that
//! then finds it missing must ask again. If two are created at the same moment and other processes already use both,
//! both are kept until they are empty, and later processes find the one with the usual name.

use crate::random;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Most attempts to make a directory, since other processes of this user may make and remove theirs at the same time.
const ATTEMPTS_MAX: u32 = 32;
/// Hexadecimal digits in the random ending of a name.
const RANDOM_DIGITS: usize = 16;
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory that belongs to this user. The caller must check its permission bits.
#[derive(Debug)]
pub struct OwnDirectory {
    pub path: PathBuf,
    pub directory: OwnedFd,
}

/// The directory of this user in `above` that is called `name`, or `name` with a random ending.
///
/// # Errors
/// `above` cannot be used: others may rename or remove entries of this user there. An entry of this user cannot be
/// opened.
pub fn find(above: &Path, name: &str) -> io::Result<Option<OwnDirectory>> {
    let open = match open_shared(above) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if let Some(usual) = own(&open, above, name)? {
        return Ok(Some(usual));
    }
    match with_random_ending(&open, name) {
        // Without read permission no directory with a random ending can have been made there, since that takes a
        // listing.
        Err(Errno::ACCESS) => Ok(None),
        names => first(&open, above, &names?),
    }
}

/// The directory that [`find`] finds; if there is none, it is created with mode 0700.
///
/// # Errors
/// `above` is missing or cannot be used, or the directory cannot be made.
pub fn find_or_make(above: &Path, name: &str) -> io::Result<OwnDirectory> {
    let open = open_shared(above)?;
    let mut is_taken = false;
    for _ in 0..ATTEMPTS_MAX {
        if let Some(usual) = own(&open, above, name)? {
            return Ok(usual);
        }
        let listed = || match with_random_ending(&open, name) {
            Err(Errno::ACCESS) if !is_taken => Ok(Vec::new()),
            listed => listed.map_err(|error| {
                let name = above.join(name);
                let (name, above) = (name.display(), above.display());
                io::Error::other(format!("{name} belongs to somebody else, and {above} cannot be listed: {error}"))
            }),
        };
        if let Some(found) = first(&open, above, &listed()?)? {
            return Ok(found);
        }
        let new = if is_taken { format!("{name}-{}", random_ending()?) } else { name.to_owned() };
        match rustix::fs::mkdirat(&open, &new, Mode::RWXU) {
            Ok(()) => {}
            // Another process may just have created an entry of this name; the next attempt will find it.
            Err(Errno::EXIST) => {
                is_taken = own(&open, above, &new)?.is_none();
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        let is_second = is_taken && own(&open, above, name)?.is_some() || listed()?.iter().any(|other| *other != new);
        if !is_second {
            continue;
        }
        // Another directory of this user exists, so this one is removed, unless another process already uses it.
        let _ = rustix::fs::unlinkat(&open, &new, AtFlags::REMOVEDIR);
        std::thread::sleep(std::time::Duration::from_micros(random::number()? % 2000));
    }
    Err(Errno::AGAIN.into())
}

/// Opens a directory in which others may make entries, but cannot rename or remove those of this user.
fn open_shared(above: &Path) -> io::Result<OwnedFd> {
    let open = rustix::fs::open(above, OPEN, Mode::empty())?;
    let mode = rustix::fs::fstat(&open)?.st_mode;
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        let mode = mode & 0o7777;
        let text = format!(
            "other users can rename and remove directories in {0} (mode {mode:04o}); run chmod +t {0} as its owner",
            above.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(open)
}

/// The directory of this user with that name; `None`: there is none.
fn own(open: &OwnedFd, above: &Path, name: &str) -> io::Result<Option<OwnDirectory>> {
    let is_own = |stat: &Stat| stat.st_uid == rustix::process::geteuid().as_raw();
    let device = rustix::fs::fstat(open)?.st_dev;
    match open_unmounted(open, name) {
        Ok(directory) => {
            let stat = rustix::fs::fstat(&directory)?;
            let is_usable = is_own(&stat) && stat.st_dev == device;
            Ok(is_usable.then(|| OwnDirectory { path: above.join(name), directory }))
        }
        // The entry is missing, no directory, a symbolic link, or a mount.
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => Ok(None),
        // The entry is another user's private directory; an entry of this user can be examined.
        Err(error) => match rustix::fs::statat(open, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_own(&stat) && stat.st_dev == device => Err(error.into()),
            _ => Ok(None),
        },
    }
}

/// Opens a directory unless something is mounted there (`EXDEV`), since another user's mount may never answer. Before
/// Linux 5.6 mounts are opened too.
fn open_unmounted(open: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OPEN | OFlags::NOFOLLOW;
    match rustix::fs::openat2(open, name, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(open, name, flags, Mode::empty()),
        opened => opened,
    }
}

fn first(open: &OwnedFd, above: &Path, names: &[String]) -> io::Result<Option<OwnDirectory>> {
    for name in names {
        if let Some(found) = own(open, above, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The names of directories of this user that are called `name` with a random ending, sorted.
fn with_random_ending(open: &OwnedFd, name: &str) -> Result<Vec<String>, Errno> {
    let user = rustix::process::geteuid().as_raw();
    let mut names = Vec::new();
    for entry in Dir::read_from(open)? {
        let entry = entry?;
        let Ok(found) = std::str::from_utf8(entry.file_name().to_bytes()) else { continue };
        if !found.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_random_ending) {
            continue;
        }
        let stat = rustix::fs::statat(open, found, AtFlags::SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| stat.st_uid == user && rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir()) {
            names.push(found.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn is_random_ending(ending: &str) -> bool {
    ending.len() == RANDOM_DIGITS && ending.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn random_ending() -> io::Result<String> {
    Ok(format!("{:016x}", random::number()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use tempfile::TempDir;

    const STRANGER: u32 = 61_002;

    /// A directory in which all users may create entries.
    fn shared() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        folder
    }

    fn found(above: &Path) -> Option<PathBuf> {
        find(above, "mine").unwrap().map(|own| own.path)
    }

    #[test]
    fn the_usual_name_is_used_where_nobody_has_it() {
        let folder = shared();
        let above = folder.path();
        assert_eq!(found(above), None);
        let made = find_or_make(above, "mine").unwrap();
        assert_eq!(made.path, above.join("mine"));
        assert_eq!(fs::metadata(&made.path).unwrap().permissions().mode() & 0o7777, 0o700);
        assert_eq!(find_or_make(above, "mine").unwrap().path, made.path);
    }

    #[test]
    fn a_directory_is_found_again_whatever_stands_at_its_usual_name() {
        let folder = shared();
        let above = folder.path();
        let usual = above.join("mine");
        let squats: [(&str, &dyn Fn()); 4] = [
            ("a file", &|| fs::write(&usual, "").unwrap()),
            ("a link to a directory of this user", &|| symlink(above, &usual).unwrap()),
            ("a link to nothing", &|| symlink("/nowhere", &usual).unwrap()),
            ("a directory of another user", &|| {
                fs::create_dir(&usual).unwrap();
                if rustix::process::geteuid().is_root() {
                    chown(&usual, Some(STRANGER), Some(STRANGER)).unwrap();
                }
            }),
        ];
        for (what, squat) in squats {
            squat();
            if what.contains("another user") && !rustix::process::geteuid().is_root() {
                continue;
            }
            let made = find_or_make(above, "mine").expect(what);
            assert_ne!(made.path, usual, "{what}");
            assert_eq!(fs::symlink_metadata(&made.path).unwrap().permissions().mode() & 0o7777, 0o700, "{what}");
            assert_eq!(find_or_make(above, "mine").unwrap().path, made.path, "{what}");
            assert_eq!(found(above), Some(made.path.clone()), "{what}");
            // The usual name becomes free again: the existing directory is still used.
            let _ = fs::remove_file(&usual).or_else(|_| fs::remove_dir(&usual));
            assert_eq!(find_or_make(above, "mine").unwrap().path, made.path, "{what}");
            fs::remove_dir(&made.path).unwrap();
        }
    }

    #[test]
    fn entries_of_others_are_not_taken_for_one_with_a_random_ending() {
        let folder = shared();
        let above = folder.path();
        fs::write(above.join("mine"), "").unwrap();
        fs::write(above.join("mine-0123456789abcdef"), "").unwrap();
        symlink(above, above.join("mine-1123456789abcdef")).unwrap();
        fs::create_dir(above.join("mine-not-random")).unwrap();
        if rustix::process::geteuid().is_root() {
            fs::create_dir(above.join("mine-2123456789abcdef")).unwrap();
            chown(above.join("mine-2123456789abcdef"), Some(STRANGER), None).unwrap();
        }
        assert_eq!(found(above), None);
    }

    #[test]
    fn processes_that_make_it_at_once_agree_on_one() {
        let folder = shared();
        let above = folder.path();
        let usual = above.join("mine");
        for round in 0..60 {
            // Something else has the usual name: always, never, or until the other threads have looked.
            let is_taken = round % 3 != 1;
            if is_taken {
                fs::write(&usual, "").unwrap();
            }
            let made: Vec<PathBuf> = std::thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(|| find_or_make(above, "mine").unwrap().path));
                if round % 3 == 2 {
                    let _ = fs::remove_file(&usual);
                }
                threads.map(|thread| thread.join().unwrap()).into()
            });
            let _ = fs::remove_file(&usual);
            let left: Vec<PathBuf> = fs::read_dir(above).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert!(left.len() == 1 && made.contains(&left[0]), "{made:?} {left:?}");
            fs::remove_dir(&left[0]).unwrap();
        }
    }

    #[test]
    fn a_directory_whose_entries_others_may_rename_is_refused() {
        let folder = shared();
        let above = folder.path();
        fs::set_permissions(above, fs::Permissions::from_mode(0o777)).unwrap();
        let error = find_or_make(above, "mine").unwrap_err().to_string();
        assert!(error.contains("(mode 0777)"), "{error}");
    }
}
