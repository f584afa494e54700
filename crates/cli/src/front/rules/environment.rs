//! Options that set variables of the ranks.

use crate::flags::table as flag;
use crate::front::error::FrontError;
use crate::front::row::{Rule, Typed};
use crate::front::translation::Translation;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

pub static EXPORT: Rule = Rule {
    says: "as `-x NAME[=V]`; `NAME*` stands for all variables that begin so, which ranks have anyway",
    example: ("mpirun -x A=1 -x B* ./a", "-x A=1 ./a"),
    act: |translation, typed| match typed.value().word.as_bytes() {
        [name @ .., b'*'] if !name.contains(&b'=') => Ok(()),
        _ => translation.give(&flag::EXPORT, typed, typed.pair()),
    },
};

pub static ERROR_HANDLER: Rule = Rule {
    says: "sets `OMPI_MCA_mpi_initial_errhandler`, which Open MPI reads; other libraries know no such setting",
    example: (
        "mpiexec -initial-errhandler mpi_errors_abort ./a",
        "--env OMPI_MCA_mpi_initial_errhandler=mpi_errors_abort ./a",
    ),
    act: |translation, typed| set(translation, typed, "OMPI_MCA_mpi_initial_errhandler", &typed.pair()),
};

pub static TUNING_FILE: Rule = Rule {
    says: "sets `I_MPI_TUNING_BIN`",
    example: ("mpiexec.hydra -tune t.dat ./a", "--env I_MPI_TUNING_BIN=t.dat ./a"),
    act: |translation, typed| set(translation, typed, "I_MPI_TUNING_BIN", &typed.pair()),
};

pub static TMPDIR: Rule = Rule {
    says: "sets `TMPDIR` for the ranks",
    example: ("mpiexec.hydra -tmpdir /scratch ./a", "--env TMPDIR=/scratch ./a"),
    act: |translation, typed| set(translation, typed, "TMPDIR", &typed.pair()),
};

pub static APPEND: Rule = Rule {
    says: "puts VALUE behind the variable, with the character in brackets between",
    example: ("prterun --append-env NO_SUCH[:] /x ./a", "--env NO_SUCH=/x ./a"),
    act: |translation, typed| joined(translation, typed, false),
};

pub static PREPEND: Rule = Rule {
    says: "puts VALUE before the variable, with the character in brackets between",
    example: ("prterun --prepend-env NO_SUCH[:] /x ./a", "--env NO_SUCH=/x ./a"),
    act: |translation, typed| joined(translation, typed, true),
};

/// Sets a variable for the ranks of one program.
pub fn set(
    translation: &mut Translation,
    typed: &Typed,
    name: &str,
    value: &std::ffi::OsStr,
) -> Result<(), FrontError> {
    let mut word = OsString::from(name);
    word.push("=");
    word.push(value);
    translation.give(&flag::ENV, typed, word)
}

fn joined(translation: &mut Translation, typed: &Typed, first: bool) -> Result<(), FrontError> {
    let word = typed.value().text()?;
    let (name, separator) =
        word.split_once('[').and_then(|(name, rest)| Some((name, rest.strip_suffix(']')?))).ok_or_else(|| {
            typed.value().refused("write NAME[c], with the character that separates the values, as PATH[:]")
        })?;
    let added = typed.words.get(1).cloned().unwrap_or_default();
    let value = match std::env::var_os(name).filter(|value| !value.is_empty()) {
        None => added,
        Some(old) => {
            let (mut value, last) = if first { (added, old) } else { (old, added) };
            value.push(separator);
            value.push(last);
            value
        }
    };
    set(translation, typed, name, &value)
}
