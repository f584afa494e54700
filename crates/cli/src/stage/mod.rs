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

use std::path::PathBuf;
use wireup_stage::digests::Digests;

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
