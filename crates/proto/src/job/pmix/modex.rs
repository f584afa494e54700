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
//! Cost: a frame each way for all that is wanted of a node within a round trip.

use super::super::{Context, Job};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::{AgentId, JobId, NodeId, Rank};
use wireup_wire::limits::{MODEX_BUNDLE_BYTES, PMIX_BLOB_BYTES_MAX, PMIX_LATE_BLOB_NS_MAX};
use wireup_wire::modex::{Between, Blob};
use wireup_wire::peer;
use wireup_wire::pmix::{Answer, Status, ToServer};

#[derive(Default)]
pub struct Modex {
    /// The requests that wait for what a rank elsewhere has committed.
    wanted: BTreeMap<Rank, Vec<u64>>,
    /// Nodes that were asked.
    asked: BTreeMap<NodeId, Asked>,
    /// Ranks here whose data other nodes wait for.
    sought: BTreeMap<Rank, Sought>,
    /// What the server process was asked for.
    tickets: BTreeMap<u64, Rank>,
    next_ticket: u64,
    /// Ranks here that commit nothing more.
    departed: BTreeSet<Rank>,
    /// There is no server process here any more.
    unserved: bool,
    /// Ranks here whose data is being fetched to be kept, and what was.
    keep: BTreeSet<Rank>,
    kept: Remains,
    /// What is to be sent when this input was handled.
    answers: BTreeMap<NodeId, Answers>,
}

/// What ranks have left behind that are all gone.
pub type Remains = BTreeMap<Rank, Blob>;

#[derive(Default)]
struct Asked {
    /// A `Want` is under way.
    busy: bool,
    next: Vec<Rank>,
}

#[derive(Default)]
struct Sought {
    nodes: Vec<NodeId>,
    /// The rank has departed: so long its server is waited for.
    until: Option<Instant>,
}

#[derive(Default)]
struct Answers {
    taken: bool,
    blobs: Vec<Blob>,
}

/// A number that the server process was not asked by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unasked;

impl Modex {
    pub fn deadline(&self) -> Option<Instant> {
        self.sought.values().filter_map(|sought| sought.until).min()
    }

    /// A request for a rank of `node`.
    fn want(&mut self, id: u64, rank: Rank, node: NodeId) {
        let waiting = self.wanted.entry(rank).or_default();
        waiting.push(id);
        if waiting.len() == 1 {
            self.asked.entry(node).or_default().next.push(rank);
        }
    }

    /// What nodes are to be asked now.
    fn take_wants(&mut self) -> Vec<(NodeId, Vec<Rank>)> {
        let ready = self.asked.iter_mut().filter(|(_, asked)| !asked.busy && !asked.next.is_empty());
        ready
            .map(|(node, asked)| {
                asked.busy = true;
                (*node, std::mem::take(&mut asked.next))
            })
            .collect()
    }

    /// Another node wants ranks of this one: the numbers to ask the server process by.
    fn seek(&mut self, now: Instant, node: NodeId, ranks: Vec<Rank>) -> Vec<(u64, Rank)> {
        self.answers.entry(node).or_default().taken = true;
        let mut tickets = Vec::new();
        for rank in ranks {
            if let Some(blob) = self.kept.get(&rank) {
                self.answers.entry(node).or_default().blobs.push(blob.clone());
                continue;
            }
            tickets.extend(self.ticket(now, rank));
            self.sought.entry(rank).or_default().nodes.push(node);
        }
        tickets
    }

    /// What the server process is to be asked for, now that it serves.
    fn outstanding(&self) -> Vec<(u64, Rank)> {
        self.tickets.iter().map(|(ticket, rank)| (*ticket, *rank)).collect()
    }

    /// There is no server process: nothing will come of what it was to be asked for.
    fn on_unserved(&mut self, now: Instant) {
        self.unserved = true;
        for sought in self.sought.values_mut() {
            sought.until.get_or_insert(now + PMIX_LATE_BLOB_NS_MAX);
        }
    }

