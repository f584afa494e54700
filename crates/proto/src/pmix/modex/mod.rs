//! Direct modex: the data that a rank of another node has committed is requested from its agent when it is first needed
//! (S3).
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
//! Data that is requested while a `Want` is in transit goes into the next one; what several ranks request is requested
//! only once, on both sides. A request names a key; the owner's server answers it when the rank has committed that key,
//! with all data of the rank. Nothing is cached here: the library caches what it was given for all ranks of its node,
//! and asks again only for data that may have been committed since, which only its owner knows.
//!
//! A rank that has finalized or ended commits nothing more. Its data is still requested from its server, which answers
//! at once; if the server does not answer, the result is that the rank has gone. Before a node's server exits, because
//! all ranks there have ended, it is asked for the data of all of them; the agent keeps that until the job has ended
//! everywhere or, in a session of one run, the next job starts.
//!
//! `wants` is the requesting side, `offers` the other.
//!
//! Cost: one frame each way for everything that is requested from a node within a round trip.

mod offers;
mod wants;

use super::server::ServerProcess;
use crate::job::cx::Cx;
use crate::time::Instant;
use bytes::Bytes;
pub use offers::Remains;
use offers::{Offers, Seeker, Unasked};
use wants::Wants;
use wireup_wire::frame::{Frame, PeerFrame};
use wireup_wire::ids::{JobId, NodeId};
use wireup_wire::inter_job::{InterJobReport, Order};
use wireup_wire::limits::PMIX_BLOB_BYTES_MAX;
use wireup_wire::modex::{Between, Blob};
use wireup_wire::peer;
use wireup_wire::pmix::{Answer, Status, ToServer, Wanted};

#[derive(Default)]
pub struct Modex {
    pub wants: Wants,
    pub offers: Offers,
}

impl Modex {
    /// A local rank requests what another rank has committed.
    pub fn want(&mut self, cx: &mut Cx<'_>, id: u64, wanted: Wanted, server: &mut ServerProcess) {
        let facts = cx.facts;
        let place = facts.mapping.place(wanted.rank).filter(|_| wanted.rank.0 < facts.job_size);
        match place {
            Some((node, _)) if Some(node) != facts.node => self.wants.want(id, wanted, node),
            // The server process handles ranks of its own node itself.
            Some(_) | None => server.refuse(cx, id, Status::BadParam),
        }
    }

    /// A message of another node's agent.
    pub fn on_between(&mut self, cx: &mut Cx<'_>, node: NodeId, message: Between, server: &mut ServerProcess) {
        match message {
            Between::Want { wanted } => {
                let (here, elsewhere): (Vec<Wanted>, Vec<Wanted>) =
                    wanted.into_iter().partition(|wanted| cx.facts.local_of(wanted.rank).is_some());
                let seeker = Seeker::Node(node);
                let requests = self.offers.seek(cx.now(), seeker, here);
                seek(cx, requests, server);
                self.offers.refuse(seeker, elsewhere, Status::NotFound);
            }
            Between::Have { taken, blobs } => {
                if taken {
                    self.wants.on_taken(node);
                }
                blobs.into_iter().for_each(|blob| self.on_blob(cx, &blob, server));
            }
            // Orders and reports do not concern this node's data.
            Between::Order(_) | Between::Report(_) => {}
        }
    }

    /// A rank of another job requests what a local rank has committed, by way of the root.
    pub fn give(&mut self, cx: &mut Cx<'_>, ticket: u64, wanted: Wanted, server: &mut ServerProcess) {
        let seeker = Seeker::Root(ticket);
        if cx.facts.local_of(wanted.rank).is_some() {
            let requests = self.offers.seek(cx.now(), seeker, vec![wanted]);
            seek(cx, requests, server);
        } else {
            self.offers.refuse(seeker, vec![wanted], Status::NotFound);
        }
    }

    fn on_blob(&mut self, cx: &mut Cx<'_>, blob: &Blob, server: &mut ServerProcess) {
        for id in self.wants.on_have(&blob.wanted) {
            let answer = match blob.status {
                Status::Ok => Answer::Modex { blob: blob.bytes.clone() },
                status => Answer::Status(status),
            };
            server.answer(cx, id, answer);
        }
    }

