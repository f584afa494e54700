//! S2: its closing table (`steps`, by processes of which each is a `rank`); and the cost of groups of ranks (`groups`),
//! compared with the simulator.
mod groups;
pub mod rank;

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

pub use groups::{COMMAND as GROUPS, run as groups};
use rank::PHASES;
use rustix::fs::{Advice, fadvise};
use serde_json::json;
use wireup_bench::bench::{Bench, Problem, Turn};
use wireup_bench::command::{Failure, wrong};
use wireup_bench::flags::{LIMIT, NO_WORDS, RESULTS, ROUNDS, WIREUP, WIREUP_ARG};
use wireup_bench::programs::Scratch;
use wireup_bench::samples::{Measures, count, of_ranks, seconds};
use wireup_bench::stamps;
use wireup_bench::startup::PPN;
use wireup_capi::net::now_ns;
use wireup_flags::{Command, Flag, Section, Value};
use wireup_testbed::slowfs::{SlowFs, Spec};

const RANKS: Flag = Flag::value(&["--ranks"], "A,B,..", "Numbers of ranks.").or("16,64,256,1024");

pub const STEPS: Command = Command {
    name: "reproduce steps",
    purpose: "time the phases of a start, by the steps that made it faster",
    intro: "
The phases of the ranks' start, on virtual nodes of this machine. The ranks' program and 20 libraries are on a slow
file server (wireup-testbed slowfs: 0.2 ms for each operation, one at a time), and nothing of them is cached. Each
column has what the one before it has, with one thing replaced (lab/reproductions/s2/README.md).
",
    sections: &[Section { title: "Jobs", flags: &[RANKS, PPN, ROUNDS, WIREUP, WIREUP_ARG, LIMIT] }, RESULTS],
    ..NO_WORDS
};

/// Maximum number of ranks: more were not measured. Each rank has an address of its own below 127.1.0.0/16.
const RANKS_MAX: u32 = 4096;
/// Largest number of ranks that connect all to all: N ranks have N x N sockets in all.
const CONNECT_MAX: u32 = 1024;
/// Minimum number of ranks: with fewer, there are no ranks about half the job away.
const RANKS_MIN: u32 = 4;
const ROUNDS_DEFAULT: u32 = 3;
const LIMIT_S: u64 = 300;
/// A folder whose files are in memory.
const MEMORY: &str = "/dev/shm";

/// Number of libraries that the ranks load besides those of the system, as many as in `docs/examples/slow-server.sh`.
const LIBRARIES: u32 = 20;
/// Time after which the kernel asks the slow file server again for names that it has looked up, and more.
const NAMES_EXPIRE: Duration = Duration::from_millis(1_200);
/// A server that has done no operation for so long is idle. Chosen: a thousand times as long as an operation takes.
const IDLE: Duration = Duration::from_millis(200);

/// The columns of the table, each with the phases that it lacks.
const COLUMNS: [(&str, &[&str]); 5] = [
    (BASELINE, NO_GROUPS),
    ("staged", NO_GROUPS),
    ("groups", &["create-world"]),
    ("pmix-ring", &[]),
    (ON_DEMAND, &["address-exchange"]),
];
const NO_GROUPS: &[&str] =
    &["endpoint-open", "ring-exchange", "create-ring", "create-world", "create-node", "create-leader", "teardown"];
const BASELINE: &str = "baseline";
/// The only column in which ranks are not connected to all others at the end.
const ON_DEMAND: &str = "on-demand";

pub fn steps(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let sizes = line.one(RANKS, |value| value.list(|ranks| ranks.number_in(RANKS_MIN, RANKS_MAX)))?;
    let ppn = line.one(PPN, Value::at_least_one)?;
    let mut turns = Vec::new();
    for &ranks in &sizes {
        let case = json!({ "ranks": ranks, "ppn": ppn });
        for column in COLUMNS.into_iter().filter(|column| column.0 == ON_DEMAND || ranks <= CONNECT_MAX) {
            turns.push(Turn::new(column.0, &case, bench.rounds.unwrap_or(ROUNDS_DEFAULT), (column, ranks)));
        }
    }
    if bench.lists(&turns) {
        return Ok(());
    }
    let server = Server::start(bench)?;
    bench.turns(&turns, |&((column, lacks), ranks), _| {
        server.forget()?;
        let begin = now_ns();
        let mut argv = bench.wireup_run(ranks, ranks.div_ceil(ppn), ppn, "--pmi simple")?;
        argv.extend(server.flags(column != BASELINE).into_iter().map(OsString::from));
        argv.extend([server.mount.join(PROGRAM).into(), rank::WORD.into(), column.into(), begin.to_string().into()]);
        let (_, text) = bench.run(argv, bench.limit_or(LIMIT_S))?;
        let mut measures = read(&text, lacks, ranks, begin)?;
        measures.push(count("operations", server.settle() as f64));
        Ok(measures)
    });
    Ok(())
}

