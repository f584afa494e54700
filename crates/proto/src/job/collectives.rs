//! Carries out the collectives of a job: sends and receives their frames, tracks departed ranks and impossible
//! collectives.
//!
//! The ranks have one [`Collectives`], and PMIx servers, whose fences have epochs of their own, have another.

use super::cx::Cx;
use super::facts::Facts;
use crate::collective::{Action, CollectiveConfig, Entering, Exchanges, Finished, Peers};
use bytes::Bytes;
use wireup_wire::collective::{Algorithm, Collective, RoundTag, Tag};
use wireup_wire::frame::{DownFrame, Frame, FrameKind, PeerFrame, UpFrame};
use wireup_wire::ids::{Epoch, NodeId};
use wireup_wire::job::{EarlyWireup, ExchangeScheme};
use wireup_wire::peer::{Cause, ExchangeTraffic};
use wireup_wire::rope::Rope;

pub struct Collectives {
    pub exchanges: Exchanges,
    pub traffic: ExchangeTraffic,
}

/// A collective's frame, parsed as far as necessary to forward it.
pub enum Arrived {
    Tree { child: Option<usize>, epoch: Epoch, tag: Tag, payload: Bytes },
    Direct { node: NodeId, epoch: Epoch, tag: RoundTag, payload: Bytes },
}

impl Arrived {
    /// A frame along the tree, from a child or from the parent.
    ///
    /// # Errors
    /// A message that names the sending node: this version does not know the frame's kind.
    pub fn of_tree(facts: &Facts, child: Option<usize>, frame: Frame) -> Result<Arrived, String> {
        let tag = Tag::from_stream(frame.stream).map_err(|unknown| {
            let node = child.and_then(|child| facts.node_of(facts.below[child]));
            let sender = node.map_or("the parent agent".to_owned(), |node| format!("node {node}"));
            format!("{sender}: {unknown}")
        })?;
        Ok(Arrived::Tree { child, epoch: Epoch(frame.arg), tag, payload: frame.payload })
    }

    /// A direct frame from another node's agent.
    ///
    /// # Errors
    /// A message that names the sending node: this version does not know the frame's kind.
    pub fn of_node(node: NodeId, frame: Frame) -> Result<Arrived, String> {
        let tag = RoundTag::from_stream(frame.stream).map_err(|unknown| format!("node {node}: {unknown}"))?;
        Ok(Arrived::Direct { node, epoch: Epoch(frame.arg), tag, payload: frame.payload })
    }

    pub fn collective(&self) -> Collective {
        match self {
            Arrived::Tree { tag, .. } => tag.collective,
            Arrived::Direct { tag, .. } => tag.collective,
        }
    }

    pub fn epoch(&self) -> Epoch {
        match self {
            Arrived::Tree { epoch, .. } | Arrived::Direct { epoch, .. } => *epoch,
        }
    }
}

/// A frame's payload is contiguous: several slices are joined here, once for all receivers.
fn frame(facts: &Facts, kind: impl Into<FrameKind>, stream: u16, epoch: Epoch, payload: Rope) -> Frame {
    facts.frame(kind, stream, epoch.0, payload.into_bytes())
}

/// The properties of this node that the job's collectives need.
pub fn config(facts: &Facts) -> CollectiveConfig {
    let Facts { spec, mapping, .. } = facts;
    let all = (0..spec.nodes.len() as u32).map(NodeId);
    let peers: Peers = all.filter(|node| mapping.local_size(*node) > 0).collect();
    let place = facts.node.and_then(|node| peers.index_of(node));
    CollectiveConfig {
        root: facts.root,
        local_size: facts.local_size(),
        children: facts.below.len(),
        scheme: spec.options.exchange.scheme,
        compress_min: spec.options.exchange.compress_bytes_min,
        peers,
        place,
        collect_max: None,
    }
}

impl Collectives {
    pub fn new(config: CollectiveConfig) -> Self {
        Collectives { exchanges: Exchanges::new(config), traffic: ExchangeTraffic::default() }
    }

