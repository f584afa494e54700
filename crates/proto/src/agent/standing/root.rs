//! What the root of a standing session knows: its nodes, its launchers, the next job's number.

use crate::io::LinkId;
use crate::time::Instant;
use std::collections::BTreeMap;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{AgentTransport, RemoteShell, SessionSpec};
use wireup_wire::session::{NodeState, Presence, Standing, Welcome};

pub struct Root {
    nodes: Vec<NodeState>,
    /// Nodes of which it is not known yet whether they come.
    starting: usize,
    /// What a launcher is told but for these.
    facts: Facts,
    /// The last job's number that was given to a launcher.
    newest: JobId,
    pub launchers: BTreeMap<LinkId, Attached>,
    /// Jobs under way, and since when.
    pub begun: BTreeMap<JobId, Instant>,
    /// The last life that lost agents were started to.
    life: u32,
    /// The session is to end, and why.
    pub ending: Option<String>,
}

struct Facts {
    session: String,
    fanout: u32,
    shared: bool,
    by_step: bool,
    transport: AgentTransport,
}

/// A launcher.
pub struct Attached {
    pub job: JobId,
    pub has_launched: bool,
    pub asks: Asks,
    /// It waits until all nodes are up or known to be missing.
    pub waits_for_nodes: bool,
}

/// What a launcher has asked and is not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Asks {
    pub nodes: bool,
    pub jobs: bool,
    /// It wants all nodes: perhaps they are there.
    pub revived: bool,
}

impl Root {
    pub fn new(standing: &Standing, session: &SessionSpec) -> Self {
        let nodes = session.agents.iter().enumerate().map(|(index, agent)| NodeState {
            host: agent.host.clone(),
            slots: standing.slots.get(index).copied().unwrap_or(1),
            presence: if index == 0 { Presence::Up } else { Presence::Starting },
        });
        Root {
            nodes: nodes.collect(),
            starting: session.agents.len().saturating_sub(1),
            facts: Facts {
                session: session.name.clone(),
                fanout: session.fanout,
                shared: session.remote_shell == RemoteShell::Local,
                by_step: matches!(session.remote_shell, RemoteShell::Srun(_)),
                transport: session.transport,
            },
            newest: JobId(0),
            launchers: BTreeMap::new(),
            begun: BTreeMap::new(),
            life: 0,
            ending: None,
        }
    }

    /// A launcher is there; its job's number is its own from now on.
    pub fn attach(&mut self, link: LinkId) -> Welcome {
        self.newest = JobId(self.newest.0 + 1);
        let attached =
            Attached { job: self.newest, has_launched: false, asks: Asks::default(), waits_for_nodes: false };
        self.launchers.insert(link, attached);
        let Facts { session, fanout, shared, by_step, transport } = &self.facts;
        Welcome {
            job: self.newest,
            session: session.clone(),
            fanout: *fanout,
            shared: *shared,
            by_step: *by_step,
            transport: *transport,
            nodes: self.nodes.clone(),
        }
    }

    pub fn nodes(&self) -> &[NodeState] {
        &self.nodes
    }

    /// The last job's number, and those that may still have something to say.
    pub fn live(&self) -> (JobId, Vec<JobId>) {
        let reserved = self.launchers.values().filter(|launcher| !launcher.has_launched).map(|launcher| launcher.job);
        let mut live: Vec<JobId> = self.begun.keys().copied().chain(reserved).collect();
        live.sort_unstable();
        (self.newest, live)
    }

    /// Whether it is known of all nodes that they are there, or are not.
    pub fn is_settled(&self) -> bool {
        self.starting == 0
    }

    /// These agents are linked; handed back are those that were before.
    pub fn on_here(&mut self, agents: &[AgentId]) -> Vec<AgentId> {
        let mut before = Vec::new();
        for &agent in agents {
            let Some(node) = self.nodes.get_mut(agent.index()) else { continue };
            match node.presence {
                Presence::Starting => {
                    node.presence = Presence::Up;
                    self.starting -= 1;
                }
                Presence::Up => before.push(agent),
                Presence::Lost { .. } => {}
            }
        }
        before
    }

    /// True if that is news.
    pub fn on_lost(&mut self, agent: AgentId, problem: &str) -> bool {
        let Some(node) = self.nodes.get_mut(agent.index()).filter(|_| agent != AgentId(0)) else { return false };
        let before = std::mem::replace(&mut node.presence, Presence::Lost { problem: problem.to_owned() });
        match before {
            Presence::Lost { .. } => {
                node.presence = before;
                false
            }
            Presence::Starting => {
                self.starting -= 1;
                true
            }
            Presence::Up => true,
        }
    }

    /// Why a node is lost, if it is.
    pub fn problem(&self, agent: AgentId) -> Option<&str> {
        match &self.nodes.get(agent.index())?.presence {
            Presence::Lost { problem } => Some(problem),
            Presence::Starting | Presence::Up => None,
        }
    }

    /// All that are lost: they are being started from now on.
    pub fn take_lost(&mut self) -> Vec<AgentId> {
        let mut lost = Vec::new();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if matches!(node.presence, Presence::Lost { .. }) {
                node.presence = Presence::Starting;
                self.starting += 1;
                lost.push(AgentId(index as u32));
            }
        }
        lost
    }

    pub fn next_life(&mut self) -> u32 {
        self.life += 1;
        self.life
    }

    /// Entries of all tables that grow.
    pub fn size(&self) -> usize {
        self.launchers.len() + self.begun.len()
    }
}
