//! PyTorch's `TCPStore`, served by the agents of a job: each rank connects to its own agent, and all agents together
//! hold one dictionary.
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
//! A hash of a key gives its owner. In a job with at most [`STORE_OWNERS_MAX`] nodes all agents with ranks are owners,
//! and agents ask them directly. In a larger one, the upper levels of the job's tree are the owners, and the agents
//! below ask their parents. Each job has its own store, so a job that is started again finds nothing old.
//!
//! A rank may write and exit at once. Its agent's part of the job has not ended before the connections of the ranks are
//! read to their end and the owners have taken the questions ([`Store::is_drained`]). Then the agent keeps its keys for
//! the others ([`Store::into_dictionary`]).
//!
//! [`STORE_OWNERS_MAX`]: wireup_wire::limits::STORE_OWNERS_MAX

mod clients;
mod dictionary;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod questions;
#[cfg(test)]
mod tests;

use crate::io::{Output, StoreAct, StoreClient, StoreEvent};
use crate::job::{Cx, facts::Facts};
use crate::time::Instant;
use clients::Clients;
pub use dictionary::Dictionary;
use questions::{Questions, Waiting};
use wireup_wire::frame::{Frame, PeerFrame};
use wireup_wire::ids::{AgentId, JobId, NodeId};
use wireup_wire::limits::STORE_OWNERS_MAX;
use wireup_wire::peer::{self, Note};
use wireup_wire::store::{Between, Operation};

/// How long open connections may be without traffic after the end of the last local rank (ns): then they belong to
/// some other process and are closed, because the kernel closes the connections of a rank that ends. Chosen: reading
/// what the rank has sent takes milliseconds, if the agent gets a processor.
const SILENT_NS_MAX: u64 = 500_000_000;
/// How long after the end of the last local rank connections may stay open at all (ns). Chosen: on a machine that is
/// busy with other work, reading megabytes and storing them at other agents takes seconds.
const OPEN_NS_MAX: u64 = 30_000_000_000;

pub struct Store {
    own: AgentId,
    clients: Clients,
    questions: Questions,
    dictionary: Dictionary,
    messages: Vec<(AgentId, Between)>,
    /// When the last local rank ended.
    ranks_gone_at: Option<Instant>,
    /// When connections that are still open are closed; `None`: local ranks run, or the connections were closed.
    close_at: Option<Instant>,
    /// Whether the user was informed that a connection was closed.
    has_noted: bool,
}

impl Store {
    /// The store of a job on one of its agents, if the job has one.
    pub fn of_job(facts: &Facts) -> Option<Box<Store>> {
        if !facts.spec.options.process.has_store() {
            return None;
        }
        let nodes = (0..facts.spec.nodes.len() as u32).map(NodeId);
        let has_ranks = |node: &NodeId| facts.mapping.local_size(*node) > 0;
        let with_ranks: Vec<NodeId> = nodes.filter(has_ranks).collect();
        if with_ranks.len() <= STORE_OWNERS_MAX {
            let owners = with_ranks.into_iter().map(|node| facts.agent_of(node)).collect();
            return facts.node.map(|_| Box::new(Store::new(facts.me, owners, None)));
        }
        // An agent without ranks of the job takes no part in the job, unless it is the root.
        let takes_part =
            |agent: &AgentId| *agent == AgentId(0) || facts.node_of(*agent).as_ref().is_some_and(has_ranks);
        let upper = facts.tree.upper_levels(STORE_OWNERS_MAX);
        let owners: Vec<AgentId> = upper.into_iter().filter(takes_part).collect();
        let parent = facts.tree.parent().filter(|_| !owners.contains(&facts.me));
        Some(Box::new(Store::new(facts.me, owners, parent)))
    }

    fn new(own: AgentId, owners: Vec<AgentId>, parent: Option<AgentId>) -> Store {
        Store {
            own,
            clients: Clients::default(),
            questions: Questions::new(own, owners, parent),
            dictionary: Dictionary::new(own),
            messages: Vec::new(),
            ranks_gone_at: None,
            close_at: None,
            has_noted: false,
        }
    }

