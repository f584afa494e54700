//! How to answer a rank when its collective completes: chosen by the code that enters the collective, returned with its outcome.

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplyTo {
    /// A text client's fence, with its `thrid`.
    Fence { thread: Option<Vec<u8>> },
    /// Already answered.
    Lazy,
    /// The answer goes to the node's PMIx server, which has entered for the rank.
    Server,
    /// A text client's ring.
    Ring { thread: Option<Vec<u8>> },
    /// Our own client's fence.
    OwnFence { id: u32 },
    /// Our own client's allgather.
    Allgather { id: u32 },
}
