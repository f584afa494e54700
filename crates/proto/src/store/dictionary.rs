//! The keys of a job's store that this agent owns, and the requests that wait for them.
//!
//! Agents, this one too, keep copies of values that they have been sent. Before a value changes, all copies are
//! recalled: the change, and whatever is asked about the key after it, waits until each agent has forgotten its copy.
//! So a client that knows of a change, in whatever way, never gets the old value, whichever agent it asks. (A lease
//! without a time limit; compare Gray and Cheriton, 1989.)
//!
//! The operations behave as on PyTorch's server: a counter is kept as decimal text; `COMPARE_SET` of a key without a
//! value answers with what the client expected; a push wakes one client; a barrier is a counter.
//!
//! Cost: one answer for each question; for a change of a value that n agents have copied, n messages each way.

use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wireup_wire::ids::AgentId;
use wireup_wire::limits::{STORE_BYTES_MAX, STORE_COPY_LEN_MAX, STORE_REPLY_BYTES_MAX};
use wireup_wire::store::{Between, Operation, Outcome, Question};

/// Memory that a key needs in addition to its bytes and its value (bytes).
const KEY_OVERHEAD_BYTES: usize = 96;

/// Answers in one message. Chosen: with the longest values that share a message, far less than the longest frame.
const ANSWERS_MAX: usize = 512;

/// The receiver of an answer: an agent, with that agent's number for the question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    pub agent: AgentId,
    pub id: u32,
}

#[derive(Default)]
pub struct Dictionary {
    own: AgentId,
    entries: BTreeMap<Bytes, Entry>,
    queues: BTreeMap<Bytes, Queue>,
    /// Questions that are answered as soon as their key has a value.
    waits: BTreeMap<Bytes, Vec<Asker>>,
    /// Keys whose copies are being recalled.
    recalls: BTreeMap<Bytes, Recall>,
    /// Memory for keys and values (bytes).
    bytes: usize,
    pushes: u64,
    messages: BTreeMap<AgentId, Vec<Between>>,
}

struct Entry {
    value: Bytes,
    /// Agents that may have a copy of the value, or know that the key has one.
    copies: BTreeSet<AgentId>,
}

#[derive(Default)]
struct Queue {
    /// Values, each with the number of its push.
    values: VecDeque<(u64, Bytes)>,
}

struct Recall {
    missing: BTreeSet<AgentId>,
    /// Questions about the key that wait for the recall: first the change that needs it, then later ones.
    waiting: VecDeque<(Asker, Operation)>,
}

/// The memory for the store is used up.
struct IsFull;

impl Dictionary {
    pub fn new(own: AgentId) -> Dictionary {
        Dictionary { own, ..Dictionary::default() }
    }

    /// Handles a message of another agent, or questions of this agent.
    pub fn on_message(&mut self, agent: AgentId, message: Between) {
        match message {
            Between::Ask(questions) => {
                self.take(agent);
                questions.into_iter().for_each(|question| self.on_question(agent, question));
            }
            Between::Forgotten { keys } => keys.into_iter().for_each(|key| self.on_forgotten(agent, &key)),
            // `Questions` handles these messages.
            Between::Answer { .. } | Between::Forget { .. } => {}
        }
    }

    /// Messages for agents, this one included, in order.
    pub fn take_messages(&mut self) -> impl Iterator<Item = (AgentId, Between)> + use<> {
        let messages = std::mem::take(&mut self.messages).into_iter();
        messages.flat_map(|(agent, messages)| messages.into_iter().map(move |message| (agent, message)))
    }

    /// This agent's clients have gone, and it has no copies for them any more.
    pub fn forget_own_copies(&mut self) {
        for entry in self.entries.values_mut() {
            entry.copies.remove(&self.own);
        }
    }

    pub fn own(&self) -> AgentId {
        self.own
    }

    /// Whether no question waits for a key.
    #[cfg(any(test, fuzzing))]
    pub fn is_unawaited(&self) -> bool {
        self.waits.is_empty() && self.recalls.is_empty()
    }

