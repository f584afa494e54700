//! The committed data of local ranks that other nodes request, or may request after all local ranks have ended.

use crate::time::Instant;
use bytes::Bytes;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::{NodeId, Rank};
use wireup_wire::limits::{MODEX_BUNDLE_BYTES, PMIX_LATE_BLOB_NS_MAX};
use wireup_wire::modex::{Between, Blob};
use wireup_wire::pmix::Status;

#[derive(Default)]
pub struct Offers {
    /// Local ranks whose data other nodes wait for.
    sought: BTreeMap<Rank, Sought>,
    /// The requests to the server process.
    requests: BTreeMap<u64, Rank>,
    next_request: u64,
    /// Local ranks that commit nothing more.
    departed: BTreeSet<Rank>,
    /// There is no server process here any more.
    unserved: bool,
    /// Local ranks whose data is being fetched to be kept, and the data fetched so far.
    keep: BTreeSet<Rank>,
    kept: Remains,
    /// The answers to be sent after this input.
    answers: BTreeMap<NodeId, Answers>,
}

/// The data of ranks that have all ended.
pub type Remains = BTreeMap<Rank, Blob>;

#[derive(Default)]
struct Sought {
    nodes: Vec<NodeId>,
    /// If the rank has departed: how long to wait for its server.
    until: Option<Instant>,
}

#[derive(Default)]
struct Answers {
    taken: bool,
    blobs: Vec<Blob>,
}

/// The server process answered with an unknown number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unasked;

impl Offers {
    /// Offers with only this data.
    pub fn of(kept: Remains) -> Offers {
        Offers { kept, ..Offers::default() }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.sought.values().filter_map(|sought| sought.until).min()
    }

    /// Another node requests ranks of this one: returns the requests for the server process.
    pub fn seek(&mut self, now: Instant, node: NodeId, ranks: Vec<Rank>) -> Vec<(u64, Rank)> {
        self.answers.entry(node).or_default().taken = true;
        let mut requests = Vec::new();
        for rank in ranks {
            if let Some(blob) = self.kept.get(&rank) {
                self.answers.entry(node).or_default().blobs.push(blob.clone());
                continue;
            }
            requests.extend(self.request(now, rank));
            self.sought.entry(rank).or_default().nodes.push(node);
        }
        requests
    }

    /// The requests for the server process, to be sent when it is ready.
    pub fn outstanding(&self) -> Vec<(u64, Rank)> {
        self.requests.iter().map(|(request, rank)| (*request, *rank)).collect()
    }

    /// There is no server process: pending requests to it will not be answered.
    pub fn on_unserved(&mut self, now: Instant) {
        self.unserved = true;
        for sought in self.sought.values_mut() {
            sought.until.get_or_insert(now + PMIX_LATE_BLOB_NS_MAX);
        }
    }

    /// A new request to the server process for this rank, unless there is one already.
    fn request(&mut self, now: Instant, rank: Rank) -> Option<(u64, Rank)> {
        let Entry::Vacant(sought) = self.sought.entry(rank) else { return None };
        let until = (self.unserved || self.departed.contains(&rank)).then(|| now + PMIX_LATE_BLOB_NS_MAX);
        sought.insert(Sought { nodes: Vec::new(), until });
        let request = self.next_request;
        self.requests.insert(request, rank);
        self.next_request += 1;
        Some((request, rank))
    }

    /// Requests the data of these local ranks, which have ended, in order to keep it.
    pub fn keep(&mut self, now: Instant, ranks: Vec<Rank>) -> Vec<(u64, Rank)> {
        self.keep.extend(&ranks);
        ranks.into_iter().filter_map(|rank| self.request(now, rank)).collect()
    }

    /// The server process answers.
    pub fn on_answer(&mut self, request: u64, status: Status, bytes: Bytes) -> Result<(), Unasked> {
        let rank = self.requests.remove(&request).ok_or(Unasked)?;
        self.give(rank, status, bytes);
        Ok(())
    }

    /// Passes the result for a local rank to all nodes that wait for it.
    fn give(&mut self, rank: Rank, status: Status, bytes: Bytes) {
        if self.keep.remove(&rank) {
            self.kept.insert(rank, Blob { rank, status, bytes: bytes.clone() });
        }
        for node in self.sought.remove(&rank).unwrap_or_default().nodes {
            let blob = Blob { rank, status, bytes: bytes.clone() };
            self.answers.entry(node).or_default().blobs.push(blob);
        }
    }

