//! Opens files and folders that the user has named for output, where other users may make entries too, as in `/tmp`.
//!
//! Such a path is followed step by step. In a directory that every user may write to (or its group, if it has the
//! sticky bit), an entry is used only if it belongs to this user, to root or to the owner of that directory. So another
//! user who has created a link, a folder or a file there first can neither choose which file of this user is written
//! nor own the file that is written; links that this user has made are followed as usual. These are the rules of the
//! kernel's `fs.protected_symlinks` and `fs.protected_regular`, which are not enabled on every machine, applied to
//! folders as well. (In a folder for all users without the sticky bit, where anybody can replace anything, a link can
//! be exchanged while it is read.) From `/proc` on (`/dev/fd/3`) the kernel follows the path: nobody can create an
//! entry there.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat, statat, unlinkat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// What happens to a file that already exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// New output is appended to the file.
    Append,
    /// The file is emptied.
    Empty,
    /// The file is removed, and a new one is created. Devices and pipes are not replaced.
    Replace,
}

/// Most symbolic links in a path, as in the kernel.
const LINKS_MAX: u32 = 40;
/// Most attempts, since other processes may make and remove the file at the same time.
const ATTEMPTS_MAX: u32 = 16;
/// The magic number of `/proc`'s file system, as in `statfs`.
const PROC_SUPER_MAGIC: u64 = 0x9fa0;
/// The magic number of file systems in user space (FUSE), as in `statfs`.
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
const STICKY: u32 = 0o1000;
const AS_FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a file for appending; if it is missing, it is created with these permission bits.
///
/// # Errors
/// Another user owns a part of the path (`PermissionDenied`, with the reason), or the file cannot be opened.
pub fn open(path: &Path, existing: Existing, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY | OFlags::CLOEXEC;
    for _ in 0..ATTEMPTS_MAX {
        let (folder, name, found) = match walk(path, false)? {
            End::Folder(_) => return Err(Errno::ISDIR.into()),
            End::InProc(folder, rest) => return Ok(openat(&folder, rest, flags, Mode::empty())?.into()),
            End::Entry { folder, name, found } => (folder, name, found),
        };
        let Some(found) = found else {
            let made = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            match openat(&folder, &name, made, Mode::from_raw_mode(mode)) {
                // Another process may just have made the file.
                Err(Errno::EXIST) => continue,
                made => return Ok(made?.into()),
            }
        };
        let is_file = FileType::from_raw_mode(found.st_mode).is_file();
        if is_file && existing == Existing::Replace {
            match unlinkat(&folder, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        if is_file && found.st_nlink > 1 && is_shared(&fstat(&folder)?) {
            return Err(refused(path, "has more than one hard link, and another user may have made one of them"));
        }
        let file = match openat(&folder, &name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOENT | Errno::LOOP) => continue,
            opened => opened?,
        };
        if !is_same(&fstat(&file)?, &found) {
            continue;
        }
        check_opened(path, &name, &fstat(&folder)?, &file)?;
        if existing == Existing::Empty && is_file {
            rustix::fs::ftruncate(&file, 0)?;
        }
        return Ok(file.into());
    }
    Err(Errno::AGAIN.into())
}

/// Opens a folder for access to its entries (`O_PATH`). It and its missing parent folders are created.
///
/// # Errors
/// Another user owns a part of the path (`PermissionDenied`, with the reason), or a folder cannot be created.
pub fn make_folder(path: &Path) -> io::Result<OwnedFd> {
    match walk(path, true)? {
        End::Folder(folder) => Ok(folder),
        End::InProc(folder, rest) => Ok(openat(&folder, rest, AS_FOLDER, Mode::empty())?),
        End::Entry { .. } => Err(Errno::NOTDIR.into()),
    }
}

/// Opens a folder in another one; it is created if it is missing. A symbolic link is not followed, whoever has made it.
///
/// # Errors
/// Another user owns the folder (`PermissionDenied`, with the reason), it is no folder, or it cannot be created.
pub fn make_folder_in(above: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    match mkdirat(&above, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let folder = openat(&above, name, AS_FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
    check_opened(Path::new(name), name, &fstat(above)?, &folder)?;
    Ok(folder)
}

/// What a path leads to.
enum End {
    Folder(OwnedFd),
    /// An entry that is no folder and no symbolic link; `found`: its properties, `None` if it does not exist.
    Entry {
        folder: OwnedFd,
        name: OsString,
        found: Option<Stat>,
    },
    /// A folder of `/proc`, and the rest of the path.
    InProc(OwnedFd, PathBuf),
}

/// Follows a path. `make`: all components must be folders, and missing ones are created.
fn walk(path: &Path, make: bool) -> io::Result<End> {
    let mut folder = openat(CWD, ".", AS_FOLDER, Mode::empty())?;
    let mut left: VecDeque<OsString> = VecDeque::new();
    prepend(&mut left, path);
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        if name == "/" || name == ".." || name == "." {
            folder = openat(&folder, &name, AS_FOLDER, Mode::empty())?;
            continue;
        }
        let above = fstat(&folder)?;
        let found = match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) if make => {
                match mkdirat(&folder, &name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)?
            }
            Err(Errno::NOENT) if left.is_empty() => return Ok(End::Entry { folder, name, found: None }),
            Err(error) => return Err(error.into()),
        };
        check(path, &name, &above, &found)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => {
                if rustix::fs::fstatfs(&folder)?.f_type as u64 == PROC_SUPER_MAGIC {
                    return Ok(End::InProc(folder, std::iter::once(name).chain(left).collect()));
                }
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let target = readlinkat(&folder, &name, Vec::new())?.into_bytes();
                prepend(&mut left, Path::new(&OsString::from_vec(target)));
            }
            FileType::Directory => {
                let inside = openat(&folder, &name, AS_FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
                check_opened(path, &name, &above, &inside)?;
                folder = inside;
            }
            _ if left.is_empty() => return Ok(End::Entry { folder, name, found: Some(found) }),
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(End::Folder(folder))
}

/// Puts the components of a path before those in `left`.
fn prepend(left: &mut VecDeque<OsString>, path: &Path) {
    for component in path.components().rev() {
        let name = match component {
            Component::RootDir => OsStr::new("/"),
            other => other.as_os_str(),
        };
        left.push_front(name.to_owned());
    }
}

/// Checks whether an opened entry of a directory may be used. If a file system is mounted on it, root has mounted that,
/// or it is a FUSE file system: any user can mount one on an entry of their own, and it can report any user as the
/// owner of its files, so it is refused.
fn check_opened(path: &Path, name: &OsStr, above: &Stat, opened: impl AsFd) -> io::Result<()> {
    let found = fstat(&opened)?;
    if found.st_dev == above.st_dev {
        return check(path, name, above, &found);
    }
    if is_shared(above) && rustix::fs::fstatfs(&opened)?.f_type as u64 == FUSE_SUPER_MAGIC {
        let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
        return Err(refused(
            path,
            &format!("contains the FUSE mount {name:?}, in a folder that every user may write to"),
        ));
    }
    Ok(())
}

/// Checks whether an entry of a directory may be used.
fn check(path: &Path, name: &OsStr, above: &Stat, found: &Stat) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let owner = found.st_uid;
    if !is_shared(above) || owner == user || owner == 0 || owner == above.st_uid {
        return Ok(());
    }
    let what = match FileType::from_raw_mode(found.st_mode) {
        FileType::Symlink => "symbolic link",
        FileType::Directory => "folder",
        _ => "file",
    };
    let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
    Err(refused(
        path,
        &format!("contains the {what} {name:?} of user {owner}, in a folder that every user may write to"),
    ))
}

fn refused(path: &Path, why: &str) -> io::Error {
    let text = format!("{} {why}; choose another name, or another folder", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Whether users who do not trust each other may make entries in a directory.
fn is_shared(directory: &Stat) -> bool {
    let mode = directory.st_mode;
    mode & 0o002 != 0 || (mode & 0o020 != 0 && mode & STICKY != 0)
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

    const STRANGER: u32 = 61_002;

    /// A folder of this user that contains another one in which all users may create entries.
    struct Folders(tempfile::TempDir);

    impl Folders {
        fn new() -> Folders {
            let folders = Folders(tempfile::tempdir().unwrap());
            fs::create_dir(folders.at("shared")).unwrap();
            fs::set_permissions(folders.at("shared"), fs::Permissions::from_mode(0o1777)).unwrap();
            fs::write(folders.at("precious"), "precious").unwrap();
            folders
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }
    }

    fn append(path: &Path) -> io::Result<()> {
        open(path, Existing::Append, 0o666)?.write_all(b"new")
    }

    #[test]
    fn files_are_appended_to_emptied_and_replaced() {
        let folders = Folders::new();
        let path = folders.at("file");
        append(&path).unwrap();
        append(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newnew");
        let inode = fs::metadata(&path).unwrap().ino();
        open(&path, Existing::Empty, 0o666).unwrap().write_all(b"1").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::metadata(&path).unwrap().ino()), (b"1".to_vec(), inode));
        let held = fs::File::open(&path).unwrap();
        open(&path, Existing::Replace, 0o600).unwrap().write_all(b"2").unwrap();
        assert_eq!((fs::read(&path).unwrap(), held.metadata().unwrap().nlink()), (b"2".to_vec(), 0));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(append(&folders.at("shared")).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(append(&folders.at("none/file")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(append(&folders.at("file/file")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn links_of_the_user_devices_and_descriptors_are_followed() {
        let folders = Folders::new();
        symlink(folders.at("precious"), folders.at("shared/link")).unwrap();
        symlink("../precious", folders.at("shared/relative")).unwrap();
        symlink(folders.at("new"), folders.at("shared/dangling")).unwrap();
        for link in ["link", "relative", "dangling"] {
            append(&folders.at(&format!("shared/{link}"))).unwrap();
        }
        assert_eq!(fs::read(folders.at("precious")).unwrap(), b"preciousnewnew");
        assert_eq!(fs::read(folders.at("new")).unwrap(), b"new");
        append(Path::new("/dev/null")).unwrap();
        let (reader, writer) = crate::files::pipe().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&writer);
        append(Path::new(&format!("/proc/self/fd/{number}"))).unwrap();
        append(Path::new(&format!("/dev/fd/{number}"))).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(rustix::io::read(&reader, &mut buffer[..]).unwrap(), 6);
        symlink(folders.at("shared/loop"), folders.at("shared/loop")).unwrap();
        assert!(append(&folders.at("shared/loop")).is_err());
    }

    #[test]
    fn folders_are_made_on_the_way() {
        let folders = Folders::new();
        make_folder(&folders.at("shared/a/b/../c/")).unwrap();
        assert!(folders.at("shared/a/b").is_dir() && folders.at("shared/a/c").is_dir());
        make_folder(&folders.at("shared/a/c")).unwrap();
        assert!(make_folder(&folders.at("precious")).is_err());
    }

    #[test]
    fn what_a_stranger_has_put_into_a_shared_folder_is_refused() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can make files of another user");
            return;
        }
        let folders = Folders::new();
        let own = |path: &Path| lchown(path, Some(STRANGER), Some(STRANGER)).unwrap();
        symlink(folders.at("precious"), folders.at("shared/link")).unwrap();
        symlink(folders.0.path(), folders.at("shared/folder-link")).unwrap();
        fs::create_dir(folders.at("shared/folder")).unwrap();
        fs::write(folders.at("shared/file"), "").unwrap();
        fs::set_permissions(folders.at("shared/file"), fs::Permissions::from_mode(0o666)).unwrap();
        for name in ["shared/link", "shared/folder-link", "shared/folder", "shared/file"] {
            own(&folders.at(name));
        }
        fs::hard_link(folders.at("precious"), folders.at("shared/hard")).unwrap();
        symlink(folders.at("shared/link"), folders.at("over")).unwrap();
        for name in ["link", "folder-link/new", "folder/new", "file", "hard", "../over"] {
            let error = append(&folders.at(&format!("shared/{name}"))).expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}: {error}");
        }
        let error = append(&folders.at("shared/link")).unwrap_err().to_string();
        assert!(error.contains("the symbolic link \"link\" of user 61002"), "{error}");
        for name in ["folder", "folder/new", "folder-link", "folder-link/new"] {
            make_folder(&folders.at(&format!("shared/{name}"))).expect_err(name);
        }
        let shared = make_folder(&folders.at("shared")).unwrap();
        for name in ["folder", "folder-link", "file"] {
            make_folder_in(&shared, OsStr::new(name)).expect_err(name);
        }
        drop(make_folder_in(&shared, OsStr::new("own")).unwrap());
        drop(make_folder_in(&shared, OsStr::new("own")).unwrap());
        assert_eq!(fs::read(folders.at("precious")).unwrap(), b"precious");
        assert!(!folders.at("new").exists() && !folders.at("shared/folder/new").exists());
        // A folder of another user, to which only that user may write: the path was the user's choice, so it is used.
        fs::create_dir(folders.at("theirs")).unwrap();
        fs::write(folders.at("theirs/file"), "").unwrap();
        [folders.at("theirs/file"), folders.at("theirs")].iter().for_each(|path| {
            chown(path, Some(STRANGER), None).unwrap();
        });
        append(&folders.at("theirs/file")).unwrap();
    }
}
