//! The context in which the parts of a job handle an input: the time, the job's description, and where to send frames
//! and actions for the driver.
//!
//! A part sends frames by `cx.agent.links`, and asks the driver for actions by [`Cx::output`], at once. What another
//! part must do is the part's return value, which `Job` handles in the function that has called the part. Failures are
//! the exception: any part may find one, deep inside its own work, so [`Cx`] notes them, and `Job` acts on them after
//! the rest of the input.

use super::facts::Facts;
use super::profile::Profile;
use super::ranks::{Process, Ranks};
use crate::clock_offset::ClockOffset;
use crate::io::Output;
use crate::link::{Links, UpHop};
use crate::time::Instant;
use std::collections::{BTreeSet, VecDeque};
use wireup_wire::ids::{AgentId, JobId, LocalRank, Rank};
use wireup_wire::names;
use wireup_wire::peer::{Cause, Departed, Done, Failure, FenceTrace, Note};
use wireup_wire::talk::{JobDown, JobUp};

pub struct Cx<'a> {
    pub facts: &'a Facts,
    pub agent: &'a mut AgentCx,
    pub common: &'a mut Common,
    /// Whether the ranks were told to end.
    pub is_ending: bool,
    endings: VecDeque<Ending>,
}

/// State of a job that all of its parts may read and update.
pub struct Common {
    /// The next hop of frames towards the launcher.
    pub up: UpHop,
    /// The ranks of this node.
    pub ranks: Ranks,
    pub children: Children,
    /// Local ranks that have published names which must be withdrawn when the rank ends.
    pub publishers: BTreeSet<Rank>,
    /// The job's profile, if it has one.
    pub profile: Option<Box<Profile>>,
}

/// Links, clock and time limits of one agent, used by its session and its jobs.
pub struct AgentCx {
    pub now: Instant,
    /// Time by which agents must have linked; later they count as missing.
    pub start_by: Instant,
    /// The offset of this agent's clock to its parent's, as far as known.
    pub clock: ClockOffset,
    /// Whether the session outlives its jobs.
    pub standing: bool,
    pub links: Links,
    /// What the agent must do for jobs that have handled an event, in order.
    pub from_jobs: VecDeque<FromJob>,
}

/// What the agent must do for a job, after the job has handled its input.
pub enum FromJob {
    /// At the root: a request or a message about names or other jobs, which the agent handles.
    Asked(JobId, names::Up),
    /// A child does not respond, and its link was closed: later jobs are not sent to it.
    Dropped(AgentId),
    /// A job has ended on this agent. The session forgets the oldest job in `Jobs::over`, which has one entry for each
    /// `Over` in this queue.
    Over,
}

/// A reason to end the job, or a signal for its ranks, that a part has found.
#[derive(Debug)]
pub enum Ending {
    /// A failure. The first failure whose cause ends a job ends this job.
    Fail(Failure),
    /// A failure that happened on no node of the job. It ends the job without waiting until the job's output is read.
    FailBy(Failure),
    /// At the root: a rank enters no more collectives. Its departure is a failure if the rank has not finalized and the
    /// job continues.
    Departed(Departed),
    /// All ranks of the subtree are to end: by SIGTERM, and by SIGKILL after `grace_ns`.
    Kill { grace_ns: u64 },
    /// All local ranks get a signal.
    Signal(i32),
}

impl Common {
    pub fn new(facts: &Facts, profile: Option<Box<Profile>>) -> Common {
        let ranks = facts.node.map(|node| facts.mapping.ranks_of(node).map(Process::new).collect());
        Common {
            up: facts.tree.up(),
            ranks: Ranks::new(ranks.unwrap_or_default()),
            children: Children::new(&facts.below),
            publishers: BTreeSet::new(),
            profile,
        }
    }
}

/// The child agents whose subtrees have ranks of the job, in the order of `Facts::below`.
pub struct Children(pub Vec<Child>);

/// A child agent's share of the job.
pub struct Child {
    pub agent: AgentId,
    /// Whether all agents of the child's subtree are linked, or known to be missing.
    pub ready: bool,
    /// Number of ranks of the child's subtree that have started; `None`: not reported yet.
    pub started: Option<u32>,
    pub done: Option<Done>,
}

impl std::ops::Deref for Children {
    type Target = [Child];

    fn deref(&self) -> &[Child] {
        &self.0
    }
}

impl Child {
    /// Records that no more reports from this child are expected.
    fn end(&mut self) {
        self.ready = true;
        self.started.get_or_insert(0);
        self.done.get_or_insert_default();
    }
}

impl Children {
    pub fn new(below: &[AgentId]) -> Self {
        Children(below.iter().map(|agent| Child { agent: *agent, ready: false, started: None, done: None }).collect())
    }

    pub fn are_ready(&self) -> bool {
        self.iter().all(|child| child.ready)
    }

    /// A child agent is lost with all its ranks, or is missing and no more reports about its subtree are expected.
    pub fn on_lost(&mut self, agent: AgentId) {
        self.0.iter_mut().filter(|child| child.agent == agent).for_each(Child::end);
    }

