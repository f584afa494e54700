//! The clock readings of an exchange's ranks, one line each, and the times of the fence and the gets that follow from
//! them.
//!
//! All ranks read the same `CLOCK_MONOTONIC`, so these numbers are valid only on one machine, including its virtual
//! nodes.
use crate::metric::{Metric, Sample};
use crate::stats;

/// One rank's line, as `programs/pmi_exchange.c` and `programs/pmix_exchange.c` write it (times in ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    rank: u32,
    pair_bytes: u64,
    fence_enter_ns: u64,
    fence_leave_ns: u64,
    gets_begin_ns: u64,
    gets_end_ns: u64,
    /// With PMIx: the time to join, the first get, the beginning of `main`.
    more: Option<(u64, u64, u64)>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum StampError {
    #[error("line {0} of the ranks' clock readings cannot be read")]
    Line(usize),
    #[error("{found} of {expected} ranks finished the exchange")]
    Missing { found: usize, expected: u32 },
    #[error("rank {0} wrote its clock readings twice")]
    Twice(u32),
}

/// The times of an exchange of `job_size` ranks; every rank must have written one line.
pub fn evaluate(text: &str, job_size: u32) -> Result<Sample, StampError> {
    let stamps = text
        .lines()
        .enumerate()
        .map(|(i, line)| parse(line, job_size).ok_or(StampError::Line(i + 1)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut seen = vec![false; job_size as usize];
    for stamp in &stamps {
        if std::mem::replace(&mut seen[stamp.rank as usize], true) {
            return Err(StampError::Twice(stamp.rank));
        }
    }
    if stamps.len() != job_size as usize || stamps.is_empty() {
        return Err(StampError::Missing { found: stamps.len(), expected: job_size });
    }
    let last = |of: fn(&Stamp) -> u64| stamps.iter().map(of).max().unwrap_or(0);
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut sample = Sample(vec![
        (Metric::Fence, seconds(last(|s| s.fence_leave_ns) - last(|s| s.fence_enter_ns))),
        (Metric::GetAll, seconds(last(|s| s.gets_end_ns - s.gets_begin_ns))),
        (Metric::Time, seconds(last(|s| s.gets_end_ns) - last(|s| s.fence_enter_ns))),
        (Metric::GetSpan, seconds(last(|s| s.gets_end_ns) - last(|s| s.gets_begin_ns))),
        (Metric::PairBytes, stamps.iter().map(|s| s.pair_bytes).sum::<u64>() as f64),
        (Metric::FenceMax, seconds(last(|s| s.fence_leave_ns - s.fence_enter_ns))),
    ]);
    sample.0.extend(of_pmix(&stamps));
    Ok(sample)
}

/// The additional values of PMIx clients.
fn of_pmix(stamps: &[Stamp]) -> Vec<(Metric, f64)> {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let more: Vec<(u64, u64, u64)> = stamps.iter().filter_map(|stamp| stamp.more).collect();
    let median =
        |of: fn(&(u64, u64, u64)) -> u64| stats::median(&more.iter().map(|more| seconds(of(more))).collect::<Vec<_>>());
    let begins = || more.iter().map(|more| more.2);
    let skew = begins().max().zip(begins().min()).map(|(last, first)| seconds(last - first));
    let all =
        [(Metric::FirstGet, median(|more| more.1)), (Metric::JoinMedian, median(|more| more.0)), (Metric::Skew, skew)];
    all.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect()
}

/// `None` unless the line has seven numbers of this job in chronological order, or ten.
fn parse(line: &str, job_size: u32) -> Option<Stamp> {
    let numbers = line.split(' ').map(|n| n.parse().ok()).collect::<Option<Vec<u64>>>()?;
    let (numbers, more) = match numbers[..] {
        [.., init, first, begin] if numbers.len() == 10 => (&numbers[..7], Some((init, first, begin))),
        _ => (&numbers[..], None),
    };
    let &[rank, size, pair_bytes, fence_enter_ns, fence_leave_ns, gets_begin_ns, gets_end_ns] = numbers else {
        return None;
    };
    let in_order = fence_enter_ns <= fence_leave_ns && fence_leave_ns <= gets_begin_ns && gets_begin_ns <= gets_end_ns;
    (in_order && size == u64::from(job_size) && rank < size).then_some(Stamp {
        rank: rank as u32,
        pair_bytes,
        fence_enter_ns,
        fence_leave_ns,
        gets_begin_ns,
        gets_end_ns,
        more,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_time_is_from_the_last_entry_to_the_last_exit() {
        let text = "1 2 39 1000 9000 9000 12000\n0 2 39 5000 8000 8000 15000\n";
        let sample = evaluate(text, 2).unwrap();
        assert_eq!(sample.get(Metric::Fence), Some(4e-6));
        assert_eq!(sample.get(Metric::GetAll), Some(7e-6));
        assert_eq!(sample.get(Metric::GetSpan), Some(6e-6));
        assert_eq!(sample.get(Metric::PairBytes), Some(78.0));
    }

    #[test]
    fn pmix_client_lines_give_more_metrics() {
        let text = "1 2 39 1000 9000 9000 12000 500 40 100\n0 2 39 5000 8000 8000 15000 700 60 250\n";
        let sample = evaluate(text, 2).unwrap();
        assert_eq!(sample.get(Metric::FirstGet), Some(5e-8));
        assert_eq!(sample.get(Metric::JoinMedian), Some(6e-7));
        assert_eq!(sample.get(Metric::Skew), Some(1.5e-7));
    }

    #[test]
    fn missing_duplicate_or_malformed_lines_are_errors() {
        let line = "0 2 39 1 2 3 4\n";
        assert_eq!(evaluate(line, 2), Err(StampError::Missing { found: 1, expected: 2 }));
        assert_eq!(evaluate(&[line, line].concat(), 2), Err(StampError::Twice(0)));
        assert_eq!(evaluate("0 2 39 1 2 3", 2), Err(StampError::Line(1)));
        assert_eq!(evaluate("2 2 39 1 2 3 4", 2), Err(StampError::Line(1)));
        assert_eq!(evaluate("0 2 39 2 1 3 4", 2), Err(StampError::Line(1)));
        assert_eq!(evaluate("0 3 39 1 2 3 4", 2), Err(StampError::Line(1)));
        assert_eq!(evaluate("", 0), Err(StampError::Missing { found: 0, expected: 0 }));
    }
}
