//! Rounds among the nodes with ranks, over whatever links they have.

use super::{Exchange, Route, Way, too_long};
use crate::exchange::{Do, Site};
use bytes::Bytes;
use wireup_coll::allgather::{Direct, Step};
use wireup_wire::block::Block;
use wireup_wire::collective::{Algorithm, ROUNDS_MAX, RoundTag};
use wireup_wire::ids::NodeId;
use wireup_wire::limits::FRAME_PAYLOAD_MAX;

impl Exchange {
    /// Begins the rounds among nodes.
    pub(super) fn go(&mut self, site: &Site, algorithm: Algorithm, out: &mut Vec<Do>) -> Result<(), String> {
        let Way::Blocks { own, route, .. } = &mut self.way else {
            return Err("a ring goes along the tree".into());
        };
        let (Some((compressed, bytes)), Some(place)) = (own.take(), site.place) else {
            return Err("it is to go on before the ranks here are in".into());
        };
        let rounds = Self::rounds(route, site, place, algorithm)?;
        let node = site.peers[place as usize];
        let step = rounds.start(&Block { node, compressed, bytes });
        self.on_step(site, step, out)
    }

    /// The rounds, made with the first that is heard of them.
    fn rounds<'r>(route: &'r mut Route, site: &Site, place: u32, wanted: Algorithm) -> Result<&'r mut Direct, String> {
        let count = site.peers.len() as u32;
        let wanted = if u32::from(ROUNDS_MAX) < count { Algorithm::Bruck } else { wanted };
        if let Route::Open = route {
            *route = Route::Direct { algorithm: wanted, rounds: Direct::new(wanted, place, count) };
        }
        match route {
            Route::Direct { algorithm, rounds, .. } if *algorithm == wanted => Ok(rounds),
            Route::Direct { .. } => Err("nodes go different ways".into()),
            Route::Open | Route::Done => Err("a round came after the end".into()),
        }
    }

    /// A round's message of the node at place `from` among the peers.
    pub fn on_direct(
        &mut self,
        site: &Site,
        from: u32,
        tag: RoundTag,
        payload: Bytes,
        out: &mut Vec<Do>,
    ) -> Result<(), String> {
        let (Way::Blocks { route, .. }, Some(place)) = (&mut self.way, site.place) else {
            return Err("it has no rounds here".into());
        };
        let step = Self::rounds(route, site, place, tag.algorithm)?.on_message(from, tag.round, payload);
        let node = site.peers[from as usize];
        let step = step.map_err(|refused| format!("node {node}: {refused}"))?;
        self.on_step(site, step, out)
    }

    fn on_step(&mut self, site: &Site, step: Step, out: &mut Vec<Do>) -> Result<(), String> {
        let Way::Blocks { route: Route::Direct { algorithm, .. }, .. } = self.way else {
            return Ok(());
        };
        for message in step.sends {
            if message.payload.len() > FRAME_PAYLOAD_MAX {
                return Err(too_long(message.payload.len() as u64));
            }
            let tag = RoundTag { collective: self.collective, algorithm, round: message.round };
            let node: NodeId = site.peers[message.to as usize];
            out.push(Do::Direct { epoch: self.epoch, node, tag, payload: message.payload });
        }
        if let Some(blocks) = step.done {
            self.on_blocks(blocks);
        }
        Ok(())
    }
}