    /// Whether each child has reported how many of its ranks have started, or is lost.
    pub fn have_started(&self) -> bool {
        self.iter().all(|child| child.started.is_some())
    }

    /// The number of ranks that have started in the children's subtrees.
    pub fn ranks_started(&self) -> u32 {
        self.iter().filter_map(|child| child.started).sum()
    }

    pub fn are_done(&self) -> bool {
        self.iter().all(|child| child.done.is_some())
    }

    /// Gives up the unfinished children for which `which` holds; returns them.
    pub fn give_up(&mut self, which: impl Fn(AgentId) -> bool) -> Vec<AgentId> {
        let late = self.0.iter_mut().filter(|child| child.done.is_none() && which(child.agent));
        late.map(|child| {
            child.end();
            child.agent
        })
        .collect()
    }
}

impl<'a> Cx<'a> {
    pub fn new(agent: &'a mut AgentCx, facts: &'a Facts, common: &'a mut Common, is_ending: bool) -> Cx<'a> {
        Cx { facts, agent, common, is_ending, endings: VecDeque::new() }
    }

    pub fn now(&self) -> Instant {
        self.agent.now
    }

    pub fn output(&mut self, output: Output) {
        self.agent.links.out.push(output);
    }

    /// Sends a report about waiting ranks towards the launcher and, at the root, to every `wireup why` that watches the
    /// job (until it has received the call stacks). While the job is watched, the launcher gets no `Stall`, whose lines
    /// would appear among the job's output.
    pub fn report(&mut self, message: JobUp) {
        let is_stall = matches!(message, JobUp::Stall(_));
        let frame = self.facts.control(message);
        let is_watched = self.facts.root && self.agent.links.report(&frame, !is_stall);
        if !(is_watched && is_stall) {
            self.agent.links.send_job_up(self.common.up, frame);
        }
    }

    /// Sends a control message to all children.
    pub fn control_down(&mut self, message: JobDown) {
        let facts = self.facts;
        let frame = facts.control(message);
        facts.below.iter().for_each(|child| self.agent.links.send_peer(*child, frame.clone()));
    }

    /// Sends a note for the user, along the session's tree.
    pub fn note(&mut self, note: Note) {
        let frame = self.facts.control(note);
        self.agent.links.send_up(frame);
    }

    /// The children on the path to agent `to` that have not finished; `None`: all children that have not finished.
    pub fn children_towards(&self, to: Option<AgentId>) -> Vec<AgentId> {
        let is_on_the_way = |agent| to.is_none_or(|to| self.facts.tree.subtree_contains(agent, to));
        let open = self.common.children.iter().filter(|child| child.done.is_none()).map(|child| child.agent);
        open.filter(|agent| is_on_the_way(*agent)).collect()
    }

    pub fn rank(&self, local: LocalRank) -> Rank {
        self.common.ranks[local.index()].rank
    }

    /// Closes the link of a child that does not respond.
    pub fn drop_child(&mut self, child: AgentId) {
        if self.agent.links.cut_child(child) {
            self.agent.from_jobs.push_back(FromJob::Dropped(child));
        }
    }

    /// Records a complete collective in the profile.
    pub fn trace(&mut self, trace: FenceTrace) {
        if let Some(profile) = &mut self.common.profile {
            profile.on_collective(trace);
        }
    }

    pub fn fail(&mut self, failure: Failure) {
        self.endings.push_back(Ending::Fail(failure));
    }

    /// Reports a failure that concerns this node as a whole and no single rank.
    pub fn fail_here(&mut self, cause: Cause) {
        self.fail(failure_here(self.facts, cause));
    }

    pub fn fail_rank(&mut self, local: LocalRank, cause: Cause) {
        let Process { rank, pid, .. } = self.common.ranks[local.index()];
        let failure = failure_here(self.facts, cause);
        self.fail(Failure { rank: Some(rank), pid: (pid != 0).then_some(pid), ..failure });
    }

    /// Fails the job because a rank enters no more collectives for which other ranks wait, or may wait.
    pub fn fail_departed(&mut self, departed: Departed, cause: Cause) {
        let Departed { node, rank, pid, .. } = departed;
        let host = self.facts.name_of(node);
        self.fail(Failure { node, host, rank: Some(rank), pid: Some(pid), cause });
    }

    /// A failure that happened on no node of the job.
    pub fn fail_by(&mut self, cause: Cause) {
        self.endings.push_back(Ending::FailBy(cause.into()));
    }

    /// A rank of the subtree enters no more collectives.
    pub fn report_departed(&mut self, departed: Departed) {
        match self.facts.root {
            true => self.endings.push_back(Ending::Departed(departed)),
            false => self.agent.links.send_job_up(self.common.up, self.facts.control(JobUp::Departed(departed))),
        }
    }

    pub fn kill(&mut self, grace_ns: u64) {
        self.endings.push_back(Ending::Kill { grace_ns });
    }

    pub fn signal(&mut self, signal: i32) {
        self.endings.push_back(Ending::Signal(signal));
    }

    /// Removes and returns the oldest reason to end the job.
    pub fn take_ending(&mut self) -> Option<Ending> {
        self.endings.pop_front()
    }
}

fn failure_here(facts: &Facts, cause: Cause) -> Failure {
    Failure { node: facts.own_node(), host: facts.host(), rank: None, pid: None, cause }
}

#[cfg(test)]
pub use bench::Sent;

#[cfg(test)]
mod bench {
    use super::*;
    use crate::io::{LinkId, Peer};
    use crate::link::Routes;
    use crate::policy::Policy;
    use wireup_coll::tree::Tree;
    use wireup_wire::frame::{Frame, FrameKind};
    use wireup_wire::peer::{self, AgentTransport};
    use wireup_wire::route::{self, Routed};
    use wireup_wire::talk::Control;

