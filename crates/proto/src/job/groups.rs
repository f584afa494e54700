//! Carries out barriers and other collectives of groups: frames in and out, answers, departed members.
//!
//! `crate::collective::groups` tracks which members have entered and which are awaited. PMIx servers have separate
//! barriers, marked by a bit of `stream`.

use super::cx::Cx;
use super::facts::Facts;
use crate::collective::groups::{Action, Groups, Left, Stall};
use crate::pmi_server::kvs::Mark;
use crate::time::Instant;
use bytes::Bytes;
use wireup_coll::tree::Hop;
use wireup_wire::frame::{DownFrame, Frame, FrameKind, UpFrame};
use wireup_wire::group::{Group, Members, Purpose};
use wireup_wire::ids::{LocalRank, NodeId, Rank};
use wireup_wire::peer::{Cause, Departed, ExchangeTraffic, Failure};

/// Values of `stream` in a frame to a child. `OVER`: the barrier is complete; `ASK`: the parent waits for members.
pub const OVER: u16 = 0;
pub const ASK: u16 = 1;
/// Bit of a frame's `stream`: the barrier belongs to PMIx servers.
pub const OF_SERVERS: u16 = 2;

pub struct Barriers {
    groups: Groups,
    traffic: ExchangeTraffic,
    /// Whether something has happened since the last check for members that will not enter.
    has_changed: bool,
}

/// A barrier's frame whose group has been parsed; `frame.payload` is the rest.
pub struct Arrived {
    /// The child that has sent the frame; `None`: the parent.
    pub child: Option<usize>,
    pub group: Group,
    pub frame: Frame,
}

impl Arrived {
    /// # Errors
    /// A message: no correct agent sends such a frame.
    pub fn read(facts: &Facts, child: Option<usize>, mut frame: Frame) -> Result<Arrived, String> {
        let (group, len) = Group::decode(&frame.payload, facts.job_size).map_err(|malformed| malformed.to_string())?;
        if group.members == Members::Node {
            return Err("a barrier within one node was sent to another node".into());
        }
        frame.payload = frame.payload.split_off(len);
        Ok(Arrived { child, group, frame })
    }

    pub fn is_of_servers(&self) -> bool {
        self.frame.stream & OF_SERVERS != 0
    }

    /// Passes the frame to the barriers of its group.
    pub fn give_to(self, cx: &Cx<'_>, groups: &mut Groups, next: &mut Vec<Action>) {
        let (now, facts) = (cx.now(), cx.facts);
        let Arrived { child, group, frame } = self;
        let members = group.members.clone();
        let spread = || facts.spread(&members);
        match (child, frame.stream & !OF_SERVERS) {
            (Some(child), _) => groups.on_child_frame(now, child, group, spread, frame.payload, next),
            (None, ASK) => groups.on_ask(now, group, spread, frame.arg, next),
            (None, _) => groups.on_parent_frame(group, frame.payload, next),
        }
    }
}

/// A collective of a group that is complete.
pub struct Over {
    pub group: Group,
    /// The local members, which wait for the answer.
    pub waiting: Vec<LocalRank>,
    /// The pairs that the members' nodes have put, or the members' values.
    pub pairs: Bytes,
}

/// A barrier's frame: the group, then the data from the members' nodes.
pub fn frame(facts: &Facts, kind: impl Into<FrameKind>, stream: u16, arg: u32, group: &Group, pairs: &[u8]) -> Frame {
    let mut payload = Vec::new();
    group.encode(&mut payload);
    payload.extend_from_slice(pairs);
    facts.frame(kind, stream, arg, payload.into())
}

impl Barriers {
    pub fn new(children: usize) -> Self {
        Barriers { groups: Groups::new(children), traffic: ExchangeTraffic::default(), has_changed: false }
    }

    pub fn traffic(&self) -> ExchangeTraffic {
        self.traffic
    }

    pub fn open(&self) -> usize {
        self.groups.open()
    }

    /// The position up to which the members of this group have received the pairs put on this node.
    pub fn mark(&mut self, members: &Members) -> &mut Mark {
        self.groups.mark(members)
    }

    /// A local rank enters a collective of its group. `pairs`: the pairs put on this node that the group has not
    /// received. Returns the collectives that are complete.
    pub fn enter(&mut self, cx: &mut Cx<'_>, local: LocalRank, group: Group, pairs: Bytes) -> Vec<Over> {
        let members = group.members.clone();
        let mut next = Vec::new();
        self.groups.enter(cx.now(), group, || cx.facts.spread(&members), local, pairs, &mut next);
        self.carry_out(cx, next)
    }

