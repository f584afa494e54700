//! `wireup bench launch`, `start` and `jobs`: the jobs of `case` with all launchers that were found.
//!
//! `launcher` makes the command line with which each launcher starts a job, `peers` finds launchers of other projects,
//! `work` runs a case once, `session` runs a session in the background.
mod case;
mod launcher;
pub mod peers;
mod session;
mod work;

use std::path::PathBuf;

use wireup_flags::{Command, Error, Flag, Section, Value};

use crate::bench::{Bench, Problem, Turn};
use crate::command::Failure;
use crate::flags::{self, JSON, LIMIT, NO_WORDS, REMOTE_SHELL, ROUNDS, SHARED, WIREUP, WIREUP_ARG, pair, together};
use crate::samples::{WARM_UP, print, seconds};
pub use case::Case;
use case::{Ranks, Remote};
pub use launcher::{Kind, Launcher, words};
pub use session::RunningSession;
use work::Surroundings;
pub use work::timed_mpi;

const CASE: Flag = Flag::value(
    &["--case"],
    "NAME",
    "Run this case (repeatable; default: see --list). NAME is WORK-NODESxPPN: true, pmi-init, pmi-bare, mpi-init, \
     mpich5, mpich4, intel, openmpi4, openmpi5, exchange, pmix-sleep, pmix-exchange, pmix-fence, polling; of jobs: \
     jobs; nodes > 1 are virtual; with --hosts also initiation, and @SHELL for another shell.",
);
const HOSTS: Flag = Flag { help: "Time jobs across these hosts, with other default cases.", ..flags::HOSTS };
const UP_ARG: Flag = Flag::value(&["--up-arg"], "ARG", "start, jobs: a further argument of wireup up (repeatable).");
const PEER: Flag =
    Flag::value(&["--peer"], "NAME=PATH", "Also time this launcher, identified by its --version (repeatable).");
const WITHOUT: Flag = Flag::value(
    &["--without"],
    "NAME",
    "Leave this launcher out (repeatable), such as wireup, baseline-2, hydra-4.0.2.",
);
const MPI_PROGRAM: Flag = Flag::value(
    &["--mpi-program"],
    "PATH",
    "An MPI program that does init, barrier, finalize: the mpi-init cases need it (default: \
     target/programs/mpich5/initfin, if it is there).",
);
const MPI_ENV: Flag = Flag::value(&["--mpi-env"], "K=V", "A variable for the cases with MPI programs (repeatable).");
const JOBS: Flag =
    Flag::value(&["--jobs"], "N", "jobs: number of jobs, in slices (--rounds, else 5) that launchers run in turn.")
        .or("1000");
const IN_FLIGHT: Flag = Flag::value(&["--in-flight"], "N", "jobs: number of jobs at a time.").or("16");

pub const COMMAND: Command = Command {
    name: "bench launch",
    purpose: "time wireup and the installed launchers; start and jobs have the same flags",
    intro: "
launch: jobs that start their own agents. start: the same, and jobs in a running session, next to prun on a running
PRRTE. jobs: how many jobs of one rank a second.

mpich5, mpich4, intel, openmpi4, openmpi5: init, barrier and finalize of that MPI (target/programs/NAME/initfin, made by
cargo xtask setup) under wireup, its own launcher and srun. A call's time ends when the last rank has returned from it,
and begins when the call before it has ended so, MPI_Init when the first rank enters it; other is the rest of wall.
mpi-init, mpi-exchange: MPI_Init of the median rank, and of it the calls of PMI or PMIx. All hosts must be one machine,
with one clock. overhead: wall without the slowest rank's MPI_Init.
",
    sections: &[
        Section { title: "Cases", flags: &[CASE, ROUNDS, LIMIT, MPI_PROGRAM, MPI_ENV] },
        Section { title: "Launchers", flags: &[WIREUP, WIREUP_ARG, UP_ARG, PEER, WITHOUT] },
        Section { title: "Hosts", flags: &[HOSTS, REMOTE_SHELL, SHARED] },
        Section { title: "jobs", flags: &[JOBS, IN_FLIGHT] },
        Section { title: "Results", flags: &[flags::DRY_RUN, JSON] },
    ],
    ..NO_WORDS
};

