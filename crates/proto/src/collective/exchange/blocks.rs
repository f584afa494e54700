//! Exchanges blocks: carries an allgather's messages in frames of this job.

use super::{Algorithm, Exchange};
use crate::collective::entry::Outcome;
use crate::collective::entry::{Action, CollectiveConfig};
use bytes::Bytes;
use wireup_coll::allgather::{Allgather, Progress, Receiver, Refused, Sender};
use wireup_wire::block::Block;
use wireup_wire::rope::Rope;

impl Exchange {
    /// Starts with this node's own part.
    pub(super) fn give(
        &mut self,
        config: &CollectiveConfig,
        bytes: Bytes,
        out: &mut Vec<Action>,
    ) -> Result<(), String> {
        self.trace.bytes_up = bytes.len() as u64;
        let node = config.place.and_then(|place| config.peers.get(place as usize).copied());
        let (compressed, bytes) = compressed(bytes, config.compress_min);
        let own = node.map(|node| Block { node, compressed, bytes }.encode()).unwrap_or_default();
        let progress = self.allgather()?.start(own);
        self.on_progress(config, progress, out)
    }

    /// Handles a message from another node.
    pub(super) fn hear(
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
