//! Orders one job's collectives on one node: which are in progress, which ranks have entered them, and what each needs
//! next.
//!
//! They are keyed by peer set and epoch: a [`CollectiveConfig`] is this node's position in the only set, the nodes of
//! the job that have ranks, and one [`Exchanges`] contains all of its collectives.
//!
//! Each rank starts the same collectives in the same order: its n-th is epoch n of the job, whatever its kind. Any
//! number may be in progress. An `Exchange` is the state of one; [`Exchanges`] numbers them, keeps them in order and
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

use super::entry::{Action, CollectiveConfig, Entering, Entry, Finished, Outcome, ReplyTo};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::VecDeque;
use wireup_coll::allgather::{Allgather, Progress, Receiver, Refused, Sender, fitting};
use wireup_coll::scan::{Down, RingScan, Up};
use wireup_wire::block::Block;
use wireup_wire::collective::{Algorithm, Collective, Form, RoundTag, Tag};
use wireup_wire::ids::{Epoch, LocalRank, NodeId};
use wireup_wire::limits::EXCHANGES_MAX;
use wireup_wire::peer::{Departed, FenceTrace};
use wireup_wire::rope::Rope;
use wireup_wire::values;

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
        let count = peers.count();
        let receivers = fitting(Collective::Fence, algorithm, count).map(|direct| (direct.receivers)(*place, count));
        receivers.unwrap_or_default().into_iter().filter_map(|peer| peers.node(peer)).collect()
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
        self.live.iter().flatten().next().map(|exchange| exchange.collective)
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
        if exchange.collective != collective {
            let other = exchange.collective;
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
        let Some(peer) = self.config.peers.index_of(from) else {
            return out.push(Action::Fail {
                problem: format!("node {from} takes part in an exchange although it has no ranks"),
            });
        };
        self.on_frame(now, epoch, tag.collective, out, |config, exchange, out| {
            exchange.on_direct(config, peer, tag, payload, out)
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
        exchange.since.get_or_insert(now);
        let known = exchange.collective;
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
            let is_fence = exchange.collective == Collective::Fence;
            if !(is_fence && fences_before)
                && let Some(finished) = exchange.take_finished(now)
            {
                out.push(Action::Finish(Box::new(finished)));
            }
            fences_before |= is_fence && !exchange.delivered;
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
        let first = self.live.iter().flatten().find(|exchange| departed.epoch <= exchange.epoch)?;
        Some((departed, first.epoch, first.collective))
    }

    /// When a wait of `after_ns` expires; `None` if no rank waits or the missing ranks were already requested.
    pub fn stall_deadline(&self, after_ns: u64) -> Option<Instant> {
        let first = self.live.iter().flatten().next()?;
        (after_ns > 0 && self.asked != Some(first.epoch)).then(|| first.since.unwrap_or_default() + after_ns)
    }

    /// Records that the missing ranks of the first epoch in progress were asked for, so that they are not asked for
    /// again.
    pub fn on_asked(&mut self) {
        self.asked = self.live.iter().flatten().next().map(|exchange| exchange.epoch);
    }
}

/// One collective: combines the local ranks' parts, and exchanges them with other nodes.
///
/// ```text
///   local ranks ── all have entered ──► own part ──► blocks: an allgather among nodes
///   (values arrive)                                  scan: two values, up and down the tree ──► outcome
/// ```
///
/// How blocks reach all nodes, and at what cost, is the job of `wireup_coll::allgather`; frames of the tree and of
/// rounds between nodes are its messages.
struct Exchange {
    epoch: Epoch,
    collective: Collective,
    since: Option<Instant>,
    /// Local ranks that have entered, in order of arrival.
    waiting: Vec<(LocalRank, ReplyTo)>,
    /// Values by local rank; empty for fences.
    values: Vec<Bytes>,
    max_len: Option<u32>,
    shared: bool,
    algorithm: Method,
    outcome: Option<Outcome>,
    delivered: bool,
    given_up: bool,
    trace: FenceTrace,
}

enum Method {
    Blocks(Allgather),
    Scan(RingScan),
}

impl Exchange {
    fn new(epoch: Epoch, collective: Collective, config: &CollectiveConfig) -> Self {
        let algorithm = match collective {
            Collective::Fence | Collective::Allgather | Collective::Modex => {
                Method::Blocks(Allgather::new(collective, config.peer_set(), config.rules()))
            }
            Collective::Ring => Method::Scan(RingScan::new(config.children, config.local_size as usize)),
        };
        let values = if collective == Collective::Fence { 0 } else { config.local_size as usize };
        Exchange {
            epoch,
            collective,
            since: None,
            waiting: Vec::new(),
            values: vec![Bytes::new(); values],
            max_len: None,
            shared: false,
            algorithm,
            outcome: None,
            delivered: false,
            given_up: false,
            trace: FenceTrace { epoch, collective, ..FenceTrace::default() },
        }
    }

    /// Whether nothing more is needed for this collective. On a node without ranks there is nothing to deliver.
    fn is_over(&self, config: &CollectiveConfig) -> bool {
        self.given_up || self.is_gathered() && (self.delivered || (config.local_size == 0 && self.is_passed_on()))
    }

    /// Whether the whole subtree is known to have entered.
    fn is_gathered(&self) -> bool {
        match &self.algorithm {
            Method::Blocks(allgather) => allgather.is_gathered(),
            Method::Scan(scan) => scan.is_gathered(),
        }
    }

    /// On a node without ranks: whether the message from the parent has been forwarded, or none will arrive.
    fn is_passed_on(&self) -> bool {
        match &self.algorithm {
            Method::Blocks(allgather) => allgather.is_passed_on(),
            Method::Scan(_) => self.outcome.is_some(),
        }
    }

    /// Whether the collective has no outcome here and was not given up.
    fn is_open(&self) -> bool {
        !self.delivered && self.outcome.is_none()
    }

    /// Ends the collective without an outcome.
    fn give_up(&mut self) {
        self.given_up = true;
        self.delivered = true;
        self.outcome = None;
        self.waiting.clear();
    }

    fn take_finished(&mut self, now: Instant) -> Option<Finished> {
        let outcome = if self.delivered || self.waiting.is_empty() { None } else { self.outcome.take() }?;
        self.delivered = true;
        self.trace.out_ns = now.0;
        let waiting = std::mem::take(&mut self.waiting);
        Some(Finished { epoch: self.epoch, waiting, outcome, trace: self.trace })
    }

    /// A local rank enters. The caller has checked that it is the right collective and that the rank enters it once.
    fn enter(
        &mut self,
        now: Instant,
        config: &CollectiveConfig,
        entering: Entering,
        pending: impl FnOnce() -> Bytes,
        out: &mut Vec<Action>,
    ) {
        let Entering { local, rank, entry, reply_to } = entering;
        if self.waiting.is_empty() {
            self.trace.first_in_ns = now.0;
        }
        self.since.get_or_insert(now);
        self.waiting.push((local, reply_to));
        match entry {
            Entry::Fence => {}
            Entry::Allgather { max_len, shared, value } => {
                self.shared |= shared;
                self.values[local.index()] = value;
                let known = *self.max_len.get_or_insert(max_len);
                if known != max_len {
                    let epoch = self.epoch;
                    let problem = format!(
                        "collective {epoch} of the job, an allgather, has values of up to {known} bytes for other \
                         ranks and {max_len} for rank {rank}"
                    );
                    return out.push(Action::Fail { problem });
                }
            }
            Entry::Ring { value } | Entry::Modex { data: value } => self.values[local.index()] = value,
        }
        if self.waiting.len() < config.local_size as usize {
            return;
        }
        self.trace.last_in_ns = now.0;
        self.trace.last_rank = rank;
        let values = std::mem::take(&mut self.values);
        let given = match self.collective {
            Collective::Fence => self.give(config, pending(), out),
            Collective::Allgather => self.give(config, packed(&values), out),
            Collective::Modex => {
                let data = values.into_iter().find(|data| !data.is_empty());
                self.give(config, data.unwrap_or_default(), out)
            }
            Collective::Ring => self.scan_own(values, config, out),
        };
        if let Err(problem) = given {
            out.push(Action::Fail { problem: format!("collective {} of the job: {problem}", self.epoch) });
        }
    }

    /// Records that all ranks of a child's subtree have entered.
    fn on_child_frame(
        &mut self,
        config: &CollectiveConfig,
        child: usize,
        tag: Tag,
        payload: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), String> {
        match self.algorithm {
            Method::Blocks(_) => self.hear(config, Sender::Child(child, tag), payload, out),
            Method::Scan(_) => self.on_scan_up(config, child, &payload, out),
        }
    }

    /// Handles a message from the parent: the outcome, or the algorithm by which to obtain it.
    fn on_parent_frame(
        &mut self,
        config: &CollectiveConfig,
        tag: Tag,
        payload: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), String> {
        if !self.is_gathered() || !self.is_open() {
            return Err("its result arrived too early, or twice".into());
        }
        match self.algorithm {
            Method::Blocks(_) => self.hear(config, Sender::Parent(tag), payload, out),
            Method::Scan(_) => {
                let down = Down::decode(&payload).map_err(|error| error.to_string())?;
                self.on_scan_down(down, out)
            }
        }
    }

    /// Handles a round's message from the node with index `from` among the peers.
    fn on_direct(
        &mut self,
        config: &CollectiveConfig,
        from: u32,
        tag: RoundTag,
        payload: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), String> {
        let heard = self.hear(config, Sender::Peer(from, tag), payload, out);
        heard.map_err(|problem| format!("node {}: {problem}", config.peer(from)))
    }
}

fn packed(own: &[Bytes]) -> Bytes {
    let mut bytes = Vec::with_capacity(own.iter().map(|value| values::encoded_len(value.len())).sum());
    for value in own {
        values::push(&mut bytes, value);
    }
    bytes.into()
}

impl Exchange {
    /// Starts with this node's own part.
    fn give(&mut self, config: &CollectiveConfig, bytes: Bytes, out: &mut Vec<Action>) -> Result<(), String> {
        self.trace.bytes_up = bytes.len() as u64;
        let node = config.place.and_then(|place| config.peers.node(place));
        let (compressed, bytes) = compressed(bytes, config.compress_min);
        let own = node.map(|node| Block { node, compressed, bytes }.encode()).unwrap_or_default();
        let progress = self.allgather()?.start(own);
        self.on_progress(config, progress, out)
    }

    /// Handles a message from another node.
    fn hear(
        &mut self,
        config: &CollectiveConfig,
        from: Sender,
        payload: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), String> {
        let progress = self.allgather()?.on_message(from, payload.into());
        self.on_progress(config, progress, out)
    }

    fn allgather(&mut self) -> Result<&mut Allgather, String> {
        match &mut self.algorithm {
            Method::Blocks(allgather) => Ok(allgather),
            Method::Scan(_) => Err("a ring goes along the tree".into()),
        }
    }

    fn on_progress(
        &mut self,
        config: &CollectiveConfig,
        progress: Result<Progress, Refused>,
        out: &mut Vec<Action>,
    ) -> Result<(), String> {
        let Progress { sends, done } = progress.map_err(|refused| refused.to_string())?;
        let epoch = self.epoch;
        out.extend(sends.into_iter().map(|(to, payload)| match to {
            Receiver::Parent(tag) => Action::Up { epoch, tag, payload },
            Receiver::Children(tag) => Action::Down { epoch, child: None, tag, payload },
            Receiver::Peer(peer, tag) => Action::Direct { epoch, node: config.peer(peer), tag, payload },
        }));
        if let Some(parts) = done {
            self.on_blocks(&parts);
        }
        Ok(())
    }

    /// Handles the arrival of the last missing block.
    fn on_blocks(&mut self, parts: &[Rope]) {
        self.trace.bytes_down = parts.iter().map(|part| part.len() as u64).sum();
        let blocks = parts.iter().flat_map(Rope::slices).cloned().collect();
        self.outcome = Some(match self.max_len {
            Some(max_len) => Outcome::Values { max_len, shared: self.shared, blocks },
            None => Outcome::Pairs(blocks),
        });
    }
}

/// Returns the bytes as they are sent, and whether they are compressed.
fn compressed(bytes: Bytes, compress_min: u32) -> (bool, Bytes) {
    let is_long = compress_min > 0 && bytes.len() >= compress_min as usize;
    match is_long.then(|| wireup_wire::packed::pack(&bytes)).flatten() {
        Some(packed) => (true, packed),
        None => (false, bytes),
    }
}

/// The ring of values: two values and a count, up the tree and down again.
impl Exchange {
    /// Records that all ranks of a child's subtree have entered.
    fn on_scan_up(
        &mut self,
        config: &CollectiveConfig,
        child: usize,
        payload: &Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), String> {
        let Method::Scan(scan) = &mut self.algorithm else {
            return Err("it is none along the tree".into());
        };
        let up = Up::decode(payload).map_err(|error| error.to_string())?;
        let up = scan.child(child, up).map_err(|refused| refused.to_string())?;
        let own_missing = scan.own_missing();
        self.on_scanned(config, up, out)?;
        if config.local_size == 0 && own_missing {
            // A node without ranks contributes nothing.
            return self.scan_own(Vec::new(), config, out);
        }
        Ok(())
    }

    /// Adds this node's own values.
    fn scan_own(&mut self, values: Vec<Bytes>, config: &CollectiveConfig, out: &mut Vec<Action>) -> Result<(), String> {
        let Method::Scan(scan) = &mut self.algorithm else {
            return Err("it is none along the tree".into());
        };
        let up = scan.own(values).map_err(|refused| refused.to_string())?;
        self.on_scanned(config, up, out)
    }

    fn on_scanned(&mut self, config: &CollectiveConfig, up: Option<Up>, out: &mut Vec<Action>) -> Result<(), String> {
        let (Some(up), Method::Scan(scan)) = (up, &mut self.algorithm) else {
            return Ok(());
        };
        if config.root {
            let down = scan.root();
            return self.on_scan_down(down, out);
        }
        let tag = Tag::new(Collective::Ring, Form::Data);
        out.push(Action::Up { epoch: self.epoch, tag, payload: up.encode().into() });
        Ok(())
    }

    fn on_scan_down(&mut self, down: Down, out: &mut Vec<Action>) -> Result<(), String> {
        let Method::Scan(scan) = &mut self.algorithm else {
            return Err("it is none along the tree".into());
        };
        let (children, places) = scan.on_down(down).map_err(|refused| refused.to_string())?;
        let tag = Tag::new(Collective::Ring, Form::Data);
        for (child, down) in children {
            out.push(Action::Down { epoch: self.epoch, child: Some(child), tag, payload: down.encode().into() });
        }
        self.outcome = Some(Outcome::Places(places));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
