//! The flags of `wireup bench`.
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lexopt::prelude::*;

use crate::cases::{Case, TABLE};
use crate::hosts;
use crate::links;
use crate::modex;
use crate::startup::{self, Benchmark};
use crate::words::{at_least_one, host_names};

pub const HELP: &str = "\
usage: wireup bench launch [FLAG..]
       wireup bench exchange|init|overlap [FLAG..]      startup exchanges; see wireup bench exchange --help
       wireup bench modex [FLAG..]                      the start of PMIx ranks; see wireup bench modex --help
       wireup bench p2p|coll [FLAG..]                   links between agents; see wireup bench p2p --help

Times wireup, the raw spawn floor, a bare echo server and the launchers that are installed, side by side in
interleaved rounds, and says which of the figures asked for are met.

  --case NAME        run this case (repeatable; default: the whole table, see --list);
                     NAME is WORK-NODESxPPN: true, pmi-init, pmi-bare, mpi-init, exchange, memory,
                     openmpi4, openmpi5, pmix-sleep, pmix-exchange, pmix-direct;
                     nodes > 1 are virtual; with --hosts also initiation, and @SHELL for another shell
  --hosts A,B,..     time jobs across these hosts: its own table of cases; nodes take the first of them
  --remote-shell CMD called as CMD HOST COMMAND by all contestants (default: plainsh where it is installed
                     and the case is not about ssh, else ssh)
  --shared DIR       where all hosts see the test programs (default: the current directory)
  --list             list the table's cases and what is asked
  --rounds N         rounds that count, in place of each case's own; one warm-up round goes before
  --limit SECONDS    bound on each command, in place of each case's own
  --wireup PATH      the wireup to time (default: this one)
  --wireup-arg ARG   a further argument of wireup run (repeatable)
  --peer NAME=PATH   time this launcher too (repeatable); its kind is told by --version
  --without NAME     leave this contestant out (repeatable), such as wireup, floor-2, hydra-4.0.2
  --mpi-program PATH an MPI program that does init, barrier, finalize: the mpi-init cases need it
                     (default: target/programs/mpich5/initfin, if it is there)
  --mpi-env K=V      a variable for the cases with MPI programs (repeatable)
  --json FILE        write everything that was measured
  --csv FILE         write every sample as a line
  --strict           exit with 1 if a figure is missed
";

#[derive(Debug, Default, PartialEq)]
pub struct Flags {
    pub cases: Vec<Case>,
    /// Empty: this machine.
    pub hosts: Vec<String>,
    /// A directory that all hosts see.
    pub shared: Option<PathBuf>,
    pub list: bool,
    pub wireup: Option<PathBuf>,
    pub wireup_args: Vec<String>,
    pub peers: Vec<(String, PathBuf)>,
    pub without: Vec<String>,
    pub mpi_program: Option<PathBuf>,
    pub mpi_env: Vec<(OsString, OsString)>,
    pub json: Option<PathBuf>,
    pub csv: Option<PathBuf>,
    pub strict: bool,
}

