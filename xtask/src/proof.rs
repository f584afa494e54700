//! Checks that take longer than a test may. What was run is recorded in `proof/`, which is committed.
//!
//! `cargo xtask proof seeds --hours H`: simulated sessions by seed, for as long as requested, each seed only once: the next run continues
//! after the last one. After a change of the code, old seeds are worth no more than new ones, so none is run again.
//!
//! `cargo xtask proof model`: every order of events in sessions of four and five agents.
//!
//! `cargo xtask proof sanitizers`: the C libraries and programs that call them, with instructions that find wrong accesses.

pub mod sanitizers;

use crate::layout;
use crate::step::{Result, output, step};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Seeds that each processor runs before the ledger is written.
const SEEDS: u64 = 500;

/// The kinds of sessions with losses, since the others find less. Those with lost hosts take three times as long as those with lost agents.
const KINDS: [&str; 4] = ["wild", "wild", "wild", "fierce"];

const HEAD: &str = "\
# Simulated sessions that were run: kind, seeds (the first, and the one behind the last), commit, and which of them broke a rule.
# `cargo xtask proof seeds --hours H` goes on; `WIREUP_SIM_SHRINK=KIND:SEED` (crates/sim/tests/sessions.rs) shows what broke.
";

const MODEL_HEAD: &str = "\
# Sessions of which every order of events was run, without a broken rule: their states, and the commit. `cargo xtask proof model` does it.
";

/// Runs seeds that were not run yet, for this many hours.
///
/// # Errors
/// A program cannot be built or run, or a session breaks a rule.
pub fn seeds(hours: &str) -> Result {
    let hours: f64 = hours.parse().map_err(|_| format!("--hours {hours}: not a number"))?;
    let length = Duration::try_from_secs_f64(hours * 3600.0).map_err(|e| format!("--hours {hours}: {e}"))?;
    let commit = commit()?;
    let mut ledger = Ledger::read()?;
    let mut broken = Vec::new();
    let sessions = step("build the simulator", || build(&["--package", "wireup-sim", "--test", "sessions"]))?;
    let start = Instant::now();
    for kind in KINDS.iter().cycle().take_while(|_| start.elapsed() < length) {
        let first = ledger.next(kind);
        let parts = thread::available_parallelism().map_or(1, |parts| parts.get() as u64);
        let range = Range { kind: (*kind).to_owned(), first, end: first + parts * SEEDS };
        let found = step(&range, || list(&sessions, &range, parts))?;
        found.iter().for_each(|line| eprintln!("    {kind} {line}"));
        broken.extend(found.iter().map(|line| format!("{kind} {}", seed_of(line))));
        ledger.add(Line { range, commit: commit.clone(), broken: found.iter().map(|line| seed_of(line)).collect() });
        ledger.write()?;
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("these break a rule: {}", broken.join(", "))) }
}

/// Explores the model and records its size.
///
/// # Errors
/// The model cannot be built, or a rule is broken.
pub fn model() -> Result {
    let commit = commit()?;
    let model = step("build the model", || build(&["--package", "wireup-proto", "--lib"]))?;
    let test = "session::membership::model::larger_sessions_keep_the_rules_whatever_happens";
    let said = step("explore it", || output(Command::new(model).args(["--ignored", "--exact", test, "--nocapture"])))?;
    let lines: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("explored ")).collect();
    if lines.is_empty() {
        return Err(format!("there is no test {test}"));
    }
    let text: String = lines.iter().map(|line| format!("{line}, {commit}\n")).collect();
    eprint!("{text}");
    let path = layout::root().join("proof/model.txt");
    fs::write(&path, format!("{MODEL_HEAD}{text}")).map_err(|e| format!("write {}: {e}", path.display()))
}

/// Builds a test program once, so that edits made during a run do not affect what the ledger records.
fn build(which: &[&str]) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(layout::root()).args(["test", "--profile", "proof"]).args(which);
    let said = output(cargo.args(["--no-run", "--message-format", "json"]))?;
    let built = said.rsplit_once("\"executable\":\"").and_then(|(_, rest)| rest.split_once('"'));
    built.map(|(path, _)| path.into()).ok_or_else(|| "cargo does not say what it has built".into())
}

