//! The command `wireup run` and its flags, some of which other commands accept too.

use wireup_flags::{Command, Flag, Section, Takes, Words};

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

pub const RANKS: Flag = Flag::value(
    &["-n", "-np"],
    "N",
    "Number of ranks. Default: nodes times --ppn; else in an allocation one per task; with hosts one per slot, or per host if no slots are stated; else one per allowed cpu. Per program.",
);
pub const VIRTUAL_NODES: Flag = Flag::value(
    &["--virtual-nodes"],
    "N",
    "Start N agents on this machine, each a node of its own (node0, node1, ...).",
);
pub const PPN: Flag = Flag::value(
    &["--ppn", "--npernode", "--perhost", "-N"],
    "N",
    "N consecutive ranks on each node in turn; ranks beyond that start over at node 0.",
);
pub const MAP_BY: Flag = Flag::value(
    &["--map-by"],
    "HOW",
    "slot (default): consecutive ranks together, divided evenly. node: one rank a node in turn. ppr:N:node: N a node and no more; also ppr:N:OBJECT. An OBJECT: as slot; on a node ranks go to the objects in turn. OBJECT: thread, core, l1cache, l2cache, l3cache, numa, socket. seq: a rank on each host of the list in order. Behind a colon: pe=K (K cores for each rank), step=K (each K-th object), hwtcpus, oversubscribe, nooversubscribe, nolocal.",
);
pub const RANK_BY: Flag = Flag::value(
    &["--rank-by"],
    "HOW",
    "slot (default): in the order of --map-by. node: one rank a node in turn. fill: consecutive ranks on each node, and on each object of it.",
);
pub const RANKFILE: Flag = Flag::value(
    &["--rankfile"],
    "FILE",
    "Where each rank runs, a rank a line: rank 0=n1 slot=0-1. slot: cores, socket:cores, several with a semicolon, or * for all.",
);
pub const RANK_MAP: Flag =
    Flag::value(&["--rank-map"], "LIST", "The node of each rank, counted from 0: 0,0,1,1. Repeated for further ranks.");
pub const SLOTS: Flag = Flag::value(
    &["--slots"],
    "N",
    "Refuse more than N ranks on a node, and fill node after node up to N. Default: no limit, or what the list of hosts states.",
);
pub const USIZE: Flag = Flag::value(
    &["--usize"],
    "N",
    "Tell MPI that N ranks could run at once (MPI_UNIVERSE_SIZE). Default: the slots, if any are stated.",
);
pub const MEMORY_ALLOC_KINDS: Flag = Flag::value(
    &["--memory-alloc-kinds"],
    "KINDS",
    "Request these kinds of memory of the MPI library, such as mpi:alloc_mem,system; MPICH 5 asks for them. Default: none.",
);
pub const OVERSUBSCRIBE: Flag = Flag::switch(
    &["--oversubscribe"],
    "Take more ranks than there are slots: those beyond start over at the first node. max_slots of a host file stay.",
);
pub const NO_OVERSUBSCRIBE: Flag = Flag::switch(
    &["--nooversubscribe"],
    "Refuse more ranks than there are slots; without stated slots, than cpus of this machine.",
);
pub const NO_LOCAL: Flag =
    Flag::switch(&["--nolocal"], "Run no ranks on this machine, even if it is one of the hosts.");
pub const BIND_TO: Flag = Flag::value(
    &["--bind-to"],
    "WHAT",
    "even (default): a node's cores divided among its ranks, 2 or more each; with fewer, a NUMA domain each; with one domain, not bound. none. An OBJECT (as for --map-by), or OBJECT:N for N of them. user:LIST: cpus of each local rank (0-1,4+6). Behind a colon: overload-allowed. With an OBJECT in --map-by the default is that object; with pe=K, K cores. Virtual nodes share the machine unbound.",
);
pub const CPU_SET: Flag = Flag::value(
    &["--cpu-set"],
    "LIST",
    "Bind ranks to these cpus of each node only: 0-7,16-23, as taskset numbers them.",
);
pub const REPORT_BINDINGS: Flag =
    Flag::switch(&["--report-bindings"], "Show the processors of each node and which ranks are bound to them.");
