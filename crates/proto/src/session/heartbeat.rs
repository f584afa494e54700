//! Checks that neighbours in the tree respond: the links of an agent that is stopped or stuck look healthy.
//!
//! ```text
//!   an agent with a job ── asks ──► its children and its parent: each answers at once
//!   an agent that its parent asks also asks its children; one that a child asks also asks its parent
//!   when the parent stops asking, the agent asks once more whether the parent is alive
//!   no answer within the node time-out: the link is given up as if it were broken
//! ```
//!
//! Heartbeats are sent only while something is in progress: a job or, at the root, nodes that are starting. An idle
//! session is silent. Cost: per link two messages in each direction four times per node time-out.
//!
//! In a session of one run no agent asks its parent: the launcher is the root, and its user may stop it for any length
//! of time.

use super::Cx;
use crate::io::LinkId;
use crate::time::Instant;
use std::collections::BTreeMap;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Problem, ProblemKind};
use wireup_wire::talk::Control;

/// Number of heartbeat requests per node time-out. Chosen: an answer that is half an interval late is not mistaken for
/// a missing one.
const IN_TIME: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    Above,
    Below(AgentId),
}

#[derive(Default)]
pub struct Heartbeat {
    /// Time of the next requests; `None`: nothing is in progress.
    next_at: Option<Instant>,
    /// Time until which this agent asks its children whether they are alive, because the parent has recently asked this
    /// agent; `below_waits`: time until which it asks its parent, because children have recently asked.
    above_waits: Option<Instant>,
    below_waits: Option<Instant>,
    /// Whether the parent has stopped asking whether this agent is alive: the parent may have no more jobs, or its
    /// process may be stopped or stuck.
    doubts_above: bool,
    is_starting: bool,
    /// Time at which a request was sent that the neighbour has not answered, by link.
    unanswered: BTreeMap<LinkId, Instant>,
}

impl Heartbeat {
    pub fn deadline(&self) -> Option<Instant> {
        self.next_at
    }

    /// A neighbour asks whether this agent is alive: answers at once, and asks the neighbours on the other side for a
    /// while.
    pub fn on_asked(&mut self, cx: &mut Cx, side: Side) {
        say(cx, side, Control::Alive);
        let until = Some(cx.agent.now + 2 * interval_ns(cx));
        match side {
            Side::Above => (self.above_waits, self.doubts_above) = (until, false),
            Side::Below(_) => self.below_waits = until,
        }
        self.schedule_questions(cx);
    }

    /// A neighbour answers that it is alive.
    pub fn on_answered(&mut self, cx: &Cx, side: Side) {
        if let Some(link) = link_with(cx, side) {
            self.unanswered.remove(&link);
        }
        if side == Side::Above {
            self.doubts_above = false;
        }
    }

    /// Records, at the root, whether nodes are starting: neighbours are asked during that time, too.
    pub fn on_starting(&mut self, cx: &Cx, is_starting: bool) {
        self.is_starting = is_starting;
        if is_starting {
            self.schedule_questions(cx);
        }
    }

    /// A job has begun here, or nodes are starting.
    pub fn schedule_questions(&mut self, cx: &Cx) {
        let has_neighbours = !cx.agent.links.neighbours.is_leaf() || asks_above(cx);
        if self.next_at.is_none() && has_neighbours && cx.session.links.node_timeout_ns > 0 {
            self.next_at = Some(cx.agent.now + interval_ns(cx));
        }
    }

