//! S1: how much of an exchange is hidden behind other work (figures 11 and 12); the phases and bytes of exchanges
//! (`tables`); whole applications (`apps`).
pub mod apps;
pub mod slow_shell;
pub mod slurm;
pub mod tables;

use std::time::Duration;

use wireup_bench::bench::{Bench, Problem, Turn};
use wireup_bench::command::{Failure, wrong};
use wireup_bench::flags::{LIBRARY, LIMIT, NO_WORDS, PART, RESULTS, ROUNDS, WIREUP, WIREUP_ARG, parts};
use wireup_bench::layout::Layout;
use wireup_bench::samples::{count, median, seconds, value_of};
use wireup_bench::startup::job::{Job, Launch, with_job};
use wireup_bench::startup::scheme::{Scheme, Step, Work, default_rounds, named};
use wireup_bench::startup::{Choice, KEY_BYTES, PPN, RANKS, SCHEME, VALUE_BYTES};
use wireup_flags::{Command, Flag, Section, Value};

const RANKS_HERE: Flag = RANKS.or("16,64,256,1024,4096,16384");
const PARTS: Flag = PART.or("sleep,spin,least-sleep,least-spin");
const DELAY_MS: Flag =
    Flag::value(&["--delay-ms"], "N", "Delay of the links between agents while the clients spin; 0: none.").or("10");

pub const OVERLAP: Command = Command {
    name: "reproduce overlap",
    purpose: "measure how much of a startup exchange hides behind other work",
    intro: "
Every round has the blocking exchange; work alone, as long as that exchange has taken; the start of the same exchange,
the same work, the wait. Work is a sleep, or a fixed amount of CPU time of as many ranks as the machine has cores. A
round of least-sleep or least-spin searches for the least work that hides 99 % of the exchange.
",
    sections: &[
        Section { title: "Jobs", flags: &[RANKS_HERE, PPN, ROUNDS, WIREUP, WIREUP_ARG, LIBRARY, LIMIT] },
        Section { title: "Parts", flags: &[PARTS, DELAY_MS] },
        Section { title: "Exchanges", flags: &[SCHEME, VALUE_BYTES, KEY_BYTES] },
        RESULTS,
    ],
    ..NO_WORDS
};

/// The operations that may overlap with work, each with its blocking form.
const PAIRS: [(&str, &str); 2] = [("ifence", "fence"), ("iallgather", "allgather")];
/// Number of rounds that determine the length of the work (chosen).
const TRIALS: u32 = 3;
/// The part of an exchange that counts as all of it (S1 figure 12: perfect overlap); and of the search for the least
/// work that hides it: its rounds, the trials of each length of work, its precision and its limit, both as parts of the
/// exchange, and the time limit of its job in seconds (all chosen).
const HIDDEN: f64 = 0.99;
const LEAST_ROUNDS: u32 = 3;
const LEAST_TRIALS: u32 = 9;
const LEAST_PRECISION: f64 = 1.0 / 32.0;
const LEAST_MAX: f64 = 16.0;
const LEAST_LIMIT_S: u64 = 7200;

pub fn overlap(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let choice = Choice::read(line, RANKS_HERE)?;
    let delay = Duration::from_millis(line.one(DELAY_MS, Value::number)?.into());
    for part in parts(line, PARTS)? {
        let measure = if part.starts_with("least") { least } else { hide };
        if part.ends_with("sleep") {
            for &layout in &choice.layouts {
                measure(bench, &choice, part, Launch::new(bench, layout)?);
            }
            continue;
        }
        // Nodes with one spinning rank each: few enough that the ranks fit on the cores together with their agents, or,
        // if the links are slow, without the agents.
        let cores = bench.machine.cpus as u32;
        let node_count = if delay.is_zero() { (cores / 2).max(2) } else { cores.max(2) };
        let layout = Layout { node_count, ppn: 1 };
        measure(bench, &choice, part, Launch::on(bench, layout, slow_nodes(bench, layout, delay)?)?);
    }
    Ok(())
}

