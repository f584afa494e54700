//! One collective: the parts of the ranks here, the way up the tree, the way its outcome comes.
//!
//! ```text
//!                     all ranks here are in
//!   (values arrive) ──────────────────────► own part ──► gather up the tree ──► at the root:
//!                                              │             data or size          │
//!                     scheme ring, log         │                                   │ tree: all blocks
//!                   ┌──────────────────────────┘                                   ▼
//!                   ▼                                 "go ring", "go log"      way down
//!             rounds among nodes ◄──────────────────────────────────────────────── │
//!                   └──────────────────────────► outcome ◄─────────────────────────┘
//! ```
//!
//! `tree` is the way up and down, `rounds` among nodes, `scan` the ring's.
//!
//! Cost of the tree: a frame up and one down for each link, every byte once into each node. Of a direct way: its algorithm's
//! frames (see `coll`), a frame up with 8 bytes for each link of the tree, and, where the root chose it, a frame down without
//! payload. Source: S1 V; the choice at the root is ours.

mod rounds;
mod scan;
mod tree;

use super::{Do, Entering, Entry, Finished, Outcome, Site};
use crate::ticket::Ticket;
use crate::time::Instant;
use bytes::Bytes;
use wireup_coll::allgather::Direct;
use wireup_coll::allgather::tree::{Part, TreeGather};
use wireup_coll::scan::RingScan;
use wireup_wire::block;
use wireup_wire::collective::{Algorithm, Collective};
use wireup_wire::ids::{Epoch, LocalRank};
use wireup_wire::job::ExchangeScheme;
use wireup_wire::limits::{EAGER_BYTES_MAX, FRAME_PAYLOAD_MAX};
use wireup_wire::peer::FenceTrace;
use wireup_wire::values;

pub struct Exchange {
    epoch: Epoch,
    collective: Collective,
    since: Option<Instant>,
    /// Local ranks that are in, in the order of their coming.
    waiting: Vec<(LocalRank, Ticket)>,
    /// By local rank; none for fences.
    values: Vec<Bytes>,
    max_len: Option<u32>,
    shared: bool,
    way: Way,
    /// All of the subtree is known to be in.
    gathered: bool,
    outcome: Option<Outcome>,
    delivered: bool,
    trace: FenceTrace,
}

enum Way {
    Blocks {
        tree: TreeGather,
        /// What this node gives, until it is given, and whether that is compressed.
        own: Option<(bool, Bytes)>,
        route: Route,
    },
    Scan(RingScan),
}

enum Route {
    Open,
    /// Among nodes. Those that are ahead may begin before this one does.
    Direct {
        algorithm: Algorithm,
        rounds: Direct,
    },
    Done,
}

