//! The memory of one job that its ranks here read, as it is asked for.
//!
//! What is asked for while an input is handled is collected here: memory must be there before a reply names it, and is given up
//! after that reply.

use crate::io::Output;
use crate::job::effect::Effects;
use crate::memory::{Array, Content, ShareId};
use wireup_wire::ids::JobId;

pub struct Shares {
    job: JobId,
    next: u32,
    /// Memory to be made or written, in order.
    made: Vec<Output>,
    dropped: Vec<ShareId>,
}

impl Shares {
    pub fn new(job: JobId) -> Self {
        Shares { job, next: 0, made: Vec::new(), dropped: Vec::new() }
    }

    /// Asks for memory.
    pub fn make(&mut self, content: Content) -> ShareId {
        let share = ShareId(self.next);
        self.next += 1;
        self.made.push(Output::Share { job: self.job, share, content });
        share
    }

    /// Writes into memory that is known to be there.
    pub fn write(&mut self, share: ShareId, slot: u32, array: Array) {
        self.made.push(Output::WriteSlot { job: self.job, share, slot, array });
    }

    /// Gives memory up; ranks that have it keep it.
    pub fn give_up(&mut self, share: ShareId) {
        self.dropped.push(share);
    }

    /// What was asked for and is not put out yet.
    #[cfg(test)]
    pub fn content(&self, id: ShareId) -> &Content {
        let content = self.made.iter().find_map(|output| match output {
            Output::Share { share, content, .. } if *share == id => Some(content),
            _ => None,
        });
        content.expect("it was asked for")
    }

    /// To be called before the replies that name what was asked for.
    pub fn put_made(&mut self, out: &mut Effects) {
        self.made.drain(..).for_each(|output| out.output(output));
    }

    /// To be called after the replies that may name what is given up.
    pub fn put_dropped(&mut self, out: &mut Effects) {
        let job = self.job;
        self.dropped.drain(..).for_each(|share| out.output(Output::Unshare { job, share }));
    }
}
