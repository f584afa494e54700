//! Fences of PMIx clients, and groups, which are fences with a name.
//!
//! A fence of the whole job is an exchange (`crate::collective`) with separate epochs; a fence of some ranks is a
//! barrier that carries data (`crate::collective::groups`). A bit of its frames distinguishes it from PMI's barriers, a
//! tag from those of other groups. The server process sends its request when all members on its node have entered, so
//! the node enters for all of them at once. [`Whole`] and [`Subsets`] are the two kinds.
//!
//! If a member has departed, a fence of the whole job ends the job, as with PMI, since that best reports which rank
//! left which others waiting. A fence of some ranks is answered `RankGone`: the other members may be a separate program
//! that can continue. The departed rank's node contributes `NodeContribution::Gone` in its place.
//!
//! Timeouts: if one rank's timeout for a fence of the whole job expires, the fence ends for all ranks (`Up::GiveUp`,
//! `Down::Over`), so that all nodes count epochs in the same way. And while a rank with a timeout waits, a departed
//! rank does not end the job (`Up::Impatient`). If a fence of some ranks times out, it ends for that node only; its
//! later result is not reported.

use super::server::ServerProcess;
use super::tree::up;
use crate::collective::groups::{Arrived as Barrier, Barriers, Over, too_much};
use crate::collective::{Arrived, CollectiveConfig, Entering, Entry, Exchanges, Finished, Outcome, ReplyTo};
use crate::job::cx::Cx;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::block;
use wireup_wire::collective::Collective;
use wireup_wire::group::{Group, Members, Purpose};
use wireup_wire::ids::{Epoch, LocalRank, NodeId};
use wireup_wire::job::Modex;
use wireup_wire::limits::{FRAME_PAYLOAD_MAX, GROUP_RANKS_MAX};
use wireup_wire::modex::{NodeContribution, Up};
use wireup_wire::peer::{self, Cause, Departed};
use wireup_wire::pmix::{Answer, Status};

pub struct Fences {
    pub whole: Whole,
    pub subsets: Subsets,
}

impl Fences {
    pub fn new(site: CollectiveConfig, children: usize) -> Fences {
        Fences { whole: Whole::new(site), subsets: Subsets::new(children) }
    }

    /// A fence of the whole job that cannot complete, and how many local ranks wait in it.
    pub fn broken(&self) -> Option<((Departed, Epoch, Collective), u32)> {
        Some((self.whole.broken()?, self.whole.exchanges.arrived()))
    }

    /// The missing ranks were requested.
    pub fn on_asked(&mut self) {
        self.whole.exchanges.on_asked();
        self.subsets.barriers.on_asked();
    }

    /// When a wait of `after_ns` expires.
    pub fn stall_deadline(&self, after_ns: u64) -> Option<Instant> {
        let groups = self.subsets.barriers.stall_deadline(after_ns);
        self.whole.exchanges.stall_deadline(after_ns).into_iter().chain(groups).min()
    }
}

/// The fences of the whole job: exchanges with separate epochs.
pub struct Whole {
    pub exchanges: Exchanges,
    /// The number of the server's request for each epoch that is awaited.
    requested: BTreeMap<Epoch, u64>,
    /// Epochs for which a rank in the subtree has a timeout.
    with_timeout: BTreeSet<Epoch>,
    /// Epochs that were ended early, with the status that the ranks get.
    given_up: BTreeMap<Epoch, Status>,
}

/// The contribution of the ranks on this node to a fence.
pub struct WholeEntrance {
    /// The number of the server's request.
    pub id: u64,
    pub collect: bool,
    pub data: Bytes,
    /// Whether the fence has a timeout.
    pub is_impatient: bool,
}

impl Whole {
    pub fn new(site: CollectiveConfig) -> Whole {
        Whole {
            exchanges: Exchanges::new(site),
            requested: BTreeMap::new(),
            with_timeout: BTreeSet::new(),
            given_up: BTreeMap::new(),
        }
    }

