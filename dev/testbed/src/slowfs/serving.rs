//! The process that serves a slow file system. It mounts by plain system calls: `fusermount` is not needed.
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;

use fuser::{Config, Session, SessionACL};
use rustix::mount::{MountFlags, UnmountFlags};

use super::Spec;
use super::meter::Meter;
use super::server::Server;
use super::source::Source;
use crate::sys;
use crate::testbed::StartError;

/// Timer slack of the server (ns): with the default slack, sleeps are 50 us longer than requested.
const TIMER_SLACK_NS: u64 = 1000;
const DEVICE: &str = "/dev/fuse";

/// A mounted file system that threads of this process serve, one for each view. It is unmounted when this value is
/// dropped.
pub struct Serving {
    points: Vec<PathBuf>,
}

impl Serving {
    /// Mounts the file system that `spec` describes; `spec.log` must be given.
    pub fn start(spec: &Spec) -> Result<Serving, StartError> {
        let views = || std::iter::once(&spec.mount).chain(&spec.views);
        for view in views() {
            clear(view).map_err(failed(view))?;
        }
        let folder = spec.source.canonicalize().map_err(failed(&spec.source))?;
        let log = spec.log.as_deref().unwrap_or(Path::new(""));
        let meter = File::options().create(true).append(true).open(log);
        let meter = Meter::new(meter.map_err(failed(log))?, spec.delay, spec.bandwidth_mb);
        // The folder is opened now, since the mount may cover it.
        let source = Source::open(&folder).map_err(failed(&folder))?;
        let server = Server::new(source, meter, spec.timeout, spec.cold).map_err(failed(&folder))?;
        // From here on, dropping `serving` unmounts the file system.
        let mut serving = Serving { points: Vec::new() };
        for view in views() {
            let point = view.canonicalize().map_err(failed(view))?;
            if point != folder && point.starts_with(&folder) {
                // Otherwise the server would access its own mount and wait for itself.
                let text = format!("the mount point {} is inside of the source, {}", point.display(), folder.display());
                return Err(StartError::Failed(text));
            }
            let device = attach(&point, &folder)?;
            serving.points.push(point);
            let session = Session::from_fd(server.clone(), device, SessionACL::All, Config::default());
            let session = session.map_err(failed(view))?;
            thread::spawn(move || {
                // The thread of the session inherits the timer slack.
                let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
                if let Err(error) = session.run() {
                    eprintln!("wireup-testbed: the slow file system has ended: {error}");
                }
            });
        }
        Ok(serving)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        for point in &self.points {
            if let Err(error) = detach(point) {
                eprintln!("wireup-testbed: unmounting {}: {error}", point.display());
            }
        }
    }
}

/// Serves until standard input ends. Writes to standard output when it is ready, or why it is not.
pub fn serve(spec: &Spec) -> i32 {
    // Interrupts from the terminal are meant for the owner of this process, whose end is noticed as the end of standard
    // input.
    sys::ignore_interrupts(true);
    let _serving = match Serving::start(spec) {
        Ok(serving) => serving,
        Err(error) => {
            let (kind, reason) = match error {
                StartError::Unavailable(reason) => ("unavailable", reason),
                StartError::Failed(reason) => ("failed", reason),
            };
            say(&format!("{kind} {reason}"));
            return 1;
        }
    };
    say("ready");
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    0
}

fn say(line: &str) {
    // Errors are ignored: if nobody reads the output, standard input has ended too.
    let _ = writeln!(io::stdout(), "{line}");
}

fn failed<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> StartError {
    move |error| StartError::Failed(format!("{}: {error}", path.display()))
}

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
fn attach(point: &Path, folder: &Path) -> Result<OwnedFd, StartError> {
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
fn detach(point: &Path) -> io::Result<()> {
    rustix::mount::unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(Into::into)
}