    /// A frame that a part has sent, or an action that it has requested.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Sent {
        ToLauncher(Frame),
        ToAgent(AgentId, Frame),
        Note(Frame),
        Asked(names::Up),
        Output(Output),
    }

    const UP: LinkId = LinkId(u32::MAX);

    impl Cx<'_> {
        /// Lets a part act in a job; returns its result, what it has sent, and what ends the job.
        pub fn bench<T>(
            facts: &Facts,
            now: Instant,
            act: impl FnOnce(&mut Cx<'_>) -> T,
        ) -> (T, Vec<Sent>, Vec<Ending>) {
            Cx::bench_in(facts, &mut Common::new(facts, None), now, act)
        }

        /// Lets a part act in a job whose ranks and children are those of `common`.
        pub fn bench_in<T>(
            facts: &Facts,
            common: &mut Common,
            now: Instant,
            act: impl FnOnce(&mut Cx<'_>) -> T,
        ) -> (T, Vec<Sent>, Vec<Ending>) {
            // The session consists of this agent and its neighbours in the job's tree; frames for others are routed.
            let tree = Tree::new(1 << 10, 1 << 9);
            let routes = Routes::new(facts.me, tree, Policy::OneRun, &Default::default());
            let mut links = Links::new(facts.me, AgentTransport::Tree, Policy::OneRun, routes);
            let up = if facts.root { Peer::Launcher } else { Peer::Parent };
            links.on_link_up(UP, up);
            for child in tree.children(facts.me).filter(|child| facts.node_of(AgentId(*child)).is_some()) {
                let peer = Peer::Child { agent: AgentId(child), incarnation: 0 };
                links.on_link_up(LinkId(child), peer);
            }
            let mut agent = AgentCx {
                now,
                start_by: now,
                clock: ClockOffset::default(),
                standing: false,
                links,
                from_jobs: VecDeque::new(),
            };
            let mut cx = Cx::new(&mut agent, facts, common, false);
            let result = act(&mut cx);
            let endings = std::mem::take(&mut cx.endings).into();
            let AgentCx { links, from_jobs, .. } = &mut agent;
            let sent = std::iter::from_fn(|| links.out.pop()).map(|output| sent(facts, tree, output));
            let asked = |from| match from {
                FromJob::Asked(_, message) => Some(Sent::Asked(message)),
                FromJob::Dropped(_) | FromJob::Over => None,
            };
            let sent = sent.collect::<Vec<_>>().into_iter().chain(from_jobs.drain(..).filter_map(asked)).collect();
            (result, sent, endings)
        }
    }

    fn sent(facts: &Facts, tree: Tree, output: Output) -> Sent {
        let Output::Send { link, frame } = output else { return Sent::Output(output) };
        let is_note = frame.kind == FrameKind::Control && matches!(peer::decode(&frame.payload), Ok(Control::Note(_)));
        match link {
            _ if frame.kind == FrameKind::Routed => {
                let (to, _) = route::ends(&frame).expect("our own frame");
                let routed = Routed::unwrap(frame).expect("our own frame");
                Sent::ToAgent(to, routed.frame.expect("it carries a frame").1)
            }
            UP if is_note => Sent::Note(frame),
            UP if facts.root => Sent::ToLauncher(frame),
            UP => Sent::ToAgent(tree.parent(facts.me).expect("it is not the root"), frame),
            LinkId(child) => Sent::ToAgent(AgentId(child), frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_is_given_up_counts_as_started_and_done() {
        let mut children = Children::new(&[AgentId(1), AgentId(2)]);
        children.0[0].started = Some(4);
        children.0[0].done = Some(Done { ranks: 4, ..Done::default() });
        assert!(!children.have_started() && !children.are_done());
        assert_eq!(children.give_up(|_| true), [AgentId(2)]);
        assert!(children.have_started() && children.are_done());
        assert_eq!(children.ranks_started(), 4);
    }

    #[test]
    fn a_lost_child_keeps_its_reported_ranks() {
        let mut children = Children::new(&[AgentId(1)]);
        children.0[0].started = Some(4);
        children.on_lost(AgentId(1));
        assert_eq!((children.ranks_started(), children.are_done()), (4, true));
        children.on_lost(AgentId(9));
    }
}
