//! Every bound on what another process may make us hold, with the reason for its number.

/// PMI: longest kvs name announced (Hydra, Slurm and Flux all say 256).
pub const KVSNAME_LEN_MAX: usize = 256;
/// PMI: longest key announced (Hydra, Slurm and Flux all say 64).
pub const KEY_LEN_MAX: usize = 64;
/// PMI: longest value announced. Even, because MPICH's writer and reader cut long values by
/// `(max-2)/2` and `(max-1)/2`, which agree only for an even number.
pub const VALUE_LEN_MAX: usize = 1024;
/// PMI-1: longest request line. The longest is a barrier of [`GROUP_RANKS_MAX`] ranks, each with up to seven digits and a comma;
/// spawn arguments, one line each, are shorter.
pub const PMI1_LINE_MAX: usize = 512 << 10;
/// PMI-2: longest body. Slurm's client and server take 64 KiB; our own client's longest is an allgather's value with each `;` doubled.
pub const PMI2_BODY_MAX: usize = 2 * ALLGATHER_LEN_MAX + 1024;
/// Packed puts of one node between two fences, for the frame they leave in (bytes).
pub const PENDING_PUT_BYTES_MAX: usize = 64 << 20;

/// PMI-2 node attributes of one job on one node, keys and values together (bytes): topology files fit, a loop does not.
pub const NODE_ATTR_BYTES_MAX: usize = 16 << 20;
/// Gets of node attributes that one rank may have waiting at once: one a thread.
pub const PARKED_GETS_PER_RANK_MAX: usize = 64;
/// PMI-2: longest `thrid`. Slurm's client sends a pointer.
pub const THREAD_LEN_MAX: usize = 64;

/// Longest value of an allgather that our own client starts.
pub const ALLGATHER_LEN_MAX: usize = 64 << 10;
/// Collectives that one rank may have outstanding (each costs its agent some hundred bytes).
pub const EXCHANGES_MAX: usize = 16 << 10;
/// Ranks that a barrier of a group may list; without a list it is for the whole job or the whole node.
pub const GROUP_RANKS_MAX: usize = 64 << 10;
/// Barriers of groups that one rank may wait in at once: one a thread.
pub const GROUP_BARRIERS_PER_RANK_MAX: usize = 64;
/// A subtree's part of a collective travels up the tree as long as it is at most that (bytes); else its size alone, and the root
/// finds another way. Chosen: below what a parent with 32 children takes in within a few milliseconds.
pub const EAGER_BYTES_MAX: usize = 256 << 10;

/// Longest frame payload between agents: a fence of a million ranks with 256 bytes each.
pub const FRAME_PAYLOAD_MAX: usize = 256 << 20;
/// Longest frame payload of a launcher that is attached to a session. The longest is a job's description: a full environment (2 MiB is
/// Linux' own bound) and a node list. Far below the limit of frames between agents, in which the root passes it on with more.
pub const LAUNCHER_PAYLOAD_MAX: usize = 64 << 20;
/// Bytes that wait for a launcher which is attached to a session and does not read. What it asks for is bounded by its being heard no
/// more meanwhile, output by its window; the rest is a word about each rank at most: this is the profile of a million ranks.
pub const LAUNCHER_UNREAD_BYTES_MAX: usize = 64 << 20;
/// What is passed on of who wants a job's end (bytes): a user's and a program's name.
pub const KILLED_BY_LEN_MAX: usize = 256;
/// What is told of a job's name and of its program's in a list of jobs (bytes each): most paths.
pub const LISTED_NAME_LEN_MAX: usize = 1024;
/// Connections accepted but not yet authenticated, at once; further ones wait in the backlog.
pub const UNAUTHENTICATED_LINKS_MAX: usize = 128;
/// Time for an unauthenticated peer to finish its handshake. Long, because a machine that starts thousands of ranks at once gives
/// an agent little time; a full house of strangers is cleared earlier.
pub const HANDSHAKE_NS_MAX: u64 = 30_000_000_000;

