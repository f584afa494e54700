//! What runs in the background while the cases of a benchmark are timed: a session of wireup, or a virtual machine of
//! PRRTE.
//!
//! It is started before the first round and ended after the last one, whatever happens in between; what it leaves then
//! counts as left behind.
use std::ffi::OsString;
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, getpid};

use super::case::Case;
use super::launcher::{Kind, Launcher};
use super::prun;
use crate::bench::Bench;
use crate::command::{self, Failure, Invocation};
use crate::leftovers::{self, Interrupt};

/// How often its start is checked; no figure is derived from it (chosen).
const GLANCE: Duration = Duration::from_millis(5);
/// Time limit for ending it (chosen).
const DOWN_LIMIT: Duration = Duration::from_secs(30);

pub struct RunningSession {
    /// How long it took to start.
    pub up_s: f64,
    /// Its processes that are our children.
    pub pids: Vec<Pid>,
    end: End,
}

enum End {
    /// Ended by a command.
    Session(Box<Invocation>),
    /// Ended by a signal.
    Machine(Child),
    Ended,
}

/// A name unique to this benchmark, so that benchmarks of the same user do not collide.
pub fn session_name() -> String {
    format!("bench-{}", std::process::id())
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
        let end = match launcher.kind {
            Kind::Session => session(launcher, case, bench, up_args)?,
            Kind::Prun => End::Machine(machine(launcher, case, bench)?),
            _ => return Ok(None),
        };
        let up_s = begin.elapsed().as_secs_f64();
        let pids = leftovers::children_of(getpid()).into_iter().filter(|pid| !before.contains(pid)).collect();
        Ok(Some(RunningSession { up_s, pids, end }))
    }

    /// Ends it.
    ///
    /// # Errors
    /// Why it did not end in order.
    pub fn end(mut self) -> Result<(), Failure> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), Failure> {
        match std::mem::replace(&mut self.end, End::Ended) {
            // Also after an interrupt, which is the purpose of this.
            End::Session(down) => down.run(&Interrupt::default()).map(drop),
            End::Machine(mut child) => {
                command::end(&mut child);
                Ok(())
            }
            End::Ended => Ok(()),
        }
    }
}

impl Drop for RunningSession {
    fn drop(&mut self) {
        // A caller that needs the result calls `end`.
        let _ = self.take_down();
    }
}

fn session(launcher: &Launcher, case: &Case, bench: &Bench, up_args: &[String]) -> Result<End, Failure> {
    let command = |words: Vec<String>, limit| Invocation {
        argv: [vec![launcher.path.clone().into()], words.into_iter().map(OsString::from).collect()].concat(),
        env: Vec::new(),
        stdout: None,
        stderr: bench.scratch.file("session-stderr"),
        limit,
    };
    let down = command(["down", "--kill", "--session", &session_name()].map(str::to_owned).into(), DOWN_LIMIT);
    let up = command([up_words(case), up_args.to_vec()].concat(), case.limit).run(&bench.interrupt);
    match up {
        Ok(_) => Ok(End::Session(Box::new(down))),
        Err(failure) => {
            let _ = down.run(&Interrupt::default());
            Err(Failure::Wrong(format!("wireup up: {failure}")))
        }
    }
}

fn up_words(case: &Case) -> Vec<String> {
    let mut words = vec!["up".to_owned(), "--name".into(), session_name()];
    match &case.remote {
        Some(remote) => {
            words.extend(["--hosts".into(), remote.list(), "--remote-shell".into(), remote.shell.clone()]);
        }
        None => words.extend(["--virtual-nodes".into(), case.layout.node_count.to_string()]),
    }
    words
}

fn machine(launcher: &Launcher, case: &Case, bench: &Bench) -> Result<Child, Failure> {
    let told = bench.scratch.file("dvm-stdout");
    let uri = prun::uri_file(&bench.scratch);
    let _ = fs::remove_file(&uri);
    let invocation = Invocation {
        argv: prun::machine_argv(launcher, &uri, case),
        env: launcher.env_of_launcher(&bench.scratch),
        stdout: Some(told.clone()),
        stderr: bench.scratch.file("session-stderr"),
        limit: case.limit,
    };
    let mut child = invocation.spawn()?;
    let begin = Instant::now();
    loop {
        let failure = match child.try_wait() {
            Ok(None) if bench.interrupt.is_set() => Failure::Interrupted,
            Ok(None) if begin.elapsed() > case.limit => Failure::TimedOut(case.limit.as_secs_f64()),
            Ok(None) if prun::is_ready(&fs::read_to_string(&told).unwrap_or_default()) && uri.exists() => {
                return Ok(child);
            }
            Ok(None) => {
                std::thread::sleep(GLANCE);
                continue;
            }
            Ok(Some(status)) => invocation.exited(status),
            Err(e) => Failure::Wrong(format!("wait: {e}")),
        };
        command::end(&mut child);
        return Err(failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_started_on_the_nodes_of_their_case() {
        let case = Case::named("true-4x2", &[], "rsh").unwrap();
        let name = session_name();
        assert_eq!(up_words(&case).join(" "), format!("up --name {name} --virtual-nodes 4"));
        let case = Case::named("true-2x2", &["a".into(), "b".into(), "c".into()], "rsh").unwrap();
        assert_eq!(up_words(&case).join(" "), format!("up --name {name} --hosts a,b --remote-shell rsh"));
    }
}
