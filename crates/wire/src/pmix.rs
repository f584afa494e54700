//! Messages between an agent and its PMIx server process: plain structs, encoded by `postcard`, each preceded by its
//! length.
//!
//! Each job with PMIx has one server process per node. It loads the PMIx library and knows nothing of other nodes. For
//! everything that concerns them it sends a numbered request to its agent, which answers with the same number:
//!
//! ```text
//!   agent                                server process                    ranks (libpmix clients)
//!     ── Open ──────────────────────────►  (only if it is started before its job is known) open the library
//!     ◄──────────────────────── Opened ──
//!     ── Begin ─────────────────────────►  open the library
//!     ── Endpoints ─────────────────────►  (only if the ranks have listening sockets)
//!                                          register, set up
//!     ◄───────────────────────── Ready ──
//!     (spawns the ranks)                   ◄────────────── connect, put, commit, fence, get ──
//!     ◄─────────────── Ask { id, Fence } ──
//!     ── Answer { id, … } ──────────────►  ────────────────────────────────────────────────►
//!     ── ModexWanted { request, … } ────►  (requested by a rank of another node)
//!     ◄───── Modex { request, blob } ──
//!     ── AreYouAlive ───────────────────►  (now and then) passed to the library's thread
//!     ◄───────────────────────── Alive ──
//!     ── End ───────────────────────────►  deregister, finalize, exit
//! ```
//!
//! ```text
//! +----------+--------+--------------------------------+
//! | len      | struct | blocks                         |   len: of struct and blocks (u32, little-endian)
//! +----------+--------+--------------------------------+
//! ```
//!
//! Only the outcome of a fence has blocks, those of the nodes as transferred ([`crate::block`]): an agent forwards
//! them, its server process unpacks them.
//!
//! Blobs are packed by the library; agents forward them without inspecting them.

use crate::block;
use crate::ids::{AgentId, NodeId, Rank};
use crate::inter_job::{Fetch, Joint, Parent};
use crate::job::Block;
use crate::names;
use crate::peer::{PeerError, PmixProblem, decode_front, encode};
pub use crate::pmix_types::{App, Set, Status, Wanted};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

/// Longest message between an agent and its server process: a fence's outcome with the length of a frame, plus a
/// margin.
pub const MESSAGE_LEN_MAX: usize = crate::limits::FRAME_PAYLOAD_MAX + (1 << 20);

/// What a server process needs to open the library.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Open {
    /// The directory; `library`: the library to open. Both as in [`Begin`].
    pub dir: String,
    pub library: Option<String>,
    /// The name of this node.
    pub host: String,
}

/// Everything that a server process needs to know about its job. O(nodes + programs + local ranks).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Begin {
    pub nspace: String,
    /// Name of each node of the job; the position is the `NodeId`.
    pub nodes: Vec<String>,
    /// The number of this node.
    pub node: NodeId,
    pub blocks: Vec<Block>,
    /// Programs in rank order.
    pub apps: Vec<App>,
    /// The CPUs of each local rank, in local order, as a list such as `0-3,8`; `None`: not bound.
    pub cpus: Vec<Option<String>>,
    /// A directory for this job on this node (mode 0700, already created), for sockets and shared memory.
    pub dir: String,
    /// The library to open; tried before the usual locations.
    pub library: Option<String>,
    /// Whether other nodes of the job share this machine.
    pub shared: bool,
    /// Whether there are more ranks on this machine than CPUs.
    pub oversubscribed: bool,
    /// Whether the ranks have listening sockets: the message `Endpoints` then follows, and is part of the job's data.
    pub has_endpoints: bool,
    /// The agent of this node.
    pub agent: AgentId,
    /// How many ranks there may be in the run, if that is known.
    pub universe: Option<u32>,
    /// The rank that has asked for the job.
    pub parent: Option<Parent>,
}

