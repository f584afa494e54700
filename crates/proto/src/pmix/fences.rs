//! Fences of PMIx clients, and groups, which are fences with a name.
//!
//! A fence of the whole job is an exchange (`crate::collective`) with separate epochs; a fence of some ranks is a
//! barrier that carries data (`crate::collective::groups`). A bit of its frames distinguishes it from PMI's barriers, a
//! tag from those of other groups. The server process sends its request when all members on its node have entered, so
//! the node enters for all of them at once.
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
use crate::collective::groups::{Arrived as GroupArrived, Over, too_much};
use crate::collective::{Arrived, Broken, CollectiveConfig, Collectives, Entry, Finished, Outcome, ReplyTo};
use crate::job::cx::Cx;
use crate::job::facts::Facts;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::block;
use wireup_wire::collective::Collective;
use wireup_wire::group::{Group, Members, Purpose};
use wireup_wire::ids::{Epoch, LocalRank, NodeId};
use wireup_wire::job::Modex;
use wireup_wire::limits::{FRAME_PAYLOAD_MAX, GROUP_RANKS_MAX};
use wireup_wire::modex::{NodeContribution, Up};
use wireup_wire::peer::{self, Cause};
use wireup_wire::pmix::{Answer, Status};

/// The PMIx fences and groups of this node's ranks; the server process enters each for all of its members on this node.
pub struct Fences {
    /// Exchanges (fences of the whole job) and barriers (fences of some ranks, groups).
    pub all: Collectives,
    /// The number of the server's request for each fence of the whole job that is awaited.
    requested: BTreeMap<Epoch, u64>,
    /// Epochs for which a rank in the subtree has a timeout.
    with_timeout: BTreeSet<Epoch>,
    /// Epochs that were ended early, with the status that the ranks get.
    given_up: BTreeMap<Epoch, Status>,
    /// The requests that wait for the rounds of a barrier, oldest first: their numbers, and the group's name; `None`
    /// for a fence.
    rounds: BTreeMap<Group, VecDeque<(u64, Option<String>)>>,
    /// Number of contexts given to groups so far.
    contexts: u32,
}

impl Fences {
    pub fn new(facts: &Facts, config: CollectiveConfig) -> Fences {
        Fences {
            all: Collectives::new(facts, config, true),
            requested: BTreeMap::new(),
            with_timeout: BTreeSet::new(),
            given_up: BTreeMap::new(),
            rounds: BTreeMap::new(),
            contexts: 0,
        }
    }
}

/// The contribution of the ranks on this node to a fence of the whole job.
pub struct WholeEntrance {
    /// The number of the server's request.
    pub id: u64,
    pub collect: bool,
    pub data: Bytes,
    pub is_impatient: bool,
}

/// The fences of the whole job: exchanges with separate epochs.
impl Fences {
    /// The epoch that the local ranks are about to enter.
    ///
    /// A fence without a timeout cannot be one that was given up, if all ranks make the same calls: the library has
    /// already ended that fence here for the ranks that had entered, without a request from its server. So such epochs
    /// are skipped.
    pub fn next_epoch(&mut self, is_impatient: bool) -> Epoch {
        while !is_impatient && self.given_up.contains_key(&self.next()) {
            self.all.exchanges.pass();
        }
        self.next()
    }

    /// Enters a fence of the whole job for the local ranks, which have all entered it.
    pub fn enter(&mut self, cx: &mut Cx<'_>, entrance: WholeEntrance, server: &mut ServerProcess) {
        let WholeEntrance { id, collect, data, is_impatient } = entrance;
        let epoch = self.next();
        if let Some(status) = self.given_up.get(&epoch).copied() {
            self.all.exchanges.pass();
            return server.refuse(cx, id, status);
        }
        self.requested.insert(epoch, id);
        if is_impatient {
            self.with_timeout.insert(epoch);
            // `Up::Impatient` is sent before the frames of the fence: when the frames arrive, an agent above may find
            // that the fence cannot complete.
            if !cx.facts.root {
                cx.agent.links.send_job_up(cx.common.up, up(cx.facts, &Up::Impatient { epoch }));
            }
        }
        let stays = !collect || cx.facts.spec.options.pmi.modex == Modex::Direct;
        let mut data = if stays { Bytes::new() } else { data };
        for local in (0..cx.common.ranks.len() as u16).map(LocalRank) {
            let entry = (Entry::Modex { data: std::mem::take(&mut data) }, ReplyTo::Server);
            let finished = self.all.exchanges.enter(cx, local, entry, Bytes::new);
            self.on_finished(cx, finished, server);
        }
    }

    fn next(&self) -> Epoch {
        self.all.exchanges.next_of(LocalRank(0))
    }

    /// Handles a frame from another node's agent; the frame is ignored if the fence was given up.
    pub fn on_exchange(&mut self, cx: &mut Cx<'_>, arrived: Arrived, server: &mut ServerProcess) {
        if !self.given_up.contains_key(&arrived.epoch) {
            let finished = self.all.exchanges.on_frame(cx, arrived);
            self.on_finished(cx, finished, server);
        }
    }

