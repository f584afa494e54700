//! A launcher that is attached to the root, and the answers that it waits for.

use wireup_wire::ids::JobId;

/// An attached launcher.
pub struct Attached {
    pub job: JobId,
    pub has_launched: bool,
    pub asks: Asks,
    /// It waits until all nodes are up or known to be missing.
    pub waits_for_nodes: bool,
}

/// The unanswered requests of a launcher.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Asks {
    pub nodes: bool,
    pub jobs: bool,
    /// It has requested all nodes, which may already be up.
    pub revived: bool,
}