    /// A local rank starts its next collective. `pending` returns the pairs put on this node so far. Returns the
    /// collectives that are complete.
    pub fn enter(&mut self, cx: &mut Cx<'_>, entering: Entering, pending: impl FnOnce() -> Bytes) -> Vec<Finished> {
        let mut next = Vec::new();
        self.exchanges.enter(cx.now(), entering, pending, &mut next);
        self.carry_out(cx, next)
    }

    /// Handles another node's frame. Returns the collectives that are complete.
    pub fn on_frame(&mut self, cx: &mut Cx<'_>, arrived: Arrived) -> Vec<Finished> {
        let (now, mut next) = (cx.now(), Vec::new());
        match arrived {
            Arrived::Tree { child: Some(child), epoch, tag, payload } => {
                self.traffic.up.count_in(payload.len());
                self.exchanges.on_child_frame(now, child, epoch, tag, payload, &mut next);
            }
            Arrived::Tree { child: None, epoch, tag, payload } => {
                self.traffic.down.count_in(payload.len());
                self.exchanges.on_parent_frame(now, epoch, tag, payload, &mut next);
            }
            Arrived::Direct { node, epoch, tag, payload } => {
                self.traffic.direct.count_in(payload.len());
                self.exchanges.on_direct(now, node, epoch, tag, payload, &mut next);
            }
        }
        self.carry_out(cx, next)
    }

    /// Ends an epoch without an outcome. Returns the collectives that are complete.
    pub fn give_up(&mut self, cx: &mut Cx<'_>, epoch: Epoch, collective: Collective) -> Vec<Finished> {
        let mut next = Vec::new();
        self.exchanges.give_up(cx.now(), epoch, collective, &mut next);
        self.carry_out(cx, next)
    }

    /// The links that the first exchange needs, to be made while ranks are still starting (S3: early wireup).
    pub fn first_links(&self, facts: &Facts) -> Option<Vec<wireup_wire::ids::AgentId>> {
        let options = &facts.spec.options;
        let algorithm = match (options.exchange.early_wireup, options.exchange.scheme) {
            (EarlyWireup::Auto | EarlyWireup::Yes, ExchangeScheme::Direct(algorithm)) => algorithm,
            (EarlyWireup::Yes, ExchangeScheme::Auto) => Algorithm::BRUCK,
            (EarlyWireup::No | EarlyWireup::Auto, _) | (EarlyWireup::Yes, ExchangeScheme::Tree) => return None,
        };
        let receivers = self.exchanges.receivers(algorithm).into_iter();
        Some(receivers.map(|node| facts.agent_of(node)).collect())
    }

    /// Sends the frames of exchanges. Returns the exchanges that are complete.
    fn carry_out(&mut self, cx: &mut Cx<'_>, next: Vec<Action>) -> Vec<Finished> {
        let (facts, mut all) = (cx.facts, Vec::new());
        for next in next {
            match next {
                Action::Up { epoch, tag, payload } => {
                    self.traffic.up.count_out(payload.len());
                    cx.up(frame(facts, UpFrame::ExchangeUp, tag.to_stream(), epoch, payload));
                }
                Action::Down { epoch, child, tag, payload } => {
                    let frame = frame(facts, DownFrame::ExchangeDown, tag.to_stream(), epoch, payload);
                    for child in child.map_or(0..facts.below.len(), |index| index..index + 1) {
                        self.traffic.down.count_out(frame.payload.len());
                        cx.for_child(child, frame.clone());
                    }
                }
                Action::Direct { epoch, node, tag, payload } => {
                    self.traffic.direct.count_out(payload.len());
                    cx.for_node(node, frame(facts, PeerFrame::Direct, tag.to_stream(), epoch, payload));
                }
                Action::Finish(finished) => all.push(*finished),
                Action::Fail { problem } => cx.fail_here(Cause::Pmi { problem }),
            }
        }
        all
    }
}
