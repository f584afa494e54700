//! Turns the facts about each host into findings: what is wrong or unusual there.

use super::finding::{Bytes, Finding, bytes, limit, plain};
use wireup_node::doctor::{End, Facts, LimitsOf, Seen};

/// With fewer descriptors an agent on a node with many ranks runs out. Chosen: five per rank, with a margin.
const OPEN_FILES_MIN: u64 = 1024;
/// MPI libraries fail with less shared memory. Chosen: the containers' default, times a few ranks.
const SHM_MIN: u64 = 128 << 20;
const MEMORY_MIN: u64 = 256 << 20;
/// A smaller difference between clocks does not matter for file dates.
const SKEW_NS: u64 = 1_000_000_000;

/// One host and what is known about it.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub host: &'a str,
    pub facts: Option<&'a Facts>,
    /// `None` for this machine.
    pub seen: Option<&'a Seen>,
}

pub struct Setting {
    /// The remote shell as a user would type it.
    pub shell: String,
    /// The working directory of the ranks.
    pub cwd: String,
    pub interface: Option<String>,
    pub program_bytes: u64,
}

/// All findings, each with the index of its host. Hosts that did not answer at all are handled by [`unreached`].
pub fn findings(cases: &[Case], here: &Facts, setting: &Setting) -> Vec<(usize, Finding)> {
    let mut found = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let mut add = |finding: Finding| found.push((index, finding));
        if let Some(seen) = case.seen {
            of_start(seen, setting).into_iter().for_each(&mut add);
            of_ways(case, seen, cases, setting).into_iter().for_each(&mut add);
        }
        if let Some(facts) = case.facts {
            of_machine(facts, setting).into_iter().for_each(&mut add);
            if let Some(seen) = case.seen {
                beside_here(facts, seen, here).into_iter().for_each(&mut add);
            }
        }
    }
    found.extend(among(cases));
    found
}

/// Why a host did not answer.
pub fn unreached(case: &Case) -> Option<String> {
    match case.seen.map(|seen| &seen.end) {
        Some(End::Lost(problem)) if case.facts.is_none() => Some(problem.clone()),
        Some(End::Answered) if case.facts.is_none() => Some("it left without a report".to_owned()),
        Some(End::Lost(_) | End::Answered | End::Missing) | None => None,
    }
}

/// Findings about how the host was started.
fn of_start(seen: &Seen, setting: &Setting) -> Vec<Finding> {
    let mut found = Vec::new();
    if seen.end == End::Missing {
        let size = Bytes(setting.program_bytes);
        found.push(Finding::remark(
            format!(
                "wireup is missing or of another version there: a run would send it ({size}); not looked at further"
            ),
            "wireup doctor --send sends it now; or install this version on its PATH",
        ));
    }
    if seen.sent {
        found.push(Finding::note(format!("wireup was sent there ({})", Bytes(setting.program_bytes))));
    }
    if let Some(problem) = &seen.retried {
        let single = format!("its sshd was busy: {}", one_line(problem));
        let remark =
            Finding::remark("its sshd was busy and had to be asked again", "raise MaxStartups in its sshd_config");
        found.push(remark.single(single));
    }
    found
}

