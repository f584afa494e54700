//! A fence of some ranks, and a group: a barrier that brings along what the members' nodes give.

use super::super::super::groups::{ASK, OVER};
use super::super::super::processes::Process;
use super::super::super::{Context, Job};
use super::super::asks::Waits;
use super::parts::{Came, came, gone, tag};
use super::{FENCE, Fences, OF_SERVERS, Round, too_much};
use crate::groups::{Do, Left};
use crate::time::Instant;
use bytes::Bytes;
use wireup_wire::block;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::group::{Group, Members};
use wireup_wire::ids::{AgentId, LocalRank};
use wireup_wire::limits::{FRAME_PAYLOAD_MAX, GROUP_RANKS_MAX};
use wireup_wire::modex::Part;
use wireup_wire::peer::{self, Cause, Departed};
use wireup_wire::pmix::{Answer, Status};

impl Job {
    /// The members here are in a fence of some ranks.
    pub(in crate::job::pmix) fn fence_some(
        &mut self,
        id: u64,
        members: Members,
        data: Bytes,
        until: Option<Instant>,
        cx: &mut Context<'_>,
    ) {
        self.enter_subset(id, Group { members, tag: FENCE }, None, Part::Fence { data }, until, cx);
    }

    /// The members here are in the construction of a group.
    pub(in crate::job::pmix) fn fence_group(
        &mut self,
        id: u64,
        members: Members,
        name: String,
        data: Bytes,
        until: Option<Instant>,
        cx: &mut Context<'_>,
    ) {
        let Some(pmix) = &mut self.pmix else { return };
        pmix.fences.contexts += 1;
        let node = self.facts.node.unwrap_or_default();
        let context = u64::from(node.0 + 1) << 32 | u64::from(pmix.fences.contexts);
        let group = Group { members, tag: tag(&name) };
        self.enter_subset(id, group, Some(name.clone()), Part::Group { name, context, data }, until, cx);
    }

    fn enter_subset(
        &mut self,
        id: u64,
        group: Group,
        name: Option<String>,
        part: Part,
        until: Option<Instant>,
        cx: &mut Context<'_>,
    ) {
        if !self.begin_ask(id, Waits::Subset, until, cx) {
            return;
        }
        if matches!(&group.members, Members::List(runs) if runs.iter().map(|run| run.count as usize).sum::<usize>() > GROUP_RANKS_MAX)
        {
            return self.not_here(id, cx);
        }
        let Job { pmix: Some(pmix), processes, facts, .. } = self else { return };
        let Fences { groups, rounds, .. } = &mut pmix.fences;
        let comes = |(local, process): (usize, &Process)| {
            let local = LocalRank(local as u16);
            (group.members.contains(process.rank) && !groups.has_departed(local)).then_some(local)
        };
        let coming: Vec<LocalRank> = processes.iter().enumerate().filter_map(comes).collect();
        if coming.is_empty() {
            return self.refuse_ask(id, Status::RankGone, cx);
        }
        rounds.entry(group.clone()).or_default().push_back(Round { id, name });
        let mut pairs = Vec::new();
        block::push(&mut pairs, facts.own_node(), false, &peer::encode(&part));
        let mut pairs = Bytes::from(pairs);
        let mut next = Vec::new();
        for local in coming {
            let spread = || facts.spread(&group.members);
            groups.enter(cx.now, group.clone(), spread, local, std::mem::take(&mut pairs), &mut next);
        }
        self.carry_out_subsets(next, cx);
        self.excuse_departed(cx);
    }

    /// A frame of a barrier of servers; the group was read, and its payload is what follows.
    pub(in crate::job) fn on_subset_frame(
        &mut self,
        from: Option<AgentId>,
        group: Group,
        frame: Frame,
        cx: &mut Context<'_>,
    ) {
        let child = from.map(|agent| self.child_index(agent));
        let Job { pmix: Some(pmix), facts, .. } = self else { return };
        let groups = &mut pmix.fences.groups;
        let members = group.members.clone();
        let spread = || facts.spread(&members);
        let mut next = Vec::new();
        match (child, frame.stream & !OF_SERVERS) {
            (Some(None), _) => return,
            (Some(Some(child)), _) => groups.on_up(cx.now, child, group, spread, frame.payload, &mut next),
            (None, ASK) => groups.on_ask(cx.now, group, spread, frame.arg, &mut next),
            (None, _) => groups.on_down(group, frame.payload, &mut next),
        }
        self.carry_out_subsets(next, cx);
        self.excuse_departed(cx);
    }

