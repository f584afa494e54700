//! Turns the facts about each host into findings: what is wrong or unusual there.

use super::examine::Seen;
use super::finding::{Bytes, Finding, bytes, limit, plain};
use crate::words::one_line;
use wireup_node::doctor::{Facts, LimitsOf};
use wireup_wire::peer::{Problem, ProblemKind};

/// With fewer descriptors an agent on a node with many ranks runs out. Chosen: five per rank, with a margin.
pub const OPEN_FILES_MIN: u64 = 1024;
/// MPI libraries fail with less shared memory. Chosen: the containers' default, times a few ranks.
pub const SHM_MIN: u64 = 128 << 20;
pub const MEMORY_MIN: u64 = 256 << 20;
/// A smaller difference between clocks does not matter for file dates.
const SKEW_NS: u64 = 1_000_000_000;

/// One host and what is known about it.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub host: &'a str,
    pub facts: Option<&'a Facts>,
    /// What the examination of the host has shown; `None` for this machine.
    pub seen: Option<&'a Seen>,
}

pub struct Setting {
    /// The remote shell as a user would type it.
    pub shell: String,
    /// The working directory of the ranks.
    pub cwd: String,
    pub interface: Option<String>,
    /// Size of the program that a run would send.
    pub program_bytes: u64,
}

/// All findings, each with the index of its host, except the reasons why agents did not start ([`unreached`]).
pub fn findings(cases: &[Case], local: &Facts, setting: &Setting) -> Vec<(usize, Finding)> {
    let mut found = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let mut add = |finding: Finding| found.push((index, finding));
        if let Some(seen) = case.seen {
            of_start(seen, setting).into_iter().for_each(&mut add);
            of_connections(seen, setting).into_iter().for_each(&mut add);
            missing(seen).into_iter().for_each(&mut add);
        }
        if let Some(facts) = case.facts {
            of_machine(facts, setting).into_iter().for_each(&mut add);
            if let Some(seen) = case.seen {
                beside_local(facts, seen, local).into_iter().for_each(&mut add);
            }
        }
    }
    found.extend(among(cases));
    found
}

/// The reason why there are no facts about a host; `None`: there are facts, or the host only lacks the program.
pub fn unreached(case: &Case) -> Option<Problem> {
    match &case.seen?.problem {
        _ if case.facts.is_some() => None,
        Some(problem) if problem.kind == ProblemKind::NotInstalled => None,
        Some(problem) => Some(problem.clone()),
        None => {
            let said = String::from_utf8_lossy(&case.seen?.said);
            let (colon, said) = if said.trim().is_empty() { ("", "") } else { (": ", said.trim()) };
            Some(ProblemKind::Advised.with(format!(
                "an agent started there, but no rank has reported{colon}{said}; try wireup run with this host alone"
            )))
        }
    }
}

/// The program's files that a host lacks.
fn missing(seen: &Seen) -> Option<Finding> {
    let (first, others) = seen.missing.split_first()?;
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    let text = format!("the program needs {first}{more}, missing there");
    Some(Finding::problem(text, "copy it there, mount its file system, or run with --stage"))
}

/// Findings about how the host was started.
fn of_start(seen: &Seen, setting: &Setting) -> Vec<Finding> {
    let mut found = Vec::new();
    if seen.problem.as_ref().is_some_and(|problem| problem.kind == ProblemKind::NotInstalled) {
        let size = Bytes(setting.program_bytes);
        found.push(Finding::remark(
            format!(
                "wireup is missing or has another version; a run would send it ({size}); the host was not examined \
                 further"
            ),
            "to send it now: wireup doctor --send; or install this version on the host's PATH",
        ));
    }
    if seen.sent {
        found.push(Finding::note(format!("wireup was sent there ({})", Bytes(setting.program_bytes))));
    }
    if let Some(problem) = &seen.retried {
        let single = format!("its sshd was busy: {}", one_line(problem));
        let remark = Finding::remark(
            "its sshd refused the first login because it was busy", "raise MaxStartups in its sshd_config",
        );
        found.push(remark.single(single));
    }
    found
}

