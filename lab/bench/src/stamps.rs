//! Parses the clock readings that the ranks of an exchange write, one line each, and computes the times of fence and
//! gets.
//!
//! All ranks read the same `CLOCK_MONOTONIC`, so the computed times are valid only on one machine, including its
//! virtual nodes.
use crate::command::{Failure, wrong};
use crate::samples::{Measures, bytes, median, of_ranks, seconds};

/// The numbers of a line: rank, job size, bytes of its key and value, and the times of the fence and the gets (ns of
/// the clock). Lines of PMIx clients have four more: the time to join, the first get, the beginning of `main`, and the
/// clock before two fences without data.
const NUMBERS: usize = 7;
const PMIX_NUMBERS: usize = 11;
/// The numbers of a line of `programs/mpi_shim.c`: rank, job size, time in calls of PMI (ns), and the clock before
/// `MPI_Init` and after `MPI_Init`, `MPI_Barrier` and `MPI_Finalize` (ns).
const MPI_NUMBERS: usize = 7;

/// Parses the numbers of each rank's line; returns them by rank.
///
/// # Errors
/// A line is not `count` numbers, or not every rank of the job has one line.
pub fn lines(text: &str, count: usize, job_size: u32) -> Result<Vec<Vec<u64>>, Failure> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let numbers: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        match numbers.filter(|numbers| numbers.len() == count) {
            Some(numbers) => lines.push(numbers),
            None => return Err(wrong(format!("the times of a rank cannot be read: {line}"))),
        }
    }
    lines.sort_unstable();
    match lines.iter().map(|line| line[0]).eq(0..u64::from(job_size)) && job_size > 0 {
        true => Ok(lines),
        false => Err(wrong(format!("{} lines of {job_size} ranks", lines.len()))),
    }
}

/// The times of an exchange of `job_size` ranks (`programs/pmi_exchange.c`, `programs/pmix_exchange.c`).
pub fn evaluate(text: &str, job_size: u32) -> Result<Measures, Failure> {
    let is_pmix = text.lines().next().is_some_and(|line| line.split(' ').count() == PMIX_NUMBERS);
    let all = lines(text, if is_pmix { PMIX_NUMBERS } else { NUMBERS }, job_size)?;
    let is_right = |line: &Vec<u64>| line[1] == u64::from(job_size) && line[3..NUMBERS].is_sorted();
    if !all.iter().all(is_right) {
        return Err(wrong("a rank's times are out of order, or of another job"));
    }
    let last = |at: usize| all.iter().map(|line| line[at]).max().unwrap_or(0);
    let longest = |from: usize, to: usize| all.iter().map(|line| line[to] - line[from]).max().unwrap_or(0);
    let time = |quantity: &str, ns: u64| seconds(quantity, ns as f64 / 1e9);
    let mut measures = vec![
        time("fence", last(4) - last(3)),
        time("get-all", longest(5, 6)),
        time("time", last(6) - last(3)),
        time("get-span", last(6) - last(5)),
        time("fence-max", longest(3, 4)),
        bytes("pair-bytes", all.iter().map(|line| line[2]).sum::<u64>() as f64),
    ];
    if is_pmix {
        let middle = |at: usize| median(all.iter().map(|line| line[at] as f64 / 1e9)).unwrap_or(0.0);
        measures.extend([seconds("first-get", middle(8)), seconds("join", middle(7))]);
        // Between the first and the last rank: at the beginning of `main`, before the two fences without data, and
        // after them.
        for (quantity, at) in [("skew", 9), ("imbalance-before", 10), ("imbalance-after", 3)] {
            let first = all.iter().map(|line| line[at]).min().unwrap_or(0);
            measures.push(time(quantity, last(at) - first));
        }
    }
    Ok(measures)
}

/// The times of an MPI program (`programs/mpi_shim.c`): of `MPI_Init` on each rank, and of the calls of PMI in it; then
/// what each call adds to the time of the job. A call begins when the last rank has returned from the call before it,
/// `MPI_Init` when the first rank enters it; it ends when the last rank returns from it.
pub fn of_mpi(text: &str, job_size: u32) -> Result<Measures, Failure> {
    let all = lines(text, MPI_NUMBERS, job_size)?;
    if !all.iter().all(|line| line[1] == u64::from(job_size) && line[3..].is_sorted()) {
        return Err(wrong("a rank's times are out of order, or of another job"));
    }
    if all.iter().any(|line| line[2] == 0) {
        return Err(wrong("a rank has made no call of PMI or PMIx that the shim sees"));
    }
    let each = |of: fn(&[u64]) -> u64| all.iter().map(move |line| of(line) as f64 / 1e9);
    let first = all.iter().map(|line| line[3]).min().unwrap_or(0);
    let ends = [4, 5, 6].map(|at| all.iter().map(|line| line[at]).max().unwrap_or(0));
    let adds = |call: &str, from: u64, to: u64| seconds(call, (to - from) as f64 / 1e9);
    let mut measures = of_ranks("mpi-init", each(|line| line[4] - line[3]));
    measures.extend(of_ranks("mpi-exchange", each(|line| line[2])));
    measures.extend([
        adds("MPI_Init", first, ends[0]),
        adds("MPI_Barrier", ends[0], ends[1]),
        adds("MPI_Finalize", ends[1], ends[2]),
    ]);
    Ok(measures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::value_of;

    fn times(text: &str, names: [&str; 3]) -> [f64; 3] {
        let measures = evaluate(text, 2).unwrap();
        names.map(|name| (value_of(&measures, name).unwrap() * 1e9).round())
    }

    #[test]
    fn times_are_from_the_last_entry_to_the_last_exit() {
        let text = "1 2 39 1000 9000 9000 12000\n0 2 39 5000 8000 8000 15000\n";
        assert_eq!(times(text, ["fence", "get-all", "get-span"]), [4000.0, 7000.0, 6000.0]);
        let text = "1 2 39 1000 9000 9000 12000 500 40 100 400\n0 2 39 5000 8000 8000 15000 700 60 250 900\n";
        assert_eq!(times(text, ["first-get", "join", "skew"]), [50.0, 600.0, 150.0]);
        assert_eq!(times(text, ["imbalance-before", "imbalance-after", "fence"]), [500.0, 4000.0, 4000.0]);
    }

    #[test]
    fn calls_of_mpi_are_parts_of_the_jobs_time() {
        let text = "0 2 300 1000 2000 2600 2800\n1 2 100 1200 2500 2550 2900\n";
        let measures = of_mpi(text, 2).unwrap();
        let ns = |name: &str| (value_of(&measures, name).unwrap() * 1e9).round();
        let names = ["mpi-init", "mpi-init-max", "mpi-exchange", "MPI_Init", "MPI_Barrier", "MPI_Finalize"];
        assert_eq!(names.map(ns), [1150.0, 1300.0, 200.0, 1500.0, 100.0, 300.0]);
        // Singletons instead of one job, ranks without a server, and times out of order.
        for wrong in [text.replace("1 2", "1 1"), text.replace(" 300 ", " 0 "), text.replace("2550", "2400")] {
            assert!(of_mpi(&wrong, 2).is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_duplicate_or_malformed_lines_are_errors() {
        let line = "0 2 39 1 2 3 4\n";
        for text in
            [line, &[line, line].concat(), "0 2 39 1 2 3", "2 2 39 1 2 3 4", "0 2 39 2 1 3 4\n1 2 39 1 2 3 4", ""]
        {
            assert!(evaluate(text, 2).is_err(), "{text}");
        }
    }
}
