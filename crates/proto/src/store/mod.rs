//! PyTorch's store in the agents of a job: each rank has a server at hand, and together they are one dictionary.
//!
//! ```text
//!   rank ◄── PyTorch's protocol ──► its agent ◄── Ask, Answer, Forget, Forgotten ──► owner of the key
//!            clients                questions                                        dictionary
//! ```
//!
//! - `clients`: the connections of this agent's ranks, and their requests
//! - `questions`: the questions of this agent to the owners of keys; clients with the same question share one
//! - `dictionary`: the keys that this agent owns
//!
//! A hash of a key gives its owner, one of at most [`STORE_OWNERS_MAX`] agents of the job. Each job has its own store,
//! so a job that is started again finds nothing old. An agent whose part of the job has ended keeps its keys for the
//! others ([`Store::into_dictionary`]).
//!
//! [`STORE_OWNERS_MAX`]: wireup_wire::limits::STORE_OWNERS_MAX

mod clients;
mod dictionary;
mod questions;
#[cfg(test)]
mod tests;

use crate::io::{Output, StoreAct, StoreClient, StoreEvent};
use crate::job::{Cx, facts::Facts};
use clients::Clients;
pub use dictionary::Dictionary;
use questions::Questions;
use wireup_wire::frame::{Frame, PeerFrame};
use wireup_wire::ids::{AgentId, JobId, NodeId};
use wireup_wire::limits::STORE_OWNERS_MAX;
use wireup_wire::peer::{self, Note};
use wireup_wire::store::Between;

pub struct Store {
    own: AgentId,
    clients: Clients,
    questions: Questions,
    dictionary: Dictionary,
    messages: Vec<(AgentId, Between)>,
    /// Whether the user was told that a connection was closed.
    has_noted: bool,
}

impl Store {
    /// The store of a job on one of its agents, if the job has one.
    pub fn of_job(facts: &Facts) -> Option<Box<Store>> {
        facts.node.filter(|_| facts.spec.options.process.has_store())?;
        let nodes = (0..facts.spec.nodes.len() as u32).map(NodeId);
        let with_ranks: Vec<NodeId> = nodes.filter(|node| facts.mapping.local_size(*node) > 0).collect();
        let step = with_ranks.len().div_ceil(STORE_OWNERS_MAX).max(1);
        let owners = with_ranks.into_iter().step_by(step).map(|node| facts.agent_of(node));
        Some(Box::new(Store::new(facts.me, owners.collect())))
    }

    fn new(own: AgentId, owners: Vec<AgentId>) -> Store {
        Store {
            own,
            clients: Clients::default(),
            questions: Questions::new(own, owners),
            dictionary: Dictionary::new(own),
            messages: Vec::new(),
            has_noted: false,
        }
    }

    /// The owners of keys, without this agent.
    pub fn other_owners(&self) -> Vec<AgentId> {
        self.questions.owners().iter().copied().filter(|owner| *owner != self.own).collect()
    }

    /// The keys that this agent owns, when its part of the job has ended.
    pub fn into_dictionary(self) -> Dictionary {
        self.dictionary
    }

    /// Something has happened to a client's connection.
    pub fn on_event(&mut self, cx: &mut Cx<'_>, client: StoreClient, event: StoreEvent) {
        let acts = self.handle_event(client, event);
        self.carry(cx, acts);
    }

    /// A message of another agent.
    pub fn on_between(&mut self, cx: &mut Cx<'_>, from: AgentId, message: Between) {
        let acts = self.handle_message(from, message);
        self.carry(cx, acts);
    }

    fn carry(&mut self, cx: &mut Cx<'_>, acts: Vec<(StoreClient, StoreAct)>) {
        let job = cx.facts.id();
        acts.into_iter().for_each(|(client, act)| cx.output(Output::Store { job, client, act }));
        for (agent, message) in std::mem::take(&mut self.messages) {
            cx.for_agent(agent, frame(job, &message));
        }
        if let Some(problem) = self.clients.take_problem().filter(|_| !std::mem::replace(&mut self.has_noted, true)) {
            cx.note(Note::StoreClosed { host: cx.facts.host(), problem });
        }
    }

    fn handle_event(&mut self, client: StoreClient, event: StoreEvent) -> Vec<(StoreClient, StoreAct)> {
        self.clients.on_event(client, event, &mut self.questions);
        self.settle()
    }

    fn handle_message(&mut self, agent: AgentId, message: Between) -> Vec<(StoreClient, StoreAct)> {
        match message {
            Between::Ask(_) | Between::Forgotten { .. } => self.dictionary.on_message(agent, message),
            Between::Answer { .. } | Between::Forget { .. } => self.questions.on_message(agent, message),
        }
        self.settle()
    }

    /// Carries on until everything that can be done here is done.
    fn settle(&mut self) -> Vec<(StoreClient, StoreAct)> {
        loop {
            self.clients.advance(&mut self.questions);
            let (mut is_done, own) = (true, self.own);
            for (agent, message) in self.questions.take_messages() {
                match agent == own {
                    true => {
                        is_done = false;
                        self.dictionary.on_message(agent, message);
                    }
                    false => self.messages.push((agent, message)),
                }
            }
            for (agent, message) in self.dictionary.take_messages() {
                match agent == own {
                    true => self.questions.on_message(agent, message),
                    false => self.messages.push((agent, message)),
                }
            }
            for (part, outcome) in self.questions.take_outcomes() {
                is_done = false;
                self.clients.on_outcome(part, outcome, &mut self.questions);
            }
            if is_done {
                return self.clients.take_acts();
            }
        }
    }
}

/// A message in its frame.
pub fn frame(job: JobId, message: &Between) -> Frame {
    Frame::new(PeerFrame::Store, 0, job.0, 0, peer::encode(message).into())
}

/// The answers of an agent whose part of the job has ended, for other agents: its own clients have gone.
pub fn answers_of_ended(
    dictionary: Option<&mut Dictionary>,
    from: AgentId,
    message: Between,
) -> Vec<(AgentId, Between)> {
    match (message, dictionary) {
        (Between::Forget { keys }, _) => vec![(from, Between::Forgotten { keys })],
        (message, Some(dictionary)) => {
            dictionary.on_message(from, message);
            let own = dictionary.own();
            dictionary.take_messages().filter(|(agent, _)| *agent != own).collect()
        }
        (_, None) => Vec::new(),
    }
}
