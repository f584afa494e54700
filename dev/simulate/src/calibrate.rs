//! `wireup simulate calibrate`: a machine file of this machine, whose nodes are all virtual.
//!
//! Runs the real wireup at small sizes: `/bin/true`, and `wireup pmi exchange`, which times its fences and gets. Then
//! simulates the same jobs and scales the costs of a machine file, group by group, until the simulated times of every
//! second job are as close as possible to the measured ones. The other jobs show how well these costs predict times
//! that were not fitted. The median time of each job is used, as `wireup simulate compare` does. What memory costs that
//! is touched for the first time is measured alone.

use crate::machine::Machine;
use crate::plan::Start;
use crate::problem::Problem;
use crate::timed::{Case, Timed, as_this_machine, median};
use std::path::Path;
use std::time::{Duration, Instant};
use wireup_node::progress::Progress;
use wireup_sim::costs::Shared;

/// The first factor by which the fit scales a group of costs, and the factor below which the fit ends.
const STEPS: [f64; 2] = [2.0, 1.02];
/// No round of measurements begins later than this after the first one.
const MEASURING: Duration = Duration::from_secs(100);
/// The fit ends after this time with the best costs so far.
const FITTING: Duration = Duration::from_secs(60);

/// A case and the median of its measured times (s).
#[derive(Clone, Copy, PartialEq, Debug)]
struct Measured {
    case: Case,
    seconds: f64,
}

/// Costs that are scaled by one factor, because the measured jobs cannot separate them; `by` names the jobs that
/// determine the factor.
struct Group {
    keys: &'static [&'static str],
    by: &'static str,
}

/// Memory that is touched to measure what the first touch costs (bytes). Chosen: more than this process or the kernel
/// keeps at hand, so that it is as new as that of a job's processes.
const TOUCHED_BYTES: usize = 256 << 20;
const PAGE_BYTES: usize = 4 << 10;

/// Time to touch a KiB of memory for the first time (ns).
fn touch_kib_ns() -> u64 {
    let mut memory = vec![0_u8; TOUCHED_BYTES];
    let begin = Instant::now();
    memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
    begin.elapsed().as_nanos() as u64 / (TOUCHED_BYTES >> 10) as u64
}

/// From this number of nodes on, an agent that gets its turn no longer finds its memory in the processor's caches.
const MANY_NODES: u32 = 16;

/// The groups that are fitted first, to all jobs but the exchanges of [`MANY_NODES`] nodes and more.
const GROUPS: [Group; 7] = [
    Group { keys: &["launcher_ns"], by: "jobs of /bin/true" },
    Group {
        keys: &["costs.shell_ns", "costs.agent_ns", "costs.handshake_ns"],
        by: "jobs of /bin/true with more nodes",
    },
    Group { keys: &["costs.fork_ns", "costs.exec_ns"], by: "jobs of /bin/true with more ranks" },
    Group { keys: &["costs.request_ns"], by: "gets" },
    Group { keys: &["costs.wake_ns"], by: "fences" },
    Group { keys: &["costs.input_ns", "costs.frame_ns"], by: "gets, and fences of 32 bytes" },
    Group { keys: &["costs.kib_ns"], by: "fences of 900 bytes" },
];
/// The group that is fitted afterwards, to the exchanges of [`MANY_NODES`] nodes and more.
const COLD: [Group; 1] = [Group { keys: &["shared.cold_ns"], by: "fences of many nodes" }];

/// All cases; those of one kind are in the order of their sizes. Every second case is used for the fit.
fn cases() -> Vec<Case> {
    let sizes = |timed: Timed, sizes: &[(u32, u32)]| -> Vec<Case> {
        sizes.iter().map(|&(nodes, ppn)| Case { timed, nodes, ppn }).collect()
    };
    let exchanges = [(1, 8), (1, 16), (2, 8), (1, 32), (4, 8), (8, 8)];
    let fences = [(1, 8), (1, 16), (2, 8), (1, 32), (4, 8), (8, 8), (16, 4), (4, 16), (64, 4), (16, 16)];
    [
        sizes(Timed::Job, &[(1, 1), (1, 8), (2, 4), (1, 32), (4, 4), (8, 2), (1, 64), (16, 2), (8, 8), (16, 8)]),
        sizes(Timed::Fence(32), &fences),
        sizes(Timed::Gets(32), &exchanges),
        sizes(Timed::Fence(900), &exchanges),
    ]
    .concat()
}

fn is_fitted(index: usize) -> bool {
    index.is_multiple_of(2)
}

