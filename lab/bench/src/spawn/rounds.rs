//! Calls of MPI_Comm_spawn, timed in turn under both launchers of every contest, and processes started without a
//! launcher beside them.
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::call::{self, Call, FIGURES, LAST, UNTIL_CHILDREN_RUN};
use super::contest::{Contest, Job, invocation};
use super::flags::Flags;
use super::{Shown, say};
use crate::command::{Failure, Invocation};
use crate::leftovers;
use crate::metric::Unit;
use crate::programs::Program;
use crate::setup::Setup;
use crate::stats;
use crate::table;
use crate::turns::turn;
use crate::verdict::{Verdict, ratio};

/// The rest of a call may take this many times as long as under the other launcher.
const TARGET: f64 = 0.5;

/// The jobs of one launcher, or those without a launcher.
#[derive(Default)]
struct Series {
    /// Of the round that warms up, if it failed.
    warm_up: Option<Failure>,
    rounds: Vec<Result<Vec<Call>, Failure>>,
}

/// All that was measured.
struct Measured<'a> {
    contests: &'a [Contest],
    /// The jobs of each contest, by launcher.
    launched: Vec<[Series; 2]>,
    /// By `vfork` and `exec`.
    bare: Series,
}

pub fn job(flags: &Flags) -> Job {
    Job { parents: flags.parents, children: flags.children, calls: flags.calls, pause_ms: flags.pause_ms }
}

pub fn run(flags: &Flags, contests: &[Contest], setup: &Setup) -> Shown {
    let launched = contests.iter().map(|_| Default::default()).collect();
    let mut measured = Measured { contests, launched, bare: Series::default() };
    if contests.is_empty() {
        return shown(flags, &measured);
    }
    // An interrupt leaves what has been measured.
    let _ = (0..=flags.rounds).try_for_each(|round| measured.measure(round, flags, setup));
    shown(flags, &measured)
}

impl Measured<'_> {
    /// The first round warms up.
    fn measure(&mut self, round: u32, flags: &Flags, setup: &Setup) -> Result<(), Interrupted> {
        let job = job(flags);
        for (contest, series) in self.contests.iter().zip(&mut self.launched) {
            for who in turn(round, 2) {
                let outcome = once(job, setup, |stamps| contest.invocation(who, job, stamps, flags, setup));
                series[who].add(round, outcome)?;
            }
        }
        let outcome = once(job, setup, |stamps| bare(job, stamps, flags, setup));
        self.bare.add(round, outcome)
    }
}

/// The same without a launcher.
pub fn bare(job: Job, stamps: &Path, flags: &Flags, setup: &Setup) -> Invocation {
    let mut argv: Vec<OsString> = vec![setup.scratch.program(Program::BesidePolling).into()];
    argv.extend([job.parents, job.children, job.calls, job.pause_ms].map(|number| number.to_string().into()));
    argv.extend([stamps.into(), setup.scratch.program(Program::FromExec).into()]);
    invocation(argv, job, flags, setup)
}

fn once(job: Job, setup: &Setup, command: impl FnOnce(&Path) -> Invocation) -> Result<Vec<Call>, Failure> {
    let wrong = |error: std::io::Error| Failure::Wrong(error.to_string());
    let stamps = setup.scratch.empty_file("stamps").map_err(wrong)?;
    let ended = command(&stamps).run(&setup.interrupt);
    leftovers::settle(&[]);
    ended?;
    let calls = call::read(&fs::read_to_string(stamps).map_err(wrong)?).map_err(Failure::Wrong)?;
    match calls.len() == job.calls as usize {
        true => Ok(calls),
        false => Err(Failure::Wrong(format!("{} of {} calls have left their times", calls.len(), job.calls))),
    }
}

struct Interrupted;

impl Series {
    fn add(&mut self, round: u32, outcome: Result<Vec<Call>, Failure>) -> Result<(), Interrupted> {
        match outcome {
            Err(Failure::Interrupted) => return Err(Interrupted),
            outcome if round == 0 => self.warm_up = outcome.err(),
            outcome => self.rounds.push(outcome),
        }
        Ok(())
    }

    /// The median call of each round.
    fn values(&self, figure: call::Figure) -> Vec<Option<f64>> {
        self.rounds.iter().map(|round| call::median(round.as_ref().ok()?, figure)).collect()
    }

    fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.warm_up.iter().chain(self.rounds.iter().filter_map(|round| round.as_ref().err()))
    }
}

fn judge([ours, theirs]: &[Series; 2]) -> Verdict {
    let failed = ours.failures().count();
    if failed > 0 {
        return Verdict::Missed(format!("{failed} of {} jobs failed", ours.rounds.len() + 1));
    }
    let judged = FIGURES[FIGURES.len() - 1];
    match ratio(&ours.values(judged), &theirs.values(judged)) {
        Some(ratio) if ratio <= TARGET => Verdict::Met(format!("{ratio:.3} x")),
        Some(ratio) => Verdict::Missed(format!("{ratio:.3} x")),
        None => Verdict::NotJudged("a launcher has no figures".into()),
    }
}

