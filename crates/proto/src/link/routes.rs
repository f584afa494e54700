//! The routes of frames from agent to agent in the current tree.
//!
//! In a session of one run this is the original tree. In a standing session it is the tree determined by the entries of
//! the root's log (`Roster`) that each hop has received. On the way down, each hop forwards the entries that it knows
//! before everything else, so a frame never reaches an agent that knows less of the log than the hop before. So a frame
//! goes up, then down, and never in a loop: a frame from the parent whose receiver is not below this agent is dropped.
//! The sender learns from the log that this frame may be lost, and sends it again.
//!
//! [`Neighbours`] has the links to the agents next to this one in the tree, and the frames that wait for such links.

use crate::io::LinkId;
use crate::policy::Policy;
use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::tree::{Hop, Tree};
use wireup_wire::frame::Frame;
use wireup_wire::ids::AgentId;
use wireup_wire::route::Incarnations;
use wireup_wire::session::{Entry, SessionSnapshot, TreePosition};

const ROOT: AgentId = AgentId(0);

#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Routes {
    me: AgentId,
    /// The original tree.
    pub tree: Tree,
    policy: Policy,
    pub roster: Roster,
}

impl Routes {
    /// The routes of a new agent, from the session state in its bootstrap message.
    pub fn new(me: AgentId, tree: Tree, policy: Policy, snapshot: &SessionSnapshot) -> Self {
        Routes { me, tree, policy, roster: Roster::new(tree, snapshot) }
    }

    pub fn next_hop(&self, to: AgentId) -> Hop {
        match self.policy.survives_losses() {
            true => self.roster.next_hop(self.me, to),
            false => self.tree.next_hop(self.me, to),
        }
    }

    /// Whether a routed frame may come from this neighbour, and its receiver can be reached from here. `branch`: the
    /// child that forwarded the frame; `None`: the parent.
    pub fn is_on_its_way(&self, branch: Option<AgentId>, from: AgentId, to: AgentId) -> bool {
        let below = |top, agent| self.tree.subtree_contains(top, agent);
        match (self.policy.survives_losses(), branch) {
            // Agents may know different prefixes of the log for a moment, but no agent is ever above its ancestors in
            // the original tree.
            (true, Some(branch)) => below(branch, from) && !self.roster.is_lost(from),
            (true, None) => self.next_hop(to) != Hop::Parent && !self.roster.is_lost(from),
            (false, Some(branch)) => below(branch, from) && !below(branch, to),
            (false, None) => !below(self.me, from) && below(self.me, to),
        }
    }

    /// The children on the paths to these agents, without duplicates.
    pub fn branches_to(&self, agents: &[AgentId]) -> BTreeSet<AgentId> {
        let hop = |agent: &AgentId| match self.next_hop(*agent) {
            Hop::Child(child) => Some(child),
            Hop::Here | Hop::Parent => None,
        };
        agents.iter().filter_map(hop).collect()
    }

    /// Whether frames for an agent are sent on a link of the tree: the agent is the parent or a child. An adopted agent
    /// and its new parent are not neighbours in this sense: they exchange numbered frames (`direct`) as before, so that
    /// all frames between the two keep their order.
    pub fn is_neighbour(&self, neighbours: &Neighbours, agent: AgentId) -> bool {
        agent == self.me || self.is_parent(agent) || self.is_own_child(neighbours, agent)
    }

    pub fn is_parent(&self, agent: AgentId) -> bool {
        self.parent() == Some(agent)
    }

    /// The parent under which this agent was started; `None` at the root, and for an agent that was adopted.
    pub fn parent(&self) -> Option<AgentId> {
        self.roster.parent(self.me).filter(|_| !self.roster.is_adopted(self.me))
    }

    pub fn is_own_child(&self, neighbours: &Neighbours, agent: AgentId) -> bool {
        let is_there = || neighbours.has_child(agent);
        self.roster.parent(agent) == Some(self.me)
            && !self.roster.is_adopted(agent)
            && !self.roster.is_lost(agent)
            && (!self.policy.survives_losses() || is_there())
    }

    /// The incarnations of sender and receiver in a frame that this agent sends.
    pub fn incarnations_to(&self, to: AgentId) -> Incarnations {
        Incarnations { to: self.roster.incarnation(to), from: self.roster.incarnation(self.me) }
    }

