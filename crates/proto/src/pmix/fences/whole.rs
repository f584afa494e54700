//! A fence of the whole job: an exchange with separate epochs.

use super::super::server::ServerProcess;
use super::super::tree::up;
use crate::collective::groups::too_much;
use crate::collective::{Arrived, CollectiveConfig, Entering, Entry, Exchanges, Finished, Outcome, ReplyTo};
use crate::job::cx::Cx;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::block;
use wireup_wire::collective::Collective;
use wireup_wire::ids::{Epoch, LocalRank};
use wireup_wire::job::Modex;
use wireup_wire::limits::FRAME_PAYLOAD_MAX;
use wireup_wire::modex::Up;
use wireup_wire::peer::{Cause, Departed};
use wireup_wire::pmix::{Answer, Status};

pub struct Whole {
    pub exchanges: Exchanges,
    /// The number of the server's request for each epoch that is awaited.
    requested: BTreeMap<Epoch, u64>,
    /// Epochs for which a rank in the subtree has a timeout.
    with_timeout: BTreeSet<Epoch>,
    /// Epochs that were ended early, with the status that the ranks get.
    given_up: BTreeMap<Epoch, Status>,
}

/// The contribution of the ranks on this node to a fence.
pub struct Entrance {
    /// The number of the server's request.
    pub id: u64,
    pub collect: bool,
    pub data: Bytes,
    /// Whether the fence has a timeout.
    pub is_impatient: bool,
}

impl Whole {
    pub fn new(site: CollectiveConfig) -> Whole {
        Whole {
            exchanges: Exchanges::new(site),
            requested: BTreeMap::new(),
            with_timeout: BTreeSet::new(),
            given_up: BTreeMap::new(),
        }
    }

    /// The epoch that the local ranks are about to enter.
    ///
    /// A fence without a timeout cannot be one that was given up, if all ranks make the same calls: the library has
    /// already ended that fence here for the ranks that had entered, without a request from its server. So such epochs
    /// are skipped.
    pub fn next_epoch(&mut self, cx: &Cx<'_>, is_impatient: bool) -> Epoch {
        while !is_impatient && self.is_given_up(self.next()) {
            self.pass(cx);
        }
        self.next()
    }

    /// The local ranks have entered.
    pub fn enter(&mut self, cx: &mut Cx<'_>, entrance: Entrance, server: &mut ServerProcess) {
        let Entrance { id, collect, data, is_impatient } = entrance;
        let epoch = self.next();
        if let Some(status) = self.given_up.get(&epoch).copied() {
            self.pass(cx);
            return server.refuse(cx, id, status);
        }
        self.requested.insert(epoch, id);
        if is_impatient {
            self.with_timeout.insert(epoch);
            // Before the frames of the fence: with those, an agent above may find that the fence cannot complete.
            if !cx.facts.root {
                cx.up(up(cx.facts, &Up::Impatient { epoch }));
            }
        }
        let stays = !collect || cx.facts.spec.options.pmi.modex == Modex::Direct;
        let mut data = if stays { Bytes::new() } else { data };
        for local in (0..cx.common.ranks.len() as u16).map(LocalRank) {
            let entry = Entry::Modex { data: std::mem::take(&mut data) };
            let entering = Entering { local, rank: cx.rank(local), entry, reply_to: ReplyTo::Server };
            let finished = self.exchanges.enter(cx, entering, Bytes::new);
            self.on_finished(cx, finished, server);
        }
    }

    fn next(&self) -> Epoch {
        self.exchanges.next_of(LocalRank(0))
    }

    fn pass(&mut self, cx: &Cx<'_>) {
        (0..cx.common.ranks.len() as u16).for_each(|local| self.exchanges.pass(LocalRank(local)));
    }

    /// A frame from another node's agent.
    pub fn on_frame(&mut self, cx: &mut Cx<'_>, arrived: Arrived, server: &mut ServerProcess) {
        let finished = self.exchanges.on_frame(cx, arrived);
        self.on_finished(cx, finished, server);
    }

    fn on_finished(&mut self, cx: &mut Cx<'_>, finished: Vec<Finished>, server: &mut ServerProcess) {
        finished.into_iter().for_each(|one| self.answer(cx, one, server));
    }

    /// A fence is complete: answers the server.
    fn answer(&mut self, cx: &mut Cx<'_>, finished: Finished, server: &mut ServerProcess) {
        let Some(id) = self.requested.remove(&finished.epoch) else { return };
        cx.trace(finished.trace);
        let Outcome::Pairs(parts) = finished.outcome else {
            return cx.fail_here(Cause::Pmi { problem: "a PMIx fence ended as another collective".into() });
        };
        self.with_timeout.remove(&finished.epoch);
        // Encoded with headers, the blocks must fit into a message to the server; unpacked, into one to its ranks.
        let travels: usize = parts.iter().map(Bytes::len).sum();
        match parts.iter().map(block::plain_len).sum::<Result<usize, _>>() {
            Ok(0) => server.answer(cx, id, Answer::Fenced { blocks: Vec::new() }),
            Ok(len) if len.max(travels) <= FRAME_PAYLOAD_MAX => server.answer(cx, id, Answer::Fenced { blocks: parts }),
            Ok(len) => server.fail(cx, too_much(len)),
            Err(error) => cx.fail_here(Cause::Pmi { problem: error.to_string() }),
        }
    }

    /// Records that a rank of the subtree enters no more fences, from `epoch` on. Returns whether that is new.
    pub fn on_departed(&mut self, departed: Departed) -> bool {
        self.exchanges.on_departed(departed)
    }

    /// A fence in progress that cannot complete. If a rank has a timeout for it, it will end for all ranks then, so it
    /// is not reported.
    pub fn broken(&self) -> Option<(Departed, Epoch, Collective)> {
        self.exchanges.broken().filter(|(_, epoch, _)| !self.with_timeout.contains(epoch))
    }

    /// A rank here or below has a timeout for this fence.
    pub fn on_impatient(&mut self, epoch: Epoch) {
        if epoch >= self.exchanges.base() {
            self.with_timeout.insert(epoch);
        }
    }

    /// The root has ended a fence.
    pub fn on_over(&mut self, cx: &mut Cx<'_>, epoch: Epoch, status: Status, server: &mut ServerProcess) {
        if epoch < self.exchanges.base() {
            return;
        }
        // The epoch counts as done even if there is an outcome here: some agents below may never report that their
        // ranks have entered.
        self.with_timeout.remove(&epoch);
        self.given_up.insert(epoch, status);
        let finished = self.exchanges.give_up(cx, epoch, Collective::Modex);
        let requested = self.requested.remove(&epoch);
        self.on_finished(cx, finished, server);
        if let Some(id) = requested {
            server.refuse(cx, id, status);
        }
    }

    /// Whether a frame of this epoch is too late.
    pub fn is_given_up(&self, epoch: Epoch) -> bool {
        self.given_up.contains_key(&epoch)
    }
}
