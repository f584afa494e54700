//! The tables of the options, parameters and variables of other launchers.

use super::row::{Make, Row, Takes, always, does, made, no_effect, preset, refused, switch, value, variable};
use super::rules;
use crate::flags::table as flag;
use Takes::{Attached, Nothing, One, Two};

/// The tables with their titles.
pub static TABLES: [(&str, &[Row]); 4] = [
    ("MPI standard, and common to the others", STANDARD),
    ("Hydra (MPICH) and Intel MPI", HYDRA),
    ("Open MPI and PRRTE", OPEN_MPI),
    ("Slurm's srun", SRUN),
];

/// The options of `mpiexec` in MPI-4.1, chapter 11.5.
#[rustfmt::skip]
pub static STANDARD: &[Row] = &[
    value(&["n", "np"], "N", &flag::RANKS),
    value(&["host", "hosts"], "LIST", &flag::HOSTS),
    value(&["wdir"], "DIR", &flag::WDIR),
    does(&["path"], One("DIRS"), &rules::PROGRAM_PATH),
    does(&["configfile"], One("FILE"), &rules::PROGRAM_FILE),
    does(&["initial-errhandler"], One("NAME"), &rules::ERROR_HANDLER),
    value(&["memory-alloc-kinds"], "KINDS", &flag::MEMORY_ALLOC_KINDS),
    always(&["soft"], One("SET"), "the job has the number of ranks that -n says, or does not start"),
    no_effect(&["arch"], One("ARCH"), "hosts are named with -hosts or -f"),
    refused(&["file"], One("FILE"), "its contents are not standard; use -configfile, -f (hosts) or the options \
        themselves"),
    does(&["version", "V"], Nothing, &rules::VERSION),
    does(&["quiet", "q"], Nothing, &rules::QUIET),
    does(&["map-by", "mapby"], One("HOW"), &rules::MAP_BY),
    does(&["bind-to", "binding", "bindto"], One("WHAT"), &rules::BIND_TO),
];

const DEBUGGERS: &str = "start the debugger as the program: mpiexec -n 4 xterm -e gdb ./app";
const PROFILERS: &str = "start the tool as the program: mpiexec -n 4 aps ./app";
const FABRICS: &str = "the MPI library chooses its network; its variable is I_MPI_FABRICS";

