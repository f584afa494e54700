//! Bounds on the memory and time that another process can cost us, with the reason for each value. A bound that only
//! one file needs is in that file; `docs/reference/limits.md` lists all that users meet.

/// PMI: longest kvs name announced (Hydra, Slurm and Flux all announce 256).
pub const KVSNAME_LEN_MAX: usize = 256;
/// PMI: longest key announced (Hydra, Slurm and Flux all announce 64).
pub const KEY_LEN_MAX: usize = 64;
/// PMI: longest value announced. Must be even, because MPICH's writer and reader split long values at `(max-2)/2` and
/// `(max-1)/2`, which agree only for an even number.
pub const VALUE_LEN_MAX: usize = 1024;
/// PMI-1: longest request line. The longest is a barrier of [`GROUP_RANKS_MAX`] ranks, each with up to seven digits and
/// a comma; spawn arguments, one line each, are shorter.
pub const PMI1_LINE_MAX: usize = 512 << 10;
/// PMI-2: longest body. Slurm's client and server accept 64 KiB; our own client's longest body is an allgather value
/// with every `;` doubled.
pub const PMI2_BODY_MAX: usize = 2 * ALLGATHER_LEN_MAX + 1024;
/// Packed puts of one node between two fences; they must fit into one frame (bytes).
pub const PENDING_PUT_BYTES_MAX: usize = 64 << 20;

/// PMI-2 node attributes of one job on one node, keys and values together (bytes): enough for topology files, but not
/// for a runaway loop.
pub const NODE_ATTR_BYTES_MAX: usize = 16 << 20;
/// Gets of node attributes that one rank may have pending at once: one per thread.
pub const PARKED_GETS_PER_RANK_MAX: usize = 64;
/// PMI-2: longest `thrid`. Slurm's client sends a pointer.
pub const THREAD_LEN_MAX: usize = 64;

/// Most bytes read from the file in which a rank describes its own failure (`TORCHELASTIC_ERROR_FILE`). Chosen: a
/// traceback of hundreds of calls.
pub const RANK_ERROR_BYTES_MAX: usize = 64 << 10;

/// Longest allgather value that our own client accepts.
pub const ALLGATHER_LEN_MAX: usize = 64 << 10;
/// Collectives that one rank may have outstanding (each costs its agent a few hundred bytes).
pub const EXCHANGES_MAX: usize = 16 << 10;
/// Ranks that a group's barrier may list; a barrier without a list is for the whole job or the whole node.
pub const GROUP_RANKS_MAX: usize = 64 << 10;
/// Ranges of ranks in a group that our own client defines, so that a message between agents about the group has at most
/// a few KiB. In a group with more ranges the ranks exchange data without the agents.
pub const GROUP_RUNS_MAX: usize = 1024;
/// Groups that one rank of our own client may have defined (each costs its agent at most [`GROUP_RUNS_MAX`] times 8
/// bytes).
pub const GROUPS_PER_RANK_MAX: usize = 1024;
/// Most bytes of a group collective's values that an agent sends to a rank in its answer; more values are passed in
/// memory that the ranks of the node share. Chosen: making and mapping memory costs as much as copying a few pages.
pub const GATHER_INLINE_MAX: usize = 8 << 10;
/// Group barriers that one rank may wait in at once: one per thread.
pub const GROUP_BARRIERS_PER_RANK_MAX: usize = 64;
/// A subtree's part of a collective travels up the tree up to this size (bytes); above it only the size does, and the
/// root chooses another route. Chosen: less than a parent with 32 children receives in a few milliseconds.
pub const EAGER_BYTES_MAX: usize = 256 << 10;

/// PMI libraries in one rank besides the one that uses the inherited socket, counting those that have left (each costs
/// its agent a descriptor). Chosen: far more than programs have.
pub const SECONDARY_CLIENTS_PER_RANK_MAX: usize = 16;
/// Names under which one rank may announce an address where it is reached: one for each network and library.
pub const ADDRESS_NAMES_MAX: usize = 64;
/// Pairs of one job that an agent stores (bytes, packed). Chosen: the business cards of four million ranks, 256 bytes
/// each.
pub const KVS_BYTES_MAX: usize = 1 << 30;
/// Requests for addresses of other ranks that one rank may have outstanding (each costs its agent about a hundred
/// bytes): more than any rank connects to at once.
pub const ADDRESS_QUESTIONS_MAX: u32 = 64 << 10;
/// Bytes of addresses in one answer to another agent; the addresses that it asked for are sent even if they are longer.
/// Chosen: as for [`MODEX_BUNDLE_BYTES`].
pub const ADDRESS_BUNDLE_BYTES: usize = 64 << 10;
/// Connections between ranks that the agents of one node relay in one job; each costs a descriptor. Chosen: a node of
/// 64 ranks, each with a few connections to ranks that only the agents reach.
pub const RELAYS_MAX: usize = 1024;
/// Bytes of one relay that may be in transit in one direction. Chosen: the round trip of a slow network between agents
/// (1 ms) at 64 MB/s.
pub const RELAY_WINDOW_BYTES: usize = 64 << 10;