    /// Handles a neighbour's frame. Returns the collectives that are complete.
    pub fn on_frame(&mut self, cx: &mut Cx<'_>, arrived: Arrived) -> Vec<Over> {
        let (bytes, stream) = (arrived.frame.payload.len(), arrived.frame.stream);
        match arrived.child {
            Some(_) => self.traffic.up.count_in(bytes),
            None if stream == ASK => {}
            None => self.traffic.down.count_in(bytes),
        }
        let mut next = Vec::new();
        arrived.give_to(cx, &mut self.groups, &mut next);
        self.carry_out(cx, next)
    }

    /// Asks for members that are awaited, if that is due. Returns the collectives that are complete.
    pub fn on_tick(&mut self, cx: &mut Cx<'_>) -> Vec<Over> {
        let mut next = Vec::new();
        self.groups.on_tick(cx.now(), &mut next);
        self.carry_out(cx, next)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.groups.deadline()
    }

    /// A local rank will enter no more barriers.
    pub fn on_departed(&mut self, local: LocalRank, departed: Departed) {
        self.groups.on_departed(local, departed);
        self.has_changed = true;
    }

    /// No rank is left in a child's subtree.
    pub fn on_child_done(&mut self, child: usize) {
        self.groups.on_child_done(child);
        self.has_changed = true;
    }

    pub fn stall_deadline(&self, after_ns: u64) -> Option<Instant> {
        self.groups.stall_deadline(after_ns)
    }

    pub fn on_asked(&mut self) {
        self.groups.on_asked();
    }

    pub fn stalls(&self) -> impl Iterator<Item = Stall> {
        self.groups.stalls()
    }

    fn carry_out(&mut self, cx: &mut Cx<'_>, next: Vec<Action>) -> Vec<Over> {
        let (facts, mut all) = (cx.facts, Vec::new());
        self.has_changed = true;
        for one in next {
            match one {
                Action::Up { group, pairs } => {
                    self.traffic.up.count_out(pairs.len());
                    cx.up(frame(facts, UpFrame::GroupUp, OVER, 0, &group, &pairs));
                }
                Action::Down { group, child, pairs } => {
                    self.traffic.down.count_out(pairs.len());
                    cx.for_child(child, frame(facts, DownFrame::GroupDown, OVER, 0, &group, &pairs));
                }
                Action::Ask { group, child, seen } => {
                    cx.for_child(child, frame(facts, DownFrame::GroupDown, ASK, seen, &group, &[]));
                }
                Action::Over { group, waiting, pairs } => all.push(Over { group, waiting, pairs }),
                Action::Fail { problem } => cx.fail_here(Cause::Pmi { problem }),
            }
        }
        all
    }

    /// Ends the job if others wait for members that will not enter.
    pub fn check_broken(&mut self, cx: &mut Cx<'_>) {
        if !std::mem::take(&mut self.has_changed) {
            return;
        }
        let Some((left, group)) = self.groups.broken() else { return };
        let words = words(group);
        match left {
            Left::Here(departed) => cx.fail_departed(departed, Cause::LeftGroup { group: words, exit: departed.exit }),
            Left::Below(child) => {
                let (rank, node) = member_below(cx.facts, &group.members, child);
                // A rank that left in any other way has already failed the job.
                let cause = Cause::LeftGroup { group: words, exit: Some(0) };
                let host = cx.facts.name_of(node);
                cx.fail(Failure { node, host, rank: Some(rank), pid: None, cause });
            }
        }
    }
}

/// The first member below a child.
fn member_below(facts: &Facts, members: &Members, child: usize) -> (Rank, NodeId) {
    let agent = facts.below[child];
    let mut all = (0..facts.job_size).map(Rank).filter(|rank| members.contains(*rank));
    let place = |rank| Some((rank, facts.mapping.place(rank)?.0));
    let is_below = |node: NodeId| facts.tree.next_hop(facts.agent_of(node)) == Hop::Child(agent);
    let found = all.find_map(|rank| place(rank).filter(|(_, node)| is_below(*node)));
    found.expect("an awaited child has members below it")
}

/// A description of a group, for messages.
pub fn words(group: &Group) -> String {
    match group.purpose {
        Purpose::Barrier => format!("{} (tag {})", group.members, group.tag),
        // The tag of a gather is a number of the client, which tells a user nothing.
        Purpose::Gather => group.members.to_string(),
    }
}