    /// Whether the memory for keys and values was counted correctly.
    #[cfg(any(test, fuzzing))]
    pub fn bytes_are_right(&self) -> bool {
        let entries = self.entries.iter().map(|(key, entry)| entry_bytes(key, &entry.value));
        let queued = self.queues.iter().flat_map(|(key, queue)| queue.values.iter().map(move |value| (key, value)));
        entries.chain(queued.map(|(key, (_, value))| entry_bytes(key, value))).sum::<usize>() == self.bytes
    }

    fn on_question(&mut self, agent: AgentId, Question { id, key, operation }: Question) {
        let asker = Asker { agent, id };
        if let Some(recall) = self.recalls.get_mut(&key) {
            return recall.waiting.push_back((asker, operation));
        }
        if self.must_recall(&key, &operation) {
            return self.recall(key, VecDeque::from([(asker, operation)]));
        }
        self.apply(asker, key, operation);
    }

    /// Whether the operation may change a value of which there are copies.
    fn must_recall(&self, key: &Bytes, operation: &Operation) -> bool {
        let changes = match operation {
            Operation::Set { .. } | Operation::CompareSet { .. } | Operation::Add { .. } => true,
            Operation::Append { .. } | Operation::Delete | Operation::Arrive { .. } => true,
            Operation::Get | Operation::Check | Operation::Wait { .. } | Operation::Cancel { .. } => false,
            Operation::Push { .. } | Operation::Pop | Operation::Length => false,
            Operation::Count | Operation::List => false,
        };
        changes && self.entries.get(key).is_some_and(|entry| !entry.copies.is_empty())
    }

