//! The command `wireup run`: its flags, how the value of each is read, and the struct of their values.
//!
//! A flag is one row here and the code that uses its field. Fields within `options` and `output` are given to the nodes
//! and the launcher as they are; the other fields are first resolved with the surroundings.

use super::mapping::{self, Bind, Map, RankBy};
use super::values::{
    Contain, EnvList, Stage, StageWord, Start, Variable, interface, memory_kinds, pattern, port_range, preload,
    result_file, some_time, stage, stage_out, stdin, variable,
};
use std::ffi::OsString;
use std::path::PathBuf;
use wireup_flags::table::on;
use wireup_flags::{Command, Flag, JsonTo, Takes, Value, Words, flag_table};
use wireup_node::launcher::Output;
use wireup_stage::gather::Rule;
use wireup_wire::job::{
    EarlyWireup, Framework, JobOptions, Modex, PmiFence, PmiFlavour, PmiVersion, PortRange, RankPorts, RankStdout,
    StdinTarget,
};
use wireup_wire::limits::{JOB_SIZE_MAX, PPN_MAX, VIRTUAL_NODES_MAX};
use wireup_wire::peer::AgentTransport;
use wireup_wire::session::SeatOrder;

pub const RUN: Command = Command {
    name: "run",
    purpose: "start a job",
    intro: RUN_INTRO,
    words: Words::Program,
    sections: SECTIONS,
    end: RUN_END,
};

const RUN_INTRO: &str = "
  wireup run ./app                                    one rank per cpu of this machine
  wireup run -n 16 ./app input.dat                    16 ranks; what follows the program belongs to it
  wireup run --hosts 'n[0-3]' --ppn 16 ./app          4 machines, 16 ranks each
  wireup run --hostfile hosts --label ./app           machines from a file, one rank per slot
  wireup run -n 64 --virtual-nodes 4 ./app            4 nodes on this machine, 16 ranks each
  wireup run -n 8 --label ./app : -n 2 ./other        two programs in one job: ranks 0-7 and 8-9
  wireup run -n 4 --env OMP_NUM_THREADS=2 ./app       set a variable for the ranks
  wireup run -n 64 --profile trace.json ./app         how long each phase of the start takes
  wireup run -n 64 --report start.html ./app          the same as a page for a web browser
  wireup run -n 64 --dry-run ./app                    show what would happen

usage: wireup run [FLAGS] PROGRAM [ARGUMENTS] [: [FLAGS] PROGRAM [ARGUMENTS]]...
Flags come before the program; one dash is as good as two (-np, -wdir). \"Per program\" flags belong to the program
that follows them, all others to the job. A program without a slash in its name is searched for on PATH, then in the
working directory.
";

const RUN_END: &str = "
Ranks get WIREUP_RANK, WIREUP_SIZE, WIREUP_LOCAL_RANK, WIREUP_LOCAL_SIZE and WIREUP_NODE, and your environment without
the variables of an outer launcher. If the job uses other machines, variables that make sense only on this machine are
removed too, unless --env names them: HOSTNAME, SSH_*, XDG_RUNTIME_DIR, XDG_SESSION_*, DBUS_SESSION_BUS_ADDRESS,
WIREUP_SESSION. Working directory, umask and soft limits (ulimit) are those of wireup run, as far as each machine's
hard limits allow.

Without --hosts and --hostfile, the hosts are those in WIREUP_HOSTS (same format as --hosts), otherwise those of the
batch job (Slurm, PBS, LSF, Flux, Grid Engine), otherwise this machine.

Ctrl-C is passed on to the ranks; a second one kills them. Other signals are passed on, except SIGALRM: kill -ALRM on
wireup shows which ranks the others wait for.

Exit code: that of the first rank that failed, or 128 + signal if a signal killed it; 124 after --timeout; 125 if wireup
itself failed; 126 if the program cannot be executed; 127 if it is not found.
";

