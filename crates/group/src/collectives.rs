//! The collectives of one group that are in progress, and messages that arrived for later steps or collectives.

use crate::algorithms::{Algorithm, Outcome, Step};
use crate::message::{Malformed, Message, MessageKind};
use crate::outbox::{Counts, Request};
use crate::shape::{Link, Shape, Side};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

/// What a group wants to send.
#[derive(Default)]
pub struct Sends {
    /// Messages, each with the rank to send it to.
    pub messages: Vec<(u32, Vec<u8>)>,
    /// Questions and answers about addresses, each with the rank to send it to. If the rank cannot be reached, the
    /// asker tries another link.
    pub inquiries: Vec<(u32, Vec<u8>)>,
    /// What these messages, and the steps that wait for answers, add to the counters of the process.
    pub counts: Counts,
}

pub struct Collectives {
    context: u64,
    pub shape: Shape,
    next_epoch: u32,
    running: BTreeMap<u32, Running>,
    /// Messages that arrived before their collective needed them.
    pub mail: Mail,
}

struct Running {
    request: Request,
    then: Then,
    algorithm: Box<dyn Algorithm>,
    /// Links from which the current step still needs a message.
    receives: Vec<Link>,
    /// Number of messages sent and of messages received so far, by link.
    sent: Vec<u32>,
    received: Vec<u32>,
}

/// The next step after a collective has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// Report the result to the caller.
    Tell,
    /// Build the graph of the new group.
    Build,
    /// Report to the caller that the new group can be used.
    Join,
}

/// A completed collective, with its outcome or the error that ended it.
pub struct Over {
    pub epoch: u32,
    pub request: Request,
    pub then: Then,
    pub result: Result<Outcome, Malformed>,
}

impl Collectives {
    pub fn new(context: u64, shape: Shape) -> Collectives {
        Collectives { context, shape, next_epoch: 0, running: BTreeMap::new(), mail: Mail::default() }
    }

    /// Allocates the number of the next collective. All members allocate the same numbers in the same order.
    pub fn next_epoch(&mut self) -> u32 {
        self.next_epoch += 1;
        self.next_epoch - 1
    }

    /// Starts a collective, for a request of the caller.
    pub fn start(
        &mut self,
        (request, then): (Request, Then),
        algorithm: Box<dyn Algorithm>,
        sends: &mut Sends,
    ) -> Option<Over> {
        let epoch = self.next_epoch();
        let counts = vec![0; 2 * self.shape.powers()];
        let (receives, sent, received) = (Vec::new(), counts.clone(), counts);
        self.running.insert(epoch, Running { request, then, algorithm, receives, sent, received });
        self.advance(epoch, sends)
    }

    /// Handles a message of a step; the message is kept until its collective needs it.
    ///
    /// # Errors
    /// The collective has completed, or a message of this step is kept already.
    pub fn on_step(
        &mut self,
        from: u32,
        (epoch, step): (u32, u32),
        payload: &[u8],
        sends: &mut Sends,
    ) -> Result<Option<Over>, Malformed> {
        // A message that was sent to the left comes from the right.
        let side = if step & 1 == 0 { Side::Right } else { Side::Left };
        let is_over = epoch < self.next_epoch && !self.running.contains_key(&epoch);
        if is_over || !self.mail.put(Key { epoch, step: step >> 1, side, from }, payload.to_vec()) {
            return Err(Malformed);
        }
        Ok(self.advance(epoch, sends))
    }

    pub fn awaited(&self) -> impl Iterator<Item = u32> {
        self.running.iter().flat_map(|(epoch, running)| {
            let keys = running.receives.iter().map(|link| running.key(*epoch, *link, &self.shape));
            keys.filter(|key| !self.mail.has(key)).map(|key| key.from)
        })
    }

    /// Drops all collectives in progress and the messages kept for them; returns their requests.
    pub fn stop(&mut self) -> impl Iterator<Item = Request> + use<> {
        self.mail = Mail::default();
        core::mem::take(&mut self.running).into_values().map(|running| running.request)
    }

