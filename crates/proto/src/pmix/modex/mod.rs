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

use super::step::{Step, Steps};
use crate::job::effect::Effects;
use crate::job::facts::{Facts, View};
use crate::time::Instant;
use bytes::Bytes;
pub use offers::Remains;
use offers::{Offers, Unasked};
use wants::Wants;
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::{JobId, NodeId, Rank};
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

    /// A rank here wants what another has committed.
    pub fn want(&mut self, facts: &Facts, id: u64, rank: Rank, steps: &mut Steps) {
        let place = facts.mapping.place(rank).filter(|_| rank.0 < facts.job_size);
        match place {
            Some((node, _)) if Some(node) != facts.node => self.wants.want(id, rank, node),
            // Ranks of its own node it knows itself.
            Some(_) | None => steps.refuse(id, Status::BadParam),
        }
    }

    /// A message of another node's agent.
    pub fn on_between(&mut self, view: &View<'_>, node: NodeId, message: Between, steps: &mut Steps) {
        match message {
            Between::Want { ranks } => {
                let (here, elsewhere): (Vec<Rank>, Vec<Rank>) =
                    ranks.into_iter().partition(|rank| view.facts.local_of(*rank).is_some());
                seek(self.offers.seek(view.now, node, here), steps);
                self.offers.refuse(node, elsewhere, Status::NotFound);
            }
            Between::Have { taken, blobs } => {
                if taken {
                    self.wants.on_taken(node);
                }
                blobs.into_iter().for_each(|blob| self.on_blob(&blob, steps));
            }
        }
    }

    fn on_blob(&mut self, blob: &Blob, steps: &mut Steps) {
        for id in self.wants.on_have(blob.rank) {
            let answer = match blob.status {
                Status::Ok => Answer::Modex { blob: blob.bytes.clone() },
                status => Answer::Status(status),
            };
            steps.answer(id, answer);
        }
    }

    /// The server process says what a rank here has committed.
    pub fn on_answer(&mut self, ticket: u64, status: Status, blob: Bytes, steps: &mut Steps) {
        if blob.len() > PMIX_BLOB_BYTES_MAX {
            steps.fail_server("a rank has committed more than 64 MiB");
        } else if self.offers.on_answer(ticket, status, blob) == Err(Unasked) {
            steps.fail_server(format!("it answers by the number {ticket}, which nobody has asked by"));
        }
    }

    /// The server process serves: it is asked for what others have wanted meanwhile.
    pub fn on_served(&self, steps: &mut Steps) {
        seek(self.offers.outstanding(), steps);
    }

    /// There is no server process any more.
    pub fn on_unserved(&mut self, now: Instant) {
        self.offers.on_unserved(now);
    }

    /// All ranks here have left, and others may still want what they have committed: it is fetched. False: there is nothing.
    pub fn keep_all(&mut self, view: &View<'_>, steps: &mut Steps) -> bool {
        if view.ranks.len() == view.facts.job_size as usize {
            return false;
        }
        let clients = view.ranks.iter().filter(|process| process.spoke_pmix);
        let tickets = self.offers.keep(view.now, clients.map(|process| process.rank).collect());
        seek(tickets, steps);
        !self.offers.has_kept_all()
    }

    pub fn has_kept_all(&self) -> bool {
        self.offers.has_kept_all()
    }

    /// What the ranks here have left behind.
    pub fn take_remains(&mut self) -> Remains {
        self.offers.take_kept()
    }

    pub fn on_departed(&mut self, rank: Rank, now: Instant) {
        self.offers.on_departed(rank, now);
    }

    pub fn on_tick(&mut self, now: Instant) {
        self.offers.take_late(now);
    }

    /// Sends what has come together.
    pub fn flush(&mut self, facts: &Facts, out: &mut Effects) {
        let wants = self.wants.take().into_iter().map(|(node, ranks)| (node, Between::Want { ranks }));
        for (node, message) in self.offers.take_answers().into_iter().chain(wants) {
            out.for_agent(facts.agent_of(node), frame(facts.id(), &message));
        }
    }
}

/// The server process is asked for what ranks here have committed.
fn seek(tickets: Vec<(u64, Rank)>, steps: &mut Steps) {
    for (ticket, rank) in tickets {
        steps.push(Step::Tell(ToServer::ModexWanted { ticket, rank }));
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
