//! Barriers of groups (PMI 1.2): who is in, who is waited for, what their puts were.
//!
//! A barrier is known by its ranks and a tag; several may be under way, and one may be entered anew while its last round is not
//! over everywhere. Nothing numbers the rounds: each member enters them in order, and links keep the order.
//!
//! ```text
//!   member enters ─► all members below are in ─► up ─► … ─► apex: all are in
//!   member told   ◄────────────────────────────── down ◄─────────┘
//! ```
//!
//! The apex is the lowest agent that has all members below it: a barrier of one node's ranks causes no message, others go as
//! high as they must and down to the agents of members alone. The puts of the members' nodes travel along, since members may
//! get each other's pairs afterwards.
//!
//! A member that has departed would be waited for for ever. Its agent knows it, but may not know that somebody waits: whoever
//! waits for long asks those below who are missing; where one has departed, the job fails. `seen`, how many frames of the child
//! had come by then, tells an old question from a new one. Of a child that has said that all below it are gone nobody will come.
//!
//! Cost: a frame up and one down for each link between the members' agents and the apex.

pub mod spread;
#[cfg(test)]
mod tests;

use crate::pmi_server::kvs::Mark;
use crate::time::Instant;
use bytes::Bytes;
use spread::Spread;
use std::collections::{BTreeMap, VecDeque};
use wireup_wire::group::{Group, Members};
use wireup_wire::ids::LocalRank;
use wireup_wire::peer::Departed;

/// A wait of this length (ns) makes an agent ask. Chosen: far above a barrier's time, short for a person.
pub const ASK_AFTER_NS: u64 = 500_000_000;

/// Sets of ranks whose marks are kept; with more all are forgotten, and pairs are sent again.
const MARKS_MAX: usize = 256;

/// What is to be done next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Do {
    /// All members below are in.
    Up { group: Group, pairs: Bytes },
    /// The barrier is over.
    Down { group: Group, child: usize, pairs: Bytes },
    /// Members below this child are waited for.
    Ask { group: Group, child: usize, seen: u32 },
    /// The barrier is over: these wait here. What the members' nodes have put comes first.
    Over { group: Group, waiting: Vec<LocalRank>, pairs: Bytes },
    /// The job cannot go on.
    Fail { problem: String },
}

/// A member that will not come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// A rank of this node.
    Here(Departed),
    /// One below this child, where nobody is left.
    Below(usize),
}

/// The members on this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stall {
    pub group: Group,
    pub arrived: u32,
    pub missing: Vec<LocalRank>,
}

pub struct Groups {
    live: BTreeMap<Group, Barrier>,
    marks: BTreeMap<Members, Mark>,
    /// Local ranks that will enter nothing any more.
    departed: BTreeMap<LocalRank, Departed>,
    /// Children below whom nobody is left.
    done: Vec<bool>,
    /// Frames that said of a round that all are in: of each child, and to the parent.
    ups_in: Vec<u32>,
    ups_out: u32,
}

struct Barrier {
    spread: Spread,
    /// The oldest first; never empty.
    rounds: VecDeque<Round>,
}

struct Round {
    /// Since when somebody waits.
    since: Instant,
    /// In the order of their coming.
    waiting: Vec<LocalRank>,
    /// By place in the spread.
    locals_in: Vec<bool>,
    children_in: Vec<bool>,
    /// How many of both are missing.
    left: usize,
    pairs: Vec<Bytes>,
    /// The number of the frame up.
    up: Option<u32>,
    /// Who is missing below was asked.
    asked: bool,
    /// It was in a stall report.
    reported: bool,
}

impl Groups {
    /// `children`: how many the job has at this agent.
    pub fn new(children: usize) -> Self {
        Groups {
            live: BTreeMap::new(),
            marks: BTreeMap::new(),
            departed: BTreeMap::new(),
            done: vec![false; children],
            ups_in: vec![0; children],
            ups_out: 0,
        }
    }

    /// Up to where these ranks have seen what is put on this node.
    pub fn mark(&mut self, members: &Members) -> &mut Mark {
        if self.marks.len() >= MARKS_MAX && !self.marks.contains_key(members) {
            self.marks.clear();
        }
        self.marks.entry(members.clone()).or_default()
    }

    /// A rank here, a member, comes; `pairs` are what was put here and the group has not seen.
    pub fn enter(
        &mut self,
        now: Instant,
        group: Group,
        spread: impl FnOnce() -> Spread,
        local: LocalRank,
        pairs: Bytes,
        out: &mut Vec<Do>,
    ) {
        let barrier = self.live.entry(group.clone()).or_insert_with(|| Barrier::new(spread()));
        let place = barrier.spread.locals.binary_search(&local).expect("its link has looked that the rank is a member");
        let round = barrier.round(now, |round| !round.locals_in[place]);
        round.locals_in[place] = true;
        round.waiting.push(local);
        round.left -= 1;
        round.pairs.push(pairs);
        self.settle(group, out);
    }

