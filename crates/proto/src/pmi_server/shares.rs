//! Collects requests for memory of one job that its local ranks read.
//!
//! The requests made while an input is handled are collected here: memory must exist before a reply names it, and is
//! released after that reply.

use crate::io::Output;
use crate::job::cx::Cx;
use crate::memory::{Array, Content, ShareId};
use wireup_wire::ids::JobId;

pub struct Shares {
    job: JobId,
    next: u32,
    /// Memory to be created or written, in order.
    made: Vec<Output>,
    dropped: Vec<ShareId>,
}

impl Shares {
    pub fn new(job: JobId) -> Self {
        Shares { job, next: 0, made: Vec::new(), dropped: Vec::new() }
    }

    /// Requests memory.
    pub fn make(&mut self, content: Content) -> ShareId {
        let share = ShareId(self.next);
        self.next += 1;
        self.made.push(Output::Share { job: self.job, share, content });
        share
    }

    /// Writes into memory that is known to exist.
    pub fn write(&mut self, share: ShareId, slot: u32, array: Array) {
        self.made.push(Output::WriteSlot { job: self.job, share, slot, array });
    }

    /// Releases memory; ranks that have mapped it keep it.
    pub fn give_up(&mut self, share: ShareId) {
        self.dropped.push(share);
    }

    /// The contents of requested memory that was not output yet.
    #[cfg(test)]
    pub fn content(&self, id: ShareId) -> &Content {
        let content = self.made.iter().find_map(|output| match output {
            Output::Share { share, content, .. } if *share == id => Some(content),
            _ => None,
        });
        content.expect("it was requested")
    }

    /// Must be called before the replies that name the requested memory.
    pub fn put_made(&mut self, cx: &mut Cx<'_>) {
        self.made.drain(..).for_each(|output| cx.output(output));
    }

    /// Must be called after the replies that may name the released memory.
    pub fn put_dropped(&mut self, cx: &mut Cx<'_>) {
        let job = self.job;
        self.dropped.drain(..).for_each(|share| cx.output(Output::Unshare { job, share }));
    }
}
