//! The helper process of the benchmark on each host. The remote shell starts it; it carries out orders, one per line of
//! its standard input:
//!
//! ```text
//!   relay SECRET ADDRESS..   starts a relay that passes its stream on to these addresses; answers with its port
//!   end                      removes what the relay has written
//!   agents                   PID:BYTES:PEAK of each agent: its memory, and the most since the last such question
//!   stored                   bytes in the store
//! ```
//!
//! The process owns a folder in the host's memory. When its input ends, which also happens when the benchmark or the
//! remote shell ends, it removes the folder. An answer that begins with `failed` says why an order failed.
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use procfs::process::{ClearRefs, Process, all_processes};
use walkdir::WalkDir;

use super::relay;

/// The first argument of a helper process; the name of its folder follows.
pub const WORD: &str = "stage-host";
/// The folder in which a helper process creates its own folder.
pub const MEMORY: &str = "/dev/shm";
/// The names of agents' processes; keepers and ranks have other names.
const AGENTS: [&str; 2] = ["wireup", "wireup-session"];

/// Runs a helper process; `args`: the arguments after `WORD`.
pub fn run(args: &[OsString]) -> io::Result<()> {
    let name = args.first().ok_or_else(|| io::Error::other("wireup bench stage starts it itself"))?;
    let mut host = Host::create(Path::new(MEMORY).join(name))?;
    println!("{}", machine());
    for line in io::stdin().lines() {
        println!("{}", host.obey(&line?).unwrap_or_else(|error| format!("failed {error}")));
    }
    Ok(())
}

/// The kernel's boot id, which is equal on all hosts that are namespaces of one machine.
pub fn machine() -> String {
    procfs::sys::kernel::random::boot_id().unwrap_or_default()
}

struct Host {
    /// The folder of this helper process, which is removed on drop.
    folder: PathBuf,
}

impl Host {
    fn create(folder: PathBuf) -> io::Result<Host> {
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => Ok(Host { folder }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(io::Error::other(format!("it has the same {MEMORY} as another host")))
            }
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display()))),
        }
    }

    fn obey(&mut self, order: &str) -> io::Result<String> {
        let words: Vec<&str> = order.split_whitespace().collect();
        match &words[..] {
            // The stream's file has no name, so that nothing of it is left when the relay ends.
            ["relay", secret, below @ ..] => {
                Ok(relay::start(secret, tempfile::tempfile_in(&self.folder)?, below)?.to_string())
            }
            ["agents"] => Ok(agents()),
            ["stored"] => Ok(bytes_below(&self.folder).to_string()),
            _ => Err(io::Error::other(format!("unknown order: {order}"))),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The folders of a store may be read-only; they are made writable first.
        if fs::remove_dir_all(&self.folder).is_err() {
            let private = || Permissions::from_mode(0o700);
            let folders = entries(&self.folder).filter(|(_, meta)| meta.is_dir());
            folders.for_each(|(folder, _)| drop(fs::set_permissions(folder, private())));
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = (PathBuf, Metadata)> {
    let all = WalkDir::new(folder).into_iter().flatten();
    all.filter_map(|entry| entry.metadata().ok().map(|meta| (entry.into_path(), meta)))
}

/// Number of bytes of the files below a folder; a file with several names counts once.
fn bytes_below(folder: &Path) -> u64 {
    entries(folder).filter(|(_, meta)| meta.is_file()).map(|(_, meta)| meta.len() / meta.nlink().max(1)).sum()
}

/// The agents that this process sees, with their memory and its peak. The agents of hosts that are namespaces of the
/// same machine are included. The peaks are reset.
pub fn agents() -> String {
    let told = all_processes().into_iter().flatten().flatten().filter(is_agent).filter_map(|process| {
        let [now, peak] = memory_and_peak(&process)?;
        process.clear_refs(ClearRefs::PeakRSS).ok()?;
        Some(format!("{}:{now}:{peak}", process.pid()))
    });
    told.collect::<Vec<_>>().join(" ")
}

fn is_agent(process: &Process) -> bool {
    process.exe().is_ok_and(|exe| exe.file_name().is_some_and(|name| name == "wireup"))
        && process.stat().is_ok_and(|stat| AGENTS.contains(&&*stat.comm))
}

fn memory_and_peak(process: &Process) -> Option<[u64; 2]> {
    let status = process.status().ok()?;
    Some([status.vmrss? << 10, status.vmhwm? << 10])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Scratch;

    #[test]
    fn a_folder_is_removed_with_read_only_folders_and_made_once_only() {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let path = scratch.file("memory");
        let mut host = Host::create(path.clone()).unwrap();
        assert!(Host::create(path.clone()).is_err_and(|why| why.to_string().contains("as another host")));
        fs::create_dir(path.join("inner")).unwrap();
        fs::write(path.join("inner/file"), "1234").unwrap();
        fs::hard_link(path.join("inner/file"), path.join("other")).unwrap();
        fs::set_permissions(path.join("inner"), Permissions::from_mode(0o500)).unwrap();
        assert_eq!(host.obey("stored").unwrap(), "4");
        assert!(host.obey("dance").is_err() && host.obey("agents").is_ok());
        drop(host);
        assert!(!path.exists());
        let own = Process::myself().unwrap();
        assert!(!is_agent(&own) && memory_and_peak(&own).is_some_and(|[now, peak]| 0 < now && now <= peak));
    }
}
