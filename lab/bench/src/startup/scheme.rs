//! The schemes by which ranks exchange values: combinations of an operation and the values that ranks then read; and
//! the steps that the benchmark sends to the ranks.
use std::time::Duration;

use Operation::{
    Allgather, AllgatherCopy, Fence, Iallgather, IallgatherCopy, Ifence, Leave, Ring, TextFence, Work as WorkOnly,
};

/// The operations of ranks; their numbers are those in `programs/startup.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    Leave = 0,
    Work,
    TextFence,
    Fence,
    Ifence,
    AllgatherCopy,
    Allgather,
    IallgatherCopy,
    Iallgather,
    Ring,
    /// A fence without a put before it.
    FenceAlone,
    /// This operation and all operations below run in `programs/groups.c`: collectives of ranks, in the group of all
    /// ranks.
    Barrier = 32,
    GroupAllgather,
    GroupAlltoall,
    Allreduce,
    Broadcast,
    Shift,
    Split,
    Locate,
    Talk,
    TalkToAll,
    /// 8 bytes in each direction on a bare connection.
    Bare,
}

/// The ranks whose values each rank reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Gets {
    None = 0,
    Neighbours = 2,
    All = 3,
}

/// A way of doing an exchange: an operation, and the values that are read after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    pub name: &'static str,
    pub operation: Operation,
    pub gets: Gets,
}

const fn scheme(name: &'static str, operation: Operation, gets: Gets) -> Scheme {
    Scheme { name, operation, gets }
}

/// All schemes: the unmodified PMI-2 client with gets by message; wireup's libpmi2 with look-ups in shared memory;
/// allgathers into the caller's buffer, or with two rows read in the shared array; the ring, which gives the two
/// neighbours' values.
pub const SCHEMES: [Scheme; 12] = [
    scheme("text-fence", TextFence, Gets::None),
    scheme("text-get-2", TextFence, Gets::Neighbours),
    scheme("text-get-all", TextFence, Gets::All),
    scheme("fence", Fence, Gets::None),
    scheme("fence-get-2", Fence, Gets::Neighbours),
    scheme("fence-get-all", Fence, Gets::All),
    scheme("ifence", Ifence, Gets::None),
    scheme("allgather-copy", AllgatherCopy, Gets::Neighbours),
    scheme("allgather", Allgather, Gets::Neighbours),
    scheme("iallgather-copy", IallgatherCopy, Gets::Neighbours),
    scheme("iallgather", Iallgather, Gets::Neighbours),
    scheme("ring", Ring, Gets::None),
];

/// Maximum number of ranks for gets by message of all values by all ranks: in larger jobs such gets only take long
/// (chosen).
const TEXT_GETS_RANKS_MAX: u32 = 1024;
/// Maximum number of ranks for look-ups of all values by all ranks, about 0.2 us each: 17 million look-ups (chosen).
const LOOK_UPS_RANKS_MAX: u32 = 4096;
/// Maximum memory of all copies of an allgather's result together (bytes; chosen).
const COPIES_BYTES_MAX: u64 = 4 << 30;
/// Maximum number of rounds of a step that takes seconds (chosen).
const LONG_ROUNDS_MAX: u32 = 3;

/// The scheme of this name, which must exist.
pub fn named(name: &str) -> Scheme {
    let found = SCHEMES.into_iter().find(|scheme| scheme.name == name);
    found.unwrap_or_else(|| panic!("{name} is not in the table of schemes"))
}

impl Scheme {
    /// Whether the scheme can be run with this many ranks and values of this length.
    pub fn fits(self, job_size: u32, value_len: u32) -> bool {
        let all = u64::from(job_size) * u64::from(job_size);
        match (self.operation, self.gets) {
            (TextFence, Gets::All) => job_size <= TEXT_GETS_RANKS_MAX,
            (Fence, Gets::All) => job_size <= LOOK_UPS_RANKS_MAX,
            (AllgatherCopy | IallgatherCopy, _) => all * u64::from(value_len) <= COPIES_BYTES_MAX,
            _ => true,
        }
    }