    /// Asks the neighbours whether they are alive, when that is due. Returns the links of neighbours that have not
    /// responded within the node time-out, each with the problem to report.
    pub fn on_tick(&mut self, cx: &mut Cx) -> Vec<(LinkId, Problem)> {
        let mut silent_links = Vec::new();
        let Some(at) = self.next_at.take_if(|at| *at <= cx.agent.now) else { return silent_links };
        if cx.agent.now - at >= interval_ns(cx) {
            // This agent's own process was stopped, for example by SIGSTOP: answers of its neighbours may be unread.
            self.unanswered.clear();
        }
        if self.above_waits.take_if(|until| *until <= cx.agent.now).is_some() {
            self.doubts_above = asks_above(cx) && cx.agent.links.neighbours.has_up();
        }
        if self.waits(cx, self.above_waits) || self.waits(cx, self.below_waits) || self.doubts_above {
            self.schedule_questions(cx);
        }
        let whom = self.whom_to_ask(cx);
        let whom: Vec<_> = whom.into_iter().filter_map(|side| Some((side, link_with(cx, side)?))).collect();
        self.unanswered.retain(|link, _| whom.iter().any(|(_, asked)| asked == link));
        for (side, link) in whom {
            let since = *self.unanswered.entry(link).or_insert(cx.agent.now);
            match cx.agent.now - since >= cx.session.links.node_timeout_ns {
                true => silent_links.push((link, silent(cx))),
                false => say(cx, side, Control::AreYouAlive),
            }
        }
        silent_links
    }

    fn whom_to_ask(&self, cx: &Cx) -> Vec<Side> {
        let mut whom = Vec::new();
        if self.waits(cx, self.above_waits) {
            whom.extend(cx.agent.links.neighbours.linked().map(Side::Below));
        }
        if (self.waits(cx, self.below_waits) || self.doubts_above) && asks_above(cx) {
            whom.push(Side::Above);
        }
        whom
    }

    /// Whether this agent must ask the neighbours on one side whether they are alive: it has a job, nodes are starting,
    /// or the neighbours on the other side have asked recently (`until`).
    fn waits(&self, cx: &Cx, until: Option<Instant>) -> bool {
        !cx.jobs.is_empty() || self.is_starting || until.is_some_and(|until| until > cx.agent.now)
    }
}

fn link_with(cx: &Cx, side: Side) -> Option<LinkId> {
    match side {
        Side::Above => cx.agent.links.neighbours.up(),
        Side::Below(child) => cx.agent.links.neighbours.child(child),
    }
}

fn asks_above(cx: &Cx) -> bool {
    !cx.is_root() && cx.policy.survives_losses()
}

fn interval_ns(cx: &Cx) -> u64 {
    cx.session.links.node_timeout_ns / IN_TIME
}

fn say(cx: &mut Cx, side: Side, message: Control) {
    match side {
        Side::Above => cx.up(message),
        Side::Below(child) => cx.child(child, message),
    }
}