impl Group {
    fn scaled(&self, machine: &Machine, factor: f64) -> Machine {
        self.keys.iter().fold(machine.clone(), |machine, key| machine.scaled(key, factor))
    }
}

/// The sum of the squares of ln(simulated / measured).
fn misfit(machine: &Machine, measured: &[Measured]) -> f64 {
    measured.iter().map(|one| (one.case.simulate(Start::Local, machine) / one.seconds).ln().powi(2)).sum()
}

/// Scales the costs of `machine` to fit the measured times: one group up or down by a factor, or two groups in opposite
/// directions; the factor becomes smaller when no change improves the fit any more. `goes_on` receives the misfit so
/// far before each try, and ends the fit by returning `false`.
fn fit(machine: Machine, measured: &[Measured], mut goes_on: impl FnMut(f64) -> bool) -> Machine {
    let (many, few): (Vec<Measured>, Vec<Measured>) =
        measured.iter().partition(|one| one.case.nodes >= MANY_NODES && one.case.timed != Timed::Job);
    let machine = fit_groups(&GROUPS, machine, &few, &mut goes_on);
    fit_groups(&COLD, machine, &many, &mut |_| true)
}

fn fit_groups(
    groups: &[Group],
    machine: Machine,
    measured: &[Measured],
    goes_on: &mut impl FnMut(f64) -> bool,
) -> Machine {
    // Each try scales the machine anew: costs of a group that were scaled down to nothing keep their ratio.
    let scaled = |factors: &[f64]| {
        let both = groups.iter().zip(factors);
        both.fold(machine.clone(), |machine, (group, factor)| group.scaled(&machine, *factor))
    };
    let mut best = (misfit(&machine, measured), vec![1.0; groups.len()]);
    let mut step = STEPS[0];
    while step >= STEPS[1] {
        loop {
            let improved = moves(groups.len(), step).take_while(|_| goes_on(best.0)).find_map(|changes| {
                let mut factors = best.1.clone();
                changes.into_iter().for_each(|(group, factor)| factors[group] *= factor);
                let misfit = misfit(&scaled(&factors), measured);
                (misfit < best.0).then_some((misfit, factors))
            });
            match improved {
                Some(better) => best = better,
                None => break,
            }
        }
        step = step.sqrt();
    }
    scaled(&best.1)
}

/// The changes that the fit tries: one or two groups, by their index, each with a factor. Changes of one group come
/// first.
fn moves(groups: usize, step: f64) -> impl Iterator<Item = Vec<(usize, f64)>> {
    let groups = 0..groups;
    let single = groups.clone().flat_map(move |group| [step, 1.0 / step].map(|factor| vec![(group, factor)]));
    let pairs = groups.clone().flat_map(move |up| groups.clone().map(move |down| (up, down)));
    let pairs = pairs.filter(|(up, down)| up != down).map(move |(up, down)| vec![(up, step), (down, 1.0 / step)]);
    single.chain(pairs)
}

/// Measures this machine with `wireup`, prints the errors, and returns the text of a machine file.
///
/// # Errors
/// A run of wireup fails.
pub fn calibrate(wireup: &Path, rounds: u32, base: Machine) -> Result<String, Problem> {
    let cases = cases();
    let (mut times, mut touches) = (vec![Vec::new(); cases.len()], Vec::new());
    let begin = Instant::now();
    let mut line = Progress::new();
    let mut done = 0;
    while done < rounds && (done == 0 || begin.elapsed() < MEASURING) {
        done += 1;
        touches.push(touch_kib_ns());
        for (case, times) in cases.iter().zip(&mut times) {
            line.show(|| format!("round {done} of at most {rounds}, {} s", begin.elapsed().as_secs()));
            times.push(case.measure(wireup, None)?);
        }
    }
    let both = cases.into_iter().zip(&mut times);
    let measured: Vec<Measured> = both.map(|(case, times)| Measured { case, seconds: median(times) }).collect();
    let half = |fitted: bool| measured.iter().enumerate().filter(move |(at, _)| is_fitted(*at) == fitted);
    let fitted: Vec<Measured> = half(true).map(|(_, one)| *one).collect();
    let begin = Instant::now();
    touches.sort_unstable();
    let base = Machine { shared: Shared { touch_kib_ns: touches[touches.len() / 2], ..base.shared }, ..base };
    let machine = fit(as_this_machine(base), &fitted, |misfit| {
        line.show(|| {
            let error = ((misfit / fitted.len() as f64).sqrt().exp() - 1.0) * 100.0;
            format!("fit, {} s: a typical error of {error:.0} %", begin.elapsed().as_secs())
        });
        begin.elapsed() < FITTING
    });
    line.end();
    eprintln!("{:<28} {:>10} {:>10} {:>8}", "case", "measured", "simulated", "error");
    let mut worst: f64 = 0.0;
    for (is_fitted, one) in [true, false].into_iter().flat_map(|is| half(is).map(move |(_, one)| (is, one))) {
        let simulated = one.case.simulate(Start::Local, &machine);
        let error = (simulated / one.seconds - 1.0) * 100.0;
        if !is_fitted {
            worst = worst.max(error.abs());
        }
        let (name, note) = (one.case.name(), if is_fitted { "fitted" } else { "predicted" });
        let [measured_ms, simulated_ms] = [one.seconds, simulated].map(|seconds| seconds * 1e3);
        eprintln!("{name:<28} {measured_ms:>7.2} ms {simulated_ms:>7.2} ms {error:>6.1} % {note}");
    }
    eprintln!("largest error of a prediction: {worst:.1} %");
    Ok(text(&machine, done, worst))
}

