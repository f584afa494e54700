//! Mounts that only this process and those that it starts see, and the mount of the image of a set.
//!
//! EROFS does not accept a file on a tmpfs as the first file of an image, so the image, which is small, is written into
//! a ramfs; packs may lie anywhere. The ramfs and the image are mounted over a folder in the mount namespace of this
//! process, until their contents have been mounted elsewhere.

use crate::image::{ContentLocation, image};
use crate::set::{Digest, Entry, EntryKind, Set};
use crate::stream::BLOCK;
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount, mount_change, move_mount, unmount,
};
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Error, Debug)]
#[error("{}: {what}: {error}", path.display())]
pub struct MountError {
    pub path: PathBuf,
    pub what: &'static str,
    pub error: io::Error,
}

pub(crate) type Result<T> = std::result::Result<T, MountError>;

pub(crate) fn at<T>(
    path: &Path,
    what: &'static str,
    result: std::result::Result<T, impl Into<io::Error>>,
) -> Result<T> {
    result.map_err(|error| MountError { path: path.to_owned(), what, error: error.into() })
}

/// Gives this process, which has one thread, mounts of its own. A process without the right to do so becomes, if
/// `alone`, the only user of a user namespace, in which the process has that right: programs that it then starts get no
/// more rights than the process had before, and set-user-ID programs do not work. Processes of different user
/// namespaces may not read each other's memory, which MPI libraries do on one machine.
///
/// # Errors
/// This process may make neither mounts nor a user namespace.
pub fn own_mounts(alone: bool) -> Result<()> {
    let root = Path::new("/");
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: the descriptor table is not unshared.
    let mounts = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
    if !alone {
        at(root, "a mount namespace", mounts)?;
    } else if mounts.is_err() {
        // SAFETY: the descriptor table is not unshared.
        let both = unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) };
        at(root, "a mount namespace", both)?;
        let write = |name: &str, text: String| at(Path::new(name), "a user namespace", fs::write(name, text));
        write("/proc/self/setgroups", "deny".into())?;
        write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    // Mounts that are made from here on do not appear in the parent namespace.
    at(root, "private mounts", mount_change(root, MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC))
}

/// Access to the tree of a set. If the set is an image, the image stays mounted as long as this value is held.
pub struct Files {
    tree: OwnedFd,
    /// The ramfs in which the image is mounted; `None`: the set is kept as plain files.
    mounted: Option<Memory>,
}

impl Files {
    pub(crate) fn of_tree(path: &Path) -> io::Result<Files> {
        Ok(Files { tree: folder(path)?, mounted: None })
    }

    /// Mounts an image over `folder`, in the mount namespace of this process.
    pub(crate) fn of_image(image: &[u8], packs: &[File], over: &Path) -> io::Result<Files> {
        let memory = Memory::over(over)?;
        let (file, inside) = (memory.path("image"), memory.path("files"));
        fs::write(&file, image)?;
        fs::create_dir(&inside)?;
        let config = fsopen("erofs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&config, "source", &file)?;
        for pack in packs {
            fsconfig_set_string(&config, "device", by_descriptor(pack))?;
        }
        fsconfig_create(&config)?;
        let attributes =
            MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mounted = fsmount(&config, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        move_mount(&mounted, "", CWD, &inside, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        Ok(Files { tree: folder(&inside)?, mounted: Some(memory) })
    }

    /// The folder that stands for `/`.
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }

    /// A path of the tree for messages, and for access within this mount namespace.
    pub fn path(&self) -> PathBuf {
        by_descriptor(&self.tree)
    }

    pub fn is_image(&self) -> bool {
        self.mounted.is_some()
    }
}

/// A ramfs over a folder.
struct Memory {
    root: OwnedFd,
}

impl Memory {
    fn over(path: &Path) -> io::Result<Memory> {
        mount("ramfs", path, "ramfs", MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC, c"mode=700")?;
        match folder(path) {
            Ok(root) => Ok(Memory { root }),
            Err(error) => {
                let _ = unmount(path, UnmountFlags::DETACH);
                Err(error)
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        by_descriptor(&self.root).join(name)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // The call also unmounts the image inside. If it fails, ramfs and image disappear with the mount namespace.
        let _ = unmount(by_descriptor(&self.root), UnmountFlags::DETACH);
    }
}

fn folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A path of an open file that stays valid if its original path is covered by a mount or has changed.
fn by_descriptor(file: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The user and the group of all files in an image: the user and the group of this process, as with files that this
/// process makes.
pub(crate) fn owner() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

/// Whether this process may mount images whose packs lie in `folder`, and the kernel can unpack: tried in a thread with
/// mounts of its own.
pub(crate) fn may_mount(over: &Path) -> bool {
    let tried = || -> io::Result<bool> {
        let content = b"a content ".repeat(1_000);
        let packed = lz4_flex::block::compress(&content);
        // Padded to a whole block, as packs are: the kernel reads no part of a block from a file on a tmpfs.
        let mut bytes = vec![0; BLOCK as usize - packed.len()];
        bytes.extend(packed);
        let mut pack = tempfile::tempfile_in(over)?;
        io::Write::write_all(&mut pack, &bytes)?;
        let kind = EntryKind::File { len: content.len() as u64, digest: Digest::default() };
        let entry = Entry { path: b"/a", mode: 0o400, modified: (0, 0), kind };
        let place = ContentLocation { pack: 0, block: 0, clusters: vec![1] };
        let set = Set::from_entries([entry]).map_err(io::Error::other)?;
        let image = image(&set, |_| Some(&place), &[BLOCK], owner()).unwrap_or_default();
        own_mounts(false).map_err(|error| error.error)?;
        let files = Files::of_image(&image, &[pack], over)?;
        Ok(fs::read(files.path().join("a"))? == content)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, tried);
        thread.is_ok_and(|thread| thread.join().is_ok_and(|tried| tried.unwrap_or(false)))
    })
}
