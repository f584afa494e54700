//! Computes the k-ary tree over agents `0..count`, numbered level by level: parents, children, next hops.
//!
//! ```text
//!            0                 fan-out 2: the children of i are 2i+1 and 2i+2,
//!        1       2             its parent is (i-1)/2; nothing is stored
//!      3   4   5   6
//! ```
//!
//! Agents from `count` on are outside this tree: each is a child of the root, without children. So agents can be added
//! while the others keep their places and need no message.
//!
//! A message from the root reaches `count` agents in `log_k count` hops; every agent sends it at most `k` times.

use core::ops::Range;
use wireup_wire::ids::AgentId;

/// Largest fan-out that is chosen by default. Chosen: see [`default_fanout`].
pub const FANOUT_DEFAULT_MAX: u32 = 32;

/// The fan-out for `count` agents if the user gives none.
///
/// An agent starts its `k` children one after the other, at a cost `c` for each: a fork of the remote shell, the
/// message on its standard input, a handshake; 1 to 3 ms. A level adds the latency `L` until a started agent starts
/// children of its own: 30 to 100 ms over ssh. All levels together take `(k c + L) log_k N`, which is smallest where `k
/// (ln k - 1) = L / c`: k = 17 for a ratio of 30, k = 26 for 60. The curve is flat around the minimum, and one level
/// less saves a hop in every fence, so the rule is:
///
/// 1. at most 32 children: up to 32 agents are direct children of the root, since 32 serial starts cost less than
///    another level;
/// 2. the smallest number of levels that is possible with at most 32 children;
/// 3. the smallest fan-out with that number of levels, so that the levels are balanced and no agent starts more
///    children than needed.
pub fn default_fanout(count: u32) -> u32 {
    let levels = levels_for(count, FANOUT_DEFAULT_MAX);
    let narrowest = (1..FANOUT_DEFAULT_MAX).find(|&fanout| capacity(fanout, levels) >= u64::from(count));
    narrowest.unwrap_or(FANOUT_DEFAULT_MAX)
}

/// Levels below the root that `count` agents need.
fn levels_for(count: u32, fanout: u32) -> u32 {
    let mut levels = 0;
    while capacity(fanout, levels) < u64::from(count) {
        levels += 1;
    }
    levels
}

/// Agents in a full tree with `levels` levels below the root.
fn capacity(fanout: u32, levels: u32) -> u64 {
    let mut total = 1u64;
    for _ in 0..levels {
        total = total.saturating_mul(u64::from(fanout)).saturating_add(1);
    }
    total
}

/// The next hop from one agent to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hop {
    /// The two agents are the same.
    Here,
    /// Towards the root: the parent.
    Parent,
    /// Away from the root: this child, in whose subtree the agent is.
    Child(AgentId),
}

/// The shape of a tree of agents; it consists of two numbers, so it is cheap to copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tree {
    count: u32,
    fanout: u32,
}

impl Tree {
    /// A tree of `count` agents. A fan-out of 0 is treated as 1, a chain.
    pub fn new(count: u32, fanout: u32) -> Self {
        Tree { count, fanout: fanout.max(1) }
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn fanout(&self) -> u32 {
        self.fanout
    }

    /// The parent of an agent; `None` for the root.
    pub fn parent(&self, id: AgentId) -> Option<AgentId> {
        let before = id.0.checked_sub(1)?;
        Some(AgentId(if self.is_beside(id) { 0 } else { before / self.fanout }))
    }

    /// Whether an agent was added to the tree, as a child of the root.
    pub fn is_beside(&self, id: AgentId) -> bool {
        id.0 >= self.count.max(1)
    }

    /// The ids of the children, empty for a leaf. Agents that were added to the tree are left out.
    pub fn children(&self, id: AgentId) -> Range<u32> {
        self.below(&(id.0..id.0.saturating_add(1)))
    }

    /// Number of hops from the root.
    pub fn depth(&self, id: AgentId) -> u32 {
        if self.is_beside(id) {
            return 1;
        }
        if self.fanout == 1 {
            return id.0;
        }
        let mut depth = 0;
        let mut at = id;
        while let Some(parent) = self.parent(at) {
            at = parent;
            depth += 1;
        }
        depth
    }

    /// Whether `id` is `root` or one of its descendants.
    pub fn subtree_contains(&self, root: AgentId, id: AgentId) -> bool {
        matches!(self.next_hop(root, id), Hop::Here | Hop::Child(_))
    }

    /// The first hop on the path `from` one agent `to` another.
    pub fn next_hop(&self, from: AgentId, to: AgentId) -> Hop {
        if from == to {
            return Hop::Here;
        }
        if self.is_beside(from) {
            return Hop::Parent;
        }
        if self.is_beside(to) {
            return if from.0 == 0 { Hop::Child(to) } else { Hop::Parent };
        }
        if self.fanout == 1 {
            return if to > from { Hop::Child(AgentId(from.0 + 1)) } else { Hop::Parent };
        }
        // Ids grow with depth: while `at` is greater than `from`, it may be below it.
        let mut at = to;
        while at > from {
            let Some(parent) = self.parent(at) else { break };
            if parent == from {
                return Hop::Child(at);
            }
            at = parent;
        }
        Hop::Parent
    }

    /// `root` and its descendants, level by level. Agents that were added to the tree are left out, unless `root` is
    /// such an agent.
    pub fn subtree(&self, root: AgentId) -> Subtree {
        Subtree { tree: *self, level: root.0..root.0.saturating_add(1), at: root.0 }
    }

    /// The children of all agents of `level`, which are one range of ids.
    fn below(&self, level: &Range<u32>) -> Range<u32> {
        let first = |id: u32| (u64::from(id) * u64::from(self.fanout) + 1).min(u64::from(self.count)) as u32;
        first(level.start)..first(level.end)
    }
}

pub struct Subtree {
    tree: Tree,
    level: Range<u32>,
    at: u32,
}

impl Iterator for Subtree {
    type Item = AgentId;

