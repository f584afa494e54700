//! The flags of `wireup bench launch`, `start` and `jobs`.
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use wireup_flags::{Command, Error, Flag, Line, Section, Value, Words};

use crate::cases::{Case, NoCase, TABLE};
use crate::common_flags::{self, CSV, JSON, SHARED, STRICT, WIREUP, WIREUP_ARG, host_names, pair};
use crate::hosts;
use crate::in_session::Wanted;

const CASE: Flag = Flag::value(
    &["--case"],
    "NAME",
    "Run this case (repeatable; default: the whole table, see --list). NAME is WORK-NODESxPPN: true, pmi-init, pmi-bare, \
     mpi-init, exchange, memory, openmpi4, openmpi5, pmix-sleep, pmix-exchange, pmix-fence, pmix-direct, polling; of \
     jobs: jobs; nodes > 1 are virtual; with --hosts also initiation, and @SHELL for another shell.",
);
const HOSTS: Flag = Flag {
    help: "Time jobs across these hosts: its own table of cases; nodes take the first of them.",
    ..common_flags::HOSTS
};
const REMOTE_SHELL: Flag = Flag {
    help: "Called as CMD HOST COMMAND by all launchers. Default: plainsh where it is installed and the case is not \
           about ssh, else ssh.",
    ..common_flags::REMOTE_SHELL
};
const LIMIT: Flag = Flag { help: "Bound on each command, in place of each case's own.", ..common_flags::LIMIT };
const SVG: Flag = Flag { help: "start: write the figure of process initiation.", ..common_flags::SVG };
const LIST: Flag = Flag::switch(&["--list"], "List the table's cases and their targets.");
const ROUNDS: Flag =
    Flag::value(&["--rounds"], "N", "Rounds that count, in place of each case's own; one warm-up round goes before.");
const UP_ARG: Flag = Flag::value(&["--up-arg"], "ARG", "start, jobs: a further argument of wireup up (repeatable).");
const PEER: Flag =
    Flag::value(&["--peer"], "NAME=PATH", "Time this launcher too (repeatable); its kind is told by --version.");
const WITHOUT: Flag = Flag::value(
    &["--without"],
    "NAME",
    "Leave this launcher out (repeatable), such as wireup, baseline-2, hydra-4.0.2.",
);
const MPI_PROGRAM: Flag = Flag::value(
    &["--mpi-program"],
    "PATH",
    "An MPI program that does init, barrier, finalize: the mpi-init cases need it. Default: \
     target/programs/mpich5/initfin, if it is there.",
);
const MPI_ENV: Flag = Flag::value(&["--mpi-env"], "K=V", "A variable for the cases with MPI programs (repeatable).");
const JOBS: Flag = Flag::value(
    &["--jobs"],
    "N",
    "jobs: so many in all, in slices (--rounds, else 5) of which each launcher runs one in turn.",
)
.or("1000");
const IN_FLIGHT: Flag = Flag::value(&["--in-flight"], "N", "jobs: so many at a time.").or("16");
const SOAK: Flag = Flag::value(
    &["--soak"],
    "N",
    "jobs: in place of the race so many jobs through one session, some of which crash, abort or leave something behind; \
     says what agents have more than before: memory, descriptors, threads, processes, files.",
);
const NODES: Flag = Flag::value(&["--nodes"], "N", "With --soak: virtual nodes of the session.").or("4");

pub const COMMAND: Command = Command {
    name: "bench launch",
    purpose: "time wireup beside the launchers that are installed; the same flags for start and jobs",
    intro: "
Times wireup, the raw spawn baseline, a bare echo server and the launchers that are installed, side by side in
interleaved rounds, and reports which targets are met.

launch: jobs that start their own agents. start: the same, and jobs in a running session (wireup up before a case,
wireup down after it), beside prun on a running PRRTE. jobs: how many jobs of one rank a second.
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Cases", flags: &[CASE, LIST, ROUNDS, LIMIT, MPI_PROGRAM, MPI_ENV] },
        Section { title: "Launchers", flags: &[WIREUP, WIREUP_ARG, UP_ARG, PEER, WITHOUT] },
        Section { title: "Hosts", flags: &[HOSTS, REMOTE_SHELL, SHARED] },
        Section { title: "jobs", flags: &[JOBS, IN_FLIGHT, SOAK, NODES] },
        Section { title: "Results", flags: &[JSON, CSV, SVG, STRICT] },
    ],
    end: "",
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Benchmark {
    #[default]
    Launch,
    Start,
    Jobs,
}

