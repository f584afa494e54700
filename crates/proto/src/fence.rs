//! One job's fences on one node: who has entered, who has left for good, when the wait became long.
//!
//! The data moves by `coll`'s tree allgather; this file counts the node's own ranks into it. A rank that has
//! departed (exited or finalized) makes every later fence impossible: whoever sees both a departure and somebody
//! waiting for that fence says so, so that no job hangs on a rank that will never come.

use crate::time::Instant;
use bytes::Bytes;
use wireup_coll::allgather::tree::{Refused, Step, TreeAllgather};
use wireup_wire::ids::{Epoch, LocalRank};
use wireup_wire::peer::{Departed, FenceTrace};

pub struct Fence {
    gather: TreeAllgather,
    local_size: u32,
    /// Local ranks inside the fence under way, in the order of their coming, and the same by rank.
    inside: Vec<LocalRank>,
    is_inside: Vec<bool>,
    entered: Option<Instant>,
    departed: Option<Departed>,
    deserter_known: bool,
    asked: Option<Epoch>,
    pub trace: FenceTrace,
}

impl Fence {
    pub fn new(local_size: u32, children: usize) -> Self {
        Fence {
            gather: TreeAllgather::new(children),
            local_size,
            inside: Vec::new(),
            is_inside: vec![false; local_size as usize],
            entered: None,
            departed: None,
            deserter_known: false,
            asked: None,
            trace: FenceTrace::default(),
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.gather.epoch()
    }

    /// How many local ranks are inside.
    pub fn arrived(&self) -> u32 {
        self.inside.len() as u32
    }

    pub fn is_inside(&self, local: LocalRank) -> bool {
        self.is_inside[local.index()]
    }

    /// A local rank enters. `pending` gives the node's pairs when it is the last one.
    pub fn on_enter(
        &mut self,
        now: Instant,
        local: LocalRank,
        pending: impl FnOnce() -> Bytes,
    ) -> Result<Step, Refused> {
        if std::mem::replace(&mut self.is_inside[local.index()], true) {
            return Err(Refused::Twice);
        }
        if self.inside.is_empty() {
            self.trace.first_in_ns = now.0;
        }
        self.inside.push(local);
        self.entered.get_or_insert(now);
        if (self.inside.len() as u32) < self.local_size {
            return Ok(Step::Wait);
        }
        let blob = pending();
        self.trace.last_in_ns = now.0;
        self.trace.bytes_up = blob.len() as u64;
        self.gather.contribute_own(blob)
    }

    /// The blob of a child's subtree.
    pub fn on_child(&mut self, now: Instant, child: usize, epoch: Epoch, blob: Bytes) -> Result<Step, Refused> {
        self.entered.get_or_insert(now);
        let step = self.gather.contribute_child(child, epoch, blob)?;
        if self.local_size == 0 && step == Step::Wait {
            // A node without ranks of this job has nothing to wait for but its children.
            return match self.gather.contribute_own(Bytes::new()) {
                Ok(step) => Ok(step),
                Err(Refused::Twice | Refused::WrongEpoch { .. }) => Ok(Step::Wait),
            };
        }
        Ok(step)
    }

    /// The fence is complete everywhere: the ranks to let go.
    pub fn on_release(&mut self, epoch: Epoch) -> Result<Vec<LocalRank>, Refused> {
        self.gather.release(epoch)?;
        self.entered = None;
        self.is_inside.fill(false);
        Ok(std::mem::take(&mut self.inside))
    }

    /// A rank of the subtree will never enter `departed.epoch`. True if that is the first news of the kind, or the first
    /// of a deserter.
    pub fn on_departed(&mut self, departed: Departed) -> bool {
        let deserter = departed.deserted && !std::mem::replace(&mut self.deserter_known, departed.deserted);
        let first = self.departed.is_none() || deserter;
        if self.departed.is_none_or(|known| departed.epoch < known.epoch) {
            self.departed = Some(departed);
        }
        first
    }

    /// The departure that makes the fence under way impossible, if somebody waits for it.
    pub fn broken(&self) -> Option<Departed> {
        self.departed.filter(|departed| self.entered.is_some() && departed.epoch <= self.gather.epoch())
    }

    /// When a wait of `after_ns` is over; `None` if nobody waits or the question was asked.
    pub fn stall_deadline(&self, after_ns: u64) -> Option<Instant> {
        let entered = self.entered?;
        (after_ns > 0 && self.asked != Some(self.epoch())).then(|| entered + after_ns)
    }

    /// The question who is missing was asked for the fence under way.
    pub fn on_asked(&mut self) {
        self.asked = Some(self.epoch());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::{NodeId, Rank};

    fn left(epoch: u32) -> Departed {
        Departed {
            rank: Rank(1),
            pid: 7,
            node: NodeId(0),
            epoch: Epoch(epoch),
            finalized: false,
            deserted: false,
            exit: Some(0),
        }
    }

    #[test]
    fn the_last_rank_completes_a_lonely_node() {
        let mut fence = Fence::new(2, 0);
        let blob = Bytes::from_static(b"pairs");
        assert_eq!(fence.on_enter(Instant(1), LocalRank(1), || blob.clone()), Ok(Step::Wait));
        assert_eq!(fence.on_enter(Instant(2), LocalRank(1), || blob.clone()), Err(Refused::Twice));
        assert_eq!(fence.on_enter(Instant(3), LocalRank(0), || blob.clone()), Ok(Step::Complete(blob)));
        assert_eq!(fence.on_release(Epoch(0)), Ok(vec![LocalRank(1), LocalRank(0)]));
        assert_eq!(fence.on_release(Epoch(0)), Err(Refused::WrongEpoch { expected: Epoch(1) }));
    }

    #[test]
    fn a_departure_breaks_only_fences_that_it_misses() {
        let mut fence = Fence::new(2, 0);
        assert!(fence.on_departed(left(1)));
        assert_eq!(fence.on_enter(Instant(1), LocalRank(0), Bytes::new), Ok(Step::Wait));
        assert_eq!(fence.broken(), None, "the rank had entered fence 0 before it left");
        assert!(!fence.on_departed(left(0)));
        assert_eq!(fence.broken(), Some(left(0)));
    }

    #[test]
    fn a_node_without_ranks_passes_its_child_on() {
        let mut fence = Fence::new(0, 1);
        let blob = Bytes::from_static(b"b");
        assert_eq!(fence.on_child(Instant(1), 0, Epoch(0), blob.clone()), Ok(Step::Complete(blob)));
    }
}
