//! CPU sets: which CPUs this process may use, and how they are divided among ranks.
//!
//! The default binding helps ranks whose threads share data; it never takes away a CPU that a rank could use.
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
//!
//! Linux describes in `/sys` which CPUs form a core, share a cache, a NUMA domain, a socket. Mapping and binding ranks
//! needs no more than that, so no library (hwloc) is used.

use std::fmt;
use std::fs::read_to_string;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A set of CPUs in Linux's format: bit `c % 64` of word `c / 64` is CPU `c`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuSet {
    words: Vec<u64>,
}

impl CpuSet {
    pub fn new() -> CpuSet {
        CpuSet::default()
    }

    /// The set whose bits are in these words.
    pub fn from_words(mut words: Vec<u64>) -> CpuSet {
        while words.last() == Some(&0) {
            words.pop();
        }
        CpuSet { words }
    }

    /// The words, without trailing zeros.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub fn insert(&mut self, cpu: u32) {
        let word = cpu as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % 64);
    }

    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get(cpu as usize / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// The number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.words.len() as u32 * 64).filter(|&cpu| self.contains(cpu))
    }

    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet::from_words(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// Parses a list in Linux's format: `0-3,8`. `None` if it is not such a list.
    pub fn parse(list: &str) -> Option<CpuSet> {
        let mut set = CpuSet::new();
        for part in list.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if last > CPU_MAX {
                return None;
            }
            (first..=last).for_each(|cpu| set.insert(cpu));
        }
        Some(set)
    }
}

/// Linux's list format: `0-3,8`.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

/// Highest CPU number accepted. A Linux kernel can be built for at most 8,192 CPUs today; this leaves room for growth.
const CPU_MAX: u32 = 1 << 16;

/// The CPUs that this process may use.
pub fn allowed() -> io::Result<CpuSet> {
    let mut words = vec![0u64; 16];
    loop {
        let bytes = words.len() * 8;
        // SAFETY: the kernel writes at most `bytes` bytes into the vector's initialised memory.
        let result = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, bytes, words.as_mut_ptr()) };
        if result >= 0 {
            return Ok(CpuSet::from_words(words));
        }
        let error = io::Error::last_os_error();
        // The kernel reports `EINVAL` if the buffer is too small for its CPU set.
        if error.raw_os_error() != Some(libc::EINVAL) || words.len() as u32 * 64 >= CPU_MAX {
            return Err(error);
        }
        words.resize(words.len() * 2, 0);
    }
}

/// The folder in which Linux describes its CPUs and NUMA domains.
const SYSTEM_DIRECTORY: &str = "/sys/devices/system";

/// Fewest cores that a rank is bound to (chosen: with two, a rank's second thread never waits for the first).
const CORES_MIN: usize = 2;

/// The CPUs of a machine that this process may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    allowed: CpuSet,
    /// [`SYSTEM_DIRECTORY`], or the folder of a test. Properties without a file count as absent: several threads per
    /// core, several NUMA domains.
    directory: PathBuf,
    /// Removes the folder that describes a machine for tests.
    removal: Option<Arc<Removal>>,
}

