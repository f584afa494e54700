//! Faults at random moments in other places than hosts with a remote shell: virtual nodes, sessions of them, a Slurm
//! allocation; with PMI-1, PMI-2 and PMIx. Processes are killed, one or all at once, or stopped; descriptors, shared
//! memory or the disk run out.
//!
//! `WIREUP_FAULT_TRIALS` and `WIREUP_FAULT_SEED` as for the trials on hosts.

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
/// Longer than any job of these trials takes without a fault.
const LONGEST: Duration = Duration::from_millis(700);
/// What is left of a session after this time was left behind.
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
    /// All of wireup's own processes.
    KillAll,
    /// A process is stopped; then the user presses Ctrl-C twice, and the process goes on or is killed.
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

/// What the ranks do, and what they are offered.
struct Work {
    flags: &'static str,
    words: Vec<String>,
}

/// So many of the first of [`works`] need neither PMIx nor a network of their own.
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
        // Between hosts Open MPI tries interfaces that lead nowhere. When all have been killed, nobody removes the
        // directories of PMIx servers: the next job with PMIx does.
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
        // What outlives the command belongs to the session.
        let mut running = session.leaving(run).start();
        let hit = strike(fault, &mut running, |_| session.processes(), dice);
        told = judge(fault, &hit, running);
    }
    // If its root is gone, so is the session.
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
        // The rest happens on the nodes as on virtual ones.
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

/// `wireup LINE`, which takes further arguments, where something has run out.
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

/// Does what the fault is, at a random moment; what was hit.
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

/// The command must end, which the harness checks, as it checks what is left; and say why unless it has succeeded.
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
