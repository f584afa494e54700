//! The other launchers on this machine: found by name, identified by their version text.
//!
//! The last installation decides which launcher `mpirun` and `mpiexec` are, so the name proves nothing: every candidate
//! is run with `--version` and identified by its answer.
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::case::{Pmi, Remote};
use super::launcher::{Kind, Launcher};
use super::prun;
use crate::bench::Bench;
use crate::layout::Layout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    Hydra,
    Intel,
    OpenMpi,
    Prrte,
    Srun,
    Flux,
}

const CANDIDATES: [&str; 6] = ["mpiexec.hydra", "mpiexec", "mpirun", "prterun", "srun", "flux"];
/// Folders below the current directory: `target/peers/bin`, `target/peers/NAME/bin`.
const PEERS_DIR: &str = "target/peers";
/// A launcher that takes longer to print its version is not run again (chosen).
const VERSION_LIMIT: Duration = Duration::from_secs(10);
/// srun answers this only if Slurm is configured; the program may be installed without a configuration.
const SRUN_PROBE: &str = "--mpi=list";
/// flux answers this only if there is a Flux instance.
const FLUX_PROBE: &str = "uptime";

impl PeerKind {
    pub const ALL: [PeerKind; 6] =
        [PeerKind::Hydra, PeerKind::Intel, PeerKind::OpenMpi, PeerKind::Prrte, PeerKind::Srun, PeerKind::Flux];

    pub fn name(self) -> &'static str {
        match self {
            PeerKind::Hydra => "hydra",
            PeerKind::Intel => "intel",
            PeerKind::OpenMpi => "open-mpi",
            PeerKind::Prrte => "prrte",
            PeerKind::Srun => "srun",
            PeerKind::Flux => "flux",
        }
    }

    /// Flux is timed only by `bench jobs`: its large jobs would wait for more cores than this machine has.
    pub fn speaks(self, pmi: Pmi) -> bool {
        match pmi {
            Pmi::None => self != PeerKind::Flux,
            Pmi::Simple => matches!(self, PeerKind::Hydra | PeerKind::Intel | PeerKind::Srun),
            Pmi::Pmix => matches!(self, PeerKind::OpenMpi | PeerKind::Prrte | PeerKind::Srun),
        }
    }

    /// Whether its options for hosts and remote shells are known here.
    pub fn knows_hosts(self) -> bool {
        matches!(self, PeerKind::Hydra | PeerKind::Intel | PeerKind::Srun | PeerKind::OpenMpi)
    }

    /// Its options for `ppn` ranks on each of these hosts, by this remote shell if it uses one. Only for launchers that
    /// know hosts.
    pub fn options_on_hosts(self, version: &str, remote: &Remote, layout: Layout, pmi: Pmi) -> Vec<String> {
        let (nodes, ppn, list) = (layout.node_count.to_string(), layout.ppn.to_string(), remote.list());
        let slots: Vec<String> = remote.hosts.iter().map(|host| format!("{host}:{ppn}")).collect();
        let slots = slots.join(",");
        let mut options = self.options(version, layout.job_size(), pmi);
        let further: &[&str] = match self {
            PeerKind::OpenMpi if is_since_5(version) => &[
                "--host", &slots, "--prtemca", "plm_ssh_agent", &remote.shell, "--prtemca", "plm_ssh_no_tree_spawn",
                "1",
            ],
            PeerKind::OpenMpi => {
                &["--host", &slots, "--mca", "plm_rsh_agent", &remote.shell, "--mca", "plm_rsh_no_tree_spawn", "1"]
            }
            PeerKind::Srun => &["-N", &nodes, "--ntasks-per-node", &ppn, "--nodelist", &list],
            _ => &["-hosts", &list, "-ppn", &ppn, "-launcher", "ssh", "-launcher-exec", &remote.shell],
        };
        options.extend(further.iter().map(|word| (*word).to_owned()));
        options
    }

    /// Its options for this many ranks on this machine, whatever the number of cores, with the PMI that they need.
    pub fn options(self, version: &str, job_size: u32, pmi: Pmi) -> Vec<String> {
        let further: &[&str] = match self {
            PeerKind::Hydra | PeerKind::Intel | PeerKind::Flux => &[],
            PeerKind::OpenMpi if is_since_5(version) => {
                &["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--allow-run-as-root"]
            }
            PeerKind::OpenMpi => &["--oversubscribe", "--bind-to", "none", "--allow-run-as-root"],
            PeerKind::Prrte => &["--map-by", ":OVERSUBSCRIBE", "--allow-run-as-root"],
            PeerKind::Srun if pmi == Pmi::Simple => &["--overcommit", "--mpi=pmi2"],
            PeerKind::Srun if pmi == Pmi::Pmix => &["--overcommit", "--mpi=pmix"],
            PeerKind::Srun => &["--overcommit", "--mpi=none"],
        };
        let mut options = vec!["-n".to_owned(), job_size.to_string()];
        if self == PeerKind::Flux {
            options.insert(0, "run".into());
        }
        options.extend(further.iter().map(|s| (*s).to_owned()));
        options
    }
}

fn is_since_5(version: &str) -> bool {
    major(version).is_some_and(|major| major >= 5)
}

