//! Shows staged files to the ranks: before the first rank starts, the keeper gets a mount namespace, in which the
//! copies are mounted over the originals. If the keeper may not mount, a library in the ranks shows the copies instead,
//! if the user asked for the library (`redirected`).

use super::protocol::Batch;
use super::redirected::{self, Redirected};
use crate::staged_store;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wireup_os::process::{self, Ended, Fork};
use wireup_stage::Store;
use wireup_stage::store::{InUse, Placeholders};
use wireup_stage::view::{self, Bare, BareFolder, Keep};
use wireup_wire::job::Staged;

/// Folders that remain usable when staged files are shown over them, because ranks are expected to create files there.
/// The job's working directories, `HOME` and `TMPDIR` are added to these.
const WORLD: [&str; 7] = ["/tmp", "/var/tmp", "/dev", "/dev/shm", "/run", "/var", "/home"];

/// The files that the processes of this keeper see.
pub enum View {
    /// The staged files are shown by mounts. While this value is held, the files and the placeholders that were made to
    /// show them are not removed.
    Staged(#[expect(dead_code, reason = "held until the end")] (InUse, Placeholders)),
    /// The staged files are shown by a library in the ranks. The text is the reason why mounts are impossible.
    Redirected(Redirected, String),
    /// The original files are used. The text is the reason why no staged files are shown.
    Originals(String),
    /// Perhaps only some of the staged files are shown, so no process may be started. The text is the reason why not
    /// all files are shown.
    Half(String),
}

/// Shows the staged files to this process and the processes that it starts. This process serves no other job
/// afterwards.
pub fn show(staged: &Staged, batch: &Batch) -> View {
    let folder = match staged_store::find(Path::new(OsStr::from_bytes(&staged.store))) {
        Ok(Some(folder)) => folder,
        Ok(None) => return View::Originals("this node has no folder of staged files".into()),
        Err(error) => return View::Originals(error.to_string()),
    };
    let kept = Store::open(&folder, u64::MAX).and_then(|store| store.use_set(&staged.set));
    let kept = match kept {
        Ok(Some(kept)) => kept,
        Ok(None) => return View::Originals(format!("they are not in {}", folder.display())),
        Err(error) => return View::Originals(error.to_string()),
    };
    let bare = bare(staged);
    // Ranks of nodes that share the machine must be able to read each other's memory.
    let alone = batch.processes.iter().all(|process| process.shares_session);
    if let Err(problem) = try_mounts(alone) {
        let why = if alone { "" } else { "; for virtual nodes that needs root" };
        let problem = format!("no mount namespace can be made here ({problem}){why}");
        if !staged.by_library {
            let switch = "--stage-library shows ranks the copies without mounts, by a library in each process";
            return View::Originals(format!("{problem}; {switch}"));
        }
        if let Err(neither) = redirected::suits(wireup_os::c_library::glibc().as_deref()) {
            return View::Originals(format!("{problem}, and {neither}"));
        }
        return match Redirected::new(kept, &keep(batch), &bare) {
            Ok(redirected) => View::Redirected(redirected, problem),
            Err(neither) => View::Originals(format!("{problem}, and {neither}")),
        };
    }
    if let Err(error) = kept.restore() {
        return View::Originals(error.to_string());
    }
    if let Err(error) = view::own_mounts(alone) {
        return View::Originals(error.to_string());
    }
    match view::plan(&kept.set, &keep(batch), &bare) {
        Err(error) => View::Originals(error.to_string()),
        Ok(planned) => {
            let mut placeholders = match staged_store::placeholders() {
                Ok(registry) => Placeholders::new(registry),
                Err(error) => return View::Originals(error.to_string()),
            };
            if let Err(error) = planned.make_places(&mut placeholders) {
                return View::Originals(error.to_string());
            }
            match kept.files().map(|files| planned.show(&files)) {
                Err(error) => View::Originals(error.to_string()),
                Ok(Err(error)) => View::Half(error.to_string()),
                Ok(Ok(_)) => View::Staged((kept, placeholders)),
            }
        }
    }
}

/// The directories in which the launcher has found nothing but staged files (`staged.bare`), if they are the same on
/// this node.
fn bare(staged: &Staged) -> Bare {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let folders = staged.bare.iter();
    Bare::here(folders.map(|bare| BareFolder { path: path(&bare.path), name: bare.name.clone(), mode: bare.mode }))
}

/// Exit code of the process that tries to mount, if the kernel does not permit the mount.
const NOT_PERMITTED: u8 = 1;
const CANNOT_MOVE: u8 = 2;

/// Tries to mount in another process: on some kernels, a process can enter a user namespace but not write its id maps,
/// and could not leave the namespace again.
fn try_mounts(alone: bool) -> Result<(), String> {
    match process::fork() {
        Ok(Fork::Child) => {
            let tried = view::own_mounts(alone).map_err(|_| NOT_PERMITTED);
            let tried = tried.and_then(|()| view::move_a_mount().map_err(|_| CANNOT_MOVE));
            process::leave(tried.map_or_else(i32::from, |()| 0))
        }
        Ok(Fork::Parent { child }) => match process::wait_for(child) {
            Ok(Ended::Exited(0)) => Ok(()),
            Ok(Ended::Exited(CANNOT_MOVE)) => Err("open_tree and move_mount fail: they need Linux 5.2".into()),
            Ok(_) => Err("it is not permitted".into()),
            Err(error) => Err(error.to_string()),
        },
        Err(error) => Err(error.to_string()),
    }
}

/// The folders in which the ranks can be expected to make files.
fn keep(batch: &Batch) -> Keep {
    let mut keep: Keep = WORLD.map(PathBuf::from).into();
    keep.insert(PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw())));
    for program in &batch.programs {
        keep.insert(PathBuf::from(OsStr::from_bytes(&program.cwd)));
        for name in ["HOME", "TMPDIR"] {
            let value =
                program.env.iter().rev().find_map(|variable| {
                    variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(OsStr::from_bytes)
                });
            keep.extend(value.map(PathBuf::from));
        }
    }
    let real: Vec<PathBuf> = keep.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
    keep.extend(real);
    keep
}
