//! Runs every decoder of bytes from another process on mutated bytes, with libFuzzer, which needs a nightly compiler
//! and `cargo fuzz`.

use super::ledger::{Ledger, Line, Range};
use crate::layout;
use crate::step::{Result, output, step};
use std::fs;
use std::process::Command;
use std::time::Instant;

/// Time that each target runs before the next target has its turn (s).
const TURN_S: u32 = 60;
const HEAD: &str = "\
# Executions of fuzz targets: target, executions (from, to), commit, and whether one of them was a finding (the number \
where its turn
# began). `cargo xtask night fuzz --hours H` gives each the same time, the least run one first; dev/fuzz/README.md \
says what to do with findings.
";

/// Runs the fuzz targets in turns, for this many hours.
///
/// # Errors
/// A target cannot be built or run, or has found a failure.
pub fn run_for(hours: &str) -> Result {
    let (length, commit) = (super::length(hours)?, super::commit()?);
    let mut ledger = Ledger::read("fuzz.txt", HEAD)?;
    let targets = output(&mut fuzz("list"))
        .map_err(|problem| format!("{problem}; rustup toolchain install nightly && cargo install cargo-fuzz"))?;
    step("build the targets", || output(fuzz("build").args(PLAIN)))?;
    let start = Instant::now();
    let mut broken = Vec::new();
    let mut targets: Vec<&str> = targets.lines().collect();
    targets.sort_by_key(|target| ledger.next(target));
    for target in targets.into_iter().cycle() {
        if start.elapsed() >= length {
            break;
        }
        let first = ledger.next(target);
        let (count, finding) = step(format!("{target}, from execution {first} on"), || turn(target))?;
        finding.iter().for_each(|finding| eprintln!("    {finding}"));
        let range = Range { kind: target.to_owned(), first, end: first + count };
        let found: Vec<u64> = finding.iter().map(|_| first).collect();
        ledger.add(Line { range, commit: commit.clone(), broken: found });
        ledger.write()?;
        broken.extend(finding);
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("findings: {}", broken.join("; "))) }
}

fn fuzz(verb: &str) -> Command {
    let mut cargo = Command::new("cargo");
    // By default `cargo fuzz` looks for a folder `fuzz` next to the workspace's manifest.
    cargo.current_dir(layout::root().join("dev/fuzz")).args(["+nightly", "fuzz", verb, "--fuzz-dir", "."]);
    cargo
}

/// Options that switch sanitizers off. Without a sanitizer a target runs 5 to 100 times as fast. The decoders have no
/// unsafe code: they can panic, overflow, take too much memory or never end, all of which is found without a sanitizer.
const PLAIN: [&str; 2] = ["--sanitizer", "none"];

/// One turn of a target: returns the number of executions, and the failure that it found, if any.
fn turn(target: &str) -> Result<(u64, Option<String>)> {
    // The target writes new inputs to this folder; inputs worth keeping are committed by hand.
    let own = layout::target().join("fuzz-corpus").join(target);
    fs::create_dir_all(&own).map_err(|error| format!("{}: {error}", own.display()))?;
    let kept = layout::root().join("dev/fuzz/corpus").join(target);
    let mut command = fuzz("run");
    command.args(PLAIN).arg(target).arg(&own).arg(kept).arg("--").arg(format!("-max_total_time={TURN_S}"));
    let done = command.args(["-print_final_stats=1", "-dict=pmi.dict"]).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&done.stderr);
    let count = executions(&said).ok_or_else(|| format!("{target} was not run: {}", last_lines(&said)))?;
    Ok((count, (!done.status.success()).then(|| format!("{target}: {}", last_lines(&said)))))
}

fn executions(said: &str) -> Option<u64> {
    let number = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    number.trim().parse().ok()
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("SUMMARY") || line.contains("rtifact") || line.contains("error"))
        .collect();
    lines.join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_read_from_the_final_statistics() {
        let said =
            "Done 100 runs in 2 second(s)\nstat::number_of_executed_units: 12345\nstat::average_exec_per_sec: 9\n";
        assert_eq!((executions(said), executions("error: no such target")), (Some(12_345), None));
    }
}
