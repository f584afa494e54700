//! Many calls of MPI_Comm_spawn in one job: how long each takes, and whether the launcher's processes grow.
//!
//! The launcher's processes are all below it, and itself, that run neither the MPI program nor what starts it. Their
//! memory is read while the job runs. A moment at which a child is being started shows more, so the least of several
//! readings counts.
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;
use serde_json::{Value, json};

use super::call::{self, Call, FIGURES};
use super::contest::{Contest, Job};
use super::flags::Flags;
use super::{Shown, say};
use crate::command::Failure;
use crate::metric::Unit;
use crate::programs::Program;
use crate::setup::Setup;
use crate::verdict::Verdict;
use crate::{leftovers, memory, table};

/// The launcher's processes together may grow by this much, as in `soak` (bytes).
const GROWTH_MAX: f64 = 1_048_576.0;
/// Pause between two readings (chosen: several readings fall into every part of the job).
const PAUSE: Duration = Duration::from_millis(50);
/// The job is divided into this many parts: before the second one all has happened at least once, the last one shows
/// what has grown (chosen).
const PARTS: usize = 10;

/// The launcher's memory after so many calls.
#[derive(Clone, Copy)]
struct Reading {
    calls: usize,
    bytes: u64,
}

#[derive(Default)]
struct Many {
    calls: Vec<Call>,
    readings: Vec<Reading>,
    failure: Option<Failure>,
}

pub fn job(flags: &Flags) -> Job {
    Job { parents: 1, children: 1, calls: flags.times, pause_ms: 0 }
}

pub fn run(flags: &Flags, contests: &[Contest], setup: &Setup) -> Shown {
    let once = |contest: &Contest| [0, 1].map(|who| watched(contest, who, flags, setup));
    let all: Vec<[Many; 2]> = contests.iter().map(once).collect();
    let mut rows =
        vec![["mpi", "launcher", "calls", "a call: first part", "last part", "memory", "grown"].map(String::from)];
    let (mut notes, mut missed) = (String::new(), 0);
    for (contest, many) in contests.iter().zip(&all) {
        for (who, of) in many.iter().enumerate() {
            rows.push(row(contest, who, of));
            if let Some(failure) = &of.failure {
                notes += &format!("  ! {}: ended after {} calls: {failure}\n", contest.name(who), of.calls.len());
            }
        }
        let verdict = many[0].judge(flags.times as usize);
        missed += usize::from(matches!(verdict, Verdict::Missed(_)));
        notes += &format!("{}, wireup's processes grow by at most 1 MiB: {}\n", contest.mpi.name(), say(&verdict));
    }
    let text = format!(
        "{} calls of one job, one child each; medians of the second and of the last tenth\n{}{notes}",
        flags.times,
        table::align(&rows, &[false, false, true, true, true, true, true])
    );
    let has_measured = !all.is_empty() && all.iter().flatten().all(|many| !many.calls.is_empty());
    Shown { text, json: json(contests, &all), csv: csv(contests, &all), missed, has_measured }
}

/// Runs the job and reads its launcher's memory until it ends.
fn watched(contest: &Contest, who: usize, flags: &Flags, setup: &Setup) -> Many {
    eprintln!("wireup bench spawn: {} calls: {}", flags.times, contest.name(who));
    let mut many = Many::default();
    many.failure = watch(contest, who, flags, setup, &mut many).err();
    leftovers::settle(&[]);
    many
}

fn watch(contest: &Contest, who: usize, flags: &Flags, setup: &Setup, many: &mut Many) -> Result<(), Failure> {
    let stamps = setup.scratch.empty_file("stamps").map_err(wrong)?;
    let ranks = [&contest.program, &setup.scratch.program(Program::FromExec)]
        .map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.clone()));
    let invocation = contest.invocation(who, job(flags), &stamps, flags, setup);
    let mut running = invocation.start(&setup.interrupt)?;
    let ended = loop {
        let ended = running.ends_within(PAUSE);
        let calls = fs::read_to_string(&stamps).map_err(wrong)?;
        many.calls = call::read(&calls).map_err(Failure::Wrong)?;
        match ended {
            Ok(false) => many
                .readings
                .extend(bytes(running.pid(), &ranks).map(|bytes| Reading { calls: many.calls.len(), bytes })),
            ended => break ended,
        }
    };
    ended?;
    running.finish()?;
    Ok(())
}

/// The memory of the launcher's processes; `None` if one of them has ended meanwhile.
fn bytes(launcher: Pid, ranks: &[PathBuf]) -> Option<u64> {
    let exe = |pid: Pid| fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero()));
    let is_rank = |exe: &Path| ranks.iter().any(|rank| rank == exe);
    let all = [launcher].into_iter().chain(leftovers::descendants_of(launcher));
    // A process that has ended and was not waited for has no program and no memory.
    let ours = all.filter(|pid| exe(*pid).is_ok_and(|exe| !is_rank(&exe)));
    ours.map(|pid| memory::private_bytes(pid).ok()).sum()
}

