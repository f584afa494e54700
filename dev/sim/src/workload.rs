//! The work of the ranks: scripts, the keys and values that ranks put, the lines that ranks write.
//!
//! Everything that a rank puts or writes is a function of its rank and a counter, so that a reader can check it without
//! storing it.

pub use crate::client::Speaks;
pub use crate::contributions::Lens;
use crate::phases::Point;
use crate::rank_network::Call;
use crate::rng::{Rng, mix};
pub use crate::store_clients::StoreStep;
use std::rc::Rc;
pub use wireup_wire::pmi::Dialect;

/// The steps of one program, the same for all of its ranks.
#[derive(Clone, Debug)]
pub struct Script {
    pub speaks: Speaks,
    pub on_signal: Disposition,
    pub steps: Rc<[Step]>,
}

/// Reaction of a rank to a signal that would kill it, except for `SIGKILL`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disposition {
    /// The signal kills the rank.
    Default,
    /// The rank catches the signal, cleans up for a while, and exits with code `code`.
    Handler {
        after_ns: u64,
        code: u8,
    },
    Ignore,
}

/// One step of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Init,
    /// Puts this rank's pair number `pair`, with a value of `value_bytes`.
    Put {
        pair: u16,
        value_bytes: u16,
    },
    /// Puts a pair whose key is `name` followed by the rank's number.
    PutAs {
        name: &'static str,
        value_bytes: u16,
    },
    Fence,
    /// Exchanges values with both neighbours in a ring of all ranks.
    Ring {
        value_bytes: u16,
    },
    /// Waits in the barrier of a group that contains the rank.
    Barrier(BarrierGroup),
    /// Starts a fence and continues. This step and the next three are only for clients that use wireup's own protocol.
    StartFence,
    /// Starts an allgather and continues; `shared`: whether the result is requested as rows in shared memory.
    StartAllgather {
        lens: Lens,
        shared: bool,
    },
    /// Waits until collectives that were started are complete.
    Wait(Which),
    /// Exchanges values with the members of a group that contains the rank, and waits for them. This step and the next
    /// two are only for clients that use wireup's own protocol.
    Gather {
        who: Who,
        value_bytes: u16,
    },
    /// Reports an address of this many letters, at which the rank is reached.
    SetAddress {
        bytes: u16,
    },
    /// Asks for the addresses of other ranks, one after the other, and waits until each has reported its address.
    GetAddress {
        bytes: u16,
        whose: Whose,
    },
    /// Looks up pair number `pair` of other ranks in mapped memory, and expects the value that they put.
    LookUp {
        pair: u16,
        value_bytes: u16,
        whose: Whose,
    },
    /// Gets pair number `pair` of other ranks, one after the other, and expects the value that they put.
    Get {
        pair: u16,
        value_bytes: u16,
        whose: Whose,
    },
    /// Gets a key that was never put.
    GetMissing,
    /// Writes whole lines to standard output (1) or error (2), waiting while the pipe is full.
    Write {
        stream: u8,
        lines: u32,
        line_bytes: u16,
    },
    /// Reads standard input to its end.
    ReadStdin,
    /// Reads standard input until the rank has read at least `bytes` bytes in all.
    ReadStdinTo {
        bytes: u64,
    },
    /// Waits for this time, without using a processor.
    Compute {
        ns: u64,
    },
    /// Uses a processor of the host for this time, as soon as one is free.
    Spin {
        ns: u64,
    },
    /// Reads files from the server that all nodes share: it serves `requests` requests one after the other, each in
    /// `request_ns`.
    Load {
        requests: u32,
        request_ns: u64,
    },
    /// A step in the network that ranks make among themselves.
    Group(GroupStep),
    /// A step in a job with PMIx.
    Pmix(PmixStep),
    /// A request to PyTorch's store, in a job that has one.
    Store(StoreStep),
    Finalize,
    Abort {
        code: u8,
    },
    /// Sends bytes that are not PMI, then waits until the rank is ended.
    SendGarbage,
    /// Sends half of a request, then closes the PMI socket.
    HalfRequest,
    /// Closes the PMI socket without finalizing.
    CloseClient,
    Exit {
        code: u8,
    },
    Die {
        signal: u8,
    },
    /// Does nothing more until the rank is killed.
    Hang,
    /// Records that the rank has reached this point; takes no time.
    Reach(Point),
    /// The next step is done only by this rank; the other ranks skip it.
    OnlyRank {
        rank: u32,
    },
}

