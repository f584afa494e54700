//! `wireup bench jobs --soak N`: runs many jobs through one session, some of which fail, and checks that its agents'
//! resources do not grow.
//!
//! A job has one rank on the first node, and in every fifth slice one rank on each node; `programs/misbehave.c`
//! determines which of them crash, abort, or leave a process behind. `snapshot` examines the agents while nothing runs,
//! before and after; `growth` judges the difference. Jobs of the same kinds run first, so that whatever an agent
//! creates once and keeps exists already before.
mod growth;
mod snapshot;

use std::ffi::OsString;
use std::fs;

use serde_json::json;

use crate::cases::{Case, Stream};
use crate::command::Failure;
use crate::error::{BenchError, io};
use crate::in_session;
use crate::launch_flags::{Flags, Soak};
use crate::launcher::{Kind, Launcher};
use crate::leftovers;
use crate::machine::Machine;
use crate::programs::Program;
use crate::running_session::{RunningSession, session_name};
use crate::sample::Stage;
use crate::stream::{self, Ended};
use crate::summary::Summary;
use crate::table;
use crate::verdict::Verdict;
use growth::Growth;
use snapshot::Snapshot;

/// A multiple of the period of `misbehave`.
const SLICE: u32 = 500;
/// How many of 20 consecutive jobs end well, according to `misbehave`.
const GOOD_OF_20: u32 = 17;
/// Jobs of each size before the first snapshot (chosen: every kind of job several times).
const WARM_UP: u32 = 200;
/// One of this many slices has a rank on every node.
const WIDE_EVERY: u32 = 5;
pub fn run(
    flags: &Flags,
    wanted: Soak,
    stage: &Stage,
    wireup: Launcher,
    machine: Machine,
) -> Result<Summary, BenchError> {
    let session = Launcher { kind: Kind::Session, ..wireup };
    println!("{}\nwireup: {} {}", machine.describe(), session.path.display(), session.version);
    eprintln!("wireup bench: {} jobs through a session of {} nodes", wanted.jobs, wanted.node_count);
    let soaked = soak(&session, wanted, stage);
    leftovers::settle(&[]);
    let (text, growth) = match soaked {
        Ok((ended, growth)) => (describe(wanted, ended, &growth), Some(growth)),
        Err(failure) => (format!("\nsoak: failed: {failure}\n"), None),
    };
    print!("{text}");
    let missed = match &growth {
        Some(growth) => growth.judged.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Missed(_))).count(),
        None => 1,
    };
    if let Some(path) = &flags.json {
        let value = json!({
            "benchmark": flags.benchmark.name(),
            "machine": machine,
            "soak": { "jobs": wanted.jobs, "in_flight": wanted.in_flight, "node_count": wanted.node_count },
            "growth": growth,
        });
        fs::write(path, format!("{value:#}\n")).map_err(io(path.display().to_string()))?;
    }
    Ok(Summary { missed, has_measured: growth.is_some(), interrupted: stage.interrupt.is_set() })
}

fn soak(session: &Launcher, wanted: Soak, stage: &Stage) -> Result<(Ended, Growth), Failure> {
    let case = in_session::soaked(wanted.node_count);
    let running_session =
        RunningSession::raise(session, &case, stage)?.ok_or_else(|| Failure::Wrong("no session is running".into()))?;
    let looked = looked_at(session, &case, wanted, stage, &running_session);
    running_session.end()?;
    looked
}

fn looked_at(
    session: &Launcher,
    case: &Case,
    wanted: Soak,
    stage: &Stage,
    running_session: &RunningSession,
) -> Result<(Ended, Growth), Failure> {
    let run = |jobs: u32| jobs_of(session, case, jobs, wanted.in_flight, stage);
    let look = || Snapshot::when_quiet(&running_session.pids, &session.path, &stage.scratch.file("")).map_err(wrong);
    for size in [1, case.place.node_count] {
        slice(session, WARM_UP, size, wanted.in_flight, stage)?;
    }
    let before = look()?;
    let ended = run(wanted.jobs)?;
    let after = look()?;
    let mut growth = growth::judge(before, after);
    let expected = expected_well(wanted.jobs);
    let figure = format!("{} of {}, expected {expected}", ended.well, wanted.jobs);
    let is_met = ended.well == expected && ended.badly == wanted.jobs - expected;
    let verdict = if is_met { Verdict::Met(figure) } else { Verdict::Missed(figure) };
    growth.judged.insert(0, ("jobs that end well".into(), verdict));
    Ok((ended, growth))
}