/// Findings about the host's connection back to this machine and its remote shell to the next host.
fn of_ways(case: &Case, seen: &Seen, cases: &[Case], setting: &Setting) -> Vec<Finding> {
    let mut found = Vec::new();
    if case.facts.is_none() {
        return found;
    }
    let cure = match setting.interface {
        Some(_) => {
            "does a firewall stand between? It must let TCP through to any port here; or name another --interface"
        }
        None => {
            "does a firewall stand between? It must let TCP through to any port here; or name a network with --interface"
        }
    };
    match &seen.back {
        Some(Ok(back)) if back.failed.is_empty() => {}
        Some(Ok(back)) => {
            let text = format!("it tried other addresses of this machine in vain before {}", back.address);
            let single = format!("{text}: {}", one_line(&back.failed.join("; ")));
            found.push(Finding::remark(text, format!("--interface {} saves the time", back.address)).single(single));
        }
        Some(Err(problem)) => {
            let text = "it does not get back to this machine, as an agent must";
            found.push(Finding::problem(text, cure).single(format!("{text}: {}", one_line(problem))));
        }
        None => found.push(Finding::problem("it did not get back to this machine in time", cure)),
    }
    match (&seen.onward, &seen.neighbour) {
        (Some(Err(problem)), Some(to)) if is_reached(to, cases) => {
            let cure = format!(
                "let \"{} {to} true\" work there without a question (forward an agent, or install a key); --start ssh-flat \
                 needs no such way",
                setting.shell
            );
            let why = one_line(problem);
            let text = format!(
                "it cannot start other hosts by {}: in a tree of two levels and more their agents are started from here",
                setting.shell
            );
            let single = format!("it cannot reach {to} by {} ({why}): {}", setting.shell, tree());
            let cure_all = cure.replace(to.as_str(), "HOST");
            found.push(Finding { cure: Some(cure_all), ..Finding::remark(text, "") }.single(single));
        }
        (None, Some(to)) if matches!(seen.end, End::Lost(_)) => {
            let text = "it did not say in time whether it reaches other hosts by the remote shell";
            let single = format!("it did not say in time whether it reaches {to} by {}", setting.shell);
            found.push(Finding::remark(text, "--start-timeout gives it more time").single(single));
        }
        (Some(_) | None, _) => {}
    }
    found
}

fn tree() -> &'static str {
    "in a tree of two levels and more its children are started by an ancestor, which is slower"
}

/// Whether a host answered. If it did not, that is reported, and not also that other hosts cannot reach it.
fn is_reached(host: &str, cases: &[Case]) -> bool {
    cases.iter().any(|case| case.host == host && unreached(case).is_none())
}

/// Findings about the machine on its own.
pub fn of_machine(facts: &Facts, setting: &Setting) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(problem) = &facts.nothing_offered {
        let which = setting.interface.as_deref().unwrap_or_default();
        let text = format!("no address there matches --interface {which}");
        let have = problem.split_once("; ").map(|(_, have)| format!("{text}; {have}"));
        let cure = "name an interface that all hosts have, or a network (10.1.0.0/16)";
        let problem = Finding::problem(text, cure);
        found.push(Finding { single: have, ..problem });
    } else if facts.offered.iter().all(|address| address.ip.is_loopback()) {
        found.push(Finding::problem("it has no address but loopback's", "bring a network interface up"));
    }
    if let Some(problem) = &facts.cwd_problem {
        found.push(Finding::problem(
            format!("working directory {}: {problem}", setting.cwd),
            "run with --wdir DIR, a directory that all hosts have; or mount this one there",
        ));
    }
    if let Some(files) = facts.limits.open_files.hard.filter(|files| *files < OPEN_FILES_MIN) {
        found.push(Finding::problem(
            format!("at most {files} open files: an agent needs about 5 a rank"),
            raise("nofile", "LimitNOFILE"),
        ));
    }
    if let Some(shm) = facts.shm.filter(|shm| shm.free < SHM_MIN) {
        let text = format!("{} free in /dev/shm: MPI libraries share memory there", Bytes(shm.free));
        found.push(Finding::remark(text, "remove what is left there, or mount it larger (size=)"));
    }
    if facts.shm.is_none() {
        found.push(Finding::remark("no /dev/shm: MPI libraries share memory there", "mount a tmpfs at /dev/shm"));
    }
    if let Some(free) = facts.memory_free.filter(|free| *free < MEMORY_MIN) {
        found.push(Finding::remark(format!("{} of memory free", Bytes(free)), "what runs there? top tells"));
    }
    if let Some(problem) = &facts.cache.problem {
        let text = format!("wireup could not be kept in its cache {}: {problem}", facts.cache.path);
        found.push(Finding::remark(text, "make it yours alone to write (chmod 700), or install wireup on its PATH"));
    } else if let Some(free) = facts.cache.free.filter(|free| *free < setting.program_bytes) {
        let text = format!("no room for wireup in {}: {} free", facts.cache.path, Bytes(free));
        found.push(Finding::remark(text, "make room there, or install wireup on its PATH"));
    }
    found
}