    /// Whether a step of the scheme takes seconds, since every node indexes all pairs: such a step is run in a few
    /// rounds only, once in each.
    pub fn is_long(self, job_size: u32) -> bool {
        let least = match self.gets {
            Gets::None => u32::MAX,
            Gets::Neighbours => 4096,
            Gets::All => 512,
        };
        matches!(self.operation, TextFence | Fence) && job_size >= least
    }

    /// Number of measured rounds, unless the user has chosen it: a step of a large job takes a second, a step of a
    /// small job a millisecond.
    pub fn rounds(self, job_size: u32, chosen: Option<u32>) -> u32 {
        let rounds = chosen.unwrap_or_else(|| default_rounds(job_size));
        if self.is_long(job_size) { rounds.min(LONG_ROUNDS_MAX) } else { rounds }
    }
}

pub fn default_rounds(job_size: u32) -> u32 {
    match job_size {
        ..=256 => 21,
        257..=1024 => 11,
        1025..=4096 => 7,
        _ => 5,
    }
}

/// The work of a rank besides the exchange: before a blocking exchange, or between start and wait of a non-blocking
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    None,
    Sleep(Duration),
    /// Work that takes this much CPU time, not wall time.
    Spin(Duration),
}

/// The lengths of keys and values (bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    pub value: u32,
    /// Length of keys; 0: the key is the rank as a decimal number.
    pub key: u32,
}

/// The next step that all ranks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub operation: Operation,
    pub gets: Gets,
    pub work: Work,
    pub lengths: Lengths,
    /// Number of times that the step is repeated without a pause; times are those of one repetition.
    pub repeat: u32,
}

impl Step {
    /// A step with an operation that has no gets and no work.
    pub fn of(operation: Operation, lengths: Lengths) -> Step {
        Step { operation, gets: Gets::None, work: Work::None, lengths, repeat: 1 }
    }

    pub fn exchange(scheme: Scheme, lengths: Lengths) -> Step {
        Step { gets: scheme.gets, ..Step::of(scheme.operation, lengths) }
    }

    pub fn work_alone(work: Work, lengths: Lengths) -> Step {
        Step::of(WorkOnly, lengths).with_work(work)
    }

    pub fn leave() -> Step {
        Step::of(Leave, Lengths { value: 8, key: 0 })
    }

    pub fn with_work(self, work: Work) -> Step {
        Step { work, ..self }
    }

    pub fn repeated(self, repeat: u32) -> Step {
        Step { repeat, ..self }
    }

    /// The step as bytes 24 to 60 of the board; the salt makes the values differ from step to step.
    pub fn encode(&self, salt: u32) -> Vec<u8> {
        let (work_kind, time) = match self.work {
            Work::None => (0, Duration::ZERO),
            Work::Sleep(time) => (1, time),
            Work::Spin(time) => (2, time),
        };
        let Lengths { value, key } = self.lengths;
        let words = [self.operation as u32, self.gets as u32, work_kind, value, key, salt].map(u32::to_ne_bytes);
        [words.as_flattened(), &(time.as_nanos() as u64).to_ne_bytes(), &self.repeat.to_ne_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_with_quadratic_cost_are_limited_in_size() {
        let most = |name: &str| {
            let sizes = [16, 1024, 4096, 8192, 16384];
            sizes.into_iter().filter(|size| named(name).fits(*size, 18)).max()
        };
        assert_eq!(most("text-get-all"), Some(1024));
        assert_eq!(most("fence-get-all"), Some(4096));
        assert_eq!(most("allgather-copy"), Some(8192), "16,384 x 16,384 x 18 bytes are 4.5 GiB");
        assert_eq!(most("allgather"), Some(16384));
    }
}
