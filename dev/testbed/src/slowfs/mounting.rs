//! Mounts and unmounts a slow file system, by plain system calls: `fusermount` is not needed.
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::testbed::StartError;

const DEVICE: &str = "/dev/fuse";

/// Unmounts what killed servers have left mounted at `point`.
pub fn clear(point: &Path) -> io::Result<()> {
    while is_dead(point) {
        detach(point)?;
    }
    Ok(())
}

/// Whether the mount's server is dead: makes a request that the kernel never answers from its cache, which fails if so.
fn is_dead(point: &Path) -> bool {
    rustix::fs::statfs(point).is_err_and(|error| error == rustix::io::Errno::NOTCONN)
}

/// Mounts at `point` a file system that the caller serves on the returned descriptor; the file system ends when the
/// descriptor is closed. The mount's source is `folder`, as that of a network file system is server and export.
pub fn attach(point: &Path, folder: &Path) -> Result<OwnedFd, StartError> {
    let device = File::options().read(true).write(true).open(DEVICE);
    let device = device.map_err(|error| unavailable(&format!("{DEVICE}: {error}")))?;
    let options =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", device.as_raw_fd());
    let options = CString::new(options).map_err(|error| StartError::Failed(error.to_string()))?;
    let source = format!("slowfs:{}", folder.display());
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
    match rustix::mount::mount(source, point, "fuse.slowfs", flags, &*options) {
        Ok(()) => Ok(device.into()),
        Err(error) => {
            let text = format!("mounting a FUSE file system at {}: {error}", point.display());
            let refused = matches!(error, rustix::io::Errno::PERM | rustix::io::Errno::NODEV);
            Err(if refused { unavailable(&text) } else { StartError::Failed(text) })
        }
    }
}

fn unavailable(reason: &str) -> StartError {
    StartError::Unavailable(format!("a slow file system needs root and FUSE: {reason}"))
}

/// Unmounts the file system at `point`, even if programs still use it.
pub fn detach(point: &Path) -> io::Result<()> {
    rustix::mount::unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(Into::into)
}
