//! The committed data of local ranks that other nodes request, or may request after all local ranks have ended.

use crate::time::Instant;
use bytes::Bytes;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::{NodeId, Rank};
use wireup_wire::limits::{MODEX_BUNDLE_BYTES, PMIX_LATE_BLOB_NS_MAX};
use wireup_wire::modex::{Between, Blob};
use wireup_wire::pmix::{Status, Wanted};

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
    /// Answers for other nodes that are sent after this input.
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

/// Who waits for data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Seeker {
    /// Another node of the job.
    Node(NodeId),
    /// A rank of another job, by way of the root; with the number of the root's request.
    Root(u64),
}

#[derive(Default)]
struct Sought {
    seekers: Vec<Seeker>,
    /// When the rank has departed: time until which its server's answer is awaited.
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
    pub fn from_remains(kept: Remains) -> Offers {
        Offers { kept, ..Offers::default() }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.sought.values().filter_map(|sought| sought.until).min()
    }

    /// Another node requests ranks of this one: returns the requests for the server process.
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

    /// The server process answers.
    pub fn on_answer(&mut self, request: u64, status: Status, bytes: Bytes) -> Result<(), Unasked> {
        let wanted = self.requests.remove(&request).ok_or(Unasked)?;
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

    /// A local rank commits nothing more.
    pub fn on_departed(&mut self, rank: Rank, now: Instant) {
        self.departed.insert(rank);
        for (_, sought) in self.sought.iter_mut().filter(|(wanted, _)| wanted.rank == rank) {
            sought.until.get_or_insert(now + PMIX_LATE_BLOB_NS_MAX);
        }
    }

    /// Answers for departed ranks about which the server process knows nothing.
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

    /// Answers a node that there is no data of these ranks, and why.
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
    use wireup_wire::inter_job::{InterJobReport, Order};

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
        assert_eq!(offers.on_answer(7, Status::Ok, Bytes::new()), Err(Unasked));
        assert_eq!(offers.on_answer(0, Status::Ok, "x".into()), Ok(()));
        assert_eq!(offers.on_answer(0, Status::Ok, "x".into()), Err(Unasked));
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
        let report = |rank| super::super::report_of_gone(Order::Give { ticket: 4, wanted: of(rank) }, &kept);
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
}
