//! Barriers of groups (PMI 1.2), and collectives in which each member gets the values of all: which members have
//! entered, which are awaited, and the pairs that they have put, or their values.
//!
//! A barrier is identified by its ranks and a tag; several may be in progress, and one may be entered again before its
//! last round has ended everywhere. Rounds have no numbers: each member enters them in order, and links keep the order.
//!
//! ```text
//!   member enters ─► all members below have entered ─► up ─► … ─► apex: all have entered
//!   member answered ◄───────────────────────────────── down ◄───────┘
//! ```
//!
//! The apex is the lowest agent that has all members below it: a barrier of one node's ranks needs no message; others
//! go only as high as necessary, and down only to the agents of members. The puts of the members' nodes travel along,
//! since members may get each other's pairs afterwards.
//!
//! A member that has departed would be awaited forever. Its agent knows of the departure but may not know that a rank
//! waits. So an agent that waits for long asks the agents below for the missing members; if one has departed, the job
//! fails. The question carries `seen`, the number of frames that had arrived from the child, so that the child ignores
//! a question which a frame still in transit answers. If a child has reported that no rank is left in its subtree, no
//! member will come from there.
//!
//! Cost: one frame up and one down per link between the members' agents and the apex.
//!
//! The ranks have one [`Barriers`], and PMIx servers have another, whose frames are marked by a bit of `stream`.

#[cfg(test)]
mod tests;

use crate::job::cx::Cx;
use crate::job::facts::Facts;
use crate::pmi_server::kvs::Mark;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_coll::tree::Hop;
use wireup_wire::frame::{DownFrame, Frame, UpFrame};
use wireup_wire::group::{Group, Members, Purpose};
use wireup_wire::ids::{LocalRank, NodeId, Rank};
use wireup_wire::limits::FRAME_PAYLOAD_MAX;
use wireup_wire::peer::{Cause, Departed, ExchangeTraffic, Failure};

/// How long an agent waits in a round before it asks the agents below for the missing members (ns). Chosen: far longer
/// than a barrier takes, short for a person.
pub const ASK_AFTER_NS: u64 = 500_000_000;

/// Most entries of `marks` (one for each set of ranks). When it is full all marks are dropped, so that pairs are sent
/// again.
const MARKS_MAX: usize = 256;

/// A member that will not enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    Here(Departed),
    /// A member in the subtree of the child with this index. No rank is left in that subtree.
    Below(usize),
}

/// The members of one barrier on this node: how many wait in it, and which are missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stall {
    pub group: Group,
    pub arrived: u32,
    pub missing: Vec<LocalRank>,
}

pub struct Barriers {
    /// Whether these are the barriers of PMIx servers.
    are_of_servers: bool,
    pub traffic: ExchangeTraffic,
    /// Whether something has happened since the last check for members that will not enter.
    has_changed: bool,
    live: BTreeMap<Group, Barrier>,
    marks: BTreeMap<Members, Mark>,
    /// Local ranks that will enter no more barriers.
    departed: BTreeMap<LocalRank, Departed>,
    /// Children with no rank left in their subtrees.
    done: Vec<bool>,
    /// Numbers of frames that reported a round as complete: received from each child (`ups_in`), sent to the parent
    /// (`ups_out`).
    ups_in: Vec<u32>,
    ups_out: u32,
}

struct Barrier {
    spread: Spread,
    /// Rounds in progress, oldest first; never empty.
    rounds: VecDeque<Round>,
}

struct Round {
    /// The time when the first member entered, or the first frame of the round arrived.
    since: Instant,
    /// Local ranks that have entered the round, in order of arrival.
    waiting: Vec<LocalRank>,
    /// Whether each local member has entered, by its index in `Spread::locals`.
    locals_in: Vec<bool>,
    children_in: Vec<bool>,
    /// Number of local members and children that are missing.
    left: usize,
    pairs: Vec<Bytes>,
    /// Number of the frame that reported the round to the parent, once that frame was sent.
    up: Option<u32>,
    /// Whether the parent has reported that the round is complete.
    is_answered: bool,
    /// Whether this agent has asked its children for the missing members.
    asked: bool,
    /// Whether the round was included in a stall report.
    reported: bool,
}

