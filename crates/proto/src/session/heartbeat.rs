//! Checks that neighbours in the tree respond: the links of an agent that is stopped or stuck look healthy.
//!
//! ```text
//!   an agent with a job ── asks ──► its children and its parent: each answers at once
//!   an agent that its parent asks also asks its children; one that a child asks also asks its parent
//!   when the parent stops asking, the agent asks once more whether the parent is alive
//!   no answer within the node time-out: the link is given up as if it were broken
//! ```
//!
//! Active only while something is in progress: a job or, at the root, nodes that are starting. An idle session is
//! silent. Cost: per link two messages in each direction four times per node time-out.
//!
//! In a session of one run no agent asks its parent: the launcher is the root, and its user may stop it for any length
//! of time.

use super::inputs::heartbeat::{Input, Side};
use super::{Effect, Effects, View};
use crate::io::LinkId;
use crate::time::Instant;
use std::collections::BTreeMap;
use wireup_wire::peer::{Problem, ProblemKind};
use wireup_wire::talk::{Control, Pulse};

/// Number of requests within the time that a neighbour may be silent. Chosen: an answer that is half an interval late
/// is not mistaken for a missing one.
const IN_TIME: u64 = 4;

#[derive(Default)]
pub struct Heartbeat {
    /// Time of the next requests; `None`: nothing is in progress.
    next_at: Option<Instant>,
    /// Time until which recent requests from the parent keep this agent asking its children; `below_waits`: until which
    /// requests from children keep it asking its parent.
    above_waits: Option<Instant>,
    below_waits: Option<Instant>,
    /// Whether the parent has asked before and has stopped: it may have finished, or be stopped.
    doubts_above: bool,
    /// At the root: whether nodes are starting.
    is_starting: bool,
    /// Time of the request on each link that has not answered.
    unanswered: BTreeMap<LinkId, Instant>,
}

impl Heartbeat {
    pub fn deadline(&self) -> Option<Instant> {
        self.next_at
    }

    pub fn handle(&mut self, view: &View<'_>, input: Input, fx: &mut Effects) {
        match input {
            Input::Asked(side) => {
                say(side, Control::Pulse(Pulse::Alive), fx);
                let until = Some(view.now + 2 * interval_ns(view));
                match side {
                    Side::Above => (self.above_waits, self.doubts_above) = (until, false),
                    Side::Below(_) => self.below_waits = until,
                }
                self.begin(view);
            }
            Input::Answered(side) => {
                if let Some(link) = link_with(view, side) {
                    self.unanswered.remove(&link);
                }
                if side == Side::Above {
                    self.doubts_above = false;
                }
            }
            Input::JobBegun => self.begin(view),
            Input::Starting(is_starting) => {
                self.is_starting = is_starting;
                if is_starting {
                    self.begin(view);
                }
            }
            Input::Tick => self.on_tick(view, fx),
        }
    }

    fn begin(&mut self, view: &View<'_>) {
        let has_neighbours = !view.neighbours.is_leaf() || asks_above(view);
        if self.next_at.is_none() && has_neighbours && view.session.node_timeout_ns > 0 {
            self.next_at = Some(view.now + interval_ns(view));
        }
    }

    fn on_tick(&mut self, view: &View<'_>, fx: &mut Effects) {
        let Some(at) = self.next_at.take_if(|at| *at <= view.now) else { return };
        if view.now - at >= interval_ns(view) {
            // This agent was stopped itself: answers of the others may be unread.
            self.unanswered.clear();
        }
        if self.above_waits.take_if(|until| *until <= view.now).is_some() {
            self.doubts_above = asks_above(view) && view.neighbours.has_up();
        }
        if self.waits(view, self.above_waits) || self.waits(view, self.below_waits) || self.doubts_above {
            self.begin(view);
        }
        let whom = self.whom_to_ask(view);
        let whom: Vec<_> = whom.into_iter().filter_map(|side| Some((side, link_with(view, side)?))).collect();
        self.unanswered.retain(|link, _| whom.iter().any(|(_, asked)| asked == link));
        for (side, link) in whom {
            let since = *self.unanswered.entry(link).or_insert(view.now);
            match view.now - since >= view.session.node_timeout_ns {
                true => fx.push(Effect::GiveUp(side, silent(view))),
                false => say(side, Control::Pulse(Pulse::AreYouAlive), fx),
            }
        }
    }

    fn whom_to_ask(&self, view: &View<'_>) -> Vec<Side> {
        let mut whom = Vec::new();
        if self.waits(view, self.above_waits) {
            whom.extend(view.neighbours.linked().map(Side::Below));
        }
        if (self.waits(view, self.below_waits) || self.doubts_above) && asks_above(view) {
            whom.push(Side::Above);
        }
        whom
    }

    /// Whether this agent has a job or starts nodes, or recent requests from the other side keep it asking.
    fn waits(&self, view: &View<'_>, until: Option<Instant>) -> bool {
        !view.jobs.is_empty() || self.is_starting || until.is_some_and(|until| until > view.now)
    }
}

fn link_with(view: &View<'_>, side: Side) -> Option<LinkId> {
    match side {
        Side::Above => view.neighbours.up(),
        Side::Below(child) => view.neighbours.child(child),
    }
}

fn asks_above(view: &View<'_>) -> bool {
    !view.is_root() && view.policy.survives_losses()
}

fn interval_ns(view: &View<'_>) -> u64 {
    view.session.node_timeout_ns / IN_TIME
}

fn say(side: Side, message: Control, fx: &mut Effects) {
    match side {
        Side::Above => fx.up(message),
        Side::Below(child) => fx.child(child, message),
    }
}