    /// A number to ask the server process by, if it is not asked for this rank already.
    fn ticket(&mut self, now: Instant, rank: Rank) -> Option<(u64, Rank)> {
        let Entry::Vacant(sought) = self.sought.entry(rank) else { return None };
        let until = (self.unserved || self.departed.contains(&rank)).then(|| now + PMIX_LATE_BLOB_NS_MAX);
        sought.insert(Sought { nodes: Vec::new(), until });
        let ticket = self.next_ticket;
        self.tickets.insert(ticket, rank);
        self.next_ticket += 1;
        Some((ticket, rank))
    }

    /// What these ranks here, which are gone, have committed is to be kept.
    fn keep(&mut self, now: Instant, ranks: Vec<Rank>) -> Vec<(u64, Rank)> {
        self.keep.extend(&ranks);
        ranks.into_iter().filter_map(|rank| self.ticket(now, rank)).collect()
    }

    /// The server process answers.
    fn on_answer(&mut self, ticket: u64, status: Status, bytes: Bytes) -> Result<(), Unasked> {
        let rank = self.tickets.remove(&ticket).ok_or(Unasked)?;
        self.give(rank, status, bytes);
        Ok(())
    }

    /// Whoever waits for a rank here hears this.
    fn give(&mut self, rank: Rank, status: Status, bytes: Bytes) {
        if self.keep.remove(&rank) {
            self.kept.insert(rank, Blob { rank, status, bytes: bytes.clone() });
        }
        for node in self.sought.remove(&rank).unwrap_or_default().nodes {
            let blob = Blob { rank, status, bytes: bytes.clone() };
            self.answers.entry(node).or_default().blobs.push(blob);
        }
    }

    /// A rank here commits nothing more.
    fn on_departed(&mut self, rank: Rank, now: Instant) {
        self.departed.insert(rank);
        if let Some(sought) = self.sought.get_mut(&rank) {
            sought.until.get_or_insert(now + PMIX_LATE_BLOB_NS_MAX);
        }
    }

    /// Departed ranks of which the server process knows nothing.
    fn take_late(&mut self, now: Instant) {
        let late = |(rank, sought): (&Rank, &Sought)| sought.until.filter(|until| *until <= now).map(|_| *rank);
        for rank in self.sought.iter().filter_map(late).collect::<Vec<_>>() {
            self.give(rank, Status::RankGone, Bytes::new());
        }
    }

    /// Of a node that has said what it has: the requests that are answered with it.
    fn on_have(&mut self, node: NodeId, taken: bool, rank: Option<Rank>) -> Vec<u64> {
        if let Some(asked) = self.asked.get_mut(&node).filter(|_| taken) {
            asked.busy = false;
        }
        rank.and_then(|rank| self.wanted.remove(&rank)).unwrap_or_default()
    }

