//! Whether the session's agents use UCX: all of them, or none.
//!
//! ```text
//!   every agent   looks for the library ─┐
//!   its children  UcxLooked ─────────────┴─► UcxLooked to the parent … the root: all can, or somebody cannot
//!                                            UseUcx to all; one note names who cannot
//! ```
//!
//! Frames for others go through the tree meanwhile, or wait for half a second. Cost: one message up and one down each link, once a
//! session and only where UCX was asked for.

use super::inputs::ucx::Input;
use super::{Effect, Effects, View};
use crate::io::Output;
use std::collections::BTreeSet;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{AgentTransport, Control, MissingAgent, Note};
use wireup_wire::route::UcxPoint;

#[derive(Default)]
pub struct UcxAgreement {
    state: State,
    /// Where this agent is reached, once it has looked.
    point: Option<UcxPoint>,
    missing: Option<MissingAgent>,
}

#[derive(Default)]
enum State {
    #[default]
    Unasked,
    /// Own look and children that are waited for.
    Asking {
        own: bool,
        children: BTreeSet<AgentId>,
    },
    /// All below have looked; the root is to say.
    Told,
    Decided(bool),
}

impl UcxAgreement {
    pub fn handle(&mut self, view: &View<'_>, input: Input, fx: &mut Effects) {
        match input {
            Input::Ask(children) => self.ask(view, children, fx),
            Input::AskAll => self.ask(view, view.neighbours.all().collect(), fx),
            Input::Opened(result) => self.on_opened(view, result, fx),
            Input::Looked { branch, missing } => self.on_looked(view, branch, missing, fx),
            Input::Tell(child) => {
                if let State::Decided(yes) = self.state {
                    fx.child(child, Control::UseUcx { yes });
                }
            }
            Input::Decided(yes) => self.on_decided(yes, fx),
        }
    }

    fn ask(&mut self, view: &View<'_>, children: Vec<AgentId>, fx: &mut Effects) {
        if view.session.transport == AgentTransport::Ucx && matches!(self.state, State::Unasked) {
            self.state = State::Asking { own: true, children: children.into_iter().collect() };
            fx.push(Effect::Do(Output::OpenUcx));
        }
    }

    fn on_opened(&mut self, view: &View<'_>, result: Result<UcxPoint, String>, fx: &mut Effects) {
        match result {
            Ok(point) => self.point = Some(point),
            Err(problem) => self.missing = Some(MissingAgent { agent: view.me, problem }),
        }
        if let State::Asking { own, .. } = &mut self.state {
            *own = false;
        }
        self.settle(view, fx);
    }

    fn on_looked(&mut self, view: &View<'_>, branch: AgentId, missing: Option<MissingAgent>, fx: &mut Effects) {
        match &mut self.state {
            State::Asking { children, .. } => drop(children.remove(&branch)),
            // One that came later hears what is the case.
            State::Decided(yes) => fx.child(branch, Control::UseUcx { yes: *yes }),
            State::Unasked | State::Told => {}
        }
        if self.missing.is_none() {
            self.missing = missing.filter(|missing| view.tree.subtree_contains(branch, missing.agent));
        }
        self.settle(view, fx);
    }

    /// Says what all below have found, once all have looked.
    fn settle(&mut self, view: &View<'_>, fx: &mut Effects) {
        let State::Asking { own: false, children } = &mut self.state else { return };
        // One that is lost is not waited for.
        children.retain(|child| view.neighbours.has_child(*child));
        if !children.is_empty() {
            return;
        }
        if !view.is_root() {
            self.state = State::Told;
            return fx.up(Control::UcxLooked { missing: self.missing.clone() });
        }
        let missing = self.missing.take();
        let yes = missing.is_none();
        if let Some(missing) = missing {
            fx.note(Note::NoUcx(missing));
        }
        self.on_decided(yes, fx);
    }

    fn on_decided(&mut self, yes: bool, fx: &mut Effects) {
        if matches!(self.state, State::Decided(_)) {
            return;
        }
        self.state = State::Decided(yes);
        fx.push(Effect::Children(Control::UseUcx { yes }));
        fx.push(Effect::UseUcx(self.point.clone().filter(|_| yes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::LinkId;
    use crate::session::Scene;
    use crate::session::view::tests::{said_to, said_up};

    fn scene(me: u32) -> Scene {
        let mut scene = Scene::one_run(me);
        scene.session.transport = AgentTransport::Ucx;
        let children: Vec<AgentId> = scene.tree().children(AgentId(me)).map(AgentId).collect();
        for child in children {
            scene.neighbours.on_child_up(child, LinkId(child.0));
        }
        scene
    }

    fn tell(ucx: &mut UcxAgreement, scene: &Scene, input: Input) -> Effects {
        let mut fx = Effects::default();
        ucx.handle(&scene.view(), input, &mut fx);
        fx
    }

    fn point() -> UcxPoint {
        UcxPoint { address: vec![1], key: [0; 32] }
    }

    fn nobody(agent: u32) -> Option<MissingAgent> {
        Some(MissingAgent { agent: AgentId(agent), problem: "no library".into() })
    }

    #[test]
    fn an_agent_speaks_for_its_subtree_when_all_have_looked() {
        let (scene, mut ucx) = (scene(1), UcxAgreement::default());
        let fx = tell(&mut ucx, &scene, Input::AskAll);
        assert!(fx.iter().any(|effect| matches!(effect, Effect::Do(Output::OpenUcx))));
        assert!(tell(&mut ucx, &scene, Input::Opened(Ok(point()))).is_empty());
        assert!(tell(&mut ucx, &scene, Input::Looked { branch: AgentId(3), missing: None }).is_empty());
        let fx = tell(&mut ucx, &scene, Input::Looked { branch: AgentId(4), missing: nobody(9) });
        assert_eq!(said_up(&fx), [&Control::UcxLooked { missing: nobody(9) }]);
    }

    #[test]
    fn one_agent_without_it_decides_for_all_and_is_named_once() {
        let (scene, mut ucx) = (scene(0), UcxAgreement::default());
        tell(&mut ucx, &scene, Input::AskAll);
        tell(&mut ucx, &scene, Input::Opened(Err("no library".into())));
        tell(&mut ucx, &scene, Input::Looked { branch: AgentId(1), missing: None });
        let fx = tell(&mut ucx, &scene, Input::Looked { branch: AgentId(2), missing: nobody(5) });
        assert!(matches!(said_up(&fx)[..], [Control::Note(Note::NoUcx(MissingAgent { agent: AgentId(0), .. }))]));
        assert!(fx.iter().any(|effect| matches!(effect, Effect::UseUcx(None))));
        let fx = tell(&mut ucx, &scene, Input::Tell(AgentId(2)));
        assert_eq!(said_to(&fx, 2), [&Control::UseUcx { yes: false }]);
    }

    #[test]
    fn a_child_that_is_lost_is_not_waited_for() {
        let (mut scene, mut ucx) = (scene(1), UcxAgreement::default());
        tell(&mut ucx, &scene, Input::AskAll);
        tell(&mut ucx, &scene, Input::Looked { branch: AgentId(3), missing: None });
        scene.neighbours.on_child_down(AgentId(4));
        let fx = tell(&mut ucx, &scene, Input::Opened(Ok(point())));
        assert_eq!(said_up(&fx), [&Control::UcxLooked { missing: None }]);
    }

    #[test]
    fn nobody_looks_for_what_is_not_wanted() {
        let (scene, mut ucx) = (Scene::one_run(0), UcxAgreement::default());
        assert!(tell(&mut ucx, &scene, Input::AskAll).is_empty());
    }
}