/// The sessions that break a rule: lines of `seed N: how`.
fn list(sessions: &Path, range: &Range, parts: u64) -> Result<Vec<String>> {
    let one = |part: u64| {
        let seeds = format!("{}:{}..{}", range.kind, range.first + part * SEEDS, range.first + (part + 1) * SEEDS);
        let mut command = Command::new(sessions);
        command.args(["--exact", "sessions_that_break_a_rule_are_listed", "--nocapture"]);
        let said = output(command.env("WIREUP_SIM_LIST", &seeds))?;
        // Running a test that does not exist succeeds, too.
        if !said.lines().any(|line| line == format!("listed {seeds}")) {
            return Err(format!("the simulator did not run {seeds}"));
        }
        Ok(said.lines().filter(|line| line.starts_with("seed ")).map(str::to_owned).collect::<Vec<_>>())
    };
    let found: Vec<Result<Vec<String>>> = thread::scope(|scope| {
        let running: Vec<_> = (0..parts).map(|part| scope.spawn(move || one(part))).collect();
        let ends = running.into_iter().map(|part| part.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        ends.collect()
    });
    Ok(found.into_iter().collect::<Result<Vec<_>>>()?.concat())
}

fn seed_of(line: &str) -> u64 {
    let number = line.strip_prefix("seed ").and_then(|rest| rest.split_once(':'));
    number.and_then(|(seed, _)| seed.parse().ok()).unwrap_or_default()
}

/// The commit that is run, with a mark if there are uncommitted changes.
fn commit() -> Result<String> {
    let git = |args: &[&str]| output(Command::new("git").current_dir(layout::root()).args(args));
    let commit = git(&["rev-parse", "--short=7", "HEAD"])?;
    let is_changed = !git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!proof"])?.is_empty();
    Ok(if is_changed { commit + "+changes" } else { commit })
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Range {
    kind: String,
    first: u64,
    end: u64,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind, self.first, self.end)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Line {
    range: Range,
    commit: String,
    broken: Vec<u64>,
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        let mut words = text.split_whitespace();
        let kind = words.next()?.to_owned();
        let range = Range { kind, first: words.next()?.parse().ok()?, end: words.next()?.parse().ok()? };
        let commit = words.next()?.to_owned();
        let broken = match words.next()? {
            "clean" => Vec::new(),
            "broken" => words.map(|seed| seed.parse().ok()).collect::<Option<_>>()?,
            _ => return None,
        };
        Some(Line { range, commit, broken })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.range, self.commit)?;
        if self.broken.is_empty() {
            return f.write_str(" clean");
        }
        f.write_str(" broken")?;
        self.broken.iter().try_for_each(|seed| write!(f, " {seed}"))
    }
}

#[derive(Default)]
struct Ledger(Vec<Line>);

impl Ledger {
    fn path() -> PathBuf {
        layout::root().join("proof/seeds.txt")
    }

    fn read() -> Result<Ledger> {
        match fs::read_to_string(Ledger::path()) {
            Ok(text) => Ledger::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Ledger::default()),
            Err(error) => Err(format!("read {}: {error}", Ledger::path().display())),
        }
    }

    fn parse(text: &str) -> Result<Ledger> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let line = |text: &str| Line::parse(text).ok_or_else(|| format!("proof/seeds.txt: {text:?} is no line of it"));
        Ok(Ledger(lines.map(line).collect::<Result<_>>()?))
    }

    fn write(&self) -> Result {
        let path = Ledger::path();
        let failed = |error: std::io::Error| format!("write {}: {error}", path.display());
        fs::create_dir_all(path.with_file_name("")).map_err(failed)?;
        fs::write(&path, self.to_string()).map_err(failed)
    }

    /// The first seed that was not run yet.
    fn next(&self, kind: &str) -> u64 {
        self.0.iter().filter(|line| line.range.kind == kind).map(|line| line.range.end).max().unwrap_or(0)
    }

    /// Adds a line, joined with the line that it continues.
    fn add(&mut self, new: Line) {
        let continues = |old: &&mut Line| {
            old.range.kind == new.range.kind && old.range.end == new.range.first && old.commit == new.commit
        };
        match self.0.iter_mut().find(continues) {
            Some(old) => {
                old.range.end = new.range.end;
                old.broken.extend(new.broken);
            }
            None => self.0.push(new),
        }
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: &str, first: u64, commit: &str, broken: &[u64]) -> Line {
        let range = Range { kind: kind.into(), first, end: first + 10 };
        Line { range, commit: commit.into(), broken: broken.to_vec() }
    }

    #[test]
    fn the_next_seeds_follow_those_already_run() {
        let mut ledger = Ledger::default();
        for next in [line("wild", 0, "a", &[]), line("fierce", 0, "a", &[3]), line("wild", 10, "a", &[12, 15])] {
            ledger.add(next);
        }
        ledger.add(line("wild", 20, "b", &[]));
        assert_eq!((ledger.next("wild"), ledger.next("fierce"), ledger.next("calm")), (30, 10, 0));
        let text = ledger.to_string();
        assert!(text.ends_with("wild 0 20 a broken 12 15\nfierce 0 10 a broken 3\nwild 20 30 b clean\n"), "{text}");
        assert_eq!(Ledger::parse(&text).map(|again| again.to_string()), Ok(text));
    }

    #[test]
    fn malformed_ledger_lines_are_named() {
        for text in ["wild 0 10 a", "wild 0 x a clean", "wild 0 10 a broken x", "wild 0 10 a fine"] {
            assert!(Ledger::parse(text).is_err_and(|problem| problem.contains(text)), "{text}");
        }
    }

    #[test]
    fn a_seed_is_read_from_its_line() {
        assert_eq!(seed_of("seed 17: agent 3 stays: for ever"), 17);
    }
}