/// All peers in `PATH` and `target/peers`, and those in `named` from the command line (name, path). What is missing is
/// told to the samples.
pub fn find(named: &[(String, PathBuf)], bench: &Bench) -> Vec<Launcher> {
    let mut found: Vec<Launcher> = Vec::new();
    let mut seen = BTreeSet::new();
    let searched = search_dirs().into_iter().flat_map(|dir| CANDIDATES.map(|name| (None, dir.join(name))));
    let named = named.iter().map(|(name, path)| (Some(name.clone()), path.clone()));
    for (name, path) in named.chain(searched) {
        let Ok(real) = fs::canonicalize(&path) else {
            if let Some(name) = name {
                bench.absent(&name, format!("{} was not found", path.display()));
            }
            continue;
        };
        // Wrappers check the name by which they are called, so the path keeps its name and only the resolved file is
        // compared.
        if !seen.insert(real) && name.is_none() {
            continue;
        }
        let refuse = |why: &str| bench.absent(&path.display().to_string(), why);
        match ask(&path, "--version", &[], bench).as_deref().map(identify) {
            Ok(Some((PeerKind::Srun, _))) if ask(&path, SRUN_PROBE, &[], bench).is_err() => {
                refuse("no Slurm to run jobs")
            }
            Ok(Some((PeerKind::Flux, _))) if ask(&path, FLUX_PROBE, &[], bench).is_err() => {
                refuse("no instance to run jobs; flux start makes one");
            }
            Ok(Some((kind, version))) => {
                let name = name.unwrap_or_else(|| format!("{}-{version}", kind.name()));
                if !found.iter().any(|peer| peer.name == name) {
                    let kind = Kind::Peer(kind);
                    found.push(Launcher { name, kind, version, path, extra: Vec::new(), env: Vec::new() });
                }
            }
            Ok(None) => refuse("not a known launcher"),
            Err(why) => refuse(&format!("--version: {why}")),
        }
    }
    for kind in PeerKind::ALL {
        if !found.iter().any(|peer| peer.kind == Kind::Peer(kind)) {
            bench.absent(kind.name(), "not installed");
        }
    }
    let version = |path: &Path, env: &[(String, String)]| {
        identify(&ask(path, "--version", env, bench).ok()?).map(|(_, version)| version)
    };
    match prun::beside(&found, version) {
        Some(prun) => found.push(prun),
        None => bench.absent("prun", "no prte beside a launcher"),
    }
    found
}

fn search_dirs() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    dirs.push(Path::new(PEERS_DIR).join("bin"));
    let mut below: Vec<PathBuf> =
        fs::read_dir(PEERS_DIR).into_iter().flatten().flatten().map(|entry| entry.path().join("bin")).collect();
    below.sort();
    dirs.extend(below);
    dirs.into_iter().filter_map(|dir| std::path::absolute(dir).ok()).collect()
}

/// A launcher's answer to a flag.
pub fn ask(path: &Path, question: &str, env: &[(String, String)], bench: &Bench) -> Result<String, String> {
    let mut command = bench.command(vec![path.into(), OsString::from(question)], VERSION_LIMIT);
    command.env = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
    command.run(&bench.interrupt).map_err(|e| e.to_string())?;
    let text = fs::read(bench.scratch.file("stdout")).map_err(|e| e.to_string())?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Kind and version, from the answer to `--version`.
fn identify(answer: &str) -> Option<(PeerKind, String)> {
    let after = |mark: &str| {
        let rest = answer.split_once(mark)?.1.trim_start();
        let version: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || ".-".contains(*c)).collect();
        (!version.is_empty()).then_some(version)
    };
    // Intel's launcher is a Hydra too, so it is tested first.
    if answer.contains("Intel(R) MPI Library") {
        return after("Version ").map(|v| (PeerKind::Intel, v));
    }
    if answer.contains("HYDRA build details") {
        return after("Version:").map(|v| (PeerKind::Hydra, v));
    }
    let marks = [
        ("(Open MPI) ", PeerKind::OpenMpi),
        // Version 4, called as `mpiexec`.
        ("(OpenRTE) ", PeerKind::OpenMpi),
        ("(PRRTE) ", PeerKind::Prrte),
        ("slurm-wlm ", PeerKind::Srun),
        ("slurm ", PeerKind::Srun),
        ("libflux-core:", PeerKind::Flux),
    ];
    marks.into_iter().find_map(|(mark, kind)| Some((kind, after(mark)?)))
}

/// The number before the first point.
pub fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_identified_by_their_version_output() {
        let hydra = "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: Thu\n";
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 20260929 (id: 1821d9b)\n";
        let cases = [
            (hydra, Some((PeerKind::Hydra, "4.0.2"))),
            (intel, Some((PeerKind::Intel, "2021.19.0"))),
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", Some((PeerKind::OpenMpi, "4.1.4"))),
            ("mpiexec (OpenRTE) 4.1.4\n\nReport bugs", Some((PeerKind::OpenMpi, "4.1.4"))),
            ("prterun (PRRTE) 3.0.2\n", Some((PeerKind::Prrte, "3.0.2"))),
            ("slurm-wlm 22.05.8\n", Some((PeerKind::Srun, "22.05.8"))),
            ("slurm 22.05.8\n", Some((PeerKind::Srun, "22.05.8"))),
            ("commands:    \t\t0.45.0\nlibflux-core:\t\t0.45.0\n", Some((PeerKind::Flux, "0.45.0"))),
            ("mpiexec, version unknown", None),
            ("", None),
        ];
        for (answer, expected) in cases {
            assert_eq!(identify(answer), expected.map(|(k, v)| (k, v.to_owned())), "{answer}");
        }
    }

    #[test]
    fn the_major_version_is_the_number_before_the_point() {
        assert_eq!((major("5.0.2"), major("2021.19.0"), major("x.1")), (Some(5), Some(2021), None));
    }
}
