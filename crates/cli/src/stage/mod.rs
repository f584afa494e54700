//! `--stage` and `wireup stage`: files travel to the nodes before ranks start.
//!
//! ```text
//!   plan        which files, found without running anything
//!   auto        whether that is worth its time
//!   travel      a job of its own, with one rank on each node: the stream is its standard input, answers are its output
//!   gather      the other way: files of the nodes, when the job is over
//!   node        what those ranks do
//!   command     wireup stage: sets that stay in a session
//! ```

mod auto;
pub mod command;
mod gather;
pub mod node;
mod plan;
mod travel;

pub use gather::Gather;
pub use plan::{Needed, Plan, listing};
pub use travel::{Nodes, Outcome, send};

use crate::flags::parsed::Stage;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wireup_stage::Set;
use wireup_stage::digests::Digests;
use wireup_stage::view::Bare;
use wireup_wire::job::{BareFolder, Staged};

impl Stage {
    /// Where nodes keep staged files; empty: each finds a folder of its own.
    fn store(&self) -> Vec<u8> {
        self.folder.as_ref().map(|folder| folder.as_os_str().as_bytes().to_vec()).unwrap_or_default()
    }

    /// The description of a set that is sent with the job.
    pub fn staged(&self, set: &Set) -> Staged {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let bare = Bare::of(set).into_iter();
        Staged {
            set: set.digest(),
            store: self.store(),
            required: self.required,
            by_library: self.by_library,
            bare: bare.map(|bare| BareFolder { path: bytes(&bare.path), name: bare.name, mode: bare.mode }).collect(),
        }
    }
}

/// The file in the user's cache that keeps what a run has learned about files for later runs.
pub fn cache_file(name: &str) -> Option<PathBuf> {
    Some(wireup_node::user_folder("XDG_CACHE_HOME", ".cache")?.join("wireup").join(name))
}

/// The digests of staged files and folders from earlier runs.
pub fn digests() -> Digests {
    cache_file("staged").map(Digests::in_folder).unwrap_or_default()
}

/// A number of bytes for a person.
pub fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} bytes"),
        10_000..10_240_000 => format!("{} KiB", count >> 10),
        10_240_000..10_485_760_000 => format!("{} MiB", count >> 20),
        _ => format!("{} GiB", count >> 30),
    }
}