/// Findings about the host's connection to this machine, and about its remote shell to the next host.
fn of_connections(seen: &Seen, setting: &Setting) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(back) = seen.back.as_ref().filter(|back| !back.failed.is_empty()) {
        let text = format!("it could connect to this machine only at {}, after trying other addresses", back.address);
        let single = format!("{text}: {}", one_line(&back.failed));
        let cure = format!("to avoid the delay, use --interface {}", back.address);
        found.push(Finding::remark(text, cure).single(single));
    }
    let Some(to) = seen.neighbour.as_ref().filter(|_| seen.facts.is_some()) else { return found };
    match &seen.onward {
        Some(Ok(())) => {}
        Some(Err(problem)) => {
            let text = format!(
                "it cannot start agents on other hosts by {}; in a tree of two or more levels this machine will start \
                 them instead, which is slower",
                setting.shell
            );
            let single = format!(
                "it cannot reach {to} by {} ({}): in a tree of two or more levels an ancestor will start its children \
                 instead, which is slower",
                setting.shell,
                one_line(problem).trim()
            );
            let cure = format!(
                "make \"{} HOST true\" work there without a password (forward an ssh agent, or install a key); or use \
                 --start ssh-flat, which does not need this",
                setting.shell
            );
            found.push(Finding::remark(text, cure).single(single));
        }
        None => {
            let text = "it did not report in time whether it can reach other hosts by the remote shell";
            let single = format!("it did not report in time whether it can reach {to} by {}", setting.shell);
            found.push(Finding::remark(text, "--start-timeout gives it more time").single(single));
        }
    }
    found
}

/// Findings about one machine that need no comparison with other machines.
pub fn of_machine(facts: &Facts, setting: &Setting) -> Vec<Finding> {
    let mut found = Vec::new();
    match &facts.offered {
        Err(problem) => {
            let which = setting.interface.as_deref().unwrap_or_default();
            let text = format!("no address there matches --interface {which}");
            let have = problem.split_once("; ").map(|(_, have)| format!("{text}; {have}"));
            let cure = "choose an interface that all hosts have, or a network (10.1.0.0/16)";
            let problem = Finding::problem(text, cure);
            found.push(Finding { single: have, ..problem });
        }
        Ok(offered) if offered.iter().all(|address| address.ip.is_loopback()) => {
            found.push(Finding::problem("it has only a loopback address", "bring up a network interface"));
        }
        Ok(_) => {}
    }
    if let Some(problem) = &facts.cwd_problem {
        found.push(Finding::problem(
            format!("working directory {}: {problem}", setting.cwd),
            "run with --wdir DIR, a directory that all hosts have; or mount this one there",
        ));
    }
    if let Some(files) = facts.limits.open_files.hard.filter(|files| *files < OPEN_FILES_MIN) {
        found.push(Finding::problem(
            format!("at most {files} open files; an agent needs about 5 per rank"),
            raise("nofile", "LimitNOFILE"),
        ));
    }
    if let Some(shm) = facts.shm.filter(|shm| shm.free < SHM_MIN) {
        let text = format!("only {} free in /dev/shm, which MPI libraries use for shared memory", Bytes(shm.free));
        found.push(Finding::remark(text, "remove old files there, or mount it with a larger size="));
    }
    if facts.shm.is_none() {
        found.push(Finding::remark(
            "there is no /dev/shm, which MPI libraries use for shared memory",
            "mount a tmpfs at /dev/shm",
        ));
    }
    if let Some(free) = facts.memory_free.filter(|free| *free < MEMORY_MIN) {
        found.push(Finding::remark(
            format!("only {} of memory free", Bytes(free)),
            "see what uses the memory, for example with top",
        ));
    }
    if let Some(problem) = &facts.cache.problem {
        let text = format!("cannot store wireup in {}: {problem}", facts.cache.path);
        found.push(Finding::remark(
            text,
            "a folder that only you can write to is needed there, or wireup on the host's PATH",
        ));
    } else if let Some(free) = facts.cache.free.filter(|free| *free < setting.program_bytes) {
        let text = format!("not enough space for wireup in {}: {} free", facts.cache.path, Bytes(free));
        found.push(Finding::remark(text, "free some space there, or install wireup on the host's PATH"));
    }
    found
}

pub fn raise(name: &str, unit: &str) -> String {
    format!("raise {name} in /etc/security/limits.conf there, or {unit} of its sshd")
}