flag_table! {
    /// The values of all flags of one command line; `None`, `false` or empty if not given.
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct Parsed {
        /// The programs with the flags of each; empty for a command that runs none.
        pub programs: Vec<Program>,
        /// What a rankfile says about the processors of each rank.
        pub rank_slots: Vec<String>,
        /// The options of the job that are sent to the nodes, as far as flags alone decide them.
        pub options: JobOptions,
        /// The files and folders to which output goes in addition to standard output and standard error.
        pub output: Output,
    }

    [RANKS_AND_NODES: "Ranks and placement"]

    RANKS = Flag::value(&["-n", "-np"], "N", "Per program: number of ranks (default: nodes times --ppn; in an \
        allocation, one per task; with hosts, one per slot, or one per host if no slots are given; otherwise one per \
        available CPU).")
        => ranks: Option<u32> = |value| value.number_in(1, JOB_SIZE_MAX);
    VIRTUAL_NODES = Flag::value(&["--virtual-nodes"], "N",
        "Start N agents on this machine, each acting as a node (node0, node1, ...).")
        => virtual_nodes: Option<u32> = |value| value.number_in(1, VIRTUAL_NODES_MAX);
    PPN = Flag::value(&["--ppn", "--npernode", "--perhost"], "N",
        "Put N consecutive ranks on each node in turn; further ranks start again at the first node.")
        => ppn: Option<u32> = |value| value.number_in(1, PPN_MAX);
    MAP_BY = Flag::value(&["--map-by"], "HOW", "slot: consecutive ranks together, divided evenly among the nodes \
        (default); node: one rank per node in turn; ppr:N:node: N per node and no more; ppr:N:OBJECT; OBJECT: like \
        slot, with the ranks of a node on its objects in turn (thread, core, l1cache, l2cache, l3cache, numa, socket); \
        seq: one rank on each host of the list, in order. After a colon: pe=K (K cores per rank), step=K (every K-th \
        object), hwtcpus, oversubscribe, nooversubscribe, nolocal.")
        => map: Map = mapping::map_by;
    RANK_BY = Flag::value(&["--rank-by"], "HOW", "How ranks are numbered: slot: in the order of --map-by (default); \
        node: one per node in turn; fill: consecutively on each node, and on each object within it.").advanced()
        => rank_by: Option<RankBy> = mapping::rank_by;
    RANKFILE = Flag::value(&["--rankfile"], "FILE", "Read where each rank runs from FILE, one rank per line: rank 0=n1 \
        slot=0-1, where slot is a list of cores or socket:cores separated by semicolons, or * for all.").advanced()
        => rankfile: Option<PathBuf> = Value::path;
    RANK_MAP = Flag::value(&["--rank-map"], "LIST",
        "The node of each rank, counted from 0: 0,0,1,1; the list is repeated for further ranks.").advanced()
        => rank_map: Option<Vec<u32>> = mapping::rank_map;
    SLOTS = Flag::value(&["--slots"], "N", "Allow at most N ranks per node, and fill each node up to N before the next \
        (default: no limit, or the slots in the host list).")
        => slots: Option<u32> = Value::at_least_one;
    OVERSUBSCRIBE = Flag::switch(&["--oversubscribe"], "Allow more ranks than slots: the extra ranks start again at \
        the first node; max_slots in a host file still applies.")
        => oversubscribe: bool = on;
    USIZE = Flag::value(&["--usize"], "N", "Set MPI_UNIVERSE_SIZE, the number of ranks that could run at once \
        (default: the number of slots, if any are given).").advanced()
        => options.pmi.universe_size = Value::at_least_one;
    NO_OVERSUBSCRIBE = Flag::switch(&["--nooversubscribe"],
        "Refuse more ranks than slots, or than CPUs of this machine if no slots are given.").advanced()
        => no_oversubscribe: bool = on;
    NO_LOCAL = Flag::switch(&["--nolocal"], "Run no ranks on this machine, even if it is one of the hosts.").advanced()
        => no_local: bool = on;
    BIND_TO = Flag::value(&["--bind-to"], "WHAT", "even: divide a node's cores among its ranks, if each gets 2 or \
        more; otherwise one NUMA domain each; with a single domain, no binding (default, unless --map-by names \
        an OBJECT or pe=K: then that object, or K cores); none; OBJECT (as in --map-by) or OBJECT:N; user:LIST: the \
        CPUs of each local rank (0-1,4+6). After a colon: overload-allowed. Ranks on virtual nodes are never bound.")
        => bind: Bind = mapping::bind_to;
    CPU_SET = Flag::value(&["--cpu-set"], "LIST",
        "Bind ranks only to these CPUs of each node: 0-7,16-23, numbered as in taskset.").advanced()
        => options.binding.cpus = mapping::cpu_set;
    GPUS_PER_RANK = Flag::value(&["--gpus-per-rank"], "N", "Show each rank N GPUs of its node, through \
        CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES or ZE_AFFINITY_MASK; if these are already set, \
        the GPUs listed there are divided, otherwise all that exist.")
        => options.process.gpus_per_rank = Value::at_least_one;
    INSTANT_ON = Flag::switch(&["--instant-on"], "Give each rank a listening socket before it starts, and tell all \
        ranks where the others listen (for libwireup).").advanced()
        => instant_on: bool = on;
    RESERVE_PORTS = Flag::switch(&["--reserve-ports"], "Like --instant-on, but only reserve the ports: the library in \
        each rank opens its own sockets there (for libfabric).").advanced()
        => reserve_ports: bool = on;
    RANK_PORTS = Flag::value(&["--rank-ports"], "LOW-HIGH", "Ports for --instant-on, --reserve-ports, and the \
        MASTER_PORT of --rank-env and --for, but not of plain --for torch, where the kernel chooses it; consecutive on \
        each node (default: 10240-32767). Implies --instant-on if none of these flags is given.").advanced()
        => port_range: Option<PortRange> = port_range;

    [MACHINES: "Hosts and agents"]

    HOSTS = Flag::value(&["--hosts", "-H", "--host"], "LIST", "Run on these hosts: \
        n0,n1:8,n[2-5],gpu[01-04,07]-ib:2,user@n6,[fd00::1]. A number after a colon is the host's slots; naming a host \
        more than once adds slots too. If any host has slots, one without a number has one per mention, or --slots. If \
        a later program names hosts as well, each program runs on its own hosts.")
        => hosts: Vec<String> = Value::text;
    HOST_FILE = Flag::value(&["--hostfile", "-f", "--machinefile"], "FILE",
        "Read hosts from FILE, one host or range per line: n0, n0:4, n0 slots=4 max_slots=8; # starts a comment.")
        => host_files: Vec<PathBuf> = Value::path;
    START = Flag::value(&["--start"], "HOW", "ssh-tree: agents start the agents below them (default); ssh-flat: all \
        agents are started from here; serial-ssh: one ssh per rank, one after another, for comparisons only.")
        .advanced()
        => start: Option<Start> = |value| value.choice(Start::NAMED);
    FANOUT = Flag::value(&["--fanout"], "K",
        "Children of each agent in the tree (default: a shallow tree, at most 32 children each).").advanced()
        => fanout: Option<u32> = Value::at_least_one;
    REMOTE_SHELL = Flag::value(&["--remote-shell"], "CMD", "Start agents with this command, called as CMD HOST \
        COMMAND; words that name files here (ssh -F conf/cfg) become absolute paths (default: in a Slurm allocation \
        srun, one step for all; with other hosts ssh, with your configuration and without prompts; otherwise child \
        processes on this machine).")
        => remote_shell: Option<String> = Value::text;
    INTERFACE = Flag::value(&["--interface", "--iface"], "WHICH", "Network between agents: an interface (eth0), one of \
        its addresses, or a network (10.1.0.0/16) (default: the one ssh used).")
        => interface: Option<String> = interface;
    PLAIN_LINKS = Flag::switch(&["--plain-links"],
        "Do not encrypt the links between agents; both ends still authenticate each other with the run's secret.")
        .advanced()
        => plain_links: bool = on;
    START_TIMEOUT = Flag::value(&["--start-timeout"], "SECONDS",
        "Fail if a host has not started by then, with one message that lists all such hosts (default: 60).")
        => start_timeout_ns: Option<u64> = Value::some_seconds_ns;
    NODE_TIMEOUT = Flag::value(&["--node-timeout"], "SECONDS",
        "Consider a node lost if it has not answered for this long (default: 30).").advanced()
        => node_timeout_ns: Option<u64> = Value::some_seconds_ns;
    CONTAIN = Flag::value(&["--contain"], "HOW", "auto: where wireup has CAP_SYS_ADMIN, run ranks in a PID namespace, \
        so that the kernel cleans up even after kill -9 (default); user: without that right, run them in a user \
        namespace too, where set-user-ID programs do not work and other users' files appear to belong to nobody; none: \
        use no namespace.").advanced()
        => contain: Option<Contain> = |value| value.choice(Contain::NAMED);

    [IN_SESSION: "Sessions (wireup up)"]

    SESSION = Flag::value(&["--session"], "NAME", "Run in this session (see wireup up); fail if it is not running or \
        lacks nodes (default: the session in WIREUP_SESSION, with the same checks; otherwise the session named \
        default, if it is running and has the nodes).")
        => session: Option<String> = Value::text;
    NO_SESSION = Flag::switch(&["--no-session"],
        "Start agents for this job only, even if there is a session or WIREUP_SESSION is set.")
        => no_session: bool = on;
    PLACE = Flag::value(&["--place"], "HOW", "Which nodes of the session to use, unless --hosts, --virtual-nodes, \
        --rankfile or --rank-map decides: spread: those with the fewest ranks of all jobs per slot (default); pack: \
        the first ones with free slots; if no slots are given, always the first ones.").advanced()
        => place: Option<SeatOrder> = |value| value.choice(SEAT_ORDERS);
    DETACH = Flag::switch(&["--detach"], "Return when the job has started, and print its number; wireup attach shows \
        its output and returns its exit code.")
        => detach: bool = on;

    [RANKS_START_WITH: "Environment and PMI"]

    WDIR = Flag::value(&["--wdir", "--wd"], "DIR",
        "Per program: working directory of the ranks (default: the current one).")
        => wdir: Option<PathBuf> = Value::path;
    ENV = Flag::value(&["--env", "-x"], "NAME[=VALUE]",
        "Per program: set a variable for its ranks; NAME alone takes the value from this environment.")
        => env: Vec<Variable> = variable;
    ENV_FILE = Flag::value(&["--env-file"], "FILE",
        "Set the variables in FILE for all ranks: one NAME=VALUE per line, as in a shell but without expansion.")
        => env_files: Vec<PathBuf> = Value::path;
    GENV = Flag::value(&["--genv"], "NAME=VALUE", "Set a variable for the ranks of all programs.").advanced()
        => genv: Vec<Vec<u8>> = Value::variable;
    GENV_LIST = Flag::value(&["--genvlist"], "NAMES", "Pass only these variables of the current environment to the \
        ranks: A,B,OMP_*; none; all (default). Variables set by other flags are added.").advanced()
        => genv_list: Option<EnvList> = EnvList::read;
    ENV_LIST = Flag::value(&["--envlist"], "NAMES",
        "Per program: pass only these variables of the current environment to its ranks, written as in --genvlist.")
        .advanced()
        => env_list: Option<EnvList> = EnvList::read;
    RANK_ENV = Flag::switch(&["--rank-env"], "Also set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and, unless they \
        are set, MASTER_ADDR and MASTER_PORT: a free port on the node of rank 0.")
        => options.process.rank_env = on;
    FOR = Flag::value(&["--for"], "FRAMEWORK", "Set the variables that the framework's own launcher sets. torch: those \
        of torchrun, with a store in every agent; torch=routable: those of torchrun, with the store in rank 0 at an \
        address that all nodes reach, and with MASTER_PORT + 1 to + 3 reserved; jax: those that \
        jax.distributed.initialize() reads; deepspeed: those of the deepspeed launcher; ray: \
        start a Ray cluster on all nodes for the program, which runs once (needs the Python package wireup-launcher).")
        => options.process.framework = |value| value.choice_or(FRAMEWORKS, FRAMEWORKS_ADVICE);
    LAUNCHER_ENV = Flag::switch(&["--launcher-env"], "Also set what mpirun sets, for scripts: OMPI_COMM_WORLD_RANK, \
        _SIZE, _LOCAL_RANK, _LOCAL_SIZE, _NODE_RANK, MV2_COMM_WORLD_RANK and so on (default only if called as \
        mpiexec).").advanced()
        => options.process.launcher_env = on;
    PRELOAD = Flag::value(&["--preload"], "MODULES", "For Python: import these modules (numpy,scipy) once on each node \
        and fork the ranks from that interpreter. Where that is not possible, each rank imports them itself. auto: the \
        modules that earlier runs of the program imported; none: not even those of wireup up --preload.")
        => preload: Option<Vec<String>> = preload;
    PRELOAD_REQUIRED = Flag::switch(&["--preload-required"],
        "Do not start ranks that cannot be forked from the interpreter of --preload: the job fails.").advanced()
        => preload_required: bool = on;
    PMI = Flag::value(&["--pmi"], "WHICH", "auto: what the program's libraries need; scripts, shells and interpreters \
        get both (default); simple: PMI-1 and PMI-2; pmix: a PMIx server on each node (Open MPI); both; none.")
        => pmi: Option<PmiFlavour> = |value| value.choice(PMIS);
    MODEX = Flag::value(&["--modex"], "WHEN", "When data committed by PMIx programs is sent to other nodes: full: with \
        the fence that collects it; direct: when a rank first asks for it; auto: full while it is small (default).")
        .advanced()
        => options.pmi.modex = |value| value.choice(MODEXES);
    PMIX_LIBRARY = Flag::value(&["--pmix-library"], "PATH",
        "The libpmix for the PMIx server on each node (default: the program's own, otherwise the system's).").advanced()
        => pmix_library: Option<PathBuf> = Value::path;
    EXCHANGE = Flag::value(&["--exchange"], "SCHEME", "How nodes exchange the data of fences and allgathers: tree, \
        ring, log, or auto, by number of nodes and bytes (default).").advanced()
        => options.exchange.scheme = |value| value.choice(&wireup_coll::allgather::schemes().collect::<Vec<_>>());
    EARLY_WIREUP = Flag::value(&["--early-wireup"], "WHEN", "Open the links for the first exchange while ranks start: \
        yes, no, or auto, with --exchange ring or log only (default).").advanced()
        => options.exchange.early_wireup = |value| value.choice(EARLY_WIREUPS);
    AGENT_TRANSPORT = Flag::value(&["--agent-transport"], "HOW", "How agents that are not neighbours in the tree \
        communicate: tree (hop by hop), tcp, ucx, or auto, which is tcp (default).").advanced()
        => transport: Option<AgentTransport> = |value| value.choice(&AgentTransport::named().collect::<Vec<_>>());
    EXCHANGE_COMPRESS = Flag::value(&["--exchange-compress"], "BYTES", "Compress what a node contributes to an \
        exchange if it has this many bytes or more and shrinks, which helps on slow links (default: 0, never).")
        .advanced()
        => options.exchange.compress_bytes_min = Value::number;
    PMI_FENCE = Flag::value(&["--pmi-fence"], "WHEN", "strict: a fence ends when all ranks have entered it (default); \
        lazy: a fence returns at once and the first get waits; unsafe if the program uses the fence as a barrier.")
        .advanced()
        => options.pmi.fence = |value| value.choice(PMI_FENCES);
    PMI_VERSION = Flag::value(&["--pmi-version"], "VERSION", "The PMI-1 version offered to programs: 1.1, or 1.2 with \
        barriers of groups (default: the version they ask for).").advanced()
        => options.pmi.version = |value| value.choice(PMI_VERSIONS);
    MEMORY_ALLOC_KINDS = Flag::value(&["--memory-alloc-kinds"], "KINDS", "Request these kinds of memory from the MPI \
        library, such as mpi:alloc_mem,system; MPICH 5 supports it (default: none).").advanced()
        => options.pmi.memory_alloc_kinds = memory_kinds;

    [FILES: "Staging files"]

    STAGE = Flag { takes: Takes::Attached("HOW"), ..Flag::switch(&["--stage"], "Copy the program and everything it \
        needs to each node first; ranks see the copies instead of the originals. =DIR keeps the copies there (default: \
        in the node's memory, /dev/shm); =require: ranks do not start without them; =auto: only if the files are on a \
        network file system and there are enough ranks to save time; =prefetch: copy nothing; while the ranks start, \
        each node reads the files into its page cache.") }
        => stage: Option<Stage> = stage;
    STAGE_ALSO = Flag::value(&["--stage-also"], "PATH",
        "Also stage this file, folder or pattern, such as plugins and data that the program opens; implies --stage.")
        => stage = |value| value.path().map(StageWord::Also);
    STAGE_LIBRARY = Flag::switch(&["--stage-library"],
        "Where nothing can be mounted, show the copies through a library in each process; implies --stage.").advanced()
        => stage = |_| Ok(StageWord::ByLibrary);
    STAGE_ROOM = Flag::value(&["--stage-room"], "MIB", "Keep at most this many MiB of staged files on a node; the \
        least recently used are removed (default: half of the free space).").advanced()
        => stage = |value| value.at_least_one().map(StageWord::RoomMib);
    STAGE_OUT = Flag::value(&["--stage-out"], "PATTERN=>DIR", "After the job, even if it failed, gather matching files \
        of the nodes into DIR here; {rank} and {node} stand for each rank and its node; existing files are not \
        overwritten; may be repeated.")
        => stage_out: Vec<Rule> = stage_out;

    [INPUT_AND_OUTPUT: "Standard input and output"]

    STDIN = Flag::value(&["--stdin"], "WHO", "Who reads standard input: a rank, all, none (default: 0).")
        => stdin: Option<StdinTarget> = stdin;
    LABEL = Flag::switch(&["--label", "-l", "--prepend-rank", "--tag-output"],
        "Start each line of output with its rank: [3] text.")
        => options.stdio.label = on;
    LABEL_PATTERN = Flag::value(&["--label-pattern"], "PATTERN",
        "Start each line of output with this text, in which %r, %h, %n and %s mean the same as in --output-files.")
        .advanced()
        => output.label = pattern;
    TIMESTAMP = Flag::switch(&["--timestamp"], "Start each line of output with the time it arrived.").advanced()
        => output.timestamp = on;
    MERGE_OUTPUT = Flag::switch(&["--merge-output"], "Send the standard error of the ranks to standard output.")
        => output.merge = on;
    OUTPUT_DIR = Flag::value(&["--output-dir"], "DIR", "Write each rank's output to files in DIR instead (rank.N.out, \
        rank.N.err); fail if DIR has such files from an earlier run.")
        => output.directory = Value::path;
    OVERWRITE = Flag::switch(&["--overwrite"],
        "Let --output-dir replace the files of an earlier run; those of ranks that this job does not have are kept.")
        .advanced()
        => output.overwrite = on;
    OUTPUT_FILES = Flag::value(&["--output-files"], "PATTERN", "Write standard output to these files instead: %r is \
        the rank (%0r padded with zeros), %h the host, %n the number of the node, %s the number of ranks, %% a percent \
        sign; folders are created.").advanced()
        => output.files[0] = pattern;
    ERROR_FILES = Flag::value(&["--error-files"], "PATTERN",
        "Write standard error to these files instead, with the pattern of --output-files.").advanced()
        => output.files[1] = pattern;
    TEE = Flag::switch(&["--tee"], "Also show output that is written to files.").advanced() => output.tee = on;
    LINE_BUFFERED = Flag::switch(&["--line-buffered"], "Never show part of a line before the line ends (default: short \
        parts after 0.2 s, such as prompts, of the rank that reads standard input).").advanced()
        => options.stdio.line_buffered = on;
    STDOUT = Flag::value(&["--stdout"], "KIND", "Connect each rank's standard output to a pipe or to a pseudo-terminal \
        (pty), to which C programs write line by line (default: auto, a pty for programs that use only PMIx, such as \
        those of Open MPI).").advanced()
        => stdout: Option<RankStdout> = |value| value.choice(STDOUTS);
    PTY = Flag { takes: Takes::MaybeNumber("RANK"), ..Flag::switch(&["--pty"],
        "Give one rank a pseudo-terminal (default: 0).") }
        => pty: Option<u32> = Value::number;

    [ENDS: "Timeouts and hangs"]

    EARLY_START = Flag::switch(&["--early-start"], "Start the ranks of each host as soon as the host is ready \
        (default: no rank starts before all hosts are ready, so that a job with a missing host has run nothing).")
        .advanced()
        => early_start: bool = on;
    TIMEOUT = Flag::value(&["--timeout"], "SECONDS",
        "End the job after this time with exit code 124; before that, show where ranks wait, for at most 3 s \
        (default: 0, never).")
        => timeout_ns: Option<u64> = some_time;
    KILL_GRACE = Flag::value(&["--kill-grace"], "SECONDS", "Seconds between SIGTERM and SIGKILL.")
        .or(KILL_GRACE_SECONDS)
        => options.kill_grace_ns = Value::seconds_ns;
    STALL_REPORT = Flag::value(&["--stall-report"], "SECONDS",
        "Report ranks that have kept others waiting in a fence for this long; 0: never.")
        .or(STALL_REPORT_SECONDS)
        => options.stall_report_ns = Value::seconds_ns;

    [SHOWN: "Diagnostics"]

    VERBOSE = Flag::switch(&["--verbose", "-v"], "Show what was chosen (PMI, binding, tree, exchange) and why.")
        => verbose: bool = on;
    DISPLAY_MAP = Flag::switch(&["--display-map"], "Show which ranks run on which node, then run.")
        => display_map: bool = on;
    REPORT_BINDINGS = Flag::switch(&["--report-bindings"],
        "Show the processors of each node and which ranks are bound to them.").advanced()
        => options.report_bindings = on;
    DRY_RUN = Flag::switch(&["--dry-run"], "Show the map and what was chosen; start nothing.") => dry_run: bool = on;
    PROFILE = Flag::value(&["--profile"], "FILE",
        "Show how long each phase of the start took; write a trace for https://ui.perfetto.dev to FILE.")
        => profile: Option<PathBuf> = result_file;
    REPORT = Flag::value(&["--report"], "FILE",
        "Write a page for a web browser to FILE: timeline, slowest nodes and ranks, settings.")
        => report: Option<PathBuf> = result_file;
    EXPECT = Flag::switch(&["--expect"], "With --report: also simulate the start, by the separate program \
        wireup-simulate, and compare what was expected with what happened.")
        => expect: bool = on;
    JSON = Flag { help: "After all output of the ranks, print how the job and each rank ended (rank, node, pid, exit \
        code or signal) as a line of JSON; with --dry-run, print only the map; =FILE writes JSON to FILE.",
        ..wireup_flags::JSON }
        => json: Option<JsonTo> = JsonTo::read;
    RECORD = Flag::value(&["--record"], "DIR", "Record everything each agent receives, for wireup replay.").advanced()
        => record: Option<String> = Value::text;

    [UNLISTED: "Not listed"]

    // Flags of other launchers that are the default, or unnecessary, here.
    IGNORED = Flag::switch(&["--genvall", "--envall", "--allow-run-as-root", "--quiet", "-q"], "");
}

