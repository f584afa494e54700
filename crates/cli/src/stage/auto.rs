//! `--stage=auto`: whether it takes less time to stage what the ranks read than to let them read it from the file
//! server.
//!
//! A busy server answers one request after the other. The numbers of requests and all other figures here were measured
//! (`lab/data/staging.md`):
//!
//! ```text
//!   not staged   ranks x (1.1 x files + 0.06 x files in folders) x 0.2 ms
//!   staged       0.3 s + 8 x (files + files in folders) x 0.2 ms + bytes of all that travels / 40 MB/s
//! ```
//!
//! Only files on network file systems count; of a folder, such as a Python environment, a rank opens only a part. It is
//! not known yet which files the nodes already have, so all are assumed to be staged for the first time.

use super::bytes;
use crate::program::needs::need::{Need, NeedKind};
use std::fs;
use std::path::Path;
use wireup_stage::file_system::FileSystem;

/// Requests to the file server: per rank and single file, per rank and file in a folder, and per file to stage it.
const OF_A_FILE: f64 = 1.1;
const OF_A_FOLDER: f64 = 0.06;
const TO_STAGE: f64 = 8.0;
/// Time per request at a busy server (s); time to start a session and a staging job by ssh (s, chosen); staging
/// bandwidth (bytes/s).
const REQUEST_S: f64 = 0.000_2;
const BEGIN_S: f64 = 0.3;
const BYTES_PER_S: f64 = 40e6;

/// Whether to stage, and why.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    pub stages: bool,
    pub why: String,
    /// Times (s) in which a busy file server gives all ranks their files, and in which these files are staged.
    pub read_s: f64,
    pub stage_s: f64,
}

/// The files that the ranks read.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Load {
    /// Number of files on network file systems.
    files: u64,
    in_folders: u64,
    file_systems: Vec<String>,
    /// Bytes of all files that would travel.
    bytes: u64,
}

impl Choice {
    pub fn of(needs: &[Need], ranks: u32) -> Choice {
        Choice::for_load(&Load::of(needs, &|path| FileSystem::of(path)), ranks)
    }

    fn for_load(load: &Load, ranks: u32) -> Choice {
        let all = load.files + load.in_folders;
        if all == 0 {
            let why = "nothing that the ranks need lies on a network file system".into();
            return Choice { stages: false, why, read_s: 0.0, stage_s: 0.0 };
        }
        let (files, in_folders) = (load.files as f64, load.in_folders as f64);
        let read_s = f64::from(ranks) * (OF_A_FILE * files + OF_A_FOLDER * in_folders) * REQUEST_S;
        let stage_s = BEGIN_S + TO_STAGE * (files + in_folders) * REQUEST_S + load.bytes as f64 / BYTES_PER_S;
        let stages = read_s > stage_s;
        let (order, file) = (if stages { "more" } else { "no more" }, if all == 1 { "file" } else { "files" });
        let why = format!(
            "{all} {file} on {}, {} in all: reading them by {ranks} ranks takes a busy server about {}, {order} than \
             staging them, about {}",
            load.file_systems.join(", "),
            bytes(load.bytes),
            seconds(read_s),
            seconds(stage_s)
        );
        Choice { stages, why, read_s, stage_s }
    }

    /// The line that tells the user about the choice.
    pub fn line(&self) -> String {
        let what = if self.stages { "staging" } else { "not staging" };
        format!("--stage=auto: {what}: {}", self.why)
    }
}

impl Load {
    fn of(needs: &[Need], kind_of: &dyn Fn(&Path) -> Option<FileSystem>) -> Load {
        let mut load = Load::default();
        for need in needs {
            let (mut count, mut len) = (0, 0);
            add(&need.path, &mut count, &mut len);
            load.bytes += len;
            let Some(kind) = kind_of(&need.path).filter(|kind| kind.is_network) else { continue };
            match need.kind {
                NeedKind::File => load.files += count,
                NeedKind::Folder => load.in_folders += count,
                NeedKind::Link => continue,
            }
            if !load.file_systems.contains(&kind.name) {
                load.file_systems.push(kind.name);
            }
        }
        load
    }
}

/// Counts the files at a path. What cannot be read is reported when it is staged.
fn add(path: &Path, count: &mut u64, len: &mut u64) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    if meta.is_dir() {
        for inside in fs::read_dir(path).into_iter().flatten().flatten() {
            add(&inside.path(), count, len);
        }
    } else if meta.is_file() {
        *count += 1;
        *len += meta.len();
    }
}

fn seconds(time: f64) -> String {
    if time < 10.0 { format!("{time:.1} s") } else { format!("{time:.0} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(files: u64, in_folders: u64, bytes: u64) -> Load {
        Load { files, in_folders, file_systems: vec!["NFS".into()], bytes }
    }

    #[test]
    fn the_choice_is_that_of_the_measurements() {
        let stages = |load: &Load, ranks| Choice::for_load(load, ranks).stages;
        // A C program with 20 libraries: 256 ranks took 2.6 s to read the original files, and 0.5 s with staging.
        let program = load(21, 0, 20 << 20);
        assert!(stages(&program, 256) && !stages(&program, 64));
        // Python with numpy: 64 ranks took 9.9 s unstaged, and 14.8 s when the files were staged for the first time.
        let python = load(20, 5_000, 200 << 20);
        assert!(stages(&python, 512) && !stages(&python, 64));
        assert!(!stages(&load(0, 0, 1 << 30), 1 << 20), "nothing is on the network");
        // Staging many bytes that few ranks read is not worth its time.
        assert!(!stages(&load(1, 0, 1 << 30), 1_000));
    }

    #[test]
    fn the_line_says_why() {
        let line = Choice::for_load(&load(21, 0, 20 << 20), 256).line();
        assert_eq!(
            line,
            "--stage=auto: staging: 21 files on NFS, 20 MiB in all: reading them by 256 ranks takes a busy server \
             about 1.2 s, more than staging them, about 0.9 s"
        );
        let none = Choice::for_load(&Load::default(), 256).line();
        assert_eq!(none, "--stage=auto: not staging: nothing that the ranks need lies on a network file system");
    }

    #[test]
    fn files_are_counted_by_file_system() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("net/env/lib")).expect("a folder");
        for name in ["net/program", "net/env/a", "net/env/lib/b", "local"] {
            fs::write(at(name), [0; 100]).expect("a file");
        }
        let need = |name: &str, kind| Need { path: at(name), kind, why: String::new() };
        let needs =
            [need("local", NeedKind::File), need("net/program", NeedKind::File), need("net/env", NeedKind::Folder)];
        let kind_of = |path: &Path| {
            let is_network = path.starts_with(at("net"));
            let name = if is_network { "NFS" } else { "ext4" }.into();
            Some(FileSystem { name, is_network, folders_have_times: true })
        };
        assert_eq!(Load::of(&needs, &kind_of), load(1, 2, 400));
    }
}
