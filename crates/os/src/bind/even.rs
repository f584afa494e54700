//! Computes the default binding. A binding helps ranks whose threads share data; this one never takes away a CPU that a
//! rank could use.
//!
//! ```text
//!   at least two cores for each rank   a share of neighbouring cores each
//!   fewer, and several NUMA domains    the domain with the rank's part of the cpus, if it has at least two cores
//!   otherwise                          not bound
//! ```
//!
//! With a share of one core, all threads of a rank (its own, and those of its MPI library) would run one after the
//! other. Ranks that outnumber the CPUs are not bound either. Cost: reads the files of `/sys` about the threads of one
//! core and about NUMA domains; if cores have several threads, one more file for each core.

use super::{CpuSet, allowed};
use std::fs::read_to_string;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The folder in which Linux describes its CPUs and NUMA domains.
const SYSTEM_DIRECTORY: &str = "/sys/devices/system";

/// Fewest cores that a rank is bound to (chosen: with two, a rank's second thread never waits for the first).
const CORES_MIN: usize = 2;

/// The CPUs of a machine that this process may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    pub(super) allowed: CpuSet,
    /// [`SYSTEM_DIRECTORY`], or the folder of a test. Properties without a file count as absent: several threads per
    /// core, several NUMA domains.
    pub(super) directory: PathBuf,
    /// Removes the folder that describes a machine for tests.
    pub(super) removal: Option<Arc<Removal>>,
}

#[derive(PartialEq, Eq, Debug)]
pub(super) struct Removal(PathBuf);

impl Drop for Removal {
    fn drop(&mut self) {
        // If the folder cannot be removed, that changes no result of a test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How ranks are bound: the CPU set of each rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Even {
    /// Each rank has two or more cores.
    Cores {
        shares: Vec<CpuSet>,
        fewest: usize,
        most: usize,
    },
    /// Each rank has a NUMA domain; several ranks may share one.
    Domains {
        shares: Vec<CpuSet>,
        domains: usize,
    },
    Unbound,
}

impl Machine {
    /// This machine.
    ///
    /// # Errors
    /// The errors of [`allowed`].
    pub fn this() -> io::Result<Machine> {
        Ok(Machine { allowed: allowed()?, directory: SYSTEM_DIRECTORY.into(), removal: None })
    }

    /// A machine with `cpus` cores, for tests.
    pub fn of_cores(cpus: u32) -> Machine {
        Machine { allowed: (0..cpus).collect(), directory: PathBuf::new(), removal: None }
    }

    /// A machine for tests, described in a temporary folder: cpu c and c + `cpus` / 2 are a core if `smt`, with
    /// `domains` domains of neighbouring cores, one level-1 cache for each core, one level-3 cache for each domain, and
    /// one socket.
    ///
    /// # Panics
    /// The folder cannot be written.
    pub fn described(name: &str, cpus: u32, smt: bool, domains: u32) -> Machine {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("wireup-machine-{}-{serial}-{name}", std::process::id()));
        let write = |file: String, text: String| {
            let path = directory.join(file);
            let written =
                path.parent().map(std::fs::create_dir_all).transpose().and_then(|_| std::fs::write(&path, text));
            assert!(written.is_ok(), "{} cannot be written: {written:?}", path.display());
        };
        let cores = if smt { cpus / 2 } else { cpus };
        let of_domain =
            |domain: u32| -> CpuSet { (0..cpus).filter(|cpu| cpu % cores * domains / cores == domain).collect() };
        write("cpu/smt/active".into(), format!("{}\n", u8::from(smt)));
        for cpu in 0..cpus {
            let core = cpu % cores;
            let siblings = if smt { format!("{core},{}\n", core + cores) } else { format!("{core}\n") };
            write(format!("cpu/cpu{cpu}/topology/core_siblings_list"), format!("0-{}\n", cpus - 1));
            for (index, level, kind, shared) in [
                (0, 1, "Instruction", "0\n".to_owned()),
                (1, 1, "Data", siblings.clone()),
                (2, 3, "Unified", of_domain(core * domains / cores).to_string()),
            ] {
                let cache = format!("cpu/cpu{cpu}/cache/index{index}");
                write(format!("{cache}/level"), format!("{level}\n"));
                write(format!("{cache}/type"), format!("{kind}\n"));
                write(format!("{cache}/shared_cpu_list"), shared);
            }
            write(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), siblings);
        }
        write("node/online".into(), format!("0-{}\n", domains - 1));
        for domain in 0..domains {
            write(format!("node/node{domain}/cpulist"), of_domain(domain).to_string());
        }
        let removal = Some(Arc::new(Removal(directory.clone())));
        Machine { allowed: (0..cpus).collect(), directory, removal }
    }

    /// Number of CPUs that this process may use.
    pub fn cpus(&self) -> usize {
        self.allowed.len()
    }

    /// The default binding of `ranks` ranks.
    pub fn even(&self, ranks: usize) -> Even {
        let cpus = self.cpus();
        // A single rank would be bound to all CPUs, which has no effect.
        if ranks < 2 || ranks > cpus {
            return Even::Unbound;
        }
        let threads_of_core = self.threads_of_core();
        if cpus >= CORES_MIN * ranks * threads_of_core {
            // If each core has one thread, the cores are the CPUs.
            let cores = if threads_of_core == 1 { self.threads() } else { self.cores().unwrap_or_default() };
            if cores.len() >= CORES_MIN * ranks {
                return divided(&cores, ranks);
            }
        }
        let domains = self.domains();
        let is_enough = |domain: &CpuSet| domain.len() >= CORES_MIN * threads_of_core;
        if domains.len() < 2 || !domains.iter().all(is_enough) {
            return Even::Unbound;
        }
        let of_cpu: Vec<&CpuSet> = domains.iter().flat_map(|domain| vec![domain; domain.len()]).collect();
        let shares = (0..ranks).map(|rank| of_cpu[rank * of_cpu.len() / ranks].clone()).collect();
        Even::Domains { shares, domains: domains.len() }
    }

    fn threads_of_core(&self) -> usize {
        let read = |path: PathBuf| read_to_string(path).ok();
        let directory = self.directory.join("cpu");
        if read(directory.join("smt/active")).is_some_and(|active| active.trim() == "0") {
            return 1;
        }
        let first = self.allowed.iter().next().unwrap_or(0);
        let siblings = read(directory.join(format!("cpu{first}/topology/thread_siblings_list")));
        siblings.and_then(|list| CpuSet::parse(&list)).map_or(1, |siblings| siblings.len().max(1))
    }

    /// The allowed cpus of each NUMA domain that has any.
    pub(super) fn domains(&self) -> Vec<CpuSet> {
        let directory = self.directory.join("node");
        let online = read_to_string(directory.join("online")).ok().and_then(|list| CpuSet::parse(&list));
        let domains = online.iter().flat_map(CpuSet::iter).filter_map(|number| cpus_of(&directory, number));
        domains.map(|cpus| cpus.intersection(&self.allowed)).filter(|cpus| !cpus.is_empty()).collect()
    }
}

