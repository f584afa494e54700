//! The `Cx` of a part of an agent, for the part's tests: agent `me` of fifteen, in a tree with fan-out 2.

use super::UP;
use super::specs::{session, standing};
use crate::io::{LinkId, Output, Peer};
use crate::link::Routes;
use crate::policy::Policy;
use crate::session::Cx;
use crate::time::Instant;
use wireup_coll::tree::Tree;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::SessionSpec;
use wireup_wire::session::SessionSnapshot;

/// An agent in a session of one run.
pub fn one_run(me: u32) -> Cx {
    agent_of(me, session(15), &SessionSnapshot::default())
}

/// An agent in a standing session.
pub fn in_session(me: u32) -> Cx {
    agent_of(me, standing(session(15)), &SessionSnapshot::default())
}

pub fn agent_of(me: u32, session: SessionSpec, snapshot: &SessionSnapshot) -> Cx {
    let me = AgentId(me);
    let routes = Routes::new(me, Tree::new(15, 2), Policy::of(&session), snapshot);
    let mut cx = Cx::new(me, Instant(1_000_000_000), session, routes);
    cx.agent.links.with_direct(|direct| direct.on_listening(Ok(vec!["10.0.0.1:1".into()])));
    cx
}

/// The link to a child.
pub fn down(child: u32) -> LinkId {
    LinkId(100 + child)
}

impl Cx {
    /// Links all children and, unless the agent is the root of a standing session, the parent or the launcher.
    pub fn linked(mut self) -> Cx {
        let up = if self.is_root() { Peer::Launcher } else { Peer::Parent };
        if !self.is_root() || !self.policy.has_many_launchers() {
            self.agent.links.on_link_up(UP, up);
        }
        self.tree.children(self.me).for_each(|child| self.link_child(child));
        self
    }

    pub fn link_child(&mut self, child: u32) {
        let peer = Peer::Child { agent: AgentId(child), incarnation: 0 };
        self.agent.links.on_link_up(down(child), peer);
    }

    /// Everything that was requested from the driver since the last call.
    pub fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.agent.links.out.pop()).collect()
    }
}
