//! Finds a program as a shell would, or in the working directory.

use rustix::fs::{Access, AtFlags, CWD, FileType, access, accessat, stat};
use rustix::io::Errno;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::{ffi::OsStr, io};

/// The search path if the environment has none: glibc's, without the working directory.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// Why a program cannot be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FindError {
    /// There is no such file.
    NotFound,
    /// Only a file without execute permission was found, or an entry that is no file.
    NotExecutable,
    /// The path leads to a directory.
    Directory,
    /// The file is empty. (A shell would run it, successfully.)
    Empty,
    /// `stat` of the path failed with this error.
    Unknown(Errno),
}

impl FindError {
    /// An error number: that of `execvp`, except that a directory and an empty file have numbers of their own.
    pub fn errno(self) -> i32 {
        match self {
            FindError::NotFound => libc::ENOENT,
            FindError::NotExecutable => libc::EACCES,
            FindError::Directory => libc::EISDIR,
            FindError::Empty => libc::ENODATA,
            FindError::Unknown(error) => error.raw_os_error(),
        }
    }
}

/// The path to execute for `name` in a process that works in `directory`: the first executable one of the
/// [`candidates`].
///
/// # Errors
/// No executable file was found. A file without execute permission is skipped, and reported only if no later candidate
/// is executable.
pub fn find_program(name: &[u8], search: Option<&[u8]>, directory: &Path) -> Result<Vec<u8>, FindError> {
    if name.contains(&b'/') {
        return check(&directory.join(OsStr::from_bytes(name))).map(|()| name.to_vec());
    }
    let mut error = FindError::NotFound;
    for path in candidates(name, search) {
        match check(&directory.join(OsStr::from_bytes(&path))) {
            Ok(()) => return Ok(path),
            Err(FindError::NotFound | FindError::Directory) => {}
            Err(problem @ (FindError::NotExecutable | FindError::Empty | FindError::Unknown(_))) => error = problem,
        }
    }
    Err(error)
}

/// The paths that `name` may stand for, relative to the working directory: `name` itself if it contains a slash; else
/// those in the folders of `search` (the value of `PATH`; `None`: not set), then the one in the working directory,
/// which Open MPI's launcher tries too.
pub fn candidates<'a>(name: &'a [u8], search: Option<&'a [u8]>) -> impl Iterator<Item = Vec<u8>> + 'a {
    let is_path = name.contains(&b'/');
    let is_searched = !is_path && !name.is_empty();
    // An empty element of the search path is the working directory.
    let folders = search.unwrap_or(PATH_DEFAULT).split(|&byte| byte == b':').chain([&b""[..]]);
    let in_folder = move |folder: &[u8]| {
        let folder = if folder.is_empty() { b"." } else { folder };
        Path::new(OsStr::from_bytes(folder)).join(OsStr::from_bytes(name)).into_os_string().into_vec()
    };
    is_path.then(|| name.to_vec()).into_iter().chain(folders.filter(move |_| is_searched).map(in_folder))
}

/// Whether the path leads to a file that may be executed.
pub fn is_program(path: &Path) -> bool {
    check(path).is_ok()
}

/// Checks that this process could use `directory` as its working directory.
pub fn check_directory(directory: &Path) -> io::Result<()> {
    let is_directory = FileType::from_raw_mode(stat(directory)?.st_mode) == FileType::Directory;
    if !is_directory {
        return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
    }
    Ok(may_execute(directory)?)
}

/// Whether this process may execute a file, or enter a directory.
fn may_execute(path: &Path) -> rustix::io::Result<()> {
    match accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS) {
        // A container's filter that does not know the system call (Linux 5.8) refuses it. `access` checks the real
        // user, who is the effective user unless a set-user-ID program has started this process.
        Err(Errno::PERM) => access(path, Access::EXEC_OK),
        answer => answer,
    }
}

fn check(path: &Path) -> Result<(), FindError> {
    let status = stat(path);
    match status.map(|status| FileType::from_raw_mode(status.st_mode)) {
        Ok(FileType::Directory) => Err(FindError::Directory),
        Ok(FileType::RegularFile) if status.is_ok_and(|status| status.st_size == 0) => Err(FindError::Empty),
        Ok(kind) if kind != FileType::RegularFile => Err(FindError::NotExecutable),
        Ok(_) => may_execute(path).map_err(|_| FindError::NotExecutable),
        Err(Errno::ACCESS) => Err(FindError::NotExecutable),
        Err(Errno::NOENT | Errno::NOTDIR) => Err(FindError::NotFound),
        Err(error) => Err(FindError::Unknown(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_is_found_on_the_path_then_in_the_working_directory() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("a/dir")).unwrap();
        fs::create_dir_all(root.join("b")).unwrap();
        let file = |path: &str, mode| {
            fs::write(root.join(path), "#!").unwrap();
            fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        file("a/tool", 0o644);
        file("b/tool", 0o755);
        file("a/plain", 0o644);
        let find = |name: &str, search: &str| find_program(name.as_bytes(), Some(search.as_bytes()), root);
        assert_eq!(find("tool", "nowhere:a:b"), Ok(b"b/tool".to_vec()));
        assert_eq!(find("plain", "a:b"), Err(FindError::NotExecutable));
        assert_eq!(find("nothing", "a:b"), Err(FindError::NotFound));
        assert_eq!(find("", "a:b"), Err(FindError::NotFound));
        file("tool", 0o755);
        file("here", 0o755);
        assert_eq!((find("tool", "a:b"), find("here", "a:b")), (Ok(b"b/tool".to_vec()), Ok(b"./here".to_vec())));
        assert_eq!((find("plain", "a"), find("dir", "")), (Err(FindError::NotExecutable), Err(FindError::NotFound)));
        assert_eq!(find("./b/tool", ""), Ok(b"./b/tool".to_vec()));
        assert_eq!(find("b/none", ""), Err(FindError::NotFound));
        assert_eq!(find("a/dir", ""), Err(FindError::Directory));
        fs::write(root.join("b/tool"), "").unwrap();
        assert_eq!(find("b/tool", ""), Err(FindError::Empty));
        fs::write(root.join("b/tool"), "#!").unwrap();
        assert_eq!(find_program(b"tool", Some(b"x::y"), &root.join("b")), Ok(b"./tool".to_vec()));
        assert_eq!(find_program(b"sh", None, root), Ok(b"/bin/sh".to_vec()));
        assert!(check_directory(root).is_ok());
        assert_eq!(check_directory(&root.join("b/tool")).unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
        assert_eq!(check_directory(&root.join("c")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
}