/// Findings about how a host differs from the machine on which this program runs.
fn beside_local(facts: &Facts, seen: &Seen, local: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if facts.arch != local.arch {
        let text = format!("it is an {} machine, this one is {}", facts.arch, local.arch);
        found.push(Finding::remark(text, "programs must exist for both architectures"));
    }
    if (&facts.version, &facts.build) != (&local.version, &local.build) {
        let text = format!("it has another build of wireup {}", facts.version);
        found.push(Finding::remark(text, "install the same build everywhere"));
    }
    if facts.user != local.user {
        let text = format!(
            "user id {} there, {} here: files created on one machine may belong to another user on the other",
            facts.user, local.user
        );
        found.push(Finding::remark(text, "log in as the same user (user@host)"));
    }
    if let Some(skew_ns) = skew_ns(facts.clock_ns, seen.clock_ns).filter(|skew_ns| skew_ns.unsigned_abs() > SKEW_NS) {
        let (seconds, which) = (skew_ns.unsigned_abs() as f64 / 1e9, if skew_ns > 0 { "ahead" } else { "behind" });
        let text = "its clock differs from this machine's: file dates will be wrong";
        let single = format!("its clock is {seconds:.0} s {which}: file dates will be wrong");
        found.push(Finding::remark(text, "let chrony or ntpd set it").single(single));
    }
    let limits = [
        (
            "open files", facts.limits.open_files, local.limits.open_files, plain as fn(u64) -> String, "nofile",
            "LimitNOFILE",
        ),
        ("locked memory", facts.limits.locked_memory, local.limits.locked_memory, bytes, "memlock", "LimitMEMLOCK"),
        ("stack", facts.limits.stack, local.limits.stack, bytes, "stack", "LimitSTACK"),
        ("core files", facts.limits.core, local.limits.core, bytes, "core", "LimitCORE"),
    ];
    for (what, there, local, unit, name, setting) in limits {
        if is_less(there.hard, local.soft) {
            let text = format!(
                "{what}: at most {} there, but ulimit here is {}; ranks get the host's limit",
                limit(there.hard, unit),
                limit(local.soft, unit)
            );
            found.push(Finding::remark(text, raise(name, setting)));
        }
    }
    found
}

/// Whether one limit is less than another; `None` means no limit.
fn is_less(one: Option<u64>, other: Option<u64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one < other,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// The least by which a clock is ahead of ours, in nanoseconds, if it was read between these two of our times. Negative
/// if it is behind.
fn skew_ns(clock_ns: u64, (before_ns, after_ns): (u64, u64)) -> Option<i64> {
    let ahead = clock_ns.saturating_sub(after_ns) as i64;
    let behind = before_ns.saturating_sub(clock_ns) as i64;
    (clock_ns != 0 && after_ns != 0).then_some(ahead - behind)
}

/// Findings about hosts that differ from the majority.
fn among(cases: &[Case]) -> Vec<(usize, Finding)> {
    let mut found = Vec::new();
    let mut compare = |what: &str, value: &dyn Fn(&Facts) -> String, cure: Option<&str>| {
        let values: Vec<(usize, String)> =
            cases.iter().enumerate().filter_map(|(index, case)| Some((index, value(case.facts?)))).collect();
        let Some(usual) = most_common(&values) else { return };
        for (index, value) in values.iter().filter(|(_, value)| value != usual) {
            let text = format!("{what} {value}; most hosts have {usual}");
            found.push((*index, cure.map_or_else(|| Finding::note(&text), |cure| Finding::remark(&text, cure))));
        }
    };
    compare("kernel", &|facts| facts.kernel.clone(), None);
    compare("cpus:", &|facts| facts.cpus.to_string(), Some("give it fewer or more slots: n1:16 in --hosts"));
    let processes = |facts: &Facts| limit(least(facts.limits.processes, facts.limits.pids_max), plain);
    let text = raise("nproc", "LimitNPROC");
    compare("processes: at most", &processes, Some(&text));
    let files = |facts: &Facts| limit(facts.limits.open_files.hard, plain);
    let text = raise("nofile", "LimitNOFILE");
    compare("open files: at most", &files, Some(&text));
    found
}

pub fn least(processes: LimitsOf, group: Option<u64>) -> Option<u64> {
    [processes.soft, group].into_iter().flatten().min()
}

/// The most frequent value; of several equally frequent ones the first.
fn most_common(values: &[(usize, String)]) -> Option<&String> {
    let times = |value: &String| values.iter().filter(|(_, other)| other == value).count();
    // `max_by_key` returns the last of equal elements, hence the reversal.
    values.iter().rev().map(|(_, value)| value).max_by_key(|value| times(value))
}
