//! The parts that all benchmarks share: flags, scratch folder, samples, and the loop that runs the contestants in
//! turns, round by round.
use std::cell::RefCell;
use std::error;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, getpid};
use serde_json::Value as Json;
use wireup_flags::{Command, Error, JsonTo, Line, Value, Words};
use wireup_os::files::take_stdout;
use wireup_os::process::set_subreaper;

use crate::command::{Failure, Invocation, wrong};
use crate::flags::{DRY_RUN, JSON, LIMIT, REMOTE_SHELL, ROUNDS, SHARED, WIREUP, WIREUP_ARG, hosts};
use crate::leftovers::{self, Interrupt};
use crate::programs::Scratch;
use crate::progress::{self, of_cases, of_rounds};
use crate::samples::{Machine, Measures, Samples, WARM_UP, count, describe, distinct, print};

/// Maximum number of rounds in a row in which a contestant may fail: further rounds would probably only run into their
/// time limit.
const FAILURES_MAX: u32 = 2;
/// Exit codes: `EXIT_USAGE`: the command line is wrong; `EXIT_OWN_FAILURE`: the benchmark itself failed;
/// `EXIT_INTERRUPTED`: a signal has interrupted the benchmark.
const EXIT_USAGE: u8 = 2;
const EXIT_OWN_FAILURE: u8 = 125;
const EXIT_INTERRUPTED: u8 = 130;

/// The reason why a benchmark ends early.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Usage(#[from] Error),
    #[error(transparent)]
    Run(#[from] Failure),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// For the runs of contestants, whose every problem is a failure of that contestant.
impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        if let Problem::Run(failure) = problem { failure } else { wrong(problem) }
    }
}