/// Work of a rank: part of the name of the measurement says which.
fn work(part: &str, time: Duration) -> Work {
    if part.ends_with("sleep") { Work::Sleep(time) } else { Work::Spin(time) }
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

/// The non-blocking operations that the user has chosen, each with its blocking form.
fn pairs(choice: &Choice) -> impl Iterator<Item = (&'static str, &'static str)> {
    PAIRS.into_iter().filter(move |(later, _)| choice.schemes.iter().any(|scheme| scheme.name == *later))
}

/// Searches for the least work that hides each non-blocking operation (figure 12), anew in each round.
fn least(bench: &Bench, choice: &Choice, part: &str, mut launch: Launch) {
    let case = choice.case(part, launch.layout);
    launch.limit = bench.limit_or(LEAST_LIMIT_S);
    let rounds = bench.rounds.unwrap_or(LEAST_ROUNDS);
    let turns: Vec<_> = pairs(choice).map(|pair| Turn::new(pair.0, &case, rounds, pair)).collect();
    bench.attempt(&turns, || {
        with_job(bench, &launch, |job| {
            bench.turns(&turns, |(later, blocking), _| {
                let [later, blocking] = [later, blocking].map(|name| Step::exchange(named(name), choice.lengths));
                // The median over trials of what the last step takes longer than the others, for the median rank.
                let mut took = |steps: &[Step]| -> Result<f64, Failure> {
                    let mut trial = || {
                        let times = steps.iter().map(|step| Ok(value_of(&job.step(step)?, "rank").unwrap_or(0.0)));
                        let times = times.collect::<Result<Vec<f64>, Failure>>()?;
                        Ok(times.into_iter().reduce(|before, time| time - before).unwrap_or(0.0))
                    };
                    let all = (0..LEAST_TRIALS).map(|_| trial()).collect::<Result<Vec<f64>, Failure>>()?;
                    Ok(median(all).unwrap_or(0.0))
                };
                let blocking_s = took(&[blocking])?;
                let least_s = least_that(blocking_s, |work_s| {
                    let work = work(part, Duration::from_secs_f64(work_s));
                    let alone = Step::work_alone(work, choice.lengths);
                    Ok(took(&[alone, later.with_work(work)])? <= (1.0 - HIDDEN) * blocking_s)
                })?;
                Ok(vec![seconds("least-work", least_s), seconds("blocking", blocking_s)])
            });
            Ok(())
        })
    });
}

/// The least work that is enough to hide an exchange, found by bisection, up to `LEAST_PRECISION` of the exchange.
fn least_that(exchange_s: f64, mut is_enough: impl FnMut(f64) -> Result<bool, Failure>) -> Result<f64, Failure> {
    let (mut less, mut enough) = (0.0, exchange_s);
    while !is_enough(enough)? {
        (less, enough) = (enough, 2.0 * enough);
        if enough > LEAST_MAX * exchange_s {
            return Err(wrong(format!("work {less} s does not hide an exchange of {exchange_s} s")));
        }
    }
    while enough - less > LEAST_PRECISION * exchange_s {
        let middle = (less + enough) / 2.0;
        *(if is_enough(middle)? { &mut enough } else { &mut less }) = middle;
    }
    Ok(enough)
}

fn hide(bench: &Bench, choice: &Choice, kind: &str, launch: Launch) {
    let case = choice.case(kind, launch.layout);
    let rounds = bench.rounds.unwrap_or_else(|| default_rounds(launch.layout.job_size()));
    for (later, blocking) in pairs(choice) {
        let names = [blocking.to_owned(), format!("{kind} for {later}"), format!("{later}+{kind}")];
        let turn = |(at, name): (usize, &String)| Turn::new(name, &case, rounds, at);
        let turns: Vec<Turn<usize>> = names.iter().enumerate().map(turn).collect();
        bench.attempt(&turns, || {
            with_job(bench, &launch, |job| {
                let steps = steps(choice, job, kind, named(later), named(blocking))?;
                bench.turns(&turns, |at, _| job.step(&steps[*at]));
                for round in 0..rounds.into() {
                    let times = names.each_ref().map(|name| value_of(&bench.measured(&case, name, round), "rank"));
                    if let [Some(blocking_s), Some(work_s), Some(both_s)] = times {
                        let overlap = count("overlap", 1.0 - (both_s - work_s) / blocking_s);
                        bench.add(&case, later, round, Ok(vec![overlap]));
                    }
                }
                Ok(())
            })
        });
    }
}

/// The steps of a comparison: the blocking exchange, the work alone, and both at the same time. The blocking exchange
/// is measured first, so that the work takes as long.
fn steps(choice: &Choice, job: &mut Job, kind: &str, later: Scheme, blocking: Scheme) -> Result<[Step; 3], Failure> {
    let blocking = Step::exchange(blocking, choice.lengths);
    let mut longest: f64 = 0.0;
    for _ in 0..TRIALS {
        longest = longest.max(value_of(&job.step(&blocking)?, "whole").unwrap_or(0.0));
    }
    let work = work(kind, Duration::from_secs_f64(longest));
    Ok([blocking, Step::work_alone(work, choice.lengths), Step::exchange(later, choice.lengths).with_work(work)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_work_is_found_on_either_side_of_the_exchange() {
        for least in [0.1, 0.9, 1.0, 2.6] {
            let found = least_that(2.0, |work_s| Ok(work_s >= 2.0 * least)).unwrap() / 2.0;
            assert!((least..=least + LEAST_PRECISION).contains(&found), "{least}: {found}");
        }
        assert!(least_that(2.0, |_| Ok(false)).is_err());
    }
}