impl Benchmark {
    pub fn name(self) -> &'static str {
        match self {
            Benchmark::Launch => "launch",
            Benchmark::Start => "start",
            Benchmark::Jobs => "jobs",
        }
    }
}

/// More agents than this are too many for one machine (chosen).
const SOAK_NODES_MAX: u32 = 1024;

#[derive(Debug, Default, PartialEq)]
pub struct Flags {
    pub benchmark: Benchmark,
    pub cases: Vec<Case>,
    /// This machine if empty.
    pub hosts: Vec<String>,
    /// A directory that all hosts see.
    pub shared: Option<PathBuf>,
    pub list: bool,
    pub wireup: Option<PathBuf>,
    pub wireup_args: Vec<String>,
    pub up_args: Vec<String>,
    pub peers: Vec<(String, PathBuf)>,
    pub without: Vec<String>,
    pub mpi_program: Option<PathBuf>,
    pub mpi_env: Vec<(OsString, OsString)>,
    /// Run jobs through a session instead of the cases.
    pub soak: Option<Soak>,
    pub json: Option<PathBuf>,
    pub csv: Option<PathBuf>,
    /// A folder.
    pub svg: Option<PathBuf>,
    pub strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soak {
    pub jobs: u32,
    pub in_flight: u32,
    pub node_count: u32,
}

pub fn read(benchmark: Benchmark, line: &Line) -> Result<Flags, Error> {
    let hosts = line.last(HOSTS, host_names)?.unwrap_or_default();
    let shared = line.last(SHARED, Value::path)?;
    let remote_shell = line.last(REMOTE_SHELL, one_word)?;
    let rounds = line.last(ROUNDS, Value::at_least_one)?;
    let limit = line.last(LIMIT, Value::at_least_one)?;
    let (jobs, in_flight) = (line.one(JOBS, Value::at_least_one)?, line.one(IN_FLIGHT, Value::at_least_one)?);
    let node_count = line.one(NODES, |value| value.number_in(1, SOAK_NODES_MAX))?;
    let soak = line.last(SOAK, Value::at_least_one)?.map(|jobs| Soak { jobs, in_flight, node_count });
    if hosts.is_empty() && (remote_shell.is_some() || shared.is_some()) {
        return together("--remote-shell and --shared are for cases across hosts: --hosts is missing");
    }
    if soak.is_some() && (benchmark != Benchmark::Jobs || !hosts.is_empty()) {
        return together("--soak is for bench jobs on virtual nodes");
    }
    let names = line.all(CASE, Value::text)?;
    let wanted = Wanted { names: &names, hosts: &hosts, shell: remote_shell.as_deref() };
    let mut cases = match benchmark {
        Benchmark::Launch => launch_cases(&wanted),
        Benchmark::Start => wanted.start(),
        Benchmark::Jobs => wanted.jobs(jobs, in_flight, rounds),
    }
    .or_else(|error| together(&error.to_string()))?;
    for case in &mut cases {
        if benchmark != Benchmark::Jobs {
            case.rounds = rounds.unwrap_or(case.rounds);
        }
        case.limit = limit.map_or(case.limit, |seconds| Duration::from_secs(seconds.into()));
    }
    let peers = line.all(PEER, pair)?.into_iter().map(|(name, path)| (name, path.into()));
    let mpi_env = line.all(MPI_ENV, pair)?.into_iter().map(|(name, value)| (name.into(), value.into()));
    Ok(Flags {
        benchmark,
        cases,
        hosts,
        shared,
        soak,
        list: line.has(LIST),
        wireup: line.last(WIREUP, Value::path)?,
        wireup_args: line.all(WIREUP_ARG, Value::text)?,
        up_args: line.all(UP_ARG, Value::text)?,
        peers: peers.collect(),
        without: line.all(WITHOUT, Value::text)?,
        mpi_program: line.last(MPI_PROGRAM, Value::path)?,
        mpi_env: mpi_env.collect(),
        json: line.last(JSON, Value::path)?,
        csv: line.last(CSV, Value::path)?,
        svg: line.last(SVG, Value::path)?,
        strict: line.has(STRICT),
    })
}

fn together<T>(problem: &str) -> Result<T, Error> {
    Err(Error::Together(problem.to_owned()))
}

fn launch_cases(wanted: &Wanted) -> Result<Vec<Case>, NoCase> {
    if !wanted.hosts.is_empty() {
        return hosts::cases(wanted.names, &hosts::table(), wanted.hosts, wanted.shell);
    }
    match wanted.names.is_empty() {
        true => TABLE.iter().map(|name| name.parse()).collect(),
        false => wanted.names.iter().map(|name| name.parse()).collect(),
    }
}

/// A shell of one word: not every peer accepts a remote shell with arguments.
fn one_word(value: &Value) -> Result<String, Error> {
    let shell = value.text()?;
    match shell.split_whitespace().count() {
        1 => Ok(shell),
        _ => Err(value.refused("expected one word; a script can hold more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Wish;

    fn parse_words(words: &str) -> Result<Flags, Error> {
        let Wish::Launch(flags) = crate::flags::parse(words.split_whitespace().map(OsString::from).collect())? else {
            panic!("not a launch benchmark")
        };
        Ok(*flags)
    }

    #[test]
    fn without_cases_the_table_is_used() {
        let flags = parse_words("launch").unwrap();
        assert_eq!(flags.cases.iter().map(Case::name).collect::<Vec<_>>(), TABLE);
        assert!(!flags.strict);
    }

    #[test]
    fn rounds_and_limit_apply_to_every_case_in_any_position() {
        let words = "launch --rounds 2 --case true-1x8 --case exchange-2x4 --limit 9 --peer h5=/x/mpiexec --strict";
        let flags = parse_words(words).unwrap();
        assert!(flags.cases.iter().all(|c| c.rounds == 2 && c.limit == Duration::from_secs(9)));
        assert_eq!(flags.cases.len(), 2);
        assert_eq!(flags.peers, [("h5".to_owned(), PathBuf::from("/x/mpiexec"))]);
        assert!(flags.strict);
    }

    #[test]
    fn with_hosts_the_host_table_is_used() {
        let flags = parse_words("launch --remote-shell rsh --hosts a,b-1.c").unwrap();
        assert_eq!(flags.hosts, ["a", "b-1.c"]);
        // Except cases in a Slurm allocation.
        assert!(flags.cases.iter().all(|case| case.name().ends_with("@rsh") || case.name().ends_with("@srun")));
        assert!(parse_words("launch --hosts a,b --case memory-2x2").is_err());
        assert!(parse_words("launch --case initiation-2x2").is_err());
    }

    #[test]
    fn wrong_words_are_refused() {
        for words in [
            "",
            "lunch",
            "launch --case x",
            "launch --rounds 0",
            "launch --peer h5",
            "launch --what",
            "launch x",
            "launch --hosts a,,b",
            "launch --hosts a[1-3]",
            "launch --remote-shell rsh",
            "launch --soak 10",
            "jobs --soak 10 --hosts a,b",
            "jobs --soak 0",
            "jobs --case true-1x1",
            "start --case jobs-1x1",
        ] {
            assert!(parse_words(words).is_err(), "{words}");
        }
        let wish = |words: &str| crate::flags::parse(words.split_whitespace().map(OsString::from).collect()).unwrap();
        assert_eq!(wish("jobs --help"), Wish::Help(COMMAND.help()));
        assert_ne!(wish("--help"), wish("jobs --help"));
    }

    #[test]
    fn start_and_jobs_flags_describe_sessions() {
        let flags = parse_words("start --case true-2x2 --rounds 2 --up-arg=--fanout=2").unwrap();
        assert!(flags.cases[0].is_standing && flags.up_args == ["--fanout=2"]);
        let flags = parse_words("jobs --jobs 40 --in-flight 4 --rounds 2").unwrap();
        assert_eq!((flags.cases[0].rounds, flags.cases[0].stream.jobs, flags.cases[0].stream.in_flight), (2, 20, 4));
        let flags = parse_words("jobs --soak 40 --in-flight 4").unwrap();
        assert_eq!(flags.soak, Some(Soak { jobs: 40, in_flight: 4, node_count: 4 }));
    }
}