/// The default of `--kill-grace`. Chosen: long enough to write a last line and remove a file, short enough to wait for.
const KILL_GRACE_SECONDS: &str = "2";
/// The default of `--stall-report`. Chosen: no healthy fence takes that long.
const STALL_REPORT_SECONDS: &str = "30";

const PMIS: &[(&str, Option<PmiFlavour>)] = &[
    ("auto", None),
    ("simple", Some(PmiFlavour::Simple)),
    ("pmix", Some(PmiFlavour::Pmix)),
    ("both", Some(PmiFlavour::Both)),
    ("none", Some(PmiFlavour::None)),
];
const MODEXES: &[(&str, Modex)] = &[("auto", Modex::Auto), ("full", Modex::Full), ("direct", Modex::Direct)];
const STDOUTS: &[(&str, Option<RankStdout>)] =
    &[("auto", None), ("pipe", Some(RankStdout::Pipe)), ("pty", Some(RankStdout::Pty))];
const EARLY_WIREUPS: &[(&str, EarlyWireup)] =
    &[("auto", EarlyWireup::Auto), ("yes", EarlyWireup::Yes), ("no", EarlyWireup::No)];
const SEAT_ORDERS: &[(&str, SeatOrder)] = &[("spread", SeatOrder::Spread), ("pack", SeatOrder::Pack)];
const PMI_FENCES: &[(&str, PmiFence)] = &[("strict", PmiFence::Strict), ("lazy", PmiFence::Lazy)];
const FRAMEWORKS: &[(&str, Framework)] = &[
    ("torch", Framework::Torch),
    ("torch=routable", Framework::TorchRoutable),
    ("jax", Framework::Jax),
    ("deepspeed", Framework::DeepSpeed),
];
/// `ray` is replaced by other flags before it is looked up here.
const FRAMEWORKS_ADVICE: &str = "choose torch, torch=routable, jax, deepspeed or ray";
const PMI_VERSIONS: &[(&str, PmiVersion)] = &[("1.1", PmiVersion::Plain), ("1.2", PmiVersion::Groups)];

