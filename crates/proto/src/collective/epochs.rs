//! Orders one job's collectives on one node: which are in progress, which ranks have entered them, and what each needs
//! next.
//!
//! They are keyed by peer set and epoch: a [`CollectiveConfig`] is this node's position in the only set, the nodes of
//! the job that have ranks, and one [`Exchanges`] contains all of its collectives.
//!
//! Each rank starts the same collectives in the same order: its n-th is epoch n of the job, whatever its kind. Any
//! number may be in progress. The state of an epoch is in `exchange`; this file numbers them, keeps them in order and
//! forgets them:
//!
//! ```text
//!   base ─► 4 fence      in: 0 1 2 3   way up done    waits for the outcome from above
//!           5 allgather  in: 0 . 2 .   a child's part has arrived
//!           6 (no local rank yet; a node that is ahead has sent its first round)
//! ```
//!
//! An epoch is forgotten when its outcome was delivered to the local ranks and the gather up the tree is complete; no
//! correct agent sends frames for it after that. The outcomes of fences are delivered in the order of epochs, since
//! later pairs override earlier ones.
//!
//! A rank that has departed (exited or finalized) makes every later epoch impossible: an agent that knows of a
//! departure and of a rank waiting for such an epoch reports it, so that no job hangs because of a rank that will never
//! enter. That is why sizes go up the tree even when the data takes another route.

use super::entry::{Action, CollectiveConfig, Entering};
use super::exchange::Exchange;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::VecDeque;
use wireup_coll::allgather::fitting;
use wireup_wire::collective::{Algorithm, Collective, RoundTag, Tag};
use wireup_wire::ids::{Epoch, LocalRank, NodeId};
use wireup_wire::limits::EXCHANGES_MAX;
use wireup_wire::peer::Departed;

pub struct Exchanges {
    config: CollectiveConfig,
    base: Epoch,
    live: VecDeque<Option<Exchange>>,
    /// The next epoch of each local rank.
    next: Vec<Epoch>,
    departed: Option<Departed>,
    deserter_known: bool,
    asked: Option<Epoch>,
}

impl Exchanges {
    pub fn new(config: CollectiveConfig) -> Self {
        Exchanges {
            next: vec![Epoch(0); config.local_size as usize],
            config,
            base: Epoch(0),
            live: VecDeque::new(),
            departed: None,
            deserter_known: false,
            asked: None,
        }
    }

    /// The nodes to which this node sends in an exchange by this algorithm.
    pub fn receivers(&self, algorithm: Algorithm) -> Vec<NodeId> {
        let CollectiveConfig { place: Some(place), peers, .. } = &self.config else { return Vec::new() };
        let count = peers.len() as u32;
        let receivers = fitting(Collective::Fence, algorithm, count).map(|direct| (direct.receivers)(*place, count));
        receivers.unwrap_or_default().into_iter().map(|peer| peers[peer as usize]).collect()
    }

    /// The first epoch that is not complete here.
    pub fn base(&self) -> Epoch {
        self.base
    }

    /// The number of epochs that are not complete here.
    pub fn open(&self) -> usize {
        self.live.iter().flatten().count()
    }

    /// The kind of the first collective in progress.
    pub fn first(&self) -> Option<Collective> {
        self.live.iter().flatten().next().map(Exchange::collective)
    }

    /// The epoch that a rank enters next.
    pub fn next_of(&self, local: LocalRank) -> Epoch {
        self.next[local.index()]
    }

    /// Whether a rank has entered the first epoch that is not complete.
    pub fn has_arrived(&self, local: LocalRank) -> bool {
        self.next[local.index()] > self.base
    }

    /// How many local ranks have entered the first epoch that is not complete.
    pub fn arrived(&self) -> u32 {
        self.next.iter().filter(|next| **next > self.base).count() as u32
    }

    /// A local rank starts its next collective. `pending` returns the pairs put on this node so far.
    pub fn enter(&mut self, now: Instant, entering: Entering, pending: impl FnOnce() -> Bytes, out: &mut Vec<Action>) {
        let Entering { local, rank, .. } = entering;
        let epoch = self.next[local.index()];
        let collective = entering.entry.collective();
        // The epoch advances even if the collective is refused: the rank's next collective must not be taken for this
        // one.
        self.next[local.index()] = Epoch(epoch.0 + 1);
        let Some((config, exchange)) = self.at(epoch, collective) else {
            let problem = format!("rank {rank} has more than {EXCHANGES_MAX} collectives outstanding");
            return out.push(Action::Fail { problem });
        };
        if exchange.collective() != collective {
            let other = exchange.collective();
            let problem = format!(
                "rank {rank} called {collective} as collective {epoch} of the job, but other ranks called {other}"
            );
            return out.push(Action::Fail { problem });
        }
        exchange.enter(now, config, entering, pending, out);
        self.settle(now, out);
    }

    /// Handles a frame from a child.
    pub fn on_child_frame(
        &mut self,
        now: Instant,
        child: usize,
        epoch: Epoch,
        tag: Tag,
        payload: Bytes,
        out: &mut Vec<Action>,
    ) {
        self.on_frame(now, epoch, tag.collective, out, |config, exchange, out| {
            exchange.on_child_frame(config, child, tag, payload, out)
        });
    }

