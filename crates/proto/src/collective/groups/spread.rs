//! Finds the members of a group, from the viewpoint of one agent of the tree.

use wireup_coll::mapping::Mapping;
use wireup_wire::group::Members;
use wireup_wire::ids::{LocalRank, NodeId, Rank};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spread {
    /// Local ranks that are members, in ascending order.
    pub locals: Vec<LocalRank>,
    /// Children with members below them, by index among the job's children; in ascending order.
    pub children: Vec<usize>,
    /// Whether all members are in this agent's subtree.
    pub apex: bool,
}

/// The next hop towards a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Here,
    Child(usize),
    Parent,
}

impl Spread {
    /// Finds the members. `node`: this agent's own; `children`: the number of the job's children here. Cost: one
    /// look-up for each rank of a list.
    pub fn new(
        members: &Members,
        mapping: &Mapping,
        node: Option<NodeId>,
        children: usize,
        is_root: bool,
        mut direction: impl FnMut(NodeId) -> Direction,
    ) -> Spread {
        let all = || {
            let local_size = node.map_or(0, |node| mapping.local_size(node));
            (0..local_size).map(|local| LocalRank(local as u16)).collect()
        };
        let runs = match members {
            Members::World => return Spread { locals: all(), children: (0..children).collect(), apex: is_root },
            Members::Node => return Spread { locals: all(), children: Vec::new(), apex: true },
            Members::List(runs) => runs,
        };
        let mut spread = Spread { locals: Vec::new(), children: Vec::new(), apex: true };
        let mut looked_at = Vec::new();
        for rank in runs.iter().flat_map(|run| run.first..run.first + run.count).map(Rank) {
            let (of, local) = mapping.place(rank).expect("a group was parsed with the size of the job");
            if Some(of) == node {
                spread.locals.push(local);
            }
            if looked_at.len() <= of.index() {
                looked_at.resize(of.index() + 1, false);
            }
            if std::mem::replace(&mut looked_at[of.index()], true) {
                continue;
            }
            match direction(of) {
                Direction::Here => {}
                Direction::Child(child) => spread.children.push(child),
                Direction::Parent => spread.apex = false,
            }
        }
        spread.locals.sort_unstable();
        spread.children.sort_unstable();
        spread.children.dedup();
        spread
    }
}
