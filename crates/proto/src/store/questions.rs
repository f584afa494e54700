//! The questions of this agent's clients to the agents that own the keys.
//!
//! Clients that ask the same at the same time share one question:
//!
//! - a get or a wait joins the one for its key that is under way;
//! - an add waits while one for its key is under way; then all that have waited become one, whose result is shared out
//!   as if they had come one after the other;
//! - arrivals at a barrier that wait to be sent become one.
//!
//! A value that was received is kept as a copy until its owner recalls it, even if this agent is the owner: further
//! gets, checks and waits are answered at once. So P clients that each wait for P keys and read them cost an agent P
//! questions, not P for each client.
//!
//! Questions to an agent are collected until the agent has acknowledged the previous ones.
//!
//! In a large job most agents do not ask owners themselves, but their parent in the job's tree. It asks for them as for
//! its own clients, and the same rules join their questions: a counter or a barrier of all ranks costs each agent one
//! question for each child at most, and no agent needs links to others than its neighbours and the owners. Before a
//! value changes, the copies are recalled along the same way.

use super::dictionary::Asker;
use crate::io::StoreClient;
use bytes::Bytes;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::ids::AgentId;
use wireup_wire::limits::{MODEX_BUNDLE_BYTES, STORE_COPIES_BYTES_MAX, STORE_COPY_LEN_MAX};
use wireup_wire::store::{Between, Operation, Outcome, Question};

/// The client of this agent, or the child agent, that waits for the answer to a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    Client(Part),
    /// A child in the job's tree.
    Agent(Asker),
}

/// One key of a client's request: the client waits for the outcome for this key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    pub client: StoreClient,
    /// The client's number for the request.
    pub request: u32,
    /// The position of the key in the request.
    pub slot: usize,
}

const NO_QUESTION: u32 = 0;

#[derive(Default)]
pub struct Questions {
    own: AgentId,
    /// IDs of the agents that own keys.
    owners: Vec<AgentId>,
    /// The agent through which the owners are asked; `None`: this agent asks them itself.
    parent: Option<AgentId>,
    open: BTreeMap<u32, Open>,
    last: u32,
    /// Numbers of the gets and waits that further clients can join.
    gets: ByKey<u32>,
    waits: ByKey<u32>,
    /// Keys with an add in progress, and the adds that wait until it is done.
    adds: BTreeMap<Bytes, Vec<(Waiting, i64)>>,
    copies: Copies,
    /// Children that may have copies of values of other agents, by key.
    holders: BTreeMap<Bytes, BTreeSet<AgentId>>,
    /// Keys whose copies at children are being recalled: the agent that has asked for it, and the children that have
    /// not answered.
    recalls: BTreeMap<Bytes, (AgentId, BTreeSet<AgentId>)>,
    outgoing: BTreeMap<AgentId, Outgoing>,
    of_recalls: Vec<(AgentId, Between)>,
    outcomes: Vec<(Waiting, Outcome)>,
}

/// A question that was not answered yet.
struct Open {
    key: Bytes,
    purpose: Purpose,
    parts: Vec<Waiting>,
}

enum Purpose {
    Get,
    Wait,
    /// An add, with the amount that each part adds.
    Add(Vec<i64>),
    Other,
}

#[derive(Default)]
struct Outgoing {
    /// Whether questions were sent that the agent has not acknowledged.
    is_busy: bool,
    queue: VecDeque<Question>,
}

impl Questions {
    pub fn new(own: AgentId, owners: Vec<AgentId>, parent: Option<AgentId>) -> Questions {
        Questions { own, owners, parent, ..Questions::default() }
    }

