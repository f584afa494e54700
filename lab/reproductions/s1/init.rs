//! `wireup bench init`: the initialisation of a middleware with every scheme (S1 figure 10), and of a real MPI, split
//! into exchange and rest (S1 figure 1).
//!
//! A middleware initialises itself by an exchange and by local work that does not need its result. With a blocking
//! scheme its initialisation is the sum of both; with a non-blocking one it ends with the work, and the wait comes when
//! the application first needs a peer. The local work is a sleep: setting up a network card takes time but no cores, of
//! which this machine has too few.
use super::flags::{AUTO, Flags};
use super::job::with_job;
use super::mpi;
use super::report::{Cell, Key, Report};
use super::rounds::{self, Task};
use super::scheme::{Step, Work, named};
use super::surroundings::Surroundings;
use crate::cases::Place;
use crate::command::Failure;

pub const RANKS: [u32; 6] = [16, 64, 256, 1024, 4096, 16384];
const SCHEMES: [&str; 8] =
    ["text-fence", "text-get-2", "text-get-all", "fence", "fence-get-2", "allgather", "ifence", "iallgather"];
/// The name of the local work alone.
pub const WORK: &str = "work";

/// The jobs and the steps of each.
pub fn plan(flags: &Flags) -> Vec<(Place, Vec<Task>, u32)> {
    let ranks = if flags.ranks.is_empty() { RANKS.to_vec() } else { flags.ranks.clone() };
    let jobs = ranks.into_iter().map(|ranks| {
        let place = flags.place(ranks);
        let work = Work::Sleep(flags.work);
        let key =
            |scheme: &str| Key { place, exchange: AUTO.into(), scheme: scheme.to_owned(), lengths: flags.lengths };
        let schemes = SCHEMES.map(named);
        let wanted = schemes.into_iter().filter(|s| flags.schemes.is_empty() || flags.schemes.contains(s));
        let fitting = wanted.filter(|scheme| scheme.fits(ranks, flags.lengths.value));
        let mut tasks =
            vec![Task { key: key(WORK), step: Step::work_alone(work, flags.lengths), rounds_max: u32::MAX }];
        tasks.extend(fitting.map(|scheme| Task {
            key: key(scheme.name),
            step: Step::exchange(scheme, flags.lengths).with_work(work),
            rounds_max: rounds::rounds_max(scheme, ranks),
        }));
        (place, tasks, flags.rounds.unwrap_or_else(|| rounds::default_count(ranks)))
    });
    jobs.collect()
}

pub fn describe(flags: &Flags) -> String {
    let mut text = String::new();
    for (place, tasks, rounds) in plan(flags).into_iter().filter(|_| flags.has_part("schemes")) {
        let names: Vec<&str> = tasks.iter().map(|task| &*task.key.scheme).collect();
        text += &format!("init, {place}: {rounds} rounds of {}\n", names.join(" "));
    }
    if flags.has_part("mpi") {
        text += &mpi::describe(flags);
    }
    text
}

pub fn run(flags: &Flags, surroundings: &Surroundings, report: &mut Report) {
    if flags.has_part("schemes") {
        for (place, tasks, rounds) in plan(flags) {
            if surroundings.interrupt.is_set() {
                return;
            }
            eprintln!("wireup bench init: {place}");
            report.add(&format!("init, {place}"), job(flags, surroundings, place, &tasks, rounds));
        }
    }
    if flags.has_part("mpi") {
        mpi::run(flags, surroundings, report);
    }
}

fn job(
    flags: &Flags,
    surroundings: &Surroundings,
    place: Place,
    tasks: &[Task],
    rounds: u32,
) -> Result<Vec<Cell>, Failure> {
    let launch = surroundings.launch(flags, place, AUTO);
    with_job(&launch, &surroundings.scratch, &surroundings.interrupt, |job| rounds::interleave(job, tasks, rounds))
}
