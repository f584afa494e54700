//! Shows a staged set to the ranks of a job: copies are mounted over the originals, in a mount namespace that only the
//! job's processes on this node have.
//!
//! A staged folder is covered by its copy. For a staged file that is not enough if it lies on a network file system:
//! the kernel would still ask the file server about each folder on the path to it. So these folders are covered too,
//! each by a *closed* folder, which lies in the node's memory and has the same entries:
//!
//! ```text
//!   staged: the folder /nfs/env and the file /nfs/a/app
//!
//!   /nfs          closed: `env` and `a`, and each other entry of the original, which is mounted here
//!   /nfs/env      the copy, read-only
//!   /nfs/a        closed: `app`, and each other entry of the original, which is mounted here
//!   /nfs/a/app    the copy, read-only
//! ```
//!
//! A closed folder has all names that there are: the node itself answers the look-up of any other name, and nobody can
//! make a file in it. Folders of a network file system are closed, and so are folders that lack a staged name on this
//! node. All others are *open*: the original folder, in which only staged entries are covered, and about which the
//! kernel still asks its file system. A folder also stays open if ranks are expected to make files in it ([`Keep`]), or
//! if it has more than [`OTHERS_MAX`] other entries.
//!
//! Before a node closes a folder, it must ask the file server for the other entries. The launcher saves it this
//! question for *bare* folders, which have no other entries: it tells the nodes which folders these are, and a node
//! does not ask about those that are the same folder of the same server there ([`Bare`]).

mod bare;
mod names;
#[cfg(test)]
mod tests;

pub use crate::mounts::{MountError, own_mounts};
pub use bare::{Bare, BareFolder};
pub use names::{Way, ways};

use crate::file_system::FileSystem;
use crate::mounts::{Files, Result, at};
use crate::set::{Entry, EntryKind, Set};
use crate::store::placeholders::{Placeholder, Placeholders, check_owners};
use bare::Node;
use rustix::fs::{CWD, StatVfsMountFlags, fstatvfs};
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, mount_remount, move_mount, open_tree};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Other files and folders that stay visible in a closed folder: each is a mount (chosen: a folder of programs).
const OTHERS_MAX: usize = 200;

/// The folders that a view has changed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct View {
    /// Folders in which only the staged files and the files that were there before exist.
    pub closed: BTreeSet<PathBuf>,
    /// Original folders, in which only the staged files are replaced.
    pub open: BTreeSet<PathBuf>,
}

/// Folders in which ranks are expected to make files: where they work, their home.
pub type Keep = BTreeSet<PathBuf>;

/// Puts a copy of the root of this process's own mounts ([`own_mounts`]) over the root, which changes nothing that can
/// be seen.
///
/// # Errors
/// Linux before 5.2, or the filter of a container that is older than the calls.
pub fn move_a_mount() -> Result<()> {
    let root = Path::new("/");
    put(root, &original(root)?)
}

/// Looks at where a set is to be shown, without a change. This process has mounts of its own ([`own_mounts`]).
///
/// # Errors
/// There is no place for a file that is to be shown.
pub fn plan<'a>(set: &'a Set, keep: &Keep, bare: &Bare) -> Result<Planned<'a>> {
    plan_where(set, &Closing { keep, bare, is_remote })
}

pub(super) fn is_remote(folder: &Path) -> bool {
    FileSystem::of(folder).is_some_and(|kind| kind.is_network)
}

fn plan_where<'a>(set: &'a Set, closing: &Closing) -> Result<Planned<'a>> {
    let root = Node::of(set);
    let mut view = View::default();
    let plan = Plan::of(Path::new("/"), &root, false, closing, &mut view)?;
    let mut originals = Vec::new();
    for path in set.originals() {
        match original(path) {
            Ok(original) => originals.push((path.to_owned(), original)),
            // The path does not exist on this node.
            Err(error) if error.error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Planned { plan, originals, view })
}

/// The files to be shown and the places of each. Files that are to stay visible have been noted before anything is
/// covered.
pub struct Planned<'a> {
    plan: Plan<'a>,
    /// Files in staged folders that are not staged.
    originals: Vec<(PathBuf, OwnedFd)>,
    view: View,
}

impl Planned<'_> {
    /// Makes a placeholder for each path that is missing on this node. The placeholders are released when
    /// `placeholders` is dropped, after the last process that uses the view has ended.
    ///
    /// # Errors
    /// The user may not write to a folder, or another user could remove the place where a staged file is shown.
    pub fn make_places(&self, placeholders: &mut Placeholders) -> Result<()> {
        self.plan.make_places(Path::new("/"), false, &mut |path, what| {
            at(path, "make a place for staged files", placeholders.hold(path, &what))
        })
    }

    /// # Errors
    /// The kernel refuses: a part may be shown.
    pub fn show(self, files: &Files) -> Result<View> {
        self.plan.build(Path::new("/"), false, files.tree())?;
        self.originals.iter().try_for_each(|(path, original)| put(path, original))?;
        Ok(self.view)
    }
}

