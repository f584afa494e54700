//! The background processes of a benchmark while its cases are timed: a session of wireup, or a virtual machine of
//! PRRTE.
//!
//! The session or virtual machine is started before the first round and ended after the last round, whatever happens in
//! between; processes that exist after its end count as left behind.
use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

use super::case::Case;
use super::launcher::{Kind, Launcher, dvm_uri, session_name, words};
use super::peers::PRTE;
use crate::bench::Bench;
use crate::command::{Failure, Invocation, Running, wrong};
use crate::leftovers::Interrupt;

/// Interval at which the start of PRRTE's virtual machine is checked (chosen).
const GLANCE: Duration = Duration::from_millis(5);
/// Time limit for ending a session or virtual machine (chosen).
const DOWN_LIMIT: Duration = Duration::from_secs(30);
/// The message of PRRTE's daemon on standard output when all of its nodes are up.
const READY: &str = "DVM ready";

pub struct RunningSession {
    /// Time that the session or virtual machine took to start (s).
    pub up_s: f64,
    /// The command that ends a session of wireup; `None` for a virtual machine of PRRTE.
    down: Option<Invocation>,
    /// PRRTE's virtual machine, which is ended when this value is dropped.
    machine: Option<Running>,
}

impl RunningSession {
    /// Starts the session or virtual machine that `launcher` needs for `case`, if any.
    ///
    /// # Errors
    /// The session did not start; nothing of it is left.
    pub fn raise(
        launcher: &Launcher,
        case: &Case,
        bench: &Bench,
        up_args: &[String],
    ) -> Result<Option<RunningSession>, Failure> {
        match launcher.kind {
            Kind::Session => {
                let words = words(&up_words(case)).into_iter().chain(up_args.iter().map(OsString::from));
                RunningSession::up(bench, &session_name(), words.collect(), case.limit).map(Some)
            }
            Kind::Prun => RunningSession::virtual_machine(launcher, case, bench).map(Some),
            _ => Ok(None),
        }
    }

    /// Starts a session of wireup with this name on the nodes that the flags `words` choose.
    ///
    /// # Errors
    /// The session did not start; nothing of it is left.
    pub fn up(bench: &Bench, name: &str, words: Vec<OsString>, limit: Duration) -> Result<RunningSession, Failure> {
        let wireup = bench.wireup()?;
        let command = |words: &[&str], limit| {
            let argv =
                std::iter::once(wireup.clone().into()).chain(words.iter().map(OsString::from)).chain([name.into()]);
            quiet(bench, argv.collect(), limit)
        };
        let (mut up, down) =
            (command(&["up", "--session"], limit), command(&["down", "--kill", "--session"], DOWN_LIMIT));
        up.argv.extend(words);
        let begin = Instant::now();
        let mut session = RunningSession { up_s: 0.0, down: Some(down), machine: None };
        up.run(&bench.interrupt).map_err(|failure| match failure {
            Failure::Interrupted => failure,
            failure => wrong(format!("wireup up: {failure}")),
        })?;
        session.up_s = begin.elapsed().as_secs_f64();
        Ok(session)
    }

    fn virtual_machine(launcher: &Launcher, case: &Case, bench: &Bench) -> Result<RunningSession, Failure> {
        let (told, uri) = (bench.scratch.file("dvm-stdout"), dvm_uri(&bench.scratch));
        let _ = fs::remove_file(&uri);
        let env = launcher.env_of_launcher(&bench.scratch);
        let argv = prte(launcher, case, uri.clone().into());
        let daemon = Invocation { env, stdout: Some(told.clone()), ..quiet(bench, argv, case.limit) };
        let begin = Instant::now();
        let mut running = daemon.start(&bench.interrupt)?;
        while !(fs::read_to_string(&told).unwrap_or_default().contains(READY) && uri.exists()) {
            if running.ends_within(GLANCE)? {
                return Err(running.failure());
            }
        }
        Ok(RunningSession { up_s: begin.elapsed().as_secs_f64(), down: None, machine: Some(running) })
    }

    /// Ends the session or virtual machine.
    pub fn end(mut self) -> Result<(), Failure> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), Failure> {
        drop(self.machine.take());
        // Runs with an interrupt flag of its own, because the session must be ended after an interrupt, too.
        self.down.take().map_or(Ok(()), |down| down.run(&Interrupt::default()).map(drop))
    }
}

impl Drop for RunningSession {
    fn drop(&mut self) {
        // The result is ignored: a caller that needs it calls `end`.
        let _ = self.take_down();
    }
}

/// A command whose standard output is discarded.
fn quiet(bench: &Bench, argv: Vec<OsString>, limit: Duration) -> Invocation {
    Invocation { stdout: None, stderr: bench.scratch.file("session-stderr"), ..bench.command(argv, limit) }
}

/// The flags of `wireup up` that choose the nodes of the case.
fn up_words(case: &Case) -> String {
    match &case.remote {
        Some(remote) => format!("--hosts {} --remote-shell {}", remote.list(), remote.shell),
        None => format!("--virtual-nodes {}", case.layout.node_count),
    }
}

/// The command line of PRRTE's daemon.
fn prte(launcher: &Launcher, case: &Case, uri: OsString) -> Vec<OsString> {
    // In a Slurm allocation PRRTE would start a step by itself, for which all other launchers would have to wait.
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