/// How the time until the last child runs compares with that of a process that only uses `vfork` and `exec`.
fn beside_bare(measured: &Measured<'_>) -> String {
    let bare = measured.bare.values(LAST);
    let mut text = failed("without a launcher", &measured.bare);
    let present: Vec<f64> = bare.iter().copied().flatten().collect();
    let Some(summary) = stats::summarize(&present) else { return text };
    let [median, min, max] = [summary.median, summary.min, summary.max].map(|of| Unit::Seconds.show(of));
    text += &format!("vfork and exec beside ranks that poll, without a launcher: {} {median} ({min} to {max})", LAST.0);
    for (contest, series) in measured.contests.iter().zip(&measured.launched) {
        for (who, of) in series.iter().enumerate() {
            if let Some(ratio) = ratio(&of.values(LAST), &bare) {
                text += &format!("; {} {ratio:.2} x", contest.name(who));
            }
        }
    }
    text + "\n"
}

/// A line about the jobs that failed, if any did.
fn failed(who: &str, series: &Series) -> String {
    let line = |first: &Failure| format!("  ! {who}: {} jobs failed: {first}\n", series.failures().count());
    series.failures().next().map(line).unwrap_or_default()
}

fn shown(flags: &Flags, measured: &Measured<'_>) -> Shown {
    let Measured { contests, launched: all, .. } = measured;
    let mut text = format!(
        "MPI_Comm_spawn of {} from {} after a pause of {} ms; median of {} rounds, each the median of {} calls; ratios of the same round\n",
        flags.children, flags.parents, flags.pause_ms, flags.rounds, flags.calls
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
            notes += &failed(&contest.name(who), of);
        }
    }
    text += &table::align(&rows, &[false, false, true, true, true, true, true, true, true]);
    notes += &beside_bare(measured);
    let has_measured = !all.is_empty() && all.iter().flatten().all(|series| series.rounds.iter().any(Result::is_ok));
    Shown { text: text + &notes, json: json(flags, measured), csv: csv(measured), missed, has_measured }
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

/// One call that was timed.
struct Timed<'a> {
    mpi: &'a str,
    launcher: &'a str,
    version: &'a str,
    round: usize,
    figures: &'a [call::Figure],
    call: &'a Call,
}

fn each_call<'a>(measured: &'a Measured<'_>) -> Vec<Timed<'a>> {
    let by_contest = measured.contests.iter().zip(&measured.launched).flat_map(|(contest, series)| {
        [0, 1].map(|who| {
            let launcher = &contest.launchers[who];
            (contest.mpi.name(), &*launcher.name, &*launcher.version, &FIGURES[..], &series[who])
        })
    });
    let all = by_contest.chain([("none", "vfork", "", &UNTIL_CHILDREN_RUN[..], &measured.bare)]);
    all.flat_map(|(mpi, launcher, version, figures, series)| {
        let rounds = series.rounds.iter().enumerate();
        rounds.flat_map(move |(round, calls)| {
            calls.iter().flatten().map(move |call| Timed { mpi, launcher, version, round, figures, call })
        })
    })
    .collect()
}

fn json(flags: &Flags, measured: &Measured<'_>) -> Value {
    let one = |timed: Timed<'_>| {
        let figures = timed.figures.iter().map(|(name, of)| ((*name).to_owned(), json!(of(timed.call))));
        json!({
            "mpi": timed.mpi, "launcher": timed.launcher, "version": timed.version, "round": timed.round,
            "parents": flags.parents, "children": flags.children, "pause_ms": flags.pause_ms,
            "seconds": figures.collect::<serde_json::Map<_, _>>(),
        })
    };
    each_call(measured).into_iter().map(one).collect()
}

fn csv(measured: &Measured<'_>) -> String {
    let line = |Timed { mpi, launcher, round, call, .. }: &Timed<'_>, (name, of): &call::Figure| {
        format!("call,{mpi},{launcher},{round},\"{name}\",s,{}\n", of(call))
    };
    each_call(measured).iter().flat_map(|timed| timed.figures.iter().map(|figure| line(timed, figure))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(launcher_ms: &[f64]) -> Series {
        let call = |ms: &f64| Call { call_s: 1.0, rest_s: ms / 1e3, ..Call::default() };
        Series { warm_up: None, rounds: launcher_ms.iter().map(|ms| Ok(vec![call(ms)])).collect() }
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
        assert_eq!(judge(&[ours, series(&[4.0, 4.0])]), Verdict::Missed("1 of 3 jobs failed".into()));
        let mut theirs = series(&[4.0, 2.0]);
        theirs.rounds[0] = Err(Failure::TimedOut(5.0));
        assert_eq!(judge(&[series(&[1.0, 1.0]), theirs]), Verdict::Met("0.500 x".into()));
        let none = judge(&[series(&[1.0]), Series::default()]);
        assert_eq!(none, Verdict::NotJudged("a launcher has no figures".into()));
    }
}
