//! Many runs of one program, several at a time: `programs/spawn_jobs.c`.
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::cases::Stream;
use crate::command::{Failure, Invocation};
use crate::interrupt::Interrupt;
use crate::programs::{Program, Scratch};

/// A job that takes longer counts as hanging and is killed: a hundred times the longest time seen of a peer's single
/// job (chosen).
const JOB_LIMIT_S: u32 = 10;
/// Time per job in the limit for the whole stream, as if all jobs were about as slow as that (chosen).
const JOB_SHARE: Duration = Duration::from_secs(2);

/// How the runs ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// With exit code 0.
    pub well: u32,
    pub badly: u32,
    /// Killed by us.
    pub hung: u32,
    /// Until the end of the last run that ended by itself (s).
    pub elapsed_s: f64,
}

/// Time limit for a stream as a whole.
pub fn limit(jobs: u32) -> Duration {
    Duration::from_secs(60) + JOB_SHARE * jobs
}

/// Runs `argv` as the stream says; `{i}` in it is replaced by the number of the run.
pub fn run(
    stream: Stream,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    limit: Duration,
    scratch: &Scratch,
    interrupt: &Interrupt,
) -> Result<Ended, Failure> {
    let told = scratch.file("stream");
    let mut all = vec![scratch.program(Program::SpawnJobs).into_os_string()];
    all.extend([stream.jobs, stream.in_flight, JOB_LIMIT_S].map(|number| number.to_string().into()));
    all.extend(argv);
    let (stdout, stderr) = (Some(told.clone()), scratch.file("stderr"));
    Invocation { argv: all, env, stdout, stderr, limit }.run(interrupt)?;
    read(&told).ok_or_else(|| Failure::Wrong("spawn-jobs did not report what it has run".into()))
}

/// Parses the last line, which follows the output of the runs.
fn read(told: &Path) -> Option<Ended> {
    let text = fs::read_to_string(told).ok()?;
    let mut words = text.lines().last()?.split(' ');
    let mut count = || words.next()?.parse().ok();
    let (well, badly, hung) = (count()?, count()?, count()?);
    Some(Ended { well, badly, hung, elapsed_s: words.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, stream: Stream) -> Ended {
        let scratch = Scratch::create().unwrap();
        let argv = ["/bin/sh", "-c", script, "{i}"].map(OsString::from).into();
        run(stream, argv, Vec::new(), Duration::from_secs(60), &scratch, &Interrupt::default()).unwrap()
    }

    #[test]
    fn jobs_are_numbered_and_counted_by_result() {
        let ended = sh("echo $0; test $(($0 % 3)) != 0", Stream { jobs: 10, in_flight: 3 });
        assert_eq!((ended.well, ended.badly, ended.hung), (6, 4, 0));
        assert!(ended.elapsed_s > 0.0);
    }

    #[test]
    fn a_hanging_job_is_killed_and_its_time_is_not_counted() {
        let ended = sh("test $0 = 1 && exec sleep 1000; exit 0", Stream { jobs: 4, in_flight: 2 });
        assert_eq!((ended.well, ended.badly, ended.hung), (3, 0, 1));
        assert!(ended.elapsed_s < f64::from(JOB_LIMIT_S), "{}", ended.elapsed_s);
    }
}