    /// The owners that this agent asks directly, not through its parent.
    pub fn asked_owners(&self) -> impl Iterator<Item = AgentId> + '_ {
        let own = self.own;
        self.owners.iter().copied().filter(move |owner| self.parent.is_none() && *owner != own)
    }

    pub fn owners(&self) -> &[AgentId] {
        &self.owners
    }

    /// Asks about a key. Returns the outcome if it is known here; `None`: it follows.
    pub fn ask(&mut self, part: Waiting, key: Bytes, operation: Operation) -> Option<Outcome> {
        let asks_for_value = matches!(operation, Operation::Get | Operation::Check | Operation::Wait { .. });
        if let Some(value) = self.copies.values.get(&key).filter(|_| asks_for_value) {
            let is_sent = operation == Operation::Get || matches!(part, Waiting::Agent(_));
            let value = is_sent.then(|| value.clone());
            self.hold(&key, &[part]);
            return Some(if operation == Operation::Get { Outcome::Value(value) } else { Outcome::Exists { value } });
        }
        match operation {
            Operation::Get => self.get(key, vec![part]),
            Operation::Wait { seen } => self.wait(key, vec![part], seen),
            Operation::Add { amount } => match self.adds.entry(key) {
                Entry::Occupied(mut waiting) => waiting.get_mut().push((part, amount)),
                Entry::Vacant(entry) => {
                    let key = entry.key().clone();
                    entry.insert(Vec::new());
                    self.add(key, vec![(part, amount)]);
                }
            },
            Operation::Arrive { count, world_size } => self.arrive(part, key, count, world_size),
            operation => {
                let owner = self.owner_of(&key, &operation);
                self.send(owner, &key, operation, Purpose::Other, vec![part]);
            }
        }
        None
    }

    /// Asks all owners. The outcome of the n-th owner goes to slot `part.slot` + n of the client's request.
    pub fn ask_all(&mut self, part: Part, operation: &Operation) {
        for (slot, owner) in self.owners.clone().into_iter().enumerate() {
            let part = Waiting::Client(Part { slot: part.slot + slot, ..part });
            let key = Bytes::copy_from_slice(&owner.0.to_le_bytes());
            self.send(owner, &key, operation.clone(), Purpose::Other, vec![part]);
        }
    }

    /// Handles a child's question about a key that another agent owns.
    pub fn ask_for(&mut self, agent: AgentId, Question { id, key, operation }: Question) {
        let Operation::Cancel { id } = operation else {
            let part = Waiting::Agent(Asker { agent, id });
            let known = self.ask(part, key, operation);
            return self.outcomes.extend(known.map(|outcome| (part, outcome)));
        };
        let part = Waiting::Agent(Asker { agent, id });
        if self.leave(|one| *one == part) {
            self.outcomes.push((part, Outcome::Cancelled));
        } else {
            // The child was answered before. If the answer was about a value in a queue, the owner must wake another
            // client.
            let owner = self.owner_of(&key, &operation);
            self.enqueue(owner, key, Operation::Cancel { id: NO_QUESTION });
        }
    }

    pub fn owns(&self, key: &Bytes, operation: &Operation) -> bool {
        self.owner_of(key, operation) == self.own
    }

    /// A client no longer waits for the answers to its request.
    pub fn leave_client(&mut self, client: StoreClient) {
        self.leave(|part| matches!(part, Waiting::Client(part) if part.client == client));
    }

    /// Removes the clients and agents for which `leaves` holds from all questions. Returns whether one was removed.
    fn leave(&mut self, leaves: impl Fn(&Waiting) -> bool) -> bool {
        let (mut left, mut has_waited) = (Vec::new(), false);
        for (id, open) in &mut self.open {
            let before = open.parts.len();
            open.parts.retain(|part| !leaves(part));
            has_waited |= open.parts.len() < before;
            if open.parts.is_empty() && before > 0 {
                left.push((*id, open.key.clone()));
            }
        }
        for (id, key) in left {
            if self.waits.get(&key) == Some(&id) {
                self.waits.remove(&key);
            }
            let operation = Operation::Cancel { id };
            let owner = self.owner_of(&key, &operation);
            self.enqueue(owner, key, operation);
        }
        has_waited
    }

    /// Handles a message of another agent, or of this agent's own dictionary.
    pub fn on_message(&mut self, agent: AgentId, message: Between) {
        match message {
            Between::Answer { taken, answers } => {
                if taken {
                    self.outgoing.entry(agent).or_default().is_busy = false;
                }
                answers.into_iter().for_each(|(id, outcome)| self.on_answer(id, outcome));
            }
            Between::Forget { keys } => keys.into_iter().for_each(|key| self.on_forget(agent, key)),
            // `Dictionary` handles these messages.
            Between::Ask(_) | Between::Forgotten { .. } => {}
        }
    }

    /// Handles an owner's recall of a value: drops the copy here, and recalls the copies at the children.
    fn on_forget(&mut self, agent: AgentId, key: Bytes) {
        self.copies.forget(&key);
        let Some(holders) = self.holders.remove(&key) else { return self.say_forgotten(agent, key) };
        let forget = |holder: &AgentId| (*holder, Between::Forget { keys: vec![key.clone()] });
        self.of_recalls.extend(holders.iter().map(forget));
        self.recalls.insert(key, (agent, holders));
    }

    /// Handles a child's report that it no longer has a copy of another agent's value.
    pub fn on_forgotten(&mut self, child: AgentId, key: Bytes) {
        let Some((agent, missing)) = self.recalls.get_mut(&key) else { return };
        let agent = *agent;
        missing.remove(&child);
        if missing.is_empty() {
            self.recalls.remove(&key);
            self.say_forgotten(agent, key);
        }
    }

    fn say_forgotten(&mut self, agent: AgentId, key: Bytes) {
        match self.of_recalls.last_mut() {
            Some((last, Between::Forgotten { keys })) if *last == agent => keys.push(key),
            _ => self.of_recalls.push((agent, Between::Forgotten { keys: vec![key] })),
        }
    }

    /// Records which children get a value, so that their copies can be recalled.
    fn hold(&mut self, key: &Bytes, parts: &[Waiting]) {
        let children = parts.iter().filter_map(|part| match part {
            Waiting::Agent(asker) => Some(asker.agent),
            Waiting::Client(_) => None,
        });
        for child in children {
            self.holders.entry(key.clone()).or_default().insert(child);
        }
    }

    /// Messages for other agents, and for this one as an owner.
    pub fn take_messages(&mut self) -> Vec<(AgentId, Between)> {
        let mut messages = std::mem::take(&mut self.of_recalls);
        let ready = self.outgoing.iter_mut().filter(|(_, outgoing)| !outgoing.is_busy && !outgoing.queue.is_empty());
        messages.extend(ready.map(|(agent, outgoing)| (*agent, outgoing.take())));
        messages
    }

    /// Takes the answers that have arrived, in the order of their arrival.
    pub fn take_outcomes(&mut self) -> Vec<(Waiting, Outcome)> {
        std::mem::take(&mut self.outcomes)
    }

    /// Whether the owners have acknowledged all questions.
    pub fn are_taken(&self) -> bool {
        self.outgoing.values().all(|outgoing| !outgoing.is_busy && outgoing.queue.is_empty())
    }

    /// Whether no question is open and no message has to be sent.
    #[cfg(any(test, fuzzing))]
    pub fn is_idle(&self) -> bool {
        self.are_taken()
            && self.open.is_empty()
            && self.waits.is_empty()
            && self.gets.is_empty()
            && self.adds.is_empty()
    }

    fn get(&mut self, key: Bytes, parts: Vec<Waiting>) {
        if let Some(open) = self.gets.get(&key).and_then(|id| self.open.get_mut(id)) {
            return open.parts.extend(parts);
        }
        let owner = self.owner_of(&key, &Operation::Get);
        let (key, id) = self.send(owner, &key, Operation::Get, Purpose::Get, parts);
        self.gets.insert(key, id);
    }

    fn wait(&mut self, key: Bytes, parts: Vec<Waiting>, seen: u64) {
        if let Some(open) = self.waits.get(&key).and_then(|id| self.open.get_mut(id)) {
            return open.parts.extend(parts);
        }
        let owner = self.owner_of(&key, &Operation::Get);
        let (key, id) = self.send(owner, &key, Operation::Wait { seen }, Purpose::Wait, parts);
        self.waits.insert(key, id);
    }

    fn add(&mut self, key: Bytes, adds: Vec<(Waiting, i64)>) {
        let (parts, amounts): (Vec<Waiting>, Vec<i64>) = adds.into_iter().unzip();
        let amount = amounts.iter().fold(0_i64, |sum, amount| sum.wrapping_add(*amount));
        let owner = self.owner_of(&key, &Operation::Get);
        self.send(owner, &key, Operation::Add { amount }, Purpose::Add(amounts), parts);
    }

    fn arrive(&mut self, part: Waiting, key: Bytes, more: u32, world_size: i64) {
        let owner = self.owner_of(&key, &Operation::Get);
        let hop = self.parent.unwrap_or(owner);
        let unsent = self.outgoing.get_mut(&hop).into_iter().flat_map(|outgoing| outgoing.queue.iter_mut().rev());
        for question in unsent.filter(|question| question.key == key) {
            let Operation::Arrive { count, world_size: size } = &mut question.operation else { continue };
            // A question whose clients have all given up is followed by its cancellation, so that nothing may be added
            // to it.
            let open = self.open.get_mut(&question.id).filter(|open| !open.parts.is_empty());
            if let Some(open) = open.filter(|_| *size == world_size) {
                *count += more;
                return open.parts.push(part);
            }
        }
        self.send(owner, &key, Operation::Arrive { count: more, world_size }, Purpose::Other, vec![part]);
    }

    fn on_answer(&mut self, id: u32, outcome: Outcome) {
        let Some(Open { key, purpose, parts }) = self.open.remove(&id) else { return };
        match purpose {
            Purpose::Get => self.on_got(key, parts, outcome),
            Purpose::Wait => self.on_waited(id, key, parts, outcome),
            Purpose::Add(amounts) => self.on_added(key, parts, &amounts, outcome),
            Purpose::Other => self.share(parts, &outcome),
        }
    }

    fn on_got(&mut self, key: Bytes, mut parts: Vec<Waiting>, outcome: Outcome) {
        self.gets.remove(&key);
        if let Outcome::Value(Some(value)) = &outcome {
            self.copies.learn(&key, value);
            self.hold(&key, &parts);
            return self.share(parts, &outcome);
        }
        // The owner does not recall the answer that there is no value, so it is valid only for the client that asked
        // first: the key may have got a value before the other clients asked.
        let others = parts.split_off(parts.len().min(1));
        self.share(parts, &outcome);
        if !others.is_empty() {
            self.get(key, others);
        }
    }

    fn on_waited(&mut self, id: u32, key: Bytes, mut parts: Vec<Waiting>, outcome: Outcome) {
        if self.waits.get(&key) == Some(&id) {
            self.waits.remove(&key);
        }
        match outcome {
            // A value in a queue goes to one client only.
            Outcome::Queued { pushes } => {
                let others = parts.split_off(parts.len().min(1));
                self.share(parts, &outcome);
                if !others.is_empty() {
                    self.wait(key, others, pushes);
                }
            }
            Outcome::Exists { value } => {
                value.iter().for_each(|value| self.copies.learn(&key, value));
                self.hold(&key, &parts);
                let (children, clients) = parts.into_iter().partition(|part| matches!(part, Waiting::Agent(_)));
                self.share(children, &Outcome::Exists { value });
                self.share(clients, &Outcome::Exists { value: None });
            }
            outcome => self.share(parts, &outcome),
        }
    }

    fn on_added(&mut self, key: Bytes, parts: Vec<Waiting>, amounts: &[i64], outcome: Outcome) {
        match outcome {
            Outcome::Number(total) => {
                let before = amounts.iter().fold(total, |rest, amount| rest.wrapping_sub(*amount));
                let sums = amounts.iter().scan(before, |sum, amount| {
                    *sum = sum.wrapping_add(*amount);
                    Some(Outcome::Number(*sum))
                });
                self.outcomes.extend(parts.into_iter().zip(sums));
            }
            outcome => self.share(parts, &outcome),
        }
        match self.adds.get_mut(&key).map(std::mem::take) {
            Some(next) if !next.is_empty() => self.add(key, next),
            _ => drop(self.adds.remove(&key)),
        }
    }

    fn share(&mut self, parts: Vec<Waiting>, outcome: &Outcome) {
        self.outcomes.extend(parts.into_iter().map(|part| (part, outcome.clone())));
    }

    /// Sends a question. Returns its number, and a copy of the key that needs no memory of a client's whole request.
    fn send(
        &mut self,
        owner: AgentId,
        key: &Bytes,
        operation: Operation,
        purpose: Purpose,
        parts: Vec<Waiting>,
    ) -> (Bytes, u32) {
        let key = Bytes::copy_from_slice(key);
        let id = self.enqueue(owner, key.clone(), operation);
        self.open.insert(id, Open { key: key.clone(), purpose, parts });
        (key, id)
    }

    fn enqueue(&mut self, owner: AgentId, key: Bytes, operation: Operation) -> u32 {
        self.last = self.last.wrapping_add(1);
        while self.last == NO_QUESTION || self.open.contains_key(&self.last) {
            self.last = self.last.wrapping_add(1);
        }
        let hop = self.parent.unwrap_or(owner);
        self.outgoing.entry(hop).or_default().queue.push_back(Question { id: self.last, key, operation });
        self.last
    }

    fn owner_of(&self, key: &Bytes, operation: &Operation) -> AgentId {
        if let (Operation::Count | Operation::List, Ok(owner)) = (operation, <[u8; 4]>::try_from(&key[..])) {
            return AgentId(u32::from_le_bytes(owner));
        }
        // FNV-1a, whose high bits depend on all bytes.
        let hash = key
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        let spread = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.owners[((spread * self.owners.len() as u64) >> 32) as usize]
    }
}