struct Closing<'a> {
    keep: &'a Keep,
    bare: &'a Bare,
    is_remote: fn(&Path) -> bool,
}

impl Closing<'_> {
    fn may_close(&self, folder: &Path) -> bool {
        folder != Path::new("/") && !self.keep.contains(folder)
    }

    fn keeps_below(&self, folder: &Path) -> bool {
        // Paths are in the order of their components.
        self.keep.range(folder.to_owned()..).next().is_some_and(|kept| kept.starts_with(folder))
    }

    /// The permission bits of a bare folder, which is closed without reading it.
    fn bare(&self, folder: &Path) -> Option<u32> {
        self.bare.mode(folder).filter(|_| self.may_close(folder))
    }

    fn closes(&self, folder: &Path, node: &Node) -> bool {
        let is_missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        let lacks = || node.children.keys().any(|name| fs::symlink_metadata(folder.join(name)).is_err_and(is_missing));
        let must_make = || {
            let missing = |child: &Path| fs::symlink_metadata(child).is_err_and(is_missing);
            node.children.keys().map(|name| folder.join(name)).any(|child| self.keeps_below(&child) && missing(&child))
        };
        self.may_close(folder) && ((self.is_remote)(folder) || lacks()) && !must_make()
    }
}

enum Plan<'a> {
    Staged(Entry<'a>),
    /// A folder of node memory, in which only staged files and `Other` entries exist.
    Closed {
        bits: Permissions,
        others: Vec<(PathBuf, Other)>,
        children: BTreeMap<OsString, Plan<'a>>,
    },
    /// The original folder, in which only staged files are replaced.
    Open {
        /// The original folder, if its parent is closed: the original folder is then mounted in the parent.
        original: Option<OwnedFd>,
        children: BTreeMap<OsString, Plan<'a>>,
    },
}

/// An unstaged file or folder that stays visible in a closed folder.
enum Other {
    Link(PathBuf),
    Mount { is_folder: bool, original: OwnedFd },
}

impl<'a> Plan<'a> {
    fn of(path: &Path, node: &Node<'a>, within: bool, closing: &Closing<'_>, view: &mut View) -> Result<Plan<'a>> {
        if let Some(entry) = node.staged {
            return Ok(Plan::Staged(entry));
        }
        let bare = closing.bare(path);
        let is_there = bare.is_some() || path.is_dir();
        if !is_there && fs::symlink_metadata(path).is_ok() {
            let other = io::Error::from(io::ErrorKind::NotADirectory);
            return at(path, "a folder for staged files: there is something else", Err(other));
        }
        let others = match is_there {
            true if bare.is_some() => Some(Vec::new()),
            true if closing.closes(path, node) => others(path, node)?,
            true => None,
            // A missing folder in or below which ranks may create files becomes a real folder, not node memory.
            false => (within || !closing.keeps_below(path)).then(Vec::new),
        };
        let is_closed = others.is_some();
        let children = node
            .children
            .iter()
            .map(|(name, child)| Ok((name.clone(), Plan::of(&path.join(name), child, is_closed, closing, view)?)));
        let children = children.collect::<Result<BTreeMap<_, _>>>()?;
        if let Some(others) = others {
            view.closed.insert(path.to_owned());
            // The permission bits of the original stay, so that nobody sees more than before.
            let bits = match bare {
                Some(mode) => Permissions::from_mode(mode),
                None => fs::metadata(path).map_or(Permissions::from_mode(0o755), |meta| meta.permissions()),
            };
            return Ok(Plan::Closed { bits, others, children });
        }
        for (name, child) in &node.children {
            if let Some(entry) = child.staged {
                has_place(&path.join(name), &entry)?;
            }
        }
        if node.children.values().any(|child| child.staged.is_some()) {
            view.open.insert(path.to_owned());
        }
        let original = (within && is_there).then(|| original(path)).transpose()?;
        Ok(Plan::Open { original, children })
    }

    /// Calls `make` for each folder outside of node memory on the way, and for each place there on which something is
    /// to be shown.
    fn make_places(
        &self,
        path: &Path,
        within: bool,
        make: &mut impl FnMut(&Path, Placeholder) -> Result<()>,
    ) -> Result<()> {
        let (children, are_within) = match self {
            Plan::Staged(_) if within => return Ok(()),
            Plan::Staged(entry) => {
                at(path, "show a staged file", check_owners(path))?;
                return make(path, Placeholder::of(entry));
            }
            Plan::Closed { children, .. } => (children, true),
            Plan::Open { children, .. } => (children, false),
        };
        if !within {
            if are_within {
                at(path, "show staged files", check_owners(path))?;
            }
            make(path, Placeholder::Folder)?;
        }
        children.iter().try_for_each(|(name, child)| child.make_places(&path.join(name), are_within, make))
    }

    /// `within`: whether the parent folder is in node memory, so that the place must be made there.
    fn build(self, path: &Path, within: bool, tree: BorrowedFd<'_>) -> Result<()> {
        let children = match self {
            Plan::Staged(entry) => return show(&entry, path, within, tree),
            Plan::Open { original, children } => {
                if let Some(original) = original {
                    at(path, "make a place", fs::create_dir(path))?;
                    put(path, &original)?;
                }
                children
            }
            Plan::Closed { bits, others, children } => {
                let flags = MountFlags::NODEV | MountFlags::NOSUID;
                match within {
                    true => at(path, "make a place", fs::create_dir(path))?,
                    false => at(path, "cover it", mount("tmpfs", path, "tmpfs", flags, c"size=16m,mode=755"))?,
                }
                for (name, child) in children {
                    child.build(&path.join(name), true, tree)?;
                }
                for (path, other) in others {
                    match other {
                        Other::Link(target) => at(&path, "make the link", symlink(target, &path))?,
                        Other::Mount { is_folder, original } => {
                            let made =
                                if is_folder { fs::create_dir(&path) } else { File::create_new(&path).map(drop) };
                            at(&path, "make a place", made)?;
                            put(&path, &original)?;
                        }
                    }
                }
                at(path, "set its bits", fs::set_permissions(path, bits))?;
                return match within {
                    true => Ok(()),
                    false => {
                        let flags = flags | MountFlags::BIND | MountFlags::RDONLY;
                        at(path, "make it read-only", mount_remount(path, flags, ""))
                    }
                };
            }
        };
        for (name, child) in children {
            child.build(&path.join(name), false, tree)?;
        }
        Ok(())
    }
}

