//! The options of MPICH's Hydra, and those that Intel MPI adds.

use super::row::{Row, Takes, always, does, no_effect, preset, refused, switch, value, variable};
use super::rules::{environment, output, placement, programs, shell};
use crate::flags::table as flag;
use Takes::{Nothing, One};

const DEBUGGERS: &str = "start the debugger as the program: mpiexec -n 4 xterm -e gdb ./app";
const PROFILERS: &str = "start the tool as the program: mpiexec -n 4 aps ./app";
const FABRICS: &str = "the MPI library chooses its network; its variable is I_MPI_FABRICS";

pub static ROWS: &[Row] = &[
    // Environment.
    variable(&["genv"], &flag::GENV),
    value(&["genvlist"], "NAMES", &flag::GENV_LIST),
    preset(&["genvnone"], &flag::GENV_LIST, "none"),
    preset(&["genvall"], &flag::GENV_LIST, "all"),
    variable(&["env"], &flag::ENV),
    value(&["envlist"], "NAMES", &flag::ENV_LIST),
    preset(&["envnone"], &flag::ENV_LIST, "none"),
    preset(&["envall"], &flag::ENV_LIST, "all"),
    // Hosts and ranks.
    value(&["f", "hostfile", "machinefile"], "FILE", &flag::HOST_FILE),
    value(&["machine", "machines", "machinelist", "hostlist", "hosts-group"], "LIST", &flag::HOSTS),
    value(&["ppn", "perhost", "grr", "ranks-per-proc"], "N", &flag::PPN),
    preset(&["rr"], &flag::MAP_BY, "node"),
    does(&["rankmap"], One("MAP"), &placement::RANK_MAP),
    switch(&["skip-launch-node", "nolocal"], &flag::NO_LOCAL),
    no_effect(&["localhost"], One("NAME"), "this machine is recognised among the hosts by its names and addresses"),
    refused(&["order-nodes"], One("ORDER"), "name the hosts in the order in which they are to be used"),
    value(&["usize"], "N", &flag::USIZE),
    // How agents start.
    does(&["launcher", "bootstrap"], One("KIND"), &shell::KIND),
    does(&["launcher-exec", "bootstrap-exec"], One("PROGRAM"), &shell::PROGRAM),
    does(&["bootstrap-exec-args", "launcher-exec-args"], One("WORDS"), &shell::ARGUMENTS),
    value(&["branch-count"], "K", &flag::FANOUT),
    value(&["iface"], "NAME", &flag::INTERFACE),
    always(&["rmk"], One("KIND"), "batch systems are recognised by their variables"),
    always(&["topolib"], One("NAME"), "processors are read from /sys"),
    always(&["demux"], One("NAME"), "descriptors are watched by epoll"),
    always(&["disable-x"], Nothing, "X is not forwarded"),
    refused(&["enable-x"], Nothing, "X is not forwarded; set DISPLAY with -genv for a reachable server"),
    no_effect(
        &["hybrid-hosts"],
        Nothing,
        "wireup copies itself to hosts that lack it; -wdir names the folder of the ranks",
    ),
    no_effect(&["pmi-port"], Nothing, "PMI uses a socket that each rank inherits"),
    no_effect(&["nameserver"], One("ADDRESS"), "the jobs of a session (wireup up) share what they publish"),
    no_effect(
        &["enable-hostname-propagation", "disable-hostname-propagation"],
        Nothing,
        "ranks always learn the name of their host",
    ),
    always(&["noconf"], Nothing, "there is no configuration file"),
    // Binding.
    no_effect(
        &["membind"],
        One("POLICY"),
        "memory is allocated where a rank runs first; numactl as the program sets another policy",
    ),
    does(&["cpu-bind"], One("WHAT"), &placement::BIND_TO),
    does(&["gpus-per-proc", "g"], One("N"), &placement::GPUS),
    refused(
        &["gpu-subdevs-per-proc"],
        One("N"),
        "whole GPUs are assigned, with -gpus-per-proc; set ZE_AFFINITY_MASK with -genv",
    ),
    // Standard input and output.
    does(&["s"], One("RANK|all"), &output::STDIN),
    switch(&["prepend-rank", "l"], &flag::LABEL),
    does(&["prepend-pattern"], One("PATTERN"), &output::LABEL_PATTERN),
    does(&["outfile-pattern", "outfile"], One("PATTERN"), &output::OUT_FILES),
    does(&["errfile-pattern", "errfile"], One("PATTERN"), &output::ERR_FILES),
    switch(&["prepend-timestamp"], &flag::TIMESTAMP),
    always(&["ordered-output"], Nothing, "output is shown in whole lines"),
    refused(
        &["output-from"],
        One("RANKS"),
        "show all with -l and select with grep, or write files with -outfile-pattern",
    ),
    // Ends.
    refused(&["disable-auto-cleanup"], Nothing, "a rank that fails always ends the job"),
    always(&["enable-auto-cleanup", "cleanup"], Nothing, "a rank that fails ends the job"),
    no_effect(
        &["print-all-exitcodes"],
        Nothing,
        "the message at the end names the first rank that failed, with its code",
    ),
    no_effect(&["silent-abort"], Nothing, "messages about failures are one line"),
    // What is shown.
    switch(&["verbose", "v", "debug"], &flag::VERBOSE),
    switch(&["print-rank-map"], &flag::DISPLAY_MAP),
    does(&["info"], Nothing, &programs::VERSION),
    no_effect(&["profile"], Nothing, "--profile FILE shows where the time of a start goes"),
    // Intel MPI.
    does(&["tune"], One("FILE"), &environment::TUNING_FILE),
    preset(&["prot"], &flag::GENV, "I_MPI_PRINT_PROT=1"),
    does(&["tmpdir"], One("DIR"), &environment::TMPDIR),
    refused(&["aps", "mps", "trace", "t", "check_mpi", "trace-pt2pt", "trace-collectives"], Nothing, PROFILERS),
    refused(&["gdb", "gdba", "tv", "tva", "idb"], Nothing, DEBUGGERS),
    refused(&["gdb-args", "gtool", "gtoolfile"], One("WORDS"), DEBUGGERS),
    refused(&["umask"], One("MASK"), "ranks have the umask of mpiexec: umask 027; mpiexec ..."),
    no_effect(&["ilp64"], Nothing, "the program is linked with one of the two kinds of integers already"),
    no_effect(
        &["rdma", "RDMA", "dapl", "DAPL", "ib", "IB", "ofi", "tmi", "TMI", "psm", "PSM", "psm2", "PSM2", "mx", "MX"],
        Nothing,
        FABRICS,
    ),
];