    /// The expected incarnations of sender and receiver in a frame that this agent receives.
    pub fn incarnations_from(&self, from: AgentId) -> Incarnations {
        Incarnations { to: self.roster.incarnation(self.me), from: self.roster.incarnation(from) }
    }
}

/// The current tree, determined by a prefix of the root's log (`Entry`). Two agents with the same prefix know the same
/// tree.
///
/// ```text
///   original tree ── Lost ──► the root adopts its children ── Return ──► a new incarnation, below its original
///                                                                        parent if that returns too, else below
///                                                                        the root
/// ```
///
/// Only the agents whose parent or incarnation differs from the original tree, or that are lost, are stored. A parent
/// is always an ancestor of its child in the original tree, so following parents always ends at the root.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Roster {
    tree: Tree,
    /// Number of log entries applied.
    at: u32,
    /// Parent, incarnation and state of each agent for which these differ from the original tree.
    places: BTreeMap<AgentId, TreePosition>,
}

impl Roster {
    /// The tree of a new agent, from the session state in its bootstrap message.
    pub fn new(tree: Tree, snapshot: &SessionSnapshot) -> Roster {
        Roster { tree, at: snapshot.at, places: snapshot.places.iter().copied().collect() }
    }

    /// Number of log entries that this agent knows.
    pub fn at(&self) -> u32 {
        self.at
    }

    pub fn places(&self) -> Vec<(AgentId, TreePosition)> {
        self.places.iter().map(|(agent, place)| (*agent, *place)).collect()
    }

    fn place(&self, agent: AgentId) -> TreePosition {
        let drawn = || TreePosition {
            incarnation: 0,
            parent: self.tree.parent(agent).unwrap_or(ROOT),
            is_adopted: false,
            is_lost: false,
        };
        self.places.get(&agent).copied().unwrap_or_else(drawn)
    }

    pub fn incarnation(&self, agent: AgentId) -> u32 {
        self.place(agent).incarnation
    }

    pub fn is_lost(&self, agent: AgentId) -> bool {
        self.places.get(&agent).is_some_and(|place| place.is_lost)
    }

    /// The parent of an agent; `None` for the root.
    pub fn parent(&self, agent: AgentId) -> Option<AgentId> {
        (agent != ROOT).then(|| self.place(agent).parent)
    }

    /// Whether an agent's parent is not the one under which it was started.
    pub fn is_adopted(&self, agent: AgentId) -> bool {
        self.place(agent).is_adopted
    }

    /// The children of an agent, except for lost ones.
    pub fn children(&self, of: AgentId) -> Vec<AgentId> {
        let drawn = self.tree.children(of).map(AgentId).filter(|child| !self.places.contains_key(child));
        let placed = self.places.iter().filter(|(_, place)| place.parent == of && !place.is_lost);
        drawn.chain(placed.map(|(agent, _)| *agent)).filter(|child| *child != ROOT).collect()
    }

    /// An agent and its descendants.
    pub fn subtree(&self, top: AgentId) -> Vec<AgentId> {
        let mut all = vec![top];
        let mut next = 0;
        while let Some(agent) = all.get(next) {
            all.extend(self.children(*agent));
            next += 1;
        }
        all
    }

    /// Whether an agent is in the subtree of `top`, which includes `top` itself.
    pub fn is_below(&self, top: AgentId, agent: AgentId) -> bool {
        let mut above = std::iter::successors(Some(agent), |agent| self.parent(*agent));
        above.any(|agent| agent == top)
    }

    pub fn next_hop(&self, me: AgentId, to: AgentId) -> Hop {
        if to == me {
            return Hop::Here;
        }
        let mut above = std::iter::successors(Some(to), |agent| self.parent(*agent));
        let child = above.find(|agent| self.parent(*agent) == Some(me));
        child.map_or(Hop::Parent, Hop::Child)
    }

    /// Applies an entry of the log; returns the agents that the root adopts.
    pub fn apply(&mut self, entry: &Entry) -> Vec<AgentId> {
        self.at += 1;
        match entry {
            Entry::Lost(agents) => self.lose(agents),
            Entry::Return(agents) => {
                self.bring_back(agents);
                Vec::new()
            }
        }
    }