/// The options of MPICH's Hydra, and those that Intel MPI adds.
#[rustfmt::skip]
pub static HYDRA: &[Row] = &[
    // Environment.
    variable(&["genv"], &flag::GENV, Make::Typed),
    value(&["genvlist"], "NAMES", &flag::GENV_LIST),
    preset(&["genvnone"], &flag::GENV_LIST, "none"),
    preset(&["genvall"], &flag::GENV_LIST, "all"),
    variable(&["env"], &flag::ENV, Make::Typed),
    value(&["envlist"], "NAMES", &flag::ENV_LIST),
    preset(&["envnone"], &flag::ENV_LIST, "none"),
    preset(&["envall"], &flag::ENV_LIST, "all"),
    // Hosts and ranks.
    value(&["f", "hostfile", "machinefile"], "FILE", &flag::HOST_FILE),
    value(&["machine", "machines", "machinelist", "hostlist", "hosts-group"], "LIST", &flag::HOSTS),
    value(&["ppn", "perhost", "grr", "ranks-per-proc"], "N", &flag::PPN),
    preset(&["rr"], &flag::MAP_BY, "node"),
    does(&["rankmap"], One("MAP"), &rules::RANK_MAP),
    switch(&["skip-launch-node", "nolocal"], &flag::NO_LOCAL),
    no_effect(&["localhost"], One("NAME"), "this machine is recognised among the hosts by its names and addresses"),
    refused(&["order-nodes"], One("ORDER"), "name the hosts in the order in which they are to be used"),
    value(&["usize"], "N", &flag::USIZE),
    // How agents start.
    does(&["launcher", "bootstrap"], One("KIND"), &rules::LAUNCHER),
    does(&["launcher-exec", "bootstrap-exec"], One("PROGRAM"), &rules::SHELL_PROGRAM),
    does(&["bootstrap-exec-args", "launcher-exec-args"], One("WORDS"), &rules::SHELL_ARGUMENTS),
    value(&["branch-count"], "K", &flag::FANOUT),
    value(&["iface"], "NAME", &flag::INTERFACE),
    always(&["rmk"], One("KIND"), "batch systems are recognised by their variables"),
    always(&["topolib"], One("NAME"), "processors are read from /sys"),
    always(&["demux"], One("NAME"), "descriptors are watched by epoll"),
    always(&["disable-x"], Nothing, "X is not forwarded"),
    refused(&["enable-x"], Nothing, "X is not forwarded; set DISPLAY with -genv for a reachable server"),
    no_effect(&["hybrid-hosts"], Nothing, "wireup copies itself to hosts that lack it; -wdir names the folder of the \
        ranks"),
    no_effect(&["pmi-port"], Nothing, "PMI uses a socket that each rank inherits"),
    no_effect(&["nameserver"], One("ADDRESS"), "the jobs of a session (wireup up) share what they publish"),
    no_effect(&["enable-hostname-propagation", "disable-hostname-propagation"], Nothing, "ranks always learn the name \
        of their host"),
    always(&["noconf"], Nothing, "no mpiexec.conf is read"),
    // Binding.
    no_effect(&["membind"], One("POLICY"), "memory is allocated where a rank runs first; start numactl as the program \
        for another policy"),
    does(&["cpu-bind"], One("WHAT"), &rules::BIND_TO),
    does(&["gpus-per-proc", "g"], One("N"), &rules::GPUS),
    refused(&["gpu-subdevs-per-proc"], One("N"), "whole GPUs are assigned, with -gpus-per-proc; set ZE_AFFINITY_MASK \
        with -genv"),
    // Standard input and output.
    does(&["s"], One("RANK|all"), &rules::STDIN),
    switch(&["prepend-rank", "l"], &flag::LABEL),
    does(&["prepend-pattern"], One("PATTERN"), &rules::LABEL_PATTERN),
    does(&["outfile-pattern", "outfile"], One("PATTERN"), &rules::OUTPUT_FILES),
    does(&["errfile-pattern", "errfile"], One("PATTERN"), &rules::ERROR_FILES),
    switch(&["prepend-timestamp"], &flag::TIMESTAMP),
    always(&["ordered-output"], Nothing, "output is shown in whole lines"),
    refused(&["output-from"], One("RANKS"), "show all with -l and select with grep, or write files with \
        -outfile-pattern"),
    // Options about how a job ends.
    refused(&["disable-auto-cleanup"], Nothing, "a rank that fails always ends the job"),
    always(&["enable-auto-cleanup", "cleanup"], Nothing, "a rank that fails ends the job"),
    no_effect(&["print-all-exitcodes"], Nothing, "the message at the end names the first rank that failed, with its \
        code"),
    no_effect(&["silent-abort"], Nothing, "messages about failures are one line"),
    // Options about what the launcher prints.
    switch(&["verbose", "v", "debug"], &flag::VERBOSE),
    switch(&["print-rank-map"], &flag::DISPLAY_MAP),
    does(&["info"], Nothing, &rules::VERSION),
    no_effect(&["profile"], Nothing, "--profile FILE shows where the time of a start goes"),
    // Options of Intel MPI only.
    made(&["tune"], "FILE", &flag::ENV, Make::Behind("I_MPI_TUNING_BIN=")),
    preset(&["prot"], &flag::GENV, "I_MPI_PRINT_PROT=1"),
    made(&["tmpdir"], "DIR", &flag::ENV, Make::Behind("TMPDIR=")),
    refused(&["aps", "mps", "trace", "t", "check_mpi", "trace-pt2pt", "trace-collectives"], Nothing, PROFILERS),
    refused(&["gdb", "gdba", "tv", "tva", "idb"], Nothing, DEBUGGERS),
    refused(&["gdb-args", "gtool", "gtoolfile"], One("WORDS"), DEBUGGERS),
    refused(&["umask"], One("MASK"), "ranks have the umask of mpiexec: umask 027; mpiexec ..."),
    no_effect(&["ilp64"], Nothing, "the program is already linked for one of the two sizes of integers"),
    no_effect(&["rdma", "RDMA", "dapl", "DAPL", "ib", "IB", "ofi", "tmi", "TMI", "psm", "PSM", "psm2", "PSM2", "mx",
        "MX"], Nothing, FABRICS),
];

