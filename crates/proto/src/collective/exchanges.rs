//! Orders one job's collectives on one node: which are in progress, which ranks have entered them, and what each needs
//! next.
//!
//! A [`CollectiveConfig`] has the peer set, which is the nodes of the job that have ranks, and this node's position in
//! it. One [`Exchanges`] contains all collectives of the set, keyed by epoch.
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

use crate::job::cx::Cx;
use crate::job::facts::Facts;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use wireup_coll::allgather::{Allgather, PeerSet, Peers, Progress, Receiver, Refused, Rules, Sender, fitting};
use wireup_coll::scan::{self, Down, RingProgress, RingScan};
use wireup_wire::block::Block;
use wireup_wire::collective::{Algorithm, Collective, RoundTag, Tag};
use wireup_wire::frame::{DownFrame, Frame, FrameKind, PeerFrame, UpFrame};
use wireup_wire::ids::{AgentId, Epoch, LocalRank, NodeId};
use wireup_wire::job::{EarlyWireup, ExchangeScheme};
use wireup_wire::limits::EXCHANGES_MAX;
use wireup_wire::peer::{Cause, Departed, ExchangeTraffic, FenceTrace};
use wireup_wire::rope::Rope;
use wireup_wire::values;

/// The properties that all collectives of a job on this node share.
#[derive(Clone)]
pub struct CollectiveConfig {
    pub local_size: u32,
    /// Least size of a node's contribution that is compressed (bytes); 0: contributions are never compressed.
    pub compress_min: u32,
    pub peers: Peers,
    /// The position of this node among the peers, if the node has ranks, and the position of this agent in the job's
    /// tree, whose agents have ranks of the job at or below them.
    pub set: PeerSet,
    pub rules: Rules,
}

impl CollectiveConfig {
    /// The properties of this node that the job's collectives need.
    pub fn new(facts: &Facts) -> CollectiveConfig {
        let Facts { spec, mapping, root, below, .. } = facts;
        let all = (0..spec.nodes.len() as u32).map(NodeId);
        let peers: Peers = all.filter(|node| mapping.local_size(*node) > 0).collect();
        let me = facts.node.and_then(|node| peers.index_of(node));
        CollectiveConfig {
            local_size: facts.local_size(),
            compress_min: spec.options.exchange.compress_bytes_min,
            set: PeerSet { count: peers.count(), me, root: *root, children: below.len() },
            rules: Rules { scheme: spec.options.exchange.scheme, collect_max: None },
            peers,
        }
    }

    /// The node of a peer.
    ///
    /// # Panics
    /// If there is no such peer.
    pub fn peer(&self, peer: u32) -> NodeId {
        self.peers.node(peer).expect("a collective is among its peers")
    }

    /// This node's block with `bytes`, compressed if there are at least `compress_min` of them; empty if the node has
    /// no ranks.
    fn block(&self, bytes: Bytes) -> Bytes {
        let is_long = self.compress_min > 0 && bytes.len() >= self.compress_min as usize;
        let packed = is_long.then(|| wireup_wire::packed::pack(&bytes)).flatten();
        let (compressed, bytes) = (packed.is_some(), packed.unwrap_or(bytes));
        let node = self.set.me.and_then(|me| self.peers.node(me));
        node.map(|node| Block { node, compressed, bytes }.encode()).unwrap_or_default()
    }
}

/// A rank's contribution to a collective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A fence: the rank contributes nothing; the node contributes the pairs that were put on it.
    Fence,
    /// A value for all ranks, of at most `max_len` bytes. `shared`: the results are read from shared memory, in rows.
    Allgather { max_len: u32, shared: bool, value: Bytes },
    /// A value for both neighbours in the ring.
    Ring { value: Bytes },
    /// A fence of PMIx clients, with the data of the whole node. One rank passes the data for all ranks of the node.
    Modex { data: Bytes },
}

/// A collective that is complete on this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finished {
    /// The local ranks, in order of arrival, and how to answer each of them.
    pub waiting: Vec<(LocalRank, ReplyTo)>,
    pub outcome: Outcome,
    /// `out_ns` is the time of this event: the profile replaces it when the outcome was stored and the ranks answered.
    pub trace: FenceTrace,
}

/// The result of a collective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Blocks of packed pairs; for a PMIx fence, blocks of the PMIx library's data.
    Pairs(Vec<Bytes>),
    /// Blocks of values. `shared`: some local rank reads the values from shared memory, in rows.
    Values { max_len: u32, shared: bool, blocks: Vec<Bytes> },
    /// The result of a ring: the position and the neighbours' values of each local rank.
    Places(Vec<Down>),
}