fn silent(view: &View<'_>) -> Problem {
    let seconds = view.session.node_timeout_ns as f64 / 1e9;
    ProblemKind::Silent.with(format!("its agent has not responded for {seconds} s although its link is up"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Part, Scene};
    use wireup_wire::ids::AgentId;

    impl Part for Heartbeat {
        type Input = Input;
        const TICK: Option<Input> = Some(Input::Tick);

        fn handle(&mut self, view: &View<'_>, input: Input, fx: &mut Effects) {
            self.handle(view, input, fx);
        }

        fn deadline(&self) -> Option<Instant> {
            self.deadline()
        }
    }

    const ASKED: [&Control; 1] = [&Control::Pulse(Pulse::AreYouAlive)];

    /// The part of an agent without jobs.
    fn bench(scene: Scene) -> Bench<Heartbeat> {
        Bench::new(scene.linked(), Heartbeat::default())
    }

    fn given_up(fx: &Effects) -> Vec<Side> {
        let whom = |effect: &Effect| if let Effect::GiveUp(side, _) = effect { Some(*side) } else { None };
        fx.iter().filter_map(whom).collect()
    }

    #[test]
    fn heartbeats_continue_in_their_direction_and_end() {
        let mut heartbeat = bench(Scene::standing(1));
        assert_eq!(heartbeat.input(Input::Asked(Side::Above)).sent_up(), [&Control::Pulse(Pulse::Alive)]);
        let fx = heartbeat.tick_when_due();
        assert!(fx.sent_to_child(3) == ASKED && fx.sent_to_child(4) == ASKED && fx.sent_up().is_empty());
        let fx = heartbeat.input(Input::Asked(Side::Below(AgentId(3))));
        assert_eq!(fx.sent_to_child(3), [&Control::Pulse(Pulse::Alive)]);
        let fx = heartbeat.tick_when_due();
        assert!(fx.sent_to_child(3).is_empty(), "the parent has stopped asking");
        assert_eq!(fx.sent_up(), ASKED);
        heartbeat.input(Input::Answered(Side::Above));
        assert!(heartbeat.tick_when_due().is_empty() && heartbeat.part.deadline().is_none());
    }

    #[test]
    fn a_parent_that_stops_asking_is_asked_and_lost_if_it_does_not_answer() {
        for answers in [true, false] {
            let mut heartbeat = bench(Scene::standing(1));
            heartbeat.input(Input::Asked(Side::Above));
            heartbeat.tick_when_due();
            let mut lost = Vec::new();
            for _ in 0..IN_TIME + 1 {
                let fx = heartbeat.tick_when_due();
                lost.extend(given_up(&fx));
                if fx.sent_up() == ASKED && answers {
                    heartbeat.input(Input::Answered(Side::Above));
                    assert!(heartbeat.tick_when_due().is_empty() && heartbeat.part.deadline().is_none());
                    break;
                }
            }
            assert_eq!(lost, if answers { vec![] } else { vec![Side::Above] });
        }
    }

    #[test]
    fn the_root_asks_while_nodes_start() {
        let mut heartbeat = bench(Scene::standing(0));
        heartbeat.input(Input::Starting(true));
        for _ in 0..3 {
            assert_eq!(heartbeat.tick_when_due().sent_to_child(1), ASKED);
            for child in [1, 2] {
                heartbeat.input(Input::Answered(Side::Below(AgentId(child))));
            }
        }
        heartbeat.input(Input::Starting(false));
        assert!(heartbeat.tick_when_due().is_empty() && heartbeat.part.deadline().is_none());
    }

    #[test]
    fn only_neighbours_that_do_not_answer_are_given_up() {
        let mut heartbeat = bench(Scene::standing(1));
        let mut lost = Vec::new();
        for _ in 0..6 {
            for side in [Side::Above, Side::Below(AgentId(3))] {
                heartbeat.input(Input::Asked(side));
            }
            lost.extend(given_up(&heartbeat.tick_when_due()));
            heartbeat.input(Input::Answered(Side::Below(AgentId(3))));
        }
        // The link is up until it is closed.
        assert_eq!(lost, [Side::Below(AgentId(4)), Side::Above].repeat(2));
        // Another incarnation has a new link and a new time limit.
        heartbeat.scene.neighbours.on_child_up(AgentId(4), LinkId(14));
        heartbeat.scene.neighbours.on_up_lost();
        heartbeat.input(Input::Asked(Side::Above));
        assert_eq!(given_up(&heartbeat.tick_when_due()), []);
    }

    #[test]
    fn an_agent_that_was_stopped_gives_up_no_neighbour_at_once() {
        let mut heartbeat = bench(Scene::standing(1));
        heartbeat.input(Input::Asked(Side::Above));
        heartbeat.tick_when_due();
        heartbeat.scene.now = heartbeat.scene.now + 100 * heartbeat.scene.session.node_timeout_ns;
        heartbeat.input(Input::Asked(Side::Above));
        assert_eq!(given_up(&heartbeat.tick()), []);
        assert!(heartbeat.part.deadline().is_some_and(|at| at > heartbeat.scene.now));
    }

    #[test]
    fn in_one_run_the_launcher_is_not_asked_whether_it_is_alive() {
        let mut heartbeat = bench(Scene::one_run(1));
        heartbeat.input(Input::Asked(Side::Below(AgentId(3))));
        while heartbeat.part.deadline().is_some() {
            assert!(heartbeat.tick_when_due().is_empty());
        }
    }
}
