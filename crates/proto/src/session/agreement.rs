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

use super::Cx;
use crate::io::Output;
use std::collections::BTreeSet;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{MissingAgent, Note};
use wireup_wire::route::Point;
use wireup_wire::talk::{SessionDown, SessionUp};

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
    /// Reports about whether the transport works are still missing: from this agent (if `own`), and from the subtrees
    /// of `children`.
    Checking { own: bool, children: BTreeSet<AgentId> },
    /// All agents of the subtree have reported; the root has not decided.
    Reported,
    /// The root has decided whether the transport is used.
    Decided(bool),
}

impl Agreement {
    /// Tells a child that has linked after the root's decision whether the transport is used.
    pub fn tell(&self, cx: &mut Cx, child: AgentId) {
        if let State::Decided(yes) = self.state {
            cx.child(child, SessionDown::UseTransport { yes });
        }
    }

    /// Asks these children and this agent whether they have the transport, if one was requested and they were not asked
    /// before.
    pub fn ask(&mut self, cx: &mut Cx, children: Vec<AgentId>) {
        if cx.session.links.transport.is_agreed_on() && matches!(self.state, State::NotRequested) {
            self.state = State::Checking { own: true, children: children.into_iter().collect() };
            cx.output(Output::OpenTransport);
        }
    }

    /// This agent has opened the transport, or failed to.
    pub fn on_opened(&mut self, cx: &mut Cx, result: Result<Point, String>) {
        match result {
            Ok(point) => self.point = Some(point),
            Err(problem) => self.missing = Some(MissingAgent { agent: cx.me, problem: problem.into() }),
        }
        if let State::Checking { own, .. } = &mut self.state {
            *own = false;
        }
        self.settle(cx);
    }

    /// A child reports for its whole subtree. `missing`: an agent that lacks the transport; `None`: none lacks it.
    pub fn on_looked(&mut self, cx: &mut Cx, branch: AgentId, missing: Option<MissingAgent>) {
        match &mut self.state {
            State::Checking { children, .. } => drop(children.remove(&branch)),
            // The root has decided already: sends the decision to the child, which may not have received it.
            State::Decided(yes) => cx.child(branch, SessionDown::UseTransport { yes: *yes }),
            State::NotRequested | State::Reported => {}
        }
        if self.missing.is_none() {
            self.missing = missing.filter(|missing| cx.tree.subtree_contains(branch, missing.agent));
        }
        self.settle(cx);
    }

    /// Reports the result of the subtree, once all agents in it have checked; lost agents are not awaited.
    pub fn settle(&mut self, cx: &mut Cx) {
        let State::Checking { own: false, children } = &mut self.state else { return };
        children.retain(|child| cx.agent.links.neighbours.has_child(*child));
        if !children.is_empty() {
            return;
        }
        if !cx.is_root() {
            self.state = State::Reported;
            return cx.up(SessionUp::TransportLooked { missing: self.missing.clone() });
        }
        let missing = self.missing.take();
        let yes = missing.is_none();
        if let Some(missing) = missing {
            cx.note(Note::NoTransport(missing));
        }
        self.on_decided(cx, yes);
    }

    /// Applies the root's decision whether the transport is used, and forwards it to the children.
    pub fn on_decided(&mut self, cx: &mut Cx, yes: bool) {
        if matches!(self.state, State::Decided(_)) {
            return;
        }
        self.state = State::Decided(yes);
        cx.children(SessionDown::UseTransport { yes });
        let point = self.point.clone().filter(|_| yes);
        cx.agent.links.with_direct(|direct| direct.on_decided(point));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Look, UP, agent_of, down, one_run, session};
    use wireup_wire::peer::AgentTransport;
    use wireup_wire::session::SessionSnapshot;
    use wireup_wire::talk::Control;

    /// Agent `me`, which has asked its children whether they have the transport.
    fn asked(me: u32) -> (Cx, Agreement) {
        let mut session = session(15);
        session.links.transport = AgentTransport::Ucx;
        let (mut cx, mut agreement) =
            (agent_of(me, session, &SessionSnapshot::default()).linked(), Agreement::default());
        cx.outputs();
        let children = cx.agent.links.neighbours.all().collect();
        agreement.ask(&mut cx, children);
        assert_eq!(cx.outputs(), [Output::OpenTransport]);
        (cx, agreement)
    }

    fn point() -> Point {
        Point { address: vec![1], key: [0; 32] }
    }

    fn missing(agent: u32) -> Option<MissingAgent> {
        Some(MissingAgent { agent: AgentId(agent), problem: "no library".into() })
    }

    #[test]
    fn an_agent_reports_for_its_subtree_when_all_have_checked() {
        let (mut cx, mut agreement) = asked(1);
        agreement.on_opened(&mut cx, Ok(point()));
        agreement.on_looked(&mut cx, AgentId(3), None);
        assert!(cx.outputs().is_empty());
        agreement.on_looked(&mut cx, AgentId(4), missing(9));
        assert_eq!(cx.outputs().sent(UP), [Control::SessionUp(SessionUp::TransportLooked { missing: missing(9) })]);
    }

    #[test]
    fn one_agent_without_the_transport_decides_for_all_and_is_named_once() {
        let (mut cx, mut agreement) = asked(0);
        agreement.on_opened(&mut cx, Err("no library".into()));
        agreement.on_looked(&mut cx, AgentId(1), None);
        agreement.on_looked(&mut cx, AgentId(2), missing(5));
        let decided = [Control::SessionDown(SessionDown::UseTransport { yes: false })];
        let outputs = cx.outputs();
        assert!(matches!(
            outputs.sent(UP)[..],
            [Control::Note(Note::NoTransport(MissingAgent { agent: AgentId(0), .. }))]
        ));
        assert_eq!(outputs.sent(down(2)), decided);
        agreement.tell(&mut cx, AgentId(2));
        assert_eq!(cx.outputs().sent(down(2)), decided);
    }

    #[test]
    fn a_child_that_is_lost_is_not_waited_for() {
        let (mut cx, mut agreement) = asked(1);
        agreement.on_looked(&mut cx, AgentId(3), None);
        cx.agent.links.neighbours.on_child_down(AgentId(4));
        agreement.on_opened(&mut cx, Ok(point()));
        assert_eq!(cx.outputs().sent(UP), [Control::SessionUp(SessionUp::TransportLooked { missing: None })]);
    }

    #[test]
    fn a_transport_that_was_not_requested_is_not_checked() {
        let (mut cx, mut agreement) = (one_run(0), Agreement::default());
        cx.outputs();
        agreement.ask(&mut cx, Vec::new());
        assert!(cx.outputs().is_empty());
    }
}