    fn advance(&mut self, epoch: u32, out: &mut Sends) -> Option<Over> {
        let running = self.running.get_mut(&epoch)?;
        let result = loop {
            match running.step(epoch, &mut self.shape, &mut self.mail) {
                Ok(Progress::Waits) => return None,
                Ok(Progress::Over) => break None,
                Ok(Progress::Sends(sends)) => {
                    out.counts.rounds += u64::from(!running.receives.is_empty());
                    for (link, payload) in sends {
                        let nth = running.count(link, false);
                        let step = nth << 1 | u32::from(link.side == Side::Right);
                        let kind = MessageKind::Step { epoch, step };
                        let message = Message { context: self.context, kind, payload: &payload };
                        out.messages.push((self.shape.peer(link).rank, message.encode()));
                    }
                }
                Err(malformed) => break Some(malformed),
            }
        };
        let Running { request, then, algorithm, .. } = self.running.remove(&epoch)?;
        let result = result.map_or_else(|| Ok(algorithm.outcome()), Err);
        Some(Over { epoch, request, then, result })
    }
}

enum Progress {
    Waits,
    Sends(Vec<(Link, Vec<u8>)>),
    Over,
}

impl Running {
    /// Moves to the next step if all messages of the current step have arrived.
    fn step(&mut self, epoch: u32, shape: &mut Shape, mail: &mut Mail) -> Result<Progress, Malformed> {
        let keys: Vec<Key> = self.receives.iter().map(|link| self.key(epoch, *link, shape)).collect();
        if !keys.iter().all(|key| mail.has(key)) {
            return Ok(Progress::Waits);
        }
        for (link, key) in core::mem::take(&mut self.receives).into_iter().zip(keys) {
            self.count(link, true);
            let payload = mail.take(&key).unwrap_or_default();
            self.algorithm.on_message(shape, link, &payload)?;
        }
        let Some(Step { sends, receives }) = self.algorithm.next(shape)? else { return Ok(Progress::Over) };
        self.receives = receives;
        Ok(Progress::Sends(sends))
    }

    /// The key under which the next message on this link is kept until a step needs it. The step in the key is the
    /// number of messages that have already come on the link.
    fn key(&self, epoch: u32, link: Link, shape: &Shape) -> Key {
        let from = shape.peer(link).rank;
        Key { epoch, step: self.received[index(link)], side: link.side, from }
    }

    /// Counts a message on a link; returns the number of earlier ones.
    fn count(&mut self, link: Link, is_received: bool) -> u32 {
        let counts = if is_received { &mut self.received } else { &mut self.sent };
        counts[index(link)] += 1;
        counts[index(link)] - 1
    }
}

fn index(link: Link) -> usize {
    2 * link.power + usize::from(link.side == Side::Right)
}

/// Identifies a message of a collective: its sender, the collective, the step, and the side of the ring from which it
/// comes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    pub epoch: u32,
    pub step: u32,
    pub side: Side,
    pub from: u32,
}

#[derive(Default)]
pub struct Mail {
    steps: BTreeMap<Key, Vec<u8>>,
    bytes: usize,
}

impl Mail {
    /// Keeps a message; `false`: a message with this key is kept already, and this one is dropped.
    pub fn put(&mut self, key: Key, payload: Vec<u8>) -> bool {
        let Entry::Vacant(free) = self.steps.entry(key) else { return false };
        self.bytes += payload.len() + size_of::<Key>();
        free.insert(payload);
        true
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn bytes_of(&self, rank: u32) -> usize {
        let of_rank = self.steps.iter().filter(|(key, _)| key.from == rank);
        of_rank.map(|(_, payload)| payload.len() + size_of::<Key>()).sum()
    }

    pub fn has(&self, key: &Key) -> bool {
        self.steps.contains_key(key)
    }

    pub fn take(&mut self, key: &Key) -> Option<Vec<u8>> {
        let payload = self.steps.remove(key)?;
        self.bytes -= payload.len() + size_of::<Key>();
        Some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_is_counted_and_taken_once() {
        let key = |step, from| Key { epoch: 0, step, side: Side::Left, from };
        let mut mail = Mail::default();
        assert!(mail.put(key(0, 1), vec![1; 9]) && mail.put(key(0, 2), vec![1; 5]));
        assert_eq!(mail.bytes(), mail.bytes_of(1) + mail.bytes_of(2));
        assert_eq!(mail.bytes_of(1), 9 + size_of::<Key>());
        assert_eq!((mail.has(&key(0, 1)), mail.take(&key(0, 1)).map(|payload| payload.len())), (true, Some(9)));
        assert_eq!((mail.take(&key(0, 1)), mail.bytes_of(1)), (None, 0));
        assert!(!mail.put(key(0, 2), vec![2]), "twice");
        assert_eq!(mail.bytes(), mail.bytes_of(2));
        assert_eq!((mail.take(&key(0, 2)), mail.bytes()), (Some(vec![1; 5]), 0));
    }
}