impl Barriers {
    /// The state of an agent without barriers. `children`: the number of the job's children at this agent.
    pub fn new(children: usize, are_of_servers: bool) -> Self {
        Barriers {
            are_of_servers,
            traffic: ExchangeTraffic::default(),
            has_changed: false,
            live: BTreeMap::new(),
            marks: BTreeMap::new(),
            departed: BTreeMap::new(),
            done: vec![false; children],
            ups_in: vec![0; children],
            ups_out: 0,
        }
    }

    /// The mark of this set of ranks: the position in the node's pairs up to which they were sent to the set.
    pub fn mark(&mut self, members: &Members) -> &mut Mark {
        if self.marks.len() >= MARKS_MAX && !self.marks.contains_key(members) {
            self.marks.clear();
        }
        self.marks.entry(members.clone()).or_default()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.rounds().filter_map(|(_, _, round)| round.ask_at()).min()
    }

    /// A departed member for which other members wait in a barrier, and the group of the barrier.
    fn broken(&self) -> Option<(Left, &Group)> {
        self.rounds().find_map(|(group, spread, round)| {
            let here = round.missing(spread).find_map(|local| self.departed.get(&local)).map(|one| Left::Here(*one));
            let below = || round.missing_children(spread).find(|child| self.done[*child]).map(Left::Below);
            here.or_else(below).map(|left| (left, group))
        })
    }

    /// Whether a local rank will enter no more barriers.
    pub fn has_departed(&self, local: LocalRank) -> bool {
        self.departed.contains_key(&local)
    }

    /// Time at which the first round that was not reported has waited for `after_ns`.
    pub fn stall_deadline(&self, after_ns: u64) -> Option<Instant> {
        let waits = self.rounds().filter(|(_, _, round)| after_ns > 0 && !round.reported);
        waits.map(|(_, _, round)| round.since + after_ns).min()
    }

    /// Records that a stall report is made now: rounds in progress are not reported again.
    pub fn on_asked(&mut self) {
        self.live.values_mut().flat_map(|barrier| &mut barrier.rounds).for_each(|round| round.reported = true);
    }

    /// The barriers in which members on this node wait or are awaited.
    pub fn stalls(&self) -> impl Iterator<Item = Stall> {
        let here = self.rounds().filter(|(_, spread, _)| !spread.locals.is_empty());
        here.map(|(group, spread, round)| Stall {
            group: group.clone(),
            arrived: round.waiting.len() as u32,
            missing: round.missing(spread).collect(),
        })
    }

    /// Number of rounds that are not complete on this agent.
    pub fn open(&self) -> usize {
        self.rounds().count()
    }

    fn rounds(&self) -> impl Iterator<Item = (&Group, &Spread, &Round)> {
        self.live
            .iter()
            .flat_map(|(group, Barrier { spread, rounds })| rounds.iter().map(move |round| (group, spread, round)))
    }
}

impl Barrier {
    /// Handles a child's report that all members below it have entered. Returns whether there are members below it.
    fn on_child(&mut self, now: Instant, child: usize, pairs: Bytes) -> bool {
        let Some(place) = self.spread.children.iter().position(|one| *one == child) else { return false };
        let round = self.round(now, |round| !round.children_in[place]);
        round.children_in[place] = true;
        round.add(pairs);
        true
    }

    /// Handles the parent's report that the oldest round is complete. Returns whether this agent had reported that
    /// round to the parent.
    fn on_parent(&mut self, pairs: Bytes) -> bool {
        let Some(round) = self.rounds.front_mut().filter(|round| round.up.is_some()) else { return false };
        round.is_answered = true;
        round.pairs = vec![pairs];
        true
    }

