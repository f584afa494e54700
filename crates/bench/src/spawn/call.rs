//! One call of MPI_Comm_spawn, from the times that rank 0 and the children noted (`tests/programs/mpi/spawning.c`).
//!
//! ```text
//! call        first child's   last child's      last child's    return
//!             process         process           MPI_Init ends
//!  |---first------|               |                  |            |
//!  |--------------last------------|----children------|            |
//!  |--------------------------- call -----------------------------|
//! ```
//!
//! The launcher's part is the call without the children's: it lasts until the last child's process runs, and begins again when all children
//! have returned from MPI_Init. A launcher that starts the first child early and the last one late gains nothing by it. In between
//! the children load their libraries and use the launcher's PMI server, which this split cannot tell apart.
use crate::stats;

/// The figures of a call (seconds).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    pub call_s: f64,
    pub first_s: f64,
    pub last_s: f64,
    pub children_s: f64,
    pub launcher_s: f64,
}

/// A figure of a call.
pub type Figure = (&'static str, fn(&Call) -> f64);

/// Every figure by its name, the judged one last.
pub const FIGURES: [Figure; 5] = [
    ("call", |call| call.call_s),
    ("to the first child's process", |call| call.first_s),
    ("to the last child's process", |call| call.last_s),
    ("children: load, MPI_Init", |call| call.children_s),
    ("call without the children's part", |call| call.launcher_s),
];

/// A line for each call; a line that is still being written has no end yet and does not count.
pub fn read(text: &str) -> Result<Vec<Call>, String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    whole.lines().map(|line| one(line).ok_or_else(|| format!("the times of a call cannot be read: {line}"))).collect()
}

fn one(line: &str) -> Option<Call> {
    let times: Vec<u64> = line.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let ([call, end], children) = times.split_first_chunk()?;
    let children = children.chunks_exact(3);
    if !children.remainder().is_empty() || children.clone().any(|child| !child.is_sorted() || child[0] < *call) {
        return None;
    }
    let since = |later: u64, earlier: u64| later.saturating_sub(earlier) as f64 / 1e9;
    let first = children.clone().map(|child| child[0]).min()?;
    let last = children.clone().map(|child| child[0]).max()?;
    let initialised = children.map(|child| child[2]).max()?;
    let last_s = since(last, *call);
    Some(Call {
        call_s: since(*end, *call),
        first_s: since(first, *call),
        last_s,
        children_s: since(initialised, last),
        // The parents may return while a child is still on its way out of MPI_Init.
        launcher_s: last_s + since(*end, initialised),
    })
}

/// The median call of a job, figure by figure.
pub fn median(calls: &[Call], (_, of): Figure) -> Option<f64> {
    stats::median(&calls.iter().map(of).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_split_at_the_last_childs_process_and_at_the_end_of_its_initialisation() {
        let calls =
            read("1000000000 1150000000 1002000000 1040000000 1140000000 1010000000 1050000000 1145000000\n1 2");
        let [call] = calls.unwrap()[..] else { panic!("the second line is not finished") };
        let ms = FIGURES.map(|(_, of)| (of(&call) * 1e6).round() / 1e3);
        assert_eq!(ms, [150.0, 2.0, 10.0, 135.0, 15.0]);
    }

    #[test]
    fn a_child_that_initialises_after_the_return_adds_nothing() {
        let call = one("1000 2000 1100 1200 2500").unwrap();
        assert_eq!((call.launcher_s, call.children_s), (100.0 / 1e9, 1400.0 / 1e9));
    }

    #[test]
    fn wrong_lines_are_refused() {
        // No child, half a child, a child before the call, a child without the time of its process, no numbers.
        for line in ["1 2\n", "1 2 3 4\n", "5 9 4 6 7\n", "5 9 0 6 7\n", "5 9 8 6 7\n", "a b\n", "\n"] {
            assert!(read(line).is_err(), "{line}");
        }
        assert_eq!(read("").unwrap(), []);
    }
}