    fn lose(&mut self, agents: &[AgentId]) -> Vec<AgentId> {
        for &agent in agents {
            let place = TreePosition { is_lost: true, ..self.place(agent) };
            self.places.insert(agent, place);
        }
        let moved: Vec<AgentId> = agents.iter().flat_map(|agent| self.children(*agent)).collect();
        for &child in &moved {
            let place = TreePosition { parent: ROOT, is_adopted: true, ..self.place(child) };
            self.places.insert(child, place);
        }
        moved
    }

    fn bring_back(&mut self, agents: &[AgentId]) {
        for &agent in agents {
            let parent = self.tree.parent(agent).filter(|parent| agents.contains(parent)).unwrap_or(ROOT);
            self.places.insert(agent, TreePosition { incarnation: self.at, parent, is_adopted: false, is_lost: false });
        }
    }

    /// Number of entries, for the simulator's checkers.
    pub fn len(&self) -> usize {
        self.places.len()
    }
}

/// The neighbours of this agent in the tree that are linked or expected, and the frames that wait for their links.
///
/// Frames for the link up (to the parent; at the root of a session of one run, to the launcher) and for children that
/// were started wait here until the link is made.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Neighbours {
    children: BTreeMap<AgentId, LinkId>,
    /// Children that were started and have not linked, each with the frames that wait for its link.
    expected: BTreeMap<AgentId, Vec<Frame>>,
    up: Option<LinkId>,
    waiting_up: Vec<Frame>,
}

impl Neighbours {
    /// The link of a child.
    pub fn child(&self, agent: AgentId) -> Option<LinkId> {
        self.children.get(&agent).copied()
    }

    pub fn expects(&self, agent: AgentId) -> bool {
        self.expected.contains_key(&agent)
    }

    /// Whether an agent is a child of this one, linked or expected.
    pub fn has_child(&self, agent: AgentId) -> bool {
        self.children.contains_key(&agent) || self.expected.contains_key(&agent)
    }

    pub fn linked(&self) -> impl Iterator<Item = AgentId> {
        self.children.keys().copied()
    }

    /// Children that are linked, then those expected.
    pub fn all(&self) -> impl Iterator<Item = AgentId> {
        self.children.keys().chain(self.expected.keys()).copied()
    }

