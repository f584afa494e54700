//! Reads the levels of a machine's processors, as Linux describes them in `/sys`: which CPUs form a core, share a
//! cache, a NUMA domain, a socket.
//!
//! Mapping and binding ranks needs no more than that, so no library (hwloc) is used.

use super::{CpuSet, Machine};
use std::fs::read_to_string;
use std::io;
use std::path::PathBuf;

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