/// PyTorch's store: longest key, as in PyTorch's own server.
pub const STORE_KEY_LEN_MAX: usize = 8 << 10;
/// Longest value that a client of the store sends, as in PyTorch's own server.
pub const STORE_VALUE_LEN_MAX: usize = 8 << 20;
/// Keys of one request to the store, as in PyTorch's own server.
pub const STORE_KEYS_MAX: usize = 128 << 10;
/// Longest request to the store (bytes). Chosen: one with several of the longest values.
pub const STORE_REQUEST_BYTES_MAX: usize = 64 << 20;
/// Longest answer of the store to one request, and longest value after appending (bytes). Chosen: as for a request.
pub const STORE_REPLY_BYTES_MAX: usize = 64 << 20;
/// PyTorch's store: keys and values of one job that an agent stores (bytes), plus about a hundred bytes for each key.
/// Chosen: addresses of all ranks of the largest jobs, and far less than a node's memory.
pub const STORE_BYTES_MAX: usize = 256 << 20;
/// Values that an agent keeps for its ranks as copies, those of its own keys included (bytes). Chosen: the addresses of
/// a hundred thousand ranks.
pub const STORE_COPIES_BYTES_MAX: usize = 64 << 20;
/// Longest value that a key's owner sends together with the report that the key exists, and that other agents keep
/// (bytes). Chosen: more than addresses and identifiers have.
pub const STORE_COPY_LEN_MAX: usize = 64 << 10;
/// Connections to the store of one job that an agent holds; each costs a descriptor. Chosen: sixteen for each rank of
/// a large node, which has one or two.
pub const STORE_CLIENTS_MAX: usize = 4096;
/// Bytes of unfinished requests that an agent holds for all clients of one job's store. Chosen: several of the longest
/// requests at once.
pub const STORE_UNFINISHED_BYTES_MAX: usize = 256 << 20;
/// Bytes after a client's unanswered request that are read ahead. Chosen: one read.
pub const STORE_READ_AHEAD_BYTES: usize = 64 << 10;
/// Keys for which the clients of one job wait at an agent. Chosen: a thousand ranks that each wait for a thousand keys.
pub const STORE_WAITS_MAX: usize = 1 << 20;
/// Agents of one job that own keys of its store. Each agent has a link to each of them, and each of them to all agents.
/// Chosen: with more owners, the links would cost more than the shared work saves.
pub const STORE_OWNERS_MAX: usize = 64;

/// Longest frame payload between agents: a fence of a million ranks with 256 bytes each.
pub const FRAME_PAYLOAD_MAX: usize = 256 << 20;
/// Longest frame payload of a launcher that is attached to a session. The longest is a job's description: a full
/// environment (at most 2 MiB on Linux) and a node list. Far below the limit for frames between agents, in which the
/// root forwards it with additions.
pub const LAUNCHER_PAYLOAD_MAX: usize = 64 << 20;
/// Bytes queued for an attached launcher that does not read. Answers to it are bounded, since its further requests are
/// not read meanwhile, and output is bounded by its window; the rest is at most one short message per rank. Chosen: the
/// profile of a million ranks.
pub const LAUNCHER_UNREAD_BYTES_MAX: usize = 64 << 20;
/// Longest forwarded text about who requested the end of a job (bytes): a user's and a program's name.
pub const KILLED_BY_LEN_MAX: usize = 256;
/// Longest job name and program name shown in a list of jobs (bytes each): enough for most paths.
pub const LISTED_NAME_LEN_MAX: usize = 1024;
/// Accepted connections that are not yet authenticated; further ones wait in the backlog.
pub const UNAUTHENTICATED_LINKS_MAX: usize = 128;
/// First messages of accepted connections that an agent remembers, so that it refuses repetitions. Chosen: 1 MiB of
/// memory. A stranger who repeats recorded first messages needs more than this many to occupy all places of
/// unauthenticated connections for longer than an hour.
pub const HELLOS_MAX: usize = 16 << 10;
/// Time limit for an unauthenticated peer to finish its handshake. Long, because an agent gets little CPU time on a
/// machine that starts thousands of ranks at once. If all slots are taken, unauthenticated links are closed earlier.
pub const HANDSHAKE_NS_MAX: u64 = 30_000_000_000;

