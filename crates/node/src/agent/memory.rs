//! Makes and keeps sealed memory that the agent's ranks map, each piece identified by its descriptor.
//!
//! Memory is made and written here on request of the state machine, and kept under its number as long as the machine
//! may refer to it. A queued reply keeps the descriptors that it sends open by itself.

use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use wireup_os::shm::{ArenaMemory, ShmError, sealed_memory};
use wireup_proto::io::{Input, JobEvent};
use wireup_proto::memory::{Array, Content, ShareId};
use wireup_wire::ids::JobId;

/// Name of the memory files, as shown in `/proc/*/fd`.
const NAME: &str = "wireup";

/// The memory of all jobs on this node.
#[derive(Default)]
pub struct RankMemory(BTreeMap<JobId, JobMemory>);

#[derive(Default)]
struct JobMemory {
    pieces: BTreeMap<ShareId, Piece>,
    /// Whether writing a slot has failed. Then no reply is sent any more, since ranks could read old data in the slot.
    is_stale: bool,
}

enum Piece {
    /// Memory that is written once.
    Sealed(Shared),
    Arena(Arena),
}

/// Memory with slots that this agent writes repeatedly, mapped by its ranks.
struct Arena {
    memory: ArenaMemory,
    slot_len: usize,
    shared: Shared,
}

/// A descriptor that is sent with a reply: that of one piece of memory, or a socket, which is closed once it is sent.
pub type Shared = Rc<OwnedFd>;

impl RankMemory {
    /// Makes the memory `share` with this content. Returns the input that reports a failure, or that an arena was made.
    pub fn share(&mut self, job: JobId, share: ShareId, content: &Content) -> Option<Input> {
        match Piece::new(content) {
            Err(error) => Some(failed(job, share, content.byte_len(), &error)),
            Ok(piece) => {
                let is_arena = matches!(piece, Piece::Arena(_));
                self.0.entry(job).or_default().pieces.insert(share, piece);
                is_arena.then_some(Input::Job { job, event: JobEvent::Shared { share, result: Ok(()) } })
            }
        }
    }

    /// Writes an array into a slot of an arena. Returns an input if that fails.
    ///
    /// # Panics
    /// There is no such arena: the state machine knows which arenas exist.
    pub fn write(&mut self, job: JobId, share: ShareId, slot: u32, array: &Array) -> Option<Input> {
        let memory = self.0.entry(job).or_default();
        let Some(Piece::Arena(arena)) = memory.pieces.get_mut(&share) else {
            panic!("the state machine may write only to an arena that exists");
        };
        let error = arena.write(slot, array).err()?;
        memory.is_stale = true;
        Some(failed(job, share, array.byte_len(), &error))
    }

    /// Drops a piece of memory.
    pub fn unshare(&mut self, job: JobId, share: ShareId) {
        if let Some(memory) = self.0.get_mut(&job) {
            memory.pieces.remove(&share);
        }
    }

    pub fn forget(&mut self, job: JobId) {
        self.0.remove(&job);
    }

    /// The memory to send with a reply. `None`: the reply must not be sent, since memory of the job does not exist or
    /// is not up to date.
    pub fn for_reply(&self, job: JobId, shares: &[ShareId]) -> Option<Vec<Shared>> {
        let Some(memory) = self.0.get(&job) else {
            return shares.is_empty().then(Vec::new);
        };
        if memory.is_stale {
            return None;
        }
        shares.iter().map(|share| memory.pieces.get(share).map(Piece::shared).cloned()).collect()
    }
}

impl Piece {
    fn new(content: &Content) -> Result<Piece, ShmError> {
        match content {
            Content::Slots { slot_len } => Arena::new(*slot_len, content.byte_len()).map(Piece::Arena),
            Content::Bytes(_) | Content::Array(_) => {
                let memory = sealed_memory(NAME, content.byte_len(), |out| content.fill(out))?;
                Ok(Piece::Sealed(Rc::new(memory)))
            }
        }
    }

    fn shared(&self) -> &Shared {
        match self {
            Piece::Sealed(shared) => shared,
            Piece::Arena(arena) => &arena.shared,
        }
    }
}

impl Arena {
    fn new(slot_len: usize, len: usize) -> Result<Arena, ShmError> {
        let memory = ArenaMemory::new(NAME, len)?;
        let fd = memory.share().map_err(|error| ShmError { step: "doubling its descriptor", error })?;
        Ok(Arena { memory, slot_len, shared: Rc::new(fd) })
    }

    fn write(&mut self, slot: u32, array: &Array) -> Result<(), ShmError> {
        let out = self.memory.bytes_mut(slot as usize * self.slot_len, array.byte_len())?;
        array.fill(out);
        Ok(())
    }
}

fn failed(job: JobId, share: ShareId, len: usize, error: &ShmError) -> Input {
    let problem = format!("cannot share {len} bytes with the ranks of this node: {error}{}", next_step(error));
    Input::Job { job, event: JobEvent::Shared { share, result: Err(problem) } }
}

/// Advice for the user about memory that could not be made.
fn next_step(error: &ShmError) -> &'static str {
    match Errno::from_io_error(&error.error) {
        Some(Errno::MFILE) => {
            "; raise the hard limit of open files (ulimit -Hn) for wireup run and for its remote shell"
        }
        Some(Errno::NFILE) => "; raise fs.file-max on this node",
        Some(Errno::NOMEM | Errno::NOSPC) => "; give this node, or the cgroup of its agent, more memory",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
