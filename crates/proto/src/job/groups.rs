//! Barriers of groups as this agent carries them out: where members are, frames in and out, answers, departed members.

use super::pmix::OF_SERVERS;
use super::{Context, Job};
use crate::groups::{Do, Left};
use crate::io::Output;
use bytes::Bytes;
use wireup_coll::tree::Hop;
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::group::{Group, Members};
use wireup_wire::ids::{AgentId, LocalRank, NodeId, Rank};
use wireup_wire::limits::STALL_NAMES_MAX;
use wireup_wire::peer::{Cause, Failure, GroupStall};

/// `stream` of a frame down: the barrier is over; members are waited for.
pub(super) const OVER: u16 = 0;
pub(super) const ASK: u16 = 1;

impl Job {
    pub(super) fn on_enter_group(&mut self, local: LocalRank, group: Group, cx: &mut Context<'_>) {
        let pairs = self.kvs.pending_since(self.groups.mark(&group.members));
        let Job { groups, facts, .. } = self;
        let members = group.members.clone();
        let spread = || facts.spread(&members);
        let mut next = Vec::new();
        groups.enter(cx.now, group, spread, local, pairs, &mut next);
        self.carry_out_groups(next, cx);
    }

    /// A frame along the tree: a child's, or (`None`) the parent's.
    pub(super) fn on_group(&mut self, from: Option<AgentId>, mut frame: Frame, cx: &mut Context<'_>) {
        let group = match Group::decode(&frame.payload, self.facts.job_size) {
            Ok((group, len)) if group.members != Members::Node => {
                let pairs = frame.payload.split_off(len);
                frame.payload = pairs;
                group
            }
            Ok(_) => return self.fail_group("the barrier of a node's ranks reached another node".into(), cx),
            Err(malformed) => return self.fail_group(malformed.to_string(), cx),
        };
        if frame.stream & OF_SERVERS != 0 {
            return self.on_subset_frame(from, group, frame, cx);
        }
        let bytes = frame.payload.len();
        let child = from.map(|agent| self.child_index(agent));
        let Job { groups, facts, traffic, .. } = self;
        let members = group.members.clone();
        let spread = || facts.spread(&members);
        let mut next = Vec::new();
        match (child, frame.stream) {
            (Some(None), _) => return,
            (Some(Some(child)), _) => {
                traffic.up.count_in(bytes);
                groups.on_up(cx.now, child, group, spread, frame.payload, &mut next);
            }
            (None, ASK) => groups.on_ask(cx.now, group, spread, frame.arg, &mut next),
            (None, _) => {
                traffic.down.count_in(bytes);
                groups.on_down(group, frame.payload, &mut next);
            }
        }
        self.carry_out_groups(next, cx);
    }

    pub(super) fn check_groups(&mut self, cx: &mut Context<'_>) {
        let mut next = Vec::new();
        self.groups.on_tick(cx.now, &mut next);
        self.carry_out_groups(next, cx);
    }

    fn carry_out_groups(&mut self, next: Vec<Do>, cx: &mut Context<'_>) {
        for one in next {
            match one {
                Do::Up { group, pairs } => {
                    self.traffic.up.count_out(pairs.len());
                    let frame = self.group_frame(Kind::GroupUp, OVER, 0, &group, &pairs);
                    cx.send_up(frame);
                }
                Do::Down { group, child, pairs } => {
                    self.traffic.down.count_out(pairs.len());
                    let frame = self.group_frame(Kind::GroupDown, OVER, 0, &group, &pairs);
                    cx.send_child(self.children[child].agent, frame);
                }
                Do::Ask { group, child, seen } => {
                    let frame = self.group_frame(Kind::GroupDown, ASK, seen, &group, &[]);
                    cx.send_child(self.children[child].agent, frame);
                }
                Do::Over { group, waiting, pairs } => self.on_group_over(&group, waiting, pairs, cx),
                Do::Fail { problem } => self.fail_group(problem, cx),
            }
        }
        self.check_group_broken(cx);
    }

    pub(super) fn group_frame(&self, kind: Kind, stream: u16, arg: u32, group: &Group, pairs: &[u8]) -> Frame {
        let mut payload = Vec::new();
        group.encode(&mut payload);
        payload.extend_from_slice(pairs);
        Frame { kind, class: Class::Exchange, stream, job: self.id().0, arg, payload: payload.into() }
    }

    fn on_group_over(&mut self, group: &Group, waiting: Vec<LocalRank>, pairs: Bytes, cx: &mut Context<'_>) {
        if let Err(error) = self.kvs.commit(vec![pairs], cx.memory) {
            return self.fail_group(error.to_string(), cx);
        }
        for local in waiting {
            let mut reply = Vec::new();
            self.processes[local.index()].link.answer_group(group.tag, &mut reply);
            if !reply.is_empty() {
                cx.out.push(Output::Reply { job: self.id(), local, bytes: reply.into(), shares: Vec::new() });
            }
        }
    }

    fn fail_group(&mut self, problem: String, cx: &mut Context<'_>) {
        self.fail_here(Cause::Pmi { problem }, cx);
    }

    pub(super) fn check_group_broken(&mut self, cx: &mut Context<'_>) {
        let Some((left, group)) = self.groups.broken() else {
            return;
        };
        let words = words(group);
        match left {
            Left::Here(departed) => {
                let cause = Cause::LeftGroup { group: words, exit: departed.exit };
                self.fail_departed(&departed, cause, cx);
            }
            Left::Below(child) => {
                let (rank, node) = self.member_below(&group.members, child);
                // Who leaves otherwise has failed the job already.
                let cause = Cause::LeftGroup { group: words, exit: Some(0) };
                let host = self.facts.spec.nodes[node.index()].name.clone();
                self.fail(Failure { node, host, rank: Some(rank), pid: None, cause }, cx);
            }
        }
    }

    /// Nobody is left below a child.
    pub(super) fn on_child_done(&mut self, agent: AgentId, cx: &mut Context<'_>) {
        if let Some(child) = self.child_index(agent) {
            self.groups.on_child_done(child);
            self.check_group_broken(cx);
            self.on_members_gone(child, cx);
            self.on_query_child_done(child, cx);
        }
    }

    /// The first member below a child.
    fn member_below(&self, members: &Members, child: usize) -> (Rank, NodeId) {
        let agent = self.children[child].agent;
        let mut all = (0..self.facts.job_size).map(Rank).filter(|rank| members.contains(*rank));
        let place = |rank| Some((rank, self.facts.mapping.place(rank)?.0));
        let is_below = |node: NodeId| {
            let way = self.facts.tree.next_hop(self.facts.spec.nodes[node.index()].agent);
            way == Hop::Child(agent)
        };
        let found = all.find_map(|rank| place(rank).filter(|(_, node)| is_below(*node)));
        found.expect("a child that is waited for has members below it")
    }

    /// For a stall report.
    pub(super) fn group_stalls(&self) -> Vec<GroupStall> {
        let of_servers = self.pmix.iter().flat_map(|pmix| pmix.fences.groups.stalls());
        let stalls = self.groups.stalls().chain(of_servers).take(STALL_NAMES_MAX);
        let who = |local: &LocalRank| (self.processes[local.index()].rank, self.processes[local.index()].pid);
        stalls
            .map(|stall| GroupStall {
                group: words(&stall.group),
                arrived: stall.arrived,
                missing: stall.missing.iter().take(STALL_NAMES_MAX).map(who).collect(),
                missing_count: stall.missing.len() as u32,
            })
            .collect()
    }
}

fn words(group: &Group) -> String {
    format!("{} (tag {})", group.members, group.tag)
}
