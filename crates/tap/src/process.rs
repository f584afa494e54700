//! Reads from `/proc` the resources that a rank has used, and which launcher has started it.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use wireup_os::clock::monotonic_ns;
use wireup_os::process::own_pid;

/// Length of a tick in `/proc/PID/stat`: Linux has 100 ticks per second on every architecture.
const TICK_NS: u64 = 10_000_000;
/// Process names of launchers and of their helpers on nodes; the kernel keeps 15 bytes of a name.
const LAUNCHERS: [(&str, &str); 16] = [
    ("hydra_pmi_proxy", "Hydra"),
    ("hydra_bstrap_pr", "Hydra"),
    ("mpiexec.hydra", "Hydra"),
    ("mpiexec.mpich", "Hydra"),
    ("mpiexec", "Hydra"),
    ("mpirun.openmpi", "Open MPI"),
    ("orterun", "Open MPI"),
    ("orted", "Open MPI"),
    ("prterun", "Open MPI 5"),
    ("prted", "Open MPI 5"),
    ("prte", "Open MPI 5"),
    ("slurmstepd", "srun"),
    ("srun", "srun"),
    ("wireup", "wireup"),
    ("mpirun", "mpirun"),
    ("flux-shell", "flux"),
];
/// Most ancestors that are searched for the launcher. Chosen: more than a launcher has processes above a rank.
const ANCESTORS_MAX: usize = 8;

/// Resources that a process has used so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Effort {
    pub cpu_ns: u64,
    /// Time for which the process could have run but waited for a CPU (ns).
    pub core_wait_ns: u64,
    /// Page faults for which a file had to be read.
    pub major_faults: u64,
    pub read_calls: u64,
    pub read_bytes: u64,
    /// Number of files that the process has mapped: the program and its libraries.
    pub mapped_files: u64,
}

/// Resources that the process `pid` has used so far; a value that cannot be read is 0.
pub fn effort(pid: u32) -> Effort {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let schedstat = read("schedstat");
    let mut scheduled = schedstat.split_whitespace().map(|word| word.parse().unwrap_or(0));
    let io = read("io");
    let of_io = |name: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    let maps = read("maps");
    let files: HashSet<&str> = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).collect();
    Effort {
        cpu_ns: scheduled.next().unwrap_or(0),
        core_wait_ns: scheduled.next().unwrap_or(0),
        major_faults: Stat::read(&pid.to_string()).map_or(0, |stat| stat.major_faults),
        read_calls: of_io("syscr"),
        read_bytes: of_io("rchar"),
        mapped_files: files.len() as u64,
    }
}

/// The launcher above this process, as far as it runs on this node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Launcher {
    /// The launcher's name; empty: the launcher was not recognized.
    pub name: String,
    /// Start time of the launcher's first visible process, on the monotonic clock (ns); 0: not known.
    pub started_ns: u64,
    /// The name of the launcher's first visible process.
    pub process: String,
}

/// The launcher above this process. `named`: its name in the environment, used if no process of it is visible.
pub fn launcher(named: &str) -> Launcher {
    let mut found = ancestors();
    if found.name.is_empty() {
        found.name = named.to_owned();
    }
    found
}

fn ancestors() -> Launcher {
    let mut found = Launcher::default();
    // Stops if `/proc` is that of another PID namespace.
    let Some(own) = Stat::read("self").filter(|stat| stat.pid == own_pid()) else { return found };
    let mut parent = own.parent;
    for _ in 0..ANCESTORS_MAX {
        let Some(stat) = Stat::read(&parent.to_string()) else { break };
        let Some((_, name)) = LAUNCHERS.iter().find(|(process, _)| stat.name == *process) else { break };
        if found.name.is_empty() || found.name == "mpirun" {
            found.name = (*name).to_owned();
        }
        (found.started_ns, found.process) = (monotonic(stat.start_ticks), stat.name);
        parent = stat.parent;
    }
    found
}

/// Converts a time of `/proc`, whose clock also runs while the machine is suspended, to the monotonic clock.
fn monotonic(ticks: u64) -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let boot_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    monotonic_ns().saturating_sub(boot_ns.saturating_sub(ticks.saturating_mul(TICK_NS)))
}

struct Stat {
    pid: u32,
    name: String,
    parent: u32,
    major_faults: u64,
    start_ticks: u64,
}

impl Stat {
    fn read(pid: &str) -> Option<Stat> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name, in parentheses, may contain any characters.
        let (pid, rest) = text.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Stat {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            parent: fields.get(1)?.parse().ok()?,
            major_faults: fields.get(9)?.parse().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let line = "12 (a) (b) R 7 12 12 0 -1 4194304 94 0 3 0 1 2 0 0 20 0 1 0 777 1 1";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.pid, stat.name.as_str(), stat.parent), (12, "a) (b", 7));
        assert_eq!((stat.major_faults, stat.start_ticks), (3, 777));
        assert!(Stat::parse("12 (a").is_none());
    }

    #[test]
    fn this_process_has_worked_and_has_started() {
        let effort = effort(own_pid());
        assert!(effort.read_calls > 0 && effort.read_bytes > 0 && effort.mapped_files > 0, "{effort:?}");
        let own = Stat::read("self").expect("/proc");
        let started = monotonic(own.start_ticks);
        assert!(started <= monotonic_ns() && monotonic_ns() - started < 600_000_000_000);
    }
}