    /// Answers the server process for fences of the whole job that are complete.
    fn on_finished(&mut self, cx: &mut Cx<'_>, finished: Vec<Finished>, server: &mut ServerProcess) {
        for Finished { outcome, trace, .. } in finished {
            let Some(id) = self.requested.remove(&trace.epoch) else { continue };
            cx.trace(trace);
            let Outcome::Pairs(parts) = outcome else {
                cx.fail_here(Cause::Pmi { problem: "a PMIx fence ended as another collective".into() });
                continue;
            };
            self.with_timeout.remove(&trace.epoch);
            // Encoded with headers, the blocks must fit into a message to the server; unpacked, into one to its ranks.
            let travels: usize = parts.iter().map(Bytes::len).sum();
            match parts.iter().map(block::plain_len).sum::<Result<usize, _>>() {
                Ok(0) => server.answer(cx, id, Answer::Fenced { blocks: Vec::new() }),
                Ok(len) if len.max(travels) <= FRAME_PAYLOAD_MAX => {
                    server.answer(cx, id, Answer::Fenced { blocks: parts });
                }
                Ok(len) => server.fail(cx, too_much(len)),
                Err(error) => cx.fail_here(Cause::Pmi { problem: error.to_string() }),
            }
        }
    }

    /// A fence in progress that cannot complete. Not reported if a rank has a timeout for the fence, because the fence
    /// ends for all ranks when the timeout expires.
    pub fn broken(&self) -> Option<Broken> {
        self.all.exchanges.broken().filter(|broken| !self.with_timeout.contains(&broken.epoch))
    }

    /// Records that a rank of this subtree has a timeout for this fence.
    pub fn on_impatient(&mut self, epoch: Epoch) {
        if epoch >= self.all.exchanges.base() {
            self.with_timeout.insert(epoch);
        }
    }

    /// Handles the root's message that a fence has ended early.
    pub fn on_over(&mut self, cx: &mut Cx<'_>, epoch: Epoch, status: Status, server: &mut ServerProcess) {
        if epoch < self.all.exchanges.base() {
            return;
        }
        // The epoch counts as done even if there is an outcome here: some agents below may never report that their
        // ranks have entered.
        self.with_timeout.remove(&epoch);
        self.given_up.insert(epoch, status);
        let finished = self.all.exchanges.give_up(cx, epoch, Collective::Modex);
        let requested = self.requested.remove(&epoch);
        self.on_finished(cx, finished, server);
        if let Some(id) = requested {
            server.refuse(cx, id, status);
        }
    }
}

/// The contribution of the members on this node to a fence of some ranks, or to a group.
pub struct SubsetEntrance {
    /// The number of the server's request.
    pub id: u64,
    pub members: Members,
    /// A group's name; `None` for a fence.
    pub name: Option<String>,
    pub data: Bytes,
}

/// The fences of some ranks, and groups: barriers that carry the data of the members' nodes.
impl Fences {
    /// Enters a fence of some ranks, or a group, for the local members, which have all entered it.
    pub fn enter_some(&mut self, cx: &mut Cx<'_>, entrance: SubsetEntrance, server: &mut ServerProcess) {
        let SubsetEntrance { id, members, name, data } = entrance;
        let node = cx.facts.own_node();
        let (tag, part) = match &name {
            None => (FENCE, NodeContribution::Fence { data }),
            Some(name) => {
                self.contexts += 1;
                let context = u64::from(node.0 + 1) << 32 | u64::from(self.contexts);
                (tag(name), NodeContribution::Group { name: name.clone(), context, data })
            }
        };
        if let Members::List(runs) = &members
            && runs.iter().map(|run| run.count as usize).sum::<usize>() > GROUP_RANKS_MAX
        {
            return server.refuse(cx, id, Status::BadParam);
        }
        let here = (0..).zip(cx.common.ranks.iter()).filter(|(_, process)| members.contains(process.rank));
        let here = here.map(|(local, _)| LocalRank(local));
        let coming: Vec<LocalRank> = here.filter(|local| !self.all.barriers.has_departed(*local)).collect();
        if coming.is_empty() {
            return server.refuse(cx, id, Status::RankGone);
        }
        let group = Group { members, tag: tag.into(), purpose: Purpose::Barrier };
        self.rounds.entry(group.clone()).or_default().push_back((id, name));
        let mut pairs = Vec::new();
        block::push(&mut pairs, node, false, &peer::encode(&part));
        let mut pairs = Bytes::from(pairs);
        for local in coming {
            let over = self.all.barriers.enter(cx, local, group.clone(), std::mem::take(&mut pairs));
            self.on_groups_over(cx, over, server);
        }
        self.excuse_departed(cx, server);
    }

    /// Handles a frame of a fence of some ranks, or of a group, which came along the job's tree.
    pub fn on_group(&mut self, cx: &mut Cx<'_>, arrived: GroupArrived, server: &mut ServerProcess) {
        let over = self.all.barriers.on_frame(cx, arrived);
        self.on_groups_over(cx, over, server);
        self.excuse_departed(cx, server);
    }

    /// Lets barriers go on without members that will not enter.
    pub fn excuse_departed(&mut self, cx: &mut Cx<'_>, server: &mut ServerProcess) {
        let mut gone = Vec::new();
        block::push(&mut gone, cx.facts.own_node(), false, &peer::encode(&NodeContribution::Gone));
        let over = self.all.barriers.excuse(cx, &gone.into());
        self.on_groups_over(cx, over, server);
    }

    /// Answers the server process for rounds of barriers that are complete.
    fn on_groups_over(&mut self, cx: &mut Cx<'_>, over: Vec<Over>, server: &mut ServerProcess) {
        for Over { group, pairs, .. } in over {
            let Some(rounds) = self.rounds.get_mut(&group) else { continue };
            let Some((id, name)) = rounds.pop_front() else { continue };
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

/// The tag of fences of some ranks; groups have other tags.
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

/// A tag for a group, derived from its name and different from the tag of fences; if two groups get the same tag, the
/// names in their data show it.
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
