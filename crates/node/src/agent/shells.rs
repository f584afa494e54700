//! Drives the remote shells and batch system steps that this agent has started, and the keeper whose children they are.

use super::remote::{self, OwnProgram};
use super::start_methods;
use super::step::{NotSealed, SEALED, Sealed, Sealing, Steps};
use super::tail::{Stream, Tail};
use super::token::Token;
use super::turn::Turn;
use crate::keeper::{Batch, Keeper, KeeperEvent, OutKind, Process, Program, Request, StdinKind};
use crate::remedy::{self, spawn_error};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Reactor;
use wireup_proto::io::{ExitStatus, How, Input, ShellId};
use wireup_wire::ids::AgentId;
use wireup_wire::job::{Limit, Resource};
use wireup_wire::peer::{Bootstrap, SessionSpec, SpawnError, SpawnStep, probe, remedy};
use wireup_wire::signal::{SIGKILL, SIGTERM};

/// Most bytes of a remote shell's standard error that are kept for an error message: the last ones.
const ERROR_BYTES_MAX: usize = 2048;

/// File mode mask of agents: their files (recordings) are private to their owner.
const AGENT_UMASK: u32 = 0o077;

/// Longest time that a step may take to end. Chosen: Slurm takes a tenth of a second, more if its controller is busy.
const STEP_END_MAX: Duration = Duration::from_secs(2);

pub struct Shells {
    pub keeper: Keeper,
    errors: BTreeMap<ShellId, Tail>,
    pub steps: Steps,
    /// Steps that were not started yet, because munge is still encrypting their bootstrap message.
    sealings: BTreeMap<ShellId, Sealing>,
    own: OwnProgram,
}

impl Shells {
    pub fn new(mut keeper: Keeper, reactor: &Reactor) -> io::Result<Shells> {
        keeper.watch(Token::Shells.pack(), reactor)?;
        Ok(Shells {
            keeper,
            errors: BTreeMap::new(),
            steps: Steps::default(),
            sealings: BTreeMap::new(),
            own: OwnProgram::default(),
        })
    }

    /// Calls the session's remote shell for the agent of a host, with the bootstrap message on standard input, or with
    /// an empty message, which only tests whether the host answers.
    pub fn start(
        &mut self,
        shell: ShellId,
        host: &str,
        how: How,
        session: &SessionSpec,
        bootstrap: Option<&Bootstrap>,
    ) -> Result<(), SpawnError> {
        self.check_keeper()?;
        let stdin = match how {
            How::Send if !session.installed_only => StdinKind::Program,
            How::Plain | How::Look | How::Send => StdinKind::Bytes(bootstrap.map_or_else(probe, Bootstrap::encode)),
        };
        let command = self.command(how, session, &[&remote::version()])?;
        let program = start_methods::program_for(&session.remote_shell, host, command);
        self.request(shell, Process { stdin, stdout: OutKind::Null, ..Process::new(shell.0) }, program);
        Ok(())
    }

    /// Starts several agents in one step of the batch system. Every task gets their bootstrap message on its standard
    /// input; munge seals the message first, if it can.
    pub fn start_step(
        &mut self,
        shell: ShellId,
        agents: Vec<AgentId>,
        how: How,
        bootstrap: Box<Bootstrap>,
    ) -> Result<(), SpawnError> {
        self.check_keeper()?;
        if how == How::Send {
            let session = bootstrap.session;
            return self.call_step(shell, Sealed { agents, how, session, message: Vec::new(), problem: None });
        }
        let (sealing, process, program) = Sealing::start(shell, agents, how, bootstrap)
            .map_err(|error| spawn_error(SpawnStep::Secret, "a key for the bootstrap message", &error))?;
        self.sealings.insert(shell, sealing);
        self.request(shell, process, program);
        Ok(())
    }

    fn call_step(&mut self, shell: ShellId, step: Sealed) -> Result<(), SpawnError> {
        let Sealed { agents, how, session, message, problem } = step;
        let version = remote::version();
        let asked = [version.as_str(), SEALED];
        let command = self.command(how, &session, if problem.is_none() { &asked } else { &asked[..1] })?;
        let (process, program) = self.steps.call(shell, &agents, how, command, &session, message);
        self.request(shell, process, program);
        Ok(())
    }