pub const INSTANT_ON: Flag = Flag::switch(
    &["--instant-on"],
    "Give each rank a listening socket before it starts, and tell all ranks where the others listen (libwireup).",
);
pub const RESERVE_PORTS: Flag = Flag::switch(
    &["--reserve-ports"],
    "As --instant-on, but the sockets only keep the ports: the library of each rank listens there itself (libfabric).",
);
pub const RANK_PORTS: Flag = Flag::value(
    &["--rank-ports"],
    "LOW-HIGH",
    "Ports for --instant-on and --reserve-ports, consecutive on a node (default 10240-32767); alone, it implies --instant-on.",
);
pub const GPUS_PER_RANK: Flag = Flag::value(
    &["--gpus-per-rank"],
    "N",
    "Each rank sees N GPUs of its node: CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES or ZE_AFFINITY_MASK, divided where they are set, else of those that are there.",
);
pub const HOSTS: Flag = Flag::value(
    &["--hosts", "-H", "--host"],
    "LIST",
    "Run on these: n0,n1:8,n[2-5],gpu[01-04,07]-ib:2,user@n6,[fd00::1]. Behind a colon: slots. No limit unless slots are stated, by a number or by naming a host more than once; then a host without a number has one for each time it is named, or --slots. If a later program names hosts too, each runs on its own.",
);
pub const HOST_FILE: Flag = Flag::value(
    &["--hostfile", "-f", "--machinefile"],
    "FILE",
    "The same from a file, a host or a range a line: n0, n0:4, n0 slots=4 max_slots=8. # begins a comment.",
);
pub const START: Flag = Flag::value(
    &["--start"],
    "HOW",
    "ssh-tree (default): agents start the agents below them. ssh-flat: all are started from here. serial-ssh: one ssh per rank, one after the other; for comparisons only.",
);
pub const FANOUT: Flag = Flag::value(
    &["--fanout"],
    "K",
    "Children of each agent in the tree. Default: as few levels as 32 allow, then the smallest that needs no more.",
);
pub const REMOTE_SHELL: Flag = Flag::value(
    &["--remote-shell"],
    "CMD",
    "Start agents by this command, called as CMD HOST COMMAND; words that name files here (ssh -F conf/cfg) are passed on as absolute paths. Default: in a Slurm allocation srun, one step for all; with other hosts ssh, with your configuration and without questions; else child processes of this machine.",
);
pub const INTERFACE: Flag = Flag::value(
    &["--interface", "--iface"],
    "WHICH",
    "Let agents use only this network among themselves: an interface (eth0), an address of one, or a network (10.1.0.0/16). Default: as the remote shell came, then any other.",
);
pub const PLAIN_LINKS: Flag = Flag::switch(
    &["--plain-links"],
    "Do not encrypt the links between agents. Both ends are still authenticated by the run's secret.",
);
pub const EARLY_START: Flag = Flag::switch(
    &["--early-start"],
    "Start the ranks of each host as soon as it is there. Default: no rank starts before all hosts are there, so that a job with a missing host has run nothing.",
);
pub const START_TIMEOUT: Flag = Flag::value(
    &["--start-timeout"],
    "SECONDS",
    "If hosts have not started by then, the job fails with one message that names all of them. Default: 60.",
);
pub const NODE_TIMEOUT: Flag =
    Flag::value(&["--node-timeout"], "SECONDS", "A node that has not answered for this long is lost. Default: 30.");