/// One benchmark of a program: its name, its flags, and the function that runs it.
pub type Benchmark = (&'static str, &'static Command, Run);
type Run = fn(&Bench) -> Result<(), Problem>;
/// A helper process of a benchmark, for which this program starts itself again: its first argument, and the function
/// that receives the other arguments.
pub type Part = (&'static str, fn(&[OsString]) -> Result<(), Box<dyn error::Error>>);
/// Benchmarks that also run launchers of other projects: a failure of such a launcher does not fail the benchmark.
const WITH_STRANGERS: [&str; 3] = ["launch", "start", "jobs"];

pub struct Bench {
    pub name: &'static str,
    pub line: Line,
    pub scratch: Scratch,
    pub interrupt: Interrupt,
    pub machine: Machine,
    pub samples: RefCell<Samples>,
    /// Hosts on which jobs run; empty: virtual nodes of this machine.
    pub hosts: Vec<String>,
    pub wireup_args: Vec<String>,
    /// Number of rounds that the user requests; `None`: each benchmark's own number.
    pub rounds: Option<u32>,
    /// Time limit of each command that the user requests; `None`: each benchmark's own limit.
    pub limit: Option<Duration>,
    /// Whether turns are only listed and not run.
    is_dry: bool,
    /// Child processes that outlive a turn (sessions, jobs, agents), which the clean-up after each turn spares.
    kept: RefCell<Vec<Pid>>,
    /// The case that is measured now, for benchmarks that run all turns of one case before those of the next.
    case: RefCell<Option<String>>,
}

/// A contestant's run of a case, which is measured once in each round.
#[derive(Clone, Debug)]
pub struct Turn<T> {
    pub contestant: String,
    pub case: Json,
    pub rounds: u32,
    pub what: T,
}

impl<T> Turn<T> {
    pub fn new(contestant: &str, case: &Json, rounds: u32, what: T) -> Turn<T> {
        Turn { contestant: contestant.to_owned(), case: case.clone(), rounds, what }
    }
}

/// Runs the benchmark or the helper process that the first of `words` names, and returns the exit code. `program`: the
/// flags before the name.
pub fn main(program: &Command, benchmarks: &[Benchmark], parts: &[Part], words: Vec<OsString>) -> u8 {
    if let Some((word, args)) = words.split_first()
        && let Some((word, run)) = parts.iter().find(|part| word == part.0)
    {
        let failed = |problem| eprintln!("wireup-{} {word}: {problem}", program.name);
        return run(args).map_err(failed).is_err().into();
    }
    let failed = |problem: Problem| match problem {
        Problem::Usage(error) => {
            eprintln!("wireup: {error}");
            EXIT_USAGE
        }
        problem => {
            eprintln!("wireup {}: {problem}", program.name);
            EXIT_OWN_FAILURE
        }
    };
    let (bench, run) = match prepare(program, benchmarks, words) {
        Ok(Ok(prepared)) => prepared,
        Ok(Err(help)) => {
            print(&help);
            return 0;
        }
        Err(problem) => return failed(problem),
    };
    let outcome = run(&bench);
    progress::hide();
    let mut samples = bench.samples.borrow_mut();
    samples.show();
    match (outcome, samples.broken.take()) {
        (Err(Problem::Usage(error)), _) => failed(error.into()),
        _ if bench.interrupt.is_set() => EXIT_INTERRUPTED,
        (Err(problem), _) => failed(problem),
        (_, Some(error)) => failed(wrong(format!("{}: {error}", JSON.name())).into()),
        (Ok(()), None) if !bench.is_dry && !samples.is_complete(!WITH_STRANGERS.contains(&bench.name)) => {
            failed(wrong("a case has measured nothing; the lines above say why").into())
        }
        (Ok(()), None) => 0,
    }
}

/// The benchmark, ready to run; or the help text that the user has requested.
fn prepare(
    program: &Command,
    benchmarks: &[Benchmark],
    words: Vec<OsString>,
) -> Result<Result<(Bench, Run), String>, Problem> {
    debug_assert!(matches!(program.words, Words::Program));
    let shown = words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let line = match program.parse(words)? {
        Ok(line) => line,
        Err(help) => return Ok(Err(program.help(help))),
    };
    let mut words = line.words.into_iter();
    let missing = Error::MissingWord { command: program.name, word: "BENCHMARK" };
    let word = Value { flag: format!("wireup {}", program.name), word: words.next().ok_or(missing)? };
    let names: Vec<(&'static str, Benchmark)> = benchmarks.iter().map(|one| (one.0, *one)).collect();
    let (name, command, run) = word.choice(&names)?;
    let line = match command.parse(words)? {
        Ok(line) => line,
        Err(help) => return Ok(Err(command.help(help))),
    };
    let hosts = hosts(&line)?;
    let (limit, json) = (line.last(LIMIT, Value::at_least_one)?, line.last(JSON, JsonTo::read)?);
    let wireup_args = line.all(WIREUP_ARG, Value::text)?;
    let (rounds, is_dry) = (line.last(ROUNDS, Value::at_least_one)?, line.has(DRY_RUN));
    let shared = line.last(SHARED, Value::path)?;
    let folder = (!hosts.is_empty() || shared.is_some()).then(|| shared.unwrap_or_else(|| ".".into()));
    let interrupt = Interrupt::install()?;
    set_subreaper()?;
    let scratch = Scratch::create_in(&std::path::absolute(folder.unwrap_or_else(std::env::temp_dir))?)?;
    let machine = Machine::look();
    let lines = json.map(|to| match to {
        JsonTo::Stdout => take_stdout(),
        JsonTo::File(path) => File::create(path),
    });
    let lines = lines.transpose().map_err(|error| wrong(format!("{}: {error}", JSON.name())))?;
    let samples = RefCell::new(Samples::create(name, &shown, &machine, lines));
    print(&format!("{}\n", machine.describe()));
    let limit = limit.map(|seconds| Duration::from_secs(seconds.into()));
    let bench = Bench {
        name,
        line,
        scratch,
        interrupt,
        machine,
        samples,
        hosts,
        wireup_args,
        rounds,
        limit,
        is_dry,
        kept: RefCell::default(),
        case: RefCell::default(),
    };
    Ok(Ok((bench, run)))
}

impl Bench {
    /// Path of the wireup to measure: the wireup that the user names, or the wireup in this program's folder or on
    /// `PATH`.
    pub fn wireup(&self) -> Result<PathBuf, Problem> {
        let found = self.line.last(WIREUP, Value::path)?.or_else(wireup_near);
        let missing = "wireup is neither next to this program nor on PATH; name it with --wireup PATH";
        Ok(std::path::absolute(found.ok_or_else(|| wrong(missing))?)?)
    }

    /// The command line of `wireup run` for `ranks` ranks on `node_count` nodes: hosts of the benchmark, with `ppn`
    /// ranks each, or virtual nodes of this machine. The program comes last.
    pub fn wireup_run(&self, ranks: u32, node_count: u32, ppn: u32, flags: &str) -> Result<Vec<OsString>, Problem> {
        let mut argv: Vec<OsString> = vec![self.wireup()?.into(), "run".into(), format!("-n={ranks}").into()];
        match self.hosts.get(..node_count as usize) {
            Some(hosts) => {
                let words = [format!("--hosts={}", hosts.join(",")), format!("--ppn={ppn}")];
                argv.extend(words.map(OsString::from));
                argv.push(format!("--remote-shell={}", self.remote_shell()?).into());
            }
            None if node_count > 1 => argv.push(format!("--virtual-nodes={node_count}").into()),
            None => {}
        }
        argv.extend(flags.split_whitespace().map(OsString::from));
        argv.extend(self.wireup_args.iter().map(OsString::from));
        Ok(argv)
    }

    /// Path of this program, or of a copy that all hosts see.
    pub fn own_program(&self) -> Result<PathBuf, Problem> {
        Ok(std::env::current_exe().and_then(|own| self.scratch.copy_of(&own))?)
    }

    pub fn limit_or(&self, seconds: u64) -> Duration {
        self.limit.unwrap_or(Duration::from_secs(seconds))
    }

    pub fn remote_shell(&self) -> Result<String, Problem> {
        Ok(self.line.last(REMOTE_SHELL, Value::text)?.unwrap_or_else(|| "ssh".to_owned()))
    }

    /// A command whose standard output goes to the file `stdout` of the scratch folder.
    pub fn command(&self, argv: Vec<OsString>, limit: Duration) -> Invocation {
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| self.scratch.file(name));
        Invocation { argv, env: Vec::new(), stdout: Some(stdout), stderr, limit }
    }

    /// Runs a command to its end; returns its wall and cpu times, and its output.
    pub fn run(&self, argv: Vec<OsString>, limit: Duration) -> Result<(Measures, String), Failure> {
        let command = self.command(argv, limit);
        let measures = command.run(&self.interrupt)?;
        let text = std::fs::read(self.scratch.file("stdout"))?;
        Ok((measures, String::from_utf8_lossy(&text).into_owned()))
    }

    /// Records the values of one run, or why it has none; but not that the user has interrupted it.
    pub fn add(&self, case: &Json, contestant: &str, round: i64, outcome: Result<Measures, Failure>) {
        if outcome == Err(Failure::Interrupted) {
            return;
        }
        self.samples.borrow_mut().add(case, contestant, round, outcome);
    }

    /// The values of a contestant in one round, for values that are computed from those of several contestants.
    pub fn measured(&self, case: &Json, contestant: &str, round: i64) -> Measures {
        self.samples.borrow().measured(case, contestant, round)
    }

    pub fn absent(&self, contestant: &str, why: impl AsRef<str>) {
        progress::hide();
        self.samples.borrow_mut().absent(contestant, why.as_ref());
    }

    /// Prints the results of all measurements since the last call.
    pub fn print_samples(&self) {
        progress::hide();
        self.samples.borrow_mut().show();
    }

    /// Prints a line about the current measurement.
    pub fn print(&self, line: &str) {
        progress::hide();
        print(&format!("{line}\n"));
    }

    /// Shows a case, number `number` of `count`, while it is measured. Turns of this case show their rounds after it.
    pub fn show_case(&self, case: &str, number: usize, count: usize) {
        let case = of_cases(case, number, count);
        progress::show(&case);
        self.case.replace(Some(case));
    }

    fn show_round(&self, case: &str, round: i64, rounds: u32) {
        progress::show(&of_rounds(self.case.borrow().as_deref().unwrap_or(case), round, rounds));
    }

    /// If turns are only to be listed (a dry run), prints them and returns true.
    pub fn lists<T>(&self, turns: &[Turn<T>]) -> bool {
        if self.is_dry {
            turns.iter().for_each(|turn| {
                print(&format!("{}: {}; {} rounds\n", turn.contestant, describe(&turn.case), turn.rounds));
            });
        }
        self.is_dry
    }

    /// Runs the turns, and records their values. `run` receives the subject of the turn, and whether the round is the
    /// warm-up round.
    pub fn turns<T>(&self, turns: &[Turn<T>], mut run: impl FnMut(&T, bool) -> Result<Measures, Failure>) {
        self.each_turn(turns, |turn, round| {
            let mut outcome = run(&turn.what, round == WARM_UP);
            let left_behind = leftovers::settle(&self.kept.borrow());
            if let Ok(measures) = &mut outcome
                && left_behind > 0
            {
                measures.push(count("left-behind", left_behind as f64));
            }
            let has_failed = outcome.is_err();
            self.add(&turn.case, &turn.contestant, round, outcome);
            has_failed
        });
    }

    /// Interleaved rounds: A B C, C B A, and so on, so that disturbances of the machine affect all contestants alike. A
    /// warm-up round comes first. A contestant that fails in two rounds in a row is not run again. Stops when
    /// interrupted. `run` receives a turn and the number of its round, and returns whether it has failed.
    pub fn each_turn<T>(&self, turns: &[Turn<T>], mut run: impl FnMut(&Turn<T>, i64) -> bool) {
        if self.lists(turns) {
            return;
        }
        self.keep_running();
        let rounds = turns.iter().map(|turn| i64::from(turn.rounds)).max().unwrap_or(0);
        let mut failures = vec![0; turns.len()];
        let cases = distinct(turns.iter().map(|turn| &turn.case));
        let number = |case: &Json| cases.iter().position(|other| *other == case).map_or(0, |at| at + 1);
        let names: Vec<String> =
            turns.iter().map(|turn| of_cases(&describe(&turn.case), number(&turn.case), cases.len())).collect();
        for round in WARM_UP..rounds {
            let mut order: Vec<usize> = (0..turns.len()).collect();
            if round.rem_euclid(2) == 1 {
                order.reverse();
            }
            for at in order {
                let turn = &turns[at];
                if self.interrupt.is_set() {
                    return;
                }
                if failures[at] == FAILURES_MAX || round >= i64::from(turn.rounds) {
                    continue;
                }
                self.show_round(&names[at], round, turn.rounds);
                failures[at] = if run(turn, round) { failures[at] + 1 } else { 0 };
            }
        }
    }

    /// Lets all current child processes outlive the turn: the clean-up after it spares them.
    pub fn keep_running(&self) {
        self.kept.replace(leftovers::children_of(getpid()));
    }

    /// Calls `run`, which measures all of `turns`, unless turns are only listed. A failure of `run` is recorded for
    /// each turn.
    pub fn attempt<T>(&self, turns: &[Turn<T>], run: impl FnOnce() -> Result<(), Failure>) {
        if self.lists(turns) || self.interrupt.is_set() {
            return;
        }
        if let Some(turn) = turns.first() {
            progress::show(&describe(&turn.case));
        }
        if let Err(failure) = run() {
            turns.iter().for_each(|turn| self.add(&turn.case, &turn.contestant, WARM_UP, Err(failure.clone())));
        }
        self.print_samples();
    }
}

/// Path of the wireup in this program's folder, or on `PATH`.
pub fn wireup_near() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join("wireup")).find(|program| program.is_file())
}