#[derive(Debug, PartialEq)]
pub enum Wish {
    Launch(Box<Flags>),
    Startup(Box<startup::Flags>),
    Links(Box<links::Flags>),
    Modex(Box<modex::Flags>),
    Help(&'static str),
}

pub fn parse(args: Vec<OsString>) -> Result<Wish, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(args);
    match parser.next()? {
        Some(Value(word)) if word == "launch" => {}
        Some(Long("help") | Short('h')) => return Ok(Wish::Help(HELP)),
        Some(Value(word)) if word == "modex" => {
            let flags = modex::parse(&mut parser)?;
            return Ok(flags.map_or(Wish::Help(modex::HELP), |flags| Wish::Modex(Box::new(flags))));
        }
        Some(Value(word)) => {
            if let Some(benchmark) = links::Benchmark::from_word(&word.to_string_lossy()) {
                let flags = links::parse(benchmark, &mut parser)?;
                return Ok(flags.map_or(Wish::Help(links::HELP), |flags| Wish::Links(Box::new(flags))));
            }
            let Some(benchmark) = Benchmark::from_word(&word.to_string_lossy()) else {
                return Err(format!("no benchmark {}", word.to_string_lossy()).into());
            };
            let flags = startup::parse(benchmark, &mut parser)?;
            return Ok(flags.map_or(Wish::Help(startup::HELP), |flags| Wish::Startup(Box::new(flags))));
        }
        Some(other) => return Err(other.unexpected()),
        None => return Err("say what to time: launch, exchange, init, overlap, p2p, coll, modex".into()),
    }
    let mut flags = Flags::default();
    let (mut rounds, mut limit, mut remote_shell) = (None, None, None);
    let mut names: Vec<String> = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("case") => names.push(parser.value()?.string()?),
            Long("hosts") => flags.hosts = host_names(&parser.value()?.string()?)?,
            Long("remote-shell") => remote_shell = Some(one_word(parser.value()?.string()?)?),
            Long("shared") => flags.shared = Some(parser.value()?.into()),
            Long("list") => flags.list = true,
            Long("rounds") => rounds = Some(at_least_one(&mut parser)?),
            Long("limit") => limit = Some(at_least_one(&mut parser)?),
            Long("wireup") => flags.wireup = Some(parser.value()?.into()),
            Long("wireup-arg") => flags.wireup_args.push(parser.value()?.string()?),
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
            Long("strict") => flags.strict = true,
            Long("help") | Short('h') => return Ok(Wish::Help(HELP)),
            other => return Err(other.unexpected()),
        }
    }
    flags.cases = if !flags.hosts.is_empty() {
        hosts::cases(&names, &flags.hosts, remote_shell.as_deref()).map_err(boxed)?
    } else if remote_shell.is_some() || flags.shared.is_some() {
        return Err("--remote-shell and --shared are for cases across hosts: --hosts is missing".into());
    } else if names.is_empty() {
        TABLE.iter().map(|name| Case::from_str(name)).collect::<Result<_, _>>().map_err(boxed)?
    } else {
        names.iter().map(|name| Case::from_str(name)).collect::<Result<_, _>>().map_err(boxed)?
    };
    for case in &mut flags.cases {
        case.rounds = rounds.unwrap_or(case.rounds);
        case.limit = limit.map_or(case.limit, |seconds| Duration::from_secs(seconds.into()));
    }
    Ok(Wish::Launch(Box::new(flags)))
}

/// Not every peer takes a remote shell with arguments of its own.
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

fn boxed(error: crate::cases::NoCase) -> lexopt::Error {
    lexopt::Error::Custom(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &str) -> Result<Wish, lexopt::Error> {
        parse(words.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn without_cases_it_is_the_table() {
        let Wish::Launch(flags) = parse_words("launch").unwrap() else { panic!("not a launch") };
        assert_eq!(flags.cases.iter().map(Case::name).collect::<Vec<_>>(), TABLE);
        assert!(!flags.strict);
    }

    #[test]
    fn rounds_and_limit_reach_every_case_wherever_they_stand() {
        let words = "launch --rounds 2 --case true-1x8 --case exchange-2x4 --limit 9 --peer h5=/x/mpiexec --strict";
        let Wish::Launch(flags) = parse_words(words).unwrap() else { panic!("not a launch") };
        assert!(flags.cases.iter().all(|c| c.rounds == 2 && c.limit == Duration::from_secs(9)));
        assert_eq!(flags.cases.len(), 2);
        assert_eq!(flags.peers, [("h5".to_owned(), PathBuf::from("/x/mpiexec"))]);
        assert!(flags.strict);
    }

    #[test]
    fn hosts_bring_their_own_table() {
        let Wish::Launch(flags) = parse_words("launch --remote-shell rsh --hosts a,b-1.c").unwrap() else { panic!() };
        assert_eq!(flags.hosts, ["a", "b-1.c"]);
        assert!(flags.cases.iter().all(|case| case.name().ends_with("@rsh")));
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
        ] {
            assert!(parse_words(words).is_err(), "{words}");
        }
        assert_eq!(parse_words("launch --help").unwrap(), Wish::Help(HELP));
        assert_eq!(parse_words("--help").unwrap(), Wish::Help(HELP));
    }
}
