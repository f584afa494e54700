//! The tables of the options, parameters and variables of other launchers.

use super::row::{
    Effect, Listed, Make, Row, Rule, ShellPart, Takes, always, does, made, no_effect, preset, refused, rule, switch,
    value, variable,
};
use crate::flags::table as flag;
use Takes::{Attached, Nothing, One, Two};

/// The tables with their titles.
pub static TABLES: [(&str, &[Row]); 4] = [
    ("MPI standard, and common to the others", STANDARD),
    ("Hydra (MPICH) and Intel MPI", HYDRA),
    ("Open MPI and PRRTE", OPEN_MPI),
    ("Slurm's srun", SRUN),
];

const OUTPUT_WORDS: &[(&[&str], Listed)] = &[
    (&["tag", "tag-detailed", "tag-fullname", "rank"], Listed::Flag(&flag::LABEL)),
    (&["timestamp"], Listed::Flag(&flag::TIMESTAMP)),
    (&["merge", "merge-stderr-to-stdout"], Listed::Flag(&flag::MERGE_OUTPUT)),
    (&["dir", "directory"], Listed::OutputFolder),
    (&["file", "filename"], Listed::OutputFiles),
    (&["copy", "nocopy", "raw", "pattern"], Listed::Accepted),
];

const DISPLAY_WORDS: &[(&[&str], Listed)] = &[
    (&["map", "map-devel", "allocation", "alloc"], Listed::Flag(&flag::DISPLAY_MAP)),
    (&["bind", "bindings", "topo", "cpus"], Listed::Flag(&flag::REPORT_BINDINGS)),
    (&["displaycomm", "parseable", "parsable"], Listed::Nothing("there is no such display")),
];

/// The PMI for a value of `--mpi`.
#[rustfmt::skip]
const PMIS: &[(&str, &str)] = &[("pmi2", "simple"), ("cray_shasta", "simple"), ("pmix", "pmix"), ("pmix_v2", "pmix"),
    ("pmix_v3", "pmix"), ("pmix_v4", "pmix"), ("pmix_v5", "pmix"), ("none", "none")];

// Explanations of options that are in several tables.
const PROGRAM_FILE: Rule = rule(
    "reads programs with their options from FILE, one on each line; `#` begins a comment",
    "mpiexec -l -configfile CONFIG",
    "-n 1 --label ./a : -n 2 ./b x",
);
const VERSION: Rule = rule("shows the version", "mpiexec --version", "VERSION");
const BIND_TO: Rule = rule(
    "as `--bind-to`; also `rr` (a hardware thread each), `user:LIST`, `map_cpu:LIST`, `cores`, `sockets`, `threads`",
    "mpiexec.hydra -bind-to core:2 ./a",
    "--bind-to core:2 ./a",
);
const CPUS_PER_RANK: Rule =
    rule("as `--map-by :pe=N`: ranks are bound to N cores each", "mpirun --cpus-per-proc 2 ./a", "--map-by :pe=2 ./a");
const STDIN: Rule = rule("as `--stdin`: a rank, `all` or `none`", "mpiexec.hydra -s all ./a", "--stdin all ./a");