    /// Starts a step when munge has encrypted its message, or has failed to; `None`: the step was stopped in the
    /// meantime.
    fn on_sealed(&mut self, shell: ShellId, step: Option<Sealed>, inputs: &mut Vec<Input>) {
        let Some(step) = step else {
            let status = ExitStatus::Signalled { signal: SIGKILL, core_dumped: false };
            return inputs.push(Input::ShellEnded { shell, end: Ok((status, String::new())) });
        };
        match &step.problem {
            None => {}
            Some(NotSealed::NoMunge(problem)) => inputs.push(Input::StepNotSealed { problem: problem.clone() }),
            // The message may go unsealed, since the user has said that links need not be encrypted.
            Some(NotSealed::Failed(problem)) if !step.session.links.encrypt => {
                inputs.push(Input::StepNotSealed { problem: problem.clone() });
            }
            Some(NotSealed::Failed(problem)) => {
                let what = format!(
                    "the session's secret cannot be sealed for srun, which would carry it in the clear: {problem}; see \
                     that \"munge -n\" works on this host, or run with --plain-links"
                );
                let error = SpawnError { step: SpawnStep::Stdio, what, errno: 0 };
                return inputs.push(Input::ShellEnded { shell, end: Err(error) });
            }
        }
        if let Err(error) = self.call_step(shell, step) {
            inputs.push(shell_failed(shell, error));
        }
    }