/// Bytes of frames from another agent that may wait for those before them, or for their job: no more than the longest frame,
/// which is the result of the largest exchange, passes through one agent to another.
pub const DIRECT_WAITING_BYTES_MAX: usize = FRAME_PAYLOAD_MAX;
/// Frames for another agent that go through the tree together before there is a link of the two (bytes). Chosen: a hop takes
/// less time for them than the link takes to be made.
pub const ROUTED_BYTES_MAX: usize = 64 << 10;
/// How long others wait for the link before they go through the tree too (ns). Chosen: far more than a handshake takes.
pub const DIRECT_WAIT_NS_MAX: u64 = 500_000_000;
/// What comes over a direct link is acknowledged after so many frames, or bytes. Until then its sender keeps it, to send it
/// again through the tree if the link breaks. Chosen: one frame more in sixty-four is not to be felt.
pub const UNACKNOWLEDGED_FRAMES_MAX: u32 = 64;
pub const UNACKNOWLEDGED_BYTES_MAX: usize = 256 << 10;

/// Requests that one PMIx server process may have outstanding: some for each rank of a large node.
pub const PMIX_ASKS_MAX: usize = 64 << 10;
/// What ranks of a job may have published by PMIx, keys and values together (bytes): ports and names, never a dataset.
pub const PMIX_PUBLISHED_BYTES_MAX: usize = 16 << 20;
/// Longest piece of PMIx data that one rank, one group member or one event may bring (bytes); several go into a frame.
pub const PMIX_BLOB_BYTES_MAX: usize = 64 << 20;
/// Bytes of answers that are bundled into one frame between two agents; a longer one travels alone. Chosen: below that a frame
/// costs more than its bytes.
pub const MODEX_BUNDLE_BYTES: usize = 64 << 10;
/// Most that a fence of PMIx brings to all nodes where the root may choose (`--modex auto`), of the whole job, as it travels. Measured, two
/// nodes on two cores: collecting costs 16 ms a MiB beyond the fence itself (unpacking and storing in the library, on each node),
/// a first get by direct modex 0.4 ms. So this much costs what 40 gets of other nodes' ranks cost, about those that a rank of a
/// large job makes (its neighbours in a stencil and in the rounds of collectives).
pub const MODEX_COLLECT_BYTES_MAX: u64 = 1 << 20;
/// Time for a PMIx server process to begin (ns): it opens a library, which may lie on a slow file server.
pub const PMIX_START_NS_MAX: u64 = 30_000_000_000;
/// Time for it to clean up when the ranks of its node are gone (ns); then it is killed.
pub const PMIX_END_NS_MAX: u64 = 2_000_000_000;
/// How long it is waited for what a departed rank has committed (ns): it knows, or there is nothing.
pub const PMIX_LATE_BLOB_NS_MAX: u64 = 200_000_000;

/// Stdio credit of one (link, job, stream): what a child may have under way or buffered above it.
pub const STDIO_WINDOW_BYTES: usize = 256 << 10;
/// Longest line that is assembled; a longer one is passed on in pieces of this size.
pub const LINE_LEN_MAX: usize = 64 << 10;
/// Largest payload of one stdio frame.
pub const STDIO_CHUNK_MAX: usize = 64 << 10;
/// How long a partial line may wait for its end before it is shown, so that prompts appear.
pub const PARTIAL_LINE_NS_MAX: u64 = 200_000_000;

/// Ranks of one job: four million, the simulator's largest aim.
pub const JOB_SIZE_MAX: u32 = 4 << 20;
/// Ranks of one job on one node: what `LocalRank` can count.
pub const PPN_MAX: u32 = u16::MAX as u32;
/// Missing ranks that one agent names when it is asked who has not arrived.
pub const STALL_NAMES_MAX: usize = 16;
/// From one question who is missing to the next (ns): each is answered by all agents of a job, whoever asks and how often. Chosen: the
/// answers are up by then, and a person is served at once.
pub const STALL_PAUSE_NS: u64 = 200_000_000;
