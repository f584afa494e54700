//! The options of Open MPI's `mpirun` (4.1, 5.0) and of PRRTE's `prterun`.

use super::row::{Row, Takes, always, does, no_effect, preset, refused, switch, value, variable};
use super::rules::{environment, mca, output, placement, programs};
use crate::flags::table as flag;
use Takes::{Nothing, One, Two};

const DAEMONS: &str = "it concerns Open MPI's daemons, which do not run";
const SERVERS: &str = "agents that stay for many jobs are started with wireup up";
const DEBUGGERS: &str = "start the debugger as the program: mpirun -np 4 xterm -e gdb ./app";
const RESTARTS: &str = "a rank that fails ends the job; nothing is restarted";
const COPIES: &str = "programs and files are copied to the hosts with --stage and --stage-also";

pub static ROWS: &[Row] = &[
    // Programs and ranks.
    value(&["c", "n", "np"], "N", &flag::RANKS),
    does(&["app"], One("FILE"), &programs::FILE),
    value(&["wd", "wdir"], "DIR", &flag::WDIR),
    no_effect(&["set-cwd-to-session-dir"], Nothing, "there is no session directory; -wdir names a folder"),
    no_effect(&["pset"], One("NAME"), "process sets have no names here"),
    no_effect(&["personality"], One("NAME"), "the interface for the ranks follows from the program; --pmi chooses one"),
    refused(&["index-argv-by-rank"], Nothing, "use sh -c with $OMPI_COMM_WORLD_RANK"),
    // Hosts.
    value(&["H", "host"], "LIST", &flag::HOSTS),
    value(&["hostfile", "machinefile", "default-hostfile"], "FILE", &flag::HOST_FILE),
    refused(&["add-host", "add-hostfile"], One("HOSTS"), "name all hosts with --host or --hostfile"),
    switch(&["nolocal"], &flag::NO_LOCAL),
    // Environment.
    does(&["x"], One("NAME[=V]"), &environment::EXPORT),
    variable(&["set-env"], &flag::ENV),
    does(&["append-env"], Two("NAME[c]", "VALUE"), &environment::APPEND),
    does(&["prepend-env"], Two("NAME[c]", "VALUE"), &environment::PREPEND),
    refused(&["unset-env"], One("NAME"), "unset it before: env -u NAME mpirun ..."),
    does(&["mca", "omca"], Two("NAME", "VALUE"), &mca::PROGRAM),
    does(&["gmca", "gomca"], Two("NAME", "VALUE"), &mca::JOB),
    does(&["prtemca", "gprtemca"], Two("NAME", "VALUE"), &mca::LAUNCHER),
    does(&["pmixmca", "gpmixmca"], Two("NAME", "VALUE"), &mca::PMIX),
    does(&["tune", "am", "amca"], One("FILES"), &mca::FILES),
    no_effect(&["gpu-support"], One("BOOL"), "set it with --mca mpi_accelerator_cuda_... or -x"),
    // Placement.
    value(&["N", "npernode"], "N", &flag::PPN),
    preset(&["pernode"], &flag::PPN, "1"),
    does(&["npersocket"], One("N"), &placement::PER_SOCKET),
    does(&["ppr"], One("N:OBJECT"), &placement::PER_OBJECT),
    does(&["rank-by", "rankby"], One("HOW"), &placement::RANK_BY),
    preset(&["byslot"], &flag::MAP_BY, "slot"),
    preset(&["bynode"], &flag::MAP_BY, "node"),
    preset(&["bycore"], &flag::MAP_BY, "core"),
    preset(&["bind-to-core"], &flag::BIND_TO, "core"),
    preset(&["bind-to-socket"], &flag::BIND_TO, "socket"),
    preset(&["bind-to-none"], &flag::BIND_TO, "none"),
    does(&["cpus-per-proc", "cpus-per-rank"], One("N"), &placement::CPUS_PER_RANK),
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
    does(&["output"], One("LIST"), &output::OUTPUT),
    does(&["output-filename"], One("DIR"), &output::OUTPUT_FOLDER),
    switch(&["tag-output"], &flag::LABEL),
    switch(&["timestamp-output"], &flag::TIMESTAMP),
    switch(&["merge-stderr-to-stdout"], &flag::MERGE_OUTPUT),
    no_effect(
        &["stream-buffering"],
        One("MODE"),
        "programs buffer as their C library does; stdbuf as the program changes that",
    ),
    refused(&["xterm"], One("RANKS"), "start the terminal as the program: xterm -e ./app"),
    refused(&["xml"], Nothing, "there is no output in XML"),
    refused(&["xml-file"], One("FILE"), "there is no output in XML"),
    // What is shown.
    does(&["display"], One("LIST"), &output::DISPLAY),
    switch(&["display-map", "display-devel-map", "display-diffable-map"], &flag::DISPLAY_MAP),
    switch(&["display-allocation", "display-devel-allocation"], &flag::DISPLAY_MAP),
    switch(&["display-topo"], &flag::REPORT_BINDINGS),
    switch(&["do-not-launch"], &flag::DRY_RUN),
    switch(&["verbose", "v"], &flag::VERBOSE),
    no_effect(&["show-progress"], Nothing, "--verbose says what is waited for"),
    does(&["report-pid"], One("FILE"), &programs::REPORT_PID),
    refused(&["report-uri"], One("FILE"), SERVERS),
    refused(&["report-events"], One("URI"), DAEMONS),
    refused(&["output-proctable"], Nothing, "wireup jobs lists running jobs"),
    // Time and ends.
    value(&["timeout"], "SECONDS", &flag::TIMEOUT),
    value(&["spawn-timeout"], "SECONDS", &flag::START_TIMEOUT),
    no_effect(
        &["get-stack-traces", "report-state-on-timeout"],
        Nothing,
        "kill -ALRM shows which ranks the others wait for",
    ),
    refused(&["enable-recovery", "continuous"], Nothing, RESTARTS),
    always(&["disable-recovery"], Nothing, "a rank that fails ends the job"),
    no_effect(&["max-restarts"], One("N"), RESTARTS),
    no_effect(
        &["report-child-jobs-separately"],
        Nothing,
        "the exit code is that of the first rank that failed, in any of the jobs",
    ),
    no_effect(&["forward-signals"], One("LIST"), "all signals that can be caught are passed on"),
    no_effect(&["runtime-options"], One("LIST"), RESTARTS),
    // Where things are.
    no_effect(
        &["prefix", "pmix-prefix", "app-pmix-prefix"],
        One("DIR"),
        "no part of Open MPI but its libraries is needed on the hosts; programs find them by themselves or by LD_LIBRARY_PATH",
    ),
    always(&["noprefix", "no-app-prefix"], Nothing, "no prefix is added"),
    does(&["tmpdir"], One("DIR"), &environment::TMPDIR),
    switch(&["preload-binary", "s"], &flag::STAGE),
    refused(&["preload-files"], One("FILES"), COPIES),
    // Daemons.
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
    refused(&["debug", "tv", "stop-on-exec", "stop-in-init", "stop-in-app"], Nothing, DEBUGGERS),
    refused(&["debugger"], One("NAMES"), DEBUGGERS),
];