/// A message from an agent to its server process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToServer {
    /// The first message, or the one after `Open`, which has then contained the same directory, library and node name.
    Begin(Begin),
    /// The second message, sent if `has_endpoints` is set in `Begin`.
    Endpoints {
        /// For each node the address of its first rank ([`crate::rank_address`]), whose port is the lowest of its
        /// ranks; empty: no ranks.
        rows: Vec<Bytes>,
    },
    /// The answer to the server's request of this number.
    Answer { id: u64, answer: Answer },
    /// A rank of another node requests what a local rank has committed.
    ModexWanted { request: u64, wanted: Wanted },
    /// An event for the local ranks that have registered for `code`; `to`: only for these ranks, `None`: for all of
    /// them. `from` is the rank that raised the event, `None`: an agent. The library has already delivered an event
    /// raised by a local rank to the other local ranks, so the server process ignores it.
    Event { code: Event, from: Option<Rank>, affected: Option<Rank>, to: Option<Vec<Rank>>, infos: Bytes },
    /// A local rank has ended (possibly without finalizing).
    Gone { rank: Rank },
    /// Another job, whose data an answer contained, has ended.
    Forget { nspace: String },
    /// The last message: clean up and exit.
    End,
    /// The first message to a process whose job is not known yet: open the library.
    Open(Open),
    /// The library's thread is to answer with [`FromServer::Alive`].
    AreYouAlive,
}

/// The subject of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// A rank has died or exited without finalizing.
    ProcAborted,
    /// An event that a rank has raised, by the library's code for it.
    Library(i32),
}

/// A message from a server process to its agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromServer {
    /// Ranks may be started.
    Ready {
        version: String,
        /// Additional variables (`NAME=VALUE`) of each local rank, in local order.
        env: Vec<Vec<Vec<u8>>>,
        /// Variables (`NAME=VALUE`) of all ranks that apply where the job itself does not set them.
        defaults: Vec<Vec<u8>>,
    },
    /// This node cannot serve PMIx. The text includes advice.
    Failed { problem: PmixProblem },
    /// A local rank has called init.
    Connected { rank: Rank },
    /// A local rank has called finalize.
    Finalized { rank: Rank },
    /// A rank aborts the job.
    Abort { rank: Rank, code: i32, message: String },
    /// A request, which is answered with the same `id`.
    Ask { id: u64, ask: Ask },
    /// The answer to `ModexWanted`.
    Modex { request: u64, status: Status, blob: Bytes },
    /// A rank raises an event, for the ranks of `to`. Those on this node have already received it through the library.
    Raise { from: Rank, code: Event, affected: Option<Rank>, to: Set, infos: Bytes },
    /// A local rank has registered for events: this node must be informed from now on when ranks of other nodes end.
    /// Sent at most once.
    Watch,
    /// Text from a local rank that is shown like the rank's own output, on stream 1 or 2.
    Log { rank: Rank, stream: u16, text: Vec<u8> },
    /// The answer to `Open`; if the library cannot be opened, the answer is `Failed`.
    Opened,
    /// The answer to `AreYouAlive`.
    Alive,
}

/// A request of a server process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// All local members have entered. `data` is what they have committed, if the fence collects it.
    Fence { set: Set, collect: bool, data: Bytes, timeout_s: Option<u32> },
    /// All local members have entered the construction of a group: a fence with a name.
    Group { name: String, set: Set, wants_context: bool, data: Bytes, timeout_s: Option<u32> },
    /// Requests what a rank on another node has committed.
    Modex(Wanted),
    /// A request to the root about published names, new processes or other jobs.
    Names { from: Rank, ask: names::Ask },
    /// All local members of a collective of several jobs have entered.
    Join { joint: Joint, timeout_s: Option<u32> },
    /// Requests what a rank of another job has committed, or that job's description.
    Fetch(Fetch),
    /// Every rank of the job, or of this node only: its node, pid and state.
    ProcTable { here: bool },
    /// The job's name and its number of ranks.
    Namespaces,
    /// End the job, or send a signal to these ranks.
    Control { from: Rank, set: Set, action: Action },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Action {
    Terminate,
    Kill,
    Signal(i32),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The answer to `Control`, and to any request that failed.
    Status(Status),
    /// The answer to `Fence`: the nodes' data as blocks, after the struct; empty if no node has data.
    Fenced {
        #[serde(skip)]
        blocks: Vec<Bytes>,
    },
    /// The answer to `Group`. The context is the same on all nodes, and unique among the job's groups.
    Grouped { context: u64, data: Vec<Bytes> },
    /// The answer to `Modex`: what the rank has committed.
    Modex { blob: Bytes },
    /// The answer to `Names`, `Join` and `Fetch`.
    Names(names::Answer),
    /// The answer to `ProcTable`: the job's processes.
    ProcTable { procs: Vec<Proc> },
    /// The answer to `Namespaces`: the names and sizes of the jobs.
    Namespaces { names: Vec<(String, u32)> },
}