/// `--hosts` for commands that run no program.
pub const HOSTS_ALONE: Flag = Flag {
    help: "These hosts: n0,n1:8,n[2-5],gpu[01-04,07]-ib:2,user@n6,[fd00::1]; a number after a colon is its slots.",
    ..HOSTS
};

/// One program with its own flags: the words between two `:`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// All flags before the program; those that are not "per program" apply to the whole job.
    pub flags: Parsed,
    /// The program and its arguments; never empty after parsing.
    pub argv: Vec<OsString>,
}

/// Flags that say how agents are started and linked, which a standing session has already decided. `--start-timeout`
/// is not one of them: it also limits the imports of `--preload`, which each job may choose.
pub const DECIDED_BY_SESSION: &[Flag] =
    &[START, FANOUT, REMOTE_SHELL, INTERFACE, PLAIN_LINKS, EARLY_START, NODE_TIMEOUT, CONTAIN, AGENT_TRANSPORT, RECORD];

/// The ports for the sockets of ranks. Chosen: below the kernel's own range for outgoing connections, above most
/// services.
const PORTS: PortRange = PortRange { low: 10_240, high: 32_767 };

impl Parsed {
    pub fn names_hosts(&self) -> bool {
        !self.hosts.is_empty() || !self.host_files.is_empty()
    }