pub fn raise(name: &str, unit: &str) -> String {
    format!("raise {name} in /etc/security/limits.conf there, or {unit} of its sshd")
}

/// Differences from this machine.
fn beside_here(facts: &Facts, seen: &Seen, here: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if facts.arch != here.arch {
        let text = format!("an {} machine, this one is {}", facts.arch, here.arch);
        found.push(Finding::remark(text, "programs must be there for it, too"));
    }
    if (&facts.version, &facts.build) != (&here.version, &here.build) {
        let text = format!("another build of wireup {}", facts.version);
        found.push(Finding::remark(text, "install the same one everywhere"));
    }
    if facts.user != here.user {
        let text = format!("user id {} there, {} here: files made here may be another's there", facts.user, here.user);
        found.push(Finding::remark(text, "log in as the same user (user@host)"));
    }
    if let Some(skew_ns) = skew_ns(facts.clock_ns, seen.clock_ns).filter(|skew_ns| skew_ns.unsigned_abs() > SKEW_NS) {
        let (seconds, which) = (skew_ns.unsigned_abs() as f64 / 1e9, if skew_ns > 0 { "ahead" } else { "behind" });
        let text = "its clock is not this machine's: dates of files will be wrong";
        let single = format!("its clock is {seconds:.0} s {which}: dates of files will be wrong");
        found.push(Finding::remark(text, "let chrony or ntpd set it").single(single));
    }
    let limits = [
        (
            "open files",
            facts.limits.open_files,
            here.limits.open_files,
            plain as fn(u64) -> String,
            "nofile",
            "LimitNOFILE",
        ),
        ("locked memory", facts.limits.locked_memory, here.limits.locked_memory, bytes, "memlock", "LimitMEMLOCK"),
        ("stack", facts.limits.stack, here.limits.stack, bytes, "stack", "LimitSTACK"),
        ("core files", facts.limits.core, here.limits.core, bytes, "core", "LimitCORE"),
    ];
    for (what, there, here, unit, name, setting) in limits {
        if is_less(there.hard, here.soft) {
            let text = format!(
                "{what}: at most {} there, ulimit here {}: ranks get what is there",
                limit(there.hard, unit),
                limit(here.soft, unit)
            );
            found.push(Finding::remark(text, raise(name, setting)));
        }
    }
    found
}

/// `None` means no limit.
fn is_less(one: Option<u64>, other: Option<u64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one < other,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// The least by which a clock is ahead of ours, in nanoseconds, if it was read between these two of our times. Negative if it is behind.
fn skew_ns(clock_ns: u64, (before_ns, after_ns): (u64, u64)) -> Option<i64> {
    let ahead = clock_ns.saturating_sub(after_ns) as i64;
    let behind = before_ns.saturating_sub(clock_ns) as i64;
    (clock_ns != 0 && after_ns != 0).then_some(ahead - behind)
}

/// Hosts that differ from the majority.
fn among(cases: &[Case]) -> Vec<(usize, Finding)> {
    let mut found = Vec::new();
    let mut compare = |what: &str, value: &dyn Fn(&Facts) -> String, cure: Option<&str>| {
        let values: Vec<(usize, String)> =
            cases.iter().enumerate().filter_map(|(index, case)| Some((index, value(case.facts?)))).collect();
        let Some(usual) = most_common(&values) else { return };
        for (index, value) in values.iter().filter(|(_, value)| value != usual) {
            let text = format!("{what} {value}, most have {usual}");
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

/// Replaces control characters, so that foreign text cannot break our lines.
pub fn one_line(text: &str) -> String {
    text.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
