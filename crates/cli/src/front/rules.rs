//! The effects of other launchers' options that are not simply a flag of `wireup run`, each with an explanation and an
//! example for the documentation.

use super::row::{Action, Listed, Make, Rule, ShellPart};
use crate::flags::table as flag;

/// Each rule: its name, its action, its explanation, an example, and the words of `wireup run` that mean the same.
macro_rules! rules {
    ($($NAME:ident: $action:expr, $says:literal, $example:literal => $means:literal;)*) => {
        $(pub static $NAME: Rule = Rule { says: $says, example: ($example, $means), action: $action };)*
    };
}

rules! {
    // Programs, and options about the launcher itself.

    PROGRAM_FILE: Action::ProgramFile,
        "reads programs with their options from FILE, one on each line; `#` begins a comment",
        "mpiexec -l -configfile CONFIG" => "-n 1 --label ./a : -n 2 ./b x";
    PROGRAM_PATH: Action::ProgramPath,
        "looks the program up in these folders first",
        "mpiexec -path /no/such ./a" => "./a";
    VERSION: Action::Version,
        "shows the version",
        "mpiexec --version" => "VERSION";
    QUIET: Action::Quiet,
        "hides notes about options without effect",
        "mpiexec -quiet ./a" => "./a";
    REPORT_PID: Action::ReportPid,
        "writes the process number of the launcher to FILE; `-`: standard output, `+`: standard error",
        "mpirun --report-pid /dev/null ./a" => "./a";

    // Variables of the ranks.

    EXPORT: Action::Gives(&flag::ENV, Make::Export),
        "as `--env NAME[=VALUE]`; `NAME*` means all variables whose names begin so; ranks have these anyway",
        "mpirun -x A=1 -x B* ./a" => "--env A=1 ./a";
    ERROR_HANDLER: Action::Gives(&flag::ENV, Make::Behind("OMPI_MCA_mpi_initial_errhandler=")),
        "sets `OMPI_MCA_mpi_initial_errhandler`, which Open MPI reads; other libraries know no such setting",
        "mpiexec -initial-errhandler mpi_errors_abort ./a"
        => "--env OMPI_MCA_mpi_initial_errhandler=mpi_errors_abort ./a";
    APPEND: Action::Joins { first: false },
        "appends VALUE to the variable, separated by the character in brackets",
        "prterun --append-env NO_SUCH[:] /x ./a" => "--env NO_SUCH=/x ./a";
    PREPEND: Action::Joins { first: true },
        "puts VALUE in front of the variable's value, separated by the character in brackets",
        "prterun --prepend-env NO_SUCH[:] /x ./a" => "--env NO_SUCH=/x ./a";

    // Parameters of Open MPI.

    PARAMETER: Action::Parameter(&flag::ENV),
        "sets `OMPI_MCA_NAME` for the ranks; wireup itself obeys parameters of the launcher (below)",
        "mpirun --mca btl tcp,self --mca rmaps_base_oversubscribe 1 ./a"
        => "--env OMPI_MCA_btl=tcp,self --env OMPI_MCA_rmaps_base_oversubscribe=1 --oversubscribe ./a";
    JOB_PARAMETER: Action::Parameter(&flag::GENV),
        "sets `OMPI_MCA_NAME` for the ranks of all programs; wireup itself obeys parameters of the launcher (below)",
        "mpirun --gmca btl self ./a" => "--genv OMPI_MCA_btl=self ./a";
    LAUNCHER_PARAMETER: Action::LauncherParameter,
        "a parameter of the launcher (below)",
        "prterun --prtemca plm_ssh_agent rsh ./a" => "--remote-shell rsh ./a";
    PARAMETER_FILES: Action::ParameterFiles,
        "reads parameters from files: `NAME = VALUE`, `-mca NAME VALUE` or `-x NAME=VALUE` on each line",
        "orterun --tune PARAMETERS ./a" => "--env OMPI_MCA_btl=self --env A=1 ./a";

    // Placement and binding.

    MAP_BY: Action::Gives(&flag::MAP_BY, Make::Mapping),
        "as `--map-by`; Hydra's `core:2` maps to every second core",
        "mpirun --map-by :oversubscribe --map-by node ./a" => "--map-by node:oversubscribe ./a";
    BIND_TO: Action::Gives(&flag::BIND_TO, Make::Binding),
        "as `--bind-to`; also `rr` (a hardware thread each), `user:LIST`, `map_cpu:LIST`, `cores`, `sockets`, \
        `threads`",
        "mpiexec.hydra -bind-to core:2 ./a" => "--bind-to core:2 ./a";
    RANK_BY: Action::Gives(&flag::RANK_BY, Make::Ranking),
        "as `--rank-by`; objects of a node number ranks as they are mapped",
        "mpirun --rank-by core ./a" => "--rank-by slot ./a";
    RANK_MAP: Action::Gives(&flag::RANK_MAP, Make::Typed),
        "the node of each rank, counted from 0: `0,0,1,1`, or Hydra's `(vector,(0,2,2))`",
        "mpiexec.hydra -rankmap 0,0,1 ./a" => "--rank-map 0,0,1 ./a";
    CPUS_PER_RANK: Action::Gives(&flag::MAP_BY, Make::Number(":pe=", "")),
        "as `--map-by :pe=N`: ranks are bound to N cores each",
        "mpirun --cpus-per-proc 2 ./a" => "--map-by :pe=2 ./a";
    GPUS: Action::Gives(&flag::GPUS_PER_RANK, Make::Unless(&["AUTO", "auto", "0"])),
        "as `--gpus-per-rank N`; `AUTO`: ranks see what mpiexec sees",
        "mpiexec.hydra -gpus-per-proc 2 ./a" => "--gpus-per-rank 2 ./a";
    MPI: Action::Gives(&flag::PMI, Make::OneOf(&[("pmi2", "simple"), ("cray_shasta", "simple"), ("pmix", "pmix"),
        ("pmix_v2", "pmix"), ("pmix_v3", "pmix"), ("pmix_v4", "pmix"), ("pmix_v5", "pmix"), ("none", "none")])),
        "`pmi2`, `cray_shasta`: `--pmi simple`; `pmix`: `--pmi pmix`; `none`",
        "mpiexec --mpi=pmix ./a" => "--pmi pmix ./a";

    // The remote shell.

    LAUNCHER: Action::RemoteShell(ShellPart::Launcher),
        "`ssh`, `rsh`, `slurm` (`srun`), `lsf` (`blaunch`), `sge` (`qrsh`): the remote shell; `fork`: this machine \
        only",
        "mpiexec.hydra -launcher ssh ./a" => "--remote-shell ssh ./a";
    SHELL_PROGRAM: Action::RemoteShell(ShellPart::Program),
        "as `--remote-shell PROGRAM`",
        "mpiexec.hydra -launcher ssh -launcher-exec /usr/bin/ssh ./a" => "--remote-shell /usr/bin/ssh ./a";
    SHELL_ARGUMENTS: Action::RemoteShell(ShellPart::Arguments),
        "appends these words to the remote shell's command",
        "mpiexec.hydra -launcher ssh -bootstrap-exec-args \"-p 2222\" ./a" => "--remote-shell \"ssh -p 2222\" ./a";

    // Standard input and output, and what the launcher prints.

    STDIN: Action::Gives(&flag::STDIN, Make::Reader),
        "as `--stdin`: a rank, `all` or `none`",
        "mpiexec.hydra -s all ./a" => "--stdin all ./a";
    LABEL_PATTERN: Action::Gives(&flag::LABEL_PATTERN, Make::Pattern),
        "begins each line with PATTERN: `%r` rank, `%h` host, `%p` number of the node, `%g` 0",
        "mpiexec.hydra -prepend-pattern \"%h:%g:%r \" ./a" => "--label-pattern \"%h:0:%r \" ./a";
    OUTPUT_FILES: Action::Gives(&flag::OUTPUT_FILES, Make::Pattern),
        "as `--output-files PATTERN`: `%r` rank, `%h` host, `%p` number of the node, `%g` 0",
        "mpiexec.hydra -outfile-pattern out.%r.%p ./a" => "--output-files out.%r.%n ./a";
    ERROR_FILES: Action::Gives(&flag::ERROR_FILES, Make::Pattern),
        "as `--error-files PATTERN`, with the same pattern",
        "mpiexec.hydra -errfile-pattern err.%r ./a" => "--error-files err.%r ./a";
    OUTPUT_FOLDER: Action::OutputFolder,
        "writes `DIR/1/rank.N/stdout` and `stderr`, and shows the output too; `DIR:nocopy` does not show it",
        "mpirun --output-filename out:nocopy ./a"
        => "--output-files out/1/rank.%0r/stdout --error-files out/1/rank.%0r/stderr ./a";
    OUTPUT: Action::List(
        &[
            (&["tag", "tag-detailed", "tag-fullname", "rank"], Listed::Flag(&flag::LABEL)),
            (&["timestamp"], Listed::Flag(&flag::TIMESTAMP)),
            (&["merge", "merge-stderr-to-stdout"], Listed::Flag(&flag::MERGE_OUTPUT)),
            (&["dir", "directory"], Listed::OutputFolder),
            (&["file", "filename"], Listed::OutputFiles),
            (&["copy", "nocopy", "raw", "pattern"], Listed::Accepted),
        ],
        "choose tag, rank, timestamp, merge, dir=DIR or file=FILE",
    ),
        "`tag`, `rank`, `timestamp`, `merge`, `dir=DIR`, `file=FILE` (`FILE.N.out`, `FILE.N.err`), with `:nocopy`",
        "mpirun --output tag,timestamp,merge,file=f:nocopy ./a"
        => "--label --timestamp --merge-output --output-files f.%r.out --error-files f.%r.err ./a";
    DISPLAY: Action::List(
        &[
            (&["map", "map-devel", "allocation", "alloc"], Listed::Flag(&flag::DISPLAY_MAP)),
            (&["bind", "bindings", "topo", "cpus"], Listed::Flag(&flag::REPORT_BINDINGS)),
            (&["displaycomm", "parseable", "parsable"], Listed::Nothing("there is no such display")),
        ],
        "choose map, bind, allocation or topo",
    ),
        "`map`, `map-devel`, `allocation`: `--display-map`; `bind`, `topo`, `cpus`: `--report-bindings`",
        "mpirun --display map,bind ./a" => "--display-map --report-bindings ./a";
}
