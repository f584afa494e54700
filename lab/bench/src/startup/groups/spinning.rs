//! The first connection to a rank that computes on all cores, with the library's thread and without: whole jobs in
//! turns.
use std::fs;

use super::super::flags::{AUTO, Flags};
use super::super::report::Cell;
use super::super::surroundings::Surroundings;
use super::{SPINNING, key};
use crate::cases::Place;
use crate::command::{Failure, Invocation};
use crate::metric::{Metric, Sample};
use crate::programs::Program;

pub const PLACE: Place = Place { node_count: 1, ppn: 2 };
/// The names of the figures, and what the program is told: how, and the number of the transport.
const CONTESTANTS: [(&str, [&str; 2]); 4] = [
    (SCHEMES[0], ["thread", "1"]),
    (SCHEMES[1], ["alone", "1"]),
    (SCHEMES[2], ["thread", "2"]),
    (SCHEMES[3], ["alone", "2"]),
];
pub const SCHEMES: [&str; 4] = ["thread-tcp", "no-thread-tcp", "thread-udp", "no-thread-udp"];
/// Rounds that count (chosen).
const ROUNDS: u32 = 15;

pub fn run(flags: &Flags, surroundings: &Surroundings) -> Result<Vec<Cell>, Failure> {
    let mut cells = CONTESTANTS.map(|(name, _)| Cell::new(key(flags, PLACE, SPINNING, name)));
    for _ in 0..=flags.rounds.unwrap_or(ROUNDS) {
        for (cell, (_, words)) in cells.iter_mut().zip(CONTESTANTS) {
            cell.runs.push(once(flags, surroundings, words)?);
        }
    }
    Ok(cells.into())
}

fn once(flags: &Flags, surroundings: &Surroundings, words: [&str; 2]) -> Result<Sample, Failure> {
    let result = surroundings.scratch.empty_file("spinning-result").map_err(wrong)?;
    let launch = surroundings.launch(flags, PLACE, AUTO);
    let mut argv = vec![launch.wireup.clone().into_os_string()];
    argv.extend(launch.words().into_iter().map(Into::into));
    argv.push(surroundings.scratch.program(Program::Spinning).into());
    argv.extend(words.map(Into::into));
    argv.extend([surroundings.groups_library().into(), result.clone().into()]);
    let stderr = surroundings.scratch.file("stderr-spinning");
    Invocation { argv, env: Vec::new(), stdout: None, stderr, limit: launch.limit }.run(&surroundings.interrupt)?;
    let text = fs::read_to_string(result).map_err(wrong)?;
    let ns: f64 = text.trim().parse().map_err(wrong)?;
    Ok(Sample(vec![(Metric::Time, ns / 1e9)]))
}

fn wrong(what: impl ToString) -> Failure {
    Failure::Wrong(what.to_string())
}