/// The options of `mpiexec` in MPI-4.1, chapter 11.5.
#[rustfmt::skip]
pub static STANDARD: &[Row] = &[
    value(&["n", "np"], "N", &flag::RANKS),
    value(&["host", "hosts"], "LIST", &flag::HOSTS),
    value(&["wdir"], "DIR", &flag::WDIR),
    does(&["path"], One("DIRS"), Effect::ProgramPath, rule("looks the program up in these folders first",
        "mpiexec -path /no/such ./a", "./a")),
    does(&["configfile"], One("FILE"), Effect::ProgramFile, PROGRAM_FILE),
    does(&["initial-errhandler"], One("NAME"),
        Effect::Gives(&flag::ENV, Make::Behind("OMPI_MCA_mpi_initial_errhandler=")),
        rule("sets `OMPI_MCA_mpi_initial_errhandler`, which Open MPI reads; other libraries know no such setting",
            "mpiexec -initial-errhandler mpi_errors_abort ./a",
            "--env OMPI_MCA_mpi_initial_errhandler=mpi_errors_abort ./a")),
    value(&["memory-alloc-kinds"], "KINDS", &flag::MEMORY_ALLOC_KINDS),
    always(&["soft"], One("SET"), "the job has the number of ranks that -n says, or does not start"),
    no_effect(&["arch"], One("ARCH"), "hosts are named with -hosts or -f"),
    refused(&["file"], One("FILE"), "its contents are not standard; use -configfile, -f (hosts) or the options \
        themselves"),
    does(&["version", "V"], Nothing, Effect::Version, VERSION),
    does(&["quiet", "q"], Nothing, Effect::Quiet, rule("hides notes about options without effect", "mpiexec -quiet ./a",
        "./a")),
    does(&["map-by", "mapby"], One("HOW"), Effect::Gives(&flag::MAP_BY, Make::Mapping),
        rule("as `--map-by`; Hydra's `core:2` maps to every second core",
            "mpirun --map-by :oversubscribe --map-by node ./a", "--map-by node:oversubscribe ./a")),
    does(&["bind-to", "binding", "bindto"], One("WHAT"), Effect::Gives(&flag::BIND_TO, Make::Binding), BIND_TO),
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
    does(&["rankmap"], One("MAP"), Effect::Gives(&flag::RANK_MAP, Make::Typed),
        rule("the node of each rank, counted from 0: `0,0,1,1`, or Hydra's `(vector,(0,2,2))`",
            "mpiexec.hydra -rankmap 0,0,1 ./a", "--rank-map 0,0,1 ./a")),
    switch(&["skip-launch-node", "nolocal"], &flag::NO_LOCAL),
    no_effect(&["localhost"], One("NAME"), "this machine is recognised among the hosts by its names and addresses"),
    refused(&["order-nodes"], One("ORDER"), "name the hosts in the order in which they are to be used"),
    value(&["usize"], "N", &flag::USIZE),
    // How agents start.
    does(&["launcher", "bootstrap"], One("KIND"), Effect::RemoteShell(ShellPart::Launcher),
        rule("`ssh`, `rsh`, `slurm` (`srun`), `lsf` (`blaunch`), `sge` (`qrsh`): the remote shell; `fork`: this \
            machine only", "mpiexec.hydra -launcher ssh ./a", "--remote-shell ssh ./a")),
    does(&["launcher-exec", "bootstrap-exec"], One("PROGRAM"), Effect::RemoteShell(ShellPart::Program),
        rule("as `--remote-shell PROGRAM`", "mpiexec.hydra -launcher ssh -launcher-exec /usr/bin/ssh ./a",
            "--remote-shell /usr/bin/ssh ./a")),
    does(&["bootstrap-exec-args", "launcher-exec-args"], One("WORDS"), Effect::RemoteShell(ShellPart::Arguments),
        rule("appends these words to the remote shell's command",
            "mpiexec.hydra -launcher ssh -bootstrap-exec-args \"-p 2222\" ./a", "--remote-shell \"ssh -p 2222\" ./a")),
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
    does(&["cpu-bind"], One("WHAT"), Effect::Gives(&flag::BIND_TO, Make::Binding), BIND_TO),
    does(&["gpus-per-proc", "g"], One("N"), Effect::Gives(&flag::GPUS_PER_RANK, Make::Unless(&["AUTO", "auto", "0"])),
        rule("as `--gpus-per-rank N`; `AUTO`: ranks see what mpiexec sees", "mpiexec.hydra -gpus-per-proc 2 ./a",
            "--gpus-per-rank 2 ./a")),
    refused(&["gpu-subdevs-per-proc"], One("N"), "whole GPUs are assigned, with -gpus-per-proc; set ZE_AFFINITY_MASK \
        with -genv"),
    // Standard input and output.
    does(&["s"], One("RANK|all"), Effect::Gives(&flag::STDIN, Make::Reader), STDIN),
    switch(&["prepend-rank", "l"], &flag::LABEL),
    does(&["prepend-pattern"], One("PATTERN"), Effect::Gives(&flag::LABEL_PATTERN, Make::Pattern),
        rule("begins each line with PATTERN: `%r` rank, `%h` host, `%p` number of the node, `%g` 0",
            "mpiexec.hydra -prepend-pattern \"%h:%g:%r \" ./a", "--label-pattern \"%h:0:%r \" ./a")),
    does(&["outfile-pattern", "outfile"], One("PATTERN"), Effect::Gives(&flag::OUTPUT_FILES, Make::Pattern),
        rule("as `--output-files PATTERN`: `%r` rank, `%h` host, `%p` number of the node, `%g` 0",
            "mpiexec.hydra -outfile-pattern out.%r.%p ./a", "--output-files out.%r.%n ./a")),
    does(&["errfile-pattern", "errfile"], One("PATTERN"), Effect::Gives(&flag::ERROR_FILES, Make::Pattern),
        rule("as `--error-files PATTERN`, with the same pattern", "mpiexec.hydra -errfile-pattern err.%r ./a",
            "--error-files err.%r ./a")),
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
    does(&["info"], Nothing, Effect::Version, VERSION),
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
    does(&["app"], One("FILE"), Effect::ProgramFile, PROGRAM_FILE),
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
    does(&["x"], One("NAME[=V]"), Effect::Gives(&flag::ENV, Make::Export),
        rule("as `--env NAME[=VALUE]`; `NAME*` means all variables whose names begin so; ranks have these anyway",
            "mpirun -x A=1 -x B* ./a", "--env A=1 ./a")),
    variable(&["set-env"], &flag::ENV, Make::Typed),
    does(&["append-env"], Two("NAME[c]", "VALUE"), Effect::Joins { first: false },
        rule("appends VALUE to the variable, separated by the character in brackets",
            "prterun --append-env NO_SUCH[:] /x ./a", "--env NO_SUCH=/x ./a")),
    does(&["prepend-env"], Two("NAME[c]", "VALUE"), Effect::Joins { first: true },
        rule("puts VALUE in front of the variable's value, separated by the character in brackets",
            "prterun --prepend-env NO_SUCH[:] /x ./a", "--env NO_SUCH=/x ./a")),
    refused(&["unset-env"], One("NAME"), "unset it first: env -u NAME mpirun ..."),
    does(&["mca", "omca"], Two("NAME", "VALUE"), Effect::Parameter(&flag::ENV),
        rule("sets `OMPI_MCA_NAME` for the ranks; wireup itself obeys parameters of the launcher (below)",
            "mpirun --mca btl tcp,self --mca rmaps_base_oversubscribe 1 ./a",
            "--env OMPI_MCA_btl=tcp,self --env OMPI_MCA_rmaps_base_oversubscribe=1 --oversubscribe ./a")),
    does(&["gmca", "gomca"], Two("NAME", "VALUE"), Effect::Parameter(&flag::GENV),
        rule("sets `OMPI_MCA_NAME` for the ranks of all programs; wireup itself obeys parameters of the launcher \
            (below)", "mpirun --gmca btl self ./a", "--genv OMPI_MCA_btl=self ./a")),
    does(&["prtemca", "gprtemca"], Two("NAME", "VALUE"), Effect::LauncherParameter,
        rule("a parameter of the launcher (below)", "prterun --prtemca plm_ssh_agent rsh ./a",
            "--remote-shell rsh ./a")),
    variable(&["pmixmca", "gpmixmca"], &flag::ENV, Make::Behind("PMIX_MCA_")),
    does(&["tune", "am", "amca"], One("FILES"), Effect::ParameterFiles,
        rule("reads parameters from files: `NAME = VALUE`, `-mca NAME VALUE` or `-x NAME=VALUE` on each line",
            "orterun --tune PARAMETERS ./a", "--env OMPI_MCA_btl=self --env A=1 ./a")),
    no_effect(&["gpu-support"], One("BOOL"), "set it with --mca mpi_accelerator_cuda_... or -x"),
    // Placement.
    value(&["N", "npernode"], "N", &flag::PPN),
    preset(&["pernode"], &flag::PPN, "1"),
    made(&["npersocket"], "N", &flag::MAP_BY, Make::Number("ppr:", ":socket")),
    made(&["ppr"], "N:OBJECT", &flag::MAP_BY, Make::Behind("ppr:")),
    does(&["rank-by", "rankby"], One("HOW"), Effect::Gives(&flag::RANK_BY, Make::Ranking),
        rule("as `--rank-by`; objects of a node number ranks as they are mapped", "mpirun --rank-by core ./a",
            "--rank-by slot ./a")),
    preset(&["byslot"], &flag::MAP_BY, "slot"),
    preset(&["bynode"], &flag::MAP_BY, "node"),
    preset(&["bycore"], &flag::MAP_BY, "core"),
    preset(&["bind-to-core"], &flag::BIND_TO, "core"),
    preset(&["bind-to-socket"], &flag::BIND_TO, "socket"),
    preset(&["bind-to-none"], &flag::BIND_TO, "none"),
    does(&["cpus-per-proc", "cpus-per-rank"], One("N"), Effect::Gives(&flag::MAP_BY, Make::Number(":pe=", "")),
        CPUS_PER_RANK),
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
    does(&["output"], One("LIST"), Effect::List(OUTPUT_WORDS,
        "choose tag, rank, timestamp, merge, dir=DIR or file=FILE"),
        rule("`tag`, `rank`, `timestamp`, `merge`, `dir=DIR`, `file=FILE` (`FILE.N.out`, `FILE.N.err`), with `:nocopy`",
            "mpirun --output tag,timestamp,merge,file=f:nocopy ./a",
            "--label --timestamp --merge-output --output-files f.%r.out --error-files f.%r.err ./a")),
    does(&["output-filename"], One("DIR"), Effect::OutputFolder,
        rule("writes `DIR/1/rank.N/stdout` and `stderr`, and shows the output too; `DIR:nocopy` does not show it",
            "mpirun --output-filename out:nocopy ./a",
            "--output-files out/1/rank.%0r/stdout --error-files out/1/rank.%0r/stderr ./a")),
    switch(&["tag-output"], &flag::LABEL),
    switch(&["timestamp-output"], &flag::TIMESTAMP),
    switch(&["merge-stderr-to-stdout"], &flag::MERGE_OUTPUT),
    no_effect(&["stream-buffering"], One("MODE"), "programs buffer as their C library does; start stdbuf as the \
        program to change that"),
    refused(&["xterm"], One("RANKS"), "start the terminal as the program: xterm -e ./app"),
    refused(&["xml"], Nothing, "there is no output in XML"),
    refused(&["xml-file"], One("FILE"), "there is no output in XML"),
    // Options about what the launcher prints.
    does(&["display"], One("LIST"), Effect::List(DISPLAY_WORDS, "choose map, bind, allocation or topo"),
        rule("`map`, `map-devel`, `allocation`: `--display-map`; `bind`, `topo`, `cpus`: `--report-bindings`",
            "mpirun --display map,bind ./a", "--display-map --report-bindings ./a")),
    switch(&["display-map", "display-devel-map", "display-diffable-map"], &flag::DISPLAY_MAP),
    switch(&["display-allocation", "display-devel-allocation"], &flag::DISPLAY_MAP),
    switch(&["display-topo"], &flag::REPORT_BINDINGS),
    switch(&["do-not-launch"], &flag::DRY_RUN),
    switch(&["verbose", "v"], &flag::VERBOSE),
    no_effect(&["show-progress"], Nothing, "--verbose shows what is waited for"),
    does(&["report-pid"], One("FILE"), Effect::ReportPid,
        rule("writes the process number of the launcher to FILE; `-`: standard output, `+`: standard error",
            "mpirun --report-pid /dev/null ./a", "./a")),
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
    does(&["cpus-per-task"], One("N"), Effect::Gives(&flag::MAP_BY, Make::Number(":pe=", "")), CPUS_PER_RANK),
    made(&["ntasks-per-socket"], "N", &flag::MAP_BY, Make::Number("ppr:", ":socket")),
    value(&["nodelist", "w"], "LIST", &flag::HOSTS),
    value(&["chdir", "D"], "DIR", &flag::WDIR),
    does(&["cpu-bind", "cpu_bind"], One("WHAT"), Effect::Gives(&flag::BIND_TO, Make::Binding), BIND_TO),
    value(&["gpus-per-task"], "N", &flag::GPUS_PER_RANK),
    does(&["mpi"], One("KIND"), Effect::Gives(&flag::PMI, Make::OneOf(PMIS)),
        rule("`pmi2`, `cray_shasta`: `--pmi simple`; `pmix`: `--pmi pmix`; `none`", "mpiexec --mpi=pmix ./a",
            "--pmi pmix ./a")),
    switch(&["label"], &flag::LABEL),
    always(&["unbuffered", "u"], Nothing, "each line is shown as soon as it is complete"),
    does(&["input", "i"], One("WHO"), Effect::Gives(&flag::STDIN, Make::Reader), STDIN),
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