    /// Whether `--oversubscribe` or a property of `--map-by` lets nodes have more ranks than slots.
    pub fn may_oversubscribe(&self) -> bool {
        self.oversubscribe || self.map.properties.oversubscribe
    }

    /// Whether `--nooversubscribe` or a property of `--map-by` forbids more ranks than slots.
    pub fn refuses_oversubscription(&self) -> bool {
        self.no_oversubscribe || self.map.properties.no_oversubscribe
    }

    /// Whether `--nolocal` or a property of `--map-by` keeps ranks from this machine.
    pub fn excludes_local(&self) -> bool {
        self.no_local || self.map.properties.no_local
    }

    /// The sockets that ranks get before they start. With both flags the sockets do not listen.
    pub fn rank_ports(&self) -> Option<RankPorts> {
        let has_rendezvous = self.options.process.rank_env || self.options.process.framework.is_some();
        let is_wanted = self.reserve_ports || self.instant_on || (self.port_range.is_some() && !has_rendezvous);
        is_wanted.then(|| RankPorts { range: self.ports(), listen: !self.reserve_ports })
    }

    /// Ports for sockets that are opened on behalf of ranks.
    pub fn ports(&self) -> PortRange {
        self.port_range.unwrap_or(PORTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_name_belongs_to_one_flag() {
        let names: Vec<&str> = RUN.flags().flat_map(|flag| flag.names).copied().collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn exchange_schemes_and_transports_are_listed_in_the_help() {
        let exchanges = wireup_coll::allgather::schemes().map(|(name, _)| (EXCHANGE, name));
        let transports = wireup_wire::peer::AgentTransport::named().map(|(name, _)| (AGENT_TRANSPORT, name));
        for (flag, name) in exchanges.chain(transports) {
            let mut words = flag.help.split(|c: char| !c.is_alphanumeric() && c != '-');
            assert!(words.any(|word| word == name), "{} {name}", flag.name());
        }
    }
}
