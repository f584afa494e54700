//! One call of MPI_Comm_spawn, from the times that rank 0 and the children noted (`dev/programs/mpi/spawning.c`).
//!
//! ```text
//! call        first child's   last child's      last child's    return
//!             process runs    process runs      MPI_Init ends
//!  |---first------|               |                  |            |
//!  |--------------last------------|----children------|            |
//!  |-----ready-------|.waiting....|                  |---after----|
//! ```
//!
//! The *rest* is the call without the children's own part: *last* and *after*. It is judged. A child that exists may
//! have to wait for a cpu, since the parents poll while they wait for the call: *ready* is when the last child would
//! have run without that. While the children load their libraries they use the launcher's PMI server, which this split
//! cannot tell apart.

use crate::stats;

/// The figures of a call (seconds).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Call {
    pub call_s: f64,
    pub first_s: f64,
    pub last_s: f64,
    pub ready_s: f64,
    pub children_s: f64,
    pub after_s: f64,
    pub rest_s: f64,
}

/// A figure of a call.
pub type Figure = (&'static str, fn(&Call) -> f64);

pub const LAST: Figure = ("until the last child runs", |call| call.last_s);

/// What can be compared with children that are no MPI programs.
pub const UNTIL_CHILDREN_RUN: [Figure; 3] =
    [("until the first child runs", |call| call.first_s), LAST, ("until all could run", |call| call.ready_s)];

/// Every figure by its name, the judged one last.
pub const FIGURES: [Figure; 7] = [
    ("call", |call| call.call_s),
    UNTIL_CHILDREN_RUN[0],
    UNTIL_CHILDREN_RUN[1],
    UNTIL_CHILDREN_RUN[2],
    ("children: load, MPI_Init", |call| call.children_s),
    ("after that", |call| call.after_s),
    ("the rest of the call", |call| call.rest_s),
];

/// A line for each call; a line that is still being written has no end yet and does not count.
pub fn read(text: &str) -> Result<Vec<Call>, String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    whole.lines().map(|line| one(line).ok_or_else(|| format!("the times of a call cannot be read: {line}"))).collect()
}

fn one(line: &str) -> Option<Call> {
    let times: Vec<u64> = line.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let ([call, end], children) = times.split_first_chunk()?;
    let (children, rest) = children.as_chunks::<4>();
    let is_right = |[run, _, main, initialised]: &[u64; 4]| call <= run && run <= main && main <= initialised;
    if !rest.is_empty() || !children.iter().all(is_right) {
        return None;
    }
    let since = |later: u64, earlier: u64| later.saturating_sub(earlier) as f64 / 1e9;
    let runs = || children.iter().map(|[run, ..]| *run);
    let last = runs().max()?;
    let initialised = children.iter().map(|[.., initialised]| *initialised).max()?;
    // The parents may return while a child is still on its way out of MPI_Init.
    let after_s = since(*end, initialised);
    // The kernel's account of the wait may be wrong by a tick of its clock, and then lead to before the call.
    let ready_s = since(children.iter().map(|[run, waited, ..]| run.saturating_sub(*waited)).max()?, *call);
    Some(Call {
        call_s: since(*end, *call),
        first_s: since(runs().min()?, *call),
        last_s: since(last, *call),
        ready_s,
        children_s: since(initialised, last),
        after_s,
        rest_s: since(last, *call) + after_s,
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
    fn a_call_is_split_at_the_last_child_and_at_the_end_of_its_initialisation() {
        let children = "1002000000 500000 1040000000 1140000000 1010000000 7000000 1050000000 1145000000";
        let calls = read(&format!("1000000000 1150000000 {children}\n1 2"));
        let [call] = calls.unwrap()[..] else { panic!("the second line is not finished") };
        let ms = FIGURES.map(|(_, of)| (of(&call) * 1e6).round() / 1e3);
        assert_eq!(ms, [150.0, 2.0, 10.0, 3.0, 135.0, 5.0, 15.0]);
    }

    #[test]
    fn a_child_that_initialises_after_the_return_adds_nothing() {
        let call = one("1000 2000 1100 40 1200 2500").unwrap();
        assert_eq!((call.rest_s, call.children_s), (100.0 / 1e9, 1400.0 / 1e9));
    }

    #[test]
    fn a_child_is_not_ready_before_the_call() {
        let call = one("1000 2000 1100 400 1200 1900").unwrap();
        assert_eq!((call.ready_s, call.rest_s), (0.0, 200.0 / 1e9));
    }

    #[test]
    fn wrong_lines_are_refused() {
        // No child, half a child, a child before the call, one without the time of its process, no numbers.
        for line in ["1 2\n", "1 2 3 0 4\n", "5 9 4 0 6 7\n", "5 9 0 0 6 7\n", "5 9 8 0 6 7\n", "a b\n", "\n"] {
            assert!(read(line).is_err(), "{line}");
        }
        assert_eq!(read("").unwrap(), []);
    }
}