    /// When `on_tick` is due.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.sealings.values().map(|sealing| sealing.until_ns).filter(|until_ns| *until_ns < u64::MAX).min()
    }

    /// Ends calls of munge that take too long.
    pub fn on_tick(&mut self, now_ns: u64) {
        for (shell, sealing) in &mut self.sealings {
            if sealing.until_ns <= now_ns {
                sealing.on_late();
                self.keeper.request(&Request::Signal { slot: Some(shell.0), signal: SIGKILL });
            }
        }
    }

    fn request(&mut self, shell: ShellId, process: Process, program: Program) {
        let open_files = wireup_os::process::raise_open_files().map_or(1024, |limits| limits.soft_now);
        self.keeper.request(&Request::Spawn(Batch {
            programs: vec![program],
            processes: vec![process],
            umask: AGENT_UMASK,
            limits: vec![Limit { resource: Resource::Nofile, soft: open_files }],
            staged: None,
            prefetch: Vec::new(),
            preload: None,
        }));
        self.errors.insert(shell, Tail::new(ERROR_BYTES_MAX));
    }

    fn check_keeper(&self) -> Result<(), SpawnError> {
        match self.keeper.lost() {
            None => Ok(()),
            Some(_) => Err(SpawnError {
                step: SpawnStep::Fork,
                what: "the process that calls the remote shells has ended; raise its limit of open files (ulimit -n), \
                       or see dmesg for an out-of-memory kill"
                    .into(),
                errno: 0,
            }),
        }
    }

    /// The command to execute on a host. If the program would have to be sent, but only installed ones may be used, the
    /// command only tests whether the host runs commands: the host answers that it needs the program.
    fn command(&mut self, how: How, session: &SessionSpec, asked: &[&str]) -> Result<Vec<Vec<u8>>, SpawnError> {
        if how == How::Send && session.installed_only {
            return Ok(remote::asking());
        }
        let command = self.own.command(how, &session.program, asked);
        command.map_err(|error| spawn_error(SpawnStep::Find, "wireup's own program", &error))
    }

    /// Kills a remote shell.
    pub fn stop(&mut self, shell: ShellId) {
        if let Some(sealing) = self.sealings.get_mut(&shell) {
            sealing.is_stopped = true;
        }
        self.keeper.request(&Request::Signal { slot: Some(shell.0), signal: SIGKILL });
    }

    pub fn on_keeper(&mut self, turn: &mut Turn<'_>) {
        let mut events = Vec::new();
        let alive = self.keeper.take_events(&mut events, turn.reactor);
        for event in events {
            match event {
                KeeperEvent::Started { slot, mut fds, .. } => {
                    let shell = ShellId(slot);
                    match self.sealings.get_mut(&shell) {
                        Some(sealing) => sealing.on_started(shell, &mut fds, turn.reactor),
                        None => self.steps.on_started(shell, &mut fds, turn.reactor),
                    }
                    if let Some(errors) = self.errors.get_mut(&shell) {
                        errors.follow(Stream::watched(fds.stderr, Token::ShellError(shell).pack(), turn.reactor));
                    }
                }
                KeeperEvent::StartFailed { slot, error } => {
                    let shell = ShellId(slot);
                    self.errors.remove(&shell);
                    match self.sealings.remove(&shell) {
                        Some(sealing) => self.on_sealed(
                            shell,
                            sealing.finish(Some(NotSealed::NoMunge(in_words(error).what))),
                            turn.inputs,
                        ),
                        None => turn.inputs.push(Input::ShellEnded { shell, end: Err(in_words(error)) }),
                    }
                }
                KeeperEvent::Exited { slot, status } => {
                    let shell = ShellId(slot);
                    self.on_error_text(shell, turn);
                    self.steps.on_exited(shell, turn);
                    let mut errors = self.errors.remove(&shell);
                    errors.iter_mut().for_each(|errors| errors.close(turn.reactor));
                    let stderr = errors.map(|errors| errors.text()).unwrap_or_default();
                    match self.sealings.remove(&shell) {
                        Some(sealing) => {
                            let step = sealing.on_exited(status, &stderr, turn.reactor);
                            self.on_sealed(shell, step, turn.inputs);
                        }
                        None => turn.inputs.push(Input::ShellEnded { shell, end: Ok((status, stderr)) }),
                    }
                }
                KeeperEvent::Failed { .. }
                | KeeperEvent::Streams { .. }
                | KeeperEvent::NotStaged { .. }
                | KeeperEvent::Redirected { .. }
                | KeeperEvent::NotPrefetched { .. }
                | KeeperEvent::Preloads { .. }
                | KeeperEvent::NotPreloaded { .. }
                | KeeperEvent::Swept
                | KeeperEvent::Renewed { .. } => {}
            }
        }
        if !alive {
            let problem = self.keeper.take_problem();
            self.on_keeper_lost(problem, turn.inputs);
        }
    }

    /// The shells die with their keeper. The loss of agents that have linked is noticed by their links; the other
    /// agents are reported here.
    fn on_keeper_lost(&self, problem: Option<SpawnError>, inputs: &mut Vec<Input>) {
        if let Some(problem) = &problem {
            let advice = remedy(problem.errno).map_or_else(String::new, |advice| format!("; {advice}"));
            let problem = remedy::in_words(problem);
            let what = format!("the process that calls the remote shells has failed: {problem}{advice}");
            let error = SpawnError { step: SpawnStep::Fork, what, errno: 0 };
            return inputs
                .extend(self.errors.keys().map(|&shell| Input::ShellEnded { shell, end: Err(error.clone()) }));
        }
        let status = ExitStatus::Signalled { signal: SIGKILL, core_dumped: false };
        let stderr = "the process that ran it was killed";
        inputs.extend(self.errors.keys().map(|&shell| Input::ShellEnded { shell, end: Ok((status, stderr.into())) }));
    }

    /// A step, or the munge that seals its message, wrote to its standard output.
    pub fn on_step_output(&mut self, shell: ShellId, turn: &mut Turn<'_>) {
        match self.sealings.get_mut(&shell) {
            Some(sealing) => sealing.on_output(turn.reactor),
            None => self.steps.on_output(shell, turn),
        }
    }

    /// A remote shell wrote to its standard error.
    pub fn on_error_text(&mut self, shell: ShellId, turn: &mut Turn<'_>) {
        // Standard output is read first: a problem that a task reports there itself takes precedence over the message
        // of the batch system about that task.
        self.on_step_output(shell, turn);
        let Shells { errors, steps, .. } = self;
        if let Some(errors) = errors.get_mut(&shell) {
            errors.read(turn.reactor, |piece| steps.on_error_text(shell, piece, turn.inputs));
        }
    }

    /// Waits for steps to end: they do so when their agents have left, which takes a moment. A step that takes too long
    /// gets SIGTERM.
    pub fn end_steps(&mut self, reactor: &Reactor) {
        self.sealings.values_mut().for_each(|sealing| sealing.is_stopped = true);
        for (signal, patience) in [(None, STEP_END_MAX), (Some(SIGTERM), STEP_END_MAX)] {
            for shell in self.steps.shells() {
                if let Some(signal) = signal {
                    self.keeper.request(&Request::Signal { slot: Some(shell.0), signal });
                }
            }
            let until = Instant::now() + patience;
            while !self.steps.is_empty() && self.keeper.lost().is_none() {
                self.keeper.send(reactor);
                let left = until.saturating_duration_since(Instant::now());
                if !wireup_os::socket::wait(self.keeper.fd(), true, false, Some(left)).unwrap_or(false) {
                    break;
                }
                let (mut buffer, mut inputs) = ([], Vec::new());
                let turn = &mut Turn { now_ns: monotonic_ns(), reactor, buffer: &mut buffer, inputs: &mut inputs };
                self.on_keeper(turn);
            }
        }
    }
}

/// The input that reports a remote shell that could not be started; users see the text in `what`.
pub fn shell_failed(shell: ShellId, error: SpawnError) -> Input {
    // The text of an error in listening is already a complete message.
    let error = if error.step == SpawnStep::Listen { error } else { in_words(error) };
    Input::ShellEnded { shell, end: Err(error) }
}

/// Completes the text `what` of an error, so that it says what was tried and why it failed.
pub fn in_words(error: SpawnError) -> SpawnError {
    SpawnError { what: remedy::in_words(&error), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_shell_that_cannot_start_is_described_in_words() {
        let said =
            |step, what: &str, errno| match shell_failed(ShellId(1), SpawnError { step, what: what.into(), errno }) {
                Input::ShellEnded { end: Err(error), .. } => error.what,
                input => panic!("{input:?}"),
            };
        assert_eq!(
            said(SpawnStep::Find, "rsh", 2),
            "rsh: No such file or directory (os error 2) (finding the program)"
        );
        assert_eq!(said(SpawnStep::Listen, "listening: in use", 98), "listening: in use");
        assert_eq!(
            said(SpawnStep::Secret, "the run's secret", 38),
            "the run's secret: Function not implemented (os error 38) (asking the kernel for random bytes)"
        );
    }
}