impl Outgoing {
    /// The next message: as many questions as fit.
    fn take(&mut self) -> Between {
        let (mut questions, mut bytes) = (Vec::new(), 0);
        while bytes < MODEX_BUNDLE_BYTES
            && let Some(question) = self.queue.pop_front()
        {
            bytes += question.bytes() + size_of::<Question>();
            questions.push(question);
        }
        self.is_busy = true;
        Between::Ask(questions)
    }
}

/// Values by key. There is no way to list them: a hash map's order differs from run to run. It finds a key among
/// thousands with one comparison, where a `BTreeMap` needs ten: a thousand clients wait for a thousand keys each.
#[derive(Default)]
#[expect(clippy::disallowed_types, reason = "its order has no effect")]
struct ByKey<T>(std::collections::HashMap<Bytes, T>);

impl<T> ByKey<T> {
    fn get(&self, key: &Bytes) -> Option<&T> {
        self.0.get(key)
    }

    fn insert(&mut self, key: Bytes, value: T) {
        self.0.insert(key, value);
    }

    fn remove(&mut self, key: &Bytes) -> Option<T> {
        self.0.remove(key)
    }

    #[cfg(any(test, fuzzing))]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Values of keys, which their owners recall before they change.
#[derive(Default)]
struct Copies {
    values: ByKey<Bytes>,
    bytes: usize,
}

impl Copies {
    fn learn(&mut self, key: &Bytes, value: &Bytes) {
        if value.len() > STORE_COPY_LEN_MAX {
            return;
        }
        self.forget(key);
        if self.bytes + key.len() + value.len() > STORE_COPIES_BYTES_MAX {
            *self = Copies::default();
        }
        self.bytes += key.len() + value.len();
        self.values.insert(key.clone(), value.clone());
    }

    fn forget(&mut self, key: &Bytes) {
        if let Some(value) = self.values.remove(key) {
            self.bytes -= key.len() + value.len();
        }
    }
}