    /// A local rank commits nothing more.
    pub fn on_departed(&mut self, rank: Rank, now: Instant) {
        self.departed.insert(rank);
        if let Some(sought) = self.sought.get_mut(&rank) {
            sought.until.get_or_insert(now + PMIX_LATE_BLOB_NS_MAX);
        }
    }

    /// Answers for departed ranks about which the server process knows nothing.
    pub fn take_late(&mut self, now: Instant) {
        let late = |(rank, sought): (&Rank, &Sought)| sought.until.filter(|until| *until <= now).map(|_| *rank);
        for rank in self.sought.iter().filter_map(late).collect::<Vec<_>>() {
            self.give(rank, Status::RankGone, Bytes::new());
        }
    }

    /// The answers for each node, in frames of limited size.
    pub fn take_answers(&mut self) -> Vec<(NodeId, Between)> {
        let mut frames = Vec::new();
        for (node, Answers { mut taken, blobs }) in std::mem::take(&mut self.answers) {
            let (mut bundle, mut bytes) = (Vec::new(), 0);
            for blob in blobs {
                if bytes > 0 && bytes + blob.bytes.len() > MODEX_BUNDLE_BYTES {
                    let blobs = std::mem::take(&mut bundle);
                    frames.push((node, Between::Have { taken: std::mem::take(&mut taken), blobs }));
                    bytes = 0;
                }
                bytes += blob.bytes.len();
                bundle.push(blob);
            }
            frames.push((node, Between::Have { taken, blobs: bundle }));
        }
        frames
    }

    /// Answers a node that there is no data of these ranks, and why.
    pub fn refuse(&mut self, node: NodeId, ranks: Vec<Rank>, status: Status) {
        let blob = |rank| Blob { rank, status, bytes: Bytes::new() };
        self.answers.entry(node).or_default().blobs.extend(ranks.into_iter().map(blob));
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

    #[test]
    fn a_server_is_asked_once_for_all_nodes() {
        let mut offers = Offers::default();
        assert_eq!(offers.seek(T, NodeId(1), vec![Rank(0)]), [(0, Rank(0))]);
        assert!(offers.seek(T, NodeId(2), vec![Rank(0)]).is_empty());
        let have = |taken, blobs| Between::Have { taken, blobs };
        let taken = offers.take_answers();
        assert_eq!(taken, [(NodeId(1), have(true, vec![])), (NodeId(2), have(true, vec![]))]);
        assert_eq!(offers.on_answer(7, Status::Ok, Bytes::new()), Err(Unasked));
        assert_eq!(offers.on_answer(0, Status::Ok, "x".into()), Ok(()));
        assert_eq!(offers.on_answer(0, Status::Ok, "x".into()), Err(Unasked));
        let blob = Blob { rank: Rank(0), status: Status::Ok, bytes: "x".into() };
        let answers = offers.take_answers();
        assert_eq!(answers, [(NodeId(1), have(false, vec![blob.clone()])), (NodeId(2), have(false, vec![blob]))]);
    }

    #[test]
    fn departed_ranks_are_not_waited_for() {
        let mut offers = Offers::default();
        offers.seek(T, NodeId(1), vec![Rank(0), Rank(1)]);
        offers.take_answers();
        assert_eq!(offers.deadline(), None);
        offers.on_departed(Rank(0), T);
        let due = offers.deadline().unwrap();
        offers.take_late(due);
        let (_, Between::Have { blobs, .. }) = &offers.take_answers()[0] else { panic!() };
        assert_eq!((blobs.len(), blobs[0].rank, blobs[0].status), (1, Rank(0), Status::RankGone));
        assert_eq!(offers.on_answer(0, Status::Ok, "late".into()), Ok(()), "the request was outstanding");
        assert!(offers.take_answers().is_empty());
        assert_eq!(offers.seek(T, NodeId(2), vec![Rank(0)]).len(), 1, "its server may know what it had committed");
        assert!(offers.deadline().is_some());
    }

    #[test]
    fn long_answers_are_sent_separately() {
        let mut offers = Offers::default();
        let ranks: Vec<Rank> = (0..3).map(Rank).collect();
        for (request, _) in offers.seek(T, NodeId(1), ranks) {
            offers.on_answer(request, Status::Ok, vec![0; MODEX_BUNDLE_BYTES / 2 + 1].into()).unwrap();
        }
        let taken = |message: &(NodeId, Between)| matches!(message.1, Between::Have { taken: true, .. });
        let frames = offers.take_answers();
        assert_eq!((frames.len(), frames.iter().filter(|frame| taken(frame)).count()), (3, 1));
    }
}
