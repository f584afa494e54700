//! The command `wireup run`: its flags, how the value of each is read, and the struct of their values.
//!
//! A flag is one row here and the place that uses its field. Rows whose field is a part of `options` or `output` write
//! what nodes and launcher are given as it is; the other fields are resolved with the surroundings first.

use super::interface;
use super::mapping::{self, Bind, Map, RankBy};
use super::values::{
    Contain, EnvList, Stage, StageWord, Start, Variable, export, memory_kinds, pattern, port_range, report_file,
    some_time, stage, stage_out, stdin, trace_file,
};
use std::ffi::OsString;
use std::path::PathBuf;
use wireup_flags::table::on;
use wireup_flags::{Command, Flag, Takes, Value, Words, flag_table};
use wireup_node::launcher::Output;
use wireup_stage::gather::Rule;
use wireup_wire::job::{
    EarlyWireup, JobOptions, Modex, PmiFence, PmiFlavour, PmiVersion, PortRange, RankPorts, RankStdout, StdinTarget,
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
  wireup run -n 16 ./app input.dat                    16 ranks; what follows the program is the program's
  wireup run --hosts n[0-3] --ppn 16 ./app            4 machines, 16 ranks each
  wireup run --hostfile hosts --label ./app           machines from a file, a rank per slot
  wireup run -n 64 --virtual-nodes 4 ./app            4 nodes on this machine, 16 ranks each
  wireup run -n 8 --label ./app : -n 2 ./other        two programs in one job: ranks 0-7 and 8-9
  wireup run -n 4 -x OMP_NUM_THREADS=2 ./app          a variable for the ranks
  wireup run -n 64 --profile trace.json ./app         where the time of the start goes
  wireup run -n 64 --report start.html ./app          the same as a page for a web browser
  wireup run -n 64 --dry-run ./app                    what would happen

usage: wireup run [FLAGS] PROGRAM [ARGUMENTS] [: [FLAGS] PROGRAM [ARGUMENTS]]...
Flags come before the program; one dash is as good as two (-np, -wdir). \"Per program\" flags belong to the program
that follows them, all others to the job. A program that is named without a slash is looked for on PATH, then in the
working directory.
";

const RUN_END: &str = "
Ranks have WIREUP_RANK, WIREUP_SIZE, WIREUP_LOCAL_RANK, WIREUP_LOCAL_SIZE, WIREUP_NODE in their environment; the rest is
this environment without the variables of an outer launcher. In a job with other machines, variables that apply only to
this machine are removed too, unless -x names them: HOSTNAME, SSH_*, XDG_RUNTIME_DIR, XDG_SESSION_*,
DBUS_SESSION_BUS_ADDRESS, WIREUP_SESSION. Working directory, umask and soft limits (ulimit) are those of wireup run on
every machine, as far as its hard limits allow.

Without --hosts and --hostfile the hosts are those of WIREUP_HOSTS (written as --hosts), else those of the surrounding
batch job (Slurm, PBS, LSF, Flux, Grid Engine), else this machine.

While a job runs: Ctrl-C is passed on to the ranks, a second one kills them; other signals are passed on; SIGALRM
(kill -ALRM) to wireup shows which ranks the others wait for.

Exit code: that of the first rank that failed, 128 + signal if a signal killed it; 124 after --timeout, 125 if wireup
itself could not do what was asked, 126 if the program cannot be executed, 127 if it is not found.
";

flag_table! {
    /// The values of all flags of one command line; `None`, `false` or empty if not given.
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct Parsed {
        /// The programs with the flags of each; empty for a command that runs none.
        pub programs: Vec<Program>,
        /// What a rankfile says about the processors of each rank.
        pub rank_slots: Vec<String>,
        /// What is told to the nodes, as far as flags alone decide it.
        pub options: JobOptions,
        /// Where output goes besides standard output and error.
        pub output: Output,
    }

    [RANKS_AND_NODES: "How many, and where"]

    RANKS = Flag::value(&["-n", "-np"], "N", "Per program: number of ranks (default: nodes times --ppn; else in an \
        allocation one per task; with hosts one per slot, or per host if no slots are stated; else one per allowed \
        cpu).")
        => ranks: Option<u32> = |value| value.number_in(1, JOB_SIZE_MAX);
    VIRTUAL_NODES = Flag::value(&["--virtual-nodes"], "N",
        "Start N agents on this machine, each a node of its own (node0, node1, ...).")
        => virtual_nodes: Option<u32> = |value| value.number_in(1, VIRTUAL_NODES_MAX);
    PPN = Flag::value(&["--ppn", "--npernode", "--perhost", "-N"], "N",
        "N consecutive ranks on each node in turn; ranks beyond that start over at node 0.")
        => ppn: Option<u32> = |value| value.number_in(1, PPN_MAX);
    MAP_BY = Flag::value(&["--map-by"], "HOW", "slot: consecutive ranks together, divided evenly (default); node: one \
        rank a node in turn; ppr:N:node: N a node and no more; also ppr:N:OBJECT; an OBJECT: as slot, and on a node \
        ranks go to the objects in turn (thread, core, l1cache, l2cache, l3cache, numa, socket); seq: a rank on each \
        host of the list in order; behind a colon: pe=K (K cores for each rank), step=K (each K-th object), hwtcpus, \
        oversubscribe, nooversubscribe, nolocal.")
        => map: Map = mapping::map_by;
    RANK_BY = Flag::value(&["--rank-by"], "HOW", "slot: in the order of --map-by (default); node: one rank a node in \
        turn; fill: consecutive ranks on each node, and on each object of it.")
        => rank_by: Option<RankBy> = mapping::rank_by;
    RANKFILE = Flag::value(&["--rankfile"], "FILE", "Where each rank runs, a rank a line: rank 0=n1 slot=0-1, where \
        slot is cores, socket:cores, several with a semicolon, or * for all.")
        => rankfile: Option<PathBuf> = Value::path;
    RANK_MAP = Flag::value(&["--rank-map"], "LIST",
        "The node of each rank, counted from 0: 0,0,1,1; repeated for further ranks.")
        => rank_map: Option<Vec<u32>> = mapping::rank_map;
    SLOTS = Flag::value(&["--slots"], "N", "Refuse more than N ranks on a node, and fill node after node up to N \
        (default: no limit, or what the list of hosts states).")
        => slots: Option<u32> = Value::at_least_one;
    OVERSUBSCRIBE = Flag::switch(&["--oversubscribe"], "Take more ranks than there are slots: those beyond start over \
        at the first node; max_slots of a host file stay.")
        => oversubscribe: bool = on;
    USIZE = Flag::value(&["--usize"], "N",
        "Tell MPI that N ranks could run at once (MPI_UNIVERSE_SIZE; default: the slots, if any are stated).")
        => options.pmi.universe_size = Value::at_least_one;
    NO_OVERSUBSCRIBE = Flag::switch(&["--nooversubscribe"],
        "Refuse more ranks than there are slots; without stated slots, than cpus of this machine.")
        => no_oversubscribe: bool = on;
    NO_LOCAL = Flag::switch(&["--nolocal"], "Run no ranks on this machine, even if it is one of the hosts.")
        => no_local: bool = on;
    BIND_TO = Flag::value(&["--bind-to"], "WHAT", "even: a node's cores divided among its ranks, 2 or more each; with \
        fewer, a NUMA domain each; with one domain, not bound (default, but with an OBJECT in --map-by that object, \
        and with pe=K K cores); none; an OBJECT (as for --map-by), or OBJECT:N for N of them; user:LIST: cpus of each \
        local rank (0-1,4+6); behind a colon: overload-allowed; virtual nodes share the machine unbound.")
        => bind: Bind = mapping::bind_to;
    CPU_SET = Flag::value(&["--cpu-set"], "LIST",
        "Bind ranks to these cpus of each node only: 0-7,16-23, as taskset numbers them.")
        => options.binding.cpus = mapping::cpu_set;
    GPUS_PER_RANK = Flag::value(&["--gpus-per-rank"], "N", "Each rank sees N GPUs of its node: CUDA_VISIBLE_DEVICES, \
        ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES or ZE_AFFINITY_MASK, divided where they are set, else of those that \
        are there.")
        => options.process.gpus_per_rank = Value::at_least_one;
    INSTANT_ON = Flag::switch(&["--instant-on"],
        "Give each rank a listening socket before it starts, and tell all ranks where the others listen (libwireup).")
        => instant_on: bool = on;
    RESERVE_PORTS = Flag::switch(&["--reserve-ports"], "As --instant-on, but the sockets only keep the ports: the \
        library of each rank listens there itself (libfabric).")
        => reserve_ports: bool = on;
    RANK_PORTS = Flag::value(&["--rank-ports"], "LOW-HIGH", "Ports for --instant-on and --reserve-ports, consecutive \
        on a node (default: 10240-32767); alone, it implies --instant-on.")
        => port_range: Option<PortRange> = port_range;

    [MACHINES: "Machines"]

    HOSTS = Flag::value(&["--hosts", "-H", "--host"], "LIST", "Run on these: \
        n0,n1:8,n[2-5],gpu[01-04,07]-ib:2,user@n6,[fd00::1]; behind a colon: slots, without a limit unless slots are \
        stated, by a number or by naming a host more than once; then a host without a number has one for each time it \
        is named, or --slots; if a later program names hosts too, each runs on its own.")
        => hosts: Vec<String> = Value::text;
    HOST_FILE = Flag::value(&["--hostfile", "-f", "--machinefile"], "FILE",
        "Run on the hosts in FILE, a host or a range a line: n0, n0:4, n0 slots=4 max_slots=8; # begins a comment.")
        => host_files: Vec<PathBuf> = Value::path;
    START = Flag::value(&["--start"], "HOW", "ssh-tree: agents start the agents below them (default); ssh-flat: all \
        are started from here; serial-ssh: one ssh per rank, one after the other, for comparisons only.")
        => start: Option<Start> = |value| value.choice(Start::NAMED);
    FANOUT = Flag::value(&["--fanout"], "K", "Children of each agent in the tree (default: as few levels as 32 allow, \
        then the smallest that needs no more).")
        => fanout: Option<u32> = Value::at_least_one;
    REMOTE_SHELL = Flag::value(&["--remote-shell"], "CMD", "Start agents by this command, called as CMD HOST COMMAND; \
        words that name files here (ssh -F conf/cfg) are passed on as absolute paths (default: in a Slurm allocation \
        srun, one step for all; with other hosts ssh, with your configuration and without questions; else child \
        processes of this machine).")
        => remote_shell: Option<String> = Value::text;
    INTERFACE = Flag::value(&["--interface", "--iface"], "WHICH", "Network between agents: an interface (eth0), an \
        address of one, or a network (10.1.0.0/16) (default: the one that the remote shell used, then any other).")
        => interface: Option<String> = interface::checked;
    PLAIN_LINKS = Flag::switch(&["--plain-links"],
        "Do not encrypt the links between agents; both ends are still authenticated by the run's secret.")
        => plain_links: bool = on;
    START_TIMEOUT = Flag::value(&["--start-timeout"], "SECONDS",
        "If hosts have not started by then, the job fails with one message that names all of them (default: 60).")
        => start_timeout_ns: Option<u64> = Value::some_seconds_ns;
    NODE_TIMEOUT = Flag::value(&["--node-timeout"], "SECONDS",
        "A node that has not answered for this long is lost (default: 30).")
        => node_timeout_ns: Option<u64> = Value::some_seconds_ns;
    CONTAIN = Flag::value(&["--contain"], "HOW", "auto: where wireup may do so (CAP_SYS_ADMIN), the ranks of a node, \
        or of all virtual nodes, run in a PID namespace, and nothing outlives wireup's processes even if all are \
        killed at once (default); user: without that right, in a user namespace, where set-user-ID programs do not \
        work and other users' files look like nobody's; none: do not.")
        => contain: Option<Contain> = |value| value.choice(Contain::NAMED);

    [IN_SESSION: "In a session (wireup up)"]

    SESSION = Flag::value(&["--session"], "NAME", "Run in this session, started by wireup up; it is an error if it is \
        not running or lacks nodes (default: the one that the variable WIREUP_SESSION names, as strictly; else the \
        session named default, if it is running and has the requested nodes).")
        => session: Option<String> = Value::text;
    NO_SESSION = Flag::switch(&["--no-session"],
        "Start agents for this job only, even if there is a session, or WIREUP_SESSION names one.")
        => no_session: bool = on;
    PLACE = Flag::value(&["--place"], "HOW", "Which nodes of the session a job gets unless --hosts, --virtual-nodes, \
        --rankfile or --rank-map says so: spread: those with the fewest ranks of all jobs per slot (default); pack: in \
        the session's order, those with free slots first; without stated slots, always the first ones.")
        => place: Option<SeatOrder> = |value| value.choice(SEAT_ORDERS);
    DETACH = Flag::switch(&["--detach"], "Return when the job has started and print its number; wireup attach shows \
        its output and returns its exit code.")
        => detach: bool = on;

    [RANKS_START_WITH: "What ranks start with"]

    WDIR = Flag::value(&["--wdir", "--wd"], "DIR",
        "Per program: working directory of the ranks (default: the current one).")
        => wdir: Option<PathBuf> = Value::path;
    ENV = Flag { takes: Takes::Variable, ..Flag::switch(&["--env"],
        "Per program: set a variable for its ranks; NAME=VALUE or NAME VALUE.") }
        => env: Vec<Variable> = |value| value.variable().map(Variable::Set);
    EXPORT = Flag::value(&["-x"], "NAME[=V]",
        "Per program: set a variable for its ranks; -x NAME alone takes the value from here.")
        => env = export;
    ENV_FILE = Flag::value(&["--env-file"], "FILE",
        "Set the variables in FILE for all ranks: NAME=VALUE a line, as in a shell, but nothing is expanded.")
        => env_files: Vec<PathBuf> = Value::path;
    GENV = Flag { takes: Takes::Variable, ..Flag::switch(&["--genv"], "Set a variable for all ranks of all programs.") }
        => genv: Vec<Vec<u8>> = Value::variable;
    GENV_LIST = Flag::value(&["--genvlist"], "NAMES", "Of this environment ranks get only these variables: A,B,OMP_*; \
        none; all (default); what other flags set is added.")
        => genv_list: Option<EnvList> = EnvList::read;
    ENV_LIST = Flag::value(&["--envlist"], "NAMES",
        "Per program: of this environment its ranks get only these variables, written as for --genvlist.")
        => env_list: Option<EnvList> = EnvList::read;
    RANK_ENV = Flag::switch(&["--rank-env"], "Also set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE.")
        => options.process.rank_env = on;
    LAUNCHER_ENV = Flag::switch(&["--launcher-env"], "Also set what mpirun sets, for scripts: OMPI_COMM_WORLD_RANK, \
        _SIZE, _LOCAL_RANK, _LOCAL_SIZE, _NODE_RANK, MV2_COMM_WORLD_RANK and so on (default only if called as \
        mpiexec).")
        => options.process.launcher_env = on;
    PMI = Flag::value(&["--pmi"], "WHICH", "auto: as the program's libraries tell; scripts, shells and interpreters \
        get both (default); simple: PMI-1 and PMI-2; pmix: a PMIx server on each node (Open MPI); both; none: offer \
        nothing.")
        => pmi: Option<PmiFlavour> = |value| value.choice(PMIS);
    MODEX = Flag::value(&["--modex"], "WHEN", "When data committed by PMIx programs is sent to other nodes: full: with \
        the fence that collects it; direct: when a rank first asks for it; auto: full while it is small (default).")
        => options.pmi.modex = |value| value.choice(MODEXES);
    PMIX_LIBRARY = Flag::value(&["--pmix-library"], "PATH",
        "Open this libpmix on the nodes for the PMIx server (default: the program's own, else the system's).")
        => pmix_library: Option<PathBuf> = Value::path;
    EXCHANGE = Flag::value(&["--exchange"], "SCHEME", "How nodes exchange what fences and allgathers bring: tree, \
        ring, log, or auto (default): as suits nodes and bytes.")
        => options.exchange.scheme = |value| value.choice(&wireup_coll::allgather::schemes().collect::<Vec<_>>());
    EARLY_WIREUP = Flag::value(&["--early-wireup"], "WHEN", "Links that the first exchange needs are made while ranks \
        start: yes, no, or auto (default): with --exchange ring or log.")
        => options.exchange.early_wireup = |value| value.choice(EARLY_WIREUPS);
    AGENT_TRANSPORT = Flag::value(&["--agent-transport"], "HOW", "How agents that are not neighbours in the tree reach \
        each other: tree (hop by hop), tcp, ucx, or auto (default): tcp.")
        => transport: Option<AgentTransport> = |value| value.choice(&AgentTransport::named().collect::<Vec<_>>());
    EXCHANGE_COMPRESS = Flag::value(&["--exchange-compress"], "BYTES", "Compress what a node gives to an exchange from \
        that many bytes on, if it shrinks, as business cards on slow links do; 0: never (default); see \
        docs/reference/pmi.md.")
        => options.exchange.compress_bytes_min = Value::number;
    PMI_FENCE = Flag::value(&["--pmi-fence"], "WHEN", "strict: a fence ends when all ranks have entered it (default); \
        lazy: it ends at once after puts, and gets wait instead; unsafe if a fence orders anything else than pairs.")
        => options.pmi.fence = |value| value.choice(PMI_FENCES);
    PMI_VERSION = Flag::value(&["--pmi-version"], "VERSION", "The PMI-1 version offered to programs: 1.1, or 1.2 with \
        barriers of groups (default: the version that they ask for).")
        => options.pmi.version = |value| value.choice(PMI_VERSIONS);
    MEMORY_ALLOC_KINDS = Flag::value(&["--memory-alloc-kinds"], "KINDS", "Request these kinds of memory of the MPI \
        library, such as mpi:alloc_mem,system; MPICH 5 asks for them (default: none).")
        => options.pmi.memory_alloc_kinds = memory_kinds;

    [FILES: "Files"]

    STAGE = Flag { takes: Takes::Attached("HOW"), ..Flag::switch(&["--stage"], "Copy the program and all that it needs \
        to every node first; ranks see the copies in place of the originals; =DIR keeps the copies there (default: in \
        the node's memory, /dev/shm); =require: ranks do not start without them; =auto: only if what they need lies on \
        a network file system and they are so many that it saves time.") }
        => stage: Option<Stage> = stage;
    STAGE_ALSO = Flag::value(&["--stage-also"], "PATH", "Stage this too: a file, a folder with all that is in it, or a \
        pattern (plugins that the program opens, data); implies --stage.")
        => stage = |value| value.path().map(StageWord::Also);
    STAGE_LIBRARY = Flag::switch(&["--stage-library"],
        "Where no mount may be made, show the copies by a library in each process; implies --stage.")
        => stage = |_| Ok(StageWord::ByLibrary);
    STAGE_ROOM = Flag::value(&["--stage-room"], "MIB", "Most MiB that a node keeps of staged files; those that were \
        not used for the longest time make room (default: half of what is free there).")
        => stage = |value| value.at_least_one().map(StageWord::RoomMib);
    STAGE_OUT = Flag::value(&["--stage-out"], "PATTERN=>DIR", "When the job is over, also after a failure, gather the \
        nodes' files that match into DIR here; {rank} and {node} stand for each rank and its node; nothing is \
        overwritten; may be repeated.")
        => stage_out: Vec<Rule> = stage_out;

    [INPUT_AND_OUTPUT: "Standard input and output"]

    STDIN = Flag::value(&["--stdin"], "WHO", "Who reads standard input: a rank, all, none (default: 0).")
        => stdin: Option<StdinTarget> = stdin;
    LABEL = Flag::switch(&["--label", "-l", "--prepend-rank", "--tag-output"],
        "Begin each line of output with its rank: [3] text.")
        => options.stdio.label = on;
    LABEL_PATTERN = Flag::value(&["--label-pattern"], "PATTERN",
        "Begin each line with this text, in which %r, %h, %n, %s mean the same as in --output-files.")
        => output.label = pattern;
    TIMESTAMP = Flag::switch(&["--timestamp"], "Begin each line of output with the time of its arrival.")
        => output.timestamp = on;
    MERGE_OUTPUT = Flag::switch(&["--merge-output"], "What ranks write to standard error goes to standard output.")
        => output.merge = on;
    OUTPUT_DIR = Flag::value(&["--output-dir"], "DIR", "Write each rank's output to files in DIR instead (rank.N.out, \
        rank.N.err); it is an error if DIR has such files of an earlier run.")
        => output.directory = Value::path;
    OVERWRITE = Flag::switch(&["--overwrite"], "--output-dir may name a folder with the output of an earlier run: the \
        files of this job's ranks are replaced, those of further ranks are kept.")
        => output.overwrite = on;
    OUTPUT_FILES = Flag::value(&["--output-files"], "PATTERN", "Write standard output to these files instead: %r is \
        the rank (%0r with zeros before it), %h the host, %n the number of the node, %s the number of ranks, %% a \
        percent sign; folders are made.")
        => output.files[0] = pattern;
    ERROR_FILES = Flag::value(&["--error-files"], "PATTERN",
        "Write standard error to these files instead, with the pattern of --output-files.")
        => output.files[1] = pattern;
    TEE = Flag::switch(&["--tee"], "Show output that is written to files, too.") => output.tee = on;
    LINE_BUFFERED = Flag::switch(&["--line-buffered"], "Never show a part of a line before its end is there (default: \
        short ones after 0.2 s, as prompts, of the rank that reads standard input).")
        => options.stdio.line_buffered = on;
    STDOUT = Flag::value(&["--stdout"], "KIND", "Connect each rank's standard output to a pipe or to a pseudo-terminal \
        (pty), to which C programs write line by line (default: auto, a pty for programs that use only PMIx, such as \
        those built with Open MPI).")
        => stdout: Option<RankStdout> = |value| value.choice(STDOUTS);
    PTY = Flag { takes: Takes::MaybeNumber("RANK"), ..Flag::switch(&["--pty"],
        "Give one rank a pseudo-terminal (default: 0).") }
        => pty: Option<u32> = Value::number;

    [ENDS: "Ends and hangs"]

    EARLY_START = Flag::switch(&["--early-start"], "Start the ranks of each host as soon as it is there (default: no \
        rank starts before all hosts are there, so that a job with a missing host has run nothing).")
        => early_start: bool = on;
    TIMEOUT = Flag::value(&["--timeout"], "SECONDS",
        "End the job after this time, with exit code 124; 0: never (default).")
        => timeout_ns: Option<u64> = some_time;
    KILL_GRACE = Flag::value(&["--kill-grace"], "SECONDS", "Time between SIGTERM and SIGKILL for ranks that are ended.")
        .or(KILL_GRACE_SECONDS)
        => options.kill_grace_ns = Value::seconds_ns;
    STALL_REPORT = Flag::value(&["--stall-report"], "SECONDS",
        "Report the ranks that others have been waiting for in a fence that long; 0: never.")
        .or(STALL_REPORT_SECONDS)
        => options.stall_report_ns = Value::seconds_ns;

    [SHOWN: "To see what happens"]

    VERBOSE = Flag::switch(&["--verbose", "-v"],
        "Say in one line what was chosen (PMI, binding, tree, exchange) and why.")
        => verbose: bool = on;
    DISPLAY_MAP = Flag::switch(&["--display-map"], "Show which ranks go to which node, then run.")
        => display_map: bool = on;
    REPORT_BINDINGS = Flag::switch(&["--report-bindings"],
        "Show the processors of each node and which ranks are bound to them.")
        => options.report_bindings = on;
    DRY_RUN = Flag::switch(&["--dry-run"], "Show the map and what was chosen, start nothing.") => dry_run: bool = on;
    PROFILE = Flag::value(&["--profile"], "FILE",
        "Show where the time of the start went; write a trace for https://ui.perfetto.dev to FILE.")
        => profile: Option<PathBuf> = trace_file;
    REPORT = Flag::value(&["--report"], "FILE",
        "Write a page about the start to FILE, for a web browser: timeline, slowest nodes and ranks, settings.")
        => report: Option<PathBuf> = report_file;
    RECORD = Flag::value(&["--record"], "DIR", "Record what every agent is told, for wireup replay.")
        => record: Option<String> = Value::text;

    [UNLISTED: "Not listed"]

    // Flags of other launchers that are the default, or unnecessary, here.
    IGNORED = Flag::switch(&["--genvall", "--envall", "--allow-run-as-root", "--quiet", "-q"], "");
}

/// Chosen: long enough to write a last line and remove a file, short enough to wait for.
const KILL_GRACE_SECONDS: &str = "2";
/// Chosen: no healthy fence takes that long.
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
const PMI_VERSIONS: &[(&str, PmiVersion)] = &[("1.1", PmiVersion::Plain), ("1.2", PmiVersion::Groups)];

/// One program with its own flags: the words between two `:`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// All flags before it; those that are not "per program" count for the whole job.
    pub flags: Parsed,
    /// Program and arguments; never empty after parsing.
    pub argv: Vec<OsString>,
}

