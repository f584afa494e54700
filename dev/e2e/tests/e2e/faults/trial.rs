//! One trial: starts a job, injects a fault at a random moment into a process that is found among those of hub and
//! nodes, checks how the job ends.

use super::{Dice, NODES};
use rustix::process::Signal;
use std::fmt::{self, Display};
use std::thread;
use std::time::{Duration, Instant};
use wireup_e2e::faults::{Ended, FaultSite, Started, is_agent, is_sshd, kill, parent_of, short_name, until};
use wireup_e2e::wireup;
use wireup_testbed::Process;

const RANKS: usize = 12;
const NODE_TIMEOUT: Duration = Duration::from_secs(3);
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time within which a job must end on request, on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(12);
/// If processes exist for longer than this after the end, they were left behind; the documented bound is 2 s on an idle
/// machine.
const CLEAN: Duration = Duration::from_secs(10);
/// Longest time for which a silent node goes unnoticed: that of an agent that waits for its bootstrap message.
const SILENT: Duration = Duration::from_secs(10);
/// Time that is added to the limits because the machine may be busy.
const SLACK: Duration = Duration::from_secs(5);
/// Duration of an interruption of the network that must not fail a job.
const BLINK: Duration = Duration::from_millis(1200);
const WRITTEN_BYTES: usize = 400_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    True,
    Exchange,
    Sleep,
    Write,
}

const WORKS: [Work; 4] = [Work::True, Work::Exchange, Work::Sleep, Work::Write];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Kill(Victim),
    /// An agent is stopped; then the user presses Ctrl-C twice.
    Stop,
    /// A node is cut off from the network until the job has ended.
    Cut,
    /// A node is cut off from the network for a moment.
    Blink,
    /// An agent dies while its node is cut off from the network, so that no other agent notices; then the network
    /// returns.
    HalfOpen,
    /// A node loses power: everything on it is gone.
    PowerOff,
}

/// Kinds of faults, from which trials choose; silent faults take seconds to be noticed, so they are in the list less
/// often.
const FAULTS: [Fault; 16] = [
    Fault::Kill(Victim::Launcher),
    Fault::Kill(Victim::Agent),
    Fault::Kill(Victim::Agent),
    Fault::Kill(Victim::Agent),
    Fault::Kill(Victim::Keeper),
    Fault::Kill(Victim::Keeper),
    Fault::Kill(Victim::Shell),
    Fault::Kill(Victim::Shell),
    Fault::Kill(Victim::Session),
    Fault::Kill(Victim::Rank),
    Fault::Kill(Victim::Rank),
    Fault::Stop,
    Fault::Cut,
    Fault::Blink,
    Fault::HalfOpen,
    Fault::PowerOff,
];

/// The fault of a trial and its result.
pub struct TrialReport {
    number: u64,
    shown: String,
    fault: Fault,
    moment: Duration,
    hit: String,
    code: Option<i32>,
    words: String,
    pub ended_after: Duration,
    pub clean_after: Duration,
    pub apart_after: Duration,
    pub problems: Vec<String>,
}

impl TrialReport {
    pub fn kind(&self) -> String {
        format!("{:?}", self.fault)
    }
}

impl Display for TrialReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [moment, ended, clean] =
            [self.moment, self.ended_after, self.clean_after].map(|time| time.as_secs_f64() * 1e3);
        write!(
            f,
            "{:>4} {:<26} at {moment:>6.0} ms, hit {}; code {:?} after {ended:.0} ms, clean after {clean:.0} ms: {} \
             <{}>",
            self.number,
            self.kind(),
            self.hit,
            self.code,
            self.words.trim().replace('\n', " | "),
            self.shown
        )?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n     PROBLEM: {problem}"))
    }
}

fn start_job(site: &FaultSite, work: Work, more: &str) -> Started {
    let program = wireup().display().to_string();
    let write = format!("head -c {} /dev/zero; echo", WRITTEN_BYTES - 1);
    let words: &[&str] = match work {
        Work::True => &["true"],
        Work::Exchange => &[&program, "pmi", "exchange", "--rounds", "20"],
        Work::Sleep => &["sh", "-c", "sleep 50 & setsid sleep 50 & sleep 0.6"],
        Work::Write => &["sh", "-c", &write],
    };
    let (hosts, node_s, start_s) = (site.testbed.hosts(), NODE_TIMEOUT.as_secs(), START_TIMEOUT.as_secs());
    let line =
        format!("--hosts {hosts} -n {RANKS} --node-timeout {node_s} --start-timeout {start_s} --kill-grace 1 {more}");
    Started::of(site.job(&line, words))
}

fn is_whole(work: Work, ended: &Ended) -> bool {
    match work {
        Work::True | Work::Sleep => true,
        Work::Exchange => ended.stdout.lines().count() == 1,
        Work::Write => ended.stdout_bytes == RANKS * WRITTEN_BYTES,
    }
}

