//! The fence that every server has: one at a time, begun now and ended later.

use super::{Failure, Server};
use wireup_wire::pmi::Request;

pub(super) enum Fence {
    Idle,
    UnderWay,
    Over(Result<(), Failure>),
}

impl Server {
    /// Sends what was asked, and a fence behind it. Refusals of puts that were posted before it count as the fence's.
    pub fn send_fence(&mut self) -> Result<(), Failure> {
        self.send_barrier(None)
    }

    /// As [`Server::send_fence`], among some ranks only (PMI 1.2).
    pub fn send_barrier(&mut self, group: Option<&[u8]>) -> Result<(), Failure> {
        self.ask(&Request::Barrier { group })?;
        self.fence = Fence::UnderWay;
        self.flush()
    }

    /// Waits for the end of a fence that is under way; how it ended is still to be asked for.
    pub(super) fn settle_fence(&mut self) {
        if let Fence::UnderWay = self.fence
            && let Some(result) = self.end_fence(true)
        {
            self.fence = Fence::Over(result);
        }
    }

    /// Whether the fence is over, and how; waits for that if `wait`.
    pub fn end_fence(&mut self, wait: bool) -> Option<Result<(), Failure>> {
        loop {
            if let Fence::Over(result) = self.fence {
                self.fence = Fence::Idle;
                let refused = self.posts.take_refusal(self.posts.sent());
                return Some(if refused { result.and(Err(Failure::Refused)) } else { result });
            }
            match self.advance(wait) {
                Ok(false) => return None,
                Ok(true) => {}
                Err(failure) => self.fence = Fence::Over(Err(failure)),
            }
        }
    }
}