    /// All members below a child are in.
    pub fn on_up(
        &mut self,
        now: Instant,
        child: usize,
        group: Group,
        spread: impl FnOnce() -> Spread,
        pairs: Bytes,
        out: &mut Vec<Do>,
    ) {
        self.ups_in[child] = self.ups_in[child].wrapping_add(1);
        let barrier = self.live.entry(group.clone()).or_insert_with(|| Barrier::new(spread()));
        let Some(place) = barrier.spread.children.iter().position(|one| *one == child) else {
            return out.push(Do::Fail { problem: not_expected(&group) });
        };
        let round = barrier.round(now, |round| !round.children_in[place]);
        round.children_in[place] = true;
        round.left -= 1;
        round.pairs.push(pairs);
        self.settle(group, out);
    }

    /// The parent says that a round is over.
    pub fn on_down(&mut self, group: Group, pairs: Bytes, out: &mut Vec<Do>) {
        let barrier = self.live.get_mut(&group);
        let Some(barrier) = barrier.filter(|barrier| barrier.rounds.front().is_some_and(|round| round.up.is_some()))
        else {
            return out.push(Do::Fail { problem: not_expected(&group) });
        };
        barrier.finish(&group, pairs, out);
        self.settle(group, out);
    }

    /// The parent waits for members of this subtree, and had `seen` so many of its frames.
    pub fn on_ask(
        &mut self,
        now: Instant,
        group: Group,
        spread: impl FnOnce() -> Spread,
        seen: u32,
        out: &mut Vec<Do>,
    ) {
        let barrier = self.live.entry(group.clone()).or_insert_with(|| Barrier::new(spread()));
        let is_answered = |round: &Round| round.up.is_some_and(|up| up.wrapping_sub(seen) as i32 > 0);
        if barrier.rounds.iter().any(is_answered) {
            return;
        }
        barrier.round(now, |round| round.left > 0);
        let Barrier { spread, rounds } = barrier;
        if let Some(round) = rounds.iter_mut().find(|round| round.left > 0 && !round.asked) {
            round.ask(&group, spread, &self.ups_in, out);
        }
    }

