//! Fences of PMIx clients, and groups, which are fences with a name.
//!
//! A fence of the whole job is an exchange (`crate::exchange`) with epochs of its own; a fence of some ranks is a barrier that
//! brings data along (`crate::groups`), told apart from PMI's by a bit of its frames, from other groups' by a tag. The server
//! process speaks when all members of its node are in, so the node enters for all of them at once.
//!
//! A member that has departed: a fence of the whole job ends the job, as with PMI, since that says best which rank left
//! whom waiting. A fence of some ranks is answered `RankGone`: the others are a program of their own and may go on.
//! Its node contributes [`Part::Gone`] in its stead.
//!
//! Patience: a fence of the whole job that takes too long for one is over for all (`Up::GiveUp`, `Down::Over`), so that no node
//! counts another way than the others; so a rank that has left does not end the job while somebody waits with patience that
//! ends (`Up::Impatient`). A fence of some ranks is over for that node alone; what comes of it is not told.

use super::super::groups::{ASK, OVER};
use super::super::processes::Process;
use super::super::{Context, Job};
use super::asks::Waits;
use crate::exchange::{Entering, Entry, Exchanges, Finished, Outcome, Site};
use crate::groups::{Do, Groups, Left};
use crate::pmi_link::Ticket;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::block;
use wireup_wire::collective::Collective;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::group::{Group, Members};
use wireup_wire::ids::{AgentId, Epoch, LocalRank, NodeId};
use wireup_wire::job::Modex;
use wireup_wire::limits::{FRAME_PAYLOAD_MAX, GROUP_RANKS_MAX};
use wireup_wire::modex::{Down, Part, Up};
use wireup_wire::peer::{self, Cause, Departed};
use wireup_wire::pmix::{Answer, Status};

/// Bit of a frame's `stream`: the barrier is one of PMIx servers.
pub const OF_SERVERS: u16 = 2;

/// The tag of fences; those of groups are others.
const FENCE: i32 = 0;

pub struct Fences {
    pub exchanges: Exchanges,
    /// The request that waits for each epoch.
    asked: BTreeMap<Epoch, u64>,
    /// Epochs that somebody below will give up in time.
    pub impatient: BTreeSet<Epoch>,
    /// Epochs that were over before their time.
    given_up: BTreeMap<Epoch, Status>,
    pub groups: Groups,
    /// The requests that wait for the rounds of a barrier, the oldest first.
    rounds: BTreeMap<Group, VecDeque<Round>>,
    /// Makes contexts of groups.
    contexts: u32,
}

struct Round {
    id: u64,
    /// The group's name; none of a fence.
    name: Option<String>,
}

/// What a round of a barrier came to.
enum Came {
    Fence(Vec<u8>),
    Group { context: u64, data: Vec<Bytes> },
    Gone,
}

impl Fences {
    pub fn new(site: Site, children: usize) -> Fences {
        Fences {
            exchanges: Exchanges::new(site),
            asked: BTreeMap::new(),
            impatient: BTreeSet::new(),
            given_up: BTreeMap::new(),
            groups: Groups::new(children),
            rounds: BTreeMap::new(),
            contexts: 0,
        }
    }

    pub fn open(&self) -> usize {
        self.exchanges.open()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.groups.deadline()
    }
}

impl Job {
    /// The ranks here are in a fence of the whole job.
    pub(super) fn fence_all(
        &mut self,
        id: u64,
        collect: bool,
        data: Bytes,
        until: Option<Instant>,
        cx: &mut Context<'_>,
    ) {
        let Some(epoch) = self.pmix.as_ref().map(|pmix| pmix.fences.exchanges.next_of(LocalRank(0))) else { return };
        if !self.begin_ask(id, Waits::Fence(epoch), until, cx) {
            return;
        }
        let stays = !collect || self.spec.options.modex == Modex::Direct;
        let mut data = if stays { Bytes::new() } else { data };
        let Job { pmix: Some(pmix), processes, .. } = self else { return };
        let fences = &mut pmix.fences;
        let all = (0..processes.len() as u16).map(LocalRank);
        if let Some(status) = fences.given_up.get(&epoch).copied() {
            all.for_each(|local| fences.exchanges.pass(local));
            return self.refuse_ask(id, status, cx);
        }
        fences.asked.insert(epoch, id);
        if until.is_some() {
            self.pmix_up(&Up::Impatient { epoch }, cx);
        }
        let Job { pmix: Some(pmix), processes, .. } = self else { return };
        let fences = &mut pmix.fences;
        let mut next = Vec::new();
        for local in all {
            let entry = Entry::Modex { data: std::mem::take(&mut data) };
            let entering = Entering { local, rank: processes[local.index()].rank, entry, ticket: Ticket::Server };
            fences.exchanges.enter(cx.now, entering, Bytes::new, &mut next);
        }
        self.carry_out(next, cx);
    }