    /// The answers for each node, in frames of bearable size.
    fn take_answers(&mut self) -> Vec<(NodeId, Between)> {
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
}

/// What an agent answers that has no such job any more: all of its ranks have left.
pub fn gone(ranks: Vec<Rank>, remains: &Remains) -> Vec<Between> {
    let (nobody, mut modex) = (NodeId(0), Modex { kept: remains.clone(), ..Modex::default() });
    let is_there = |rank: &Rank| remains.contains_key(rank);
    let (there, gone): (Vec<Rank>, Vec<Rank>) = ranks.into_iter().partition(is_there);
    modex.seek(Instant(0), nobody, there);
    let blob = |rank| Blob { rank, status: Status::RankGone, bytes: Bytes::new() };
    modex.answers.entry(nobody).or_default().blobs.extend(gone.into_iter().map(blob));
    modex.take_answers().into_iter().map(|(_, message)| message).collect()
}

/// A message in its frame.
pub fn frame(job: JobId, message: &Between) -> Frame {
    let payload = peer::encode(message).into();
    Frame { kind: Kind::Modex, class: Class::Exchange, stream: 0, job: job.0, arg: 0, payload }
}

impl Job {
    /// A rank here wants what another has committed.
    pub(super) fn want(&mut self, id: u64, rank: Rank, cx: &mut Context<'_>) {
        let place = self.mapping.place(rank).filter(|_| rank.0 < self.job_size);
        match (place, &mut self.pmix) {
            (Some((node, _)), Some(pmix)) if Some(node) != self.node => pmix.modex.want(id, rank, node),
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
                for (ticket, rank) in pmix.modex.seek(cx.now, node, here) {
                    self.tell_server(&ToServer::ModexWanted { ticket, rank }, cx);
                }
                if let Some(pmix) = &mut self.pmix {
                    let blob = |rank| Blob { rank, status: Status::NotFound, bytes: Bytes::new() };
                    pmix.modex.answers.entry(node).or_default().blobs.extend(elsewhere.into_iter().map(blob));
                }
            }
            Between::Have { taken, blobs } => {
                pmix.modex.on_have(node, taken, None);
                for Blob { rank, status, bytes } in blobs {
                    let pmix = self.pmix.as_mut();
                    for id in pmix.map(|pmix| pmix.modex.on_have(node, false, Some(rank))).unwrap_or_default() {
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
        if pmix.modex.on_answer(ticket, status, blob) == Err(Unasked) {
            return self.fail_pmix(format!("it answers by the number {ticket}, which nobody has asked by"), cx);
        }
        self.end_emptied_server(cx);
    }

    /// The server process serves: it is asked for what others have wanted meanwhile.
    pub(super) fn seek_at_last(&mut self, cx: &mut Context<'_>) {
        for (ticket, rank) in self.pmix.as_ref().map(|pmix| pmix.modex.outstanding()).unwrap_or_default() {
            self.tell_server(&ToServer::ModexWanted { ticket, rank }, cx);
        }
    }

    /// There is none any more.
    pub(super) fn seek_no_more(&mut self, now: Instant) {
        if let Some(pmix) = &mut self.pmix {
            pmix.modex.on_unserved(now);
        }
    }

    /// All ranks here have left, and others may still want what they have committed: it is fetched. False: there is nothing.
    pub(super) fn keep_blobs(&mut self, cx: &mut Context<'_>) -> bool {
        let alone = self.processes.len() == self.job_size as usize;
        let all = self.processes.iter().filter(|process| process.spoke_pmix).map(|process| process.rank).collect();
        let Some(pmix) = self.pmix.as_mut().filter(|_| !alone) else { return false };
        let tickets = pmix.modex.keep(cx.now, all);
        let waits = !pmix.modex.keep.is_empty();
        for (ticket, rank) in tickets {
            self.tell_server(&ToServer::ModexWanted { ticket, rank }, cx);
        }
        waits
    }

    pub(super) fn has_kept_all(&self) -> bool {
        self.pmix.as_ref().is_none_or(|pmix| pmix.modex.keep.is_empty())
    }

    /// What the ranks here have left behind.
    pub fn take_remains(&mut self) -> Remains {
        self.pmix.as_mut().map(|pmix| std::mem::take(&mut pmix.modex.kept)).unwrap_or_default()
    }

    pub(in crate::job) fn on_modex_departed(&mut self, rank: Rank, now: Instant) {
        if let Some(pmix) = &mut self.pmix {
            pmix.modex.on_departed(rank, now);
        }
    }

    pub(super) fn check_late_blobs(&mut self, cx: &mut Context<'_>) {
        if let Some(pmix) = &mut self.pmix {
            pmix.modex.take_late(cx.now);
            self.end_emptied_server(cx);
            self.send_modex(cx);
        }
    }

    /// Sends what has come together.
    pub(super) fn send_modex(&mut self, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        let mut frames = pmix.modex.take_answers();
        frames.extend(pmix.modex.take_wants().into_iter().map(|(node, ranks)| (node, Between::Want { ranks })));
        for (node, message) in frames {
            let agent = self.spec.nodes[node.index()].agent;
            cx.links.send_peer(agent, frame(self.spec.job, &message), cx.out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Instant = Instant(1);

    #[test]
    fn requests_for_a_node_are_bundled_and_none_waits_for_another_rank() {
        let mut modex = Modex::default();
        modex.want(1, Rank(5), NodeId(1));
        assert_eq!(modex.take_wants(), [(NodeId(1), vec![Rank(5)])]);
        for (id, rank) in [(2, 6), (3, 7), (4, 5), (5, 6)] {
            modex.want(id, Rank(rank), NodeId(1));
        }
        assert!(modex.take_wants().is_empty(), "one is under way");
        assert!(modex.on_have(NodeId(1), true, None).is_empty());
        assert_eq!(modex.take_wants(), [(NodeId(1), vec![Rank(6), Rank(7)])], "rank 5 has not committed yet");
        assert_eq!(modex.on_have(NodeId(1), false, Some(Rank(6))), [2, 5]);
        assert_eq!(modex.on_have(NodeId(1), false, Some(Rank(5))), [1, 4]);
        assert!(modex.on_have(NodeId(1), false, Some(Rank(5))).is_empty(), "a second answer is none");
        modex.want(6, Rank(6), NodeId(1));
        assert_eq!(modex.on_have(NodeId(1), true, None).len(), 0);
        assert_eq!(modex.take_wants(), [(NodeId(1), vec![Rank(6)])], "asked again: it may have committed since");
    }

    #[test]
    fn a_server_is_asked_once_for_all_nodes() {
        let mut modex = Modex::default();
        assert_eq!(modex.seek(T, NodeId(1), vec![Rank(0)]), [(0, Rank(0))]);
        assert!(modex.seek(T, NodeId(2), vec![Rank(0)]).is_empty());
        let have = |taken, blobs| Between::Have { taken, blobs };
        let taken = modex.take_answers();
        assert_eq!(taken, [(NodeId(1), have(true, vec![])), (NodeId(2), have(true, vec![]))]);
        assert_eq!(modex.on_answer(7, Status::Ok, Bytes::new()), Err(Unasked));
        assert_eq!(modex.on_answer(0, Status::Ok, "x".into()), Ok(()));
        assert_eq!(modex.on_answer(0, Status::Ok, "x".into()), Err(Unasked));
        let blob = Blob { rank: Rank(0), status: Status::Ok, bytes: "x".into() };
        let answers = modex.take_answers();
        assert_eq!(answers, [(NodeId(1), have(false, vec![blob.clone()])), (NodeId(2), have(false, vec![blob]))]);
    }

    #[test]
    fn departed_ranks_are_not_waited_for() {
        let mut modex = Modex::default();
        modex.seek(T, NodeId(1), vec![Rank(0), Rank(1)]);
        modex.take_answers();
        assert_eq!(modex.deadline(), None);
        modex.on_departed(Rank(0), T);
        let due = modex.deadline().unwrap();
        modex.take_late(due);
        let (_, Between::Have { blobs, .. }) = &modex.take_answers()[0] else { panic!() };
        assert_eq!((blobs.len(), blobs[0].rank, blobs[0].status), (1, Rank(0), Status::RankGone));
        assert_eq!(modex.on_answer(0, Status::Ok, "late".into()), Ok(()), "it was asked");
        assert!(modex.take_answers().is_empty());
        assert_eq!(modex.seek(T, NodeId(2), vec![Rank(0)]).len(), 1, "its server may know what it had committed");
        assert!(modex.deadline().is_some());
    }

    #[test]
    fn long_answers_travel_apart() {
        let mut modex = Modex::default();
        let ranks: Vec<Rank> = (0..3).map(Rank).collect();
        for (ticket, _) in modex.seek(T, NodeId(1), ranks) {
            modex.on_answer(ticket, Status::Ok, vec![0; MODEX_BUNDLE_BYTES / 2 + 1].into()).unwrap();
        }
        let taken = |message: &(NodeId, Between)| matches!(message.1, Between::Have { taken: true, .. });
        let frames = modex.take_answers();
        assert_eq!((frames.len(), frames.iter().filter(|frame| taken(frame)).count()), (3, 1));
    }
}