/// A step in the network that ranks make among themselves. All ranks do these steps, in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupStep {
    /// Builds the graph of all ranks in the order of the ring, from the neighbours that the last `Step::Ring` has
    /// returned.
    Form,
    /// Builds the graph of all ranks in the order of ranks, from the neighbours' addresses that the rank has got
    /// through PMI.
    FormByRank,
    /// Replaces the group of all ranks by a group with the same members in the order of ranks, made by a split.
    Order,
    /// Splits the group of all ranks by node.
    Node,
    /// Splits the group of all ranks by local rank: the first ranks of all nodes are one group.
    Leaders,
    /// Sends an empty message to each of this many other ranks, one after the other, and receives as many messages.
    Talk(u32),
    /// A collective in the group of all ranks.
    Collective(Call),
}

/// A step of a PMIx client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PmixStep {
    Init,
    /// Commits data of this many bytes, but of at least those that identify it.
    Commit {
        bytes: u32,
    },
    Fence {
        who: Who,
        collect: bool,
        timeout_s: Option<u32>,
    },
    /// `key`: the key that the data must contain; `None`: whatever the ranks have committed.
    Get {
        whose: Whose,
        key: Option<&'static str>,
    },
    Group {
        who: Who,
        tag: u8,
        timeout_s: Option<u32>,
    },
    Publish,
    /// Waits up to a second for the value that a rank publishes.
    LookUp {
        whose: Whose,
    },
    Procs,
    Watch,
    Abort {
        code: u8,
    },
    Finalize,
}

/// A group of ranks, described relative to one of its members, and a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarrierGroup {
    pub who: Who,
    pub tag: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    World,
    Node,
    /// All ranks with the same remainder, divided by this number, as the caller.
    Alike(u16),
}

/// Which of the started collectives a rank waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    Oldest,
    Newest,
    Random,
    All,
}

/// The ranks whose pairs are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    Rank(u32),
    /// The neighbours on both sides of the reading rank, in a ring of all ranks.
    Neighbours,
    /// This many ranks, chosen at random.
    Random(u16),
    All,
}

impl Whose {
    /// The `nth` rank to read from; `None` if there are fewer.
    pub fn nth(self, me: u32, size: u32, nth: u32, rng: &mut Rng) -> Option<u32> {
        match self {
            Whose::Rank(rank) => (nth == 0).then_some(rank),
            Whose::Neighbours => [(me + size - 1) % size, (me + 1) % size].get(nth as usize).copied(),
            Whose::Random(count) => (nth < u32::from(count)).then(|| rng.below(u64::from(size)) as u32),
            Whose::All => (nth < size).then_some(nth),
        }
    }
}

impl Default for Script {
    /// A script without steps.
    fn default() -> Self {
        Script::plain(&[])
    }
}

impl Script {
    pub fn new(dialect: Dialect, steps: &[Step]) -> Self {
        Script { speaks: Speaks::Text(dialect), on_signal: Disposition::Default, steps: steps.into() }
    }

    /// A program that is linked with wireup's own library.
    pub fn own(steps: &[Step]) -> Self {
        Script { speaks: Speaks::Own, ..Script::new(Dialect::Pmi2, steps) }
    }

