//! The launchers of other projects on this machine: found by name, identified by their version text.
//!
//! The last installation decides which launcher `mpirun` and `mpiexec` are, so the name proves nothing: every candidate
//! is run with `--version` and identified by its answer.
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::launcher::{Kind, Launcher, PEERS, PeerKind};
use crate::bench::Bench;

const CANDIDATES: [&str; 5] = ["mpiexec.hydra", "mpiexec", "mpirun", "prterun", "srun"];
/// Name of PRRTE's daemon, then the two names of PRRTE's client.
pub const PRTE: &str = "prte";
pub const PRUN: &str = "prun";
pub const PRTERUN: &str = "prterun";
/// Folder with installed launchers, below the current directory: `target/peers/bin`, `target/peers/NAME/bin`.
const PEERS_DIR: &str = "target/peers";
/// Time limit for printing the version; a launcher that takes longer is not run again (chosen).
const VERSION_LIMIT: Duration = Duration::from_secs(10);

/// All launchers in `PATH` and `target/peers`, and those that the command line names (`named`: name, path). Launchers
/// that are missing are reported to the samples.
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
        // The path keeps its name, since wrappers check the name by which they are called; only the resolved file is
        // compared.
        if !seen.insert(real) && name.is_none() {
            continue;
        }
        let known = || {
            let answer = ask(&path, "--version", &[], bench).map_err(|why| format!("--version: {why}"))?;
            let (kind, version) = identify(&answer).ok_or("not a known launcher")?;
            match kind.probe {
                Some((question, why)) if ask(&path, question, &[], bench).is_err() => Err(why.to_owned()),
                _ => Ok((kind, version)),
            }
        };
        let (kind, version) = match known() {
            Ok(known) => known,
            Err(why) => {
                bench.absent(&path.display().to_string(), why);
                continue;
            }
        };
        let name = name.unwrap_or_else(|| format!("{}-{version}", kind.name));
        if !found.iter().any(|peer| peer.name == name) {
            found.push(Launcher { version, path, ..Launcher::new(&name, Kind::Peer(kind)) });
        }
    }
    for kind in PEERS.iter().filter(|kind| !found.iter().any(|peer| peer.is_peer(kind.name))) {
        bench.absent(kind.name, "not installed");
    }
    let version =
        |path: &Path, env: &[(OsString, OsString)]| Some(identify(&ask(path, "--version", env, bench).ok()?)?.1);
    match prun(&found, version) {
        Some(prun) => found.push(prun),
        None => bench.absent(PRUN, "no prte beside a launcher"),
    }
    found
}

/// Finds `prun` in the folder of one of the launchers that were found. `ask` runs a program with variables and returns
/// its version.
fn prun(found: &[Launcher], ask: impl Fn(&Path, &[(OsString, OsString)]) -> Option<String>) -> Option<Launcher> {
    let dirs = found.iter().filter_map(|launcher| launcher.path.parent());
    dirs.filter(|dir| dir.join(PRTE).exists()).find_map(|dir| {
        let path = [PRUN, PRTERUN].map(|name| dir.join(name)).into_iter().find(|path| path.exists())?;
        // A package that was moved after it was built needs these variables to find its files.
        let prefix = dir.parent()?.as_os_str();
        let moved = ["PRTE_PREFIX", "PMIX_PREFIX", "OPAL_PREFIX"].map(|name| (name.into(), prefix.to_owned()));
        [Vec::new(), moved.to_vec()].into_iter().find_map(|env| {
            let version = ask(&dir.join(PRTE), &env)?;
            let name = format!("{PRUN}-{version}");
            Some(Launcher { version, path: path.clone(), env, ..Launcher::new(&name, Kind::Prun) })
        })
    })
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

/// Runs a launcher with the flag `question`; returns the launcher's output.
pub fn ask(path: &Path, question: &str, env: &[(OsString, OsString)], bench: &Bench) -> Result<String, String> {
    let mut command = bench.command(vec![path.into(), OsString::from(question)], VERSION_LIMIT);
    command.env = env.to_vec();
    command.run(&bench.interrupt).map_err(|e| e.to_string())?;
    let text = fs::read(bench.scratch.file("stdout")).map_err(|e| e.to_string())?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Identifies a launcher by its answer to `--version`: returns its kind and version.
fn identify(answer: &str) -> Option<(PeerKind, String)> {
    let after = |mark: &str| {
        let rest = answer.split_once(mark)?.1.trim_start();
        let version: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || ".-".contains(*c)).collect();
        (!version.is_empty()).then_some(version)
    };
    PEERS.into_iter().find_map(|kind| Some((kind, kind.marks.iter().find_map(|mark| after(mark))?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Scratch;

    #[test]
    fn launchers_are_identified_by_their_version_output() {
        let hydra = "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: Thu\n";
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 20260929 (id: 1821d9b)\n";
        for (answer, expected) in [
            (hydra, Some(("hydra", "4.0.2"))),
            (intel, Some(("intel", "2021.19.0"))),
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", Some(("open-mpi", "4.1.4"))),
            ("mpiexec (OpenRTE) 4.1.4\n\nReport bugs", Some(("open-mpi", "4.1.4"))),
            ("prterun (PRRTE) 3.0.2\n", Some(("prrte", "3.0.2"))),
            ("slurm-wlm 22.05.8\n", Some(("srun", "22.05.8"))),
            ("slurm 22.05.8\n", Some(("srun", "22.05.8"))),
            ("mpiexec, version unknown", None),
            ("", None),
        ] {
            let found = identify(answer);
            let found = found.as_ref().map(|(kind, version)| (kind.name, version.as_str()));
            assert_eq!(found, expected, "{answer}");
        }
        let major = |version: &str| Launcher { version: version.into(), ..Launcher::new("x", Kind::Bare) }.major();
        assert_eq!((major("5.0.2"), major("2021.19.0"), major("x.1")), (Some(5), Some(2021), None));
    }

    #[test]
    fn prun_is_found_beside_a_launcher_even_if_moved() {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let bin = scratch.file("bin");
        fs::create_dir(&bin).unwrap();
        let found = [Launcher { path: bin.join("mpirun"), ..Launcher::new("x", Kind::Bare) }];
        let version = |_: &Path, env: &[(OsString, OsString)]| (!env.is_empty()).then(|| "3.0.14".to_owned());
        assert_eq!(prun(&found, version), None);
        for name in [PRTE, PRTERUN] {
            fs::write(bin.join(name), "").unwrap();
        }
        let moved = prun(&found, version).unwrap();
        assert_eq!((moved.name.as_str(), moved.kind), ("prun-3.0.14", Kind::Prun));
        assert_eq!(moved.env[0].1, bin.parent().unwrap().as_os_str());
        assert_eq!(moved.env_of_launcher(&scratch).len(), 4, "with the shim");
        fs::write(bin.join(PRUN), "").unwrap();
        assert!(prun(&found, |_, _| Some("4.0".into())).unwrap().env_of_launcher(&scratch).is_empty());
    }
}
