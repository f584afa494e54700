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
//! [`Wants`] is the requesting side, [`Offers`] the other.
//!
//! Cost: one frame each way for everything that is requested from a node within a round trip.

use super::server::ServerProcess;
use crate::job::cx::Cx;
use crate::job::names;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::frame::{Frame, PeerFrame};
use wireup_wire::ids::{JobId, NodeId, Rank};
use wireup_wire::inter_job::{InterJobReport, Order};
use wireup_wire::limits::{MODEX_BUNDLE_BYTES, PMIX_BLOB_BYTES_MAX, PMIX_LATE_BLOB_NS_MAX};
use wireup_wire::modex::{Between, Blob};
use wireup_wire::peer;
use wireup_wire::pmix::{Answer, Status, ToServer, Wanted};

#[derive(Default)]
pub struct Modex {
    pub wants: Wants,
    pub offers: Offers,
}

impl Modex {
    /// Handles a local rank's request for what another rank has committed.
    pub fn want(&mut self, cx: &mut Cx<'_>, id: u64, wanted: Wanted, server: &mut ServerProcess) {
        let facts = cx.facts;
        let place = facts.mapping.place(wanted.rank).filter(|_| wanted.rank.0 < facts.job_size);
        match place {
            Some((node, _)) if Some(node) != facts.node => self.wants.want(id, wanted, node),
            // The server process handles ranks of its own node itself.
            Some(_) | None => server.refuse(cx, id, Status::BadParam),
        }
    }

    /// Handles a message of another node's agent.
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

    /// Handles a request that came through the root, by a rank of another job, for what a local rank has committed.
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

    /// Handles the data of a local rank that the server process returns.
    ///
    /// # Errors
    /// How the server process has violated the protocol.
    pub fn on_answer(&mut self, request: u64, status: Status, blob: Bytes) -> Result<(), String> {
        if blob.len() > PMIX_BLOB_BYTES_MAX {
            return Err("a rank has committed more than 64 MiB".into());
        }
        self.offers.on_answer(request, status, blob)
    }

    /// The server process is ready: requests from it what other nodes have asked for so far.
    pub fn on_served(&self, cx: &mut Cx<'_>, server: &ServerProcess) {
        seek(cx, self.offers.outstanding(), server);
    }

    /// All local ranks have ended: copies their data from the server process, since other nodes may still request it.
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
                (Seeker::Node(node), message) => {
                    cx.agent.links.send_peer(cx.facts.agent_of(node), frame(job, &message))
                }
                (Seeker::Root(ticket), Between::Have { blobs, .. }) => {
                    for Blob { status, bytes: blob, .. } in blobs {
                        names::report(cx, InterJobReport::Given { ticket, status, blob });
                    }
                }
                (Seeker::Root(_), Between::Want { .. } | Between::Order(_) | Between::Report(_)) => {}
            }
        }
        for (node, wanted) in self.wants.take() {
            cx.agent.links.send_peer(cx.facts.agent_of(node), frame(job, &Between::Want { wanted }));
        }
    }
}

/// Requests from the server process what local ranks have committed.
fn seek(cx: &mut Cx<'_>, requests: Vec<(u64, Wanted)>, server: &ServerProcess) {
    for (request, wanted) in requests {
        server.tell(cx, &ToServer::ModexWanted { request, wanted });
    }
}