impl Many {
    /// The part of the whole, of `PARTS`.
    fn part<T: Copy>(&self, number: usize, of: impl Iterator<Item = (usize, T)>) -> Vec<T> {
        let count = self.calls.len();
        of.filter(|(at, _)| at * PARTS / count.max(1) == number).map(|(_, value)| value).collect()
    }

    /// The median call of a part.
    fn call_s(&self, number: usize) -> Option<f64> {
        call::median(&self.part(number, self.calls.iter().copied().enumerate()), FIGURES[0])
    }

    fn bytes(&self, number: usize) -> Option<f64> {
        let part = self.part(number, self.readings.iter().map(|reading| (reading.calls, reading.bytes)));
        part.into_iter().min().map(|bytes| bytes as f64)
    }

    fn growth(&self) -> Option<f64> {
        Some(self.bytes(PARTS - 1)? - self.bytes(1)?)
    }

    fn judge(&self, expected: usize) -> Verdict {
        if self.failure.is_some() || self.calls.len() != expected {
            return Verdict::Missed(format!("{} of {expected} calls", self.calls.len()));
        }
        match self.growth() {
            Some(growth) if growth <= GROWTH_MAX => Verdict::Met(Unit::Bytes.show(growth)),
            Some(growth) => Verdict::Missed(Unit::Bytes.show(growth)),
            None => Verdict::NotJudged("the job was too short for readings of the memory".into()),
        }
    }
}

fn row(contest: &Contest, who: usize, many: &Many) -> [String; 7] {
    let show = |unit: Unit, value: Option<f64>| value.map_or("-".into(), |value| unit.show(value));
    [
        contest.mpi.name().into(),
        contest.launchers[who].name.clone(),
        many.calls.len().to_string(),
        show(Unit::Seconds, many.call_s(1)),
        show(Unit::Seconds, many.call_s(PARTS - 1)),
        show(Unit::Bytes, many.bytes(1)),
        show(Unit::Bytes, many.growth()),
    ]
}

fn json(contests: &[Contest], all: &[[Many; 2]]) -> Value {
    let one = |contest: &Contest, who: usize, many: &Many| {
        let readings: Vec<_> = many.readings.iter().map(|Reading { calls, bytes }| json!([calls, bytes])).collect();
        json!({
            "mpi": contest.mpi.name(), "launcher": contest.launchers[who].name,
            "calls_s": many.calls.iter().map(|call| call.call_s).collect::<Vec<_>>(),
            "memory_after_calls": readings, "failure": many.failure.as_ref().map(ToString::to_string),
        })
    };
    let both = |(contest, many): (&Contest, &[Many; 2])| [one(contest, 0, &many[0]), one(contest, 1, &many[1])];
    contests.iter().zip(all).flat_map(both).collect()
}

fn csv(contests: &[Contest], all: &[[Many; 2]]) -> String {
    let mut text = String::new();
    for (contest, many) in contests.iter().zip(all) {
        for (who, of) in many.iter().enumerate() {
            let of_whom = format!("many,{},{}", contest.mpi.name(), contest.launchers[who].name);
            for (number, call) in of.calls.iter().enumerate() {
                text += &format!("{of_whom},{number},call,s,{}\n", call.call_s);
            }
            for Reading { calls, bytes } in &of.readings {
                text += &format!("{of_whom},{calls},memory,B,{bytes}\n");
            }
        }
    }
    text
}

fn wrong(error: std::io::Error) -> Failure {
    Failure::Wrong(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(bytes: impl Fn(usize) -> u64) -> Many {
        let call = |number: usize| Call { call_s: number as f64, ..Call::default() };
        let readings = (0..100).map(|calls| Reading { calls, bytes: bytes(calls) }).collect();
        Many { calls: (0..100).map(call).collect(), readings, failure: None }
    }

    #[test]
    fn the_second_and_the_last_part_are_compared_by_their_least_readings() {
        // The first part does not count, nor do moments at which a child is being started.
        let flat = many(|calls| if calls < 10 { 0 } else { (5 << 20) + u64::from(calls % 3 == 0) * (9 << 20) });
        assert_eq!((flat.bytes(1), flat.growth()), (Some(5242880.0), Some(0.0)));
        assert_eq!((flat.call_s(1), flat.call_s(9)), (Some(14.5), Some(94.5)));
        assert_eq!(flat.judge(100), Verdict::Met("0".into()));
        let grown = many(|calls| (calls as u64) << 14);
        assert_eq!(grown.judge(100), Verdict::Missed("1.25 MiB".into()));
    }

    #[test]
    fn missing_calls_are_missed_and_missing_readings_are_not_judged() {
        assert_eq!(many(|_| 0).judge(101), Verdict::Missed("100 of 101 calls".into()));
        let unread = Many { readings: Vec::new(), ..many(|_| 0) };
        assert!(matches!(unread.judge(100), Verdict::NotJudged(_)));
        assert_eq!(Many::default().growth(), None);
    }
}
