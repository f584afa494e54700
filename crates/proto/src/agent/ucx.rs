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

use super::Agent;
use std::collections::BTreeSet;
use wireup_wire::ids::{AgentId, JobId};
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

impl Agent {
    /// A job begins: if it is the session's first that wants UCX, everybody looks for it.
    pub(super) fn ask_for_ucx(&mut self, children: impl IntoIterator<Item = AgentId>) {
        if self.config.session.transport == AgentTransport::Ucx && matches!(self.ucx.state, State::Unasked) {
            self.ucx.state = State::Asking { own: true, children: children.into_iter().collect() };
            self.out.push(crate::io::Output::OpenUcx);
        }
    }

    pub(super) fn on_ucx_opened(&mut self, result: Result<UcxPoint, String>) {
        let agent = self.config.agent;
        match result {
            Ok(point) => self.ucx.point = Some(point),
            Err(problem) => self.ucx.missing = Some(MissingAgent { agent, problem }),
        }
        if let State::Asking { own, .. } = &mut self.ucx.state {
            *own = false;
        }
        self.settle_ucx();
    }

    /// All of a child's subtree have looked.
    pub(super) fn on_ucx_looked(&mut self, branch: AgentId, missing: Option<MissingAgent>) {
        match &mut self.ucx.state {
            State::Asking { children, .. } => drop(children.remove(&branch)),
            // One that came later hears what is the case.
            State::Decided(yes) => {
                let message = Control::UseUcx { yes: *yes };
                self.links.control_child(branch, JobId(0), &message, &mut self.out);
            }
            State::Unasked | State::Told => {}
        }
        if self.ucx.missing.is_none() {
            self.ucx.missing = missing.filter(|missing| self.tree.subtree_contains(branch, missing.agent));
        }
        self.settle_ucx();
    }

    fn settle_ucx(&mut self) {
        let known = self.links.all_children();
        let State::Asking { own: false, children } = &mut self.ucx.state else { return };
        // One that is lost is not waited for.
        children.retain(|child| known.contains(child));
        if !children.is_empty() {
            return;
        }
        if !self.is_root() {
            self.ucx.state = State::Told;
            let message = Control::UcxLooked { missing: self.ucx.missing.clone() };
            self.links.control_up(JobId(0), &message, &mut self.out);
            return;
        }
        let missing = self.ucx.missing.take();
        let yes = missing.is_none();
        if let Some(missing) = missing {
            self.note(Note::NoUcx(missing));
        }
        self.on_use_ucx(yes);
    }

    /// One that links late hears what is the case.
    pub(super) fn tell_ucx(&mut self, child: AgentId) {
        if let State::Decided(yes) = self.ucx.state {
            self.links.control_child(child, JobId(0), &Control::UseUcx { yes }, &mut self.out);
        }
    }

    pub(super) fn on_use_ucx(&mut self, yes: bool) {
        if matches!(self.ucx.state, State::Decided(_)) {
            return;
        }
        self.ucx.state = State::Decided(yes);
        for child in self.links.all_children() {
            self.links.control_child(child, JobId(0), &Control::UseUcx { yes }, &mut self.out);
        }
        let point = self.ucx.point.clone().filter(|_| yes);
        self.links.on_decided(point, &mut self.out);
    }
}