const PROGRAM: &str = "steps-rank";

/// A slow file server with the ranks' program and libraries, and a folder in memory for staged copies.
struct Server {
    slow: SlowFs,
    mount: PathBuf,
    memory: Scratch,
}

impl Server {
    /// # Errors
    /// This machine cannot mount a slow file server: it needs root and FUSE.
    fn start(bench: &Bench) -> Result<Server, Problem> {
        let memory = Scratch::create_in(Path::new(MEMORY))?;
        let [source, mount] = ["source", "mount"].map(|name| memory.file(name));
        [&source, &mount].into_iter().try_for_each(fs::create_dir)?;
        fs::copy(std::env::current_exe()?, source.join(PROGRAM))?;
        for number in 0..LIBRARIES {
            // A library that does nothing in this program.
            fs::copy(memory.program("prun_shim"), source.join(library(number)))?;
        }
        let testbed = bench.wireup()?.with_file_name("wireup-testbed");
        let slow = SlowFs::mount(&Spec::new(testbed, source, &mount)).map_err(wrong)?;
        Ok(Server { slow, mount, memory })
    }

    /// Removes from the kernel's memory what it has read from the server.
    fn forget(&self) -> std::io::Result<()> {
        for entry in fs::read_dir(&self.mount)? {
            fadvise(&File::open(entry?.path())?, 0, None, Advice::DontNeed)?;
        }
        thread::sleep(NAMES_EXPIRE);
        self.settle();
        self.slow.clear();
        Ok(())
    }

    /// Waits until the server has nothing more to do, since the kernel tells it late which files were closed. Returns
    /// the number of operations since the log was cleared.
    fn settle(&self) -> usize {
        let mut done = self.slow.log().len();
        loop {
            thread::sleep(IDLE);
            let now = self.slow.log().len();
            if std::mem::replace(&mut done, now) == now {
                return done;
            }
        }
    }

    /// Flags of `wireup run` for ranks that load the libraries, from the server or from staged copies.
    fn flags(&self, is_staged: bool) -> Vec<String> {
        let libraries: Vec<String> =
            (0..LIBRARIES).map(|number| self.mount.join(library(number)).display().to_string()).collect();
        let mut flags = vec![format!("--env=LD_PRELOAD={}", libraries.join(":"))];
        if is_staged {
            let store = self.memory.file("store");
            flags.extend([format!("--stage={}", store.display()), format!("--stage-also={}", self.mount.display())]);
        }
        flags
    }
}

fn library(number: u32) -> String {
    format!("lib{number}.so")
}

/// The phases of a job from the lines of its ranks, of the median rank and of the slowest, and the time from before the
/// launcher is started until the last rank is connected; `begin` is the clock at the start (ns).
///
/// # Errors
/// A rank's line is missing, exists twice, or does not have the column's phases.
fn read(text: &str, lacks: &[&str], ranks: u32, begin: u64) -> Result<Measures, Failure> {
    let all = stamps::lines(text, PHASES.len() + 2, ranks)?;
    let last = all.iter().filter_map(|line| line.last()).max().copied().unwrap_or(begin);
    let mut measures = vec![seconds("total", (last - begin) as f64 / 1e9)];
    for (at, phase) in PHASES.into_iter().enumerate() {
        let times = all.iter().map(|line| line[at + 1]);
        let is_there = !lacks.contains(&phase);
        if times.clone().any(|ns| (ns > 0) != is_there) {
            return Err(wrong(format!("a rank has {phase} that its column lacks, or lacks it")));
        }
        if is_there {
            measures.extend(of_ranks(phase, times.map(|ns| ns as f64 / 1e9)));
        }
    }
    Ok(measures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_must_tell_the_phases_of_its_column() {
        let line = |rank, launch, end| format!("{rank} {launch} 0 0 0 0 0 0 20 30 40 0 {end}\n");
        let both = line(1, 2000, 9000) + &line(0, 1000, 7000);
        let read = |text: &str| read(text, NO_GROUPS, 2, 1000);
        let ns: Vec<f64> = read(&both).unwrap().iter().map(|measure| (measure.value * 1e9).round()).collect();
        assert_eq!(ns, [8000.0, 1500.0, 2000.0, 20.0, 20.0, 30.0, 30.0, 40.0, 40.0]);
        for wrong in [both.replace("2000 0", "2000 5"), both.replace(" 20 ", " 0 ")] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }
}
