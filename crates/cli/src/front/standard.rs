//! The options of `mpiexec` in MPI-4.1, chapter 11.5.

use super::row::{Row, Takes, always, does, no_effect, refused, value};
use super::rules::{environment, placement, programs};
use crate::flags::table as flag;
use Takes::{Nothing, One};

pub static ROWS: &[Row] = &[
    value(&["n", "np"], "N", &flag::RANKS),
    value(&["host", "hosts"], "LIST", &flag::HOSTS),
    value(&["wdir"], "DIR", &flag::WDIR),
    does(&["path"], One("DIRS"), &programs::PATH),
    does(&["configfile"], One("FILE"), &programs::FILE),
    does(&["initial-errhandler"], One("NAME"), &environment::ERROR_HANDLER),
    value(&["memory-alloc-kinds"], "KINDS", &flag::MEMORY_ALLOC_KINDS),
    always(&["soft"], One("SET"), "the job has the number of ranks that -n says, or does not start"),
    no_effect(&["arch"], One("ARCH"), "hosts are named with -hosts or -f"),
    refused(
        &["file"],
        One("FILE"),
        "its contents are not standard; use -configfile, -f (hosts) or the options themselves",
    ),
    does(&["version", "V"], Nothing, &programs::VERSION),
    does(&["quiet", "q"], Nothing, &programs::QUIET),
    does(&["map-by", "mapby"], One("HOW"), &placement::MAP_BY),
    does(&["bind-to", "binding", "bindto"], One("WHAT"), &placement::BIND_TO),
];
