//! The options of `mpiexec` in MPI-4.1, chapter 11.5.

use super::row::{Row, Takes, always, does, no_effect, refused, value};
use super::rules;
use crate::flags::table as flag;
use Takes::{Nothing, One};

#[rustfmt::skip]
pub static ROWS: &[Row] = &[
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