/// Runs slices of jobs; the last one may be shorter.
fn jobs_of(session: &Launcher, case: &Case, jobs: u32, in_flight: u32, stage: &Stage) -> Result<Ended, Failure> {
    let mut ended = Ended { well: 0, badly: 0, hung: 0, elapsed_s: 0.0 };
    for (number, begin) in (0..jobs).step_by(SLICE as usize).enumerate() {
        let count = SLICE.min(jobs - begin);
        let is_wide = number as u32 % WIDE_EVERY == WIDE_EVERY - 1;
        let size = if is_wide { case.place.node_count } else { 1 };
        let slice = slice(session, count, size, in_flight, stage)?;
        ended.well += slice.well;
        ended.badly += slice.badly;
        ended.hung += slice.hung;
        ended.elapsed_s += slice.elapsed_s;
    }
    Ok(ended)
}

fn slice(session: &Launcher, count: u32, size: u32, in_flight: u32, stage: &Stage) -> Result<Ended, Failure> {
    let mut argv: Vec<OsString> = vec![session.path.clone().into()];
    argv.extend(["run", "--session", &session_name(), "-n", &size.to_string(), "--ppn", "1"].map(OsString::from));
    argv.extend(session.extra.iter().map(OsString::from));
    argv.extend([stage.scratch.program(Program::Misbehave).into(), "{i}".into()]);
    let stream = Stream { jobs: count, in_flight };
    stream::run(stream, argv, Vec::new(), stream::limit(count), stage.scratch, stage.interrupt)
}

/// How many jobs should end well if the numbers of every slice begin at 0.
fn expected_well(jobs: u32) -> u32 {
    let is_well = |number: &u32| !matches!(number % 20, 4 | 9 | 14);
    jobs / 20 * GOOD_OF_20 + (0..jobs % 20).filter(is_well).count() as u32
}

fn describe(wanted: Soak, ended: Ended, growth: &Growth) -> String {
    let rate = f64::from(wanted.jobs) / ended.elapsed_s;
    let mut text = format!(
        "\nsoak: {} jobs through a session of {} nodes, {} in flight, {rate:.0} a second; {} ended well, {} badly, {} hung\n",
        wanted.jobs, wanted.node_count, wanted.in_flight, ended.well, ended.badly, ended.hung
    );
    text += &table::align(&growth.rows(), &[false, true, true, true]);
    for (what, verdict) in &growth.judged {
        let (word, figure) = match verdict {
            Verdict::Met(figure) => ("pass", figure),
            Verdict::Missed(figure) => ("MISS", figure),
            Verdict::NotJudged(why) => ("not judged", why),
        };
        text += &format!("  {word}: {what}: {figure}\n");
    }
    text
}

fn wrong(what: impl ToString) -> Failure {
    Failure::Wrong(what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupt;
    use crate::programs::Scratch;

    #[test]
    fn job_outcomes_follow_from_their_numbers() {
        let scratch = Scratch::create().unwrap();
        let stage = Stage {
            scratch: &scratch,
            interrupt: &Interrupt::default(),
            mpi_program: None,
            mpi_env: &[],
            up_args: &[],
        };
        // In place of wireup: a script that runs the command after its flags.
        let fake = scratch.file("fake");
        fs::write(&fake, "#!/bin/sh\nshift 7\nexec \"$@\"\n").unwrap();
        fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let session = Launcher { path: fake, ..Launcher::echo() };
        // Only up to the number whose child would remain.
        let ended = slice(&session, 19, 1, 4, &stage).unwrap();
        assert_eq!((ended.well, ended.badly), (expected_well(19), 3));
        assert_eq!((expected_well(40), expected_well(5), expected_well(4)), (34, 4, 4));
    }
}