const WRAPPED: &str = "start the tool as the program: mpiexec -n 4 valgrind ./app";
const VALUE: Takes = One("VALUE");
/// Values by which Intel MPI's launcher sets no limit.
const UNLIMITED: Make = Make::Unless(&["0", "-1", ""]);

/// Variables that Hydra and Intel MPI's launcher read.
#[rustfmt::skip]
pub static VARIABLES: &[Row] = &[
    made(&["HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"], "VALUE", &flag::HOST_FILE, Make::Typed),
    made(&["I_MPI_HYDRA_HOSTS_GROUP"], "VALUE", &flag::HOSTS, Make::Typed),
    made(&["I_MPI_PERHOST"], "VALUE", &flag::PPN, Make::IfNumber),
    made(&["HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC"], "VALUE", &flag::REMOTE_SHELL,
        Make::Typed),
    made(&["HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP"], "VALUE", &flag::REMOTE_SHELL, Make::Launcher),
    made(&["HYDRA_IFACE", "I_MPI_HYDRA_IFACE"], "VALUE", &flag::INTERFACE, Make::Typed),
    made(&["I_MPI_HYDRA_BRANCH_COUNT"], "VALUE", &flag::FANOUT, UNLIMITED),
    made(&["HYDRA_BINDING"], "VALUE", &flag::BIND_TO, Make::Binding),
    made(&["HYDRA_MAPPING"], "VALUE", &flag::MAP_BY, Make::Mapping),
    made(&["HYDRA_ENV"], "VALUE", &flag::GENV_LIST, Make::EnvNames),
    made(&["HYDRA_DEBUG", "I_MPI_HYDRA_DEBUG"], "VALUE", &flag::VERBOSE, Make::IfTrue("")),
    made(&["MPIEXEC_TIMEOUT", "I_MPI_JOB_TIMEOUT", "I_MPI_MPIEXEC_TIMEOUT"], "VALUE", &flag::TIMEOUT, UNLIMITED),
    made(&["MPIEXEC_PREFIX_DEFAULT"], "VALUE", &flag::LABEL, Make::IfTrue("")),
    made(&["I_MPI_JOB_STARTUP_TIMEOUT"], "VALUE", &flag::START_TIMEOUT, UNLIMITED),
    made(&["I_MPI_PIN"], "VALUE", &flag::BIND_TO, Make::IfFalse("none")),
    always(&["HYDRA_RMK", "I_MPI_HYDRA_RMK"], VALUE, "batch systems are recognised by their variables"),
    always(&["HYDRA_TOPOLIB", "I_MPI_HYDRA_TOPOLIB"], VALUE, "processors are read from /sys"),
    always(&["HYDRA_LAUNCHER_AUTOFORK", "I_MPI_HYDRA_BOOTSTRAP_AUTOFORK"], VALUE, "no remote shell is used on this \
        machine"),
    always(&["HYDRA_HOSTNAME_PROPAGATION"], VALUE, "ranks learn the name of their host"),
    no_effect(&["MPIEXEC_PORTRANGE", "MPIEXEC_PORT_RANGE", "HYDRA_PORT_RANGE", "I_MPI_PORT_RANGE"], VALUE, "ports of \
        agents are chosen by the kernel; --interface limits where they listen"),
    no_effect(&["HYDRA_MEMBIND"], VALUE, "start numactl as the program to set a policy for memory"),
    no_effect(&["HYDRA_CONFIG_FILE"], VALUE, "give the file to -configfile"),
    no_effect(&["HYDRA_LAUNCHER_EXTRA_ARGS", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"], VALUE, "give the words to \
        -bootstrap-exec-args"),
    no_effect(&["HYDRA_PROXY_RETRY_COUNT", "HYDRA_LAUNCHER_SSH_LIMIT", "HYDRA_LAUNCHER_SSH_LIMIT_TIME",
        "HYDRA_LAUNCHER_SSH_ENABLE_WARNINGS"], VALUE, "remote shells are retried as wireup decides"),
    no_effect(&["HYDRA_USE_VALGRIND", "HYDRA_USE_STRACE", "HYDRA_USE_DDD"], VALUE, WRAPPED),
    no_effect(&["HYDRA_USE_LOCALHOST", "HYDRA_TOPO_DEBUG", "HYDRA_DEMUX", "HYDRA_LAUNCH_END"], VALUE, "there is \
        nothing to choose"),
    no_effect(&["I_MPI_HYDRA_NAMESERVER"], VALUE, "the jobs of a session (wireup up) share what they publish"),
    no_effect(&["I_MPI_HYDRA_TREE_LEVEL", "I_MPI_HYDRA_LAUNCH_TYPE", "I_MPI_HYDRA_PROXY_WAIT",
        "I_MPI_HYDRA_UNIQUE_PROXIES"], VALUE, "it concerns Intel MPI's own launcher"),
    no_effect(&["I_MPI_GTOOL", "I_MPI_HYDRA_GDB_REMOTE_SHELL"], VALUE, WRAPPED),
    no_effect(&["I_MPI_FAULT_CONTINUE", "I_MPI_FAULT_NODE_CONTINUE"], VALUE, "a rank that fails ends the job"),
    no_effect(&["I_MPI_JOB_ABORT_SIGNAL", "I_MPI_JOB_TIMEOUT_SIGNAL"], VALUE, "ranks are ended by SIGTERM, after \
        --kill-grace by SIGKILL"),
    no_effect(&["I_MPI_PIN_DOMAIN", "I_MPI_PIN_PROCESSOR_LIST", "I_MPI_PIN_ORDER", "I_MPI_PIN_CELL",
        "I_MPI_PIN_PROCESSOR_EXCLUDE_LIST"], VALUE, "use --bind-to, --map-by and --cpu-set"),
];

const DAEMONS: &str = "it concerns Open MPI's daemons, which do not run";
const SERVERS: &str = "agents that stay for many jobs are started with wireup up";
const GDB_BY_MPIRUN: &str = "start the debugger as the program: mpirun -np 4 xterm -e gdb ./app";
const RESTARTS: &str = "a rank that fails ends the job; nothing is restarted";
const COPIES: &str = "programs and files are copied to the hosts with --stage and --stage-also";

/// The options of Open MPI's `mpirun` (4.1, 5.0) and of PRRTE's `prterun`.
#[rustfmt::skip]
pub static OPEN_MPI: &[Row] = &[
    // Programs and ranks.
    value(&["c", "n", "np"], "N", &flag::RANKS),
    does(&["app"], One("FILE"), &rules::PROGRAM_FILE),
    value(&["wd", "wdir"], "DIR", &flag::WDIR),
    no_effect(&["set-cwd-to-session-dir"], Nothing, "there is no session directory; -wdir names a folder"),
    no_effect(&["pset"], One("NAME"), "process sets have no names here"),
    no_effect(&["personality"], One("NAME"), "the interface for the ranks follows from the program; --pmi chooses \
        one"),
    refused(&["index-argv-by-rank"], Nothing, "use sh -c with $OMPI_COMM_WORLD_RANK"),
    // Hosts.
    value(&["H", "host"], "LIST", &flag::HOSTS),
    value(&["hostfile", "machinefile", "default-hostfile"], "FILE", &flag::HOST_FILE),
    refused(&["add-host", "add-hostfile"], One("HOSTS"), "name all hosts with --host or --hostfile"),
    switch(&["nolocal"], &flag::NO_LOCAL),
    // Environment.
    does(&["x"], One("NAME[=V]"), &rules::EXPORT),
    variable(&["set-env"], &flag::ENV, Make::Typed),
    does(&["append-env"], Two("NAME[c]", "VALUE"), &rules::APPEND),
    does(&["prepend-env"], Two("NAME[c]", "VALUE"), &rules::PREPEND),
    refused(&["unset-env"], One("NAME"), "unset it first: env -u NAME mpirun ..."),
    does(&["mca", "omca"], Two("NAME", "VALUE"), &rules::PARAMETER),
    does(&["gmca", "gomca"], Two("NAME", "VALUE"), &rules::JOB_PARAMETER),
    does(&["prtemca", "gprtemca"], Two("NAME", "VALUE"), &rules::LAUNCHER_PARAMETER),
    variable(&["pmixmca", "gpmixmca"], &flag::ENV, Make::Behind("PMIX_MCA_")),
    does(&["tune", "am", "amca"], One("FILES"), &rules::PARAMETER_FILES),
    no_effect(&["gpu-support"], One("BOOL"), "set it with --mca mpi_accelerator_cuda_... or -x"),
    // Placement.
    value(&["N", "npernode"], "N", &flag::PPN),
    preset(&["pernode"], &flag::PPN, "1"),
    made(&["npersocket"], "N", &flag::MAP_BY, Make::Number("ppr:", ":socket")),
    made(&["ppr"], "N:OBJECT", &flag::MAP_BY, Make::Behind("ppr:")),
    does(&["rank-by", "rankby"], One("HOW"), &rules::RANK_BY),
    preset(&["byslot"], &flag::MAP_BY, "slot"),
    preset(&["bynode"], &flag::MAP_BY, "node"),
    preset(&["bycore"], &flag::MAP_BY, "core"),
    preset(&["bind-to-core"], &flag::BIND_TO, "core"),
    preset(&["bind-to-socket"], &flag::BIND_TO, "socket"),
    preset(&["bind-to-none"], &flag::BIND_TO, "none"),
    does(&["cpus-per-proc", "cpus-per-rank"], One("N"), &rules::CPUS_PER_RANK),
    switch(&["oversubscribe"], &flag::OVERSUBSCRIBE),
    switch(&["nooversubscribe"], &flag::NO_OVERSUBSCRIBE),
    value(&["cpu-set", "cpu-list"], "LIST", &flag::CPU_SET),
    preset(&["use-hwthread-cpus"], &flag::MAP_BY, ":hwtcpus"),
    value(&["rankfile", "rf"], "FILE", &flag::RANKFILE),
    switch(&["report-bindings"], &flag::REPORT_BINDINGS),
    always(&["hetero-nodes"], Nothing, "each node finds out its own processors"),
    no_effect(&["cartofile", "cf"], One("FILE"), "processors are read from /sys"),
    // Standard input and output.
    value(&["stdin"], "RANK|all|none", &flag::STDIN),
    does(&["output"], One("LIST"), &rules::OUTPUT),
    does(&["output-filename"], One("DIR"), &rules::OUTPUT_FOLDER),
    switch(&["tag-output"], &flag::LABEL),
    switch(&["timestamp-output"], &flag::TIMESTAMP),
    switch(&["merge-stderr-to-stdout"], &flag::MERGE_OUTPUT),
    no_effect(&["stream-buffering"], One("MODE"), "programs buffer as their C library does; start stdbuf as the \
        program to change that"),
    refused(&["xterm"], One("RANKS"), "start the terminal as the program: xterm -e ./app"),
    refused(&["xml"], Nothing, "there is no output in XML"),
    refused(&["xml-file"], One("FILE"), "there is no output in XML"),
    // Options about what the launcher prints.
    does(&["display"], One("LIST"), &rules::DISPLAY),
    switch(&["display-map", "display-devel-map", "display-diffable-map"], &flag::DISPLAY_MAP),
    switch(&["display-allocation", "display-devel-allocation"], &flag::DISPLAY_MAP),
    switch(&["display-topo"], &flag::REPORT_BINDINGS),
    switch(&["do-not-launch"], &flag::DRY_RUN),
    switch(&["verbose", "v"], &flag::VERBOSE),
    no_effect(&["show-progress"], Nothing, "--verbose shows what is waited for"),
    does(&["report-pid"], One("FILE"), &rules::REPORT_PID),
    refused(&["report-uri"], One("FILE"), SERVERS),
    refused(&["report-events"], One("URI"), DAEMONS),
    refused(&["output-proctable"], Nothing, "wireup jobs lists running jobs"),
    // Time limits, and how a job ends.
    value(&["timeout"], "SECONDS", &flag::TIMEOUT),
    value(&["spawn-timeout"], "SECONDS", &flag::START_TIMEOUT),
    no_effect(&["get-stack-traces", "report-state-on-timeout"], Nothing, "kill -ALRM shows which ranks the others wait \
        for"),
    refused(&["enable-recovery", "continuous"], Nothing, RESTARTS),
    always(&["disable-recovery"], Nothing, "a rank that fails ends the job"),
    no_effect(&["max-restarts"], One("N"), RESTARTS),
    no_effect(&["report-child-jobs-separately"], Nothing, "the exit code is that of the first rank that failed, in any \
        of the jobs"),
    no_effect(&["forward-signals"], One("LIST"), "all signals that can be caught are passed on"),
    no_effect(&["runtime-options"], One("LIST"), RESTARTS),
    // Folders and files.
    no_effect(&["prefix", "pmix-prefix", "app-pmix-prefix"], One("DIR"), "of Open MPI only its libraries are needed on \
        the hosts; programs find them by themselves or by LD_LIBRARY_PATH"),
    always(&["noprefix", "no-app-prefix"], Nothing, "no prefix is added"),
    made(&["tmpdir"], "DIR", &flag::ENV, Make::Behind("TMPDIR=")),
    switch(&["preload-binary", "s"], &flag::STAGE),
    refused(&["preload-files"], One("FILES"), COPIES),
    // Open MPI's daemons, and debuggers.
    always(&["allow-run-as-root"], Nothing, "root may run jobs"),
    no_effect(&["launch-agent"], One("PROGRAM"), "wireup starts itself on the hosts"),
    no_effect(&["max-vm-size"], One("N"), "an agent is started on each host that is named"),
    always(&["novm"], Nothing, "agents run only on the hosts of the job"),
    no_effect(&["leave-session-attached"], Nothing, "errors of agents are always shown"),
    no_effect(&["debug-daemons", "debug-daemons-file", "debug-devel", "d"], Nothing, DAEMONS),
    no_effect(&["use-regexp", "fwd-mpirun-port", "do-not-resolve", "enable-instant-on-support"], Nothing, DAEMONS),
    no_effect(&["set-sid", "no-ready-msg", "system-server"], Nothing, DAEMONS),
    no_effect(&["keepalive"], One("FD"), DAEMONS),
    refused(&["dvm", "hnp", "ompi-server", "singleton"], One("WHERE"), SERVERS),
    refused(&["debug", "tv", "stop-on-exec", "stop-in-init", "stop-in-app"], Nothing, GDB_BY_MPIRUN),
    refused(&["debugger"], One("NAMES"), GDB_BY_MPIRUN),
];

/// Parameters of Open MPI's launcher; names without the prefix `OMPI_MCA_` or `PRTE_MCA_`.
#[rustfmt::skip]
pub static PARAMETERS: &[Row] = &[
    made(&["plm_rsh_agent", "plm_ssh_agent", "pls_rsh_agent", "orte_rsh_agent"], "N", &flag::REMOTE_SHELL, Make::First),
    made(&["orte_default_hostfile", "prte_default_hostfile"], "N", &flag::HOST_FILE, Make::Typed),
    made(&["rmaps_base_mapping_policy", "rmaps_default_mapping_policy"], "N", &flag::MAP_BY, Make::Lowercase),
    made(&["rmaps_base_ranking_policy", "rmaps_default_ranking_policy"], "N", &flag::RANK_BY, Make::Lowercase),
    made(&["hwloc_base_binding_policy", "hwloc_default_binding_policy"], "N", &flag::BIND_TO, Make::Lowercase),
    made(&["rmaps_base_oversubscribe"], "N", &flag::OVERSUBSCRIBE, Make::IfTrue("")),
    made(&["rmaps_base_no_oversubscribe"], "N", &flag::NO_OVERSUBSCRIBE, Make::IfTrue("")),
    made(&["rmaps_base_no_schedule_local"], "N", &flag::NO_LOCAL, Make::IfTrue("")),
    made(&["rmaps_base_cpus_per_proc"], "N", &flag::MAP_BY, Make::Number(":pe=", "")),
    made(&["rmaps_rank_file_path", "orte_rankfile"], "N", &flag::RANKFILE, Make::Typed),
    made(&["rmaps_ppr_n_pernode", "rmaps_base_n_pernode"], "N", &flag::PPN, Make::Typed),
    made(&["hwloc_base_cpu_set", "hwloc_base_cpu_list", "hwloc_default_cpu_list"], "N", &flag::CPU_SET, Make::Typed),
    made(&["hwloc_base_use_hwthreads_as_cpus", "hwloc_use_hwthreads_as_cpus"], "N", &flag::MAP_BY,
        Make::IfTrue(":hwtcpus")),
    made(&["hwloc_base_report_bindings", "orte_report_bindings", "prte_report_bindings"], "N", &flag::REPORT_BINDINGS,
        Make::IfTrue("")),
    made(&["rmaps_base_display_map", "orte_display_map"], "N", &flag::DISPLAY_MAP, Make::IfTrue("")),
    made(&["orte_tag_output", "prte_tag_output"], "N", &flag::LABEL, Make::IfTrue("")),
    made(&["orte_timestamp_output", "prte_timestamp_output"], "N", &flag::TIMESTAMP, Make::IfTrue("")),
    made(&["oob_tcp_if_include", "prte_if_include"], "N", &flag::INTERFACE, Make::Typed),
    made(&["orte_timeout", "prte_timeout"], "N", &flag::TIMEOUT, Make::Typed),
    made(&["orte_startup_timeout", "prte_startup_timeout"], "N", &flag::START_TIMEOUT, Make::Typed),
];

const QUEUE: &str = "it concerns Slurm's queue; give it to sbatch or salloc";

/// Options of Slurm's `srun` that occur in scripts which put `mpiexec` in its place; those that other launchers lack.
#[rustfmt::skip]
pub static SRUN: &[Row] = &[
    value(&["ntasks"], "N", &flag::RANKS),
    value(&["ntasks-per-node", "tasks-per-node"], "N", &flag::PPN),
    does(&["cpus-per-task"], One("N"), &rules::CPUS_PER_RANK),
    made(&["ntasks-per-socket"], "N", &flag::MAP_BY, Make::Number("ppr:", ":socket")),
    value(&["nodelist", "w"], "LIST", &flag::HOSTS),
    value(&["chdir", "D"], "DIR", &flag::WDIR),
    does(&["cpu-bind", "cpu_bind"], One("WHAT"), &rules::BIND_TO),
    value(&["gpus-per-task"], "N", &flag::GPUS_PER_RANK),
    does(&["mpi"], One("KIND"), &rules::MPI),
    switch(&["label"], &flag::LABEL),
    always(&["unbuffered", "u"], Nothing, "each line is shown as soon as it is complete"),
    does(&["input", "i"], One("WHO"), &rules::STDIN),
    switch(&["overcommit", "O"], &flag::OVERSUBSCRIBE),
    preset(&["pty"], &flag::PTY, "0"),
    refused(&["multi-prog"], Nothing, "programs of one job are separated by a colon, or listed in -configfile FILE"),
    refused(&["nodes"], One("N"), "hosts are named with --hosts; --ntasks-per-node is the number of ranks on each"),
    no_effect(&["kill-on-bad-exit", "K"], Attached("0|1"), "a rank that fails ends the job"),
    refused(&["no-kill", "k"], Nothing, "a lost node ends its job"),
    no_effect(&["exclusive", "overlap", "exact"], Nothing, QUEUE),
    no_effect(&["job-name", "J", "account", "A", "partition", "p", "qos", "mem", "mem-per-cpu", "constraint", "C"],
        One("VALUE"), QUEUE),
];