/// Measures how long each kind of work takes without a fault.
pub fn typical_lengths(site: &FaultSite) -> Vec<(Work, Duration)> {
    let length = |work: Work| {
        let run = || {
            let job = start_job(site, work, "--fanout 2");
            let begun = job.begun;
            let ended = job.finish(site, AT_ONCE * 2).expect("an undisturbed job ends");
            assert!(ended.code == 0 && is_whole(work, &ended), "{work:?}: {ended:?}");
            ended.at - begun
        };
        run();
        (work, run())
    };
    WORKS.into_iter().map(length).collect()
}

/// Runs a trial; returns its report, and `false` if the site must not be used again.
pub fn trial(site: &FaultSite, lengths: &[(Work, Duration)], number: u64, dice: &mut Dice) -> (TrialReport, bool) {
    let (work, length) = *dice.one_of(lengths);
    let fault = *dice.one_of(&FAULTS);
    let fanout = *dice.one_of(&[1, 2, 2, 2, 6]);
    let links = *dice.one_of(&["", "", "--plain-links"]);
    let moment = dice.time(length);
    let node = dice.below(u64::from(NODES)) as u16;
    let scheme = *dice.one_of(&["auto", "tree", "ring", "log"]);
    let transport = *dice.one_of(&["auto", "auto", "tree"]);
    let pmi = *dice.one_of(&["simple", "simple", "both"]);
    let more = format!("--fanout {fanout} --exchange {scheme} --agent-transport {transport} --pmi {pmi} {links}");
    let job = start_job(site, work, &more);
    let mut report = TrialReport {
        number,
        shown: format!("{work:?} {more}"),
        fault,
        moment,
        hit: String::new(),
        code: None,
        words: String::new(),
        ended_after: Duration::ZERO,
        clean_after: Duration::ZERO,
        apart_after: Duration::ZERO,
        problems: Vec::new(),
    };
    thread::sleep(moment.saturating_sub(job.begun.elapsed()));
    let mut trial = Trial { site, work, fanout, node, dice, report: &mut report };
    trial.run(job);
    // After a silent fault, sshd on the host may still keep connections open. What a failed trial has left would be
    // found by all later trials.
    let is_intact = !trial.is_silent() && trial.report.problems.is_empty();
    (report, is_intact)
}

struct Trial<'a> {
    site: &'a FaultSite,
    work: Work,
    fanout: u16,
    node: u16,
    dice: &'a mut Dice,
    report: &'a mut TrialReport,
}

