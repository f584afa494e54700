//! Which launcher a command line was written for.
//!
//! Most options are spelled in one way by all launchers, or in one launcher only. For the rest (`-s`, `-c`), the vendor
//! decides: that of the name by which the program was called, else the one whose options occur, else that of the
//! program's MPI library.

use super::row::{Row, Takes};
use super::tables::{HYDRA, OPEN_MPI, SRUN, STANDARD};
use crate::flags::table as flag;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use wireup_flags::nearest;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Vendor {
    /// MPICH's Hydra, and launchers derived from it such as Intel MPI's.
    #[default]
    Hydra,
    /// Open MPI's `mpirun` and PRRTE's `prterun`.
    OpenMpi,
}

impl Vendor {
    /// The vendor of the launcher with this name; `None` if launchers of several vendors have the name.
    pub fn of_name(name: &str) -> Option<Vendor> {
        match name {
            "mpiexec.hydra" => Some(Vendor::Hydra),
            "orterun" | "prterun" => Some(Vendor::OpenMpi),
            _ => None,
        }
    }

    /// The vendor to whom fewer of the options are unknown; `None` if both know equally many.
    pub fn of_options(words: &[OsString]) -> Option<Vendor> {
        let foreign = |vendor: Vendor| options(words).filter(|option| vendor.own(option).is_none()).count();
        let [hydra, open_mpi] = [Vendor::Hydra, Vendor::OpenMpi].map(foreign);
        match hydra.cmp(&open_mpi) {
            std::cmp::Ordering::Less => Some(Vendor::Hydra),
            std::cmp::Ordering::Greater => Some(Vendor::OpenMpi),
            std::cmp::Ordering::Equal => None,
        }
    }

    /// Whether both vendors have one of these options, but with different meanings.
    pub fn matters(words: &[OsString]) -> bool {
        let [one, other] = [Vendor::Hydra, Vendor::OpenMpi];
        let differs = |option: &str| match (one.own(option), other.own(option)) {
            (Some(one), Some(other)) => !one.is_like(other),
            _ => false,
        };
        options(words).any(|option| differs(&option))
    }

    fn own(self, option: &str) -> Option<&'static Row> {
        let own = match self {
            Vendor::Hydra => HYDRA,
            Vendor::OpenMpi => OPEN_MPI,
        };
        look_up(option, &[own, STANDARD])
    }

    /// The tables in which options are looked up, in this order.
    pub fn tables(self) -> [&'static [Row]; 4] {
        match self {
            Vendor::Hydra => [HYDRA, STANDARD, OPEN_MPI, SRUN],
            Vendor::OpenMpi => [OPEN_MPI, STANDARD, HYDRA, SRUN],
        }
    }

    pub fn find(self, option: &str) -> Option<&'static Row> {
        look_up(option, &self.tables())
    }

    pub fn nearest(self, option: &str) -> Option<&'static str> {
        let names = || self.tables().into_iter().flatten().flat_map(|row| row.names).copied().chain(["help"]);
        nearest(undashed(option), names().filter(|name| name.len() > 2))
    }
}

fn look_up(option: &str, tables: &[&'static [Row]]) -> Option<&'static Row> {
    let name = undashed(option);
    tables.iter().copied().flatten().find(|row| row.names.contains(&name))
}

fn undashed(option: &str) -> &str {
    option.strip_prefix("--").or_else(|| option.strip_prefix('-')).unwrap_or(option)
}

/// The options of all programs on a command line, without their values.
fn options(words: &[OsString]) -> impl Iterator<Item = String> {
    words.split(|word| word == ":").flat_map(|words| {
        let mut words = words.iter();
        std::iter::from_fn(move || {
            let word = words.next().filter(|word| word.as_bytes().first() == Some(&b'-'))?;
            let text = word.to_string_lossy();
            let (option, value) = text.split_once('=').map_or((&*text, None), |(option, value)| (option, Some(value)));
            let row = Vendor::Hydra.find(option).or_else(|| Vendor::OpenMpi.find(option));
            let own = || flag::RUN.flags().find(|flag| flag.names.contains(&option));
            let values = match (row.map(|row| row.takes), value) {
                (Some(Takes::One(_)), None) => 1,
                (Some(Takes::Two(..)), None) => 2,
                (None, None) if own().is_some_and(|flag| matches!(flag.takes, wireup_flags::Takes::Word(_))) => 1,
                _ => 0,
            };
            for _ in 0..values {
                words.next();
            }
            Some(option.to_owned())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_options_tell_the_vendor() {
        let of = |line| Vendor::of_options(&words(line));
        assert_eq!(of("-n 4 -genv A 1 ./a -np 3 --mca a b"), Some(Vendor::Hydra));
        assert_eq!(of("-np 4 --mca btl tcp,self ./a"), Some(Vendor::OpenMpi));
        assert_eq!(of("-n 4 ./a"), None);
        assert_eq!(of("--virtual-nodes 2 --mca btl self ./a"), Some(Vendor::OpenMpi));
        assert_eq!(of("-n 1 ./a : -n 2 -x A=1 ./b"), Some(Vendor::OpenMpi));
        assert_eq!((Vendor::of_name("orterun"), Vendor::of_name("mpiexec")), (Some(Vendor::OpenMpi), None));
    }

    #[test]
    fn some_spellings_mean_something_else_to_the_other_vendor() {
        let matters = |line| Vendor::matters(&words(line));
        assert!(matters("-s all ./a") && !matters("-n 4 -wdir /tmp ./a"));
    }
}
