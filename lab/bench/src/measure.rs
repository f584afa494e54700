//! Interleaved rounds: A B C, A B C, … so that disturbances of the machine affect all launchers alike.
//!
//! A warm-up round comes first and does not count. Nothing is dropped silently: a failed run is kept with its reason; a
//! launcher that fails in two consecutive rounds is not run again, and this is kept as well.
use rustix::process::Pid;

use crate::cases::Case;
use crate::command::Failure;
use crate::launcher::Launcher;
use crate::leftovers;
use crate::metric::{Metric, Sample};
use crate::running_session::RunningSession;
use crate::sample::Stage;

/// Consecutive rounds in which a launcher may fail: further ones would only take their time limit.
const FAILURES_MAX: usize = 2;

/// The runs of one case with one launcher.
#[derive(Clone, Debug)]
pub struct Series {
    /// Index into the benchmark's launchers.
    pub launcher: usize,
    /// By round, the warm-up round first; shorter than the others if it was given up.
    pub runs: Vec<Result<Sample, Failure>>,
    pub given_up: bool,
    /// Processes that had to be killed after its runs.
    pub left_behind: usize,
}

#[derive(Clone, Debug)]
pub struct Measured {
    pub case: Case,
    pub series: Vec<Series>,
    /// How long the session of each launcher took to start (s).
    pub up: Vec<(usize, f64)>,
    pub load_1min: f64,
}

impl Series {
    /// The counted values by round; `None` if the run failed or has no such value.
    pub fn values(&self, metric: Metric) -> Vec<Option<f64>> {
        self.counted().iter().map(|run| run.as_ref().ok()?.get(metric)).collect()
    }

    pub fn counted(&self) -> &[Result<Sample, Failure>] {
        self.runs.get(1..).unwrap_or(&[])
    }

    /// Failed runs, including the warm-up.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.runs.iter().filter_map(|run| run.as_ref().err())
    }
}

/// Runs all rounds of a case with the launchers that support it; stops early when interrupted.
pub fn measure(case: &Case, launchers: &[Launcher], stage: &Stage) -> Measured {
    let able = launchers.iter().enumerate().filter(|(_, c)| c.takes_part(case));
    let mut series: Vec<Series> =
        able.map(|(launcher, _)| Series { launcher, runs: Vec::new(), given_up: false, left_behind: 0 }).collect();
    let running_session = raise(case, launchers, &mut series, stage);
    let up = running_session.iter().map(|(at, running_session)| (series[*at].launcher, running_session.up_s)).collect();
    let kept = pids(&running_session);
    for round in 0..=case.rounds {
        for series in &mut series {
            if series.given_up || stage.interrupt.is_set() {
                continue;
            }
            let run = stage.run(case, &launchers[series.launcher], round == 0);
            series.left_behind += leftovers::settle(&kept);
            if run == Err(Failure::Interrupted) {
                // Caused by the user, not by the launcher.
                continue;
            }
            series.runs.push(run);
            series.given_up = has_failed_lately(&series.runs);
        }
    }
    take_down(running_session, &mut series);
    Measured { case: case.clone(), series, up, load_1min: crate::machine::load() }
}

/// The running sessions, each with the index of its series; a series whose session does not start is given up.
fn raise(case: &Case, launchers: &[Launcher], series: &mut [Series], stage: &Stage) -> Vec<(usize, RunningSession)> {
    let mut running_session = Vec::new();
    for (at, series) in series.iter_mut().enumerate() {
        match RunningSession::raise(&launchers[series.launcher], case, stage) {
            Ok(Some(one)) => running_session.push((at, one)),
            Ok(None) | Err(Failure::Interrupted) => {}
            Err(failure) => {
                series.runs.push(Err(failure));
                series.given_up = true;
                series.left_behind += leftovers::settle(&pids(&running_session));
            }
        }
    }
    running_session
}

fn take_down(mut running_session: Vec<(usize, RunningSession)>, series: &mut [Series]) {
    while let Some((at, one)) = running_session.pop() {
        if let Err(failure) = one.end() {
            series[at].runs.push(Err(Failure::Wrong(format!("taken down: {failure}"))));
        }
        series[at].left_behind += leftovers::settle(&pids(&running_session));
    }
}

fn pids(running_session: &[(usize, RunningSession)]) -> Vec<Pid> {
    running_session.iter().flat_map(|(_, one)| one.pids.iter().copied()).collect()
}

fn has_failed_lately(runs: &[Result<Sample, Failure>]) -> bool {
    runs.len() >= FAILURES_MAX && runs.iter().rev().take(FAILURES_MAX).all(Result::is_err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Result<Sample, Failure> {
        Err(Failure::TimedOut(1.0))
    }

    fn wall(seconds: f64) -> Result<Sample, Failure> {
        Ok(Sample(vec![(Metric::Wall, seconds)]))
    }

    #[test]
    fn the_warm_up_does_not_count_and_failures_keep_their_round() {
        let runs = vec![wall(9.0), wall(1.0), failed(), wall(2.0)];
        let series = Series { launcher: 0, runs, given_up: false, left_behind: 0 };
        assert_eq!(series.values(Metric::Wall), [Some(1.0), None, Some(2.0)]);
        assert_eq!(series.values(Metric::Fence), [None, None, None]);
        assert_eq!(series.failures().count(), 1);
    }

    #[test]
    fn two_consecutive_failures_count_as_failing() {
        assert!(!has_failed_lately(&[failed()]));
        assert!(!has_failed_lately(&[failed(), wall(1.0), failed()]));
        assert!(has_failed_lately(&[wall(1.0), failed(), failed()]));
    }
}