/// Bytes of frames from another agent that may wait for earlier frames or for their job. Equal to the longest frame,
/// which is the result of the largest exchange passing through an agent.
pub const DIRECT_WAITING_BYTES_MAX: usize = FRAME_PAYLOAD_MAX;
/// Frames for another agent that are sent through the tree before there is a direct link (bytes). Chosen: a hop
/// forwards that many bytes in less time than it takes to open the link.
pub const ROUTED_BYTES_MAX: usize = 64 << 10;
/// How long further frames wait for the direct link before they also go through the tree (ns). Chosen: much longer than
/// a handshake takes.
pub const DIRECT_WAIT_NS_MAX: u64 = 500_000_000;
/// The receiver acknowledges frames on a direct link after this many frames or bytes. Until then the sender keeps them,
/// to send them again through the tree if the link breaks. Chosen: one extra frame in sixty-four has no measurable
/// cost.
pub const UNACKNOWLEDGED_FRAMES_MAX: u32 = 64;
pub const UNACKNOWLEDGED_BYTES_MAX: usize = 256 << 10;

/// Requests that one PMIx server process may have outstanding: a few for each rank of a large node.
pub const PMIX_ASKS_MAX: usize = 64 << 10;
/// Longest key of the PMIx library (`PMIX_MAX_KEYLEN`).
pub const PMIX_KEY_LEN_MAX: usize = 511;
/// Names that the ranks of a job have published or wait for, with their values (bytes): enough for ports, not for
/// datasets.
pub const NAMES_OF_JOB_BYTES_MAX: usize = 16 << 20;
/// Names that the ranks of all jobs of a session have published or wait for, with their values (bytes): the root stores
/// them.
pub const NAMES_BYTES_MAX: usize = 64 << 20;
/// PMI: longest name of a service, and longest port. Every caller of `PMI_Lookup_name` has room for 1,024 bytes with
/// the final zero.
pub const NAME_LEN_MAX: usize = 1023;
/// Longest piece of PMIx data of one rank, one group member or one event (bytes); several fit into a frame.
pub const PMIX_BLOB_BYTES_MAX: usize = 64 << 20;
/// Answers are bundled into one frame between two agents up to this many bytes; a longer answer is sent alone. Chosen:
/// below this size a frame's overhead costs more than its bytes.
pub const MODEX_BUNDLE_BYTES: usize = 64 << 10;
/// With `--modex auto` a PMIx fence distributes at most this much data of the whole job, as encoded for transfer.
/// Measured, two nodes on two cores: collecting costs 16 ms per MiB in addition to the fence itself (unpacking and
/// storing in the library, on each node), a first get by direct modex 0.4 ms. So this much data costs as much as 40
/// gets from other nodes' ranks, about as many as a rank of a large job makes (its neighbours in a stencil and in the
/// rounds of collectives).
pub const MODEX_COLLECT_BYTES_MAX: u64 = 1 << 20;
/// Time limit for a PMIx server process to start (ns): it opens a library, possibly from a slow file server.
pub const PMIX_START_NS_MAX: u64 = 30_000_000_000;
/// Time limit for a PMIx server process to clean up after the ranks of its node have ended (ns); then it is killed.
pub const PMIX_END_NS_MAX: u64 = 2_000_000_000;
/// Time between two questions to a PMIx server process whether it still answers (ns). Chosen: costs almost nothing, and
/// is a small part of [`PMIX_SILENT_NS_MAX`].
pub const PMIX_PULSE_NS: u64 = 15_000_000_000;
/// A PMIx server process that has not answered for this long has failed (ns). Chosen: longer than two delays that are
/// no failure. Thousands of ranks that connect at once keep the thread of the PMIx library busy, and the library's
/// server waits for a client that does not finish its first message.
pub const PMIX_SILENT_NS_MAX: u64 = 60_000_000_000;
/// How long to wait for a PMIx server process to return what a departed rank has committed (ns): the process already
/// has that data, or the rank has committed none.
pub const PMIX_LATE_BLOB_NS_MAX: u64 = 200_000_000;