    /// Handles the parent's question for missing members of this subtree; when it was sent, `seen` frames of this agent
    /// had arrived. Returns the children that must be asked in turn.
    fn on_ask(&mut self, now: Instant, seen: u32) -> Vec<usize> {
        let is_on_its_way = |round: &Round| round.up.is_some_and(|up| up.wrapping_sub(seen) as i32 > 0);
        if self.rounds.iter().any(is_on_its_way) {
            return Vec::new();
        }
        self.round(now, |round| round.left > 0);
        let Barrier { spread, rounds } = self;
        let round = rounds.iter_mut().find(|round| round.left > 0 && !round.asked);
        round.map(|round| round.ask(spread)).unwrap_or_default()
    }

    /// The oldest round for which `is_open` holds, or a new one.
    fn round(&mut self, now: Instant, is_open: impl FnMut(&Round) -> bool) -> &mut Round {
        let at = self.rounds.iter().position(is_open).unwrap_or_else(|| {
            let Spread { locals, children, .. } = &self.spread;
            self.rounds.push_back(Round {
                since: now,
                waiting: Vec::new(),
                locals_in: vec![false; locals.len()],
                children_in: vec![false; children.len()],
                left: locals.len() + children.len(),
                pairs: Vec::new(),
                up: None,
                is_answered: false,
                asked: false,
                reported: false,
            });
            self.rounds.len() - 1
        });
        &mut self.rounds[at]
    }
}

impl Round {
    /// Members on this node that have not entered.
    fn missing<'a>(&'a self, spread: &'a Spread) -> impl Iterator<Item = LocalRank> + 'a {
        spread.locals.iter().zip(&self.locals_in).filter(|(_, is_in)| !**is_in).map(|(local, _)| *local)
    }

    fn missing_children<'a>(&'a self, spread: &'a Spread) -> impl Iterator<Item = usize> + 'a {
        spread.children.iter().zip(&self.children_in).filter(|(_, is_in)| !**is_in).map(|(child, _)| *child)
    }

    fn ask_at(&self) -> Option<Instant> {
        (!self.asked && self.children_in.contains(&false)).then(|| self.since + ASK_AFTER_NS)
    }

    /// Records that the missing children are asked for; returns them.
    fn ask(&mut self, spread: &Spread) -> Vec<usize> {
        self.asked = true;
        self.missing_children(spread).collect()
    }

    /// Counts a local rank or a child as entered, and adds its pairs.
    fn add(&mut self, pairs: Bytes) {
        self.left -= 1;
        self.pairs.push(pairs);
    }

    fn take_pairs(&mut self) -> Bytes {
        let mut pairs = std::mem::take(&mut self.pairs);
        if pairs.len() == 1 { pairs.remove(0) } else { pairs.concat().into() }
    }
}

/// The members of a group, from the viewpoint of one agent of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spread {
    /// Local ranks that are members, in ascending order.
    pub locals: Vec<LocalRank>,
    /// Children with members below them, by index among the job's children; in ascending order.
    pub children: Vec<usize>,
    /// Whether all members are in this agent's subtree.
    pub apex: bool,
}

impl Spread {
    /// Finds the members. Cost: one look-up for each rank of a list.
    pub fn new(facts: &Facts, members: &Members) -> Spread {
        let Facts { mapping, below, .. } = facts;
        let all = || (0..facts.local_size() as u16).map(LocalRank).collect();
        let runs = match members {
            Members::World => return Spread { locals: all(), children: (0..below.len()).collect(), apex: facts.root },
            Members::Node => return Spread { locals: all(), children: Vec::new(), apex: true },
            Members::List(runs) => runs,
        };
        let mut spread = Spread { locals: Vec::new(), children: Vec::new(), apex: true };
        let mut looked_at = Vec::new();
        for rank in runs.iter().flat_map(|run| run.first..run.first + run.count).map(Rank) {
            let (of, local) = mapping.place(rank).expect("a group was parsed with the size of the job");
            if Some(of) == facts.node {
                spread.locals.push(local);
            }
            if looked_at.len() <= of.index() {
                looked_at.resize(of.index() + 1, false);
            }
            if std::mem::replace(&mut looked_at[of.index()], true) {
                continue;
            }
            match facts.tree.next_hop(facts.agent_of(of)) {
                Hop::Here => {}
                Hop::Child(agent) => {
                    let place = below.binary_search(&agent);
                    spread.children.push(place.expect("a child with ranks below it is in the job"));
                }
                Hop::Parent => spread.apex = false,
            }
        }
        spread.locals.sort_unstable();
        spread.children.sort_unstable();
        spread.children.dedup();
        spread
    }
}

