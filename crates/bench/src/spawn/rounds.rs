//! Calls of MPI_Comm_spawn, timed in turn under both launchers of every contest.
use std::fs;

use serde_json::{Value, json};

use super::call::{self, Call, FIGURES};
use super::contest::{Contest, Job};
use super::flags::Flags;
use super::{Shown, say};
use crate::command::Failure;
use crate::leftovers;
use crate::metric::Unit;
use crate::setup::Setup;
use crate::stats;
use crate::table;
use crate::turns::turn;
use crate::verdict::{Verdict, ratio};

/// The rest of a call may take this many times as long as under the other launcher.
const TARGET: f64 = 0.5;

/// One launcher's jobs, without the one that warmed up.
#[derive(Default)]
struct Series {
    rounds: Vec<Result<Vec<Call>, Failure>>,
}

pub fn job(flags: &Flags) -> Job {
    Job { parents: flags.parents, children: flags.children, calls: flags.calls }
}

pub fn run(flags: &Flags, contests: &[Contest], setup: &Setup) -> Shown {
    let mut all: Vec<[Series; 2]> = contests.iter().map(|_| Default::default()).collect();
    for round in 0..=flags.rounds {
        for (contest, series) in contests.iter().zip(&mut all) {
            for who in turn(round, 2) {
                match once(contest, who, flags, setup) {
                    Err(Failure::Interrupted) => return shown(flags, contests, &all),
                    Ok(_) if round == 0 => {}
                    outcome => series[who].rounds.push(outcome),
                }
            }
        }
    }
    shown(flags, contests, &all)
}

fn once(contest: &Contest, who: usize, flags: &Flags, setup: &Setup) -> Result<Vec<Call>, Failure> {
    let wrong = |error: std::io::Error| Failure::Wrong(error.to_string());
    let stamps = setup.scratch.empty_file("stamps").map_err(wrong)?;
    let job = job(flags);
    let ended = contest.invocation(who, job, &stamps, flags, setup).run(&setup.interrupt);
    leftovers::settle(&[]);
    ended?;
    let calls = call::read(&fs::read_to_string(stamps).map_err(wrong)?).map_err(Failure::Wrong)?;
    match calls.len() == job.calls as usize {
        true => Ok(calls),
        false => Err(Failure::Wrong(format!("{} of {} calls have left their times", calls.len(), job.calls))),
    }
}

impl Series {
    /// The median call of each round.
    fn values(&self, figure: call::Figure) -> Vec<Option<f64>> {
        self.rounds.iter().map(|round| call::median(round.as_ref().ok()?, figure)).collect()
    }

    fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.rounds.iter().filter_map(|round| round.as_ref().err())
    }
}

fn judge([ours, theirs]: &[Series; 2]) -> Verdict {
    let failed = ours.failures().count();
    if failed > 0 {
        return Verdict::Missed(format!("{failed} of {} jobs failed", ours.rounds.len()));
    }
    let judged = FIGURES[FIGURES.len() - 1];
    match ratio(&ours.values(judged), &theirs.values(judged)) {
        Some(ratio) if ratio <= TARGET => Verdict::Met(format!("{ratio:.3} x")),
        Some(ratio) => Verdict::Missed(format!("{ratio:.3} x")),
        None => Verdict::NotJudged("a launcher has no figures".into()),
    }
}

fn shown(flags: &Flags, contests: &[Contest], all: &[[Series; 2]]) -> Shown {
    let mut text = format!(
        "MPI_Comm_spawn of {} from {}; median of {} rounds, each the median of {} calls; ratios of the same round\n",
        flags.children, flags.parents, flags.rounds, flags.calls
    );
    let mut rows = vec![["mpi", "figure", "wireup", "other", "min", "max", "min", "max", "ratio"].map(String::from)];
    let mut notes = String::new();
    let mut missed = 0;
    for (contest, series) in contests.iter().zip(all) {
        rows.extend(FIGURES.iter().map(|figure| row(contest, series, *figure)));
        let verdict = judge(series);
        missed += usize::from(matches!(verdict, Verdict::Missed(_)));
        let other = &contest.launchers[1].name;
        notes += &format!("{}, the rest of the call <= {TARGET} x {other}: {}\n", contest.mpi.name(), say(&verdict));
        for (who, of) in series.iter().enumerate() {
            if let Some(first) = of.failures().next() {
                notes += &format!("  ! {}: {} jobs failed: {first}\n", contest.name(who), of.failures().count());
            }
        }
    }
    text += &table::align(&rows, &[false, false, true, true, true, true, true, true, true]);
    let has_measured = !all.is_empty() && all.iter().flatten().all(|series| series.rounds.iter().any(Result::is_ok));
    Shown { text: text + &notes, json: json(contests, all), csv: csv(contests, all), missed, has_measured }
}