    /// A fence of the whole job is over.
    pub(in crate::job) fn on_modex_finished(&mut self, finished: Finished, cx: &mut Context<'_>) {
        let Some(id) = self.pmix.as_mut().and_then(|pmix| pmix.fences.asked.remove(&finished.epoch)) else { return };
        if let Some(part) = &mut self.trace {
            part.fences.push(finished.trace);
        }
        let Outcome::Pairs(parts) = finished.outcome else {
            return self.fail_here(Cause::Pmi { problem: "a PMIx fence ended as another collective".into() }, cx);
        };
        if let Some(pmix) = &mut self.pmix {
            pmix.fences.impatient.remove(&finished.epoch);
        }
        match joined(parts) {
            Ok(data) if data.len() <= FRAME_PAYLOAD_MAX => self.answer_ask(id, Answer::Fenced { data }, cx),
            Ok(data) => self.fail_pmix(too_much(data.len()), cx),
            Err(problem) => self.fail_here(Cause::Pmi { problem }, cx),
        }
    }

    /// Somebody's patience with a fence of the whole job is over; at the root.
    pub(super) fn on_give_up(&mut self, epoch: Epoch, cx: &mut Context<'_>) {
        if self.pmix.as_ref().is_some_and(|pmix| pmix.fences.exchanges.is_open(epoch)) {
            self.pmix_all(&Down::Over { epoch, status: Status::Timeout }, cx);
        }
    }

    /// The root says that a fence of the whole job is over.
    pub(super) fn on_fence_over(&mut self, epoch: Epoch, status: Status, cx: &mut Context<'_>) {
        let Some(fences) = self.pmix.as_mut().map(|pmix| &mut pmix.fences) else { return };
        if epoch < fences.exchanges.base() {
            return;
        }
        // Where it has an outcome already, some agents below may never say that their ranks were in.
        let mut next = Vec::new();
        fences.impatient.remove(&epoch);
        fences.given_up.insert(epoch, status);
        fences.exchanges.give_up(cx.now, epoch, Collective::Modex, &mut next);
        let asked = fences.asked.remove(&epoch);
        self.carry_out(next, cx);
        if let Some(id) = asked {
            self.refuse_ask(id, status, cx);
        }
    }

    /// Whether a frame belongs to a PMIx fence that was given up: it came too late.
    pub(in crate::job) fn is_given_up(&self, epoch: Epoch, collective: Collective) -> bool {
        let given_up = |pmix: &super::Pmix| pmix.fences.given_up.contains_key(&epoch);
        collective == Collective::Modex && self.pmix.as_deref().is_some_and(given_up)
    }