pub const CONTAIN: Flag = Flag::value(
    &["--contain"],
    "HOW",
    "auto (default): where wireup may do so (CAP_SYS_ADMIN), the ranks of a node, or of all virtual nodes, run in a PID namespace, and nothing outlives wireup's processes even if all are killed at once. user: without that right, in a user namespace, where set-user-ID programs do not work and other users' files look like nobody's. none: do not.",
);
pub const SESSION: Flag = Flag::value(
    &["--session"],
    "NAME",
    "Run in this session, started by wireup up; it is an error if it is not running or lacks nodes. Default: the one that the variable WIREUP_SESSION names, as strictly; else the session named default, if it is running and has the requested nodes.",
);
pub const NO_SESSION: Flag = Flag::switch(
    &["--no-session"],
    "Start agents for this job only, even if there is a session, or WIREUP_SESSION names one.",
);
pub const PLACE: Flag = Flag::value(
    &["--place"],
    "HOW",
    "Which nodes of the session a job gets unless --hosts, --virtual-nodes, --rankfile or --rank-map says so. spread (default): those with the fewest ranks of all jobs per slot. pack: in the session's order, those with free slots first; without stated slots, always the first ones.",
);
pub const DETACH: Flag = Flag::switch(
    &["--detach"],
    "Return when the job has started and print its number; wireup attach shows its output and returns its exit code.",
);
pub const WDIR: Flag =
    Flag::value(&["--wdir", "--wd"], "DIR", "Working directory of the ranks. Default: the current one. Per program.");
pub const ENV: Flag = Flag {
    takes: Takes::Variable,
    ..Flag::switch(&["--env"], "Set a variable for the ranks of this program; NAME=VALUE or NAME VALUE.")
};
pub const EXPORT: Flag =
    Flag::value(&["-x"], "NAME[=V]", "The same; -x NAME alone takes the value from here. Per program.");
pub const ENV_FILE: Flag = Flag::value(
    &["--env-file"],
    "FILE",
    "Set the variables in FILE for all ranks: NAME=VALUE a line, as in a shell, but nothing is expanded.",
);
pub const GENV: Flag =
    Flag { takes: Takes::Variable, ..Flag::switch(&["--genv"], "Set a variable for all ranks of all programs.") };
pub const GENV_LIST: Flag = Flag::value(
    &["--genvlist"],
    "NAMES",
    "Of this environment ranks get only these variables: A,B,OMP_*; none; all (default). What other flags set is added.",
);
pub const ENV_LIST: Flag = Flag::value(&["--envlist"], "NAMES", "The same for one program. Per program.");
pub const RANK_ENV: Flag = Flag::switch(&["--rank-env"], "Also set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE.");
pub const LAUNCHER_ENV: Flag = Flag::switch(
    &["--launcher-env"],
    "Also set what mpirun sets, for scripts: OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE, _NODE_RANK, MV2_COMM_WORLD_RANK and so on. As mpiexec always so.",
);
pub const PMI: Flag = Flag::value(
    &["--pmi"],
    "WHICH",
    "auto (default): as the program's libraries tell; scripts, shells and interpreters get both. simple: PMI-1 and PMI-2. pmix: a PMIx server on each node (Open MPI). both. none: offer nothing.",
);
pub const MODEX: Flag = Flag::value(
    &["--modex"],
    "WHEN",
    "When data committed by PMIx programs is sent to other nodes. full: with the fence that collects it. direct: when a rank first asks for it. auto (default): full while it is small.",
);
pub const PMIX_LIBRARY: Flag = Flag::value(
    &["--pmix-library"],
    "PATH",
    "Open this libpmix on the nodes for the PMIx server. Default: the program's own, else the system's.",
);
pub const EXCHANGE: Flag = Flag::value(
    &["--exchange"],
    "SCHEME",
    "How nodes exchange what fences and allgathers bring: tree, ring, log, or auto (default): as suits nodes and bytes.",
);
pub const EARLY_WIREUP: Flag = Flag::value(
    &["--early-wireup"],
    "WHEN",
    "Links that the first exchange needs are made while ranks start: yes, no, or auto (default): with --exchange ring or log.",
);
pub const AGENT_TRANSPORT: Flag = Flag::value(
    &["--agent-transport"],
    "HOW",
    "How agents that are not neighbours in the tree reach each other: tree (hop by hop), tcp, ucx, or auto (default): tcp.",
);
pub const EXCHANGE_COMPRESS: Flag = Flag::value(
    &["--exchange-compress"],
    "BYTES",
    "Compress what a node gives to an exchange from that many bytes on, if it shrinks; 0: never (default). For business cards on slow links; see docs/reference/pmi.md.",
);
pub const PMI_FENCE: Flag = Flag::value(
    &["--pmi-fence"],
    "WHEN",
    "strict (default): a fence ends when all ranks have entered it. lazy: it ends at once after puts, and gets wait instead; unsafe if a fence orders anything else than pairs.",
);
pub const PMI_VERSION: Flag = Flag::value(
    &["--pmi-version"],
    "VERSION",
    "The PMI-1 version offered to programs: 1.1, or 1.2 with barriers of groups. Default: the version that they ask for.",
);
pub const STDIN: Flag = Flag::value(&["--stdin"], "WHO", "Who reads standard input: a rank (default: 0), all, none.");
pub const LABEL: Flag = Flag::switch(
    &["--label", "-l", "--prepend-rank", "--tag-output"],
    "Begin each line of output with its rank: [3] text.",
);
pub const OUTPUT_DIR: Flag = Flag::value(
    &["--output-dir"],
    "DIR",
    "Write each rank's output to files in DIR instead (rank.N.out, rank.N.err). It is an error if DIR has such files of an earlier run.",
);
pub const OVERWRITE: Flag = Flag::switch(
    &["--overwrite"],
    "--output-dir may name a folder with the output of an earlier run: the files of this job's ranks are replaced, those of further ranks are kept.",
);
pub const OUTPUT_FILES: Flag = Flag::value(
    &["--output-files"],
    "PATTERN",
    "Write standard output to these files instead: %r is the rank (%0r with zeros before it), %h the host, %n the number of the node, %s the number of ranks, %% a percent sign. Folders are made.",
);
pub const ERROR_FILES: Flag = Flag::value(&["--error-files"], "PATTERN", "The same for standard error.");
pub const TEE: Flag = Flag::switch(&["--tee"], "Show output that is written to files, too.");
pub const MERGE_OUTPUT: Flag =
    Flag::switch(&["--merge-output"], "What ranks write to standard error goes to standard output.");