fn cpus_of(directory: &Path, domain: u32) -> Option<CpuSet> {
    CpuSet::parse(&read_to_string(directory.join(format!("node{domain}/cpulist"))).ok()?)
}

/// Gives each rank neighbouring cores; the numbers of cores differ by at most one.
fn divided(cores: &[CpuSet], ranks: usize) -> Even {
    let bound = |rank: usize| rank * cores.len() / ranks;
    let share = |rank| cores[bound(rank)..bound(rank + 1)].iter().flat_map(CpuSet::iter).collect();
    let most = cores.len().div_ceil(ranks);
    Even::Cores { shares: (0..ranks).map(share).collect(), fewest: cores.len() / ranks, most }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(even: &Even) -> Vec<String> {
        match even {
            Even::Cores { shares, .. } | Even::Domains { shares, .. } => shares.iter().map(CpuSet::to_string).collect(),
            Even::Unbound => Vec::new(),
        }
    }

    #[test]
    fn shares_have_two_whole_cores_or_more() {
        let plain = Machine::described("plain", 8, false, 1);
        assert_eq!(lists(&plain.even(2)), ["0-3", "4-7"]);
        assert_eq!(lists(&plain.even(3)), ["0-1", "2-4", "5-7"]);
        assert!(matches!(plain.even(3), Even::Cores { fewest: 2, most: 3, .. }));
        assert_eq!(lists(&plain.even(4)), ["0-1", "2-3", "4-5", "6-7"]);
        let smt = Machine::described("smt", 16, true, 1);
        assert_eq!(lists(&smt.even(4)), ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"]);
    }

    #[test]
    fn ranks_with_less_than_two_cores_are_not_bound_within_one_domain() {
        let plain = Machine::described("one-domain", 8, false, 1);
        let smt = Machine::described("one-smt", 16, true, 1);
        for even in
            [plain.even(0), plain.even(1), plain.even(5), plain.even(8), plain.even(9), smt.even(5), smt.even(8)]
        {
            assert_eq!(even, Even::Unbound);
        }
        assert_eq!(Machine::of_cores(2).even(2), Even::Unbound);
        assert!(matches!(Machine::of_cores(4).even(2), Even::Cores { fewest: 2, most: 2, .. }));
    }

    #[test]
    fn they_are_bound_to_domains_of_two_cores_or_more() {
        let two = Machine::described("two-domains", 8, false, 2);
        assert_eq!(lists(&two.even(8)), [["0-3"; 4], ["4-7"; 4]].concat());
        assert_eq!(lists(&two.even(5)), ["0-3", "0-3", "0-3", "4-7", "4-7"]);
        assert!(matches!(two.even(8), Even::Domains { domains: 2, .. }));
        assert_eq!(two.even(9), Even::Unbound);
        let small = Machine::described("small-domains", 4, false, 4);
        assert_eq!(small.even(4), Even::Unbound, "a domain of one core is no better than a core");
        let few = Machine { allowed: CpuSet::parse("3-4").unwrap(), ..two };
        assert_eq!(few.even(2), Even::Unbound, "one allowed cpu in each domain");
    }
}
