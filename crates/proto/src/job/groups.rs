//! Carries out barriers and other collectives of groups: frames in and out, answers, departed members.
//!
//! `crate::collective::groups` tracks which members have entered and which are awaited. PMIx servers have separate
//! barriers, marked by a bit of `stream`.

use super::effect::{Effect, Effects};
use super::facts::Facts;
use crate::collective::groups::{Action, Groups, Left, Stall};
use crate::pmi_server::kvs::Mark;
use crate::time::Instant;
use bytes::Bytes;
use wireup_coll::tree::Hop;
use wireup_wire::frame::{Frame, Kind};
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
    pub fn give_to(self, now: Instant, facts: &Facts, groups: &mut Groups, next: &mut Vec<Action>) {
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

/// A barrier's frame: the group, then the data from the members' nodes.
pub fn frame(facts: &Facts, kind: Kind, stream: u16, arg: u32, group: &Group, pairs: &[u8]) -> Frame {
    let mut payload = Vec::new();
    group.encode(&mut payload);
    payload.extend_from_slice(pairs);
    facts.frame(kind, stream, arg, payload.into())
}

impl Barriers {
    pub fn new(children: usize) -> Self {
        Barriers { groups: Groups::new(children), traffic: ExchangeTraffic::default() }
    }

    pub fn traffic(&self) -> ExchangeTraffic {
        self.traffic
    }

    pub fn open(&self) -> usize {
        self.groups.open()
    }

    /// How far these ranks have seen the pairs put on this node.
    pub fn mark(&mut self, members: &Members) -> &mut Mark {
        self.groups.mark(members)
    }

    /// A local rank enters; `pairs` are those put on this node that the group has not seen.
    pub fn enter(
        &mut self,
        now: Instant,
        facts: &Facts,
        local: LocalRank,
        group: Group,
        pairs: Bytes,
        out: &mut Effects,
    ) {
        let members = group.members.clone();
        let mut next = Vec::new();
        self.groups.enter(now, group, || facts.spread(&members), local, pairs, &mut next);
        self.carry_out(facts, next, out);
    }

    pub fn on_frame(&mut self, now: Instant, facts: &Facts, arrived: Arrived, out: &mut Effects) {
        let (bytes, stream) = (arrived.frame.payload.len(), arrived.frame.stream);
        match arrived.child {
            Some(_) => self.traffic.up.count_in(bytes),
            None if stream == ASK => {}
            None => self.traffic.down.count_in(bytes),
        }
        let mut next = Vec::new();
        arrived.give_to(now, facts, &mut self.groups, &mut next);
        self.carry_out(facts, next, out);
    }

    pub fn on_tick(&mut self, now: Instant, facts: &Facts, out: &mut Effects) {
        let mut next = Vec::new();
        self.groups.on_tick(now, &mut next);
        self.carry_out(facts, next, out);
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.groups.deadline()
    }

    /// A local rank will enter no more barriers.
    pub fn on_departed(&mut self, facts: &Facts, local: LocalRank, departed: Departed, out: &mut Effects) {
        self.groups.on_departed(local, departed);
        self.check_broken(facts, out);
    }

    /// No rank is left in a child's subtree.
    pub fn on_child_done(&mut self, facts: &Facts, child: usize, out: &mut Effects) {
        self.groups.on_child_done(child);
        self.check_broken(facts, out);
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

    fn carry_out(&mut self, facts: &Facts, next: Vec<Action>, out: &mut Effects) {
        for one in next {
            match one {
                Action::Up { group, pairs } => {
                    self.traffic.up.count_out(pairs.len());
                    out.push(Effect::Up(frame(facts, Kind::GroupUp, OVER, 0, &group, &pairs)));
                }
                Action::Down { group, child, pairs } => {
                    self.traffic.down.count_out(pairs.len());
                    out.for_agent(facts.below[child], frame(facts, Kind::GroupDown, OVER, 0, &group, &pairs));
                }
                Action::Ask { group, child, seen } => {
                    out.for_agent(facts.below[child], frame(facts, Kind::GroupDown, ASK, seen, &group, &[]));
                }
                Action::Over { group, waiting, pairs } => out.push(Effect::GroupOver { group, waiting, pairs }),
                Action::Fail { problem } => out.fail_here(Cause::Pmi { problem }),
            }
        }
        self.check_broken(facts, out);
    }

    /// Ends the job if others wait for members that will not enter.
    fn check_broken(&self, facts: &Facts, out: &mut Effects) {
        let Some((left, group)) = self.groups.broken() else { return };
        let words = words(group);
        match left {
            Left::Here(departed) => {
                let cause = Cause::LeftGroup { group: words, exit: departed.exit };
                out.push(Effect::FailDeparted { departed, cause });
            }
            Left::Below(child) => {
                let (rank, node) = member_below(facts, &group.members, child);
                // A rank that left in any other way has already failed the job.
                let cause = Cause::LeftGroup { group: words, exit: Some(0) };
                out.push(Effect::Fail(Failure { node, host: facts.name_of(node), rank: Some(rank), pid: None, cause }));
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
