//! A launcher that is attached to the root, and what it waits for.

use wireup_wire::ids::JobId;

/// A launcher.
pub struct Attached {
    pub job: JobId,
    pub has_launched: bool,
    pub asks: Asks,
    /// It waits until all nodes are up or known to be missing.
    pub waits_for_nodes: bool,
}

/// What a launcher has asked and is not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Asks {
    pub nodes: bool,
    pub jobs: bool,
    /// It wants all nodes: perhaps they are there.
    pub revived: bool,
}
