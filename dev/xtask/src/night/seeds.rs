//! Simulated sessions by seed, for as long as the user requests. Each seed is run only once: after a change of the
//! code, an old seed is no more likely to find a bug than a new one.

use super::ledger::{Ledger, Line, Range};
use crate::step::{Result, output, step};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

/// Number of seeds that each processor runs before the ledger is written again.
const SEEDS: u64 = 500;

/// The kinds of sessions in which agents or hosts are lost, since other kinds find fewer bugs. Sessions that lose hosts
/// take three times as long as those that lose agents.
const KINDS: [&str; 4] = ["wild", "wild", "growing", "fierce"];

const HEAD: &str = "\
# Simulated sessions that were run: kind, seeds (the first, and the one behind the last), commit, and which of them \
broke a rule.
# `cargo xtask night seeds --hours H` goes on; `WIREUP_SIM_SHRINK=KIND:SEED` (dev/sim/tests/worlds/sessions.rs) shows \
what broke.
";

/// Runs seeds that were not run yet, for this many hours.
///
/// # Errors
/// A program cannot be built or run, or a session breaks a rule.
pub fn run(hours: &str) -> Result {
    let (length, commit) = (super::length(hours)?, super::commit()?);
    let mut ledger = Ledger::read("seeds.txt", HEAD)?;
    let mut broken = Vec::new();
    let sessions = step("build the simulator", || super::build(&["--package", "wireup-sim", "--test", "worlds"]))?;
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

/// Runs a range of seeds; returns a line `seed N: PROBLEMS` for each session that breaks a rule.
fn list(sessions: &Path, range: &Range, parts: u64) -> Result<Vec<String>> {
    let one = |part: u64| {
        let seeds = format!("{}:{}..{}", range.kind, range.first + part * SEEDS, range.first + (part + 1) * SEEDS);
        let mut command = Command::new(sessions);
        command.args(["--exact", "sessions::sessions_that_break_a_rule_are_listed", "--nocapture"]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_read_from_its_line() {
        assert_eq!(seed_of("seed 17: agent 3 stays: for ever"), 17);
    }
}