    /// Put, fence, get from both neighbours and some others, finalize: the exchange at an MPI start.
    pub fn exchange(dialect: Dialect, value_bytes: u16, gets: u16) -> Self {
        let pair = 0;
        Script::new(
            dialect,
            &[
                Step::Init,
                Step::Put { pair, value_bytes },
                Step::Fence,
                Step::Get { pair, value_bytes, whose: Whose::Neighbours },
                Step::Get { pair, value_bytes, whose: Whose::Random(gets) },
                Step::Finalize,
                Step::Exit { code: 0 },
            ],
        )
    }

    /// A program that does not use PMI.
    pub fn plain(steps: &[Step]) -> Self {
        Script::new(Dialect::Pmi1, steps)
    }

    pub fn with_disposition(mut self, on_signal: Disposition) -> Self {
        self.on_signal = on_signal;
        self
    }
}

/// Number that no pair of a script has: the address of a rank is the value of this pair.
pub const ADDRESS_PAIR: u16 = u16::MAX;

/// The key of a rank's pair.
pub fn key(rank: u32, pair: u16) -> String {
    format!("card-{pair}-{rank}")
}

/// The value of a rank's pair: letters and digits.
pub fn value(seed: u64, rank: u32, pair: u16, value_bytes: u16) -> String {
    const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    let mut state = mix(seed ^ (u64::from(rank) << 16 | u64::from(pair)));
    let mut text = String::with_capacity(usize::from(value_bytes) + 10);
    while text.len() < usize::from(value_bytes) {
        for shift in 0..10 {
            text.push(char::from(LETTERS[(state >> (6 * shift)) as usize % 64]));
        }
        state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
    }
    text.truncate(usize::from(value_bytes));
    text
}

/// Appends one line of a rank's output, including its newline. `id`: the rank's number among the ranks of all jobs;
/// `number`: the number of the line in its stream.
pub fn line(stream: u8, id: u32, number: u32, line_bytes: u16, into: &mut Vec<u8>) {
    use std::io::Write;
    let start = into.len();
    // Writing into a vector cannot fail.
    let _ = write!(into, "{stream}:{id}:{number}:");
    into.resize((start + usize::from(line_bytes)).max(into.len() + 1) - 1, b'.');
    into.push(b'\n');
}

/// The stream, the rank's number and the line's number in a line; `None` if no rank writes such a line.
pub fn parse_line(line: &[u8]) -> Option<(u8, u32, u32)> {
    let text = std::str::from_utf8(line).ok()?;
    let mut fields = text.splitn(4, ':');
    let parsed = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    fields.next()?.bytes().all(|byte| byte == b'.').then_some(parsed)
}

/// Byte `at` (modulo 2^32) of the standard input of a job's launcher.
pub fn stdin_byte(job: u32, at: u32) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16) ^ job) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_wrote_it() {
        for line_bytes in [0, 5, 12, 80] {
            let mut bytes = Vec::new();
            line(2, 31, 7, line_bytes, &mut bytes);
            assert_eq!(bytes.len(), usize::from(line_bytes).max(8));
            assert_eq!(bytes.pop(), Some(b'\n'));
            assert_eq!(parse_line(&bytes), Some((2, 31, 7)));
        }
        assert_eq!(parse_line(b"2:31:7:..x"), None);
        assert_eq!(parse_line(b"2:31"), None);
    }

    #[test]
    fn values_have_their_length_and_differ() {
        assert_eq!(value(1, 2, 0, 33).len(), 33);
        assert_ne!(value(1, 2, 0, 33), value(1, 3, 0, 33));
        assert_ne!(value(1, 2, 0, 33), value(1, 2, 1, 33));
    }

    #[test]
    fn neighbours_go_around() {
        let mut rng = Rng::new(1);
        let mut ask = |me, nth| Whose::Neighbours.nth(me, 4, nth, &mut rng);
        assert_eq!([ask(0, 0), ask(0, 1), ask(0, 2), ask(3, 1)], [Some(3), Some(1), None, Some(0)]);
    }
}