/// Flags that say how agents are started and linked, which a standing session has already decided.
pub const DECIDED_BY_SESSION: &[Flag] = &[
    START, FANOUT, REMOTE_SHELL, INTERFACE, PLAIN_LINKS, EARLY_START, START_TIMEOUT, NODE_TIMEOUT, CONTAIN,
    AGENT_TRANSPORT, RECORD,
];

/// The ports for the sockets of ranks. Chosen: below the kernel's own range for outgoing connections, above most
/// services.
const PORTS: PortRange = PortRange { low: 10_240, high: 32_767 };

impl Parsed {
    pub fn names_hosts(&self) -> bool {
        !self.hosts.is_empty() || !self.host_files.is_empty()
    }

    /// Whether `--oversubscribe` or a property of `--map-by` says so.
    pub fn may_oversubscribe(&self) -> bool {
        self.oversubscribe || self.map.properties.oversubscribe
    }

    /// Whether `--nooversubscribe` or a property of `--map-by` says so.
    pub fn refuses_oversubscription(&self) -> bool {
        self.no_oversubscribe || self.map.properties.no_oversubscribe
    }

    /// Whether `--nolocal` or a property of `--map-by` says so.
    pub fn excludes_local(&self) -> bool {
        self.no_local || self.map.properties.no_local
    }

    /// The sockets that ranks get before they start. With both flags the sockets do not listen.
    pub fn rank_ports(&self) -> Option<RankPorts> {
        let is_wanted = self.port_range.is_some() || self.reserve_ports || self.instant_on;
        is_wanted.then(|| RankPorts { range: self.port_range.unwrap_or(PORTS), listen: !self.reserve_ports })
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
