//! `wireup bench jobs --soak N`: many jobs through one session, some of which fail, and the resources that the
//! session's agents hold before and after these jobs.
//!
//! A job has one rank on the first node, and in every fifth slice one rank on each node; `programs/polling.c`
//! determines which jobs crash, abort, or leave a process behind. The agents' state is read while nothing runs. Jobs of
//! both sizes run before the first reading, so that it includes everything that an agent creates once and keeps.
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use procfs::process::all_processes;
use rustix::process::Pid;
use serde_json::json;
use walkdir::WalkDir;

use super::case::Case;
use super::launcher::{Launcher, session_name, words};
use super::session::RunningSession;
use super::work::{JOB_LIMIT, stream_limit};
use crate::bench::{Bench, Problem};
use crate::command::{Ended, Failure, stream, wrong};
use crate::leftovers::{self, process};
use crate::memory::{self, program_of};
use crate::programs::sessions_beside;
use crate::samples::{Measures, bytes, count, rate};

/// Number of jobs in a slice: a multiple of the period with which jobs fail.
const SLICE: u32 = 500;
/// Number of jobs of each size before the first reading (chosen: every kind of job several times).
const WARM_UP_JOBS: u32 = 200;
/// One of this many slices has a rank on every node (a "wide" slice).
const WIDE_EVERY: u32 = 5;
/// Pause between two readings of the agents' state, which must be equal; the agents' wake-ups during it are counted.
/// The pause is longer than agents keep anything for reuse (chosen).
const IDLE: Duration = Duration::from_secs(3);
/// Time after which the last reading is taken even if no two consecutive readings were equal (chosen).
const PATIENCE: Duration = Duration::from_secs(30);
/// Folders where files may be left behind.
const FOLDERS: [&str; 2] = ["/tmp", "/dev/shm"];

pub fn run(bench: &Bench, session: &Launcher, jobs: u32, in_flight: u32, node_count: u32) -> Result<(), Problem> {
    let value = json!({ "program": "misbehave", "jobs": jobs, "in-flight": in_flight, "nodes": node_count });
    let case = Case::named(&format!("jobs-{node_count}x1"), &[], "ssh").map_err(wrong)?;
    let case = Case { is_standing: true, ..case };
    let up = RunningSession::raise(session, &case, bench, &[])?.ok_or_else(|| wrong("no session is running"))?;
    let look = || Held::when_quiet(&up.pids, &session.path, &bench.scratch.file(""));
    let slice = |jobs: u32, size: u32| {
        let begin = words(&format!("run --session {} -n {size} --ppn 1", session_name()));
        let extra = session.extra.iter().map(OsString::from).collect();
        let program = vec![bench.scratch.program("polling").into(), "--number".into(), "{i}".into()];
        let argv = [vec![session.path.clone().into()], begin, extra, program].concat();
        stream(&bench.command(argv, stream_limit(jobs)), jobs, in_flight, JOB_LIMIT, &bench.interrupt)
    };
    for size in [1, node_count] {
        slice(WARM_UP_JOBS, size)?;
    }
    let before = look()?;
    let mut all = Ended::default();
    for (number, begin) in (0..jobs).step_by(SLICE as usize).enumerate() {
        let is_wide = number as u32 % WIDE_EVERY == WIDE_EVERY - 1;
        let Ended { well, badly, hung, elapsed_s } =
            slice(SLICE.min(jobs - begin), if is_wide { node_count } else { 1 })?;
        all.well += well;
        all.badly += badly;
        all.hung += hung;
        all.elapsed_s += elapsed_s;
    }
    let after = look()?;
    up.end()?;
    bench.add(&value, "before", 0, Ok(before.measures(&before)));
    let mut measures = after.measures(&before);
    measures.push(rate("job-rate", f64::from(jobs) / all.elapsed_s));
    // Number of jobs that should end well; jobs are numbered from 0 in every slice.
    let expected = (0..jobs).filter(|number| !matches!(number % 20, 4 | 9 | 14)).count() as u32;
    let ends = [("ended-well", all.well), ("ended-badly", all.badly), ("hung", all.hung), ("expected-well", expected)];
    measures.extend(ends.map(|(name, number)| count(name, f64::from(number))));
    bench.add(&value, "after", 0, Ok(measures));
    Ok(())
}

