//! `prun` on a virtual machine of PRRTE (`prte`), the standing daemons of Open MPI.
//!
//! Some packages have no `prun` program; `prterun --dvm` is the same code. In PRRTE 3.0 it crashes because, unlike
//! `prun`, it does not open the framework that holds the list of forwarded signals; a preloaded shim
//! (`programs/prun_shim.c`) opens it.
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::case::Case;
use super::launcher::{Kind, Launcher};
use crate::layout::Layout;
use crate::programs::{Program, Scratch};

const DAEMON: &str = "prte";
const CLIENT: &str = "prun";
const CLIENT_BY_ANOTHER_NAME: &str = "prterun";
/// The daemon's message on standard output when all of its nodes are up.
const READY: &str = "DVM ready";

/// `prun` in the folder of one of the launchers that were found, with its version: `ask` calls a program with variables
/// and returns its version.
pub fn beside(found: &[Launcher], ask: impl Fn(&Path, &[(String, String)]) -> Option<String>) -> Option<Launcher> {
    let dirs = found.iter().filter_map(|launcher| launcher.path.parent());
    dirs.filter(|dir| dir.join(DAEMON).exists()).find_map(|dir| {
        let path =
            [CLIENT, CLIENT_BY_ANOTHER_NAME].map(|name| dir.join(name)).into_iter().find(|path| path.exists())?;
        // A package that was moved after it was built must be told where it is.
        let prefix = dir.parent()?.to_string_lossy().into_owned();
        let moved = ["PRTE_PREFIX", "PMIX_PREFIX", "OPAL_PREFIX"].map(|name| (name.to_owned(), prefix.clone()));
        [Vec::new(), moved.to_vec()].into_iter().find_map(|env| {
            let version = ask(&dir.join(DAEMON), &env)?;
            let name = format!("{CLIENT}-{version}");
            Some(Launcher { name, kind: Kind::Prun, version, path: path.clone(), extra: Vec::new(), env })
        })
    })
}

/// The file in which the daemon writes how to reach it.
pub fn uri_file(scratch: &Scratch) -> PathBuf {
    scratch.file("dvm-uri")
}

/// The command line of the daemon.
pub fn machine_argv(launcher: &Launcher, uri: &Path, case: &Case) -> Vec<OsString> {
    let mut argv: Vec<OsString> = vec![launcher.path.with_file_name(DAEMON).into()];
    argv.extend(["--allow-run-as-root", "--report-uri"].map(OsString::from));
    argv.push(uri.into());
    if let Some(remote) = &case.remote {
        let slots: Vec<String> = remote.hosts.iter().map(|host| format!("{host}:{}", case.layout.ppn)).collect();
        let words = ["--host", &slots.join(","), "--prtemca", "plm_ssh_agent", &remote.shell];
        argv.extend(words.map(OsString::from));
        argv.extend(["--prtemca", "plm_ssh_no_tree_spawn", "1"].map(OsString::from));
        // Inside Slurm it would start a step, for which all other launchers had to wait.
        argv.extend(["--prtemca", "plm", "ssh", "--prtemca", "ras", "^slurm"].map(OsString::from));
    }
    argv
}

/// Whether it is ready, according to its output.
pub fn is_ready(told: &str) -> bool {
    told.contains(READY)
}

/// The options before the program.
pub fn options(launcher: &Launcher, scratch: &Scratch, layout: Layout) -> Vec<String> {
    let uri = uri_file(scratch).display().to_string();
    let (size, over) = (layout.job_size().to_string(), ":OVERSUBSCRIBE");
    let words: &[&str] = if needs_shim(launcher) {
        &["--dvm", &format!("uri:file:{uri}"), "-n", &size, "--mapby", over, "--bindto", "none"]
    } else {
        &["--dvm-uri", &format!("file:{uri}"), "-n", &size, "--map-by", over, "--bind-to", "none"]
    };
    ["--allow-run-as-root"].iter().chain(words).map(|word| (*word).to_owned()).collect()
}

/// Additional variables of the client.
pub fn client_env(launcher: &Launcher, scratch: &Scratch) -> Option<(OsString, OsString)> {
    needs_shim(launcher).then(|| ("LD_PRELOAD".into(), scratch.program(Program::PrunShim).into()))
}

fn needs_shim(launcher: &Launcher) -> bool {
    launcher.path.file_name().is_some_and(|name| name == CLIENT_BY_ANOTHER_NAME)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn launcher(path: &Path) -> Launcher {
        Launcher { path: path.into(), ..Launcher::echo() }
    }

    #[test]
    fn prun_is_found_beside_a_launcher_even_if_moved() {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let bin = scratch.file("bin");
        fs::create_dir(&bin).unwrap();
        let found = [launcher(&bin.join("mpirun"))];
        let version = |_: &Path, env: &[(String, String)]| (!env.is_empty()).then(|| "3.0.14".to_owned());
        assert_eq!(beside(&found, version), None);
        for name in [DAEMON, CLIENT_BY_ANOTHER_NAME] {
            fs::write(bin.join(name), "").unwrap();
        }
        let prun = beside(&found, version).unwrap();
        assert_eq!((prun.name.as_str(), prun.kind), ("prun-3.0.14", Kind::Prun));
        assert_eq!(prun.env[0].1, bin.parent().unwrap().to_string_lossy());
        assert!(client_env(&prun, &scratch).is_some());
        fs::write(bin.join(CLIENT), "").unwrap();
        let prun = beside(&found, |_, _| Some("4.0".into())).unwrap();
        assert!(prun.env.is_empty() && client_env(&prun, &scratch).is_none());
    }

    #[test]
    fn daemon_and_client_use_the_same_uri_file() {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let hosts = ["p".to_owned(), "q".to_owned()];
        let case = Case::named("true-2x3", &hosts, "rsh").unwrap();
        let (uri, prun) = (uri_file(&scratch), launcher(Path::new("/x/prterun")));
        let argv: Vec<_> =
            machine_argv(&prun, &uri, &case).into_iter().map(|word| word.into_string().unwrap()).collect();
        let hosts = "--host p:3,q:3 --prtemca plm_ssh_agent rsh --prtemca plm_ssh_no_tree_spawn 1 --prtemca plm ssh \
                     --prtemca ras ^slurm";
        let uri = uri.display();
        assert_eq!(argv.join(" "), format!("/x/prte --allow-run-as-root --report-uri {uri} {hosts}"));
        let client = options(&prun, &scratch, case.layout).join(" ");
        assert!(client.contains(&format!("--dvm uri:file:{uri} -n 6 --mapby :OVERSUBSCRIBE")), "{client}");
    }
}