    /// Handles a frame from the parent.
    pub fn on_parent_frame(&mut self, now: Instant, epoch: Epoch, tag: Tag, payload: Bytes, out: &mut Vec<Action>) {
        self.on_frame(now, epoch, tag.collective, out, |config, exchange, out| {
            exchange.on_parent_frame(config, tag, payload, out)
        });
    }

    /// Handles a direct frame from another node.
    pub fn on_direct(
        &mut self,
        now: Instant,
        from: NodeId,
        epoch: Epoch,
        tag: RoundTag,
        payload: Bytes,
        out: &mut Vec<Action>,
    ) {
        let Ok(peer) = self.config.peers.binary_search(&from) else {
            return out.push(Action::Fail {
                problem: format!("node {from} takes part in an exchange although it has no ranks"),
            });
        };
        self.on_frame(now, epoch, tag.collective, out, |config, exchange, out| {
            exchange.on_direct(config, peer as u32, tag, payload, out)
        });
    }

    fn on_frame(
        &mut self,
        now: Instant,
        epoch: Epoch,
        collective: Collective,
        out: &mut Vec<Action>,
        act: impl FnOnce(&CollectiveConfig, &mut Exchange, &mut Vec<Action>) -> Result<(), String>,
    ) {
        let Some((config, exchange)) = self.at(epoch, collective) else {
            let base = self.base;
            let problem =
                format!("a frame of collective {epoch} arrived at a node that is already at collective {base}");
            return out.push(Action::Fail { problem });
        };
        exchange.on_heard(now);
        let known = exchange.collective();
        let done = if known == collective {
            act(config, exchange, out)
        } else {
            Err(format!("ranks of this node called {known}, ranks of another node called {collective}"))
        };
        if let Err(problem) = done {
            out.push(Action::Fail { problem: format!("collective {epoch} of the job: {problem}") });
        }
        self.settle(now, out);
    }

    /// The exchange of an epoch, created if it is new; `None` if the epoch has ended or is too far ahead.
    fn at(&mut self, epoch: Epoch, collective: Collective) -> Option<(&CollectiveConfig, &mut Exchange)> {
        let index = epoch.0.checked_sub(self.base.0)? as usize;
        if index >= EXCHANGES_MAX {
            return None;
        }
        if self.live.len() <= index {
            self.live.resize_with(index + 1, || None);
        }
        let config = &self.config;
        let exchange = self.live[index].get_or_insert_with(|| Exchange::new(epoch, collective, config));
        Some((config, exchange))
    }

    /// Delivers complete outcomes and removes epochs for which nothing more is needed.
    fn settle(&mut self, now: Instant, out: &mut Vec<Action>) {
        let mut fences_before = false;
        for exchange in self.live.iter_mut().flatten() {
            let is_fence = exchange.collective() == Collective::Fence;
            if !(is_fence && fences_before)
                && let Some(finished) = exchange.take_finished(now)
            {
                out.push(Action::Finish(Box::new(finished)));
            }
            fences_before |= is_fence && !exchange.is_delivered();
        }
        while let Some(Some(first)) = self.live.front()
            && first.is_over(&self.config)
        {
            self.live.pop_front();
            self.base = Epoch(self.base.0 + 1);
        }
    }

    /// Whether the epoch may still be given up: it has no outcome here.
    pub fn is_open(&self, epoch: Epoch) -> bool {
        let Some(index) = epoch.0.checked_sub(self.base.0) else { return false };
        self.live.get(index as usize).and_then(Option::as_ref).is_none_or(Exchange::is_open)
    }

    /// Ends an epoch without an outcome: local ranks get no answer, and late frames for it are not errors.
    pub fn give_up(&mut self, now: Instant, epoch: Epoch, collective: Collective, out: &mut Vec<Action>) {
        if let Some((_, exchange)) = self.at(epoch, collective) {
            exchange.give_up();
        }
        self.settle(now, out);
    }

    /// A local rank reaches an epoch that was given up.
    pub fn pass(&mut self, local: LocalRank) {
        self.next[local.index()].0 += 1;
    }

    /// A rank of the subtree will never enter `departed.epoch`. Returns whether that is new information: no earlier
    /// epoch is known to be impossible, or it is the first rank to leave without finalizing.
    pub fn on_departed(&mut self, departed: Departed) -> bool {
        let is_first_deserter = departed.deserted && !self.deserter_known;
        self.deserter_known |= departed.deserted;
        let is_earlier = self.departed.is_none_or(|known| departed.epoch < known.epoch);
        if is_earlier {
            self.departed = Some(departed);
        }
        is_earlier || is_first_deserter
    }

    /// The departure that makes a collective in progress impossible, with that collective's epoch and kind.
    pub fn broken(&self) -> Option<(Departed, Epoch, Collective)> {
        let departed = self.departed?;
        let first = self.live.iter().flatten().find(|exchange| departed.epoch <= exchange.epoch())?;
        Some((departed, first.epoch(), first.collective()))
    }

    /// When a wait of `after_ns` expires; `None` if no rank waits or the missing ranks were already requested.
    pub fn stall_deadline(&self, after_ns: u64) -> Option<Instant> {
        let first = self.live.iter().flatten().next()?;
        (after_ns > 0 && self.asked != Some(first.epoch())).then(|| first.since() + after_ns)
    }

    /// Records that the missing ranks of the first epoch in progress were asked for, so that they are not asked for
    /// again.
    pub fn on_asked(&mut self) {
        self.asked = self.live.iter().flatten().next().map(Exchange::epoch);
    }
}

#[cfg(test)]
mod tests;
