//! Faults at random moments, not on hosts with a remote shell but on virtual nodes, in sessions of virtual nodes and in
//! a Slurm allocation; with PMI-1, PMI-2 and PMIx. Processes are killed, one or all at once, or stopped; descriptors,
//! shared memory or the disk run out.
//!
//! `WIREUP_FAULT_TRIALS` and `WIREUP_FAULT_SEED` have the same meaning as for the trials on hosts.

use super::{Dice, number, seed};
use rustix::process::Signal;
use std::thread;
use std::time::{Duration, Instant};
use wireup_e2e::faults::{kill, until};
use wireup_e2e::machines::{self, Machines};
use wireup_e2e::peers::program;
use wireup_e2e::run_processes::Process;
use wireup_e2e::sessions::Session;
use wireup_e2e::{Run, Running, wireup};
use xtask::programs::Flavour;

const TRIALS: u64 = 16;
/// Longest time until a fault: longer than any job of these trials takes without a fault.
const LONGEST: Duration = Duration::from_millis(700);
/// Time limit for the end of a session's processes; those that exist for longer were left behind.
const CLEAN: Duration = Duration::from_secs(20);
const RANKS: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    VirtualNodes,
    Session,
    Slurm,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    KillOne,
    /// All of wireup's own processes are killed.
    KillAll,
    /// A process is stopped; then the user presses Ctrl-C twice, and the process is continued or killed.
    Stop,
    FewDescriptors,
    FullMemory,
    FullDisk,
}

const PLACES: [Place; 5] = [Place::VirtualNodes, Place::VirtualNodes, Place::Session, Place::Session, Place::Slurm];
const FAULTS: [Fault; 9] = [
    Fault::KillOne,
    Fault::KillOne,
    Fault::KillOne,
    Fault::KillAll,
    Fault::Stop,
    Fault::Stop,
    Fault::FewDescriptors,
    Fault::FullMemory,
    Fault::FullDisk,
];

/// What the ranks of a trial do, with the flags of the job.
struct Work {
    flags: &'static str,
    words: Vec<String>,
}

/// Number of the first elements of [`works`] that need neither PMIx nor a network of their own.
const OF_ANY_PLACE: usize = 4;

fn works() -> Vec<Work> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let own = wireup().display().to_string();
    let mut all = vec![
        Work { flags: "", words: words(&["true"]) },
        Work { flags: "", words: words(&[&own, "pmi", "exchange", "--rounds", "20"]) },
        Work { flags: "--pmi both", words: words(&["sh", "-c", "sleep 50 & setsid sleep 50 & sleep 0.5"]) },
        Work { flags: "--label", words: words(&["sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x; echo"]) },
    ];
    for (flavour, flags) in [(Flavour::OpenMpi4, "--pmi pmix"), (Flavour::Mpich5, "")] {
        all.extend(program(flavour, "initfin").map(|path| Work { flags, words: vec![path.display().to_string()] }));
    }
    all
}

#[test]
fn faults_in_every_place_end_the_job_cleanly() {
    let (trials, seed) = (number("WIREUP_FAULT_TRIALS").unwrap_or(TRIALS), seed("WIREUP_FAULT_SEED"));
    println!("again with WIREUP_FAULT_SEED={seed} WIREUP_FAULT_TRIALS={trials}");
    let works = works();
    for trial in 0..trials {
        let mut dice = Dice::of(seed, trial);
        let (place, fault) = (*dice.one_of(&PLACES), *dice.one_of(&FAULTS));
        // In an allocation, Open MPI would try interfaces that lead nowhere. After `KillAll`, nobody removes the
        // directories of PMIx servers until the next job with PMIx.
        let fit = if place == Place::Slurm || fault == Fault::KillAll { &works[..OF_ANY_PLACE] } else { &works[..] };
        let work = dice.one_of(fit);
        let work = &Work {
            flags: if fault == Fault::KillAll { "--pmi simple" } else { work.flags },
            words: work.words.clone(),
        };
        let begun = Instant::now();
        print!("{trial:>4} {place:?} {fault:?} {} {:?}: ", work.flags, work.words);
        let told = match place {
            Place::VirtualNodes => on_virtual_nodes(fault, work, &mut dice),
            Place::Session => in_session(fault, work, &mut dice),
            Place::Slurm => match machines::with_slurm() {
                Some(machines) => in_slurm(&machines, fault, work, &mut dice),
                None => continue,
            },
        };
        println!("{told} [{:.1} s]", begun.elapsed().as_secs_f64());
    }
}

fn on_virtual_nodes(fault: Fault, work: &Work, dice: &mut Dice) -> String {
    let line =
        format!("run -n {RANKS} --virtual-nodes 3 --kill-grace 1 --node-timeout 3 --start-timeout 8 {}", work.flags);
    let mut running = with_too_little(fault, &line, dice).args(&work.words).start();
    let hit = strike(fault, &mut running, Running::processes, dice);
    judge(fault, &hit, running)
}