/// The answers of an agent that no longer has the job: all of its ranks have ended.
pub fn gone(wanted: Vec<Wanted>, remains: &Remains) -> Vec<Between> {
    let (nobody, mut offers) = (Seeker::Node(NodeId(0)), Offers { kept: remains.clone(), ..Offers::default() });
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

pub fn frame(job: JobId, message: &Between) -> Frame {
    let payload = peer::encode(message).into();
    Frame::new(PeerFrame::Modex, 0, job.0, 0, payload)
}

/// The requests of local ranks for data of ranks elsewhere, and the nodes that were asked.
#[derive(Default)]
pub struct Wants {
    /// Numbers of the requests that wait for the data of a rank on another node.
    wanted: BTreeMap<Wanted, Vec<u64>>,
    /// Nodes to which requests were sent.
    requested: BTreeMap<NodeId, NodeRequests>,
}

#[derive(Default)]
struct NodeRequests {
    /// Whether a `Want` to the node is in transit.
    busy: bool,
    next: Vec<Wanted>,
}

impl Wants {
    /// Adds a request for a rank of `node`.
    pub fn want(&mut self, id: u64, wanted: Wanted, node: NodeId) {
        match self.wanted.entry(wanted) {
            Entry::Occupied(mut waiting) => waiting.get_mut().push(id),
            Entry::Vacant(entry) => {
                self.requested.entry(node).or_default().next.push(entry.key().clone());
                entry.insert(vec![id]);
            }
        }
    }

    /// Forgets a request that was answered in another way. The node that was asked still answers.
    pub fn forget(&mut self, id: u64) {
        self.wanted.values_mut().for_each(|waiting| waiting.retain(|other| *other != id));
    }

    /// The requests to be sent to other nodes now.
    pub fn take(&mut self) -> Vec<(NodeId, Vec<Wanted>)> {
        let ready = self.requested.iter_mut().filter(|(_, requested)| !requested.busy && !requested.next.is_empty());
        ready
            .map(|(node, requested)| {
                requested.busy = true;
                (*node, std::mem::take(&mut requested.next))
            })
            .collect()
    }

    /// Records that a node has acknowledged the last request to it.
    pub fn on_taken(&mut self, node: NodeId) {
        if let Some(requested) = self.requested.get_mut(&node) {
            requested.busy = false;
        }
    }

    /// A rank's data, or the reason why there is none, is known: returns the requests to be answered.
    pub fn on_have(&mut self, wanted: &Wanted) -> Vec<u64> {
        self.wanted.remove(wanted).unwrap_or_default()
    }
}

/// The committed data of local ranks that other nodes request, or may request after all local ranks have ended.
#[derive(Default)]
pub struct Offers {
    /// The data of local ranks for which other nodes wait.
    sought: BTreeMap<Wanted, Sought>,
    /// Requests to the server process that it has not answered.
    requests: BTreeMap<u64, Wanted>,
    next_request: u64,
    /// Local ranks that commit nothing more.
    departed: BTreeSet<Rank>,
    /// Whether the server process of this node has ended.
    unserved: bool,
    /// Local ranks whose data is being fetched; `kept`: the data that was fetched and is kept.
    keep: BTreeSet<Rank>,
    kept: Remains,
    /// Answers for other nodes, which are sent after the current input.
    answers: BTreeMap<Seeker, Answers>,
}

/// The data of a job's ranks on this node, which have all ended.
pub type Remains = BTreeMap<Rank, Found>;

/// What a rank has committed, or why that is unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    status: Status,
    bytes: Bytes,
}

impl Found {
    fn nothing(status: Status) -> Found {
        Found { status, bytes: Bytes::new() }
    }

    fn blob(self, wanted: Wanted) -> Blob {
        Blob { wanted, status: self.status, bytes: self.bytes }
    }
}

/// A requester of what a local rank has committed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Seeker {
    Node(NodeId),
    /// A rank of another job, by way of the root; with the number of the root's request.
    Root(u64),
}

#[derive(Default)]
struct Sought {
    seekers: Vec<Seeker>,
    /// Time until which the server's answer is awaited; set when the rank has departed.
    until: Option<Instant>,
}

#[derive(Default)]
struct Answers {
    taken: bool,
    blobs: Vec<Blob>,
}

impl Offers {
    pub fn deadline(&self) -> Option<Instant> {
        self.sought.values().filter_map(|sought| sought.until).min()
    }

    /// Handles another node's request for data of ranks of this node: returns the requests for the server process.
    pub fn seek(&mut self, now: Instant, seeker: Seeker, all: Vec<Wanted>) -> Vec<(u64, Wanted)> {
        self.answers.entry(seeker).or_default().taken = true;
        let mut requests = Vec::new();
        for wanted in all {
            if let Some(found) = self.kept.get(&wanted.rank) {
                let blob = found.clone().blob(wanted);
                self.answers.entry(seeker).or_default().blobs.push(blob);
                continue;
            }
            requests.extend(self.request(now, &wanted));
            self.sought.entry(wanted).or_default().seekers.push(seeker);
        }
        requests
    }

    /// The requests for the server process, to be sent when it is ready.
    pub fn outstanding(&self) -> Vec<(u64, Wanted)> {
        self.requests.iter().map(|(request, wanted)| (*request, wanted.clone())).collect()
    }

    /// There is no server process: pending requests to it will not be answered.
    pub fn on_unserved(&mut self, now: Instant) {
        self.unserved = true;
        for sought in self.sought.values_mut() {
            sought.until.get_or_insert(now + PMIX_LATE_BLOB_NS_MAX);
        }
    }