/// How much earlier than the PMIx library agents end a connect or a group construction whose timeout expires (ns).
/// Chosen: the time of a message to the server process on a busy machine.
pub const PMIX_TIMER_LEAD_NS: u64 = 100_000_000;
/// Data that the root holds for all incomplete collectives of several jobs, including the names of the members (bytes).
/// Chosen: a few of the largest contributions.
pub const ACROSS_BYTES_MAX: usize = 256 << 20;
/// Size of the outcome of one collective of several jobs, times the number of nodes that receive it (bytes). Chosen:
/// two jobs on 5000 nodes each can connect.
pub const ACROSS_ANSWERS_BYTES_MAX: usize = 4 << 30;
/// Unanswered requests by the root for what ranks have committed, made for ranks of other jobs. Chosen: as many as one
/// node may have.
pub const ACROSS_FETCHES_MAX: usize = PMIX_ASKS_MAX;
/// Programs in one request to spawn processes. Chosen: more than any call of `MPI_Comm_spawn_multiple` lists; each is
/// an entry in the new job's description.
pub const SPAWN_COMMANDS_MAX: usize = 1024;
/// Jobs of one family (a job, those that its ranks have asked for, and so on) that exist at once: each costs every node
/// of it some processes and descriptors. Chosen: more than a master with many workers starts one by one.
pub const FAMILY_JOBS_MAX: usize = 1024;
/// Hosts that one job may add to those of a session. Chosen: the root starts all of their agents itself; each costs it
/// a remote shell and a link.
pub const ADDED_HOSTS_MAX: usize = 1024;

/// Stdio credit of one (link, job, stream): the bytes that a child may have in transit or buffered above it.
pub const STDIO_WINDOW_BYTES: usize = 256 << 10;
/// An agent assembles a line up to this size; a longer one goes to the launcher in parts.
pub const LINE_PART_BYTES: usize = 64 << 10;
/// Longest line that the launcher shows whole; a longer one is shown in pieces of this size, with a mark where other
/// output comes between them. Chosen: more than anybody reads as a line, and a rank that writes no newline is shown in
/// time.
pub const LINE_BYTES_MAX: u64 = 64 << 20;
/// Parts of incomplete lines that the launcher keeps in memory, for each of the two streams (bytes); further parts go
/// to a file.
pub const HELD_LINES_MEMORY_MAX: usize = 32 << 20;
/// Parts of incomplete lines that the launcher keeps in a file (bytes). Chosen: 64 ranks with longest lines at once,
/// less than a disk for temporary files has.
pub const HELD_LINES_FILE_MAX: u64 = 4 << 30;
/// Largest payload of one frame of output.
pub const STDIO_CHUNK_MAX: usize = 64 << 10;
/// Standard input that has been sent and that not all of its readers have taken (bytes). All children share the pieces,
/// so that large pieces cost no memory for each child. Measured: staging 256 MiB to 16 nodes on 2 cpus takes 0.75 x the
/// time that it takes with the sizes for output.
pub const STDIN_WINDOW_BYTES: usize = 2 << 20;
/// Largest payload of one frame of standard input.
pub const STDIN_CHUNK_MAX: usize = 256 << 10;
/// How long a partial line may wait for its end before it is shown, so that prompts appear.
pub const PARTIAL_LINE_NS_MAX: u64 = 200_000_000;

/// Ranks of one job: four million, the largest job to be simulated.
pub const JOB_SIZE_MAX: u32 = 4 << 20;
/// Virtual nodes of one machine. Chosen: each is a few processes, and a large machine has room for some hundred
/// thousand of them.
pub const VIRTUAL_NODES_MAX: u32 = 1 << 16;
/// Ranks of one job on one node: what `LocalRank` can count.
pub const PPN_MAX: u32 = u16::MAX as u32;
/// Missing ranks that one agent names when it is asked which ranks have not entered.
pub const STALL_NAMES_MAX: usize = 16;
/// Minimum time between two requests for missing ranks (ns): every agent of the job answers each request. Chosen: the
/// answers arrive well within this time, and a person notices no delay.
pub const STALL_PAUSE_NS: u64 = 200_000_000;
/// Longest time in which the call stacks of one node's ranks are taken (ns). Chosen: gdb takes a second for each of a
/// few ranks at the same time, and a person waits.
pub const STACKS_NS_MAX: u64 = 8_000_000_000;
/// Longest wait for the call stacks of a job (ns): [`STACKS_NS_MAX`], plus 4 s for messages.
pub const STACKS_WAIT_NS: u64 = 12_000_000_000;
/// Longest time by which call stacks delay the end of a job that has reached its time limit (ns). Chosen: enough for
/// tools that work, and a job script's own limit is seldom that close.
pub const TIMEOUT_STACKS_NS_MAX: u64 = 3_000_000_000;
/// Most bytes of text in the different call stacks of a node, or of all nodes below it. Chosen: two hundred calls.
pub const STACK_BYTES_MAX: usize = 16 << 10;
/// Most calls that are kept of one stack, and characters of a call.
pub const STACK_CALLS_MAX: usize = 64;
pub const STACK_CALL_LEN_MAX: usize = 160;
