//! S1: the initialisation of a middleware with every scheme (figure 10) and of a real MPI, split into exchange and rest
//! (figure 1); how much of an exchange is hidden behind other work (figures 11 and 12); whole applications (`apps`).
//!
//! A middleware initialises itself by an exchange and by local work that does not need its result. With a blocking
//! scheme its initialisation is the sum of both; with a non-blocking one it ends with the work, and the wait comes when
//! the application first needs a peer. The local work is a sleep: setting up a network card takes time but no cores.
pub mod apps;
pub mod slow_shell;

use std::fs;
use std::time::Duration;

use serde_json::json;
use wireup_bench::bench::{Bench, Problem, Turn};
use wireup_bench::command::{Failure, wrong};
use wireup_bench::flags::{LIBRARY, LIMIT, NO_WORDS, RESULTS, ROUNDS, WIREUP, WIREUP_ARG, parts};
use wireup_bench::layout::Layout;
use wireup_bench::samples::{Measures, value_of};
use wireup_bench::stamps;
use wireup_bench::startup::job::{self, Job, Launch, with_job};
use wireup_bench::startup::scheme::{Scheme, Step, Work, default_rounds, named};
use wireup_bench::startup::{Choice, KEY_BYTES, PPN, RANKS, SCHEME, VALUE_BYTES, sizes};
use wireup_flags::{Command, Flag, Section, Value};

const RANKS_HERE: Flag = Flag { help: "Job sizes (default: 16,64,256,1024,4096,16384).", ..RANKS };
const INIT_PARTS: Flag = Flag::value(&["--part"], "A,B", "Only these: schemes, mpi.").or("schemes,mpi");
const OVERLAP_PARTS: Flag = Flag::value(&["--part"], "A,B", "Only these: sleep, spin.").or("sleep,spin");
const WORK_MS: Flag = Flag::value(&["--work-ms"], "N", "Local work of each rank, asleep.").or("20");
const DELAY_MS: Flag =
    Flag::value(&["--delay-ms"], "N", "Delay of the links between agents while the clients spin; 0: none.").or("10");
const MPI_RANKS: Flag =
    Flag::value(&["--mpi-ranks"], "A,B,..", "Job sizes of the MPI program, 4 ranks a node.").or("8,16,32,64,128");
const MPI_PROGRAM: Flag = Flag::value(&["--mpi-program"], "PATH", "An MPI program that does init, barrier, finalize.")
    .or("target/programs/mpich5/initfin");
const JOBS: [Flag; 7] = [RANKS_HERE, PPN, ROUNDS, WIREUP, WIREUP_ARG, LIBRARY, LIMIT];

pub const INIT: Command = Command {
    name: "reproduce init",
    purpose: "time the initialisation of a middleware that uses startup exchanges, and of a real MPI",
    sections: &[
        Section { title: "Jobs", flags: &JOBS },
        Section { title: "Parts", flags: &[INIT_PARTS, WORK_MS, MPI_RANKS, MPI_PROGRAM] },
        Section { title: "Exchanges", flags: &[SCHEME, VALUE_BYTES, KEY_BYTES] },
        RESULTS,
    ],
    ..NO_WORDS
};

pub const OVERLAP: Command = Command {
    name: "reproduce overlap",
    purpose: "measure how much of a startup exchange hides behind other work",
    intro: "
Every round has the blocking exchange; work alone, as long as that exchange has taken; the start of the same \
exchange, the
same work, the wait. Work is a sleep, or a fixed amount of CPU time of as many ranks as the machine has cores.
",
    sections: &[
        Section { title: "Jobs", flags: &JOBS },
        Section { title: "Parts", flags: &[OVERLAP_PARTS, DELAY_MS] },
        Section { title: "Exchanges", flags: &[SCHEME, VALUE_BYTES, KEY_BYTES] },
        RESULTS,
    ],
    ..NO_WORDS
};

const RANKS_DEFAULT: [u32; 6] = [16, 64, 256, 1024, 4096, 16384];
const SCHEMES: [&str; 8] =
    ["text-fence", "text-get-2", "text-get-all", "fence", "fence-get-2", "allgather", "ifence", "iallgather"];
/// Ranks per node of a real MPI: few, so that there are several nodes; on a single node MPICH exchanges nothing.
const MPI_PPN: u32 = 4;
/// Number of rounds with a real MPI: starting a rank costs some 10 ms of CPU time.
const MPI_ROUNDS: u32 = 3;
/// The operations that may overlap with work, each with its blocking form.
const PAIRS: [(&str, &str); 2] = [("ifence", "fence"), ("iallgather", "allgather")];
/// Number of rounds that determine the length of the work (chosen).
const TRIALS: u32 = 3;

