//! `wireup bench spawn`: MPI_Comm_spawn under wireup and under the launchers of the MPI libraries.
//!
//! All processes must share a clock, so jobs stay on this machine. A call is split by the times that rank 0 and the
//! children noted (`dev/programs/mpi/spawning.c`):
//!
//! ```text
//! call        first child's   last child's      last child's    return
//!             process runs    process runs      MPI_Init ends
//!  |---first------|               |                  |            |
//!  |--------------last------------|----children------|            |
//!  |-----ready-------|.waiting....|                  |---after----|
//! ```
//!
//! The *rest* is the call without the children's own part: *last* and *after*. A child that exists may have to wait for
//! a cpu, since the parents poll while they wait for the call: *ready* is the time at which the last child would have
//! run without this wait. While the children load their libraries they use the launcher's PMI server, which this split
//! cannot tell apart.
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;
use serde_json::{Value as Json, json};
use wireup_flags::{Command, Flag, Section, Value};
use wireup_os::process::tree;

use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, wrong};
use crate::flags::{DRY_RUN, JSON, LIMIT, NO_WORDS, PART, ROUNDS, WIREUP, WIREUP_ARG, parts};
use crate::launch::{Case, Kind, Launcher, peers, words};
use crate::samples::{Measures, bytes, median, seconds};
use crate::{leftovers, memory};

const MEASURED: Flag = PART.or("call,many");
const MPI: Flag = Flag::value(&["--mpi"], "A,B", "Only these.").or("mpich,open-mpi");
const PARENTS: Flag = Flag::value(&["--parents"], "N", "call: ranks that start children together.").or("4");
const CHILDREN: Flag = Flag::value(&["--children"], "N", "call: children of a call.").or("4");
const CALLS: Flag = Flag::value(&["--calls"], "N", "call: calls of a job, one after the other.").or("5");
const PAUSE: Flag =
    Flag::value(&["--pause"], "MS", "call: sleep of all ranks before each call. 0: back to back.").or("300");
const TIMES: Flag = Flag::value(&["--times"], "N", "many: calls of the one job.").or("1000");
const MPICH_PROGRAM: Flag =
    Flag::value(&["--mpich-program"], "PATH", "dev/programs/mpi/spawning.c, compiled with MPICH.")
        .or("target/programs/mpich5/spawning");
const OPEN_MPI_PROGRAM: Flag =
    Flag::value(&["--open-mpi-program"], "PATH", "dev/programs/mpi/spawning.c, compiled with Open MPI 5.")
        .or("target/programs/openmpi5/spawning");

pub const COMMAND: Command = Command {
    name: "bench spawn",
    purpose: "time MPI_Comm_spawn",
    intro: "
The same MPI program in turn under wireup and under the launcher of its MPI: Hydra 5 for MPICH, mpirun for Open MPI 5.

call: the time of MPI_Comm_spawn: until the children run, until they have left MPI_Init, and after that; and of bare
vfork and exec of as many programs.

many: one rank starts one child after another: the time of a call in each tenth of the job, and the launcher's memory.
",
    sections: &[Section {
        title: "Flags",
        flags: &[
            MEASURED, MPI, PARENTS, CHILDREN, CALLS, PAUSE, ROUNDS, TIMES, MPICH_PROGRAM, OPEN_MPI_PROGRAM, WIREUP,
            WIREUP_ARG, LIMIT, DRY_RUN, JSON,
        ],
    }],
    ..NO_WORDS
};

/// Largest number of ranks: with more, one machine gives no useful figures (chosen).
const SIZE_MAX: u32 = 256;
/// Longest pause before a call (ms): a minute (chosen).
const PAUSE_MS_MAX: u32 = 60_000;
const ROUNDS_DEFAULT: u32 = 9;
const LIMIT_S: u64 = 300;
/// Pause between two readings of the memory (chosen: several readings fall into every part of the job).
const READING_PAUSE: Duration = Duration::from_millis(50);
/// Number of parts into which a job with many calls is divided: in the first part everything has happened at least
/// once, and the last part shows the growth since then (chosen).
const PARTS: usize = 10;
/// An MPI library, its flag, the kind of its own launcher, and a case of that launcher with ranks of the same library.
const MPIS: [(&str, Flag, &str, &str); 2] =
    [("mpich", MPICH_PROGRAM, "hydra", "mpi-init-1x"), ("open-mpi", OPEN_MPI_PROGRAM, "open-mpi", "openmpi5-1x")];

/// The parameters of a job: its ranks and calls.
#[derive(Clone, Copy)]
struct Job {
    parents: u32,
    children: u32,
    calls: u32,
    /// Pause before each call (ms).
    pause_ms: u32,
}

