//! The options of MPICH's Hydra, and those that Intel MPI adds.

use super::row::{Make, Row, Takes, always, does, made, no_effect, preset, refused, switch, value, variable};
use super::rules;
use crate::flags::table as flag;
use Takes::{Nothing, One};

const DEBUGGERS: &str = "start the debugger as the program: mpiexec -n 4 xterm -e gdb ./app";
const PROFILERS: &str = "start the tool as the program: mpiexec -n 4 aps ./app";
const FABRICS: &str = "the MPI library chooses its network; its variable is I_MPI_FABRICS";

#[rustfmt::skip]
pub static ROWS: &[Row] = &[
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
