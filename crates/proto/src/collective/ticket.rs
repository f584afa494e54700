//! How a rank's collective is answered when it is over: chosen by whoever starts it, handed back by whoever carries it out.

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ticket {
    /// A text client's fence, with its `thrid`.
    Fence { thread: Option<Vec<u8>> },
    /// Answered already.
    Lazy,
    /// Its node's PMIx server, which has entered for it, is answered.
    Server,
    /// A text client's ring.
    Ring { thread: Option<Vec<u8>> },
    /// Our own client's fence.
    OwnFence { id: u32 },
    /// Our own client's allgather.
    Allgather { id: u32 },
}
