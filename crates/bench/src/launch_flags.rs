//! The flags of `wireup bench launch`, `start` and `jobs`.
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::prelude::*;

use crate::cases::{Case, NoCase, TABLE};
use crate::hosts;
use crate::in_session::Wanted;
use crate::words::{at_least_one, host_names};

pub const HELP: &str = "\
usage: wireup bench launch|start|jobs [FLAG..]

Times wireup, the raw spawn baseline, a bare echo server and the launchers that are installed, side by side in
interleaved rounds, and reports which targets are met.

launch: jobs that start their own agents. start: the same, and jobs in a running session (wireup up before a case,
wireup down after it), beside prun on a running PRRTE. jobs: how many jobs of one rank a second, 16 in flight.

  --case NAME        run this case (repeatable; default: the whole table, see --list);
                     NAME is WORK-NODESxPPN: true, pmi-init, pmi-bare, mpi-init, exchange, memory,
                     openmpi4, openmpi5, pmix-sleep, pmix-exchange, pmix-fence, pmix-direct, polling; of jobs: jobs;
                     nodes > 1 are virtual; with --hosts also initiation, and @SHELL for another shell
  --hosts A,B,..     time jobs across these hosts: its own table of cases; nodes take the first of them
  --remote-shell CMD called as CMD HOST COMMAND by all launchers (default: plainsh where it is installed
                     and the case is not about ssh, else ssh)
  --shared DIR       where all hosts see the test programs (default: the current directory)
  --list             list the table's cases and their targets
  --rounds N         rounds that count, in place of each case's own; one warm-up round goes before
  --limit SECONDS    bound on each command, in place of each case's own
  --wireup PATH      the wireup to time (default: beside wireup-bench, else on PATH)
  --wireup-arg ARG   a further argument of wireup run (repeatable)
  --up-arg ARG       start, jobs: a further argument of wireup up (repeatable)
  --peer NAME=PATH   time this launcher too (repeatable); its kind is told by --version
  --without NAME     leave this launcher out (repeatable), such as wireup, baseline-2, hydra-4.0.2
  --mpi-program PATH an MPI program that does init, barrier, finalize: the mpi-init cases need it
                     (default: target/programs/mpich5/initfin, if it is there)
  --mpi-env K=V      a variable for the cases with MPI programs (repeatable)
  --jobs N           jobs: so many in all, in slices of which each launcher runs one in turn (default: 1000 in 5; --rounds)
  --in-flight N      jobs: so many at a time (default: 16)
  --soak N           jobs: in place of the race so many jobs through one session, some of which crash, abort or leave something
                     behind; says what agents have more than before: memory, descriptors, threads, processes, files
  --nodes N          with --soak: virtual nodes of the session (default: 4)
  --json FILE        write everything that was measured
  --csv FILE         write every sample as a line
  --svg DIR          start: write the figure of process initiation
  --strict           exit with 1 if a target is missed
";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Benchmark {
    #[default]
    Launch,
    Start,
    Jobs,
}

impl Benchmark {
    pub fn from_word(word: &str) -> Option<Benchmark> {
        [Benchmark::Launch, Benchmark::Start, Benchmark::Jobs].into_iter().find(|benchmark| benchmark.name() == word)
    }

    pub fn name(self) -> &'static str {
        match self {
            Benchmark::Launch => "launch",
            Benchmark::Start => "start",
            Benchmark::Jobs => "jobs",
        }
    }
}

/// Default number of jobs in `bench jobs`, and how many of them run at a time.
const JOBS: u32 = 1000;
const IN_FLIGHT: u32 = 16;
/// Default number of nodes of the session in a soak test.
const SOAK_NODES: u32 = 4;
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

