//! Runs all tasks in turn, round after round, and reads what the ranks print.
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::flags::Flags;
use super::plan::{Client, Task};
use super::report::Report;
use crate::command::{Failure, Invocation};
use crate::metric::{Metric, Sample};
use crate::programs::Program;
use crate::turns::{Place, in_turns};
use crate::{stamps, stats};

pub fn rounds(place: &Place<Flags>, tasks: &[Task], report: &mut Report) {
    let take = |task: &Task, outcome| match outcome {
        Ok(sample) => report.add(task, sample),
        Err(failure) => report.fail(task, Failure::to_string(&failure)),
    };
    in_turns(place.setup, place.flags.rounds, tasks, |task| once(place, task), take);
}

fn once(place: &Place<Flags>, task: &Task) -> Result<Sample, Failure> {
    let stamps = place.setup.scratch.empty_file("stamps").map_err(wrong)?;
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| place.setup.scratch.file(name));
    let argv = match task.program {
        Client::Ucx => vec![place.setup.scratch.program(Program::UcxInit).into_os_string()],
        _ => [launcher(place, task), client(place, task, &stamps)].concat(),
    };
    let limit = place.flags.common_flags.limit;
    let run = Invocation { argv, env: Vec::new(), stdout: Some(stdout.clone()), stderr, limit };
    let mut sample = run.run(&place.setup.interrupt)?;
    let size = task.nodes * task.ppn;
    let text = |path: &Path| fs::read_to_string(path).map_err(wrong);
    sample.0.extend(match task.program {
        Client::Collect | Client::Direct { .. } => stamps::evaluate(&text(&stamps)?, size).map_err(wrong)?.0,
        Client::Ucx => of_ucx(&text(&stdout)?).ok_or_else(|| wrong("no libucp here"))?,
        Client::Oshmem => of_oshmem(&text(&stdout)?, size)?,
    });
    Ok(sample)
}

fn launcher(place: &Place<Flags>, task: &Task) -> Vec<OsString> {
    let flags = place.flags;
    let mut words = vec!["run".to_owned(), "-n".into(), (task.nodes * task.ppn).to_string()];
    if !flags.across.hosts.is_empty() {
        let hosts = flags.across.hosts[..task.nodes as usize].join(",");
        let shell = flags.across.remote_shell.clone();
        words.extend(["--hosts".into(), hosts, "--ppn".into(), task.ppn.to_string(), "--remote-shell".into(), shell]);
    } else if task.nodes > 1 {
        words.extend(["--virtual-nodes".into(), task.nodes.to_string()]);
    }
    words.extend(["--pmi".into(), "pmix".into()]);
    words.extend(task.arguments.iter().map(|word| (*word).to_owned()));
    words.extend(flags.common_flags.wireup_args.iter().cloned());
    std::iter::once(place.wireup.as_os_str().to_owned()).chain(words.into_iter().map(OsString::from)).collect()
}

fn client(place: &Place<Flags>, task: &Task, stamps: &Path) -> Vec<OsString> {
    let exchange = |how: &str, further: &[&str]| {
        let mut words: Vec<OsString> = vec![place.setup.scratch.program(Program::PmixExchange).into()];
        let (size, bytes) = ((task.nodes * task.ppn).to_string(), place.flags.bytes.to_string());
        words.extend([OsString::from(size), how.into(), stamps.into(), bytes.into()]);
        words.extend(further.iter().map(OsString::from));
        words
    };
    match task.program {
        Client::Collect => exchange("collect", &[]),
        Client::Direct { spin: false } => exchange("direct", &[]),
        Client::Direct { spin: true } => exchange("direct", &["spin"]),
        Client::Oshmem => vec![place.flags.oshmem.clone().into(), "say".into()],
        Client::Ucx => Vec::new(),
    }
}

/// The output of `ucx-init`: times for opening the library, for the context, for the worker (ns).
fn of_ucx(text: &str) -> Option<Vec<(Metric, f64)>> {
    let parts: Vec<f64> = text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [_, _, _] = parts[..] else { return None };
    Some(vec![(Metric::JoinMedian, parts.iter().sum::<f64>() / 1e9)])
}

/// One line per rank with its time in seconds.
fn of_oshmem(text: &str, size: u32) -> Result<Vec<(Metric, f64)>, Failure> {
    let times: Vec<f64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    if times.len() != size as usize {
        return Err(wrong(format!("only {} of {size} ranks reported their times", times.len())));
    }
    let slowest = times.iter().copied().fold(0.0, f64::max);
    Ok(vec![(Metric::JoinMedian, stats::median(&times).unwrap_or(slowest)), (Metric::JoinMax, slowest)])
}

fn wrong(what: impl ToString) -> Failure {
    Failure::Wrong(what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_output_is_parsed_into_times() {
        assert_eq!(of_ucx("1000000 2000000 500000\n"), Some(vec![(Metric::JoinMedian, 0.0035)]));
        assert_eq!(of_ucx(""), None);
        let told = of_oshmem("0.25\n0.75\n0.5\n", 3).unwrap();
        assert_eq!(told, [(Metric::JoinMedian, 0.5), (Metric::JoinMax, 0.75)]);
        assert!(of_oshmem("0.25\n", 2).is_err());
    }
}
