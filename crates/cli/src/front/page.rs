//! `docs/reference/mpiexec.md` is printed from the tables of options. A changed row is a changed page: `BLESS=1` writes
//! it.

use super::help::{effect, usage};
use super::row::Row;
use super::tables::{PARAMETERS, TABLES, VARIABLES};
use crate::help::page::check_page;

const HEAD: &str = "\
# mpiexec

Called as `mpiexec`, `mpirun`, `mpiexec.hydra`, `orterun` or `prterun`, or as `wireup mpiexec`, wireup takes the
options of these launchers. `wireup install --prefix DIR --front` makes links with these names in `DIR/bin`. How to use
it: [scripts that call mpiexec](../guides/from-other-launchers.md#keep-your-scripts).

This page is printed from the program's tables, and a test tries each row. One dash is as good as two, and
`-option=VALUE` is the same as `-option VALUE`. Flags of [`wireup run`](flags.md) that no table contains are accepted
too.

*no effect*: accepted; a line on standard error says so, unless `-quiet` is given. *always so*: accepted silently.
*refused*: an error that says what to use instead.

An option that two launchers use in different ways has the meaning of the launcher whose name was called
(`mpiexec.hydra`; `orterun`, `prterun`), else of the one whose other options occur, else of the program's MPI library.
Two options that contradict each other are an error.

Without a number of ranks, hosts or an allocation, a program of MPICH gets one rank, as under its own launcher. A
program of Open MPI, a script, any command line with options of Open MPI, and any where `I_MPI_ROOT` is set (Intel
MPI) gets one rank for each cpu.

Ranks have [the variables of all launchers](environment.md#set-for-ranks), such as `OMPI_COMM_WORLD_LOCAL_RANK`.
";

fn page() -> String {
    let mut text = HEAD.to_owned();
    for (title, rows) in TABLES {
        text += &format!("\n## {title}\n\n| option | effect |\n| --- | --- |\n");
        for row in rows {
            text += &format!("| `{}` | {} |\n", cell(&usage(row)), cell(&effect(row)));
        }
    }
    text + PARAMETERS_HEAD + &named_rows(PARAMETERS) + VARIABLES_HEAD + &named_rows(VARIABLES)
}

const PARAMETERS_HEAD: &str = "
## Parameters of Open MPI's launcher

Given by `--mca`, `--prtemca`, in files of `--tune` and `-am`, or as variables `OMPI_MCA_NAME`, `PRTE_MCA_NAME`. Other
parameters are for the libraries in the ranks, which get them as variables. Parameters of the frameworks `orte`,
`prte`, `plm`, `ras`, `rmaps`, `odls`, `oob`, `rml`, `routed`, `grpcomm`, `iof`, `errmgr`, `filem`, `state`, `schizo`,
`ess` that are not in this list have no effect; a note says so.

| parameter | effect |
| --- | --- |
";

const VARIABLES_HEAD: &str = "
## Variables of Hydra and Intel MPI

An option of the same effect takes precedence. Other variables that begin with `HYDRA_` or `I_MPI_HYDRA_` have no
effect; a note says so. All others that begin with `I_MPI_` are for the library in the ranks.

| variable | effect |
| --- | --- |
";

fn named_rows(rows: &[Row]) -> String {
    rows.iter().map(|row| format!("| `{}` | {} |\n", row.names.join("`, `"), cell(&effect(row)))).collect()
}

/// A text in which `|` is escaped, for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[test]
fn the_page_matches_the_tables() {
    check_page("mpiexec.md", &page());
}
