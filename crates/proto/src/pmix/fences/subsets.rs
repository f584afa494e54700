//! Fences of some ranks, and groups: a barrier that carries the data of the members' nodes.

use super::super::server::ServerProcess;
use crate::collective::groups::{Arrived, Barriers, Left, Over};
use crate::job::cx::Cx;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use wireup_wire::block;
use wireup_wire::group::{Group, Members, Purpose};
use wireup_wire::ids::{LocalRank, NodeId};
use wireup_wire::limits::GROUP_RANKS_MAX;
use wireup_wire::modex::NodeContribution;
use wireup_wire::peer::{self, Cause, Departed};
use wireup_wire::pmix::{Answer, Status};

pub struct Subsets {
    pub barriers: Barriers,
    /// The requests that wait for the rounds of a barrier, oldest first.
    rounds: BTreeMap<Group, VecDeque<Round>>,
    /// Number of contexts given to groups so far.
    contexts: u32,
}

struct Round {
    id: u64,
    /// The group's name; `None` for a fence.
    name: Option<String>,
}

/// The contribution of the members on this node.
pub struct Entrance {
    /// The number of the server's request.
    pub id: u64,
    pub members: Members,
    /// A group's name; `None` for a fence.
    pub name: Option<String>,
    pub data: Bytes,
}

impl Subsets {
    pub fn new(children: usize) -> Subsets {
        Subsets { barriers: Barriers::of_servers(children), rounds: BTreeMap::new(), contexts: 0 }
    }

    /// The local members have entered.
    pub fn enter(&mut self, cx: &mut Cx<'_>, entrance: Entrance, server: &mut ServerProcess) {
        let Entrance { id, members, name, data } = entrance;
        let node = cx.facts.own_node();
        let (tag, part) = match &name {
            None => (FENCE, NodeContribution::Fence { data }),
            Some(name) => {
                (tag(name), NodeContribution::Group { name: name.clone(), context: self.new_context(node), data })
            }
        };
        if let Members::List(runs) = &members
            && runs.iter().map(|run| run.count as usize).sum::<usize>() > GROUP_RANKS_MAX
        {
            return server.refuse(cx, id, Status::BadParam);
        }
        let coming = self.coming(cx, &members);
        if coming.is_empty() {
            return server.refuse(cx, id, Status::RankGone);
        }
        let group = Group { members, tag: tag.into(), purpose: Purpose::Barrier };
        self.rounds.entry(group.clone()).or_default().push_back(Round { id, name });
        let mut pairs = Vec::new();
        block::push(&mut pairs, node, false, &peer::encode(&part));
        let mut pairs = Bytes::from(pairs);
        for local in coming {
            let over = self.barriers.enter(cx, local, group.clone(), std::mem::take(&mut pairs));
            self.on_over(cx, over, server);
        }
        self.excuse_departed(cx, server);
    }

    /// The local members that have not departed.
    fn coming(&self, cx: &Cx<'_>, members: &Members) -> Vec<LocalRank> {
        let all = cx.common.ranks.iter().enumerate().filter(|(_, process)| members.contains(process.rank));
        all.map(|(local, _)| LocalRank(local as u16))
            .filter(|local| !self.barriers.groups.has_departed(*local))
            .collect()
    }

    fn new_context(&mut self, node: NodeId) -> u64 {
        self.contexts += 1;
        u64::from(node.0 + 1) << 32 | u64::from(self.contexts)
    }

    /// A frame along the tree.
    pub fn on_frame(&mut self, cx: &mut Cx<'_>, arrived: Arrived, server: &mut ServerProcess) {
        let over = self.barriers.on_frame(cx, arrived);
        self.on_over(cx, over, server);
        self.excuse_departed(cx, server);
    }

    pub fn on_tick(&mut self, cx: &mut Cx<'_>, server: &mut ServerProcess) {
        let over = self.barriers.on_tick(cx);
        self.on_over(cx, over, server);
    }

    /// A local rank enters no more barriers.
    pub fn on_departed(&mut self, cx: &mut Cx<'_>, local: LocalRank, departed: Departed, server: &mut ServerProcess) {
        self.barriers.on_departed(local, departed);
        self.excuse_departed(cx, server);
    }

    /// No rank is left in a child's subtree.
    pub fn on_child_done(&mut self, cx: &mut Cx<'_>, child: usize, server: &mut ServerProcess) {
        self.barriers.on_child_done(child);
        self.excuse_departed(cx, server);
    }