    pub(in crate::job::pmix) fn check_subsets(&mut self, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        let mut next = Vec::new();
        pmix.fences.groups.on_tick(cx.now, &mut next);
        self.carry_out_subsets(next, cx);
    }

    /// A rank here will enter nothing any more.
    pub(in crate::job) fn on_member_departed(&mut self, local: LocalRank, departed: Departed, cx: &mut Context<'_>) {
        if let Some(pmix) = &mut self.pmix {
            pmix.fences.groups.on_departed(local, departed);
            self.excuse_departed(cx);
        }
    }

    /// Nobody is left below a child.
    pub(in crate::job) fn on_members_gone(&mut self, child: usize, cx: &mut Context<'_>) {
        if let Some(pmix) = &mut self.pmix {
            pmix.fences.groups.on_child_done(child);
            self.excuse_departed(cx);
        }
    }

    fn excuse_departed(&mut self, cx: &mut Context<'_>) {
        let node = self.facts.node.unwrap_or_default();
        let Some(pmix) = &mut self.pmix else { return };
        let mut next = Vec::new();
        pmix.fences.groups.excuse(|_: Left| gone(node), &mut next);
        self.carry_out_subsets(next, cx);
    }

    fn carry_out_subsets(&mut self, next: Vec<Do>, cx: &mut Context<'_>) {
        for one in next {
            match one {
                Do::Up { group, pairs } => {
                    if let Some(frame) = self.subset_frame(Kind::GroupUp, OVER, 0, &group, &pairs, cx) {
                        cx.send_up(frame);
                    }
                }
                Do::Down { group, child, pairs } => {
                    if let Some(frame) = self.subset_frame(Kind::GroupDown, OVER, 0, &group, &pairs, cx) {
                        cx.send_child(self.children[child].agent, frame);
                    }
                }
                Do::Ask { group, child, seen } => {
                    if let Some(frame) = self.subset_frame(Kind::GroupDown, ASK, seen, &group, &[], cx) {
                        cx.send_child(self.children[child].agent, frame);
                    }
                }
                Do::Over { group, pairs, .. } => self.on_subset_over(&group, pairs, cx),
                Do::Fail { problem } => self.fail_here(Cause::Pmi { problem }, cx),
            }
        }
    }

    /// `None`: it would be longer than any may be; the job ends.
    fn subset_frame(
        &mut self,
        kind: Kind,
        stream: u16,
        arg: u32,
        group: &Group,
        pairs: &[u8],
        cx: &mut Context<'_>,
    ) -> Option<Frame> {
        let frame = self.group_frame(kind, stream | OF_SERVERS, arg, group, pairs);
        if frame.payload.len() <= FRAME_PAYLOAD_MAX {
            return Some(frame);
        }
        self.fail_here(Cause::PmixServer { problem: too_much(frame.payload.len()) }, cx);
        None
    }

    fn on_subset_over(&mut self, group: &Group, pairs: Bytes, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        let Some(rounds) = pmix.fences.rounds.get_mut(group) else { return };
        let Some(Round { id, name }) = rounds.pop_front() else { return };
        if rounds.is_empty() {
            pmix.fences.rounds.remove(group);
        }
        let answer = match came(pairs, name.as_deref()) {
            Ok(Came::Fence(data)) => Answer::fenced(&data),
            Ok(Came::Group { context, data }) => Answer::Grouped { context, data },
            Ok(Came::Gone) => Answer::Status(Status::RankGone),
            Err(problem) => return self.fail_here(Cause::Pmi { problem }, cx),
        };
        self.answer_ask(id, answer, cx);
    }
}
