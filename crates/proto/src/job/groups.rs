//! Carries out barriers and other collectives of groups: frames in and out, answers, departed members.
//!
//! `crate::collective::groups` tracks which members have entered and which are awaited. The ranks have one
//! [`Barriers`], and PMIx servers have another, whose frames are marked by a bit of `stream`.

use super::cx::Cx;
use super::facts::Facts;
use crate::collective::groups::{Action, Groups, Left};
use bytes::Bytes;
use wireup_coll::tree::Hop;
use wireup_wire::frame::{DownFrame, Frame, FrameKind, UpFrame};
use wireup_wire::group::{Group, Members, Purpose};
use wireup_wire::ids::{LocalRank, NodeId, Rank};
use wireup_wire::limits::FRAME_PAYLOAD_MAX;
use wireup_wire::peer::{Cause, Departed, ExchangeTraffic, Failure};

/// Values of `stream` in a frame to a child. `OVER`: the barrier is complete; `ASK`: the parent waits for members.
const OVER: u16 = 0;
const ASK: u16 = 1;
/// Bit of a frame's `stream`: the barrier belongs to PMIx servers.
const OF_SERVERS: u16 = 2;

pub struct Barriers {
    pub groups: Groups,
    /// Whether these are the barriers of PMIx servers.
    are_of_servers: bool,
    pub traffic: ExchangeTraffic,
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
}

/// A collective of a group that is complete.
pub struct Over {
    pub group: Group,
    /// The local members, which wait for the answer.
    pub waiting: Vec<LocalRank>,
    /// The pairs that the members' nodes have put, or the members' values.
    pub pairs: Bytes,
}

impl Barriers {
    pub fn new(children: usize) -> Self {
        let (groups, traffic) = (Groups::new(children), ExchangeTraffic::default());
        Barriers { groups, are_of_servers: false, traffic, has_changed: false }
    }

    /// The barriers of PMIx servers.
    pub fn of_servers(children: usize) -> Self {
        Barriers { are_of_servers: true, ..Barriers::new(children) }
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
        let (now, mut next) = (cx.now(), Vec::new());
        let Arrived { child, group, frame } = arrived;
        let members = group.members.clone();
        let spread = || cx.facts.spread(&members);
        match child {
            Some(child) => {
                self.traffic.up.count_in(frame.payload.len());
                self.groups.on_child_frame(now, child, group, spread, frame.payload, &mut next);
            }
            None if frame.stream & ASK != 0 => self.groups.on_ask(now, group, spread, frame.arg, &mut next),
            None => {
                self.traffic.down.count_in(frame.payload.len());
                self.groups.on_parent_frame(group, frame.payload, &mut next);
            }
        }
        self.carry_out(cx, next)
    }

    /// Asks for members that are awaited, if that is due. Returns the collectives that are complete.
    pub fn on_tick(&mut self, cx: &mut Cx<'_>) -> Vec<Over> {
        let mut next = Vec::new();
        self.groups.on_tick(cx.now(), &mut next);
        self.carry_out(cx, next)
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

    /// Lets the nodes of members that will not enter contribute this instead. Returns the collectives that are
    /// complete.
    pub fn excuse(&mut self, cx: &mut Cx<'_>, instead: impl Fn(Left) -> Bytes) -> Vec<Over> {
        let mut next = Vec::new();
        self.groups.excuse(instead, &mut next);
        self.carry_out(cx, next)
    }

    fn carry_out(&mut self, cx: &mut Cx<'_>, next: Vec<Action>) -> Vec<Over> {
        let mut all = Vec::new();
        self.has_changed = true;
        for one in next {
            match one {
                Action::Up { group, pairs } => {
                    self.traffic.up.count_out(pairs.len());
                    if let Some(frame) = self.frame(cx, UpFrame::GroupUp, (OVER, 0), &group, &pairs) {
                        cx.up(frame);
                    }
                }
                Action::Down { group, child, pairs } => {
                    self.traffic.down.count_out(pairs.len());
                    if let Some(frame) = self.frame(cx, DownFrame::GroupDown, (OVER, 0), &group, &pairs) {
                        cx.for_child(child, frame);
                    }
                }
                Action::Ask { group, child, seen } => {
                    if let Some(frame) = self.frame(cx, DownFrame::GroupDown, (ASK, seen), &group, &[]) {
                        cx.for_child(child, frame);
                    }
                }
                Action::Over { group, waiting, pairs } => all.push(Over { group, waiting, pairs }),
                Action::Fail { problem } => cx.fail_here(Cause::Pmi { problem }),
            }
        }
        all
    }

    /// A barrier's frame: the group, then the data from the members' nodes. The job ends if the frame is too long to be
    /// sent.
    fn frame(
        &self,
        cx: &mut Cx<'_>,
        kind: impl Into<FrameKind>,
        (stream, arg): (u16, u32),
        group: &Group,
        pairs: &[u8],
    ) -> Option<Frame> {
        let mut payload = Vec::new();
        group.encode(&mut payload);
        payload.extend_from_slice(pairs);
        let bytes = payload.len();
        if bytes > FRAME_PAYLOAD_MAX {
            let cause = match self.are_of_servers {
                true => Cause::PmixServer { problem: too_much(bytes).into() },
                false => Cause::Pmi { problem: format!("a barrier of {} has {bytes} bytes of pairs", words(group)) },
            };
            cx.fail_here(cause);
            return None;
        }
        let stream = if self.are_of_servers { stream | OF_SERVERS } else { stream };
        Some(cx.facts.frame(kind, stream, arg, payload.into()))
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

/// Why the data of a fence of PMIx clients cannot be sent.
pub fn too_much(bytes: usize) -> String {
    format!("its data is {bytes} bytes, more than the {FRAME_PAYLOAD_MAX} of a message; use --modex direct")
}

/// A description of a group, for messages.
pub fn words(group: &Group) -> String {
    match group.purpose {
        Purpose::Barrier => format!("{} (tag {})", group.members, group.tag),
        // The tag of a gather is a number of the client, which tells a user nothing.
        Purpose::Gather => group.members.to_string(),
    }
}
