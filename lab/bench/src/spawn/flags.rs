//! The flags of `wireup bench spawn`.
use std::path::PathBuf;

use wireup_flags::{Command, Error, Flag, Line, Section, Value, Words};

use super::contest::Mpi;
use crate::common_flags::{self, CSV, CommonFlags, DRY_RUN, JSON, STRICT, WIREUP, WIREUP_ARG};

const PART: Flag = Flag::value(&["--part"], "A,B", "Only these: call, many.").or("call,many");
const MPI: Flag = Flag::value(&["--mpi"], "A,B", "Only these: mpich, open-mpi.").or("mpich,open-mpi");
const PARENTS: Flag = Flag::value(&["--parents"], "N", "call: ranks that start children together.").or("4");
const CHILDREN: Flag = Flag::value(&["--children"], "N", "call: children of a call.").or("4");
const CALLS: Flag = Flag::value(&["--calls"], "N", "call: calls of a job, one after the other.").or("5");
const PAUSE: Flag =
    Flag::value(&["--pause"], "MS", "call: sleep of all ranks before each call. 0: back to back.").or("300");
const ROUNDS: Flag = Flag::value(&["--rounds"], "N", "call: rounds that count, after one that warms up.").or("9");
const TIMES: Flag = Flag::value(&["--times"], "N", "many: calls of the one job.").or("1000");
const MPICH_PROGRAM: Flag = Flag::value(
    &["--mpich-program"],
    "PATH",
    "dev/programs/mpi/spawning.c with MPICH. Default: target/programs/mpich5/spawning.",
);
const OPEN_MPI_PROGRAM: Flag = Flag::value(
    &["--open-mpi-program"],
    "PATH",
    "The same with Open MPI 5. Default: target/programs/openmpi5/spawning.",
);
const LIMIT: Flag = common_flags::LIMIT.or("300");

pub const COMMAND: Command = Command {
    name: "bench spawn",
    purpose: "time MPI_Comm_spawn",
    intro: "
The same MPI program in turn under wireup and under the launcher of its MPI: Hydra 5 for MPICH, mpirun for Open MPI 5.

call: how long MPI_Comm_spawn takes, and how much of it passes until the children run, until they have loaded their
libraries and left MPI_Init, and after that. The target: the rest of the call, which is the call without the loading and
MPI_Init of its children, is at most 0.5 times as long as under the other launcher. The ranks sleep before each call
(--pause), so that the children of the call before can end. Beside it: how long vfork and exec take, without a launcher,
until the last of as many programs runs.

many: one rank that starts one child after the other. The target: the launcher's processes grow by at most 1 MiB.
",
    words: Words::Named(&[]),
    sections: &[Section {
        title: "Flags",
        flags: &[
            PART,
            MPI,
            PARENTS,
            CHILDREN,
            CALLS,
            PAUSE,
            ROUNDS,
            TIMES,
            MPICH_PROGRAM,
            OPEN_MPI_PROGRAM,
            WIREUP,
            WIREUP_ARG,
            LIMIT,
            STRICT,
            DRY_RUN,
            JSON,
            CSV,
        ],
    }],
    end: "",
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Call,
    Many,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    pub parts: Vec<Part>,
    pub mpis: Vec<Mpi>,
    pub parents: u32,
    pub children: u32,
    pub calls: u32,
    /// Before each call (ms).
    pub pause_ms: u32,
    pub rounds: u32,
    /// Calls of the job with many.
    pub times: u32,
    mpich_program: Option<PathBuf>,
    open_mpi_program: Option<PathBuf>,
    pub strict: bool,
    pub common_flags: CommonFlags,
}

/// With more ranks one machine gives no useful figures (chosen).
const SIZE_MAX: u32 = 256;
/// A minute (chosen).
const PAUSE_MS_MAX: u32 = 60_000;

pub fn read(line: &Line) -> Result<Flags, Error> {
    let size = |value: &Value| value.number_in(1, SIZE_MAX);
    let mpis = Mpi::ALL.map(|mpi| (mpi.name(), mpi));
    Ok(Flags {
        parts: line.one(PART, |value| value.list(|part| part.choice(&[("call", Part::Call), ("many", Part::Many)])))?,
        mpis: line.one(MPI, |value| value.list(|mpi| mpi.choice(&mpis)))?,
        parents: line.one(PARENTS, size)?,
        children: line.one(CHILDREN, size)?,
        calls: line.one(CALLS, Value::at_least_one)?,
        pause_ms: line.one(PAUSE, |value| value.number_in(0, PAUSE_MS_MAX))?,
        rounds: line.one(ROUNDS, Value::at_least_one)?,
        times: line.one(TIMES, Value::at_least_one)?,
        mpich_program: line.last(MPICH_PROGRAM, Value::path)?,
        open_mpi_program: line.last(OPEN_MPI_PROGRAM, Value::path)?,
        strict: line.has(STRICT),
        common_flags: CommonFlags::read(line, LIMIT)?,
    })
}

impl Flags {
    /// The program that starts children with this MPI.
    pub fn program(&self, mpi: Mpi) -> PathBuf {
        let named = match mpi {
            Mpi::Mpich => &self.mpich_program,
            Mpi::OpenMpi => &self.open_mpi_program,
        };
        named.clone().unwrap_or_else(|| mpi.program().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Flags, Error> {
        read(&common_flags::line(&COMMAND, words)?)
    }

    #[test]
    fn flags_are_parsed() {
        let flags = parsed("--part many --mpi open-mpi --children 2 --open-mpi-program a/b").unwrap();
        assert_eq!((flags.parts.as_slice(), flags.mpis.as_slice()), (&[Part::Many][..], &[Mpi::OpenMpi][..]));
        assert_eq!((flags.parents, flags.children, flags.times), (4, 2, 1000));
        assert_eq!(flags.program(Mpi::OpenMpi), PathBuf::from("a/b"));
        assert_eq!(flags.program(Mpi::Mpich), PathBuf::from("target/programs/mpich5/spawning"));
    }

    #[test]
    fn wrong_words_are_refused() {
        for words in ["--part calls", "--mpi intel", "--parents 0", "--children 300", "--times 0", "program"] {
            assert!(parsed(words).is_err(), "{words}");
        }
    }
}