    fn next(&mut self) -> Option<AgentId> {
        if self.at >= self.level.end {
            self.level = self.tree.below(&self.level);
            self.at = self.level.start;
            if self.level.is_empty() {
                return None;
            }
        }
        self.at += 1;
        Some(AgentId(self.at - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn default_fanout_follows_its_rule() {
        let chosen = |count: u32| (default_fanout(count), levels_for(count, default_fanout(count)));
        assert_eq!(chosen(1), (1, 0));
        assert_eq!(chosen(2), (1, 1));
        assert_eq!(chosen(4), (3, 1));
        assert_eq!(chosen(33), (32, 1));
        assert_eq!(chosen(34), (6, 2));
        assert_eq!(chosen(1024), (32, 2));
        assert_eq!(chosen(1058), (10, 3));
        assert_eq!(chosen(u32::MAX).1, levels_for(u32::MAX, 32));
    }

    #[test]
    fn extreme_counts_do_not_overflow() {
        let tree = Tree::new(u32::MAX, u32::MAX);
        assert!(tree.children(AgentId(u32::MAX)).is_empty());
        assert_eq!(tree.children(AgentId(0)), 1..u32::MAX);
        assert_eq!(Tree::new(u32::MAX, 1).depth(AgentId(4_000_000_000)), 4_000_000_000);
        assert_eq!(Tree::new(0, 2).subtree(AgentId(0)).count(), 1);
    }

    #[test]
    fn agents_beside_the_tree_are_children_of_the_root() {
        for fanout in [1, 2, 7] {
            let tree = Tree::new(3, fanout);
            let added = AgentId(7);
            assert_eq!((tree.parent(added), tree.depth(added)), (Some(AgentId(0)), 1));
            assert_eq!(tree.next_hop(AgentId(0), added), Hop::Child(added));
            for other in [AgentId(1), AgentId(2), AgentId(8)] {
                assert_eq!((tree.next_hop(other, added), tree.next_hop(added, other)), (Hop::Parent, Hop::Parent));
                assert!(!tree.subtree_contains(other, added) && !tree.subtree_contains(added, other));
            }
            assert!(tree.subtree_contains(AgentId(0), added) && tree.subtree(added).eq([added]));
        }
    }

    proptest! {
        #[test]
        fn parents_and_children_agree(count in 1u32..3000, fanout in 1u32..40) {
            let tree = Tree::new(count, fanout);
            let mut seen = 1;
            for id in 0..count {
                for child in tree.children(AgentId(id)) {
                    prop_assert_eq!(tree.parent(AgentId(child)), Some(AgentId(id)));
                    prop_assert_eq!(tree.depth(AgentId(child)), tree.depth(AgentId(id)) + 1);
                    seen += 1;
                }
            }
            prop_assert_eq!(seen, count);
        }

        #[test]
        fn hops_lead_to_the_target(count in 1u32..3000, fanout in 1u32..40, from in 0u32..3000, to in 0u32..3000) {
            let tree = Tree::new(count, fanout);
            let (mut at, to) = (AgentId(from % count), AgentId(to % count));
            for _ in 0..2 * count {
                match tree.next_hop(at, to) {
                    Hop::Here => break,
                    Hop::Parent => at = tree.parent(at).expect("the root never routes to a parent"),
                    Hop::Child(child) => {
                        prop_assert!(tree.children(at).contains(&child.0));
                        at = child;
                    }
                }
            }
            prop_assert_eq!(at, to);
        }

        #[test]
        fn subtrees_hold_exactly_their_descendants(count in 1u32..600, fanout in 1u32..20, root in 0u32..600) {
            let tree = Tree::new(count, fanout);
            let root = AgentId(root % count);
            let mut walked: Vec<AgentId> = tree.subtree(root).collect();
            walked.sort_unstable();
            let asked: Vec<AgentId> = (0..count).map(AgentId).filter(|&id| tree.subtree_contains(root, id)).collect();
            prop_assert_eq!(walked, asked);
        }
    }
}