fn text(machine: &Machine, rounds: u32, worst: f64) -> String {
    let comment =
        |constant: &str| match (constant, GROUPS.iter().chain(&COLD).find(|group| group.keys.contains(&constant))) {
            ("shared.hosts", _) => "all nodes are this machine".to_owned(),
            ("costs.cores", _) => "processors of this machine".to_owned(),
            ("shared.touch_kib_ns", _) => format!("measured: {} MiB of new memory", TOUCHED_BYTES >> 20),
            (_, Some(group)) => format!("fitted to {}", group.by),
            (_, None) => "not measured: kept from the machine that the fit began with".to_owned(),
        };
    let load = procfs::Current::current().map_or(0.0, |load: procfs::LoadAverage| load.one);
    let mut text = format!(
        "# This machine, by wireup simulate calibrate: the medians of {rounds} rounds of real runs on\n# virtual \
         nodes, at a load of {load:.1}. Costs are fitted to half of the cases; the largest error of the others was \
         {worst:.0} %.\n# Costs that are fitted to the same jobs are scaled by one factor.\n\n"
    );
    let table = machine.table();
    let (sections, keys): (Vec<_>, Vec<_>) = table.iter().partition(|(_, value)| value.is_table());
    for (key, value) in keys {
        text += &format!("{key} = {} # {}\n", number(value), comment(key));
    }
    for (name, section) in sections {
        text += &format!("\n[{name}]\n");
        for (key, value) in section.as_table().into_iter().flatten() {
            text += &format!("{key} = {} # {}\n", number(value), comment(&format!("{name}.{key}")));
        }
    }
    text
}

/// A number, or a range `[least, most]` of times, as it is written in machine files.
fn number(value: &toml::Value) -> String {
    match value.as_array() {
        Some(span) => format!("{:?}", span.iter().filter_map(toml::Value::as_integer).collect::<Vec<_>>()),
        None => format!("{}", value.as_integer().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses the times of a machine with other costs: the fit finds costs that also predict times that were not fitted.
    #[test]
    fn the_fit_predicts_the_other_half() {
        let machine = Machine { shared: Shared::default(), ..Machine::load("here").expect("it is built in") };
        let factors = GROUPS.iter().zip([3.0, 2.0, 4.0, 2.0, 3.0, 3.0, 5.0]);
        let other = factors.fold(machine.clone(), |other, (group, factor)| group.scaled(&other, factor));
        let is_small = |case: &Case| case.nodes * case.ppn <= if case.timed == Timed::Job { 64 } else { 16 };
        let small = cases().into_iter().enumerate().filter(|(_, case)| is_small(case));
        let measured: Vec<(usize, Measured)> =
            small.map(|(at, case)| (at, Measured { case, seconds: case.simulate(Start::Local, &other) })).collect();
        let half = |fitted| measured.iter().filter(move |(at, _)| is_fitted(*at) == fitted);
        let fitted: Vec<Measured> = half(true).map(|(_, one)| *one).collect();
        let predicting = fit_groups(&GROUPS, machine, &fitted, &mut |_| true);
        for (_, one) in half(false) {
            let error = one.case.simulate(Start::Local, &predicting) / one.seconds - 1.0;
            assert!(error.abs() < 0.2, "{}: {error}", one.case.name());
        }
    }

    #[test]
    fn the_text_of_a_calibration_is_a_machine_file() {
        let machine = Machine::load("here").expect("it is built in");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text(&machine, 3, 12.0)).expect("the file is written");
        assert_eq!(Machine::load(&file.path().to_string_lossy()).expect("it is valid"), machine);
    }
}