    /// Whether no child is linked or expected.
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty() && self.expected.is_empty()
    }

    /// The link to the parent.
    pub fn up(&self) -> Option<LinkId> {
        self.up
    }

    pub fn has_up(&self) -> bool {
        self.up.is_some()
    }

    /// A child is linked; returns the frames that waited for it.
    pub fn on_child_up(&mut self, agent: AgentId, link: LinkId) -> Vec<Frame> {
        self.children.insert(agent, link);
        self.expected.remove(&agent).unwrap_or_default()
    }

    pub fn on_child_down(&mut self, agent: AgentId) -> Option<LinkId> {
        self.children.remove(&agent)
    }

    /// The parent is linked; returns the frames that waited for it.
    pub fn on_link_up(&mut self, link: LinkId) -> Vec<Frame> {
        self.up = Some(link);
        std::mem::take(&mut self.waiting_up)
    }

    pub fn on_up_lost(&mut self) {
        self.up = None;
    }

    /// A child was started: frames for it wait for its link.
    pub fn expect(&mut self, agent: AgentId) {
        self.expected.insert(agent, Vec::new());
    }

    /// A child will not link; returns the frames for it, which are undeliverable.
    pub fn forget(&mut self, agent: AgentId) -> Vec<Frame> {
        self.expected.remove(&agent).unwrap_or_default()
    }

    /// The link by which a frame for a child is sent; without one the frame waits if the child is expected, otherwise
    /// it is dropped.
    pub fn for_child(&mut self, agent: AgentId, frame: Frame) -> Option<(LinkId, Frame)> {
        if let Some(link) = self.child(agent) {
            return Some((link, frame));
        }
        if let Some(waiting) = self.expected.get_mut(&agent) {
            waiting.push(frame);
        }
        None
    }

    /// The link by which a frame for the parent is sent; without one the frame waits.
    pub fn for_parent(&mut self, frame: Frame) -> Option<(LinkId, Frame)> {
        if self.up.is_none() {
            self.waiting_up.push(frame);
            return None;
        }
        self.up.map(|link| (link, frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::LinkId;
    use proptest::prelude::*;
    use wireup_wire::frame::PeerFrame;

    /// Agent 1 of fifteen, fan-out 2, with the children 3, which is linked, and 4.
    fn routes(policy: Policy) -> (Routes, Neighbours) {
        let mut neighbours = Neighbours::default();
        neighbours.on_child_up(AgentId(3), LinkId(3));
        neighbours.expect(AgentId(4));
        (Routes::new(AgentId(1), Tree::new(15, 2), policy, &SessionSnapshot::default()), neighbours)
    }

    #[test]
    fn in_one_run_frames_follow_the_original_tree() {
        let (routes, mut neighbours) = routes(Policy::OneRun);
        neighbours.on_child_down(AgentId(3));
        assert_eq!(routes.next_hop(AgentId(7)), Hop::Child(AgentId(3)), "the frame ends there");
        assert_eq!(routes.next_hop(AgentId(2)), Hop::Parent);
        assert!(routes.is_own_child(&neighbours, AgentId(3)));
    }

    #[test]
    fn adopted_agents_are_routed_below_the_root() {
        let (mut routes, neighbours) = routes(Policy::Standing);
        assert_eq!(routes.next_hop(AgentId(7)), Hop::Child(AgentId(3)));
        routes.roster.apply(&Entry::Lost(vec![AgentId(3)]));
        assert_eq!(routes.next_hop(AgentId(7)), Hop::Parent);
        assert!(!routes.is_own_child(&neighbours, AgentId(3)));
        let mut root = Routes::new(AgentId(0), Tree::new(15, 2), Policy::Standing, &SessionSnapshot::default());
        root.roster.apply(&Entry::Lost(vec![AgentId(3)]));
        assert_eq!(root.next_hop(AgentId(7)), Hop::Child(AgentId(7)));
        let mut neighbours = Neighbours::default();
        neighbours.on_child_up(AgentId(7), LinkId(7));
        assert!(!root.is_neighbour(&neighbours, AgentId(7)));
        assert_eq!(root.branches_to(&[AgentId(7), AgentId(4), AgentId(9)]), [AgentId(1), AgentId(7)].into());
    }

    #[test]
    fn frames_from_the_parent_are_only_forwarded_down() {
        let (routes, _) = routes(Policy::Standing);
        assert!(
            routes.is_on_its_way(None, AgentId(2), AgentId(7)) && !routes.is_on_its_way(None, AgentId(2), AgentId(5))
        );
        assert!(!routes.is_on_its_way(Some(AgentId(3)), AgentId(9), AgentId(7)), "9 is not below 3");
        assert!(routes.is_on_its_way(Some(AgentId(3)), AgentId(7), AgentId(9)));
    }

    #[test]
    fn agents_that_return_have_a_new_incarnation() {
        let (mut routes, _) = routes(Policy::Standing);
        routes.roster.apply(&Entry::Lost(vec![AgentId(3)]));
        assert!(routes.roster.is_lost(AgentId(3)));
        routes.roster.apply(&Entry::Return(vec![AgentId(3)]));
        assert!(!routes.roster.is_lost(AgentId(3)));
        assert_eq!(routes.incarnations_to(AgentId(3)), Incarnations { to: 2, from: 0 });
    }

    fn ids(agents: impl IntoIterator<Item = u32>) -> Vec<AgentId> {
        agents.into_iter().map(AgentId).collect()
    }

    /// The tree of fifteen agents with fan-out 2, after these log entries.
    fn roster(log: &[Entry]) -> Roster {
        let mut roster = Roster::new(Tree::new(15, 2), &SessionSnapshot::default());
        log.iter().for_each(|entry| drop(roster.apply(entry)));
        roster
    }

    #[test]
    fn children_of_a_lost_agent_move_to_the_root_with_their_subtrees() {
        let mut roster = roster(&[]);
        assert_eq!(roster.apply(&Entry::Lost(ids([1]))), ids([3, 4]));
        assert_eq!(roster.children(ROOT), ids([2, 3, 4]));
        assert_eq!(
            (roster.next_hop(ROOT, AgentId(7)), roster.parent(AgentId(7))),
            (Hop::Child(AgentId(3)), Some(AgentId(3)))
        );
        assert!(roster.is_adopted(AgentId(3)) && !roster.is_adopted(AgentId(7)) && roster.is_lost(AgentId(1)));
        assert_eq!(roster.next_hop(AgentId(3), AgentId(4)), Hop::Parent);
        assert_eq!(roster.subtree(AgentId(3)), ids([3, 7, 8]));
    }

    #[test]
    fn agents_return_below_their_parent_if_that_returns_too_and_adopted_agents_stay() {
        let [lost, back] = [Entry::Lost(ids([1, 3])), Entry::Return(ids([1, 3]))];
        assert_eq!(roster(&[]).apply(&lost), ids([4, 7, 8]), "the remaining children");
        let both = roster(&[lost, back]);
        assert_eq!((both.parent(AgentId(1)), both.parent(AgentId(3))), (Some(ROOT), Some(AgentId(1))));
        assert_eq!((both.incarnation(AgentId(3)), both.incarnation(AgentId(7))), (2, 0));
        assert_eq!(both.children(AgentId(3)), [], "the root has adopted 7 and 8");
        assert!(!both.is_adopted(AgentId(3)) && both.is_adopted(AgentId(7)));
        let alone = roster(&[Entry::Lost(ids([3])), Entry::Return(ids([3]))]);
        assert_eq!((alone.parent(AgentId(3)), alone.children(AgentId(1))), (Some(ROOT), ids([4])));
    }

    fn entries() -> impl Strategy<Value = Vec<(bool, Vec<u32>)>> {
        prop::collection::vec((any::<bool>(), prop::collection::vec(1u32..15, 1..4)), 0..20)
    }

    proptest! {
        /// After any sequence of losses and returns, all agents that are not lost form one tree below the root.
        #[test]
        fn the_roster_is_always_one_tree(log in entries()) {
            let mut roster = roster(&[]);
            for (loses, agents) in log {
                let agents: BTreeSet<AgentId> = ids(agents).into_iter().collect();
                let agents: Vec<AgentId> = agents.into_iter().filter(|agent| roster.is_lost(*agent) != loses).collect();
                roster.apply(&if loses { Entry::Lost(agents) } else { Entry::Return(agents) });
                let mut there = roster.subtree(ROOT);
                there.sort_unstable();
                let living: Vec<AgentId> = (0..15).map(AgentId).filter(|agent| !roster.is_lost(*agent)).collect();
                prop_assert_eq!(&there, &living);
                for &from in &living {
                    for &to in &living {
                        let mut at = from;
                        let mut went_down = false;
                        for _ in 0..10 {
                            at = match roster.next_hop(at, to) {
                                Hop::Here => break,
                                Hop::Child(child) => { went_down = true; child }
                                Hop::Parent => {
                                    prop_assert!(!went_down);
                                    roster.parent(at).expect("the root has all below it")
                                }
                            };
                        }
                        prop_assert_eq!(at, to);
                    }
                }
                // The session state that a new agent gets leads to the same roster.
                let told = SessionSnapshot { at: roster.at(), places: roster.places(), ..SessionSnapshot::default() };
                prop_assert_eq!(&Roster::new(Tree::new(15, 2), &told), &roster);
            }
        }
    }
    const CHILD: AgentId = AgentId(1);
    const LINK: LinkId = LinkId(7);

    fn frame() -> Frame {
        Frame::new(PeerFrame::Direct, 0, 1, 0, Default::default())
    }

    #[test]
    fn frames_wait_for_a_child_that_is_expected_and_for_no_other() {
        let mut neighbours = Neighbours::default();
        assert!(neighbours.for_child(CHILD, frame()).is_none());
        assert!(neighbours.is_leaf(), "the child is not expected");
        neighbours.expect(CHILD);
        assert!(neighbours.for_child(CHILD, frame()).is_none());
        assert_eq!(neighbours.on_child_up(CHILD, LINK), [frame()]);
        assert_eq!(neighbours.for_child(CHILD, frame()), Some((LINK, frame())));
        assert!(!neighbours.expects(CHILD) && neighbours.has_child(CHILD));
    }

    #[test]
    fn frames_to_the_parent_wait_until_there_is_one() {
        let mut neighbours = Neighbours::default();
        assert!(neighbours.for_parent(frame()).is_none());
        assert_eq!(neighbours.on_link_up(LINK).len(), 1);
        assert_eq!(neighbours.for_parent(frame()), Some((LINK, frame())));
        neighbours.on_up_lost();
        assert!(neighbours.for_parent(frame()).is_none());
        assert_eq!(neighbours.on_link_up(LinkId(8)).len(), 1);
    }
}
