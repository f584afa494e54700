//! Direct modex: what a rank of another node has committed is asked of its agent when it is first wanted (S3).
//!
//! ```text
//!   server here      agent here               agent there        server there
//!     ── Modex ──►   wanted                     sought
//!     ── Modex ──►     ── Want { 5 } ───────────►  ── ModexWanted ──►
//!     ── Modex ──►                                 ◄─────── Modex ──
//!                      ◄─── Have { taken, 5 } ──
//!                      ── Want { 4, 6 } ───────►
//! ```
//!
//! What is wanted while a `Want` is under way goes along with the next; a rank that several want is asked for once, here and
//! there. Nothing is kept for later: the library keeps what it was given for all ranks of its node, and asks again only for what
//! may have been committed since, which its owner alone knows.
//!
//! A rank that has said goodbye or is gone commits nothing more. What it has committed is still asked of its server, which
//! knows at once; where that says nothing, the answer is that the rank is gone. Before the server of a node leaves, since all
//! ranks there have left, it is asked once more for all of them; the agent keeps that until the next job of the session.
//!
//! `wants` is this side, `offers` the other.
//!
//! Cost: a frame each way for all that is wanted of a node within a round trip.

mod offers;
mod wants;

use super::super::{Context, Job};
use crate::time::Instant;
use bytes::Bytes;
pub use offers::Remains;
use offers::{Offers, Unasked};
use wants::Wants;
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::{AgentId, JobId, NodeId, Rank};
use wireup_wire::limits::PMIX_BLOB_BYTES_MAX;
use wireup_wire::modex::{Between, Blob};
use wireup_wire::peer;
use wireup_wire::pmix::{Answer, Status, ToServer};

#[derive(Default)]
pub struct Modex {
    wants: Wants,
    offers: Offers,
}

impl Modex {
    pub fn deadline(&self) -> Option<Instant> {
        self.offers.deadline()
    }
}

/// What an agent answers that has no such job any more: all of its ranks have left.
pub fn gone(ranks: Vec<Rank>, remains: &Remains) -> Vec<Between> {
    let (nobody, mut offers) = (NodeId(0), Offers::of(remains.clone()));
    let is_there = |rank: &Rank| remains.contains_key(rank);
    let (there, gone): (Vec<Rank>, Vec<Rank>) = ranks.into_iter().partition(is_there);
    offers.seek(Instant(0), nobody, there);
    offers.refuse(nobody, gone, Status::RankGone);
    offers.take_answers().into_iter().map(|(_, message)| message).collect()
}

/// A message in its frame.
pub fn frame(job: JobId, message: &Between) -> Frame {
    let payload = peer::encode(message).into();
    Frame { kind: Kind::Modex, class: Class::Exchange, stream: 0, job: job.0, arg: 0, payload }
}

impl Job {
    /// A rank here wants what another has committed.
    pub(super) fn want(&mut self, id: u64, rank: Rank, cx: &mut Context<'_>) {
        let place = self.facts.mapping.place(rank).filter(|_| rank.0 < self.facts.job_size);
        match (place, &mut self.pmix) {
            (Some((node, _)), Some(pmix)) if Some(node) != self.facts.node => pmix.modex.wants.want(id, rank, node),
            // Ranks of its own node it knows itself.
            _ => self.not_here(id, cx),
        }
    }

