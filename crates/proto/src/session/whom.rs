//! Some of a session's agents.

use wireup_coll::tree::Tree;
use wireup_wire::ids::AgentId;

/// Some agents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whom {
    /// This one and those that were drawn below it.
    Behind(AgentId),
    These(Vec<AgentId>),
}

impl Whom {
    pub fn has(&self, tree: Tree, agent: AgentId) -> bool {
        match self {
            Whom::Behind(top) => tree.subtree_contains(*top, agent),
            Whom::These(agents) => agents.contains(&agent),
        }
    }
}
