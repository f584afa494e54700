//! What runs in the background while the cases of a benchmark are timed: a session of wireup, or a virtual machine of
//! PRRTE.
//!
//! It is started before the first round and ended after the last one, whatever happens in between; what it leaves then
//! counts as left behind.
use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, getpid};

use super::case::Case;
use super::launcher::{Kind, Launcher, dvm_uri, session_name, words};
use super::peers::PRTE;
use crate::bench::Bench;
use crate::command::{Failure, Invocation, Running, wrong};
use crate::leftovers::{self, Interrupt};

/// How often its start is checked; no figure is derived from it (chosen).
const GLANCE: Duration = Duration::from_millis(5);
/// Time limit for ending it (chosen).
const DOWN_LIMIT: Duration = Duration::from_secs(30);
/// The message of PRRTE's daemon on standard output when all of its nodes are up.
const READY: &str = "DVM ready";

pub struct RunningSession {
    /// How long it took to start.
    pub up_s: f64,
    /// Processes of it that are our children.
    pub pids: Vec<Pid>,
    /// What ends a session of wireup.
    down: Option<Invocation>,
    /// The virtual machine, which is ended when it is dropped.
    machine: Option<Running>,
}

impl RunningSession {
    /// Starts what `launcher` needs for `case`, if anything.
    ///
    /// # Errors
    /// It did not start; nothing of it is left.
    pub fn raise(
        launcher: &Launcher,
        case: &Case,
        bench: &Bench,
        up_args: &[String],
    ) -> Result<Option<RunningSession>, Failure> {
        let before = leftovers::children_of(getpid());
        let begin = Instant::now();
        let command = |argv: Vec<OsString>, limit| Invocation {
            env: launcher.env_of_launcher(&bench.scratch),
            stdout: None,
            stderr: bench.scratch.file("session-stderr"),
            ..bench.command(argv, limit)
        };
        let path = || vec![launcher.path.clone().into()];
        let mut session = RunningSession { up_s: 0.0, pids: Vec::new(), down: None, machine: None };
        match launcher.kind {
            Kind::Session => {
                let down = words(&format!("down --kill --session {}", session_name()));
                session.down = Some(command([path(), down].concat(), DOWN_LIMIT));
                let more = up_args.iter().map(OsString::from).collect();
                let up = command([path(), words(&up_words(case)), more].concat(), case.limit);
                up.run(&bench.interrupt).map_err(|failure| wrong(format!("wireup up: {failure}")))?;
            }
            Kind::Prun => {
                let (told, uri) = (bench.scratch.file("dvm-stdout"), dvm_uri(&bench.scratch));
                let _ = fs::remove_file(&uri);
                let argv = prte(launcher, case, uri.clone().into());
                let daemon = Invocation { stdout: Some(told.clone()), ..command(argv, case.limit) };
                let mut running = daemon.start(&bench.interrupt)?;
                while !(fs::read_to_string(&told).unwrap_or_default().contains(READY) && uri.exists()) {
                    if running.ends_within(GLANCE)? {
                        return Err(running.failure());
                    }
                }
                session.machine = Some(running);
            }
            _ => return Ok(None),
        }
        session.up_s = begin.elapsed().as_secs_f64();
        session.pids = leftovers::children_of(getpid()).into_iter().filter(|pid| !before.contains(pid)).collect();
        Ok(Some(session))
    }

    /// Ends it.
    ///
    /// # Errors
    /// Why it did not end in order.
    pub fn end(mut self) -> Result<(), Failure> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), Failure> {
        drop(self.machine.take());
        // Also after an interrupt, which is the purpose of this.
        self.down.take().map_or(Ok(()), |down| down.run(&Interrupt::default()).map(drop))
    }
}

impl Drop for RunningSession {
    fn drop(&mut self) {
        // A caller that needs the result calls `end`.
        let _ = self.take_down();
    }
}

fn up_words(case: &Case) -> String {
    let nodes = match &case.remote {
        Some(remote) => format!("--hosts {} --remote-shell {}", remote.list(), remote.shell),
        None => format!("--virtual-nodes {}", case.layout.node_count),
    };
    format!("up --name {} {nodes}", session_name())
}

/// The command line of PRRTE's daemon.
fn prte(launcher: &Launcher, case: &Case, uri: OsString) -> Vec<OsString> {
    // Inside Slurm it would start a step, for which all other launchers had to wait.
    let hosts = case.remote.as_ref().map(|remote| {
        let slots = remote.slots(case.layout.ppn);
        format!(
            "--host {slots} --prtemca plm_ssh_agent {} --prtemca plm_ssh_no_tree_spawn 1 --prtemca plm ssh \
             --prtemca ras ^slurm",
            remote.shell
        )
    });
    let begin = vec![launcher.path.with_file_name(PRTE).into()];
    [begin, words("--allow-run-as-root --report-uri"), vec![uri], words(&hosts.unwrap_or_default())].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_started_on_the_nodes_of_their_case() {
        let (name, hosts) = (session_name(), ["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        let here = Case::named("true-4x2", &[], "rsh").unwrap();
        assert_eq!(up_words(&here), format!("up --name {name} --virtual-nodes 4"));
        let there = Case::named("true-2x3", &hosts, "rsh").unwrap();
        assert_eq!(up_words(&there), format!("up --name {name} --hosts a,b --remote-shell rsh"));
        let launcher = Launcher { path: "/x/prterun".into(), ..Launcher::new("x", Kind::Prun) };
        let argv = prte(&launcher, &there, "URI".into());
        assert_eq!(
            argv.join(std::ffi::OsStr::new(" ")),
            "/x/prte --allow-run-as-root --report-uri URI --host a:3,b:3 --prtemca plm_ssh_agent rsh --prtemca \
             plm_ssh_no_tree_spawn 1 --prtemca plm ssh --prtemca ras ^slurm"
        );
    }
}