    /// A message of another node's agent.
    pub fn on_between(&mut self, from: AgentId, message: Between, cx: &mut Context<'_>) {
        let (Some(node), Some(pmix)) = (self.node_of(from), &mut self.pmix) else { return };
        match message {
            Between::Want { ranks } => {
                let (here, elsewhere): (Vec<Rank>, Vec<Rank>) =
                    ranks.into_iter().partition(|rank| self.processes.iter().any(|process| process.rank == *rank));
                for (ticket, rank) in pmix.modex.offers.seek(cx.now, node, here) {
                    self.tell_server(&ToServer::ModexWanted { ticket, rank }, cx);
                }
                if let Some(pmix) = &mut self.pmix {
                    pmix.modex.offers.refuse(node, elsewhere, Status::NotFound);
                }
            }
            Between::Have { taken, blobs } => {
                if taken {
                    pmix.modex.wants.on_taken(node);
                }
                for Blob { rank, status, bytes } in blobs {
                    let pmix = self.pmix.as_mut();
                    for id in pmix.map(|pmix| pmix.modex.wants.on_have(rank)).unwrap_or_default() {
                        let answer = match status {
                            Status::Ok => Answer::Modex { blob: bytes.clone() },
                            status => Answer::Status(status),
                        };
                        self.answer_ask(id, answer, cx);
                    }
                }
            }
        }
        self.send_modex(cx);
    }

    /// The server process says what a rank here has committed.
    pub(super) fn on_modex(&mut self, ticket: u64, status: Status, blob: Bytes, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        if blob.len() > PMIX_BLOB_BYTES_MAX {
            return self.fail_pmix("a rank has committed more than 64 MiB", cx);
        }
        if pmix.modex.offers.on_answer(ticket, status, blob) == Err(Unasked) {
            return self.fail_pmix(format!("it answers by the number {ticket}, which nobody has asked by"), cx);
        }
        self.end_emptied_server(cx);
    }

    /// The server process serves: it is asked for what others have wanted meanwhile.
    pub(super) fn seek_at_last(&mut self, cx: &mut Context<'_>) {
        for (ticket, rank) in self.pmix.as_ref().map(|pmix| pmix.modex.offers.outstanding()).unwrap_or_default() {
            self.tell_server(&ToServer::ModexWanted { ticket, rank }, cx);
        }
    }

    /// There is none any more.
    pub(super) fn seek_no_more(&mut self, now: Instant) {
        if let Some(pmix) = &mut self.pmix {
            pmix.modex.offers.on_unserved(now);
        }
    }

    /// All ranks here have left, and others may still want what they have committed: it is fetched. False: there is nothing.
    pub(super) fn keep_blobs(&mut self, cx: &mut Context<'_>) -> bool {
        let alone = self.processes.len() == self.facts.job_size as usize;
        let all = self.processes.iter().filter(|process| process.spoke_pmix).map(|process| process.rank).collect();
        let Some(pmix) = self.pmix.as_mut().filter(|_| !alone) else { return false };
        let tickets = pmix.modex.offers.keep(cx.now, all);
        let waits = !pmix.modex.offers.has_kept_all();
        for (ticket, rank) in tickets {
            self.tell_server(&ToServer::ModexWanted { ticket, rank }, cx);
        }
        waits
    }

    pub(super) fn has_kept_all(&self) -> bool {
        self.pmix.as_ref().is_none_or(|pmix| pmix.modex.offers.has_kept_all())
    }

    /// What the ranks here have left behind.
    pub fn take_remains(&mut self) -> Remains {
        self.pmix.as_mut().map(|pmix| pmix.modex.offers.take_kept()).unwrap_or_default()
    }

    pub(in crate::job) fn on_modex_departed(&mut self, rank: Rank, now: Instant) {
        if let Some(pmix) = &mut self.pmix {
            pmix.modex.offers.on_departed(rank, now);
        }
    }

    pub(super) fn check_late_blobs(&mut self, cx: &mut Context<'_>) {
        if let Some(pmix) = &mut self.pmix {
            pmix.modex.offers.take_late(cx.now);
            self.end_emptied_server(cx);
            self.send_modex(cx);
        }
    }

    /// Sends what has come together.
    pub(super) fn send_modex(&mut self, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        let mut frames = pmix.modex.offers.take_answers();
        frames.extend(pmix.modex.wants.take().into_iter().map(|(node, ranks)| (node, Between::Want { ranks })));
        for (node, message) in frames {
            let agent = self.facts.spec.nodes[node.index()].agent;
            cx.send_child(agent, frame(self.facts.spec.job, &message));
        }
    }
}