impl Answer {
    /// The answer to a fence to which only one node contributed data.
    pub fn fenced(data: &[u8]) -> Answer {
        let mut blocks = Vec::new();
        if !data.is_empty() {
            let mut block = Vec::new();
            block::push(&mut block, NodeId(0), false, data);
            blocks.push(block.into());
        }
        Answer::Fenced { blocks }
    }
}

/// A rank as known to the agent of its node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proc {
    pub rank: Rank,
    pub node: NodeId,
    /// The process id; 0: the rank has not started.
    pub pid: u32,
    pub state: ProcState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ProcState {
    Planned,
    Running,
    Connected,
    /// The process has ended, with this exit code unless it was killed.
    Gone(Option<u8>),
}

/// Errors for invalid messages.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum PmixError {
    #[error("a message of {0} bytes, more than the limit of {MESSAGE_LEN_MAX}")]
    TooLong(u32),
    #[error(transparent)]
    Malformed(#[from] PeerError),
}

/// A part of a message of at least this length is sent as it is, not copied after the previous one (chosen: an extra
/// system call costs about as much as copying this many bytes).
const PART_ALONE_LEN: usize = 8 << 10;

/// A message that may be followed by blocks.
pub trait Message: Serialize + DeserializeOwned {
    fn blocks(&self) -> &[Bytes] {
        &[]
    }

    /// Stores the blocks that follow the message; returns `false` if a message of this kind has none.
    fn put_blocks(&mut self, _blocks: Bytes) -> bool {
        false
    }
}

impl Message for FromServer {}

impl Message for ToServer {
    fn blocks(&self) -> &[Bytes] {
        match self {
            ToServer::Answer { answer: Answer::Fenced { blocks }, .. } => blocks,
            _ => &[],
        }
    }

    fn put_blocks(&mut self, bytes: Bytes) -> bool {
        match self {
            ToServer::Answer { answer: Answer::Fenced { blocks }, .. } => *blocks = Vec::from([bytes]),
            _ => return false,
        }
        true
    }
}

/// Encodes a message without blocks, preceded by its length.
///
/// # Panics
/// If the message is longer than [`MESSAGE_LEN_MAX`]: that would be a bug of ours.
pub fn pack<T: Message>(message: &T) -> Bytes {
    debug_assert!(message.blocks().is_empty(), "a message with blocks is sent in pieces");
    pieces(message).swap_remove(0)
}

