//! The handle of a slow file system: starts its server, reads its log, and ends the server.
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::MemfdFlags;

use super::meter::Line;
use super::{Spec, serving, source};
use crate::served::{Served, or_skip};
use crate::testbed::StartError;

pub struct SlowFs {
    served: Served,
    log: File,
    #[expect(dead_code, reason = "dropped after the server")]
    mounts: Vec<Mount>,
}

impl SlowFs {
    /// Mounts a slow file system, served by a process of its own, and waits until it can be used.
    pub fn mount(spec: &Spec) -> Result<SlowFs, StartError> {
        let failed = |error: io::Error| StartError::Failed(format!("slow file system: {error}"));
        let log = match &spec.log {
            Some(path) => File::options().create(true).read(true).append(true).open(path).map_err(failed)?,
            None => rustix::fs::memfd_create("slowfs-log", MemfdFlags::CLOEXEC)
                .map_err(|error| failed(error.into()))?
                .into(),
        };
        let mut passed = spec.clone();
        // The server opens the same log by this path, since a log in memory has no other name.
        passed.log = Some(format!("/proc/{}/fd/{}", std::process::id(), log.as_raw_fd()).into());
        let mut command = Command::new(&spec.program);
        command.arg("slowfs-serve").args(passed.arguments());
        let served = Served::spawn(&mut command, "slow file system")?;
        // From here on `slow` owns the server; dropping it unmounts the file system even if the start has failed.
        let mounts = std::iter::once(&spec.mount).chain(&spec.views).cloned().map(Mount).collect();
        let slow = SlowFs { served, log, mounts };
        let said = slow.served.line().map_err(failed)?;
        match said.split_once(' ').unwrap_or((&said, "")) {
            ("ready", _) => Ok(slow),
            ("unavailable", reason) => Err(StartError::Unavailable(reason.to_owned())),
            (_, reason) => Err(StartError::Failed(format!("slow file system: {reason}"))),
        }
    }

    /// Mounts a slow file system. If the machine does not allow it, prints a message and returns `None`.
    ///
    /// # Panics
    /// If the start fails for any other reason.
    pub fn mount_or_skip(spec: &Spec) -> Option<SlowFs> {
        or_skip(SlowFs::mount(spec), "slow file system")
    }

    /// The operations since the start or since [`SlowFs::clear`]. An operation is in the log before it is answered. The
    /// kernel closes files and reads ahead at times of its own, so that a `release`, a `releasedir` or a `read` may be
    /// logged later than the call that caused it.
    ///
    /// # Panics
    /// If the log cannot be read.
    pub fn log(&self) -> Vec<Line> {
        Line::parse_all(&self.read_log().unwrap_or_else(|error| panic!("the log of the slow file system: {error}")))
    }

    /// Empties the log.
    ///
    /// # Panics
    /// If the log cannot be emptied.
    pub fn clear(&self) {
        self.log.set_len(0).unwrap_or_else(|error| panic!("the log of the slow file system: {error}"));
    }

    /// Pid of the process that serves the file system.
    pub fn pid(&self) -> u32 {
        self.served.child().id()
    }

    fn read_log(&self) -> io::Result<Vec<u8>> {
        source::read(&self.log, 0, self.log.metadata()?.len() as u32)
    }
}

/// Unmounts on drop, if a killed server could not do so. Declared after the server: fields are dropped in order.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = serving::clear(&self.0);
    }
}