pub const TIMESTAMP: Flag = Flag::switch(&["--timestamp"], "Begin each line of output with the time of its arrival.");
pub const LABEL_PATTERN: Flag = Flag::value(
    &["--label-pattern"],
    "PATTERN",
    "Begin each line with this text, in which %r, %h, %n, %s mean the same as in --output-files.",
);
pub const LINE_BUFFERED: Flag = Flag::switch(
    &["--line-buffered"],
    "Never show a part of a line before its end is there. Default: short ones after 0.2 s, as prompts, of the rank that reads standard input.",
);
pub const PTY: Flag = Flag {
    takes: Takes::MaybeNumber("RANK"),
    ..Flag::switch(&["--pty"], "Give one rank (default: 0) a pseudo-terminal.")
};
pub const STDOUT: Flag = Flag::value(
    &["--stdout"],
    "KIND",
    "Connect each rank's standard output to a pipe or to a pseudo-terminal (pty), to which C programs write line by line (default: auto, a pty for programs that use only PMIx, such as those built with Open MPI).",
);
pub const TIMEOUT: Flag = Flag::value(
    &["--timeout"],
    "SECONDS",
    "End the job after this time, with exit code 124; 0: never. Default: never.",
);
pub const KILL_GRACE: Flag = Flag::value(
    &["--kill-grace"],
    "SECONDS",
    "Time between the gentle end of ranks (SIGTERM) and the forced one (SIGKILL). Default: 2.",
);
pub const STALL_REPORT: Flag = Flag::value(
    &["--stall-report"],
    "SECONDS",
    "Name the ranks that others have been waiting for in a fence that long; 0: never. Default: 30.",
);
pub const VERBOSE: Flag =
    Flag::switch(&["--verbose", "-v"], "Say in one line what was chosen (PMI, binding, tree, exchange) and why.");
pub const DISPLAY_MAP: Flag = Flag::switch(&["--display-map"], "Show which ranks go to which node, then run.");
pub const DRY_RUN: Flag = Flag::switch(&["--dry-run"], "Show the map and what was chosen, start nothing.");
pub const PROFILE: Flag = Flag::value(
    &["--profile"],
    "FILE",
    "Show where the time of the start went; write a trace for https://ui.perfetto.dev to FILE.",
);
pub const RECORD: Flag = Flag::value(&["--record"], "DIR", "Record what every agent is told, for wireup replay.");
/// Flags of other launchers that are the default, or unnecessary, here.
const IGNORED: Flag = Flag::switch(&["--genvall", "--envall", "--allow-run-as-root", "--quiet", "-q"], "");