/// Whether the staged file can be mounted at this path: the path is missing (a placeholder is made later) or of the
/// same type.
fn has_place(path: &Path, entry: &Entry) -> Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => at(path, "look at the place for a staged file", found)?,
    };
    let fits = match entry.kind {
        EntryKind::Folder => found.is_dir(),
        EntryKind::File { .. } | EntryKind::Original => found.is_file(),
        EntryKind::Link(_) => true,
    };
    let other = || Err(io::Error::from(io::ErrorKind::AlreadyExists));
    if fits { Ok(()) } else { at(path, "a place for a staged file: there is something else", other()) }
}

/// The unstaged entries of a folder; `None`: there are too many, or the user may not read it.
fn others(folder: &Path, node: &Node) -> Result<Option<Vec<(PathBuf, Other)>>> {
    let inside = match node.others(folder, OTHERS_MAX) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        inside => at(folder, "look into it", inside)?,
    };
    let Some(inside) = inside else { return Ok(None) };
    let mut found = Vec::new();
    for inside in inside {
        match other(&inside) {
            Ok(other) => found.push((inside.path(), other)),
            // The entry has just been removed.
            Err(error) if [Some(ENOENT), Some(ESTALE)].contains(&error.error.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(found))
}

fn other(inside: &fs::DirEntry) -> Result<Other> {
    let path = inside.path();
    let kind = at(&path, "look at it", inside.file_type())?;
    Ok(match kind.is_symlink() {
        true => Other::Link(at(&path, "read the link", fs::read_link(&path))?),
        false => Other::Mount { is_folder: kind.is_dir(), original: original(&path)? },
    })
}

const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
const ESTALE: i32 = rustix::io::Errno::STALE.raw_os_error();

fn original(path: &Path) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    at(path, "keep the original", open_tree(CWD, path, flags))
}

fn put(path: &Path, original: &OwnedFd) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    at(path, "show the original", move_mount(original, "", CWD, path, flags))
}

/// Shows one staged file, folder or symbolic link. In an open folder, the node's own symbolic link is left as it is.
fn show(entry: &Entry, path: &Path, within: bool, tree: BorrowedFd<'_>) -> Result<()> {
    let made = match &entry.kind {
        EntryKind::Link(target) if within => {
            return at(path, "make the link", symlink(Path::new(OsStr::from_bytes(target)), path));
        }
        EntryKind::Link(_) => return Ok(()),
        _ if !within => Ok(()),
        EntryKind::Folder => fs::create_dir(path),
        EntryKind::File { .. } | EntryKind::Original => File::create_new(path).map(drop),
    };
    at(path, "make a place", made)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let staged = open_tree(tree, path.strip_prefix("/").unwrap_or(path), flags);
    let staged = at(path, "find the staged copy", staged)?;
    put(path, &staged)?;
    // Flags of the store's file system that a user namespace may not take away.
    let known = at(path, "look at the staged copy", fstatvfs(&staged))?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let flags = kept.iter().filter(|(has, _)| known.contains(*has)).map(|(_, flag)| *flag);
    let flags = flags.fold(MountFlags::BIND | MountFlags::RDONLY, |all, flag| all | flag);
    at(path, "make it read-only", mount_remount(path, flags, ""))
}
