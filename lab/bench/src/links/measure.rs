//! Runs everything in turn, round after round, and reads the printed measurements.
use std::fs;

use super::flags::Flags;
use super::report::Report;
use super::subject::{Programs, Subject};
use crate::command::{Failure, Invocation};
use crate::turns::{Place, in_turns};

/// The measurements of one run for one size: times of one exchange (nanoseconds).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub bytes: u32,
    pub iterations: u32,
    pub mean_ns: f64,
    pub median_ns: f64,
    pub least_ns: f64,
}

pub fn rounds(place: &Place<Flags>, programs: &Programs, subjects: &[Subject], report: &mut Report) {
    let take = |subject: &Subject, outcome| match outcome {
        Ok(measured) => report.add(subject, measured),
        Err(failure) => report.fail(subject, Failure::to_string(&failure)),
    };
    in_turns(place.setup, place.flags.rounds, subjects, |subject| one(place, programs, subject), take);
}

fn one(place: &Place<Flags>, programs: &Programs, subject: &Subject) -> Result<Vec<Measured>, Failure> {
    let argv = subject.command(place, programs).map_err(|error| Failure::Wrong(error.to_string()))?;
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| place.setup.scratch.file(name));
    let read_text = |path| fs::read_to_string(path).map_err(|error| Failure::Wrong(error.to_string()));
    let (out, err) = (stdout.clone(), stderr.clone());
    let limit = place.flags.common_flags.limit;
    Invocation { argv, env: Vec::new(), stdout: Some(stdout), stderr, limit }.run(&place.setup.interrupt)?;
    let (text, notes) = (read_text(out)?, read_text(err)?);
    let measured: Vec<Measured> = text.lines().filter_map(read).collect();
    if measured.is_empty() {
        let end = text.lines().last().unwrap_or("nothing").to_owned();
        return Err(Failure::Wrong(format!("it reported no time: {end}")));
    }
    if let Some(line) = notes.lines().find(|line| line.contains("through the tree")) {
        return Err(Failure::Wrong(line.to_owned()));
    }
    Ok(measured)
}

/// Parses `measured BYTES TIMES TOTAL MEDIAN LEAST`; other text may precede it.
fn read(line: &str) -> Option<Measured> {
    let (_, numbers) = line.split_once("measured ")?;
    let numbers: Vec<f64> = numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let &[bytes, iterations, total_ns, median_ns, least_ns] = &numbers[..] else { return None };
    let (bytes, iterations) = (bytes as u32, iterations as u32);
    let mean_ns = total_ns / f64::from(iterations.max(1));
    Some(Measured { bytes, iterations, mean_ns, median_ns, least_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_result_lines_are_read() {
        let measured = Measured { bytes: 8, iterations: 100, mean_ns: 50.0, median_ns: 49.0, least_ns: 45.0 };
        assert_eq!(read("wireup: measured 8 100 5000 49 45"), Some(measured));
        assert_eq!(read("measured 8 100 5000 49 45"), Some(measured));
        for line in ["", "measured", "measured 8 100 5000 49", "measured 8 100 5000 49 x"] {
            assert_eq!(read(line), None);
        }
    }
}