impl Trial<'_> {
    fn run(&mut self, job: Started) {
        match self.report.fault {
            Fault::Kill(victim) => self.kill(job, victim),
            Fault::Stop => self.stop(job),
            Fault::Cut => self.cut(job),
            Fault::Blink => self.blink(job),
            Fault::HalfOpen => self.half_open(job),
            Fault::PowerOff => self.power_off(job),
        }
    }

    /// Looks for a process of this kind again and again, until one is found or the job has ended.
    fn find(&mut self, job: &mut Started, victim: Victim) -> Option<Found> {
        loop {
            let found = find(victim, self.site, job, self.dice);
            if found.is_some() || job.has_ended() {
                return found;
            }
        }
    }

    fn kill(&mut self, mut job: Started, victim: Victim) {
        let found = self.find(&mut job, victim).filter(|found| kill(found.pid, Signal::KILL));
        self.report.hit = found.as_ref().map_or("nobody".into(), |found| {
            format!("{} on {}: {:.60}", found.pid, found.node.map_or("hub".into(), |i| format!("n{i}")), found.command)
        });
        let Some(ended) = self.end(job, AT_ONCE) else { return };
        match (&found, victim) {
            (None, _) => self.expect_success(&ended),
            // Exit code 0 if the job has ended just before the fault.
            (Some(_), Victim::Launcher) => self.expect(ended.code == 137 || ended.code == 0, "launcher exit code"),
            (Some(found), _) => {
                let named = self.culprits(found);
                self.expect_success_or_names(&ended, &named);
            }
        }
        self.expect_clean(&self.all(), ended.at);
    }

    fn stop(&mut self, mut job: Started) {
        let Some(found) = self.find(&mut job, Victim::Agent).filter(|found| kill(found.pid, Signal::STOP)) else {
            return self.undisturbed(job);
        };
        self.report.hit = format!("{} on n{}", found.pid, found.node.unwrap_or_default());
        let launcher = job.pid();
        thread::sleep(Duration::from_millis(200));
        kill(launcher, Signal::INT);
        thread::sleep(Duration::from_millis(200));
        // The job may have ended although one of its agents was stopped.
        kill(launcher, Signal::TERM);
        let ended = self.end(job, AT_ONCE);
        let gone_on = *self.dice.one_of(&[Signal::CONT, Signal::KILL]);
        let at = Instant::now();
        kill(found.pid, gone_on);
        if ended.is_some() {
            self.expect_clean(&self.all(), at);
        }
    }

    fn cut(&mut self, job: Started) {
        let cut_at = self.silence();
        let ended = self.end(job, AT_ONCE + NODE_TIMEOUT.max(START_TIMEOUT));
        if let Some(ended) = &ended {
            self.expect_success_or_names(ended, &[self.node]);
            let others: Vec<u16> = self.all().into_iter().filter(|&i| i != self.node).collect();
            self.expect_clean(&others, ended.at);
        }
        self.expect_clean_apart(cut_at);
        self.site.testbed.heal(self.node).expect("reconnect the node");
        if ended.is_some() {
            self.expect_clean(&self.all(), Instant::now());
        }
    }

    fn blink(&mut self, job: Started) {
        self.silence();
        thread::sleep(self.dice.time(BLINK));
        self.site.testbed.heal(self.node).expect("reconnect the node");
        self.undisturbed(job);
    }

    fn half_open(&mut self, job: Started) {
        self.silence();
        let agents = self.site.left(&[self.node]).into_iter().filter(|(_, process)| is_agent(process));
        let agents = agents.filter(|(_, process)| kill(process.pid, Signal::KILL)).count();
        self.report.hit += &format!(", {agents} killed there");
        thread::sleep(self.dice.time(BLINK));
        self.site.testbed.heal(self.node).expect("reconnect the node");
        if let Some(ended) = self.end(job, AT_ONCE + NODE_TIMEOUT.max(START_TIMEOUT)) {
            self.expect_success_or_names(&ended, &[self.node]);
            self.expect_clean(&self.all(), ended.at);
        }
    }

    fn power_off(&mut self, job: Started) {
        self.report.hit = format!("n{}", self.node);
        self.site.testbed.power_off(self.node).expect("switch a node off");
        if let Some(ended) = self.end(job, AT_ONCE + NODE_TIMEOUT.max(START_TIMEOUT)) {
            self.expect_success_or_names(&ended, &[self.node]);
            let others: Vec<u16> = self.all().into_iter().filter(|&i| i != self.node).collect();
            self.expect_clean(&others, ended.at);
        }
    }

    fn silence(&mut self) -> Instant {
        self.report.hit = format!("n{}", self.node);
        self.site.testbed.cut(self.node).expect("cut a node off");
        Instant::now()
    }

    fn undisturbed(&mut self, job: Started) {
        if let Some(ended) = self.end(job, AT_ONCE + BLINK) {
            self.expect_success(&ended);
            self.expect_clean(&self.all(), ended.at);
        }
    }

    fn end(&mut self, job: Started, limit: Duration) -> Option<Ended> {
        let at = Instant::now();
        let ended = job.finish(self.site, limit);
        self.expect(ended.is_some(), "the launcher did not end in time");
        if let Some(ended) = &ended {
            self.report.ended_after = ended.at.saturating_duration_since(at);
            self.report.code = Some(ended.code);
            self.report.words.clone_from(&ended.stderr);
            self.expect(!ended.stderr.contains("panicked at"), "a process panicked");
            self.expect(ended.left_on_hub.is_empty(), &format!("left on the hub: {:?}", ended.left_on_hub));
            self.expect(ended.code != 0 || is_whole(self.work, ended), "the job succeeded without all of its output");
        }
        ended
    }

    fn all(&self) -> Vec<u16> {
        (0..NODES).collect()
    }

    /// The nodes of which the message must name one if this process dies.
    fn culprits(&self, found: &Found) -> Vec<u16> {
        let of_command = (0..NODES).filter(|i| found.command.split(' ').any(|word| word == format!("n{i}")));
        let own = found.node.into_iter();
        // Numbers of agents: the hub's agent is 0, that of node i is i + 1.
        let number = found.node.map_or(0, |i| i + 1);
        let below = (1..=self.fanout).map(|child| number * self.fanout + child - 1).filter(|&i| i < NODES);
        own.chain(of_command).chain(below.filter(|_| found.command.contains("agent") || found.node.is_none())).collect()
    }

    fn expect(&mut self, holds: bool, what: &str) {
        if !holds {
            self.report.problems.push(what.to_owned());
        }
    }

    fn expect_success(&mut self, ended: &Ended) {
        self.expect(ended.code == 0, "the job failed although it was not disturbed");
    }

    fn expect_success_or_names(&mut self, ended: &Ended, nodes: &[u16]) {
        let named = nodes.iter().any(|&node| names(&ended.stderr, node));
        self.expect(ended.code == 0 || named, &format!("none of {nodes:?} is named"));
    }

    /// Expects that soon no process or file of the job is left on the nodes `on`.
    fn expect_clean(&mut self, on: &[u16], since: Instant) {
        let limit = if self.is_silent() { SILENT + SLACK } else { CLEAN };
        let idle = until(limit, || self.left(on).is_empty());
        self.report.clean_after = self.report.clean_after.max(since.elapsed());
        if idle.is_none() {
            let left = self.left(on);
            self.report.problems.push(format!("left behind: {left:?}"));
            self.site.clear(on);
        }
        let files = self.site.files_left(on);
        self.expect(files.is_empty(), &format!("left behind: {files:?}"));
    }

    /// Processes of the job that are left on the nodes `on`, except sshd if it may keep the connection of a silent
    /// client.
    fn left(&self, on: &[u16]) -> Vec<(u16, Process)> {
        let mut left = self.site.left(on);
        if self.is_silent() {
            left.retain(|(_, process)| !is_sshd(process));
        }
        left
    }

    /// Whether agents below the faulty node can notice the fault only by a timeout.
    fn is_silent(&self) -> bool {
        matches!(self.report.fault, Fault::Cut | Fault::PowerOff)
    }

    /// Expects that no process of the job is left on the node that was cut off.
    fn expect_clean_apart(&mut self, since: Instant) {
        let node = [self.node];
        let idle = until(SILENT + SLACK, || self.left(&node).is_empty());
        self.report.apart_after = since.elapsed();
        self.expect(idle.is_some(), &format!("left on the node that was cut off: {:?}", self.left(&node)));
    }
}