/// The default cases of `launch` on this machine.
const HERE: [&str; 13] = [
    "true-1x1024", "true-1x256", "true-1x4", "pmi-init-1x4096", "pmi-bare-1x4096", "mpi-init-1x64", "exchange-1x64",
    "openmpi4-1x4", "openmpi4-1x16", "openmpi5-1x4", "openmpi5-1x16", "pmix-sleep-1x256", "polling-1x4",
];
/// The default cases of `launch` across hosts; the cases of `INITIATION` come after the first seven.
const THERE: [&str; 11] = [
    "true-16x16", "true-64x16", "true-64x1", "mpi-init-4x4", "mpi-init-4x4@srun", "exchange-16x16", "exchange-64x4",
    "openmpi4-4x4", "openmpi5-4x4", "pmix-exchange-16x16", "pmix-fence-16x16",
];
const INITIATION: [&str; 6] =
    ["initiation-4x1", "initiation-8x1", "initiation-16x1", "initiation-16x2", "initiation-16x4", "initiation-16x8"];
/// The default cases of `start`.
const START: [&str; 2] = ["true-64x4", "true-16x16"];
/// Number of slices into which the stream of jobs is cut, one per round, so that disturbances affect all launchers
/// alike (chosen).
const SLICES: u32 = 5;
const SSH: &str = "ssh";
/// The MPI program that `cargo xtask setup` builds.
const DEFAULT_MPI_PROGRAM: &str = "target/programs/mpich5/initfin";

/// The cases that the user has selected.
fn cases(bench: &Bench) -> Result<Vec<Case>, Problem> {
    let line = &bench.line;
    let shell = line.last(REMOTE_SHELL, one_word)?;
    if bench.hosts.is_empty() && (shell.is_some() || line.has(SHARED)) {
        return Ok(together("--remote-shell and --shared are for cases across hosts: --hosts is missing")?);
    }
    let (jobs, in_flight) = (line.one(JOBS, Value::at_least_one)?, line.one(IN_FLIGHT, Value::at_least_one)?);
    let mut names = line.all(CASE, Value::text)?;
    if names.is_empty() {
        let defaults: Vec<&[&str]> = match (bench.name, bench.hosts.is_empty()) {
            ("jobs", _) => vec![&["jobs-1x1"]],
            ("start", true) => vec![&START],
            ("start", false) => vec![&START, &INITIATION],
            (_, true) => vec![&HERE],
            (_, false) => vec![&THERE[..7], &INITIATION, &THERE[7..]],
        };
        names = defaults.concat().into_iter().map(str::to_owned).collect();
    }
    let shell = shell.unwrap_or_else(|| SSH.to_owned());
    let case = |name: String| {
        let mut case = Case::named(&name, &bench.hosts, &shell).or_else(together)?;
        if case.work.is("jobs") != (bench.name == "jobs") {
            return together(format!("no case {name} of bench {}", bench.name));
        }
        case.is_standing = bench.name != "launch";
        if bench.name == "jobs" {
            case.rounds = bench.rounds.unwrap_or(SLICES).min(jobs);
            (case.jobs, case.in_flight) = (jobs.div_ceil(case.rounds), in_flight);
            case.limit = work::stream_limit(case.jobs);
        } else {
            case.rounds = bench.rounds.unwrap_or(case.rounds);
        }
        case.limit = bench.limit.unwrap_or(case.limit);
        Ok(case)
    };
    Ok(names.into_iter().map(case).collect::<Result<_, Error>>()?)
}

/// Parses a remote shell of one word: not every launcher accepts a remote shell with arguments.
fn one_word(value: &Value) -> Result<String, Error> {
    let shell = value.text()?;
    match shell.split_whitespace().count() {
        1 => Ok(shell),
        _ => Err(value.refused("expected one word; a script can hold more")),
    }
}

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let (line, cases) = (&bench.line, cases(bench)?);
    let up_args = line.all(UP_ARG, Value::text)?;
    let launchers = launchers(wireup(bench)?, bench)?;
    for launcher in launchers.iter().filter(|launcher| !launcher.path.as_os_str().is_empty()) {
        print(&format!("{}: {} {}\n", launcher.name, launcher.path.display(), launcher.version));
    }
    let default = || std::path::absolute(DEFAULT_MPI_PROGRAM).ok().filter(|path| path.exists());
    let mpi_program = line.last(MPI_PROGRAM, Value::path)?.or_else(default);
    let mpi_env = line.all(MPI_ENV, pair)?.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let surroundings = Surroundings { bench, mpi_program, mpi_env };
    let mut reached = Vec::new();
    for (case, number) in cases.iter().zip(1..) {
        if bench.interrupt.is_set() {
            break;
        }
        if let Some(why) = obstacle(case, &surroundings, &mut reached) {
            bench.print(&format!("\n{}: not run: {why}", case.name()));
            continue;
        }
        let able = launchers.iter().filter(|launcher| launcher.takes_part(case));
        let turn = |launcher: &Launcher| Turn::new(&launcher.name, &case.value(), case.rounds, launcher.clone());
        let mut turns: Vec<Turn<Launcher>> = able.map(turn).collect();
        if bench.lists(&turns) {
            continue;
        }
        bench.show_case(&case.name(), number, cases.len());
        let sessions = raise(case, &mut turns, bench, &up_args);
        bench.turns(&turns, |launcher, warms_up| surroundings.once(case, launcher, warms_up));
        for (name, session) in sessions.into_iter().rev() {
            if let Err(failure) = session.end() {
                bench.add(&case.value(), &name, WARM_UP, Err(Failure::Wrong(format!("taken down: {failure}"))));
            }
        }
        bench.print_samples();
    }
    Ok(())
}