fn silent(cx: &Cx) -> Problem {
    let seconds = cx.session.links.node_timeout_ns as f64 / 1e9;
    ProblemKind::Silent.with(format!("its agent has not responded for {seconds} s although its link is up"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Output;
    use crate::testing::{Look, UP, down, in_session, one_run};

    /// The heartbeat of an agent that has no jobs.
    struct Bench {
        cx: Cx,
        part: Heartbeat,
    }

    impl Bench {
        fn new(cx: Cx) -> Bench {
            let mut bench = Bench { cx: cx.linked(), part: Heartbeat::default() };
            bench.cx.outputs();
            bench
        }

        fn asked(&mut self, side: Side) -> Vec<Output> {
            self.part.on_asked(&mut self.cx, side);
            self.cx.outputs()
        }

        /// The outputs, and the links that are given up.
        fn tick(&mut self) -> (Vec<Output>, Vec<LinkId>) {
            let silent = self.part.on_tick(&mut self.cx);
            (self.cx.outputs(), silent.into_iter().map(|(link, _)| link).collect())
        }

        fn tick_when_due(&mut self) -> (Vec<Output>, Vec<LinkId>) {
            self.cx.agent.now = self.part.deadline().expect("the part waits for a time");
            self.tick()
        }
    }

    const ASKED: [Control; 1] = [Control::AreYouAlive];
    const ALIVE: [Control; 1] = [Control::Alive];

    #[test]
    fn heartbeats_continue_in_their_direction_and_end() {
        let mut heartbeat = Bench::new(in_session(1));
        assert_eq!(heartbeat.asked(Side::Above).sent(UP), ALIVE);
        let (outputs, _) = heartbeat.tick_when_due();
        assert!(outputs.sent(down(3)) == ASKED && outputs.sent(down(4)) == ASKED && outputs.sent(UP).is_empty());
        let outputs = heartbeat.asked(Side::Below(AgentId(3)));
        assert_eq!(outputs.sent(down(3)), ALIVE);
        let (outputs, _) = heartbeat.tick_when_due();
        assert!(outputs.sent(down(3)).is_empty(), "the parent has stopped asking");
        assert_eq!(outputs.sent(UP), ASKED);
        heartbeat.part.on_answered(&heartbeat.cx, Side::Above);
        assert!(heartbeat.tick_when_due().0.is_empty() && heartbeat.part.deadline().is_none());
    }

    #[test]
    fn a_parent_that_stops_asking_is_asked_and_lost_if_it_does_not_answer() {
        for answers in [true, false] {
            let mut heartbeat = Bench::new(in_session(1));
            heartbeat.asked(Side::Above);
            heartbeat.tick_when_due();
            let mut lost = Vec::new();
            for _ in 0..IN_TIME + 1 {
                let (outputs, given_up) = heartbeat.tick_when_due();
                lost.extend(given_up);
                if outputs.sent(UP) == ASKED && answers {
                    heartbeat.part.on_answered(&heartbeat.cx, Side::Above);
                    assert!(heartbeat.tick_when_due().0.is_empty() && heartbeat.part.deadline().is_none());
                    break;
                }
            }
            assert_eq!(lost, if answers { vec![] } else { vec![UP] });
        }
    }

    #[test]
    fn the_root_asks_while_nodes_start() {
        let mut heartbeat = Bench::new(in_session(0));
        heartbeat.part.on_starting(&heartbeat.cx, true);
        for _ in 0..3 {
            assert_eq!(heartbeat.tick_when_due().0.sent(down(1)), ASKED);
            for child in [1, 2] {
                heartbeat.part.on_answered(&heartbeat.cx, Side::Below(AgentId(child)));
            }
        }
        heartbeat.part.on_starting(&heartbeat.cx, false);
        assert!(heartbeat.tick_when_due().0.is_empty() && heartbeat.part.deadline().is_none());
    }

    #[test]
    fn only_neighbours_that_do_not_answer_are_given_up() {
        let mut heartbeat = Bench::new(in_session(1));
        let mut lost = Vec::new();
        for _ in 0..6 {
            for side in [Side::Above, Side::Below(AgentId(3))] {
                heartbeat.asked(side);
            }
            lost.extend(heartbeat.tick_when_due().1);
            heartbeat.part.on_answered(&heartbeat.cx, Side::Below(AgentId(3)));
        }
        // The test does not close the links, so each tick reports the silent links again.
        assert_eq!(lost, [down(4), UP].repeat(2));
        // Another incarnation has a new link and a new time limit.
        heartbeat.cx.agent.links.neighbours.on_child_up(AgentId(4), LinkId(14));
        heartbeat.cx.agent.links.neighbours.on_up_lost();
        heartbeat.asked(Side::Above);
        assert_eq!(heartbeat.tick_when_due().1, []);
    }

    #[test]
    fn an_agent_that_was_stopped_gives_up_no_neighbour_at_once() {
        let mut heartbeat = Bench::new(in_session(1));
        heartbeat.asked(Side::Above);
        heartbeat.tick_when_due();
        heartbeat.cx.agent.now = heartbeat.cx.agent.now + 100 * heartbeat.cx.session.links.node_timeout_ns;
        heartbeat.asked(Side::Above);
        assert_eq!(heartbeat.tick().1, []);
        assert!(heartbeat.part.deadline().is_some_and(|at| at > heartbeat.cx.agent.now));
    }

    #[test]
    fn in_one_run_the_launcher_is_not_asked_whether_it_is_alive() {
        let mut heartbeat = Bench::new(one_run(1));
        heartbeat.asked(Side::Below(AgentId(3)));
        while heartbeat.part.deadline().is_some() {
            assert!(heartbeat.tick_when_due().0.is_empty());
        }
    }
}
