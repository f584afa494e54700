//! Fault injection across machines, at random moments: whatever is killed, falls silent or is full, the job ends within
//! a time bound, names the fault, and leaves nothing behind.
//!
//! `WIREUP_FAULT_TRIALS` and `WIREUP_FAULT_SEED` set the number of trials and the seed; every trial prints its own
//! seed. A silent node is noticed after `--node-timeout`, a host that does not start after `--start-timeout`;
//! everything else at once.

mod fixed;
mod places;
mod trial;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trial::{TrialReport, trial, typical_lengths};
use wireup_e2e::faults::FaultSite;

const TRIALS: u64 = 72;
/// Number of testbeds on which trials run in parallel.
const SITES: usize = 5;
pub const NODES: u16 = 6;
/// A third of the time after which a silent node counts as lost: if the machine was suspended for longer, the failure
/// of a trial says nothing.
const STILL_MAX: Duration = Duration::from_secs(1);

#[test]
fn faults_at_random_moments_end_the_job_cleanly() {
    let (trials, seed) = (number("WIREUP_FAULT_TRIALS").unwrap_or(TRIALS), seed("WIREUP_FAULT_SEED"));
    println!("again with WIREUP_FAULT_SEED={seed} WIREUP_FAULT_TRIALS={trials}");
    let (next, all, stood) = (AtomicU64::new(0), Mutex::new(Vec::new()), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..SITES {
            let (next, all, stood) = (&next, &all, &stood);
            scope.spawn(move || at_one_site(seed, trials, next, all, stood));
        }
    });
    let stood = stood.into_inner();
    assert!(stood <= trials / 8, "this machine stood still in {stood} of {trials} trials, which says nothing");
    let all = all.into_inner().expect("no reporter panics");
    show_worst(&all);
    let bad: Vec<&TrialReport> = all.iter().filter(|report| !report.problems.is_empty()).collect();
    let shown: String = bad.iter().map(|report| format!("\n{report}")).collect();
    assert!(bad.is_empty(), "{} of {} trials, seed {seed}:{shown}", bad.len(), all.len());
}

/// `stood`: trials that failed while this machine was suspended.
fn at_one_site(seed: u64, trials: u64, next: &AtomicU64, all: &Mutex<Vec<TrialReport>>, stood: &AtomicU64) {
    let fresh = || FaultSite::start(NODES, &[FaultSite::share()]);
    let Some(mut site) = fresh() else { return };
    let lengths = typical_lengths(&site);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= trials {
            return;
        }
        let begun = Instant::now();
        let mut dice = Dice::of(seed, number);
        let ((report, intact), still) = watched(|| trial(&site, &lengths, number, &mut dice));
        println!("{report} [{:.1} s]", begun.elapsed().as_secs_f64());
        if still > STILL_MAX && !report.problems.is_empty() {
            println!("     not counted: this machine stood still for {:.1} s", still.as_secs_f64());
            stood.fetch_add(1, Ordering::Relaxed);
        } else {
            all.lock().expect("no reporter panics").push(report);
        }
        if !intact {
            site = fresh().expect("a testbed, as before");
        }
    }
}

/// Does `work`, and measures the longest time for which this process got no processor meanwhile, as if the machine had
/// been suspended.
fn watched<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let (working, is_over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let (mut longest, mut seen) = (Duration::ZERO, Instant::now());
            while is_over.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
                longest = longest.max(seen.elapsed());
                seen = Instant::now();
            }
            longest
        });
        let done = {
            let _working = working;
            work()
        };
        (done, watch.join().expect("it only sleeps"))
    })
}

/// Prints for each kind of fault: the number of trials, the longest time until the launcher ended, and until nothing
/// was left.
fn show_worst(all: &[TrialReport]) {
    let mut kinds: BTreeMap<String, (usize, Duration, Duration, Duration)> = BTreeMap::new();
    for report in all {
        let (count, end, clean, apart) = kinds.entry(report.kind()).or_default();
        *count += 1;
        *end = (*end).max(report.ended_after);
        *clean = (*clean).max(report.clean_after);
        *apart = (*apart).max(report.apart_after);
    }
    println!(
        "kind: trials; worst s from fault to end, from end to clean, from fault to clean on a node that was cut off"
    );
    for (kind, (count, end, clean, apart)) in kinds {
        let [end, clean, apart] = [end, clean, apart].map(|time| time.as_secs_f64());
        println!("{kind:<34} {count:>4}  {end:>6.2} {clean:>6.2} {apart:>6.2}");
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn seed(variable: &str) -> u64 {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64 % 1_000_000);
    number(variable).unwrap_or_else(clock)
}

/// Random numbers by splitmix64.
pub struct Dice(u64);

impl Dice {
    /// Random numbers from a seed that an environment variable gives; otherwise from a new seed, which is printed.
    pub fn printed(variable: &str) -> Dice {
        let seed = seed(variable);
        println!("again with {variable}={seed}");
        Dice(seed)
    }

    /// The random numbers of one trial.
    fn of(seed: u64, trial: u64) -> Dice {
        Dice(seed.wrapping_mul(1_000_003).wrapping_add(trial))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// A random time up to `longest`.
    pub fn time(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.below(longest.as_micros() as u64 + 1))
    }
}
