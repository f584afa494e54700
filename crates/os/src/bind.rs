//! Represents CPU sets: which CPUs this process may use, and how they are divided among ranks.

mod even;
mod levels;

pub use even::{Even, Machine};
use std::fmt;
use std::io;

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
///
/// # Errors
/// Does not fail on a Linux with fewer than 65,536 CPUs.
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
}