impl Exchange {
    pub fn new(epoch: Epoch, collective: Collective, site: &Site) -> Self {
        let way = match collective {
            Collective::Fence | Collective::Allgather | Collective::Modex => {
                let eager_max = match site.scheme {
                    ExchangeScheme::Auto if !site.root => EAGER_BYTES_MAX,
                    ExchangeScheme::Auto | ExchangeScheme::Tree => FRAME_PAYLOAD_MAX,
                    ExchangeScheme::Ring | ExchangeScheme::Bruck => 0,
                };
                Way::Blocks { tree: TreeGather::new(site.children, eager_max), own: None, route: Route::Open }
            }
            Collective::Ring => Way::Scan(RingScan::new(site.children, site.local_size as usize)),
        };
        let values = if collective == Collective::Fence { 0 } else { site.local_size as usize };
        Exchange {
            epoch,
            collective,
            since: None,
            waiting: Vec::new(),
            values: vec![Bytes::new(); values],
            max_len: None,
            shared: false,
            way,
            gathered: false,
            outcome: None,
            delivered: false,
            trace: FenceTrace { epoch, collective, ..FenceTrace::default() },
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn collective(&self) -> Collective {
        self.collective
    }

    /// Since when somebody waits.
    pub fn since(&self) -> Instant {
        self.since.unwrap_or_default()
    }

    /// Somebody elsewhere is in.
    pub fn on_heard(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    pub fn is_delivered(&self) -> bool {
        self.delivered
    }

    /// Nothing more will be asked of this epoch. Where no ranks are there is nothing to hand out.
    pub fn is_over(&self, site: &Site) -> bool {
        self.gathered && (self.delivered || (site.local_size == 0 && self.is_passed_on(site)))
    }

    /// On a node without ranks: what came down has gone on, or nothing comes down.
    fn is_passed_on(&self, site: &Site) -> bool {
        let forced = matches!(site.scheme, ExchangeScheme::Ring | ExchangeScheme::Bruck);
        match &self.way {
            Way::Blocks { route, .. } => forced || matches!(route, Route::Done),
            Way::Scan(_) => self.outcome.is_some(),
        }
    }

    /// Neither has it an outcome here nor was it given up.
    pub fn is_open(&self) -> bool {
        !self.delivered && self.outcome.is_none()
    }

    /// It is over without an outcome.
    pub fn give_up(&mut self) {
        self.gathered = true;
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

    /// A rank here comes. The caller has looked that it is the right collective, and that it comes once.
    pub fn enter(
        &mut self,
        now: Instant,
        site: &Site,
        entering: Entering,
        pending: impl FnOnce() -> Bytes,
        out: &mut Vec<Do>,
    ) {
        let Entering { local, rank, entry, ticket } = entering;
        if self.waiting.is_empty() {
            self.trace.first_in_ns = now.0;
        }
        self.since.get_or_insert(now);
        self.waiting.push((local, ticket));
        match entry {
            Entry::Fence => {}
            Entry::Allgather { max_len, shared, value } => {
                self.shared |= shared;
                self.values[local.index()] = value;
                let known = *self.max_len.get_or_insert(max_len);
                if known != max_len {
                    let epoch = self.epoch;
                    let problem = format!(
                        "collective {epoch} of the job, an allgather, has values of up to {known} bytes for other ranks and \
                         {max_len} for rank {rank}"
                    );
                    return out.push(Do::Fail { problem });
                }
            }
            Entry::Ring { value } | Entry::Modex { data: value } => self.values[local.index()] = value,
        }
        if self.waiting.len() < site.local_size as usize {
            return;
        }
        self.trace.last_in_ns = now.0;
        self.trace.last_rank = rank;
        let own = match self.collective {
            Collective::Fence => pending(),
            Collective::Allgather => packed(&std::mem::take(&mut self.values)),
            Collective::Modex => {
                std::mem::take(&mut self.values).into_iter().find(|data| !data.is_empty()).unwrap_or_default()
            }
            Collective::Ring => Bytes::new(),
        };
        self.trace.bytes_up = own.len() as u64;
        let given = self.give(site, own, out);
        self.fail(given, out);
    }

    fn fail(&self, result: Result<(), String>, out: &mut Vec<Do>) {
        if let Err(problem) = result {
            out.push(Do::Fail { problem: format!("collective {} of the job: {problem}", self.epoch) });
        }
    }

    /// This node's own part.
    fn give(&mut self, site: &Site, bytes: Bytes, out: &mut Vec<Do>) -> Result<(), String> {
        match &mut self.way {
            Way::Scan(scan) => {
                let up = scan.own(std::mem::take(&mut self.values)).map_err(|refused| refused.to_string())?;
                self.on_scanned(site, up, out)
            }
            Way::Blocks { tree, own, .. } => {
                let node = site.place.and_then(|place| site.peers.get(place as usize).copied());
                let mut encoded = Vec::new();
                let (compressed, bytes) = compressed(bytes, site.compress_min);
                if let Some(node) = node.filter(|_| !bytes.is_empty()) {
                    encoded.reserve(block::encoded_len(node, bytes.len()));
                    block::push(&mut encoded, node, compressed, &bytes);
                }
                *own = Some((compressed, bytes));
                let part = tree.own(Part::Data(encoded.into())).map_err(|refused| refused.to_string())?;
                self.on_gathered(site, part, out)?;
                match site.scheme {
                    ExchangeScheme::Ring if node.is_some() => self.go(site, Algorithm::Ring, out),
                    ExchangeScheme::Bruck if node.is_some() => self.go(site, Algorithm::Bruck, out),
                    _ => Ok(()),
                }
            }
        }
    }

    /// All blocks are here.
    fn on_blocks(&mut self, blocks: Vec<Bytes>) {
        if let Way::Blocks { route, .. } = &mut self.way {
            *route = Route::Done;
        }
        self.trace.bytes_down = blocks.iter().map(|part| part.len() as u64).sum();
        self.outcome = Some(match self.max_len {
            Some(max_len) if self.collective == Collective::Allgather => {
                Outcome::Values { max_len, shared: self.shared, blocks }
            }
            _ => Outcome::Pairs(blocks),
        });
    }
}

/// The bytes as they travel, and whether that is compressed.
fn compressed(bytes: Bytes, compress_min: u32) -> (bool, Bytes) {
    let is_long = compress_min > 0 && bytes.len() >= compress_min as usize;
    match is_long.then(|| wireup_wire::packed::pack(&bytes)).flatten() {
        Some(packed) => (true, packed),
        None => (false, bytes),
    }
}

fn packed(own: &[Bytes]) -> Bytes {
    let mut bytes = Vec::with_capacity(own.iter().map(|value| values::encoded_len(value.len())).sum());
    for value in own {
        values::push(&mut bytes, value);
    }
    bytes.into()
}

fn too_long(bytes: u64) -> String {
    format!("its data is {bytes} bytes, more than {FRAME_PAYLOAD_MAX} in a message")
}