/// A launcher, a case for it, and the MPI program; `None`: the children are started as processes without a launcher.
type Contestant = Option<(Launcher, Case, PathBuf)>;

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let size = |value: &Value| value.number_in(1, SIZE_MAX);
    let call = Job {
        parents: line.one(PARENTS, size)?,
        children: line.one(CHILDREN, size)?,
        calls: line.one(CALLS, Value::at_least_one)?,
        pause_ms: line.one(PAUSE, |value| value.number_in(0, PAUSE_MS_MAX))?,
    };
    let many = Job { parents: 1, children: 1, calls: line.one(TIMES, Value::at_least_one)?, pause_ms: 0 };
    let parts = parts(line, MEASURED)?;
    let mpis = line.one(MPI, |value| value.list(|mpi| mpi.choice(&MPIS.map(|mpi| (mpi.0, mpi)))))?;
    let wireup = bench.wireup()?;
    let found = peers::find(&[], bench);
    let case = |part: &str, mpi: &str, job: Job| {
        json!({
            "part": part, "mpi": mpi, "parents": job.parents, "children": job.children, "pause-ms": job.pause_ms,
        })
    };
    let (mut calls, mut manys) = (Vec::new(), Vec::new());
    for (mpi, program, kind, ranks) in mpis {
        let program = std::path::absolute(line.one(program, Value::path)?)?;
        // Both MPI libraries are compared from version 5 on; the set-up builds programs for these versions.
        let is_its = |peer: &&Launcher| peer.is_peer(kind) && peer.major() >= Some(5);
        let Some(peer) = found.iter().find(is_its).filter(|_| program.is_file()) else {
            let why = format!("needs {kind} 5 and {}, which cargo xtask setup makes", program.display());
            bench.absent(mpi, why);
            continue;
        };
        let (path, extra) = (wireup.clone(), bench.wireup_args.clone());
        let ours = Launcher { path, extra, ..Launcher::new("wireup", Kind::Wireup) };
        let rounds = bench.rounds.unwrap_or(ROUNDS_DEFAULT);
        for launcher in [ours, peer.clone()] {
            let name = launcher.name.clone();
            let of = |job: Job| Case::named(&format!("{ranks}{}", job.parents), &[], "").map_err(wrong);
            let what = |job: Job| Ok::<_, Failure>(Some((launcher.clone(), of(job)?, program.clone())));
            calls.push(Turn::new(&name, &case("call", mpi, call), rounds, what(call)?));
            manys.push(Turn::new(&name, &case("many", mpi, many), 1, what(many)?));
        }
        calls.push(Turn::new("vfork", &case("call", mpi, call), rounds, None));
    }
    if parts.contains(&"call") {
        bench.turns(&calls, |contestant, _| once(bench, contestant, call));
    }
    if parts.contains(&"many") && !bench.lists(&manys) {
        for (Turn { contestant, case, what, .. }, number) in manys.iter().zip(1..) {
            bench.show_case(&format!("{} calls under {contestant}", many.calls), number, manys.len());
            let mut seen = Seen::default();
            let ended = seen.watch(bench, what, many);
            leftovers::settle(&[]);
            seen.add(bench, case, contestant, ended);
        }
    }
    Ok(())
}

/// The command line of a job whose rank 0 writes the times of its calls to `stamps`.
fn argv(bench: &Bench, contestant: &Contestant, job: Job, stamps: &Path) -> Vec<OsString> {
    let Job { parents, children, calls, pause_ms } = job;
    let end: Vec<OsString> = vec![stamps.into(), bench.scratch.program("from_exec").into()];
    let Some((launcher, case, program)) = contestant else {
        let own = bench.scratch.program("beside_polling").into();
        return [vec![own], words(&format!("{parents} {children} {calls} {pause_ms}")), end].concat();
    };
    let numbers = words(&format!("{calls} {children} {pause_ms}"));
    launcher.argv(&bench.scratch, case, [vec![program.into()], numbers, end].concat())
}

fn limit(bench: &Bench, job: Job) -> Duration {
    bench.limit_or(LIMIT_S) + Duration::from_millis(job.pause_ms.into()) * job.calls
}

/// Runs a job; returns the median over its calls of each quantity.
fn once(bench: &Bench, contestant: &Contestant, job: Job) -> Result<Measures, Failure> {
    let stamps = bench.scratch.empty_file("stamps")?;
    bench.run(argv(bench, contestant, job, &stamps), limit(bench, job))?;
    let calls = read(&fs::read_to_string(stamps)?)?;
    if calls.len() != job.calls as usize {
        return Err(wrong(format!("{} of {} calls have left their times", calls.len(), job.calls)));
    }
    let quantities = ["call", "first-runs", "last-runs", "all-ready", "children", "after", "rest"];
    // If the children are no MPI programs, only these quantities can be compared.
    let is_known = |name: &str| contestant.is_some() || ["first-runs", "last-runs", "all-ready"].contains(&name);
    let middle = |at: usize| median(calls.iter().map(|call| call[at])).unwrap_or(0.0);
    let all = quantities.into_iter().enumerate().filter(|(_, name)| is_known(name));
    Ok(all.map(|(at, name)| seconds(name, middle(at))).collect())
}

/// The times of one call (s): the whole call, until the first and the last child run, until all could run, the
/// children's own part, the time after it, and the rest.
type Call = [f64; 7];