    /// The owners of keys that this agent asks directly, not through its parent.
    pub fn asked_owners(&self) -> Vec<AgentId> {
        self.questions.asked_owners().collect()
    }

    /// The keys that this agent owns, when its part of the job has ended.
    pub fn into_dictionary(mut self) -> Dictionary {
        self.dictionary.forget_own_copies();
        self.dictionary
    }

    /// Handles the end of the last local rank: accepts no more connections, and sets when open ones are closed.
    pub fn on_ranks_gone(&mut self, now: Instant) {
        self.clients.stop_accepting();
        self.ranks_gone_at = Some(now);
        self.close_at = Some(now + SILENT_NS_MAX);
    }

    /// Puts off the time at which connections are closed. Answers of other agents count too: a client whose requests
    /// they delay is not read meanwhile.
    fn on_traffic(&mut self, now: Instant) {
        if let (Some(gone_at), Some(close_at)) = (self.ranks_gone_at, &mut self.close_at) {
            *close_at = (now + SILENT_NS_MAX).min(gone_at + OPEN_NS_MAX);
        }
    }

    /// When connections that are still open are closed.
    pub fn deadline(&self) -> Option<Instant> {
        self.close_at.filter(|_| self.clients.are_open())
    }

    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.close_at.take_if(|at| *at <= cx.now()).is_some() {
            self.clients.close_all();
            let acts = self.settle();
            self.carry(cx, acts);
        }
    }

    /// Whether everything that clients have sent was carried out.
    pub fn is_drained(&self) -> bool {
        self.clients.is_empty() && self.questions.are_taken()
    }

    /// Handles an event of a client's connection.
    pub fn on_event(&mut self, cx: &mut Cx<'_>, client: StoreClient, event: StoreEvent) {
        self.on_traffic(cx.now());
        let acts = self.handle_event(client, event);
        self.carry(cx, acts);
    }

    pub fn on_between(&mut self, cx: &mut Cx<'_>, from: AgentId, message: Between) {
        self.on_traffic(cx.now());
        let acts = self.handle_message(from, message);
        self.carry(cx, acts);
    }

    fn carry(&mut self, cx: &mut Cx<'_>, acts: Vec<(StoreClient, StoreAct)>) {
        let job = cx.facts.id();
        acts.into_iter().for_each(|(client, act)| cx.output(Output::Store { job, client, act }));
        for (agent, message) in std::mem::take(&mut self.messages) {
            cx.agent.links.send_peer(agent, frame(job, &message));
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
            Between::Ask(questions) => {
                let (own, others) =
                    questions.into_iter().partition(|one| self.questions.owns(&one.key, &one.operation));
                // The dictionary acknowledges the whole message, including the questions that are passed on.
                self.dictionary.on_message(agent, Between::Ask(own));
                Vec::into_iter(others).for_each(|question| self.questions.ask_for(agent, question));
            }
            Between::Forgotten { keys } => {
                let (own, others) = keys.into_iter().partition(|key| self.questions.owns(key, &Operation::Get));
                self.dictionary.on_message(agent, Between::Forgotten { keys: own });
                Vec::into_iter(others).for_each(|key| self.questions.on_forgotten(agent, key));
            }
            Between::Answer { .. } | Between::Forget { .. } => self.questions.on_message(agent, message),
        }
        self.settle()
    }

    /// Passes messages and outcomes between `clients`, `questions` and `dictionary` until none are left. Returns what
    /// is to be done with connections.
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
                    true => {
                        is_done = false;
                        self.questions.on_message(agent, message);
                    }
                    false => self.messages.push((agent, message)),
                }
            }
            for (waiting, outcome) in self.questions.take_outcomes() {
                is_done = false;
                match waiting {
                    Waiting::Client(part) => self.clients.on_outcome(part, outcome, &mut self.questions),
                    Waiting::Agent(asker) => self.dictionary.answer(asker, outcome),
                }
            }
            if is_done {
                return self.clients.take_acts();
            }
        }
    }
}

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
