//! The test programs: C sources compiled against each peer, into the target directory.
//!
//! A program is compiled again only when its source is newer. Safe to call from several processes at once: the
//! result is renamed into place.

use crate::step::{Result, run_quietly, step};
use crate::{layout, libraries, peers};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// What a program is linked to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// The C library alone.
    Plain,
    /// Slurm's `libpmi2.so.0`.
    Pmi2,
    /// Our headers and libraries.
    Libpmi,
    /// Slurm's header and `libpmi2.so.0`, sources as of [`Flavour::Libpmi`].
    LibpmiSlurm,
    /// Our headers and libraries; the programs of the documentation.
    Example,
    /// Debian's MPICH 4.
    Mpich4,
    /// The PyPI package `mpich`.
    Mpich5,
    /// The PyPI package `impi-rt`.
    Intel,
}

/// The first needs MPI 4.
const MPI: [&str; 8] = ["sessions", "hello", "initfin", "ring", "allreduce", "abort", "earlyexit", "noinit"];

impl Flavour {
    pub const ALL: [Self; 8] = [
        Self::Plain,
        Self::Pmi2,
        Self::Libpmi,
        Self::LibpmiSlurm,
        Self::Example,
        Self::Mpich4,
        Self::Mpich5,
        Self::Intel,
    ];

    /// Folder of its compiled programs.
    fn folder(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Pmi2 => "pmi2",
            Self::Libpmi => "libpmi",
            Self::LibpmiSlurm => "libpmi-slurm",
            Self::Example => "examples",
            Self::Mpich4 => "mpich4",
            Self::Mpich5 => "mpich5",
            Self::Intel => "intel",
        }
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["spew", "holder", "crash", "badpmi", "limits", "lazy"],
            Self::Pmi2 => &["attrs"],
            Self::Libpmi => &[
                "same",
                "extensions",
                "outstanding",
                "store",
                "lengths",
                "rounds",
                "sealed",
                "traffic",
                "endless",
                "pmi1",
                "groups",
                "left",
                "stop",
                "gone",
            ],
            Self::LibpmiSlurm => &["same"],
            Self::Example => &["startup", "anywhere"],
            Self::Mpich4 | Self::Intel => &MPI[1..],
            Self::Mpich5 => &MPI,
        }
    }

    /// Folder of its sources.
    fn source_folder(self) -> PathBuf {
        match self {
            Self::Plain => layout::sources().join("plain"),
            Self::Pmi2 => layout::sources().join("pmi2"),
            Self::Libpmi | Self::LibpmiSlurm => layout::sources().join("libpmi"),
            Self::Example => layout::root().join("docs/examples"),
            Self::Mpich4 | Self::Mpich5 | Self::Intel => layout::sources().join("mpi"),
        }
    }

    /// Why programs of this flavour cannot be made on this machine, or nothing.
    pub fn missing(self) -> Option<String> {
        let needed = match self {
            Self::Plain | Self::Libpmi | Self::Example => PathBuf::from("/usr/bin/cc"),
            Self::Pmi2 | Self::LibpmiSlurm => PathBuf::from("/usr/include/slurm/pmi2.h"),
            Self::Mpich4 => PathBuf::from("/usr/bin/mpicc.mpich"),
            Self::Mpich5 => layout::mpich5().join("complete"),
            Self::Intel => layout::intel().join("complete"),
        };
        (!needed.exists()).then(|| format!("{self:?} is not installed (no {})", needed.display()))
    }

    fn compiler(self) -> Command {
        let mut cc = Command::new(if self == Self::Mpich4 { "mpicc.mpich" } else { "cc" });
        cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
        cc
    }

    /// What stands behind the source on the compiler's line.
    fn link(self, cc: &mut Command) -> Result {
        match self {
            Self::Plain | Self::Mpich4 => {}
            Self::Pmi2 | Self::LibpmiSlurm => {
                cc.arg("-lpmi2");
            }
            Self::Libpmi | Self::Example => {
                cc.arg("-DOWN_HEADERS").arg("-I").arg(layout::root().join("include"));
                cc.arg("-L").arg(libraries::build()?).args(["-Wl,--as-needed", "-lpmi", "-lpmi2"]);
            }
            Self::Mpich5 => link_mpi(cc, &layout::mpich5().join("lib")),
            Self::Intel => link_mpi(cc, &layout::intel().join("lib")),
        }
        Ok(())
    }
}

/// Links to the `libmpi.so.12` in `lib` for good; both wheels share MPICH's binary interface, one brings headers.
fn link_mpi(cc: &mut Command, lib: &Path) {
    cc.arg("-I").arg(layout::mpich5().join("include")).arg(lib.join("libmpi.so.12"));
    cc.arg(format!("-Wl,-rpath,{},--disable-new-dtags", lib.display()));
}

/// Compiles every program whose flavour is installed.
///
/// # Errors
/// A program does not compile.
pub fn build_all() -> Result {
    let wanted = Flavour::ALL.into_iter().filter(|flavour| flavour.missing().is_none());
    let stale: Vec<(Flavour, &str)> = wanted
        .flat_map(|flavour| flavour.names().iter().map(move |name| (flavour, *name)))
        .filter(|(flavour, name)| !fresh(&source(*flavour, name), &binary(*flavour, name)))
        .collect();
    if stale.is_empty() {
        return Ok(());
    }
    step(format!("{} test programs", stale.len()), || {
        stale.iter().try_for_each(|(flavour, name)| build(*flavour, name).map(drop))
    })
}

/// The compiled program `name`; compiled now if its source is newer.
///
/// # Errors
/// The flavour is not installed, or the program does not compile.
pub fn build(flavour: Flavour, name: &str) -> Result<PathBuf> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    if let Some(why) = flavour.missing() {
        return Err(why);
    }
    let (source, binary) = (source(flavour, name), binary(flavour, name));
    if fresh(&source, &binary) {
        return Ok(binary);
    }
    // `binary` lies in a folder by construction.
    let folder = binary.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|e| format!("create {}: {e}", folder.display()))?;
    let unfinished = folder.join(format!(".{name}.{}.{}", process::id(), SERIAL.fetch_add(1, Ordering::Relaxed)));
    let mut cc = flavour.compiler();
    cc.arg("-o").arg(&unfinished).arg(&source);
    flavour.link(&mut cc)?;
    run_quietly(&mut cc)?;
    fs::rename(&unfinished, &binary).map_err(|e| format!("rename to {}: {e}", binary.display()))?;
    Ok(binary)
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
        Flavour::Plain
        | Flavour::Pmi2
        | Flavour::Libpmi
        | Flavour::LibpmiSlurm
        | Flavour::Example
        | Flavour::Mpich4
        | Flavour::Mpich5 => vec![],
    }
}

/// The interpreter that has mpi4py, on MPICH 5.
///
/// # Errors
/// It is not installed.
pub fn mpi4py() -> Result<PathBuf> {
    match Flavour::Mpich5.missing() {
        None => Ok(peers::python()),
        Some(why) => Err(why),
    }
}

fn source(flavour: Flavour, name: &str) -> PathBuf {
    flavour.source_folder().join(name).with_extension("c")
}

fn binary(flavour: Flavour, name: &str) -> PathBuf {
    layout::target().join("programs").join(flavour.folder()).join(name)
}

fn fresh(source: &Path, binary: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified());
    matches!((time(source), time(binary)), (Ok(source), Ok(binary)) if source <= binary)
}

/// Whether a peer that is not there is a failure (`xtask test` sets it) and not a loud skip.
pub fn required() -> bool {
    env::var_os("WIREUP_REQUIRE_PEERS").is_some_and(|value| value == "1")
}