/// Parses one line for each call; a line that is still being written has no newline yet and is left out.
fn read(text: &str) -> Result<Vec<Call>, Failure> {
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let call = |line: &str| read_call(line).ok_or_else(|| wrong(format!("the times of a call cannot be read: {line}")));
    whole.lines().map(call).collect()
}

fn read_call(line: &str) -> Option<Call> {
    let times: Vec<u64> = line.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let ([call, end], children) = times.split_first_chunk()?;
    let (children, rest) = children.as_chunks::<4>();
    let is_right = |[run, _, main, initialised]: &[u64; 4]| call <= run && run <= main && main <= initialised;
    if !rest.is_empty() || !children.iter().all(is_right) {
        return None;
    }
    let since = |later: u64, earlier: u64| later.saturating_sub(earlier) as f64 / 1e9;
    let runs = || children.iter().map(|[run, ..]| *run);
    let last = runs().max()?;
    let initialised = children.iter().map(|[.., initialised]| *initialised).max()?;
    // The parents may return while a child is still returning from MPI_Init, so the difference may be negative.
    let after_s = since(*end, initialised);
    // The kernel's measure of the wait may be wrong by one tick of its clock, so that the result would lie before the
    // call.
    let ready_s = since(children.iter().map(|[run, waited, ..]| run.saturating_sub(*waited)).max()?, *call);
    let last_s = since(last, *call);
    Some([
        since(*end, *call),
        since(runs().min()?, *call),
        last_s,
        ready_s,
        since(initialised, last),
        after_s,
        last_s + after_s,
    ])
}

/// Measurements of a job with many calls.
#[derive(Default)]
struct Seen {
    calls: Vec<Call>,
    /// The memory of the launcher's processes (bytes), each reading with the number of calls made before it.
    readings: Vec<(usize, u64)>,
}

impl Seen {
    /// Runs the job and reads its launcher's memory until the job ends. While a child is being started the memory is
    /// larger, so the smallest of several readings is used.
    fn watch(&mut self, bench: &Bench, contestant: &Contestant, job: Job) -> Result<(), Failure> {
        let stamps = bench.scratch.empty_file("stamps")?;
        let program = contestant.as_ref().map_or(Path::new(""), |(.., program)| program);
        let ranks = [program, &bench.scratch.program("from_exec")]
            .map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()));
        let command = bench.command(argv(bench, contestant, job, &stamps), limit(bench, job));
        let mut running = command.start(&bench.interrupt)?;
        loop {
            let ended = running.ends_within(READING_PAUSE);
            self.calls = read(&fs::read_to_string(&stamps)?)?;
            if ended? {
                running.finish()?;
                break;
            }
            self.readings.extend(memory_below(running.child.id(), &ranks).map(|bytes| (self.calls.len(), bytes)));
        }
        match self.calls.len() == job.calls as usize {
            true => Ok(()),
            false => Err(wrong(format!("{} of {} calls", self.calls.len(), job.calls))),
        }
    }

    /// Adds a value for each part of the job; the number of the part is used as the round.
    fn add(&self, bench: &Bench, case: &Json, contestant: &str, ended: Result<(), Failure>) {
        let part_of = |call: usize| call * PARTS / self.calls.len().max(1);
        for part in 0..PARTS {
            let calls = self.calls.iter().enumerate().filter(|(at, _)| part_of(*at) == part).map(|(_, call)| call[0]);
            let memory =
                self.readings.iter().filter(|(calls, _)| part_of(*calls) == part).map(|(_, bytes)| *bytes).min();
            let call = median(calls).map(|call| seconds("call", call));
            let measures = call.into_iter().chain(memory.map(|memory| bytes("memory", memory as f64))).collect();
            bench.add(case, contestant, part as i64, Ok(measures));
        }
        if let Err(failure) = ended {
            bench.add(case, contestant, PARTS as i64, Err(failure));
        }
    }
}

/// The memory of the launcher's processes, which are those that run neither the MPI program nor a program that starts
/// it; `None` if one of them has ended in the meantime.
fn memory_below(launcher: u32, ranks: &[PathBuf]) -> Option<u64> {
    let is_rank = |exe: &Path| ranks.iter().any(|rank| rank == exe);
    let all = tree(launcher).into_iter().filter_map(|one| Pid::from_raw(one.pid as i32));
    // A process that has ended and was not waited for has no program and no memory, so it is left out.
    let ours = all.filter(|pid| memory::program_of(*pid).is_some_and(|exe| !is_rank(&exe)));
    ours.map(|pid| memory::private_bytes(pid).ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_split_at_its_children() {
        let text = "1000 9000 2000 500 3000 5000 4000 0 4500 6000\n1000 90";
        let [call] = read(text).unwrap()[..] else { panic!() };
        assert_eq!(call.map(|s| (s * 1e9).round()), [8000.0, 1000.0, 3000.0, 3000.0, 2000.0, 3000.0, 6000.0]);
        assert!(read("1000 9000 2000 0 1500 5000\n").is_err() && read("1000\n").is_err());
    }
}
