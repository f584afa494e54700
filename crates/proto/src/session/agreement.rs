//! Agrees on a transport that works only if all of the session's agents have it, such as UCX: all agents use it, or
//! none.
//!
//! ```text
//!   every agent   checks for its library ──┐
//!   its children  TransportLooked ─────────┴─► TransportLooked to the parent … the root: does every agent have it?
//!                                              UseTransport to all; one note names an agent that lacks it
//! ```
//!
//! Meanwhile frames for other agents go through the tree, or wait for up to half a second. Cost: one message up and one
//! down per link, once per session and only if such a transport was requested.

use super::inputs::agreement::Input;
use super::{Effect, Effects, View};
use crate::io::Output;
use std::collections::BTreeSet;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{MissingAgent, Note};
use wireup_wire::route::Point;
use wireup_wire::talk::{Control, SessionDown, SessionUp};

#[derive(Default)]
pub struct Agreement {
    state: State,
    /// This agent's address in the transport, once it has opened it.
    point: Option<Point>,
    missing: Option<MissingAgent>,
}

#[derive(Default)]
enum State {
    #[default]
    NotRequested,
    /// This agent and these children have not reported whether they have the transport.
    Checking {
        own: bool,
        children: BTreeSet<AgentId>,
    },
    /// All agents of the subtree have reported; the root has not decided.
    Reported,
    Decided(bool),
}

impl Agreement {
    pub fn handle(&mut self, view: &View<'_>, input: Input, fx: &mut Effects) {
        match input {
            Input::Ask(children) => self.ask(view, children, fx),
            Input::AskAll => self.ask(view, view.neighbours.all().collect(), fx),
            Input::Opened(result) => self.on_opened(view, result, fx),
            Input::Looked { branch, missing } => self.on_looked(view, branch, missing, fx),
            Input::Tell(child) => {
                if let State::Decided(yes) = self.state {
                    fx.child(child, Control::SessionDown(SessionDown::UseTransport { yes }));
                }
            }
            Input::Lost => self.settle(view, fx),
            Input::Decided(yes) => self.on_decided(yes, fx),
        }
    }

    fn ask(&mut self, view: &View<'_>, children: Vec<AgentId>, fx: &mut Effects) {
        if view.session.transport.is_agreed_on() && matches!(self.state, State::NotRequested) {
            self.state = State::Checking { own: true, children: children.into_iter().collect() };
            fx.push(Effect::Output(Output::OpenTransport));
        }
    }

    fn on_opened(&mut self, view: &View<'_>, result: Result<Point, String>, fx: &mut Effects) {
        match result {
            Ok(point) => self.point = Some(point),
            Err(problem) => self.missing = Some(MissingAgent { agent: view.me, problem: problem.into() }),
        }
        if let State::Checking { own, .. } = &mut self.state {
            *own = false;
        }
        self.settle(view, fx);
    }

    fn on_looked(&mut self, view: &View<'_>, branch: AgentId, missing: Option<MissingAgent>, fx: &mut Effects) {
        match &mut self.state {
            State::Checking { children, .. } => drop(children.remove(&branch)),
            // A child that reports after the decision is told the decision.
            State::Decided(yes) => fx.child(branch, Control::SessionDown(SessionDown::UseTransport { yes: *yes })),
            State::NotRequested | State::Reported => {}
        }
        if self.missing.is_none() {
            self.missing = missing.filter(|missing| view.tree.subtree_contains(branch, missing.agent));
        }
        self.settle(view, fx);
    }

    /// Reports the result of the subtree, once all agents in it have checked.
    fn settle(&mut self, view: &View<'_>, fx: &mut Effects) {
        let State::Checking { own: false, children } = &mut self.state else { return };
        // Lost children are not awaited.
        children.retain(|child| view.neighbours.has_child(*child));
        if !children.is_empty() {
            return;
        }
        if !view.is_root() {
            self.state = State::Reported;
            return fx.up(Control::SessionUp(SessionUp::TransportLooked { missing: self.missing.clone() }));
        }
        let missing = self.missing.take();
        let yes = missing.is_none();
        if let Some(missing) = missing {
            fx.note(Note::NoTransport(missing));
        }
        self.on_decided(yes, fx);
    }

    fn on_decided(&mut self, yes: bool, fx: &mut Effects) {
        if matches!(self.state, State::Decided(_)) {
            return;
        }
        self.state = State::Decided(yes);
        fx.push(Effect::Children(Control::SessionDown(SessionDown::UseTransport { yes })));
        fx.push(Effect::UseTransport(self.point.clone().filter(|_| yes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Part, Scene};

    impl Part for Agreement {
        type Input = Input;

        fn handle(&mut self, view: &View<'_>, input: Input, fx: &mut Effects) {
            self.handle(view, input, fx);
        }
    }

    fn bench(me: u32) -> Bench<Agreement> {
        let mut scene = Scene::one_run(me).linked();
        scene.session.transport = wireup_wire::peer::AgentTransport::Ucx;
        Bench::new(scene, Agreement::default())
    }

    fn point() -> Point {
        Point { address: vec![1], key: [0; 32] }
    }

    fn missing(agent: u32) -> Option<MissingAgent> {
        Some(MissingAgent { agent: AgentId(agent), problem: "no library".into() })
    }

    #[test]
    fn an_agent_reports_for_its_subtree_when_all_have_checked() {
        let mut agreement = bench(1);
        let fx = agreement.input(Input::AskAll);
        assert!(fx.iter().any(|effect| matches!(effect, Effect::Output(Output::OpenTransport))));
        assert!(agreement.input(Input::Opened(Ok(point()))).is_empty());
        assert!(agreement.input(Input::Looked { branch: AgentId(3), missing: None }).is_empty());
        let fx = agreement.input(Input::Looked { branch: AgentId(4), missing: missing(9) });
        assert_eq!(fx.sent_up(), [&Control::SessionUp(SessionUp::TransportLooked { missing: missing(9) })]);
    }

    #[test]
    fn one_agent_without_the_transport_decides_for_all_and_is_named_once() {
        let mut agreement = bench(0);
        agreement.input(Input::AskAll);
        agreement.input(Input::Opened(Err("no library".into())));
        agreement.input(Input::Looked { branch: AgentId(1), missing: None });
        let fx = agreement.input(Input::Looked { branch: AgentId(2), missing: missing(5) });
        assert!(matches!(fx.sent_up()[..], [Control::Note(Note::NoTransport(MissingAgent { agent: AgentId(0), .. }))]));
        assert!(fx.iter().any(|effect| matches!(effect, Effect::UseTransport(None))));
        let fx = agreement.input(Input::Tell(AgentId(2)));
        assert_eq!(fx.sent_to_child(2), [&Control::SessionDown(SessionDown::UseTransport { yes: false })]);
    }

    #[test]
    fn a_child_that_is_lost_is_not_waited_for() {
        let mut agreement = bench(1);
        agreement.input(Input::AskAll);
        agreement.input(Input::Looked { branch: AgentId(3), missing: None });
        agreement.scene.neighbours.on_child_down(AgentId(4));
        let fx = agreement.input(Input::Opened(Ok(point())));
        assert_eq!(fx.sent_up(), [&Control::SessionUp(SessionUp::TransportLooked { missing: None })]);
    }

    #[test]
    fn a_transport_that_was_not_requested_is_not_checked() {
        let mut agreement = Bench::new(Scene::one_run(0), Agreement::default());
        assert!(agreement.input(Input::AskAll).is_empty());
    }
}
