//! What a part may know about its agent while handling one input.

use super::{Jobs, Policy};
use crate::link::Neighbours;
use crate::time::Instant;
use wireup_coll::tree::Tree;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Batch, SessionSpec};

pub struct View<'a> {
    pub now: Instant,
    pub me: AgentId,
    pub tree: Tree,
    pub session: &'a SessionSpec,
    pub policy: Policy,
    pub neighbours: &'a Neighbours,
    /// The addresses at which other agents can dial in; empty while this agent does not listen.
    pub addresses: &'a [String],
    pub jobs: &'a Jobs,
    /// The agent must leave as soon as possible.
    pub is_leaving: bool,
}

impl View<'_> {
    pub fn is_root(&self) -> bool {
        self.me == AgentId(0)
    }

    /// Whether agents are started by steps that the root calls.
    pub fn is_by_step(&self) -> bool {
        self.batch().is_some()
    }

    /// The batch system of these steps.
    pub fn batch(&self) -> Option<&'static Batch> {
        self.session.remote_shell.starter().batch.as_ref()
    }

    /// The name of this agent's host.
    pub fn host(&self) -> &str {
        self.session.agents.get(self.me.index()).map_or("its parent", |agent| agent.host.as_str())
    }

    pub fn is_strictly_below(&self, branch: AgentId, agent: AgentId) -> bool {
        agent != branch && self.tree.subtree_contains(branch, agent)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::session::{Effect, Effects};
    use wireup_wire::peer::{AgentSpec, Control, RemoteShell};

    /// The data of a view, for tests of parts: agent `me` of fifteen, fan-out 2, one second after time zero.
    pub struct Scene {
        pub now: Instant,
        pub me: AgentId,
        pub session: SessionSpec,
        pub neighbours: Neighbours,
        pub addresses: Vec<String>,
        pub jobs: Jobs,
        pub is_leaving: bool,
    }

    impl Scene {
        pub fn one_run(me: u32) -> Scene {
            Scene {
                now: Instant(1_000_000_000),
                me: AgentId(me),
                session: SessionSpec {
                    name: "test".into(),
                    fanout: 2,
                    agents: (0..15).map(|agent| AgentSpec { host: format!("n{agent}") }).collect(),
                    remote_shell: RemoteShell::Ssh(vec!["ssh".into()]),
                    shells_max: 64,
                    start_timeout_ns: 30_000_000_000,
                    node_timeout_ns: 10_000_000_000,
                    ..SessionSpec::default()
                },
                neighbours: Neighbours::default(),
                addresses: vec!["10.0.0.1:1".into()],
                jobs: Jobs::default(),
                is_leaving: false,
            }
        }

        pub fn standing(me: u32) -> Scene {
            let mut scene = Scene::one_run(me);
            scene.session.standing = Some(Default::default());
            scene
        }

        pub fn tree(&self) -> Tree {
            Tree::new(15, 2)
        }

        pub fn view(&self) -> View<'_> {
            View {
                now: self.now,
                me: self.me,
                tree: self.tree(),
                session: &self.session,
                policy: Policy::of(&self.session),
                neighbours: &self.neighbours,
                addresses: &self.addresses,
                jobs: &self.jobs,
                is_leaving: self.is_leaving,
            }
        }
    }

    /// The messages towards the root in these effects.
    pub fn said_up(fx: &Effects) -> Vec<&Control> {
        let mut said = Vec::new();
        for effect in fx.iter() {
            if let Effect::Up(_, message) = effect {
                said.push(message);
            }
        }
        said
    }

    /// The messages to a child in these effects.
    pub fn said_to(fx: &Effects, child: u32) -> Vec<&Control> {
        let mut said = Vec::new();
        for effect in fx.iter() {
            if let Effect::Child(agent, message) = effect
                && agent.0 == child
            {
                said.push(message);
            }
        }
        said
    }
}
