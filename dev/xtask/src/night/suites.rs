//! Test suites of other projects, entry by entry: each entry must end as the suite's reference file says.

use super::launcher;
use super::ledger::{Ledger, Line, Range};
use crate::step::Result;
use crate::suites::entry::{Entry, EntryReport};
use crate::suites::reference::Reference;
use crate::suites::{ALL, Suite};
use std::path::Path;
use std::time::{Duration, Instant};

const HEAD: &str = "\
# Entries of foreign test suites that were run: suite and virtual nodes, entries (the first, and the one behind the \
last; the list begins
# again when it ends), commit, and which of them did not end as dev/suites/SUITE.txt says.
# `cargo xtask night suites --hours H [SUITE]` goes on with what was run least.
";

/// A suite, and the number of nodes on which it runs next.
struct Turn<'a> {
    suite: &'static Suite,
    nodes: u32,
    entries: &'a [Entry],
    reference: &'a Reference,
}

impl Turn<'_> {
    /// The name of this suite and number of nodes in the ledger.
    fn kind(&self) -> String {
        if self.nodes == 1 { self.suite.name.to_owned() } else { format!("{}/{}", self.suite.name, self.nodes) }
    }

    /// The entry for this number in the ledger, and how often all entries were run before.
    fn entry(&self, number: u64) -> (&Entry, u64) {
        let count = self.entries.len() as u64;
        (&self.entries[(number % count) as usize], number / count)
    }
}

/// Runs entries that were not run yet, of all suites or of one, for this many hours.
///
/// # Errors
/// A suite cannot be installed or run, or an entry does not end as its reference says.
pub fn run_for(hours: &str, only: Option<&str>) -> Result {
    let (length, commit) = (super::length(hours)?, super::commit()?);
    only.map(Suite::named).transpose()?;
    let mut ledger = Ledger::read("suites.txt", HEAD)?;
    let wireup = launcher()?;
    let mut suites = Vec::new();
    for suite in const { &ALL }.iter().filter(|suite| only.is_none_or(|name| name == suite.name)) {
        suites.push((suite, suite.entries()?, Reference::read(suite.name)?));
    }
    let turns: Vec<Turn> =
        suites.iter().flat_map(|(suite, entries, reference)| turns(suite, entries, reference)).collect();
    let start = Instant::now();
    let mut broken = Vec::new();
    while start.elapsed() < length {
        let Some(turn) = turns.iter().min_by_key(|turn| turn.entry(ledger.next(&turn.kind())).1) else { break };
        let kind = turn.kind();
        let first = ledger.next(&kind);
        let problem = try_one(turn, first, &wireup).err();
        problem.iter().for_each(|problem| eprintln!("DIFFERS  {problem}"));
        let range = Range { kind, first, end: first + 1 };
        ledger.add(Line { range, commit: commit.clone(), broken: problem.iter().map(|_| first).collect() });
        ledger.write()?;
        broken.extend(problem.map(|_| turn.entry(first).0.name.clone()));
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("these differ from their reference: {}", broken.join(", "))) }
}

/// Runs the entries of a suite whose names begin with `begin`, on one node. They are not added to the ledger.
///
/// # Errors
/// The errors of [`run_for`].
pub fn try_all(name: &str, begin: &str) -> Result {
    let (suite, reference, wireup) = (Suite::named(name)?, Reference::read(name)?, launcher()?);
    let mut differ = Vec::new();
    for entry in suite.entries()?.iter().filter(|entry| entry.name.starts_with(begin)) {
        match entry.compare(&wireup, 1, reference.line(&entry.name, 1)) {
            Ok(report) => show(name, entry, &report),
            Err(problem) => {
                eprintln!("DIFFERS  {problem}");
                differ.push(entry.name.clone());
            }
        }
    }
    if differ.is_empty() { Ok(()) } else { Err(format!("these differ from their reference: {}", differ.join(", "))) }
}

fn turns<'a>(suite: &'static Suite, entries: &'a [Entry], reference: &'a Reference) -> impl Iterator<Item = Turn<'a>> {
    suite.nodes.iter().map(move |nodes| Turn { suite, nodes: *nodes, entries, reference })
}

fn try_one(turn: &Turn, number: u64, wireup: &Path) -> Result {
    let (entry, _) = turn.entry(number);
    let report = entry.compare(wireup, turn.nodes, turn.reference.line(&entry.name, turn.nodes))?;
    show(&turn.kind(), entry, &report);
    Ok(())
}

fn show(kind: &str, entry: &Entry, report: &EntryReport) {
    println!("{kind}: {} | {} | {:.2} s", entry.name, report.verdict, report.length.as_secs_f64());
}

/// Runs the entries of a suite that have no line in the reference file yet, and whose names begin with `begin`, under
/// the suite's own launcher, and adds their lines. An entry that takes longer than `seconds` gets no line: it is left
/// for a run without that limit.
///
/// # Errors
/// The suite cannot be run, or has no launcher of its own.
pub fn reference(name: &str, begin: &str, seconds: Option<&str>) -> Result {
    let longest = seconds.map(|text| text.parse().map(Duration::from_secs)).transpose();
    let longest = longest.map_err(|_| format!("not a number of seconds: {}", seconds.unwrap_or_default()))?;
    let suite = Suite::named(name)?;
    let launcher = suite.own_launcher()?;
    let mut reference = Reference::read(name)?;
    for mut entry in suite.entries()? {
        if reference.line(&entry.name, 1).is_some() || !entry.name.starts_with(begin) {
            continue;
        }
        let limit = entry.limit;
        entry.limit = longest.map_or(limit, |longest| longest.min(limit));
        let report = entry.run(&launcher)?;
        show("reference", &entry, &report);
        if report.length >= entry.limit && entry.limit < limit {
            continue;
        }
        reference.add(&entry.name, &report.verdict);
        reference.write(name)?;
    }
    Ok(())
}