/// The kind of process that a fault affects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Launcher,
    Agent,
    /// A keeper, whether of ranks or of remote shells.
    Keeper,
    /// The client of a remote shell (`ssh`), on the hub or on a node with children.
    Shell,
    /// The server process of a remote shell, if the server has one for each connection.
    Session,
    Rank,
}

/// The chosen process.
#[derive(Debug)]
struct Found {
    pid: u32,
    /// The node on which the process runs; `None` for the hub.
    node: Option<u16>,
    command: String,
}

/// A random process of the kind `victim`, if one exists now.
fn find(victim: Victim, site: &FaultSite, job: &Started, dice: &mut Dice) -> Option<Found> {
    if victim == Victim::Launcher {
        return Some(Found { pid: job.pid(), node: None, command: "launcher".into() });
    }
    let mut found: Vec<Found> = Vec::new();
    for (i, processes) in (0..).zip(site.testbed.all_processes()) {
        let on_node =
            processes.into_iter().filter(|process| is(victim, process.pid, &process.command, is_sshd(process)));
        found.extend(on_node.map(|process| Found { pid: process.pid, node: Some(i), command: process.command }));
    }
    if matches!(victim, Victim::Keeper | Victim::Shell) {
        let on_hub = job.on_hub(site).into_iter().map(|process| {
            let pid = process.pid.as_raw_nonzero().get().cast_unsigned();
            Found { pid, node: None, command: process.command }
        });
        found.extend(on_hub.filter(|found| is(victim, found.pid, &found.command, false)));
    }
    (!found.is_empty()).then(|| found.swap_remove(dice.below(found.len() as u64) as usize))
}

fn is(victim: Victim, pid: u32, command: &str, sshd: bool) -> bool {
    let name = short_name(pid);
    let keeper = name == "wireup-keeper";
    match victim {
        Victim::Launcher => false,
        Victim::Keeper => keeper,
        Victim::Agent => name == "wireup" && command.contains("wireup agent "),
        Victim::Shell => name == "ssh",
        Victim::Session => sshd,
        Victim::Rank => {
            let of_keeper = parent_of(pid).is_some_and(|parent| short_name(parent) == "wireup-keeper");
            of_keeper && !keeper && name != "ssh"
        }
    }
}

/// Whether a text names a node, alone or in a range.
fn names(text: &str, node: u16) -> bool {
    let plain = format!("n{node}");
    let words = || text.split(|c: char| !(c.is_ascii_alphanumeric() || "[]-,".contains(c)));
    let in_range = |list: &str| {
        list.split(',').any(|part| {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            matches!((low.parse::<u16>(), high.parse::<u16>()), (Ok(low), Ok(high)) if (low..=high).contains(&node))
        })
    };
    let ranges = |word: &str| word.split("n[").skip(1).filter_map(|rest| rest.split(']').next()).any(in_range);
    words().any(|word| word.split(',').any(|part| part == plain) || ranges(word))
}

#[test]
fn host_names_and_ranges_are_found_in_messages() {
    assert!(names("wireup: node n3: the link", 3) && names("n[1-3]: refused", 2) && names("on n[0,4-5]:", 5));
    assert!(!names("node n30: x", 3) && !names("n[1-3]", 4));
}