    fn excuse_departed(&mut self, cx: &mut Cx<'_>, server: &mut ServerProcess) {
        let node = cx.facts.own_node();
        let over = self.barriers.excuse(cx, |_: Left| gone(node));
        self.on_over(cx, over, server);
    }

    /// Rounds of barriers are complete: answers the server.
    fn on_over(&mut self, cx: &mut Cx<'_>, over: Vec<Over>, server: &mut ServerProcess) {
        for Over { group, pairs, .. } in over {
            let Some(rounds) = self.rounds.get_mut(&group) else { continue };
            let Some(Round { id, name }) = rounds.pop_front() else { continue };
            if rounds.is_empty() {
                self.rounds.remove(&group);
            }
            match came(pairs, name.as_deref()) {
                Ok(Came::Fence(data)) => server.answer(cx, id, Answer::fenced(&data)),
                Ok(Came::Group { context, data }) => server.answer(cx, id, Answer::Grouped { context, data }),
                Ok(Came::Gone) => server.refuse(cx, id, Status::RankGone),
                Err(problem) => cx.fail_here(Cause::Pmi { problem }),
            }
        }
    }
}

/// The tag of fences; groups have other tags.
pub const FENCE: i32 = 0;

/// The result of a round of a barrier.
pub enum Came {
    Fence(Vec<u8>),
    Group { context: u64, data: Vec<Bytes> },
    Gone,
}

/// Combines the contributions of the members' nodes; `name`: the group's name.
pub fn came(pairs: Bytes, name: Option<&str>) -> Result<Came, String> {
    let (mut fence, mut group, mut context, mut gone) = (Vec::new(), Vec::new(), u64::MAX, false);
    for block in block::blocks(pairs) {
        let block = block.map_err(|error| error.to_string())?;
        match peer::decode::<NodeContribution>(&block.bytes).map_err(|error| error.to_string())? {
            NodeContribution::Gone => gone = true,
            NodeContribution::Fence { data } if name.is_none() => fence.extend_from_slice(&data),
            NodeContribution::Group { name: other, context: its, data } if name == Some(other.as_str()) => {
                context = context.min(its);
                group.push((block.node, data));
            }
            NodeContribution::Fence { .. } | NodeContribution::Group { .. } => {
                return Err(format!("group {} has other members on node {}", name.unwrap_or("of a fence"), block.node));
            }
        }
    }
    if gone {
        return Ok(Came::Gone);
    }
    group.sort_unstable_by_key(|(node, _): &(NodeId, Bytes)| *node);
    let data = group.into_iter().map(|(_, data)| data).collect();
    Ok(if name.is_some() { Came::Group { context, data } } else { Came::Fence(fence) })
}

pub fn gone(node: NodeId) -> Bytes {
    let mut part = Vec::new();
    block::push(&mut part, node, false, &peer::encode(&NodeContribution::Gone));
    part.into()
}

/// A tag for a group's name that differs from that of fences; if two groups get the same tag, the names reveal it.
pub fn tag(name: &str) -> i32 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    ((hash >> 1) as i32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(node: u32, part: &NodeContribution) -> Vec<u8> {
        let mut out = Vec::new();
        block::push(&mut out, NodeId(node), false, &peer::encode(part));
        out
    }

    #[test]
    fn a_group_has_the_smallest_context_and_data_in_the_order_of_nodes() {
        let part = |context, data: &'static [u8]| NodeContribution::Group {
            name: "g".into(),
            context,
            data: Bytes::from_static(data),
        };
        let pairs = [block(2, &part(9, b"two")), block(0, &part(4, b"nought"))].concat();
        let Ok(Came::Group { context, data }) = came(pairs.clone().into(), Some("g")) else { panic!() };
        assert_eq!((context, data), (4, vec![Bytes::from_static(b"nought"), Bytes::from_static(b"two")]));
        assert!(came(pairs.clone().into(), Some("h")).is_err(), "two groups with one tag");
        let pairs = [pairs, block(1, &NodeContribution::Gone)].concat();
        assert!(matches!(came(pairs.into(), Some("g")), Ok(Came::Gone)));
    }

    #[test]
    fn the_data_of_a_fence_of_some_ranks_is_joined() {
        let pairs = [
            block(1, &NodeContribution::Fence { data: "ab".into() }),
            block(0, &NodeContribution::Fence { data: "c".into() }),
        ]
        .concat();
        assert!(matches!(came(pairs.into(), None), Ok(Came::Fence(data)) if data == b"abc"));
    }

    #[test]
    fn groups_and_fences_never_share_a_number() {
        for name in ["", "a", "mpi://world", "pmix-group-0"] {
            assert!(tag(name) > 0, "{name}");
        }
    }
}