pub fn init(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let choice = Choice::read(line, &RANKS_DEFAULT)?;
    let work = Work::Sleep(Duration::from_millis(line.one(WORK_MS, Value::number)?.into()));
    let parts = parts(line, INIT_PARTS, &["schemes", "mpi"])?;
    let mpi_ranks = line.one(MPI_RANKS, sizes)?;
    let layouts = if parts.contains(&"schemes") { &choice.layouts[..] } else { &[] };
    for &layout in layouts {
        let case = choice.case("init", layout);
        let turn = |contestant, rounds, what| Turn::new(contestant, &case, rounds, what);
        let rounds = bench.rounds.unwrap_or_else(|| default_rounds(layout.job_size()));
        let mut turns = vec![turn("work", rounds, Step::work_alone(work, choice.lengths))];
        turns.extend(choice.fitting(&SCHEMES.map(named), layout).map(|scheme| {
            let step = Step::exchange(scheme, choice.lengths).with_work(work);
            turn(scheme.name, scheme.rounds(layout.job_size(), bench.rounds), step)
        }));
        job::turns(bench, &Launch::new(bench, layout)?, &case, &turns);
    }
    let program = std::path::absolute(line.one(MPI_PROGRAM, Value::path)?)?;
    if parts.contains(&"mpi") && !program.exists() {
        bench.absent("mpi", format!("no {}: see --mpi-program", program.display()));
    } else if parts.contains(&"mpi") {
        let turn = |ranks: &u32| {
            let layout = Layout::of(*ranks, MPI_PPN);
            let case = json!({ "part": "mpi", "ranks": ranks, "nodes": layout.node_count, "ppn": layout.ppn });
            Turn::new("mpi", &case, bench.rounds.unwrap_or(MPI_ROUNDS), layout)
        };
        let turns: Vec<Turn<Layout>> = mpi_ranks.iter().map(turn).collect();
        bench.turns(&turns, |layout, _| real_mpi(bench, *layout, &program));
    }
    Ok(())
}

/// Runs an MPI program into which `programs/mpi_shim.c` is loaded; on every rank the shim measures MPI_Init and, within
/// it, the communication with the PMI server.
fn real_mpi(bench: &Bench, layout: Layout, program: &std::path::Path) -> Result<Measures, Failure> {
    let file = bench.scratch.empty_file("mpi-stamps")?;
    let launch = Launch::new(bench, layout).map_err(wrong)?.with([
        format!("--env=LD_PRELOAD={}", bench.scratch.program("mpi_shim").display()),
        format!("--env=WIREUP_BENCH_STAMPS={}", file.display()),
    ]);
    let (mut measures, _) = bench.run(launch.argv(vec![program.into()]), launch.limit)?;
    measures.extend(stamps::of_mpi(&fs::read_to_string(file)?, layout.job_size())?);
    Ok(measures)
}

pub fn overlap(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let choice = Choice::read(line, &RANKS_DEFAULT)?;
    let delay = Duration::from_millis(line.one(DELAY_MS, Value::number)?.into());
    for part in parts(line, OVERLAP_PARTS, &["sleep", "spin"])? {
        if part == "sleep" {
            for &layout in &choice.layouts {
                hide(bench, &choice, "sleep", Launch::new(bench, layout)?)?;
            }
            continue;
        }
        // Nodes with one spinning rank each: few enough that the ranks fit on the cores together with their agents, or,
        // if the links are slow, without the agents.
        let cores = bench.machine.cpus as u32;
        let node_count = if delay.is_zero() { (cores / 2).max(2) } else { cores.max(2) };
        let layout = Layout { node_count, ppn: 1 };
        hide(bench, &choice, "spin", Launch::on(bench, layout, slow_nodes(bench, layout, delay)?)?)?;
    }
    Ok(())
}

/// Arguments of `wireup run` for nodes whose agents have slow links; none without a delay.
fn slow_nodes(bench: &Bench, layout: Layout, delay: Duration) -> Result<Option<Vec<String>>, Problem> {
    if delay.is_zero() {
        return Ok(None);
    }
    let slow = (1..layout.node_count).map(|node| format!(",slow{node}")).collect::<String>();
    let shell = format!("{} {} {}", bench.own_program()?.display(), slow_shell::WORD, delay.as_nanos());
    Ok(Some(vec![
        format!("--hosts=localhost{slow}"),
        format!("--ppn={}", layout.ppn),
        format!("--remote-shell={shell}"),
        // With this transport all frames take the slow links of the tree.
        "--agent-transport=tree".into(),
    ]))
}

fn hide(bench: &Bench, choice: &Choice, kind: &str, launch: Launch) -> Result<(), Problem> {
    let case = choice.case(kind, launch.layout);
    let rounds = bench.rounds.unwrap_or_else(|| default_rounds(launch.layout.job_size()));
    let is_wanted = |name: &str| choice.schemes.is_empty() || choice.schemes.iter().any(|scheme| scheme.name == name);
    for (later, blocking) in PAIRS.into_iter().filter(|(later, _)| is_wanted(later)) {
        let names = [blocking.to_owned(), format!("{kind} for {later}"), format!("{later}+{kind}")];
        let turn = |(at, name): (usize, &String)| Turn::new(name, &case, rounds, at);
        let turns: Vec<Turn<usize>> = names.iter().enumerate().map(turn).collect();
        bench.attempt(&turns, || {
            with_job(bench, &launch, |job| {
                let steps = steps(choice, job, kind, named(later), named(blocking))?;
                bench.turns(&turns, |at, _| job.step(&steps[*at]));
                Ok(())
            })
        });
    }
    Ok(())
}

/// The steps of a comparison: the blocking exchange, the work alone, and both at the same time. The blocking exchange
/// is measured first, so that the work takes as long.
fn steps(choice: &Choice, job: &mut Job, kind: &str, later: Scheme, blocking: Scheme) -> Result<[Step; 3], Failure> {
    let blocking = Step::exchange(blocking, choice.lengths);
    let mut longest: f64 = 0.0;
    for _ in 0..TRIALS {
        longest = longest.max(value_of(&job.step(&blocking)?, "whole").unwrap_or(0.0));
    }
    let time = Duration::from_secs_f64(longest);
    let work = if kind == "sleep" { Work::Sleep(time) } else { Work::Spin(time) };
    Ok([blocking, Step::work_alone(work, choice.lengths), Step::exchange(later, choice.lengths).with_work(work)])
}
