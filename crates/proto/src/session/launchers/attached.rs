//! Launchers that are attached to the root, and the answers that each waits for.

use wireup_wire::ids::JobId;

/// An attached launcher.
pub struct Attached {
    pub job: JobId,
    pub has_launched: bool,
    pub asks: Asks,
    /// Whether the launcher waits until all nodes are up or known to be missing.
    pub waits_for_nodes: bool,
}

/// The unanswered requests of a launcher.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Asks {
    pub nodes: bool,
    pub jobs: bool,
    /// Whether the launcher has asked for all nodes to be started, which may already be up.
    pub revived: bool,
}