/// Starts the sessions that the case needs; a contestant whose session does not start does not take part.
fn raise(
    case: &Case,
    turns: &mut Vec<Turn<Launcher>>,
    bench: &Bench,
    up_args: &[String],
) -> Vec<(String, RunningSession)> {
    let mut sessions = Vec::new();
    turns.retain(|turn| match RunningSession::raise(&turn.what, case, bench, up_args) {
        Ok(Some(session)) => {
            bench.print(&format!("{}: up in {:.3} s", turn.contestant, session.up_s));
            let up = seconds("up", session.up_s);
            bench.add(&turn.case, &turn.contestant, 0, Ok(vec![up]));
            sessions.push((turn.contestant.clone(), session));
            true
        }
        Ok(None) => true,
        Err(failure) => {
            bench.add(&turn.case, &turn.contestant, WARM_UP, Err(failure));
            false
        }
    });
    sessions
}

/// The wireup that the user has selected, with the arguments that the user has given for it.
fn wireup(bench: &Bench) -> Result<Launcher, Problem> {
    let path = bench.wireup()?;
    // The version in the first line of the answer; empty if the answer has no version.
    let answer = peers::ask(&path, "--version", &[], bench).unwrap_or_default();
    let version = answer.lines().next().and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default().to_owned();
    let extra = bench.wireup_args.clone();
    Ok(Launcher { version, path, extra, ..Launcher::new("wireup", Kind::Wireup) })
}

/// All launchers that are timed, the baselines first.
fn launchers(wireup: Launcher, bench: &Bench) -> Result<Vec<Launcher>, Error> {
    let like = |name: &str, kind| Launcher { name: name.into(), kind, ..wireup.clone() };
    let baselines = [("baseline-1", Kind::Baseline(1)), ("baseline-2", Kind::Baseline(2)), ("echo", Kind::Echo)];
    let mut all: Vec<Launcher> = baselines.into_iter().map(|(name, kind)| Launcher::new(name, kind)).collect();
    all.extend([Launcher::new("bare", Kind::Bare), like("baseline-launcher", Kind::LauncherBaseline)]);
    all.extend([like("serial", Kind::Serial), like("session", Kind::Session), wireup.clone()]);
    let peers: Vec<(String, String)> = bench.line.all(PEER, pair)?;
    let peers: Vec<(String, PathBuf)> = peers.into_iter().map(|(name, path)| (name, path.into())).collect();
    let without = bench.line.all(WITHOUT, Value::text)?;
    all.extend(peers::find(&peers, bench));
    all.retain(|launcher| !without.contains(&launcher.name));
    Ok(all)
}

/// The reason why a case cannot be run here; `None`: the case can be run. `reached` caches the result for each set of
/// hosts and shell.
fn obstacle(case: &Case, surroundings: &Surroundings, reached: &mut Vec<(Remote, Option<String>)>) -> Option<String> {
    if case.work.ranks == Ranks::Mpi && surroundings.mpi_program.is_none() {
        return Some("needs --mpi-program".into());
    }
    if matches!(case.work.ranks, Ranks::Calls(..)) && !work::program_of(case).exists() {
        return Some(format!("no {} here; cargo xtask setup makes it", work::program_of(case).display()));
    }
    let remote = case.remote.as_ref()?;
    if remote.hosts.len() < case.layout.node_count as usize {
        return Some(format!("needs {} hosts", case.layout.node_count));
    }
    if remote.is_allocation() && std::env::var_os("SLURM_JOB_ID").is_none() {
        return Some("needs a Slurm allocation of these hosts: run it in salloc".into());
    }
    if let Some((_, failure)) = reached.iter().find(|(known, _)| known == remote) {
        return failure.clone();
    }
    let failure = surroundings.reach(remote).err().map(|e| format!("hosts: {e}; see --shared"));
    reached.push((remote.clone(), failure.clone()));
    failure
}
