//! The current tree, determined by a prefix of the root's log (`Entry`). Two agents with the same prefix know the same
//! tree.
//!
//! ```text
//!   original tree ── Lost ──► the root adopts its children ── Return ──► a new incarnation, below its original
//!                                                                        parent if that returns too, else below
//!                                                                        the root
//! ```
//!
//! Only agents that differ from the original tree are stored. A parent is always an ancestor of its child in the
//! original tree, so following parents always ends at the root.

use std::collections::BTreeMap;
use wireup_coll::tree::{Hop, Tree};
use wireup_wire::ids::AgentId;
use wireup_wire::session::{Entry, SessionSnapshot, TreePosition};

const ROOT: AgentId = AgentId(0);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Roster {
    tree: Tree,
    /// Number of log entries applied.
    at: u32,
    /// Position and incarnation of each agent that differs from the original tree.
    places: BTreeMap<AgentId, TreePosition>,
}

impl Roster {
    /// The tree of a new agent, from the state that it was given.
    pub fn new(tree: Tree, snapshot: &SessionSnapshot) -> Roster {
        Roster { tree, at: snapshot.at, places: snapshot.places.iter().copied().collect() }
    }

    /// Number of log entries that this agent knows.
    pub fn at(&self) -> u32 {
        self.at
    }

    pub fn places(&self) -> Vec<(AgentId, TreePosition)> {
        self.places.iter().map(|(agent, place)| (*agent, *place)).collect()
    }

    fn place(&self, agent: AgentId) -> TreePosition {
        let drawn = || TreePosition {
            incarnation: 0,
            parent: self.tree.parent(agent).unwrap_or(ROOT),
            is_adopted: false,
            is_lost: false,
        };
        self.places.get(&agent).copied().unwrap_or_else(drawn)
    }

    /// The incarnation of an agent.
    pub fn incarnation(&self, agent: AgentId) -> u32 {
        self.place(agent).incarnation
    }

    pub fn is_lost(&self, agent: AgentId) -> bool {
        self.places.get(&agent).is_some_and(|place| place.is_lost)
    }

    /// The parent of an agent; `None` for the root.
    pub fn parent(&self, agent: AgentId) -> Option<AgentId> {
        (agent != ROOT).then(|| self.place(agent).parent)
    }

    /// Whether an agent's parent is not the one under which it was started.
    pub fn is_adopted(&self, agent: AgentId) -> bool {
        self.place(agent).is_adopted
    }

    /// The children of an agent, except for lost ones.
    pub fn children(&self, of: AgentId) -> Vec<AgentId> {
        let drawn = self.tree.children(of).map(AgentId).filter(|child| !self.places.contains_key(child));
        let placed = self.places.iter().filter(|(_, place)| place.parent == of && !place.is_lost);
        drawn.chain(placed.map(|(agent, _)| *agent)).filter(|child| *child != ROOT).collect()
    }

    /// An agent and its descendants.
    pub fn subtree(&self, top: AgentId) -> Vec<AgentId> {
        let mut all = vec![top];
        let mut next = 0;
        while let Some(agent) = all.get(next) {
            all.extend(self.children(*agent));
            next += 1;
        }
        all
    }

    /// Whether an agent is in the subtree of `top`, which includes `top` itself.
    pub fn is_below(&self, top: AgentId, agent: AgentId) -> bool {
        let mut above = std::iter::successors(Some(agent), |agent| self.parent(*agent));
        above.any(|agent| agent == top)
    }

    /// The next hop from one agent to another.
    pub fn next_hop(&self, me: AgentId, to: AgentId) -> Hop {
        if to == me {
            return Hop::Here;
        }
        let mut above = std::iter::successors(Some(to), |agent| self.parent(*agent));
        let child = above.find(|agent| self.parent(*agent) == Some(me));
        child.map_or(Hop::Parent, Hop::Child)
    }

    /// Applies an entry of the log; returns the agents that the root adopts.
    pub fn apply(&mut self, entry: &Entry) -> Vec<AgentId> {
        self.at += 1;
        match entry {
            Entry::Lost(agents) => self.lose(agents),
            Entry::Return(agents) => {
                self.bring_back(agents);
                Vec::new()
            }
        }
    }

    fn lose(&mut self, agents: &[AgentId]) -> Vec<AgentId> {
        for &agent in agents {
            let place = TreePosition { is_lost: true, ..self.place(agent) };
            self.places.insert(agent, place);
        }
        let moved: Vec<AgentId> = agents.iter().flat_map(|agent| self.children(*agent)).collect();
        for &child in &moved {
            let place = TreePosition { parent: ROOT, is_adopted: true, ..self.place(child) };
            self.places.insert(child, place);
        }
        moved
    }

