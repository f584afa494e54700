//! Runs one collective: combines the local ranks' parts, and exchanges them with other nodes.
//!
//! ```text
//!   local ranks ── all have entered ──► own part ──► blocks: an allgather among nodes
//!   (values arrive)                                  scan: two values, up and down the tree ──► outcome
//! ```
//!
//! How blocks reach all nodes, and at what cost, is the job of `wireup_coll::allgather`; frames of the tree and of
//! rounds between nodes are its messages.

mod scan;

use super::entry::{Action, CollectiveConfig, Entering, Entry, Finished, Outcome, ReplyTo};
use crate::time::Instant;
use bytes::Bytes;
use wireup_coll::allgather::{Allgather, Progress, Receiver, Refused, Sender};
use wireup_coll::scan::{Down, RingScan};
use wireup_wire::block::Block;
use wireup_wire::collective::{Collective, RoundTag, Tag};
use wireup_wire::ids::{Epoch, LocalRank};
use wireup_wire::peer::FenceTrace;
use wireup_wire::rope::Rope;
use wireup_wire::values;

pub struct Exchange {
    epoch: Epoch,
    collective: Collective,
    since: Option<Instant>,
    /// Local ranks that have entered, in order of arrival.
    waiting: Vec<(LocalRank, ReplyTo)>,
    /// Values by local rank; empty for fences.
    values: Vec<Bytes>,
    max_len: Option<u32>,
    shared: bool,
    algorithm: Algorithm,
    outcome: Option<Outcome>,
    delivered: bool,
    given_up: bool,
    trace: FenceTrace,
}

enum Algorithm {
    Blocks(Allgather),
    Scan(RingScan),
}

impl Exchange {
    pub fn new(epoch: Epoch, collective: Collective, config: &CollectiveConfig) -> Self {
        let algorithm = match collective {
            Collective::Fence | Collective::Allgather | Collective::Modex => {
                Algorithm::Blocks(Allgather::new(collective, config.peer_set(), config.rules()))
            }
            Collective::Ring => Algorithm::Scan(RingScan::new(config.children, config.local_size as usize)),
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

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn collective(&self) -> Collective {
        self.collective
    }

    /// The time when the first local rank entered, or the first frame of this collective arrived.
    pub fn since(&self) -> Instant {
        self.since.unwrap_or_default()
    }

    /// Records that another node has entered.
    pub fn on_heard(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    pub fn is_delivered(&self) -> bool {
        self.delivered
    }

    /// Whether nothing more is needed for this collective. On a node without ranks there is nothing to deliver.
    pub fn is_over(&self, config: &CollectiveConfig) -> bool {
        self.given_up || self.is_gathered() && (self.delivered || (config.local_size == 0 && self.is_passed_on()))
    }

    /// Whether the whole subtree is known to have entered.
    fn is_gathered(&self) -> bool {
        match &self.algorithm {
            Algorithm::Blocks(allgather) => allgather.is_gathered(),
            Algorithm::Scan(scan) => scan.is_gathered(),
        }
    }

    /// On a node without ranks: whether the message from the parent has been forwarded, or none will arrive.
    fn is_passed_on(&self) -> bool {
        match &self.algorithm {
            Algorithm::Blocks(allgather) => allgather.is_passed_on(),
            Algorithm::Scan(_) => self.outcome.is_some(),
        }
    }

    /// Whether the collective has no outcome here and was not given up.
    pub fn is_open(&self) -> bool {
        !self.delivered && self.outcome.is_none()
    }

    /// Ends the collective without an outcome.
    pub fn give_up(&mut self) {
        self.given_up = true;
        self.delivered = true;
        self.outcome = None;
        self.waiting.clear();
    }

    pub fn take_finished(&mut self, now: Instant) -> Option<Finished> {
        let outcome = if self.delivered || self.waiting.is_empty() { None } else { self.outcome.take() }?;
        self.delivered = true;
        self.trace.out_ns = now.0;
        let waiting = std::mem::take(&mut self.waiting);
        Some(Finished { epoch: self.epoch, waiting, outcome, trace: self.trace })
    }

    /// A local rank enters. The caller has checked that it is the right collective and that the rank enters it once.
    pub fn enter(
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
    pub fn on_child_frame(
        &mut self,
        config: &CollectiveConfig,
        child: usize,
        tag: Tag,
        payload: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), String> {
        match self.algorithm {
            Algorithm::Blocks(_) => self.hear(config, Sender::Child(child, tag), payload, out),
            Algorithm::Scan(_) => self.on_scan_up(config, child, &payload, out),
        }
    }

    /// Handles a message from the parent: the outcome, or the algorithm by which to obtain it.
    pub fn on_parent_frame(
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
            Algorithm::Blocks(_) => self.hear(config, Sender::Parent(tag), payload, out),
            Algorithm::Scan(_) => {
                let down = Down::decode(&payload).map_err(|error| error.to_string())?;
                self.on_scan_down(down, out)
            }
        }
    }

    /// Handles a round's message from the node with index `from` among the peers.
    pub fn on_direct(
        &mut self,
        config: &CollectiveConfig,
        from: u32,
        tag: RoundTag,
        payload: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), String> {
        let heard = self.hear(config, Sender::Peer(from, tag), payload, out);
        heard.map_err(|problem| format!("node {}: {problem}", config.peers[from as usize]))
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
        let node = config.place.and_then(|place| config.peers.get(place as usize).copied());
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
            Algorithm::Blocks(allgather) => Ok(allgather),
            Algorithm::Scan(_) => Err("a ring goes along the tree".into()),
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
            Receiver::Peer(peer, tag) => Action::Direct { epoch, node: config.peers[peer as usize], tag, payload },
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