    /// The members here are in a fence of some ranks.
    pub(super) fn fence_some(
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
    pub(super) fn fence_group(
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
        let node = self.node.unwrap_or_default();
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
        let Job { pmix: Some(pmix), processes, mapping, spec, children, whereabouts, node, .. } = self else { return };
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
        block::push(&mut pairs, node.unwrap_or_default(), false, &peer::encode(&part));
        let mut pairs = Bytes::from(pairs);
        let mut next = Vec::new();
        for local in coming {
            let spread = || whereabouts.spread(&group.members, mapping, spec, children);
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
        let Job { pmix: Some(pmix), mapping, spec, children, whereabouts, .. } = self else { return };
        let groups = &mut pmix.fences.groups;
        let members = group.members.clone();
        let spread = || whereabouts.spread(&members, mapping, spec, children);
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

    pub(super) fn check_subsets(&mut self, cx: &mut Context<'_>) {
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
        let node = self.node.unwrap_or_default();
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
            Ok(Came::Fence(data)) => Answer::Fenced { data: data.into() },
            Ok(Came::Group { context, data }) => Answer::Grouped { context, data },
            Ok(Came::Gone) => Answer::Status(Status::RankGone),
            Err(problem) => return self.fail_here(Cause::Pmi { problem }, cx),
        };
        self.answer_ask(id, answer, cx);
    }
}

/// The bytes of all blocks, one behind the other, without headers.
fn joined(parts: Vec<Bytes>) -> Result<Bytes, String> {
    let mut all = Vec::new();
    for block in parts.into_iter().flat_map(block::blocks) {
        let block = block.map_err(|error| error.to_string())?;
        all.push(block.into_plain().map_err(|error| error.to_string())?);
    }
    Ok(match &mut all[..] {
        [one] => std::mem::take(one),
        all => all.concat().into(),
    })
}

/// What the members' nodes have brought; `name`: of the group.
fn came(pairs: Bytes, name: Option<&str>) -> Result<Came, String> {
    let (mut fence, mut group, mut context, mut gone) = (Vec::new(), Vec::new(), u64::MAX, false);
    for block in block::blocks(pairs) {
        let block = block.map_err(|error| error.to_string())?;
        match peer::decode::<Part>(&block.bytes).map_err(|error| error.to_string())? {
            Part::Gone => gone = true,
            Part::Fence { data } if name.is_none() => fence.extend_from_slice(&data),
            Part::Group { name: other, context: its, data } if name == Some(other.as_str()) => {
                context = context.min(its);
                group.push((block.node, data));
            }
            Part::Fence { .. } | Part::Group { .. } => {
                return Err(format!(
                    "the group {} is another one on node {}",
                    name.unwrap_or("of a fence"),
                    block.node
                ));
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

fn gone(node: NodeId) -> Bytes {
    let mut part = Vec::new();
    block::push(&mut part, node, false, &peer::encode(&Part::Gone));
    part.into()
}

/// A number for a group's name that no fence has; whoever shares it by chance is noticed by the name.
fn tag(name: &str) -> i32 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    ((hash >> 1) as i32).max(1)
}

fn too_much(bytes: usize) -> String {
    format!(
        "its data is {bytes} bytes, more than {FRAME_PAYLOAD_MAX} in a message; --modex direct leaves it where it is"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(node: u32, part: &Part) -> Vec<u8> {
        let mut out = Vec::new();
        block::push(&mut out, NodeId(node), false, &peer::encode(part));
        out
    }

    #[test]
    fn a_group_has_the_smallest_context_and_data_in_the_order_of_nodes() {
        let part =
            |context, data: &'static [u8]| Part::Group { name: "g".into(), context, data: Bytes::from_static(data) };
        let pairs = [block(2, &part(9, b"two")), block(0, &part(4, b"nought"))].concat();
        let Ok(Came::Group { context, data }) = came(pairs.clone().into(), Some("g")) else { panic!() };
        assert_eq!((context, data), (4, vec![Bytes::from_static(b"nought"), Bytes::from_static(b"two")]));
        assert!(came(pairs.clone().into(), Some("h")).is_err(), "two groups by one number");
        let pairs = [pairs, block(1, &Part::Gone)].concat();
        assert!(matches!(came(pairs.into(), Some("g")), Ok(Came::Gone)));
    }

    #[test]
    fn the_data_of_fences_is_joined() {
        let pairs =
            [block(1, &Part::Fence { data: "ab".into() }), block(0, &Part::Fence { data: "c".into() })].concat();
        assert!(matches!(came(pairs.into(), None), Ok(Came::Fence(data)) if data == b"abc"));
        let mut parts = Vec::new();
        block::push(&mut parts, NodeId(3), false, b"xy");
        block::push(&mut parts, NodeId(1), false, b"z");
        assert_eq!(joined(vec![parts.into(), Bytes::new()]).unwrap(), "xyz");
        assert_eq!(joined(vec![Bytes::new()]).unwrap(), "");
    }

    #[test]
    fn groups_and_fences_never_share_a_number() {
        for name in ["", "a", "mpi://world", "pmix-group-0"] {
            assert!(tag(name) > 0, "{name}");
        }
    }
}