/// Values of `stream` in a frame to a child. `OVER`: the barrier is complete; `ASK`: the parent waits for members.
const OVER: u16 = 0;
const ASK: u16 = 1;
/// Bit of a frame's `stream`: the barrier belongs to PMIx servers.
const OF_SERVERS: u16 = 2;

/// A frame of a barrier whose group has been parsed; `frame.payload` has only the bytes after the group.
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
    /// The result of the collective: for a barrier the key-value pairs that ranks on the members' nodes have put, for
    /// others the values of the members.
    pub pairs: Bytes,
}

impl Barriers {
    /// A local rank enters a collective of its group. `pairs`: the pairs that were put on this node and not sent to the
    /// group yet. Returns the collectives that are complete.
    pub fn enter(&mut self, cx: &mut Cx<'_>, local: LocalRank, group: Group, pairs: Bytes) -> Vec<Over> {
        let mut barrier = self.take(cx, &group);
        let place = barrier.spread.locals.binary_search(&local).expect("its connection has checked that");
        let round = barrier.round(cx.now(), |round| !round.locals_in[place]);
        round.locals_in[place] = true;
        round.waiting.push(local);
        round.add(pairs);
        self.settle(cx, group, barrier)
    }

    /// Handles a neighbour's frame. Returns the collectives that are complete.
    pub fn on_frame(&mut self, cx: &mut Cx<'_>, arrived: Arrived) -> Vec<Over> {
        let Arrived { child, group, frame: Frame { stream, arg, payload, .. } } = arrived;
        let mut barrier = self.take(cx, &group);
        let is_expected = match child {
            Some(child) => {
                self.traffic.up.count_in(payload.len());
                self.ups_in[child] = self.ups_in[child].wrapping_add(1);
                barrier.on_child(cx.now(), child, payload)
            }
            None if stream & ASK != 0 => {
                let children = barrier.on_ask(cx.now(), arg);
                self.ask(cx, &group, children);
                true
            }
            None => {
                self.traffic.down.count_in(payload.len());
                barrier.on_parent(payload)
            }
        };
        if !is_expected {
            let problem = format!("unexpected message for the barrier of {} (tag {})", group.members, group.tag);
            cx.fail_here(Cause::Pmi { problem });
        }
        self.settle(cx, group, barrier)
    }