pub const MACHINES: &[Flag] =
    &[HOSTS, HOST_FILE, START, FANOUT, REMOTE_SHELL, INTERFACE, PLAIN_LINKS, START_TIMEOUT, NODE_TIMEOUT, CONTAIN];

pub const STAGE: Flag = Flag {
    takes: Takes::Attached("HOW"),
    ..Flag::switch(
        &["--stage"],
        "Copy the program and all that it needs to every node first; ranks see the copies in place of the originals. =DIR keeps the copies there (default: in the node's memory, /dev/shm). =require: ranks do not start without them. =auto: only if what they need lies on a network file system and they are so many that it saves time.",
    )
};
pub const STAGE_ALSO: Flag = Flag::value(
    &["--stage-also"],
    "PATH",
    "Stage this too: a file, a folder with all that is in it, or a pattern (plugins that the program opens, data). Implies --stage.",
);
pub const STAGE_LIBRARY: Flag = Flag::switch(
    &["--stage-library"],
    "Where no mount may be made, show the copies by a library in each process. Implies --stage.",
);
pub const STAGE_ROOM: Flag = Flag::value(
    &["--stage-room"],
    "MIB",
    "Most MiB that a node keeps of staged files; those that were not used for the longest time make room. Default: half of what is free there.",
);
pub const STAGE_OUT: Flag = Flag::value(
    &["--stage-out"],
    "PATTERN=>DIR",
    "When the job is over, also after a failure, gather the nodes' files that match into DIR here. {rank} and {node} stand for each rank and its node. Nothing is overwritten. May be repeated.",
);
const SECTIONS: &[Section] = &[
    Section {
        title: "How many, and where",
        flags: &[
            RANKS,
            VIRTUAL_NODES,
            PPN,
            MAP_BY,
            RANK_BY,
            RANKFILE,
            RANK_MAP,
            SLOTS,
            OVERSUBSCRIBE,
            USIZE,
            NO_OVERSUBSCRIBE,
            NO_LOCAL,
            BIND_TO,
            CPU_SET,
            GPUS_PER_RANK,
            INSTANT_ON,
            RESERVE_PORTS,
            RANK_PORTS,
        ],
    },
    Section { title: "Machines", flags: MACHINES },
    Section { title: "In a session (wireup up)", flags: &[SESSION, NO_SESSION, PLACE, DETACH] },
    Section {
        title: "What ranks start with",
        flags: &[
            WDIR,
            ENV,
            EXPORT,
            ENV_FILE,
            GENV,
            GENV_LIST,
            ENV_LIST,
            RANK_ENV,
            LAUNCHER_ENV,
            PMI,
            MODEX,
            PMIX_LIBRARY,
            EXCHANGE,
            EARLY_WIREUP,
            AGENT_TRANSPORT,
            EXCHANGE_COMPRESS,
            PMI_FENCE,
            PMI_VERSION,
            MEMORY_ALLOC_KINDS,
        ],
    },
    Section { title: "Files", flags: &[STAGE, STAGE_ALSO, STAGE_LIBRARY, STAGE_ROOM, STAGE_OUT] },
    Section {
        title: "Standard input and output",
        flags: &[
            STDIN,
            LABEL,
            LABEL_PATTERN,
            TIMESTAMP,
            MERGE_OUTPUT,
            OUTPUT_DIR,
            OVERWRITE,
            OUTPUT_FILES,
            ERROR_FILES,
            TEE,
            LINE_BUFFERED,
            STDOUT,
            PTY,
        ],
    },
    Section { title: "Ends and hangs", flags: &[EARLY_START, TIMEOUT, KILL_GRACE, STALL_REPORT] },
    Section { title: "To see what happens", flags: &[VERBOSE, DISPLAY_MAP, REPORT_BINDINGS, DRY_RUN, PROFILE, RECORD] },
    Section { title: "Not listed", flags: &[IGNORED] },
];

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