/// Encodes a message, preceded by its length, in pieces to be sent one after another: large parts are not copied.
///
/// # Panics
/// If the message is longer than [`MESSAGE_LEN_MAX`]: that would be a bug of ours.
pub fn pieces<T: Message>(message: &T) -> Vec<Bytes> {
    let head = encode(message);
    let len = head.len() + message.blocks().iter().map(Bytes::len).sum::<usize>();
    assert!(len <= MESSAGE_LEN_MAX, "a message must be at most as long as a frame");
    let mut piece = BytesMut::with_capacity(4 + head.len());
    piece.put_u32_le(len as u32);
    piece.extend_from_slice(&head);
    let mut pieces = Vec::with_capacity(1);
    for part in message.blocks() {
        if part.len() < PART_ALONE_LEN {
            piece.extend_from_slice(part);
        } else {
            pieces.push(core::mem::take(&mut piece).freeze());
            pieces.push(part.clone());
        }
    }
    pieces.push(piece.freeze());
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Splits a stream into messages.
#[derive(Default)]
pub struct Unpacker {
    buffer: BytesMut,
}

impl Unpacker {
    pub fn push(&mut self, bytes: &[u8]) {
        // Reserves the memory for a long message at once.
        if let Some(Ok(len)) = self.len()
            && len > self.buffer.capacity()
        {
            self.buffer.reserve(len - self.buffer.len());
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Length of the first message, including the four bytes of its length.
    fn len(&self) -> Option<Result<usize, PmixError>> {
        let len = u32::from_le_bytes(self.buffer.get(..4)?.try_into().ok()?);
        Some(if len as usize > MESSAGE_LEN_MAX { Err(PmixError::TooLong(len)) } else { Ok(4 + len as usize) })
    }

    /// The next whole message.
    ///
    /// # Errors
    /// The stream is invalid and cannot be read further.
    #[expect(clippy::should_implement_trait, reason = "one stream holds messages of the type that is asked for")]
    pub fn next<T: Message>(&mut self) -> Result<Option<T>, PmixError> {
        let Some(len) = self.len().transpose()? else { return Ok(None) };
        if self.buffer.len() < len {
            return Ok(None);
        }
        let mut body = self.buffer.split_to(len).freeze();
        body.advance(4);
        let (mut message, rest) = decode_front::<T>(&body)?;
        let blocks = body.slice_ref(rest);
        if !blocks.is_empty() && !message.put_blocks(blocks) {
            return Err(PeerError::Malformed.into());
        }
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn messages() -> Vec<FromServer> {
        vec![
            FromServer::Connected { rank: Rank(7) },
            FromServer::Ask {
                id: 3,
                ask: Ask::Fence { set: Set::All, collect: true, data: Bytes::from_static(b"abc"), timeout_s: None },
            },
            FromServer::Modex { request: 1, status: Status::Library(-46), blob: Bytes::new() },
        ]
    }

    proptest! {
        #[test]
        fn any_split_of_the_stream_gives_the_same_messages(cuts in proptest::collection::vec(1usize..40, 1..60)) {
            let stream: Vec<u8> = messages().iter().flat_map(|message| pack(message).to_vec()).collect();
            let (mut unpacker, mut seen, mut at) = (Unpacker::default(), Vec::new(), 0);
            for cut in cuts.into_iter().chain([stream.len()]) {
                let end = (at + cut).min(stream.len());
                unpacker.push(&stream[at..end]);
                at = end;
                while let Some(message) = unpacker.next::<FromServer>().unwrap() {
                    seen.push(message);
                }
            }
            prop_assert_eq!(seen, messages());
        }
    }

    fn fenced(blocks: Vec<Bytes>) -> ToServer {
        ToServer::Answer { id: 3, answer: Answer::Fenced { blocks } }
    }

    #[test]
    fn blocks_follow_their_message_and_long_ones_are_not_copied() {
        let parts =
            [vec![1; 20], vec![2; 3 * PART_ALONE_LEN], vec![3; 10], vec![4; PART_ALONE_LEN], vec![]].map(Bytes::from);
        let pieces = pieces(&fenced(parts.to_vec()));
        assert_eq!(pieces.len(), 4);
        assert_eq!((pieces[1].as_ptr(), pieces[3].as_ptr()), (parts[1].as_ptr(), parts[3].as_ptr()));
        let mut unpacker = Unpacker::default();
        for piece in pieces.iter().flat_map(|piece| piece.chunks(5000)) {
            assert_eq!(unpacker.next::<ToServer>(), Ok(None));
            unpacker.push(piece);
        }
        assert_eq!(unpacker.next(), Ok(Some(fenced(vec![parts.concat().into()]))));
        unpacker.push(&pack(&fenced(vec![])));
        assert_eq!(unpacker.next(), Ok(Some(fenced(vec![]))));
    }

    #[test]
    fn blocks_after_other_messages_are_refused() {
        let mut bytes = pack(&ToServer::End).to_vec();
        bytes.push(0);
        bytes[0] += 1;
        let mut unpacker = Unpacker::default();
        unpacker.push(&bytes);
        assert_eq!(unpacker.next::<ToServer>(), Err(PeerError::Malformed.into()));
    }

    #[test]
    fn a_length_beyond_the_limit_ends_the_stream() {
        let mut unpacker = Unpacker::default();
        unpacker.push(&u32::MAX.to_le_bytes());
        assert_eq!(unpacker.next::<ToServer>(), Err(PmixError::TooLong(u32::MAX)));
    }
}
