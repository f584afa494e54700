//! How long and how often an agent without a parent tries to reach the root; how long the root waits for it.

use crate::io::LinkId;
use crate::session::View;
use crate::time::Instant;

/// An agent that has not heard from the root for this long stops dialling it (ns). Chosen: enough for several attempts.
pub const REJOIN_NS_MAX: u64 = 5_000_000_000;
/// An attempt may take as long again, and only then do the agents below notice that they too have lost their parent (ns).
const SEARCH_NS_MAX: u64 = 2 * REJOIN_NS_MAX;
/// The first pause between two attempts, and the longest (ns); each is twice the previous one. Chosen: the root learns of most losses
/// within the first.
const PAUSE_NS: u64 = 100_000_000;
const PAUSE_NS_MAX: u64 = 1_600_000_000;

/// How long the root waits for an agent without a parent (ns): the agent may notice late that its parent is gone, after the parent has
/// tried in vain to reach the root, and then needs several attempts itself.
pub fn lease_ns(view: &View<'_>) -> u64 {
    view.session.node_timeout_ns.saturating_add(SEARCH_NS_MAX + REJOIN_NS_MAX)
}

#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Seeking {
    /// When the agent last heard from the root, or lost its parent.
    pub heard: Instant,
    pub again_at: Option<Instant>,
    pause_ns: u64,
    /// The link to the root, which has not yet confirmed the adoption.
    pub link: Option<LinkId>,
}

impl Seeking {
    /// The parent is lost.
    pub fn new(now: Instant) -> Seeking {
        Seeking { heard: now, again_at: None, pause_ns: PAUSE_NS, link: None }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.again_at
    }

    /// The root is linked. If it sends nothing it is dialled again.
    pub fn on_reached(&mut self, now: Instant, link: LinkId) {
        self.heard = now;
        self.link = Some(link);
        self.again_at = Some(now + REJOIN_NS_MAX);
    }

    pub fn pause(&mut self, now: Instant) {
        self.again_at = Some(now + self.pause_ns);
        self.pause_ns = PAUSE_NS_MAX.min(2 * self.pause_ns);
    }
}