    /// Asks where a wait became long.
    pub fn on_tick(&mut self, now: Instant, out: &mut Vec<Do>) {
        for (group, Barrier { spread, rounds }) in &mut self.live {
            for round in rounds.iter_mut().filter(|round| round.ask_at().is_some_and(|at| now >= at)) {
                round.ask(group, spread, &self.ups_in, out);
            }
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.rounds().filter_map(|(_, _, round)| round.ask_at()).min()
    }

    /// A rank here will enter nothing any more.
    pub fn on_departed(&mut self, local: LocalRank, departed: Departed) {
        self.departed.insert(local, departed);
    }

    /// Nobody is left below a child.
    pub fn on_child_done(&mut self, child: usize) {
        self.done[child] = true;
    }

    /// Who has left that others wait for, and in which group.
    pub fn broken(&self) -> Option<(Left, &Group)> {
        self.rounds().find_map(|(group, spread, round)| {
            let here = round.missing(spread).find_map(|local| self.departed.get(&local)).map(|one| Left::Here(*one));
            let below = || round.missing_children(spread).find(|child| self.done[*child]).map(Left::Below);
            here.or_else(below).map(|left| (left, group))
        })
    }

    /// Whether a rank here will enter nothing any more.
    pub fn has_departed(&self, local: LocalRank) -> bool {
        self.departed.contains_key(&local)
    }

    /// Goes on without the members that have left: `instead` is what the others hear for one.
    pub fn excuse(&mut self, instead: impl Fn(Left) -> Bytes, out: &mut Vec<Do>) {
        let Groups { live, departed, done, .. } = self;
        let mut changed = Vec::new();
        for (group, Barrier { spread, rounds }) in live {
            let before = changed.len();
            for round in rounds {
                for (local, is_in) in spread.locals.iter().zip(&mut round.locals_in) {
                    if let Some(one) = departed.get(local).filter(|_| !*is_in) {
                        *is_in = true;
                        round.left -= 1;
                        round.pairs.push(instead(Left::Here(*one)));
                        changed.push(group.clone());
                    }
                }
                for (child, is_in) in spread.children.iter().zip(&mut round.children_in) {
                    if done[*child] && !*is_in {
                        *is_in = true;
                        round.left -= 1;
                        round.pairs.push(instead(Left::Below(*child)));
                        changed.push(group.clone());
                    }
                }
            }
            changed.truncate(changed.len().min(before + 1));
        }
        for group in changed {
            self.settle(group, out);
        }
    }

    /// When a wait of `after_ns` is over that was not reported.
    pub fn stall_deadline(&self, after_ns: u64) -> Option<Instant> {
        let waits = self.rounds().filter(|(_, _, round)| after_ns > 0 && !round.reported);
        waits.map(|(_, _, round)| round.since + after_ns).min()
    }

    /// A report is being made.
    pub fn on_asked(&mut self) {
        self.live.values_mut().flat_map(|barrier| &mut barrier.rounds).for_each(|round| round.reported = true);
    }

    /// The barriers that members on this node wait in or are waited for.
    pub fn stalls(&self) -> impl Iterator<Item = Stall> {
        let here = self.rounds().filter(|(_, spread, _)| !spread.locals.is_empty());
        here.map(|(group, spread, round)| Stall {
            group: group.clone(),
            arrived: round.waiting.len() as u32,
            missing: round.missing(spread).collect(),
        })
    }

    /// Rounds that are not over here.
    pub fn open(&self) -> usize {
        self.rounds().count()
    }

    fn rounds(&self) -> impl Iterator<Item = (&Group, &Spread, &Round)> {
        self.live
            .iter()
            .flat_map(|(group, Barrier { spread, rounds })| rounds.iter().map(move |round| (group, spread, round)))
    }

    /// Says what is complete, forgets what is over.
    fn settle(&mut self, group: Group, out: &mut Vec<Do>) {
        let Some(barrier) = self.live.get_mut(&group) else {
            return;
        };
        if barrier.spread.apex {
            while let Some(round) = barrier.rounds.front_mut().filter(|round| round.left == 0) {
                let pairs = round.take_pairs();
                barrier.finish(&group, pairs, out);
            }
        } else {
            for round in barrier.rounds.iter_mut().filter(|round| round.left == 0 && round.up.is_none()) {
                self.ups_out = self.ups_out.wrapping_add(1);
                round.up = Some(self.ups_out);
                out.push(Do::Up { group: group.clone(), pairs: round.take_pairs() });
            }
        }
        if barrier.rounds.is_empty() {
            self.live.remove(&group);
        }
    }
}

impl Barrier {
    fn new(spread: Spread) -> Self {
        Barrier { spread, rounds: VecDeque::new() }
    }

    /// The oldest round that `is_open` to the one who comes, or a new one.
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
                asked: false,
                reported: false,
            });
            self.rounds.len() - 1
        });
        &mut self.rounds[at]
    }

    /// The oldest round is over.
    fn finish(&mut self, group: &Group, pairs: Bytes, out: &mut Vec<Do>) {
        for &child in &self.spread.children {
            out.push(Do::Down { group: group.clone(), child, pairs: pairs.clone() });
        }
        if let Some(Round { waiting, .. }) = self.rounds.pop_front().filter(|round| !round.waiting.is_empty()) {
            out.push(Do::Over { group: group.clone(), waiting, pairs });
        }
    }
}

impl Round {
    /// Members on this node that are not in.
    fn missing<'a>(&'a self, spread: &'a Spread) -> impl Iterator<Item = LocalRank> + 'a {
        spread.locals.iter().zip(&self.locals_in).filter(|(_, is_in)| !**is_in).map(|(local, _)| *local)
    }

    fn missing_children<'a>(&'a self, spread: &'a Spread) -> impl Iterator<Item = usize> + 'a {
        spread.children.iter().zip(&self.children_in).filter(|(_, is_in)| !**is_in).map(|(child, _)| *child)
    }

    fn ask_at(&self) -> Option<Instant> {
        (!self.asked && self.children_in.contains(&false)).then(|| self.since + ASK_AFTER_NS)
    }

    fn ask(&mut self, group: &Group, spread: &Spread, ups_in: &[u32], out: &mut Vec<Do>) {
        self.asked = true;
        for child in self.missing_children(spread) {
            out.push(Do::Ask { group: group.clone(), child, seen: ups_in[child] });
        }
    }

    fn take_pairs(&mut self) -> Bytes {
        let pairs = std::mem::take(&mut self.pairs);
        Bytes::from(pairs.concat())
    }
}

fn not_expected(group: &Group) -> String {
    format!("the barrier of {} (tag {}) ends or begins where it should not", group.members, group.tag)
}