impl Entry {
    pub fn collective(&self) -> Collective {
        match self {
            Entry::Fence => Collective::Fence,
            Entry::Allgather { .. } => Collective::Allgather,
            Entry::Ring { .. } => Collective::Ring,
            Entry::Modex { .. } => Collective::Modex,
        }
    }
}

/// How to answer a rank when its collective completes: chosen by the code that enters the collective, returned with its
/// outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplyTo {
    /// A text client's fence. `thread`: the `thrid` of the request, which the reply repeats.
    Fence { thread: Option<Vec<u8>> },
    /// A lazy fence, which was answered when the rank entered it: nothing is sent.
    Lazy,
    /// The node's PMIx server entered the collective for the rank: it gets the answer.
    Server,
    /// A text client's ring. `thread`: the `thrid` of the request, which the reply repeats.
    Ring { thread: Option<Vec<u8>> },
    /// The exchange of the ranks' addresses: this agent has entered for the rank and keeps the outcome. No rank waits.
    Endpoints,
    /// A fence of our own client. `id`: the client's number for the request.
    OwnFence { id: u32 },
    /// An allgather of our own client. `id`: the client's number for the request.
    Allgather { id: u32 },
}

pub struct Exchanges {
    config: CollectiveConfig,
    pub traffic: ExchangeTraffic,
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
            traffic: ExchangeTraffic::default(),
            base: Epoch(0),
            live: VecDeque::new(),
            departed: None,
            deserter_known: false,
            asked: None,
        }
    }

    /// The links that the first exchange needs, to be made while ranks are still starting (S3: early wireup).
    pub fn first_links(&self, facts: &Facts) -> Option<Vec<AgentId>> {
        let options = &facts.spec.options.exchange;
        let algorithm = match (options.early_wireup, options.scheme) {
            (EarlyWireup::Auto | EarlyWireup::Yes, ExchangeScheme::Direct(algorithm)) => algorithm,
            (EarlyWireup::Yes, ExchangeScheme::Auto) => Algorithm::BRUCK,
            (EarlyWireup::No | EarlyWireup::Auto, _) | (EarlyWireup::Yes, ExchangeScheme::Tree) => return None,
        };
        let CollectiveConfig { set, peers, .. } = &self.config;
        let direct = fitting(Collective::Fence, algorithm, peers.count());
        let receivers = set.me.zip(direct.ok()).map(|(me, direct)| (direct.receivers)(me, peers.count()));
        let nodes = receivers.unwrap_or_default().into_iter().filter_map(|peer| peers.node(peer));
        Some(nodes.map(|node| facts.agent_of(node)).collect())
    }

    /// Reads a frame that another node's agent has sent over a direct link.
    ///
    /// # Errors
    /// A text that names the sender: it has no ranks in the job, or this version does not know its kind of frame.
    pub fn of_node(&self, node: NodeId, frame: Frame) -> Result<Arrived, String> {
        let tag = RoundTag::from_stream(frame.stream).map_err(|unknown| format!("node {node}: {unknown}"))?;
        let peer = self.config.peers.index_of(node);
        let peer = peer.ok_or_else(|| format!("node {node} takes part in an exchange although it has no ranks"))?;
        Ok(Arrived { epoch: Epoch(frame.arg), from: Sender::Peer(peer, tag), payload: frame.payload })
    }

    /// The first epoch that is not complete on this agent.
    pub fn base(&self) -> Epoch {
        self.base
    }

    /// The number of epochs that are not complete on this agent.
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

    /// A local rank starts its next collective. `pending` returns the pairs put on this node so far. Returns the
    /// collectives that are complete.
    pub fn enter(
        &mut self,
        cx: &mut Cx<'_>,
        local: LocalRank,
        (entry, reply_to): (Entry, ReplyTo),
        pending: impl FnOnce() -> Bytes,
    ) -> Vec<Finished> {
        let (epoch, rank) = (self.next[local.index()], cx.rank(local));
        let collective = entry.collective();
        // The epoch advances even if the collective is refused: the rank's next collective must not be taken for this
        // one.
        self.next[local.index()] = Epoch(epoch.0 + 1);
        let sends = match self.at(epoch, collective) {
            None => Err(format!("rank {rank} has more than {EXCHANGES_MAX} collectives outstanding")),
            Some((_, Exchange { collective: other, .. })) if *other != collective => Err(format!(
                "rank {rank} called {collective} as collective {epoch} of the job, but other ranks called {other}"
            )),
            Some((config, exchange)) => exchange.enter(cx, config, local, (entry, reply_to), pending),
        };
        self.advance(cx, epoch, sends)
    }

    /// Handles another node's frame. Returns the collectives that are complete.
    pub fn on_frame(&mut self, cx: &mut Cx<'_>, arrived: Arrived) -> Vec<Finished> {
        let (base, collective) = (self.base, arrived.collective());
        let Arrived { epoch, from, payload } = arrived;
        let traffic = match from {
            Sender::Child(..) => &mut self.traffic.up,
            Sender::Parent(_) => &mut self.traffic.down,
            Sender::Peer(..) => &mut self.traffic.direct,
        };
        traffic.count_in(payload.len());
        let sends = match self.at(epoch, collective) {
            None => {
                Err(format!("a frame of collective {epoch} arrived at a node that is already at collective {base}"))
            }
            Some((config, exchange)) => {
                exchange.since.get_or_insert(cx.now());
                let sends = match exchange.collective {
                    known if known == collective => exchange.on_frame(config, from, payload),
                    known => {
                        Err(format!("ranks of this node called {known}, ranks of another node called {collective}"))
                    }
                };
                sends.map_err(|problem| format!("collective {epoch} of the job: {problem}"))
            }
        };
        self.advance(cx, epoch, sends)
    }

    /// Ends an epoch without an outcome: local ranks get no answer, and late frames for it are not errors. Returns the
    /// collectives that are complete.
    pub fn give_up(&mut self, cx: &mut Cx<'_>, epoch: Epoch, collective: Collective) -> Vec<Finished> {
        if let Some((_, exchange)) = self.at(epoch, collective) {
            exchange.give_up();
        }
        self.settle(cx.now())
    }

    /// Sends what a collective has to send, or ends the job. Returns the collectives that are complete.
    fn advance(&mut self, cx: &mut Cx<'_>, epoch: Epoch, sends: Result<Sends, String>) -> Vec<Finished> {
        match sends {
            Ok(sends) => sends.into_iter().for_each(|(to, payload)| self.send(cx, epoch, to, payload)),
            Err(problem) => cx.fail_here(Cause::Pmi { problem }),
        }
        self.settle(cx.now())
    }

    fn send(&mut self, cx: &mut Cx<'_>, epoch: Epoch, to: Receiver, payload: Rope) {
        let (facts, len) = (cx.facts, payload.len());
        // A frame's payload is contiguous: several slices are joined here, once for all receivers.
        let frame = |kind: FrameKind, stream| facts.frame(kind, stream, epoch.0, payload.into_bytes());
        match to {
            Receiver::Parent(tag) => {
                self.traffic.up.count_out(len);
                cx.agent.links.send_job_up(cx.common.up, frame(UpFrame::ExchangeUp.into(), tag.to_stream()));
            }
            Receiver::Child(child, tag) => {
                self.send_down(cx, child..child + 1, frame(DownFrame::ExchangeDown.into(), tag.to_stream()))
            }
            Receiver::Children(tag) => {
                self.send_down(cx, 0..facts.below.len(), frame(DownFrame::ExchangeDown.into(), tag.to_stream()))
            }
            Receiver::Peer(peer, tag) => {
                self.traffic.direct.count_out(len);
                cx.agent.links.send_peer(
                    facts.agent_of(self.config.peer(peer)),
                    frame(PeerFrame::Direct.into(), tag.to_stream()),
                );
            }
        }
    }

    fn send_down(&mut self, cx: &mut Cx<'_>, children: Range<usize>, frame: Frame) {
        for child in children {
            self.traffic.down.count_out(frame.payload.len());
            cx.agent.links.send_peer(cx.facts.below[child], frame.clone());
        }
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

    /// Returns complete collectives, and removes epochs for which nothing more is needed.
    fn settle(&mut self, now: Instant) -> Vec<Finished> {
        let (mut finished, mut fences_before) = (Vec::new(), false);
        for exchange in self.live.iter_mut().flatten() {
            let is_fence = exchange.collective == Collective::Fence;
            exchange.stamp(now);
            if !(is_fence && fences_before) {
                finished.extend(exchange.take_finished(now));
            }
            fences_before |= is_fence && !exchange.delivered;
        }
        while let Some(Some(first)) = self.live.front()
            && first.is_over(&self.config)
        {
            self.live.pop_front();
            self.base = Epoch(self.base.0 + 1);
        }
        finished
    }

    /// Whether the epoch may still be given up, because it has no outcome on this agent.
    pub fn is_open(&self, epoch: Epoch) -> bool {
        let Some(index) = epoch.0.checked_sub(self.base.0) else { return false };
        self.live.get(index as usize).and_then(Option::as_ref).is_none_or(Exchange::is_open)
    }

    /// The local ranks skip an epoch that was given up.
    pub fn pass(&mut self) {
        self.next.iter_mut().for_each(|next| next.0 += 1);
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

    /// The collective in progress that a departure makes impossible.
    pub fn broken(&self) -> Option<Broken> {
        let departed = self.departed?;
        let first = self.live.iter().flatten().find(|exchange| departed.epoch <= exchange.epoch)?;
        Some(Broken { departed, epoch: first.epoch, collective: first.collective, waiting: self.arrived() })
    }

    /// Time at which the first collective in progress has waited for `after_ns`; `None` if there is none, or if its
    /// missing ranks were already asked for.
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

/// A collective that cannot complete, because a rank has departed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    pub departed: Departed,
    pub epoch: Epoch,
    pub collective: Collective,
    /// How many local ranks have entered the first collective in progress.
    pub waiting: u32,
}

/// The messages that a collective must send, with their receivers.
type Sends = Vec<(Receiver, Rope)>;

/// A collective's frame, parsed as far as necessary to forward it.
pub struct Arrived {
    pub epoch: Epoch,
    from: Sender,
    payload: Bytes,
}

impl Arrived {
    /// Reads a frame that has arrived along the tree, from a child or (`None`) from the parent.
    ///
    /// # Errors
    /// A message that names the sending node: this version does not know the frame's kind.
    pub fn of_tree(facts: &Facts, child: Option<usize>, frame: Frame) -> Result<Arrived, String> {
        let tag = Tag::from_stream(frame.stream).map_err(|unknown| {
            let node = child.and_then(|child| facts.node_of(facts.below[child]));
            let sender = node.map_or("the parent agent".to_owned(), |node| format!("node {node}"));
            format!("{sender}: {unknown}")
        })?;
        let from = child.map_or(Sender::Parent(tag), |child| Sender::Child(child, tag));
        Ok(Arrived { epoch: Epoch(frame.arg), from, payload: frame.payload })
    }

    pub fn collective(&self) -> Collective {
        match self.from {
            Sender::Parent(tag) | Sender::Child(_, tag) => tag.collective,
            Sender::Peer(_, tag) => tag.collective,
        }
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
    method: Method,
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
        let CollectiveConfig { local_size, set: PeerSet { root, children, .. }, .. } = *config;
        let method = match collective {
            Collective::Fence | Collective::Allgather | Collective::Modex => {
                Method::Blocks(Allgather::new(collective, config.set, config.rules))
            }
            Collective::Ring => Method::Scan(RingScan::new(root, children, local_size as usize)),
        };
        let values = if collective == Collective::Fence { 0 } else { local_size as usize };
        Exchange {
            epoch,
            collective,
            since: None,
            waiting: Vec::new(),
            values: vec![Bytes::new(); values],
            max_len: None,
            shared: false,
            method,
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
        match &self.method {
            Method::Blocks(allgather) => allgather.is_gathered(),
            Method::Scan(scan) => scan.is_gathered(),
        }
    }

    /// On a node without ranks: whether the message from the parent has been forwarded, or none will arrive.
    fn is_passed_on(&self) -> bool {
        match &self.method {
            Method::Blocks(allgather) => allgather.is_passed_on(),
            Method::Scan(_) => self.outcome.is_some(),
        }
    }

    /// Whether the collective has no outcome on this agent and was not given up.
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

    /// Records the time at which the subtree's parts or the result have become complete.
    fn stamp(&mut self, now: Instant) {
        if self.trace.gathered_ns == 0 && self.is_gathered() {
            self.trace.gathered_ns = now.0;
        }
        if self.trace.received_ns == 0 && self.outcome.is_some() {
            self.trace.received_ns = now.0;
        }
    }

    fn take_finished(&mut self, now: Instant) -> Option<Finished> {
        let outcome = if self.delivered || self.waiting.is_empty() { None } else { self.outcome.take() }?;
        self.delivered = true;
        self.trace.out_ns = now.0;
        let waiting = std::mem::take(&mut self.waiting);
        Some(Finished { waiting, outcome, trace: self.trace })
    }

    /// A local rank enters. The caller has checked that it is the right collective and that the rank enters it once.
    fn enter(
        &mut self,
        cx: &Cx<'_>,
        config: &CollectiveConfig,
        local: LocalRank,
        (entry, reply_to): (Entry, ReplyTo),
        pending: impl FnOnce() -> Bytes,
    ) -> Result<Sends, String> {
        let (now, rank) = (cx.now(), cx.rank(local));
        if self.waiting.is_empty() {
            self.trace.first_in_ns = now.0;
        }
        self.since.get_or_insert(now);
        self.waiting.push((local, reply_to));
        let epoch = self.epoch;
        match entry {
            Entry::Fence => {}
            Entry::Allgather { max_len, shared, value } => {
                self.shared |= shared;
                self.values[local.index()] = value;
                let known = *self.max_len.get_or_insert(max_len);
                if known != max_len {
                    return Err(format!(
                        "collective {epoch} of the job, an allgather, has values of up to {known} bytes for other \
                         ranks and {max_len} for rank {rank}"
                    ));
                }
            }
            Entry::Ring { value } | Entry::Modex { data: value } => self.values[local.index()] = value,
        }
        if self.waiting.len() < config.local_size as usize {
            return Ok(Vec::new());
        }
        self.trace.last_in_ns = now.0;
        self.trace.last_rank = rank;
        let values = std::mem::take(&mut self.values);
        let sends = match &mut self.method {
            Method::Blocks(allgather) => {
                let bytes = match self.collective {
                    Collective::Fence => pending(),
                    Collective::Allgather => packed(&values),
                    // One rank has passed the data for all ranks of the node.
                    Collective::Modex | Collective::Ring => {
                        values.into_iter().find(|data| !data.is_empty()).unwrap_or_default()
                    }
                };
                self.trace.bytes_up = bytes.len() as u64;
                let progress = allgather.start(config.block(bytes));
                self.on_blocks(progress)
            }
            Method::Scan(scan) => {
                let progress = scan.start(values);
                self.on_places(progress)
            }
        };
        sends.map_err(|problem| format!("collective {epoch} of the job: {problem}"))
    }

    /// Handles a frame. A child's frame says that its subtree has entered; the parent's has the outcome, or the
    /// algorithm by which to obtain it; a frame from another node belongs to a round.
    fn on_frame(&mut self, config: &CollectiveConfig, from: Sender, payload: Bytes) -> Result<Sends, String> {
        if matches!(from, Sender::Parent(_)) && (!self.is_gathered() || !self.is_open()) {
            return Err("its result arrived too early, or twice".into());
        }
        let sends = match &mut self.method {
            Method::Blocks(allgather) => {
                let progress = allgather.on_message(from, payload.into());
                self.on_blocks(progress)
            }
            Method::Scan(scan) => {
                let progress = scan.on_message(from, &payload);
                self.on_places(progress)
            }
        };
        sends.map_err(|problem| match from {
            Sender::Peer(peer, _) => format!("node {}: {problem}", config.peer(peer)),
            Sender::Child(..) | Sender::Parent(_) => problem,
        })
    }

    /// Handles the result of a step of an allgather: the last missing block may have arrived.
    fn on_blocks(&mut self, progress: Result<Progress, Refused>) -> Result<Sends, String> {
        let Progress { sends, done } = progress.map_err(|refused| refused.to_string())?;
        if let Some(parts) = done {
            self.trace.bytes_down = parts.iter().map(|part| part.len() as u64).sum();
            let blocks = parts.iter().flat_map(Rope::slices).cloned().collect();
            self.outcome = Some(match self.max_len {
                Some(max_len) => Outcome::Values { max_len, shared: self.shared, blocks },
                None => Outcome::Pairs(blocks),
            });
        }
        Ok(sends)
    }

    /// Handles the result of a step of a ring scan: it may contain the positions of the local ranks.
    fn on_places(&mut self, progress: Result<RingProgress, scan::Refused>) -> Result<Sends, String> {
        let Progress { sends, done } = progress.map_err(|refused| refused.to_string())?;
        if let Some(places) = done {
            self.outcome = Some(Outcome::Places(places));
        }
        Ok(sends)
    }
}

fn packed(own: &[Bytes]) -> Bytes {
    let mut bytes = Vec::with_capacity(own.iter().map(|value| values::encoded_len(value.len())).sum());
    for value in own {
        values::push(&mut bytes, value);
    }
    bytes.into()
}

#[cfg(test)]
mod tests;