    /// A new request to the server process, unless the same was requested already.
    fn request(&mut self, now: Instant, wanted: &Wanted) -> Option<(u64, Wanted)> {
        let Entry::Vacant(sought) = self.sought.entry(wanted.clone()) else { return None };
        let until = (self.unserved || self.departed.contains(&wanted.rank)).then(|| now + PMIX_LATE_BLOB_NS_MAX);
        sought.insert(Sought { seekers: Vec::new(), until });
        let request = self.next_request;
        self.requests.insert(request, wanted.clone());
        self.next_request += 1;
        Some((request, wanted.clone()))
    }

    /// Requests the data of these local ranks, which have ended, in order to keep it.
    pub fn keep(&mut self, now: Instant, ranks: Vec<Rank>) -> Vec<(u64, Wanted)> {
        self.keep.extend(&ranks);
        ranks.into_iter().filter_map(|rank| self.request(now, &Wanted::data_of(rank))).collect()
    }

    /// Handles the server process's answer to a request.
    ///
    /// # Errors
    /// No request has this number.
    pub fn on_answer(&mut self, request: u64, status: Status, bytes: Bytes) -> Result<(), String> {
        let unasked = || format!("it answered request number {request}, which does not exist");
        let wanted = self.requests.remove(&request).ok_or_else(unasked)?;
        self.give(&wanted, Found { status, bytes });
        Ok(())
    }

    /// Passes the result of a request to all nodes that wait for it.
    fn give(&mut self, wanted: &Wanted, found: Found) {
        if *wanted == Wanted::data_of(wanted.rank) && self.keep.remove(&wanted.rank) {
            self.kept.insert(wanted.rank, found.clone());
        }
        for seeker in self.sought.remove(wanted).unwrap_or_default().seekers {
            self.answers.entry(seeker).or_default().blobs.push(found.clone().blob(wanted.clone()));
        }
    }

    /// Records that a local rank commits nothing more.
    pub fn on_departed(&mut self, rank: Rank, now: Instant) {
        self.departed.insert(rank);
        for (_, sought) in self.sought.iter_mut().filter(|(wanted, _)| wanted.rank == rank) {
            sought.until.get_or_insert(now + PMIX_LATE_BLOB_NS_MAX);
        }
    }

    /// Answers requests for data of departed ranks that the server process has not returned in time.
    pub fn take_late(&mut self, now: Instant) {
        let is_late = |sought: &Sought| sought.until.is_some_and(|until| until <= now);
        let late = self.sought.iter().filter(|(_, sought)| is_late(sought)).map(|(wanted, _)| wanted.clone());
        for wanted in late.collect::<Vec<_>>() {
            self.give(&wanted, Found::nothing(Status::RankGone));
        }
    }

    /// The answers for each node, in frames of limited size.
    pub fn take_answers(&mut self) -> Vec<(Seeker, Between)> {
        let mut frames = Vec::new();
        for (seeker, Answers { mut taken, blobs }) in std::mem::take(&mut self.answers) {
            let (mut bundle, mut bytes) = (Vec::new(), 0);
            for blob in blobs {
                if bytes > 0 && bytes + blob.bytes.len() > MODEX_BUNDLE_BYTES {
                    let blobs = std::mem::take(&mut bundle);
                    frames.push((seeker, Between::Have { taken: std::mem::take(&mut taken), blobs }));
                    bytes = 0;
                }
                bytes += blob.bytes.len();
                bundle.push(blob);
            }
            frames.push((seeker, Between::Have { taken, blobs: bundle }));
        }
        frames
    }

    /// Answers a node that there is no data of these ranks, with the reason `status`.
    pub fn refuse(&mut self, seeker: Seeker, all: Vec<Wanted>, status: Status) {
        let blobs = all.into_iter().map(|wanted| Found::nothing(status).blob(wanted));
        self.answers.entry(seeker).or_default().blobs.extend(blobs);
    }

    pub fn has_kept_all(&self) -> bool {
        self.keep.is_empty()
    }