/// `None` if help is requested.
pub fn parse(benchmark: Benchmark, parser: &mut lexopt::Parser) -> Result<Option<Flags>, lexopt::Error> {
    let mut flags = Flags { benchmark, ..Flags::default() };
    let (mut rounds, mut limit, mut remote_shell) = (None, None, None);
    let (mut jobs, mut in_flight, mut soaked, mut node_count) = (JOBS, IN_FLIGHT, None, SOAK_NODES);
    let mut names: Vec<String> = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("case") => names.push(parser.value()?.string()?),
            Long("hosts") => flags.hosts = host_names(&parser.value()?.string()?)?,
            Long("remote-shell") => remote_shell = Some(one_word(parser.value()?.string()?)?),
            Long("shared") => flags.shared = Some(parser.value()?.into()),
            Long("list") => flags.list = true,
            Long("rounds") => rounds = Some(at_least_one(parser)?),
            Long("limit") => limit = Some(at_least_one(parser)?),
            Long("wireup") => flags.wireup = Some(parser.value()?.into()),
            Long("wireup-arg") => flags.wireup_args.push(parser.value()?.string()?),
            Long("up-arg") => flags.up_args.push(parser.value()?.string()?),
            Long("jobs") => jobs = at_least_one(parser)?,
            Long("in-flight") => in_flight = at_least_one(parser)?,
            Long("soak") => soaked = Some(at_least_one(parser)?),
            Long("nodes") => node_count = at_least_one(parser)?,
            Long("peer") => {
                let (name, path) = pair(parser.value()?.string()?)?;
                flags.peers.push((name, path.into()));
            }
            Long("without") => flags.without.push(parser.value()?.string()?),
            Long("mpi-program") => flags.mpi_program = Some(parser.value()?.into()),
            Long("mpi-env") => {
                let (name, value) = pair(parser.value()?.string()?)?;
                flags.mpi_env.push((name.into(), value.into()));
            }
            Long("json") => flags.json = Some(parser.value()?.into()),
            Long("csv") => flags.csv = Some(parser.value()?.into()),
            Long("svg") => flags.svg = Some(parser.value()?.into()),
            Long("strict") => flags.strict = true,
            Long("help") | Short('h') => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    let shell = remote_shell.as_deref();
    if flags.hosts.is_empty() && (shell.is_some() || flags.shared.is_some()) {
        return Err("--remote-shell and --shared are for cases across hosts: --hosts is missing".into());
    }
    flags.soak = soaked.map(|jobs| Soak { jobs, in_flight, node_count });
    if flags.soak.is_some() && (benchmark != Benchmark::Jobs || !flags.hosts.is_empty()) {
        return Err("--soak is for bench jobs on virtual nodes".into());
    }
    if node_count > SOAK_NODES_MAX {
        return Err(format!("--nodes {node_count}: at most {SOAK_NODES_MAX}").into());
    }
    let wanted = Wanted { names: &names, hosts: &flags.hosts, shell };
    flags.cases = match benchmark {
        Benchmark::Launch => launch_cases(&wanted),
        Benchmark::Start => wanted.start(),
        Benchmark::Jobs => wanted.jobs(jobs, in_flight, rounds),
    }
    .map_err(|error| lexopt::Error::Custom(Box::new(error)))?;
    for case in &mut flags.cases {
        if benchmark != Benchmark::Jobs {
            case.rounds = rounds.unwrap_or(case.rounds);
        }
        case.limit = limit.map_or(case.limit, |seconds| Duration::from_secs(seconds.into()));
    }
    Ok(Some(flags))
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
fn one_word(shell: String) -> Result<String, lexopt::Error> {
    match shell.split_whitespace().count() {
        1 => Ok(shell),
        _ => Err(format!("--remote-shell {shell:?}: expected one word; a script can hold more").into()),
    }
}

fn pair(text: String) -> Result<(String, String), lexopt::Error> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text}: expected NAME=VALUE").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Wish;

    fn parse_words(words: &str) -> Result<Flags, lexopt::Error> {
        let Wish::Launch(flags) = crate::flags::parse(words.split_whitespace().map(OsString::from).collect())? else {
            panic!("not a launch benchmark")
        };
        Ok(*flags)
    }

    #[test]
    fn without_cases_it_is_the_table() {
        let flags = parse_words("launch").unwrap();
        assert_eq!(flags.cases.iter().map(Case::name).collect::<Vec<_>>(), TABLE);
        assert!(!flags.strict);
    }

    #[test]
    fn rounds_and_limit_reach_every_case_wherever_they_stand() {
        let words = "launch --rounds 2 --case true-1x8 --case exchange-2x4 --limit 9 --peer h5=/x/mpiexec --strict";
        let flags = parse_words(words).unwrap();
        assert!(flags.cases.iter().all(|c| c.rounds == 2 && c.limit == Duration::from_secs(9)));
        assert_eq!(flags.cases.len(), 2);
        assert_eq!(flags.peers, [("h5".to_owned(), PathBuf::from("/x/mpiexec"))]);
        assert!(flags.strict);
    }

    #[test]
    fn hosts_bring_their_own_table() {
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
        assert_eq!(wish("jobs --help"), Wish::Help(HELP));
        assert_eq!(wish("--help"), Wish::Help(crate::flags::HELP));
    }

    #[test]
    fn start_and_jobs_time_sessions() {
        let flags = parse_words("start --case true-2x2 --rounds 2 --up-arg=--fanout=2").unwrap();
        assert!(flags.cases[0].is_standing && flags.up_args == ["--fanout=2"]);
        let flags = parse_words("jobs --jobs 40 --in-flight 4 --rounds 2").unwrap();
        assert_eq!((flags.cases[0].rounds, flags.cases[0].stream.jobs, flags.cases[0].stream.in_flight), (2, 20, 4));
        let flags = parse_words("jobs --soak 40 --in-flight 4").unwrap();
        assert_eq!(flags.soak, Some(Soak { jobs: 40, in_flight: 4, node_count: SOAK_NODES }));
    }
}
