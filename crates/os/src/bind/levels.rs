//! Reads the levels of a machine's processors, as Linux describes them in `/sys`: which CPUs form a core, share a
//! cache, a NUMA domain, a socket.
//!
//! Nothing more is needed to map and bind ranks, so no library (hwloc) is opened for it.

use super::{CpuSet, Machine, cores, sockets, threads};
use std::fs::read_to_string;
use std::io;
use std::path::PathBuf;

/// Levels of objects in a machine, from the smallest to the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Thread,
    Core,
    L1,
    L2,
    L3,
    Numa,
    Socket,
    Machine,
}

impl Machine {
    /// This machine with only these CPUs.
    pub fn limited(&self, cpus: &CpuSet) -> Machine {
        Machine { allowed: self.allowed.intersection(cpus), ..self.clone() }
    }

    pub fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// The allowed cpus of each object of a level, in the order of their first cpus.
    ///
    /// # Errors
    /// The machine does not describe this level.
    pub fn objects(&self, level: Level) -> io::Result<Vec<CpuSet>> {
        let cpu_directory = self.directory.join("cpu");
        match level {
            Level::Thread => Ok(threads(&self.allowed)),
            Level::Core => cores(&self.allowed, &cpu_directory),
            Level::Socket => sockets(&self.allowed, &cpu_directory),
            Level::Machine => Ok(vec![self.allowed.clone()]),
            // A kernel without NUMA has one domain.
            Level::Numa => {
                Ok(Some(self.domains()).filter(|domains| !domains.is_empty()).unwrap_or(vec![self.allowed.clone()]))
            }
            Level::L1 => self.caches("1"),
            Level::L2 => self.caches("2"),
            Level::L3 => self.caches("3"),
        }
    }

    /// The cpus that share a data cache of this level.
    fn caches(&self, level: &str) -> io::Result<Vec<CpuSet>> {
        let (mut seen, mut caches) = (CpuSet::new(), Vec::new());
        for cpu in self.allowed.iter() {
            if seen.contains(cpu) {
                continue;
            }
            let shared = self.cache_of(cpu, level)?.intersection(&self.allowed);
            shared.iter().for_each(|cpu| seen.insert(cpu));
            caches.push(shared);
        }
        Ok(caches)
    }

    fn cache_of(&self, cpu: u32, level: &str) -> io::Result<CpuSet> {
        let directory = self.directory.join(format!("cpu/cpu{cpu}/cache"));
        for index in 0.. {
            let cache = directory.join(format!("index{index}"));
            let read = |file: &str| read_to_string(cache.join(file)).map(|text| text.trim().to_owned());
            let Ok(found) = read("level") else { break };
            if found == level && read("type").is_ok_and(|kind| kind != "Instruction") {
                return shared(cache.join("shared_cpu_list"), cpu);
            }
        }
        let problem = format!("{} names no cache of level {level}; choose another object", directory.display());
        Err(io::Error::new(io::ErrorKind::NotFound, problem))
    }
}

fn shared(path: PathBuf, cpu: u32) -> io::Result<CpuSet> {
    let list =
        read_to_string(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let set = CpuSet::parse(&list).filter(|set| set.contains(cpu));
    set.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {list:?}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_each_level_are_read() {
        let machine = Machine::described("levels", 8, true, 2);
        let lists = |level| machine.objects(level).unwrap().iter().map(CpuSet::to_string).collect::<Vec<_>>();
        assert_eq!(lists(Level::Core), ["0,4", "1,5", "2,6", "3,7"]);
        assert_eq!(lists(Level::L1), lists(Level::Core));
        assert_eq!(lists(Level::L3), ["0-1,4-5", "2-3,6-7"]);
        assert_eq!(lists(Level::Numa), ["0-1,4-5", "2-3,6-7"]);
        assert_eq!(lists(Level::Socket), ["0-7"]);
        assert_eq!((lists(Level::Thread).len(), lists(Level::Machine).len()), (8, 1));
        let error = machine.objects(Level::L2).unwrap_err().to_string();
        assert!(error.contains("no cache of level 2; choose another object"), "{error}");
        let few = machine.limited(&CpuSet::parse("1-2").unwrap());
        assert_eq!(few.objects(Level::L3).unwrap().len(), 2);
    }

    #[test]
    fn this_machine_describes_its_cores_and_sockets() {
        let machine = Machine::this().unwrap();
        for level in [Level::Thread, Level::Core, Level::Numa, Level::Socket] {
            let cpus: usize = machine.objects(level).unwrap().iter().map(CpuSet::len).sum();
            assert_eq!(cpus, machine.cpus(), "{level:?}");
        }
    }
}