    fn bring_back(&mut self, agents: &[AgentId]) {
        for &agent in agents {
            let parent = self.tree.parent(agent).filter(|parent| agents.contains(parent)).unwrap_or(ROOT);
            self.places.insert(agent, TreePosition { incarnation: self.at, parent, is_adopted: false, is_lost: false });
        }
    }

    /// Number of entries, for the simulator's checkers.
    pub fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ids(agents: impl IntoIterator<Item = u32>) -> Vec<AgentId> {
        agents.into_iter().map(AgentId).collect()
    }

    /// Fifteen agents, fan-out 2.
    fn roster(log: &[Entry]) -> Roster {
        let mut roster = Roster::new(Tree::new(15, 2), &SessionSnapshot::default());
        log.iter().for_each(|entry| drop(roster.apply(entry)));
        roster
    }

    #[test]
    fn children_of_a_lost_agent_move_to_the_root_with_their_subtrees() {
        let mut roster = roster(&[]);
        assert_eq!(roster.apply(&Entry::Lost(ids([1]))), ids([3, 4]));
        assert_eq!(roster.children(ROOT), ids([2, 3, 4]));
        assert_eq!(
            (roster.next_hop(ROOT, AgentId(7)), roster.parent(AgentId(7))),
            (Hop::Child(AgentId(3)), Some(AgentId(3)))
        );
        assert!(roster.is_adopted(AgentId(3)) && !roster.is_adopted(AgentId(7)) && roster.is_lost(AgentId(1)));
        assert_eq!(roster.next_hop(AgentId(3), AgentId(4)), Hop::Parent);
        assert_eq!(roster.subtree(AgentId(3)), ids([3, 7, 8]));
    }

    #[test]
    fn agents_lost_together_leave_only_their_remaining_children() {
        let mut roster = roster(&[]);
        assert_eq!(roster.apply(&Entry::Lost(ids([1, 3]))), ids([4, 7, 8]));
    }

    #[test]
    fn a_returning_subtree_is_whole_again_and_adopted_agents_stay() {
        let roster = roster(&[Entry::Lost(ids([1, 3])), Entry::Return(ids([1, 3]))]);
        assert_eq!((roster.parent(AgentId(1)), roster.parent(AgentId(3))), (Some(ROOT), Some(AgentId(1))));
        assert_eq!((roster.incarnation(AgentId(3)), roster.incarnation(AgentId(7))), (2, 0));
        assert_eq!(roster.children(AgentId(3)), [], "the root has adopted 7 and 8");
        assert!(!roster.is_adopted(AgentId(3)) && roster.is_adopted(AgentId(7)));
    }

    #[test]
    fn an_agent_that_returns_alone_is_a_child_of_the_root() {
        let roster = roster(&[Entry::Lost(ids([3])), Entry::Return(ids([3]))]);
        assert_eq!((roster.parent(AgentId(3)), roster.children(AgentId(1))), (Some(ROOT), ids([4])));
    }

    fn entries() -> impl Strategy<Value = Vec<(bool, Vec<u32>)>> {
        prop::collection::vec((any::<bool>(), prop::collection::vec(1u32..15, 1..4)), 0..20)
    }

    proptest! {
        /// Whatever happens, all agents that are not lost form one tree below the root.
        #[test]
        fn the_roster_is_always_one_tree(log in entries()) {
            let mut roster = roster(&[]);
            for (loses, agents) in log {
                let agents: BTreeSet<AgentId> = ids(agents).into_iter().collect();
                let agents: Vec<AgentId> = agents.into_iter().filter(|agent| roster.is_lost(*agent) != loses).collect();
                roster.apply(&if loses { Entry::Lost(agents) } else { Entry::Return(agents) });
                let mut there = roster.subtree(ROOT);
                there.sort_unstable();
                let living: Vec<AgentId> = (0..15).map(AgentId).filter(|agent| !roster.is_lost(*agent)).collect();
                prop_assert_eq!(&there, &living);
                for &from in &living {
                    for &to in &living {
                        let mut at = from;
                        let mut went_down = false;
                        for _ in 0..10 {
                            at = match roster.next_hop(at, to) {
                                Hop::Here => break,
                                Hop::Child(child) => { went_down = true; child }
                                Hop::Parent => {
                                    prop_assert!(!went_down);
                                    roster.parent(at).expect("the root has all below it")
                                }
                            };
                        }
                        prop_assert_eq!(at, to);
                    }
                }
                // The state given to a new agent leads to the same roster.
                let told = SessionSnapshot { at: roster.at(), places: roster.places(), ..SessionSnapshot::default() };
                prop_assert_eq!(&Roster::new(Tree::new(15, 2), &told), &roster);
            }
        }
    }
}