    fn recall(&mut self, key: Bytes, waiting: VecDeque<(Asker, Operation)>) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let missing = std::mem::take(&mut entry.copies);
        for agent in &missing {
            let messages = self.messages.entry(*agent).or_default();
            match messages.last_mut() {
                Some(Between::Forget { keys }) => keys.push(key.clone()),
                _ => messages.push(Between::Forget { keys: vec![key.clone()] }),
            }
        }
        self.recalls.insert(key, Recall { missing, waiting });
    }

    /// An agent has dropped its copy of a value. If that was the last copy, the waiting operations are carried out, up
    /// to one that must itself recall copies handed out by those before it.
    fn on_forgotten(&mut self, agent: AgentId, key: &Bytes) {
        let Some(recall) = self.recalls.get_mut(key) else { return };
        recall.missing.remove(&agent);
        if !recall.missing.is_empty() {
            return;
        }
        let Some(Recall { mut waiting, .. }) = self.recalls.remove(key) else { return };
        while let Some((asker, operation)) = waiting.pop_front() {
            if self.must_recall(key, &operation) {
                waiting.push_front((asker, operation));
                return self.recall(key.clone(), waiting);
            }
            self.apply(asker, key.clone(), operation);
        }
    }

    fn apply(&mut self, asker: Asker, key: Bytes, operation: Operation) {
        let outcome = match operation {
            Operation::Set { value } => done(self.set(&key, value)),
            Operation::CompareSet { expected, desired } => self.compare_set(&key, expected, desired),
            Operation::Get => Outcome::Value(self.copy(asker.agent, &key)),
            Operation::Add { amount } => self.add(&key, amount),
            Operation::Check if self.exists(&key) => Outcome::Exists { value: None },
            Operation::Check => Outcome::Missing,
            Operation::Wait { seen } => match self.found(asker.agent, &key, seen) {
                Some(outcome) => outcome,
                None => return self.park(asker, key),
            },
            Operation::Arrive { count, world_size } => match self.arrive(&key, count, world_size) {
                Some(outcome) => outcome,
                None => return self.park(asker, key),
            },
            Operation::Cancel { id } => return self.cancel(Asker { agent: asker.agent, id }, &key),
            Operation::Delete => Outcome::Number(self.remove(&key).is_some().into()),
            Operation::Append { value } => done(self.append(&key, &value)),
            Operation::Push { value } => done(self.push(&key, value)),
            Operation::Pop => self.pop(&key),
            Operation::Length => Outcome::Number(self.queues.get(&key).map_or(0, |queue| queue.values.len() as i64)),
            Operation::Count => Outcome::Number(self.entries.len() as i64),
            Operation::List => self.list(),
        };
        self.answer(asker, outcome);
    }

    fn exists(&self, key: &Bytes) -> bool {
        self.entries.contains_key(key) || self.queues.contains_key(key)
    }

    /// The value of a key for an agent, which may keep a copy of it.
    fn copy(&mut self, agent: AgentId, key: &Bytes) -> Option<Bytes> {
        let entry = self.entries.get_mut(key)?;
        entry.copies.insert(agent);
        Some(entry.value.clone())
    }

    /// The answer to a wait for a key; `None`: the key has no value yet.
    fn found(&mut self, agent: AgentId, key: &Bytes, seen: u64) -> Option<Outcome> {
        if let Some(value) = self.copy(agent, key) {
            return Some(Outcome::Exists { value: Some(value).filter(|value| value.len() <= STORE_COPY_LEN_MAX) });
        }
        let queue = self.queues.get(key)?;
        queue.values.iter().find(|(push, _)| *push > seen).map(|(push, _)| Outcome::Queued { pushes: *push })
    }

    fn park(&mut self, asker: Asker, key: Bytes) {
        self.waits.entry(key).or_default().push(asker);
    }

    /// Answers all questions that wait for a key; the key has got a value.
    fn wake(&mut self, key: &Bytes) {
        for asker in self.waits.remove(key).unwrap_or_default() {
            if let Some(outcome) = self.found(asker.agent, key, u64::MAX) {
                self.answer(asker, outcome);
            }
        }
    }

    /// Ends a wait. If the wait has already been answered because the key's queue has a value, that value is offered to
    /// the next client that waits.
    fn cancel(&mut self, asker: Asker, key: &Bytes) {
        let Some(waiting) = self.waits.get_mut(key) else { return };
        let before = waiting.len();
        waiting.retain(|one| *one != asker);
        let is_cancelled = waiting.len() < before;
        if waiting.is_empty() {
            self.waits.remove(key);
        }
        if is_cancelled {
            self.answer(asker, Outcome::Cancelled);
        } else if self.queues.contains_key(key) {
            self.wake_one(key);
        }
    }

    fn set(&mut self, key: &Bytes, value: Bytes) -> Result<(), IsFull> {
        self.store(key, value)?;
        self.wake(key);
        Ok(())
    }

    /// Stores a value, without answering the questions that wait for it.
    fn store(&mut self, key: &Bytes, value: Bytes) -> Result<(), IsFull> {
        let before = self.entries.get(key).map_or(0, |entry| entry_bytes(key, &entry.value));
        let after = self.bytes - before + entry_bytes(key, &value);
        if after > STORE_BYTES_MAX {
            return Err(IsFull);
        }
        self.bytes = after;
        self.entries.insert(key.clone(), Entry { value, copies: BTreeSet::new() });
        Ok(())
    }

    fn remove(&mut self, key: &Bytes) -> Option<Bytes> {
        let Entry { value, .. } = self.entries.remove(key)?;
        self.bytes -= entry_bytes(key, &value);
        Some(value)
    }

    fn compare_set(&mut self, key: &Bytes, expected: Bytes, desired: Bytes) -> Outcome {
        let now = self.entries.get(key).map(|entry| entry.value.clone());
        // A key without a value counts as if it were empty.
        if now.clone().unwrap_or_default() == expected {
            return self.set(key, desired.clone()).map_or(Outcome::Full, |()| Outcome::Value(Some(desired)));
        }
        Outcome::Value(Some(now.unwrap_or(expected)))
    }

    /// Adds to a counter and returns the result. The caller must wake those who wait for the key.
    fn count(&mut self, key: &Bytes, amount: i64) -> Result<i64, Outcome> {
        let now = match self.entries.get(key) {
            None => 0,
            Some(entry) => std::str::from_utf8(&entry.value)
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .ok_or(Outcome::NoNumber)?,
        };
        let sum = amount.wrapping_add(now);
        self.store(key, sum.to_string().into()).map_err(|IsFull| Outcome::Full)?;
        Ok(sum)
    }

    fn add(&mut self, key: &Bytes, amount: i64) -> Outcome {
        match self.count(key, amount) {
            Ok(sum) => {
                self.wake(key);
                Outcome::Number(sum)
            }
            Err(outcome) => outcome,
        }
    }

    /// Counts clients that enter a barrier; `None`: the barrier is not complete.
    fn arrive(&mut self, key: &Bytes, count: u32, world_size: i64) -> Option<Outcome> {
        match self.count(key, count.into()) {
            Ok(arrived) if arrived < world_size => None,
            Ok(_) => {
                self.wake(key);
                Some(Outcome::Done)
            }
            Err(outcome) => Some(outcome),
        }
    }

    fn append(&mut self, key: &Bytes, more: &Bytes) -> Result<(), IsFull> {
        let length = self.entries.get(key).map_or(0, |entry| entry.value.len()) + more.len();
        if length > STORE_REPLY_BYTES_MAX || self.bytes + more.len() > STORE_BYTES_MAX {
            return Err(IsFull);
        }
        let value = self.remove(key).unwrap_or_default();
        // If nothing else refers to the memory of the value, the value grows in place.
        let mut value = value.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        value.extend_from_slice(more);
        self.set(key, value.freeze())
    }

    fn push(&mut self, key: &Bytes, value: Bytes) -> Result<(), IsFull> {
        let bytes = self.bytes + entry_bytes(key, &value);
        if bytes > STORE_BYTES_MAX {
            return Err(IsFull);
        }
        self.bytes = bytes;
        self.pushes += 1;
        self.queues.entry(key.clone()).or_default().values.push_back((self.pushes, value));
        self.wake_one(key);
        Ok(())
    }

    /// Answers the first question that waits for a queue; the queue has got a value.
    fn wake_one(&mut self, key: &Bytes) {
        let Some(waiting) = self.waits.get_mut(key) else { return };
        let asker = waiting.remove(0);
        if waiting.is_empty() {
            self.waits.remove(key);
        }
        self.answer(asker, Outcome::Queued { pushes: self.pushes });
    }

    fn pop(&mut self, key: &Bytes) -> Outcome {
        let Some(queue) = self.queues.get_mut(key) else { return Outcome::Popped { length: 0, value: None } };
        let length = queue.values.len() as u64;
        let value = queue.values.pop_front().map(|(_, value)| value);
        if queue.values.is_empty() {
            self.queues.remove(key);
        }
        self.bytes -= value.as_ref().map_or(0, |value| entry_bytes(key, value));
        Outcome::Popped { length, value }
    }

    fn list(&self) -> Outcome {
        let bytes: usize = self.entries.keys().map(Bytes::len).sum();
        if bytes > STORE_REPLY_BYTES_MAX {
            return Outcome::Full;
        }
        Outcome::Keys(self.entries.keys().cloned().collect())
    }

    /// Acknowledges an agent's questions.
    fn take(&mut self, agent: AgentId) {
        let messages = self.messages.entry(agent).or_default();
        match messages.last_mut() {
            Some(Between::Answer { taken, .. }) => *taken = true,
            _ => messages.push(Between::Answer { taken: true, answers: Vec::new() }),
        }
    }

    /// Adds an answer to the messages for an agent. Short answers to questions of one input share messages.
    pub fn answer(&mut self, asker: Asker, outcome: Outcome) {
        let messages = self.messages.entry(asker.agent).or_default();
        let is_short = outcome.len() <= STORE_COPY_LEN_MAX;
        let answer = (asker.id, outcome);
        match messages.last_mut() {
            Some(Between::Answer { answers, .. }) if is_short && answers.len() < ANSWERS_MAX => answers.push(answer),
            _ => messages.push(Between::Answer { taken: false, answers: vec![answer] }),
        }
    }
}

fn entry_bytes(key: &Bytes, value: &Bytes) -> usize {
    KEY_OVERHEAD_BYTES + key.len() + value.len()
}

fn done(result: Result<(), IsFull>) -> Outcome {
    result.map_or(Outcome::Full, |()| Outcome::Done)
}
