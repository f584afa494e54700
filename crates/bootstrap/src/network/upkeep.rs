//! What the upkeep of connections has to remember: how many may be open, and whom this process waits for.

use alloc::collections::BTreeSet;
use wireup_capi::net;

/// A rank that is waited for is connected to after so long (ms). Chosen: a message that arrives meanwhile brings a
/// connection with it, and nobody waits much longer for the news that a rank is gone.
pub const WATCH_MS: u64 = 1_000;

pub struct Upkeep {
    /// Connections that may be open.
    pub open_max: Option<usize>,
    /// When to look next whom this process waits for; whom it has waited for at the last look.
    pub due: u64,
    pub awaited: BTreeSet<u32>,
}

impl Upkeep {
    pub fn new() -> Upkeep {
        Upkeep { open_max: None, due: net::now_ms() + WATCH_MS, awaited: BTreeSet::new() }
    }

    pub fn due(&self) -> u64 {
        self.due
    }
}