    /// The server process returns what a local rank has committed.
    ///
    /// # Errors
    /// How it has violated the protocol.
    pub fn on_answer(&mut self, request: u64, status: Status, blob: Bytes) -> Result<(), String> {
        if blob.len() > PMIX_BLOB_BYTES_MAX {
            return Err("a rank has committed more than 64 MiB".into());
        }
        let answered = self.offers.on_answer(request, status, blob);
        answered.map_err(|Unasked| format!("it answered request number {request}, which does not exist"))
    }

    /// The server process is ready: it is asked for what other nodes have requested meanwhile.
    pub fn on_served(&self, cx: &mut Cx<'_>, server: &ServerProcess) {
        seek(cx, self.offers.outstanding(), server);
    }

    /// All local ranks have ended, and other nodes may still need their data: fetches it.
    pub fn keep_all(&mut self, cx: &mut Cx<'_>, server: &ServerProcess) {
        if cx.common.ranks.len() == cx.facts.job_size as usize {
            return;
        }
        let clients = cx.common.ranks.iter().filter(|process| process.spoke_pmix);
        let requests = self.offers.keep(cx.now(), clients.map(|process| process.rank).collect());
        seek(cx, requests, server);
    }

    /// Sends the collected requests and answers.
    pub fn flush(&mut self, cx: &mut Cx<'_>) {
        let job = cx.facts.id();
        for (seeker, message) in self.offers.take_answers() {
            match (seeker, message) {
                (Seeker::Node(node), message) => cx.for_node(node, frame(job, &message)),
                (Seeker::Root(ticket), Between::Have { blobs, .. }) => {
                    for Blob { status, bytes: blob, .. } in blobs {
                        cx.tell_root(InterJobReport::Given { ticket, status, blob });
                    }
                }
                (Seeker::Root(_), Between::Want { .. } | Between::Order(_) | Between::Report(_)) => {}
            }
        }
        for (node, wanted) in self.wants.take() {
            cx.for_node(node, frame(job, &Between::Want { wanted }));
        }
    }
}

/// Asks the server process for what local ranks have committed.
fn seek(cx: &mut Cx<'_>, requests: Vec<(u64, Wanted)>, server: &ServerProcess) {
    for (request, wanted) in requests {
        server.tell(cx, &ToServer::ModexWanted { request, wanted });
    }
}

/// The answers of an agent that no longer has the job: all of its ranks have ended.
pub fn gone(wanted: Vec<Wanted>, remains: &Remains) -> Vec<Between> {
    let (nobody, mut offers) = (Seeker::Node(NodeId(0)), Offers::from_remains(remains.clone()));
    let is_there = |wanted: &Wanted| remains.contains_key(&wanted.rank);
    let (there, gone): (Vec<Wanted>, Vec<Wanted>) = wanted.into_iter().partition(is_there);
    offers.seek(Instant(0), nobody, there);
    offers.refuse(nobody, gone, Status::RankGone);
    offers.take_answers().into_iter().map(|(_, message)| message).collect()
}

/// The answer of an agent that no longer has the job to an order of the root; `None`: no answer is needed.
pub fn report_of_gone(order: Order, remains: &Remains) -> Option<InterJobReport> {
    match order {
        Order::Give { ticket, wanted } => {
            let answers = gone(vec![wanted], remains);
            let mut blobs = answers.into_iter().filter_map(|answer| match answer {
                Between::Have { blobs, .. } => blobs.into_iter().next(),
                Between::Want { .. } | Between::Order(_) | Between::Report(_) => None,
            });
            blobs.next().map(|Blob { status, bytes: blob, .. }| InterJobReport::Given { ticket, status, blob })
        }
        Order::TellDeparted => Some(InterJobReport::Ended),
        Order::Forget { .. } => None,
    }
}

/// A message in its frame.
pub fn frame(job: JobId, message: &Between) -> Frame {
    let payload = peer::encode(message).into();
    Frame::new(PeerFrame::Modex, 0, job.0, 0, payload)
}