/// State that a session's processes hold while nothing runs in the session.
struct Held {
    /// For each agent: its pid, its memory (bytes), and its numbers of descriptors, threads and children.
    agents: Vec<(Pid, [u64; 4])>,
    /// Number of processes of the session: agents, keepers, remote shells.
    processes: usize,
    /// Number of ranks, and of processes that they have left behind, wherever these are.
    ranks: usize,
    files: BTreeSet<PathBuf>,
    /// Number of times that all agents together woke up without work before this reading.
    wake_ups: u64,
}

impl Held {
    /// Reads the state of the session below `roots`, whose agents run `program` and whose ranks run programs of
    /// `folder`. Repeats this until two consecutive readings are equal and no agent woke up in between, so that
    /// everything that is ending has ended.
    fn when_quiet(roots: &[Pid], program: &Path, folder: &Path) -> Result<Held, Failure> {
        let begin = Instant::now();
        let mut last = Held::look(roots, program, folder)?;
        loop {
            let before = last.woken();
            thread::sleep(IDLE);
            let next = Held::look(roots, program, folder)?;
            let wake_ups = next.woken().saturating_sub(before);
            let is_quiet = wake_ups == 0 && next.agents == last.agents && next.processes == last.processes;
            if is_quiet || begin.elapsed() > PATIENCE {
                return Ok(Held { wake_ups, ..next });
            }
            last = next;
        }
    }

    fn look(roots: &[Pid], program: &Path, folder: &Path) -> Result<Held, Failure> {
        let ours = fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
        let mut all: Vec<Pid> = roots.to_vec();
        all.extend(roots.iter().flat_map(|root| leftovers::descendants_of(*root)));
        all.retain(|pid| process(*pid).is_ok_and(|process| process.is_alive()));
        let is_agent = |pid: &&Pid| program_of(**pid).as_ref() == Some(&ours) && !memory::is_keeper(**pid);
        let held = |pid: &Pid| {
            let agent = process(*pid).map_err(wrong)?;
            let (files, threads) = (agent.fd_count().map_err(wrong)?, agent.tasks().map_err(wrong)?.count());
            let counts = [files, threads, leftovers::children_of(*pid).len()].map(|count| count as u64);
            Ok((*pid, [memory::private_bytes(*pid)?, counts[0], counts[1], counts[2]]))
        };
        let agents: Vec<_> = all.iter().filter(is_agent).map(held).collect::<Result<_, Failure>>()?;
        if agents.is_empty() {
            return Err(wrong("no agent is left of the session"));
        }
        let everybody = all_processes().into_iter().flatten().flatten();
        let ranks = everybody.filter(|one| one.exe().is_ok_and(|path| path.starts_with(folder))).count();
        Ok(Held { agents, processes: all.len(), ranks, files: files(folder), wake_ups: 0 })
    }

    /// Number of times that all agents together have gone to sleep so far.
    fn woken(&self) -> u64 {
        let switches = |(pid, _): &(Pid, _)| process(*pid).ok()?.status().ok()?.voluntary_ctxt_switches;
        self.agents.iter().filter_map(switches).sum()
    }

    fn measures(&self, before: &Held) -> Measures {
        let of = |which: usize| self.agents.iter().map(move |(_, held)| held[which]);
        let sum = |which| of(which).sum::<u64>() as f64;
        vec![
            count("agents", self.agents.len() as f64),
            bytes("memory", sum(0)),
            bytes("memory-of-largest", of(0).max().unwrap_or(0) as f64),
            count("descriptors", sum(1)),
            count("threads", sum(2)),
            count("children", sum(3)),
            count("processes", self.processes as f64),
            count("ranks-left", self.ranks as f64),
            count("new-files", self.files.difference(&before.files).count() as f64),
            count("wake-ups", self.wake_ups as f64),
        ]
    }
}

/// The files in the folders for temporary files, without those of this benchmark (`ours`), and all files of the
/// sessions.
fn files(ours: &Path) -> BTreeSet<PathBuf> {
    let sessions = WalkDir::new(sessions_beside(&ours.join("stderr"))).min_depth(1);
    let folders = FOLDERS.map(|folder| WalkDir::new(folder).min_depth(1).max_depth(1));
    let paths = |all: WalkDir| all.into_iter().flatten().map(|entry| entry.into_path());
    folders.into_iter().flat_map(paths).filter(|path| !ours.starts_with(path)).chain(paths(sessions)).collect()
}