    /// The epoch that the local ranks are about to enter.
    ///
    /// A fence without a timeout cannot be one that was given up, if all ranks make the same calls: the library has
    /// already ended that fence here for the ranks that had entered, without a request from its server. So such epochs
    /// are skipped.
    pub fn next_epoch(&mut self, cx: &Cx<'_>, is_impatient: bool) -> Epoch {
        while !is_impatient && self.is_given_up(self.next()) {
            self.pass(cx);
        }
        self.next()
    }

    /// The local ranks have entered.
    pub fn enter(&mut self, cx: &mut Cx<'_>, entrance: WholeEntrance, server: &mut ServerProcess) {
        let WholeEntrance { id, collect, data, is_impatient } = entrance;
        let epoch = self.next();
        if let Some(status) = self.given_up.get(&epoch).copied() {
            self.pass(cx);
            return server.refuse(cx, id, status);
        }
        self.requested.insert(epoch, id);
        if is_impatient {
            self.with_timeout.insert(epoch);
            // Before the frames of the fence: with those, an agent above may find that the fence cannot complete.
            if !cx.facts.root {
                cx.up(up(cx.facts, &Up::Impatient { epoch }));
            }
        }
        let stays = !collect || cx.facts.spec.options.pmi.modex == Modex::Direct;
        let mut data = if stays { Bytes::new() } else { data };
        for local in (0..cx.common.ranks.len() as u16).map(LocalRank) {
            let entry = Entry::Modex { data: std::mem::take(&mut data) };
            let entering = Entering { local, rank: cx.rank(local), entry, reply_to: ReplyTo::Server };
            let finished = self.exchanges.enter(cx, entering, Bytes::new);
            self.on_finished(cx, finished, server);
        }
    }

    fn next(&self) -> Epoch {
        self.exchanges.next_of(LocalRank(0))
    }

    fn pass(&mut self, cx: &Cx<'_>) {
        (0..cx.common.ranks.len() as u16).for_each(|local| self.exchanges.pass(LocalRank(local)));
    }

    /// A frame from another node's agent.
    pub fn on_frame(&mut self, cx: &mut Cx<'_>, arrived: Arrived, server: &mut ServerProcess) {
        let finished = self.exchanges.on_frame(cx, arrived);
        self.on_finished(cx, finished, server);
    }

    fn on_finished(&mut self, cx: &mut Cx<'_>, finished: Vec<Finished>, server: &mut ServerProcess) {
        finished.into_iter().for_each(|one| self.answer(cx, one, server));
    }

    /// A fence is complete: answers the server.
    fn answer(&mut self, cx: &mut Cx<'_>, finished: Finished, server: &mut ServerProcess) {
        let epoch = finished.trace.epoch;
        let Some(id) = self.requested.remove(&epoch) else { return };
        cx.trace(finished.trace);
        let Outcome::Pairs(parts) = finished.outcome else {
            return cx.fail_here(Cause::Pmi { problem: "a PMIx fence ended as another collective".into() });
        };
        self.with_timeout.remove(&epoch);
        // Encoded with headers, the blocks must fit into a message to the server; unpacked, into one to its ranks.
        let travels: usize = parts.iter().map(Bytes::len).sum();
        match parts.iter().map(block::plain_len).sum::<Result<usize, _>>() {
            Ok(0) => server.answer(cx, id, Answer::Fenced { blocks: Vec::new() }),
            Ok(len) if len.max(travels) <= FRAME_PAYLOAD_MAX => server.answer(cx, id, Answer::Fenced { blocks: parts }),
            Ok(len) => server.fail(cx, too_much(len)),
            Err(error) => cx.fail_here(Cause::Pmi { problem: error.to_string() }),
        }
    }

    /// A fence in progress that cannot complete. If a rank has a timeout for it, it will end for all ranks then, so it
    /// is not reported.
    pub fn broken(&self) -> Option<(Departed, Epoch, Collective)> {
        self.exchanges.broken().filter(|(_, epoch, _)| !self.with_timeout.contains(epoch))
    }

    /// A rank here or below has a timeout for this fence.
    pub fn on_impatient(&mut self, epoch: Epoch) {
        if epoch >= self.exchanges.base() {
            self.with_timeout.insert(epoch);
        }
    }

