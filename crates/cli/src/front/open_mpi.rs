//! The options of Open MPI's `mpirun` (4.1, 5.0) and of PRRTE's `prterun`.

use super::row::{Make, Row, Takes, always, does, made, no_effect, preset, refused, switch, value, variable};
use super::rules;
use crate::flags::table as flag;
use Takes::{Nothing, One, Two};

const DAEMONS: &str = "it concerns Open MPI's daemons, which do not run";
const SERVERS: &str = "agents that stay for many jobs are started with wireup up";
const DEBUGGERS: &str = "start the debugger as the program: mpirun -np 4 xterm -e gdb ./app";
const RESTARTS: &str = "a rank that fails ends the job; nothing is restarted";
const COPIES: &str = "programs and files are copied to the hosts with --stage and --stage-also";

#[rustfmt::skip]
pub static ROWS: &[Row] = &[
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
    refused(&["debug", "tv", "stop-on-exec", "stop-in-init", "stop-in-app"], Nothing, DEBUGGERS),
    refused(&["debugger"], One("NAMES"), DEBUGGERS),
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