    /// Asks for the missing members of rounds that have waited for long.
    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        self.has_changed = true;
        let (now, mut asked) = (cx.now(), Vec::new());
        for (group, Barrier { spread, rounds }) in &mut self.live {
            for round in rounds.iter_mut().filter(|round| round.ask_at().is_some_and(|at| now >= at)) {
                asked.push((group.clone(), round.ask(spread)));
            }
        }
        asked.into_iter().for_each(|(group, children)| self.ask(cx, &group, children));
    }

    /// Asks these children for members below them.
    fn ask(&self, cx: &mut Cx<'_>, group: &Group, children: Vec<usize>) {
        children.into_iter().for_each(|child| self.send(cx, Some(child), (ASK, self.ups_in[child]), group, &[]));
    }

    /// Records that a local rank will enter no more barriers.
    pub fn on_departed(&mut self, local: LocalRank, departed: Departed) {
        self.departed.insert(local, departed);
        self.has_changed = true;
    }

    /// Records that no rank is left in a child's subtree.
    pub fn on_child_done(&mut self, child: usize) {
        self.done[child] = true;
        self.has_changed = true;
    }

    /// Completes rounds without members that will not enter: `instead` takes the place of each such member's data.
    /// Returns the collectives that are complete.
    pub fn excuse(&mut self, cx: &mut Cx<'_>, instead: &Bytes) -> Vec<Over> {
        let Barriers { live, departed, done, .. } = self;
        let mut changed = BTreeSet::new();
        for (group, Barrier { spread, rounds }) in live {
            for round in rounds {
                let locals = spread.locals.iter().map(|local| departed.contains_key(local)).zip(&mut round.locals_in);
                let children = spread.children.iter().map(|child| done[*child]).zip(&mut round.children_in);
                for (_, is_in) in locals.chain(children).filter(|(is_gone, is_in)| *is_gone && !**is_in) {
                    *is_in = true;
                    round.left -= 1;
                    round.pairs.push(instead.clone());
                    changed.insert(group.clone());
                }
            }
        }
        let mut all = Vec::new();
        for group in changed {
            let barrier = self.take(cx, &group);
            all.extend(self.settle(cx, group, barrier));
        }
        all
    }

    /// Removes and returns the barrier of a group, or a new one if none is in progress; [`Barriers::settle`] stores it
    /// again.
    fn take(&mut self, cx: &Cx<'_>, group: &Group) -> Barrier {
        self.has_changed = true;
        let new = || Barrier { spread: Spread::new(cx.facts, &group.members), rounds: VecDeque::new() };
        self.live.remove(group).unwrap_or_else(new)
    }

    /// Ends completed rounds, or reports them to the parent, and forgets a barrier without rounds. Returns the
    /// collectives that are complete.
    fn settle(&mut self, cx: &mut Cx<'_>, group: Group, mut barrier: Barrier) -> Vec<Over> {
        let Barrier { spread, rounds } = &mut barrier;
        let mut all = Vec::new();
        while rounds.front().is_some_and(|round| round.is_answered || spread.apex && round.left == 0)
            && let Some(mut round) = rounds.pop_front()
        {
            let pairs = round.take_pairs();
            for child in &spread.children {
                self.traffic.down.count_out(pairs.len());
                self.send(cx, Some(*child), (OVER, 0), &group, &pairs);
            }
            if !round.waiting.is_empty() {
                all.push(Over { group: group.clone(), waiting: round.waiting, pairs });
            }
        }
        for round in rounds.iter_mut().filter(|round| !spread.apex && round.left == 0 && round.up.is_none()) {
            self.ups_out = self.ups_out.wrapping_add(1);
            round.up = Some(self.ups_out);
            let pairs = round.take_pairs();
            self.traffic.up.count_out(pairs.len());
            self.send(cx, None, (OVER, 0), &group, &pairs);
        }
        if !rounds.is_empty() {
            self.live.insert(group, barrier);
        }
        all
    }

    /// Sends a barrier's frame to a child or (`None`) to the parent: the group, then the data from the members' nodes.
    /// The job ends if the frame is too long to be sent.
    fn send(&self, cx: &mut Cx<'_>, child: Option<usize>, (stream, arg): (u16, u32), group: &Group, pairs: &[u8]) {
        let mut payload = Vec::new();
        group.encode(&mut payload);
        payload.extend_from_slice(pairs);
        let bytes = payload.len();
        if bytes > FRAME_PAYLOAD_MAX {
            let cause = match self.are_of_servers {
                true => Cause::PmixServer { problem: too_much(bytes).into() },
                false => Cause::Pmi { problem: format!("a barrier of {} has {bytes} bytes of pairs", words(group)) },
            };
            return cx.fail_here(cause);
        }
        let stream = if self.are_of_servers { stream | OF_SERVERS } else { stream };
        match child {
            Some(child) => {
                cx.agent.links.send_peer(
                    cx.facts.below[child],
                    cx.facts.frame(DownFrame::GroupDown, stream, arg, payload.into()),
                );
            }
            None => {
                cx.agent.links.send_job_up(cx.common.up, cx.facts.frame(UpFrame::GroupUp, stream, arg, payload.into()))
            }
        }
    }

    /// Fails the job if members wait in a barrier for members that will not enter it.
    pub fn check_broken(&mut self, cx: &mut Cx<'_>) {
        if !std::mem::take(&mut self.has_changed) {
            return;
        }
        let Some((left, group)) = self.broken() else { return };
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
        // The tag of a gather is a number that the client chose, which means nothing to a user.
        Purpose::Gather => group.members.to_string(),
    }
}
