//! Fences of some ranks, and groups: a barrier that carries the data of the members' nodes.

use super::super::step::Steps;
use super::parts::{Came, FENCE, came, gone, tag, too_much};
use crate::collective::groups::{Action, Groups, Left};
use crate::job::cx::Cx;
use crate::job::groups::{ASK, Arrived, OF_SERVERS, OVER, frame};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use wireup_wire::block;
use wireup_wire::frame::{DownFrame, Frame, UpFrame};
use wireup_wire::group::{Group, Members, Purpose};
use wireup_wire::ids::{LocalRank, NodeId};
use wireup_wire::limits::{FRAME_PAYLOAD_MAX, GROUP_RANKS_MAX};
use wireup_wire::modex::NodeContribution;
use wireup_wire::peer::{self, Cause, Departed};
use wireup_wire::pmix::{Answer, Status};

pub struct Subsets {
    groups: Groups,
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
        Subsets { groups: Groups::new(children), rounds: BTreeMap::new(), contexts: 0 }
    }

    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    pub fn on_asked(&mut self) {
        self.groups.on_asked();
    }

    /// The local members have entered.
    pub fn enter(&mut self, cx: &mut Cx<'_>, entrance: Entrance, steps: &mut Steps) {
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
            return steps.refuse(id, Status::BadParam);
        }
        let coming = self.coming(cx, &members);
        if coming.is_empty() {
            return steps.refuse(id, Status::RankGone);
        }
        let group = Group { members, tag: tag.into(), purpose: Purpose::Barrier };
        self.rounds.entry(group.clone()).or_default().push_back(Round { id, name });
        let mut pairs = Vec::new();
        block::push(&mut pairs, node, false, &peer::encode(&part));
        let (mut pairs, mut next) = (Bytes::from(pairs), Vec::new());
        for local in coming {
            let spread = || cx.facts.spread(&group.members);
            self.groups.enter(cx.now(), group.clone(), spread, local, std::mem::take(&mut pairs), &mut next);
        }
        self.carry_out(cx, next, steps);
        self.excuse_departed(cx, steps);
    }

    /// The local members that have not departed.
    fn coming(&self, cx: &Cx<'_>, members: &Members) -> Vec<LocalRank> {
        let all = cx.common.ranks.iter().enumerate().filter(|(_, process)| members.contains(process.rank));
        all.map(|(local, _)| LocalRank(local as u16)).filter(|local| !self.groups.has_departed(*local)).collect()
    }

    fn new_context(&mut self, node: NodeId) -> u64 {
        self.contexts += 1;
        u64::from(node.0 + 1) << 32 | u64::from(self.contexts)
    }

    /// A frame along the tree.
    pub fn on_frame(&mut self, cx: &mut Cx<'_>, arrived: Arrived, steps: &mut Steps) {
        let mut next = Vec::new();
        arrived.give_to(cx, &mut self.groups, &mut next);
        self.carry_out(cx, next, steps);
        self.excuse_departed(cx, steps);
    }

    pub fn on_tick(&mut self, cx: &mut Cx<'_>, steps: &mut Steps) {
        let mut next = Vec::new();
        self.groups.on_tick(cx.now(), &mut next);
        self.carry_out(cx, next, steps);
    }

    /// A local rank enters no more barriers.
    pub fn on_departed(&mut self, cx: &mut Cx<'_>, local: LocalRank, departed: Departed, steps: &mut Steps) {
        self.groups.on_departed(local, departed);
        self.excuse_departed(cx, steps);
    }

    /// No rank is left in a child's subtree.
    pub fn on_child_done(&mut self, cx: &mut Cx<'_>, child: usize, steps: &mut Steps) {
        self.groups.on_child_done(child);
        self.excuse_departed(cx, steps);
    }

    fn excuse_departed(&mut self, cx: &mut Cx<'_>, steps: &mut Steps) {
        let node = cx.facts.own_node();
        let mut next = Vec::new();
        self.groups.excuse(|_: Left| gone(node), &mut next);
        self.carry_out(cx, next, steps);
    }

    fn carry_out(&mut self, cx: &mut Cx<'_>, next: Vec<Action>, steps: &mut Steps) {
        let facts = cx.facts;
        for one in next {
            match one {
                Action::Up { group, pairs } => {
                    let frame = frame(facts, UpFrame::GroupUp, OVER | OF_SERVERS, 0, &group, &pairs);
                    if fits(cx, &frame) {
                        cx.up(frame);
                    }
                }
                Action::Down { group, child, pairs } => {
                    let frame = frame(facts, DownFrame::GroupDown, OVER | OF_SERVERS, 0, &group, &pairs);
                    if fits(cx, &frame) {
                        cx.for_child(child, frame);
                    }
                }
                // Such a frame has only the group, which is short.
                Action::Ask { group, child, seen } => {
                    cx.for_child(child, frame(facts, DownFrame::GroupDown, ASK | OF_SERVERS, seen, &group, &[]));
                }
                Action::Over { group, pairs, .. } => self.on_over(cx, &group, pairs, steps),
                Action::Fail { problem } => cx.fail_here(Cause::Pmi { problem }),
            }
        }
    }

    fn on_over(&mut self, cx: &mut Cx<'_>, group: &Group, pairs: Bytes, steps: &mut Steps) {
        let Some(rounds) = self.rounds.get_mut(group) else { return };
        let Some(Round { id, name }) = rounds.pop_front() else { return };
        if rounds.is_empty() {
            self.rounds.remove(group);
        }
        match came(pairs, name.as_deref()) {
            Ok(Came::Fence(data)) => steps.answer(id, Answer::fenced(&data)),
            Ok(Came::Group { context, data }) => steps.answer(id, Answer::Grouped { context, data }),
            Ok(Came::Gone) => steps.refuse(id, Status::RankGone),
            Err(problem) => cx.fail_here(Cause::Pmi { problem }),
        }
    }
}

/// Whether a frame can be sent. The job ends if the frame is too long.
fn fits(cx: &mut Cx<'_>, frame: &Frame) -> bool {
    let bytes = frame.payload.len();
    let fits = bytes <= FRAME_PAYLOAD_MAX;
    if !fits {
        cx.fail_here(Cause::PmixServer { problem: too_much(bytes).into() });
    }
    fits
}
