//! Evaluates the ranks' clock readings of one step.
//!
//! All ranks read the same `CLOCK_MONOTONIC`, so times of different ranks can be compared; this works on one machine
//! with virtual nodes.
use super::board::Slot;
use crate::metric::{Metric, Sample};

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimesError {
    #[error("rank {0} has not done the step")]
    NotDone(usize),
    #[error("rank {0}'s clock readings are out of order")]
    OutOfOrder(usize),
}

/// The figures of step number `step`, which was released at `opened_ns` and done `repeat` times, per repetition.
pub fn evaluate(slots: &[Slot], step: u64, opened_ns: u64, repeat: u32) -> Result<Sample, TimesError> {
    for (rank, slot) in slots.iter().enumerate() {
        if slot.step != step {
            return Err(TimesError::NotDone(rank));
        }
        let times = [opened_ns, slot.start_ns, slot.begun_ns, slot.ready_ns, slot.end_ns];
        // A wait begins after the starting call; for a blocking operation `begun` may be anywhere before the end.
        if !times.is_sorted() {
            return Err(TimesError::OutOfOrder(rank));
        }
    }
    let last = |of: fn(&Slot) -> u64| slots.iter().map(of).max().unwrap_or(0);
    let all = |of: fn(&Slot) -> u64| {
        let mut values: Vec<u64> = slots.iter().map(of).collect();
        values.sort_unstable();
        values
    };
    let middle = |values: &[u64]| values.get(values.len() / 2).copied().unwrap_or(0);
    let most = |values: &[u64]| values.last().copied().unwrap_or(0);
    let own = all(|slot| slot.end_ns - slot.start_ns);
    let ready = all(|slot| slot.ready_ns - slot.start_ns);
    let start_cpu = all(|slot| slot.start_cpu_ns);
    let seconds = |(metric, ns): (Metric, u64)| (metric, ns as f64 / 1e9);
    let spans = [
        (Metric::Time, last(|slot| slot.end_ns) - last(|slot| slot.start_ns)),
        (Metric::Whole, last(|slot| slot.end_ns) - opened_ns),
        (Metric::RankMedian, middle(&own)),
        (Metric::RankMax, most(&own)),
        (Metric::ReadyMedian, middle(&ready)),
        (Metric::ReadyMax, most(&ready)),
    ];
    // From the last repetition only.
    let calls = [(Metric::StartCpu, middle(&start_cpu)), (Metric::StartCpuMax, most(&start_cpu))];
    let spans = spans.into_iter().map(|(metric, ns)| (metric, ns / u64::from(repeat)));
    Ok(Sample(spans.chain(calls).map(seconds).collect()))
}

/// `PMI2_Init` of the median rank and of the slowest rank.
pub fn joins(slots: &[Slot]) -> Sample {
    let mut times: Vec<u64> = slots.iter().map(|slot| slot.join_end_ns.saturating_sub(slot.join_begin_ns)).collect();
    times.sort_unstable();
    let at = |index: usize| times.get(index).copied().unwrap_or(0) as f64 / 1e9;
    let last = times.len().saturating_sub(1);
    Sample(vec![(Metric::JoinMedian, at(times.len() / 2)), (Metric::JoinMax, at(last))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(times_ms: [u64; 4], cpu_us: u64) -> Slot {
        let [start_ns, begun_ns, ready_ns, end_ns] = times_ms.map(|ms| ms * 1_000_000);
        Slot { step: 3, start_ns, begun_ns, ready_ns, end_ns, start_cpu_ns: cpu_us * 1000, ..Slot::default() }
    }

    #[test]
    fn late_starts_count_in_the_whole_but_not_in_the_time() {
        let slots = [slot([10, 11, 12, 40], 5), slot([30, 31, 32, 50], 7), slot([20, 21, 45, 46], 9)];
        let sample = evaluate(&slots, 3, 5_000_000, 1).unwrap();
        let ms = |metric| (sample.get(metric).unwrap() * 1e3).round();
        assert_eq!((ms(Metric::Time), ms(Metric::Whole)), (20.0, 45.0));
        assert_eq!((ms(Metric::RankMedian), ms(Metric::RankMax)), (26.0, 30.0));
        assert_eq!((ms(Metric::ReadyMedian), ms(Metric::ReadyMax)), (2.0, 25.0));
        assert_eq!(sample.get(Metric::StartCpu), Some(7e-6));
        assert_eq!(sample.get(Metric::StartCpuMax), Some(9e-6));
        let sample = evaluate(&slots, 3, 5_000_000, 5).unwrap();
        assert_eq!((sample.get(Metric::Whole), sample.get(Metric::StartCpu)), (Some(9e-3), Some(7e-6)));
    }

    #[test]
    fn a_rank_with_a_wrong_or_unordered_step_is_named() {
        let good = slot([10, 11, 12, 40], 5);
        assert_eq!(evaluate(&[good, Slot { step: 2, ..good }], 3, 0, 1), Err(TimesError::NotDone(1)));
        assert_eq!(evaluate(&[Slot { end_ns: 1, ..good }], 3, 0, 1), Err(TimesError::OutOfOrder(0)));
        assert_eq!(evaluate(&[good], 3, 11_000_000, 1), Err(TimesError::OutOfOrder(0)));
    }
}