#[derive(PartialEq, Eq, Debug)]
struct Removal(PathBuf);

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
    fn domains(&self) -> Vec<CpuSet> {
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

impl Machine {
    /// This machine as if it had only these CPUs.
    pub fn limited(&self, cpus: &CpuSet) -> Machine {
        Machine { allowed: self.allowed.intersection(cpus), ..self.clone() }
    }

    pub fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// One set per allowed hardware thread, in ascending order.
    pub fn threads(&self) -> Vec<CpuSet> {
        self.allowed.iter().map(|cpu| CpuSet::from_iter([cpu])).collect()
    }

    /// The allowed CPUs of each core, in the order of their first CPUs.
    ///
    /// # Errors
    /// `/sys` does not describe the cores.
    pub fn cores(&self) -> io::Result<Vec<CpuSet>> {
        self.groups(|cpu| self.siblings(cpu, "topology/thread_siblings_list"))
    }

    /// The allowed CPUs of each socket, in the order of their first CPUs.
    ///
    /// # Errors
    /// `/sys` does not describe the sockets.
    pub fn sockets(&self) -> io::Result<Vec<CpuSet>> {
        self.groups(|cpu| self.siblings(cpu, "topology/core_siblings_list"))
    }

    /// The allowed CPUs of each NUMA domain. A kernel without NUMA has one domain.
    pub fn numa_domains(&self) -> Vec<CpuSet> {
        Some(self.domains()).filter(|domains| !domains.is_empty()).unwrap_or(vec![self.allowed.clone()])
    }

    /// The allowed CPUs that share each data cache of this level, in the order of their first CPUs.
    ///
    /// # Errors
    /// `/sys` describes no such caches.
    pub fn caches(&self, level: u8) -> io::Result<Vec<CpuSet>> {
        self.groups(|cpu| self.cache_of(cpu, level))
    }

    /// The allowed CPUs of each object. `of_cpu`: all CPUs of the object that contains a CPU.
    fn groups(&self, of_cpu: impl Fn(u32) -> io::Result<CpuSet>) -> io::Result<Vec<CpuSet>> {
        let (mut seen, mut groups) = (CpuSet::new(), Vec::new());
        for cpu in self.allowed.iter() {
            if seen.contains(cpu) {
                continue;
            }
            let group = of_cpu(cpu)?.intersection(&self.allowed);
            group.iter().for_each(|cpu| seen.insert(cpu));
            groups.push(group);
        }
        Ok(groups)
    }

    fn cache_of(&self, cpu: u32, level: u8) -> io::Result<CpuSet> {
        for index in 0.. {
            let cache = format!("cache/index{index}");
            let read = |file: &str| read_to_string(self.of_cpu(cpu, &cache).join(file));
            let Ok(found) = read("level") else { break };
            if found.trim() == level.to_string() && read("type").is_ok_and(|kind| kind.trim() != "Instruction") {
                return self.siblings(cpu, &format!("{cache}/shared_cpu_list"));
            }
        }
        let directory = self.of_cpu(cpu, "cache");
        let problem = format!("{} names no cache of level {level}; choose another object", directory.display());
        Err(io::Error::new(io::ErrorKind::NotFound, problem))
    }

    /// The CPUs in a file that `/sys` has for `cpu`; `cpu` itself must be among them.
    fn siblings(&self, cpu: u32, file: &str) -> io::Result<CpuSet> {
        let path = self.of_cpu(cpu, file);
        let list = read_to_string(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let set = CpuSet::parse(&list).filter(|set| set.contains(cpu));
        set.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {list:?}", path.display())))
    }

    fn of_cpu(&self, cpu: u32, file: &str) -> PathBuf {
        self.directory.join(format!("cpu/cpu{cpu}/{file}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_sets_are_written_in_the_kernels_format() {
        let mut set = CpuSet::new();
        assert_eq!(set.to_string(), "");
        [0, 1, 2, 3, 8, 70, 71].into_iter().for_each(|cpu| set.insert(cpu));
        assert_eq!(set.to_string(), "0-3,8,70-71");
    }

    #[test]
    fn cpu_lists_are_read_in_the_kernels_format() {
        let set = CpuSet::parse("0-2,64,70-71\n").unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1, 2, 64, 70, 71]);
        assert_eq!(set.words(), [7, 0b1100_0001]);
        assert_eq!(CpuSet::parse("a"), None);
        assert_eq!(CpuSet::parse("0-99999999"), None);
        assert!(CpuSet::parse("\n").unwrap().is_empty());
    }

    fn even_lists(even: &Even) -> Vec<String> {
        match even {
            Even::Cores { shares, .. } | Even::Domains { shares, .. } => shares.iter().map(CpuSet::to_string).collect(),
            Even::Unbound => Vec::new(),
        }
    }

    #[test]
    fn shares_have_two_whole_cores_or_more() {
        let plain = Machine::described("plain", 8, false, 1);
        assert_eq!(even_lists(&plain.even(2)), ["0-3", "4-7"]);
        assert_eq!(even_lists(&plain.even(3)), ["0-1", "2-4", "5-7"]);
        assert!(matches!(plain.even(3), Even::Cores { fewest: 2, most: 3, .. }));
        assert_eq!(even_lists(&plain.even(4)), ["0-1", "2-3", "4-5", "6-7"]);
        let smt = Machine::described("smt", 16, true, 1);
        assert_eq!(even_lists(&smt.even(4)), ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"]);
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
        assert_eq!(even_lists(&two.even(8)), [["0-3"; 4], ["4-7"; 4]].concat());
        assert_eq!(even_lists(&two.even(5)), ["0-3", "0-3", "0-3", "4-7", "4-7"]);
        assert!(matches!(two.even(8), Even::Domains { domains: 2, .. }));
        assert_eq!(two.even(9), Even::Unbound);
        let small = Machine::described("small-domains", 4, false, 4);
        assert_eq!(small.even(4), Even::Unbound, "a domain of one core is no better than a core");
        let few = Machine { allowed: CpuSet::parse("3-4").unwrap(), ..two };
        assert_eq!(few.even(2), Even::Unbound, "one allowed cpu in each domain");
    }

    fn lists(sets: &[CpuSet]) -> Vec<String> {
        sets.iter().map(CpuSet::to_string).collect()
    }

    #[test]
    fn objects_of_each_level_are_read() {
        let machine = Machine::described("levels", 8, true, 2);
        let halves = ["0-1,4-5", "2-3,6-7"];
        assert_eq!(lists(&machine.cores().unwrap()), ["0,4", "1,5", "2,6", "3,7"]);
        assert_eq!(machine.caches(1).unwrap(), machine.cores().unwrap());
        assert_eq!(lists(&machine.caches(3).unwrap()), halves);
        assert_eq!(lists(&machine.numa_domains()), halves);
        assert_eq!(lists(&machine.sockets().unwrap()), ["0-7"]);
        assert_eq!(machine.threads().len(), 8);
        let error = machine.caches(2).unwrap_err().to_string();
        assert!(error.contains("no cache of level 2; choose another object"), "{error}");
        let few = machine.limited(&CpuSet::parse("1-6").unwrap());
        assert_eq!(lists(&few.cores().unwrap()), ["1,5", "2,6", "3", "4"]);
        assert_eq!(lists(&few.caches(3).unwrap()), ["1,4-5", "2-3,6"]);
        assert!(Machine::of_cores(2).cores().is_err(), "it has no description");
    }

    #[test]
    fn this_machine_describes_its_cores_and_sockets() {
        let machine = Machine::this().unwrap();
        let (cores, sockets) = (machine.cores().unwrap(), machine.sockets().unwrap());
        for sets in [machine.threads(), cores, machine.numa_domains(), sockets] {
            assert_eq!(sets.iter().map(CpuSet::len).sum::<usize>(), machine.cpus(), "{sets:?}");
        }
    }
}