    pub fn take_kept(&mut self) -> Remains {
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Instant = Instant(1);

    fn of(rank: u32) -> Wanted {
        Wanted::data_of(Rank(rank))
    }

    #[test]
    fn a_server_is_asked_once_for_all_nodes() {
        let mut offers = Offers::default();
        assert_eq!(offers.seek(T, Seeker::Node(NodeId(1)), vec![of(0)]), [(0, of(0))]);
        assert!(offers.seek(T, Seeker::Node(NodeId(2)), vec![of(0)]).is_empty());
        let have = |taken, blobs| Between::Have { taken, blobs };
        let taken = offers.take_answers();
        assert_eq!(
            taken,
            [(Seeker::Node(NodeId(1)), have(true, vec![])), (Seeker::Node(NodeId(2)), have(true, vec![]))]
        );
        assert!(offers.on_answer(7, Status::Ok, Bytes::new()).is_err());
        assert_eq!(offers.on_answer(0, Status::Ok, "x".into()), Ok(()));
        assert!(offers.on_answer(0, Status::Ok, "x".into()).is_err());
        let blob = Blob { wanted: of(0), status: Status::Ok, bytes: "x".into() };
        let answers = offers.take_answers();
        assert_eq!(
            answers,
            [
                (Seeker::Node(NodeId(1)), have(false, vec![blob.clone()])),
                (Seeker::Node(NodeId(2)), have(false, vec![blob]))
            ]
        );
    }

    #[test]
    fn departed_ranks_are_not_waited_for() {
        let mut offers = Offers::default();
        offers.seek(T, Seeker::Node(NodeId(1)), vec![of(0), of(1)]);
        offers.take_answers();
        assert_eq!(offers.deadline(), None);
        offers.on_departed(Rank(0), T);
        let due = offers.deadline().unwrap();
        offers.take_late(due);
        let (_, Between::Have { blobs, .. }) = &offers.take_answers()[0] else { panic!() };
        assert_eq!((blobs.len(), &blobs[0].wanted, blobs[0].status), (1, &of(0), Status::RankGone));
        assert_eq!(offers.on_answer(0, Status::Ok, "late".into()), Ok(()), "the request was outstanding");
        assert!(offers.take_answers().is_empty());
        assert_eq!(
            offers.seek(T, Seeker::Node(NodeId(2)), vec![of(0)]).len(),
            1,
            "its server may know what it had committed"
        );
        assert!(offers.deadline().is_some());
    }

    #[test]
    fn what_ranks_have_left_behind_is_given_to_other_jobs_too() {
        let mut offers = Offers::default();
        let requests = offers.keep(T, vec![Rank(0)]);
        offers.on_answer(requests[0].0, Status::Ok, "x".into()).unwrap();
        let kept = offers.take_kept();
        let report = |rank| report_of_gone(Order::Give { ticket: 4, wanted: of(rank) }, &kept);
        assert_eq!(report(0), Some(InterJobReport::Given { ticket: 4, status: Status::Ok, blob: "x".into() }));
        assert_eq!(report(1), Some(InterJobReport::Given { ticket: 4, status: Status::RankGone, blob: Bytes::new() }));
    }

    #[test]
    fn long_answers_are_sent_separately() {
        let mut offers = Offers::default();
        let all: Vec<Wanted> = (0..3).map(of).collect();
        for (request, _) in offers.seek(T, Seeker::Node(NodeId(1)), all) {
            offers.on_answer(request, Status::Ok, vec![0; MODEX_BUNDLE_BYTES / 2 + 1].into()).unwrap();
        }
        let taken = |message: &(Seeker, Between)| matches!(message.1, Between::Have { taken: true, .. });
        let frames = offers.take_answers();
        assert_eq!((frames.len(), frames.iter().filter(|frame| taken(frame)).count()), (3, 1));
    }

    #[test]
    fn requests_for_a_node_are_bundled_and_none_waits_for_another_rank() {
        let mut wants = Wants::default();
        wants.want(1, of(5), NodeId(1));
        assert_eq!(wants.take(), [(NodeId(1), vec![of(5)])]);
        for (id, rank) in [(2, 6), (3, 7), (4, 5), (5, 6)] {
            wants.want(id, of(rank), NodeId(1));
        }
        assert!(wants.take().is_empty(), "a request is in transit");
        wants.on_taken(NodeId(1));
        assert_eq!(wants.take(), [(NodeId(1), vec![of(6), of(7)])], "rank 5 has not committed yet");
        assert_eq!(wants.on_have(&of(6)), [2, 5]);
        assert_eq!(wants.on_have(&of(5)), [1, 4]);
        assert!(wants.on_have(&of(5)).is_empty(), "a second answer is ignored");
        wants.want(6, of(6), NodeId(1));
        wants.on_taken(NodeId(1));
        assert_eq!(wants.take(), [(NodeId(1), vec![of(6)])], "asked again: it may have committed since");
    }

    #[test]
    fn each_key_is_requested_for_itself() {
        let (mut wants, key) = (Wants::default(), |name: &str| Wanted { key: Some(name.into()), ..of(5) });
        wants.want(1, key("a"), NodeId(1));
        wants.want(2, key("b"), NodeId(1));
        wants.want(3, key("a"), NodeId(1));
        assert_eq!(wants.take(), [(NodeId(1), vec![key("a"), key("b")])]);
        wants.forget(1);
        assert_eq!((wants.on_have(&key("a")), wants.on_have(&key("b"))), (vec![3], vec![2]));
    }
}