fn in_session(fault: Fault, work: &Work, dice: &mut Dice) -> String {
    let session = Session::nowhere();
    let up = session
        .leaving(with_too_little(fault, "up --virtual-nodes 3 --node-timeout 3 --start-timeout 8", dice))
        .finish();
    let mut told = format!("up: code {} {:?}", up.code(), up.err());
    if up.code() == 0 {
        let run = Run::job(&format!("-n {RANKS} --kill-grace 1 {}", work.flags)).args(&work.words);
        // Processes that outlive the command are checked at the session's end.
        let mut running = session.leaving(run).start();
        let hit = strike(fault, &mut running, |_| session.processes(), dice);
        told = judge(fault, &hit, running);
    }
    // If its root was killed, the session has ended.
    let _ = session.leaving(Run::wireup(["down", "--kill"])).finish();
    let gone = until(CLEAN, || session.processes().is_empty());
    assert!(gone.is_some(), "{told}: left behind: {:?}", session.processes());
    assert!(up.code() == 0 || !up.err().is_empty(), "no reason: {told}");
    told
}

fn in_slurm(machines: &Machines, fault: Fault, work: &Work, dice: &mut Dice) -> String {
    let line = format!("-n {RANKS} --kill-grace 1 --node-timeout 3 --start-timeout 8 {}", work.flags);
    let offer = if work.flags.contains("--pmi") { "" } else { "--pmi simple" };
    let mut running = machines.allocated("-N 3 -n 6", &format!("{offer} {line}")).args(&work.words).start();
    let fault = match fault {
        Fault::KillOne | Fault::Stop => fault,
        // Other faults happen on the nodes of the allocation, where they have the same effect as on virtual nodes.
        _ => Fault::KillOne,
    };
    let of_nodes = || {
        let all = machines.all_processes().into_iter().flatten();
        all.filter_map(|process| Some((rustix::process::Pid::from_raw(process.pid.cast_signed())?, process.command)))
            .map(|(pid, command)| Process { pid, parent: 0, state: ' ', name: String::new(), command })
            .collect()
    };
    let hit = strike(fault, &mut running, |_| of_nodes(), dice);
    judge(fault, &hit, running)
}

/// The command `wireup LINE`, to which arguments can be added, in an environment where some resource has run out.
fn with_too_little(fault: Fault, line: &str, dice: &mut Dice) -> Run {
    let size = *dice.one_of(&["16k", "64k", "1m"]);
    let small = |place| {
        format!("exec unshare -m sh -c 'mount -t tmpfs -o size={size} none {place} && exec \"$WIREUP\" \"$@\"' sh")
    };
    let script = match fault {
        Fault::FewDescriptors => format!("ulimit -n {}; exec $WIREUP {line} \"$@\"", 6 + dice.below(60)),
        Fault::FullMemory => format!("{} {line} \"$@\"", small("/dev/shm")),
        Fault::FullDisk if line.starts_with("run") => format!("{} {line} --output-dir /mnt/out \"$@\"", small("/mnt")),
        Fault::FullDisk | Fault::KillOne | Fault::KillAll | Fault::Stop => format!("exec $WIREUP {line} \"$@\""),
    };
    Run::shell(&script).arg("sh")
}

/// Injects the fault at a random moment; returns a description of the process that it affects, if any.
fn strike(
    fault: Fault,
    running: &mut Running,
    processes: impl Fn(&Running) -> Vec<Process>,
    dice: &mut Dice,
) -> Option<String> {
    thread::sleep(dice.time(LONGEST));
    let mut all = processes(running);
    let raw = |process: &Process| process.pid.as_raw_nonzero().get().cast_unsigned();
    match fault {
        Fault::KillOne => {
            let victim = (!all.is_empty()).then(|| all.swap_remove(dice.below(all.len() as u64) as usize))?;
            kill(raw(&victim), Signal::KILL).then(|| format!("{victim:?}"))
        }
        Fault::KillAll => {
            all.retain(|process| process.name.starts_with("wireup"));
            let hit = all.iter().filter(|process| kill(raw(process), Signal::KILL)).count();
            (hit > 0).then(|| format!("{hit} processes"))
        }
        Fault::Stop => {
            let victim = (!all.is_empty()).then(|| all.swap_remove(dice.below(all.len() as u64) as usize))?;
            let is_hit = kill(raw(&victim), Signal::STOP);
            for signal in [Signal::INT, Signal::TERM] {
                thread::sleep(Duration::from_millis(200));
                if !running.has_ended() {
                    kill(raw_of(running), signal);
                }
            }
            thread::sleep(Duration::from_millis(300));
            kill(raw(&victim), *dice.one_of(&[Signal::CONT, Signal::KILL]));
            is_hit.then(|| format!("{victim:?}"))
        }
        Fault::FewDescriptors | Fault::FullMemory | Fault::FullDisk => Some("from the beginning".into()),
    }
}

fn raw_of(running: &Running) -> u32 {
    running.pid().as_raw_nonzero().get().cast_unsigned()
}

/// Waits for the end of the command; the harness checks that it ends and what it leaves. A command that has failed must
/// have printed why.
fn judge(fault: Fault, hit: &Option<String>, running: Running) -> String {
    let launcher = raw_of(&running);
    print!("hit {hit:?}; ");
    let outcome = running.finish();
    let told = format!("code {} {:?}", outcome.code(), outcome.err());
    let is_killed = outcome.code() == 137;
    let is_own_end = fault == Fault::KillAll || hit.as_ref().is_some_and(|hit| hit.contains(&launcher.to_string()));
    assert!(hit.is_some() || outcome.code() == 0, "without a fault: {told}");
    assert!(outcome.code() == 0 || is_killed && is_own_end || !outcome.err().is_empty(), "no reason: {told}");
    told
}