fn row(contest: &Contest, series: &[Series; 2], figure: call::Figure) -> [String; 9] {
    let values = series.each_ref().map(|of| of.values(figure));
    let show = |who: usize, of: fn(&stats::Summary) -> f64| {
        let present: Vec<f64> = values[who].iter().copied().flatten().collect();
        stats::summarize(&present).map_or("-".into(), |summary| Unit::Seconds.show(of(&summary)))
    };
    let ratio = ratio(&values[0], &values[1]).map_or("-".into(), |ratio| format!("{ratio:.2}"));
    [
        contest.mpi.name().into(),
        figure.0.into(),
        show(0, |of| of.median),
        show(1, |of| of.median),
        show(0, |of| of.min),
        show(0, |of| of.max),
        show(1, |of| of.min),
        show(1, |of| of.max),
        ratio,
    ]
}

/// Every call that was timed, with the number of its round.
fn each_call<'a>(
    contests: &'a [Contest],
    all: &'a [[Series; 2]],
) -> impl Iterator<Item = (&'a Contest, usize, usize, &'a Call)> {
    contests.iter().zip(all).flat_map(|(contest, series)| {
        series.iter().enumerate().flat_map(move |(who, of)| {
            of.rounds
                .iter()
                .enumerate()
                .flat_map(move |(round, calls)| calls.iter().flatten().map(move |call| (contest, who, round, call)))
        })
    })
}

fn json(contests: &[Contest], all: &[[Series; 2]]) -> Value {
    let one = |(contest, who, round, call): (&Contest, usize, usize, &Call)| {
        let launcher = &contest.launchers[who];
        let figures = FIGURES.iter().map(|(name, of)| ((*name).to_owned(), json!(of(call))));
        json!({
            "mpi": contest.mpi.name(), "launcher": launcher.name, "version": launcher.version, "round": round,
            "seconds": figures.collect::<serde_json::Map<_, _>>(),
        })
    };
    each_call(contests, all).map(one).collect()
}

fn csv(contests: &[Contest], all: &[[Series; 2]]) -> String {
    let lines = each_call(contests, all).flat_map(|(contest, who, round, call)| {
        FIGURES.iter().map(move |(name, of)| {
            let launcher = &contest.launchers[who].name;
            format!("call,{},{launcher},{round},\"{name}\",s,{}\n", contest.mpi.name(), of(call))
        })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(launcher_ms: &[f64]) -> Series {
        let call = |ms: &f64| Call { call_s: 1.0, rest_s: ms / 1e3, ..Call::default() };
        Series { rounds: launcher_ms.iter().map(|ms| Ok(vec![call(ms)])).collect() }
    }

    #[test]
    fn the_rest_of_a_call_is_judged_by_the_ratio_of_each_round() {
        // A disturbance in the last round affects both.
        assert_eq!(judge(&[series(&[1.0, 1.0, 9.0]), series(&[4.0, 4.0, 36.0])]), Verdict::Met("0.250 x".into()));
        assert_eq!(judge(&[series(&[3.0]), series(&[4.0])]), Verdict::Missed("0.750 x".into()));
    }

    #[test]
    fn a_failed_job_of_ours_misses_the_target_and_one_of_theirs_does_not_count() {
        let mut ours = series(&[1.0, 1.0]);
        ours.rounds[1] = Err(Failure::TimedOut(5.0));
        assert_eq!(judge(&[ours, series(&[4.0, 4.0])]), Verdict::Missed("1 of 2 jobs failed".into()));
        let mut theirs = series(&[4.0, 2.0]);
        theirs.rounds[0] = Err(Failure::TimedOut(5.0));
        assert_eq!(judge(&[series(&[1.0, 1.0]), theirs]), Verdict::Met("0.500 x".into()));
        let none = judge(&[series(&[1.0]), Series::default()]);
        assert_eq!(none, Verdict::NotJudged("a launcher has no figures".into()));
    }
}