    /// The root has ended a fence.
    pub fn on_over(&mut self, cx: &mut Cx<'_>, epoch: Epoch, status: Status, server: &mut ServerProcess) {
        if epoch < self.exchanges.base() {
            return;
        }
        // The epoch counts as done even if there is an outcome here: some agents below may never report that their
        // ranks have entered.
        self.with_timeout.remove(&epoch);
        self.given_up.insert(epoch, status);
        let finished = self.exchanges.give_up(cx, epoch, Collective::Modex);
        let requested = self.requested.remove(&epoch);
        self.on_finished(cx, finished, server);
        if let Some(id) = requested {
            server.refuse(cx, id, status);
        }
    }

    /// Whether a frame of this epoch is too late.
    pub fn is_given_up(&self, epoch: Epoch) -> bool {
        self.given_up.contains_key(&epoch)
    }
}

/// The fences of some ranks, and groups: barriers that carry the data of the members' nodes.
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
pub struct SubsetEntrance {
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
    pub fn enter(&mut self, cx: &mut Cx<'_>, entrance: SubsetEntrance, server: &mut ServerProcess) {
        let SubsetEntrance { id, members, name, data } = entrance;
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
        all.map(|(local, _)| LocalRank(local as u16)).filter(|local| !self.barriers.has_departed(*local)).collect()
    }

    fn new_context(&mut self, node: NodeId) -> u64 {
        self.contexts += 1;
        u64::from(node.0 + 1) << 32 | u64::from(self.contexts)
    }

    /// A frame along the tree.
    pub fn on_frame(&mut self, cx: &mut Cx<'_>, arrived: Barrier, server: &mut ServerProcess) {
        let over = self.barriers.on_frame(cx, arrived);
        self.on_over(cx, over, server);
        self.excuse_departed(cx, server);
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
        let over = self.barriers.excuse(cx, &gone(cx.facts.own_node()));
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
            match combined(pairs, name.as_deref()) {
                Ok(answer) => server.answer(cx, id, answer),
                Err(problem) => cx.fail_here(Cause::Pmi { problem }),
            }
        }
    }
}

/// The tag of fences; groups have other tags.
const FENCE: i32 = 0;

/// Combines the contributions of the members' nodes; `name`: the group's name.
fn combined(pairs: Bytes, name: Option<&str>) -> Result<Answer, String> {
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
        return Ok(Answer::Status(Status::RankGone));
    }
    group.sort_unstable_by_key(|(node, _): &(NodeId, Bytes)| *node);
    let data = group.into_iter().map(|(_, data)| data).collect();
    Ok(if name.is_some() { Answer::Grouped { context, data } } else { Answer::fenced(&fence) })
}

fn gone(node: NodeId) -> Bytes {
    let mut part = Vec::new();
    block::push(&mut part, node, false, &peer::encode(&NodeContribution::Gone));
    part.into()
}

/// A tag for a group's name that differs from that of fences; if two groups get the same tag, the names reveal it.
fn tag(name: &str) -> i32 {
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
        let Ok(Answer::Grouped { context, data }) = combined(pairs.clone().into(), Some("g")) else { panic!() };
        assert_eq!((context, data), (4, vec![Bytes::from_static(b"nought"), Bytes::from_static(b"two")]));
        assert!(combined(pairs.clone().into(), Some("h")).is_err(), "two groups with one tag");
        let pairs = [pairs, block(1, &NodeContribution::Gone)].concat();
        assert!(matches!(combined(pairs.into(), Some("g")), Ok(Answer::Status(Status::RankGone))));
    }

    #[test]
    fn the_data_of_a_fence_of_some_ranks_is_joined() {
        let pairs = [
            block(1, &NodeContribution::Fence { data: "ab".into() }),
            block(0, &NodeContribution::Fence { data: "c".into() }),
        ]
        .concat();
        assert_eq!(combined(pairs.into(), None), Ok(Answer::fenced(b"abc")));
    }

    #[test]
    fn groups_and_fences_never_share_a_number() {
        for name in ["", "a", "mpi://world", "pmix-group-0"] {
            assert!(tag(name) > 0, "{name}");
        }
    }
}
