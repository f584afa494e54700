//! The remote shells that this agent called, and the keeper that holds them.

use super::keeper_link::KeeperLink;
use super::remote;
use super::step::Steps;
use super::token::Token;
use super::turn::Turn;
use crate::keeper::{Batch, Keeper, KeeperEvent, OutKind, Process, Program, Request, StdinKind};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::{ExitStatus, How, Input, ShellId};
use wireup_wire::ids::AgentId;
use wireup_wire::job::{Limit, Resource};
use wireup_wire::peer::{Bootstrap, RemoteShell, SessionSpec, SpawnError, SpawnStep, probe};

/// How much of a remote shell's standard error is kept for a message: its last lines.
const ERROR_BYTES_MAX: usize = 2048;

/// What an agent writes (recordings) is its owner's alone.
const AGENT_UMASK: u32 = 0o077;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Chosen: Slurm takes a tenth of a second for it, a busy controller more.
const STEP_END_MAX: Duration = Duration::from_secs(2);

pub struct Shells {
    keeper: KeeperLink,
    errors: BTreeMap<ShellId, ErrorText>,
    pub steps: Steps,
    /// This build's name among others, looked up when first needed.
    build: Option<String>,
    /// Of this program's file.
    digest: Option<String>,
}

#[derive(Default)]
struct ErrorText {
    fd: Option<OwnedFd>,
    tail: Vec<u8>,
}

impl Shells {
    pub fn fork(reactor: &Reactor) -> io::Result<Shells> {
        let keeper = KeeperLink::begin(None, Token::Shells, reactor)?;
        Ok(Shells { keeper, errors: BTreeMap::new(), steps: Steps::default(), build: None, digest: None })
    }

    /// Calls the session's remote shell for an agent, with its bootstrap message on standard input, or nothing but the
    /// question whether it answers.
    pub fn start(
        &mut self,
        shell: ShellId,
        agent: AgentId,
        how: How,
        session: &SessionSpec,
        bootstrap: Option<&Bootstrap>,
    ) -> Result<(), SpawnError> {
        self.check_keeper()?;
        let stdin = match how {
            How::Send => StdinKind::Program,
            How::Plain | How::Look => StdinKind::Bytes(bootstrap.map_or_else(probe, Bootstrap::encode)),
        };
        let argv = self.argv(agent, how, session)?;
        let env = std::env::vars_os().map(|(name, value)| {
            let mut variable = name.into_vec();
            variable.push(b'=');
            variable.extend(value.into_vec());
            variable
        });
        let process = Process { stdin, stdout: OutKind::Null, ..Process::new(shell.0) };
        self.request(shell, process, Program { argv, cwd: b"/".to_vec(), env: env.collect() });
        Ok(())
    }

    /// Calls the batch system for agents, with their bootstrap message on the standard input of all.
    pub fn start_step(
        &mut self,
        shell: ShellId,
        agents: &[AgentId],
        how: How,
        bootstrap: &Bootstrap,
    ) -> Result<(), SpawnError> {
        self.check_keeper()?;
        if how == How::Send {
            self.read_digest()?;
        }
        let digest = self.digest.as_deref();
        let (process, program) = self.steps.call(shell, agents, how, digest, bootstrap);
        self.request(shell, process, program);
        Ok(())
    }

    fn request(&mut self, shell: ShellId, process: Process, program: Program) {
        let open_files = wireup_os::process::raise_open_files().map_or(1024, |limits| limits.soft_now);
        self.keeper.request(&Request::Spawn(Batch {
            programs: vec![program],
            processes: vec![process],
            umask: AGENT_UMASK,
            limits: vec![Limit { resource: Resource::Nofile, soft: open_files }],
        }));
        self.errors.insert(shell, ErrorText::default());
    }

    fn check_keeper(&self) -> Result<(), SpawnError> {
        match self.keeper.lost() {
            None => Ok(()),
            Some(_) => {
                Err(SpawnError { step: SpawnStep::Fork, what: "the remote shells' keeper was killed".into(), errno: 3 })
            }
        }
    }

    fn read_digest(&mut self) -> Result<(), SpawnError> {
        if self.digest.is_none() {
            let file = wireup_os::files::own_program().map_err(|error| own_program(&error))?;
            self.digest = Some(remote::digest(&mut File::from(file)).map_err(|error| own_program(&error))?);
        }
        Ok(())
    }

    fn argv(&mut self, agent: AgentId, how: How, session: &SessionSpec) -> Result<Vec<Vec<u8>>, SpawnError> {
        let host = session.agents[agent.index()].host.clone().into_bytes();
        let (RemoteShell::Command(words) | RemoteShell::Ssh(words)) = &session.remote_shell else {
            let program = std::env::current_exe().map_err(|error| own_program(&error))?;
            return Ok(vec![program.into_os_string().into_vec(), b"agent".to_vec(), remote::version().into_bytes()]);
        };
        if how == How::Send {
            self.read_digest()?;
        }
        let build = self.build.get_or_insert_with(remote::own_build);
        let command = remote::command(how, &session.program, build, self.digest.as_deref());
        Ok(words.iter().map(|word| word.clone().into_bytes()).chain([host]).chain(command).collect())
    }

    /// Ends a remote shell, at once.
    pub fn stop(&mut self, shell: ShellId) {
        self.keeper.request(&Request::Signal { slot: Some(shell.0), signal: SIGKILL });
    }

    pub fn flush_keeper(&mut self, reactor: &Reactor) {
        self.keeper.flush(reactor);
    }

    pub fn keeper(&self) -> &KeeperLink {
        &self.keeper
    }

    pub fn on_keeper(&mut self, turn: &mut Turn<'_>) {
        let mut events = Vec::new();
        let alive = self.keeper.receive(&mut events, turn.reactor);
        for event in events {
            match event {
                KeeperEvent::Started { slot, mut fds, .. } => {
                    let shell = ShellId(slot);
                    self.steps.on_started(shell, &mut fds, turn.reactor);
                    if let Some(fd) = fds.stderr
                        && turn.reactor.add(&fd, Token::ShellError(shell).pack(), Interest::READABLE).is_ok()
                    {
                        self.errors.entry(shell).or_default().fd = Some(fd);
                    }
                }
                KeeperEvent::StartFailed { slot, error } => {
                    self.errors.remove(&ShellId(slot));
                    turn.inputs.push(Input::ShellFailed { shell: ShellId(slot), error });
                }
                KeeperEvent::Exited { slot, status } => {
                    let shell = ShellId(slot);
                    self.on_error_text(shell, turn);
                    self.steps.on_exited(shell, turn);
                    let text = self.errors.remove(&shell).unwrap_or_default();
                    if let Some(fd) = &text.fd {
                        let _ = turn.reactor.remove(fd);
                    }
                    let stderr = String::from_utf8_lossy(&text.tail).into_owned();
                    turn.inputs.push(Input::ShellExited { shell, status, stderr });
                }
                KeeperEvent::Swept | KeeperEvent::Renewed => {}
            }
        }
        if !alive {
            self.on_keeper_lost(turn.inputs);
        }
    }

    /// The shells die with their keeper. Agents that had linked are missed there; those on their way are missed here.
    fn on_keeper_lost(&self, inputs: &mut Vec<Input>) {
        let status = ExitStatus::Signalled { signal: SIGKILL, core_dumped: false };
        inputs.extend(self.errors.keys().map(|&shell| Input::ShellExited {
            shell,
            status,
            stderr: "the process that held it was killed".into(),
        }));
    }

    /// A remote shell wrote to its standard error.
    pub fn on_error_text(&mut self, shell: ShellId, turn: &mut Turn<'_>) {
        let Some(text) = self.errors.get_mut(&shell) else {
            return;
        };
        let mut buffer = [0; 4096];
        while let Some(fd) = &text.fd {
            match rustix::io::read(fd, &mut buffer) {
                Ok(length @ 1..) => {
                    text.tail.extend_from_slice(&buffer[..length]);
                    self.steps.on_error_text(shell, &buffer[..length], turn.inputs);
                    let excess = text.tail.len().saturating_sub(ERROR_BYTES_MAX);
                    text.tail.drain(..excess);
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
                Ok(0) | Err(_) => {
                    let _ = turn.reactor.remove(fd);
                    text.fd = None;
                }
            }
        }
    }

    /// Steps end by themselves when their agents have left, which takes a moment; one that does not is ended.
    pub fn end_steps(&mut self, reactor: &Reactor) {
        for (signal, patience) in [(None, STEP_END_MAX), (Some(SIGTERM), STEP_END_MAX)] {
            for shell in self.steps.shells() {
                if let Some(signal) = signal {
                    self.keeper.request(&Request::Signal { slot: Some(shell.0), signal });
                }
            }
            let until = Instant::now() + patience;
            while !self.steps.is_empty() && self.keeper.lost().is_none() {
                self.keeper.flush(reactor);
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

    pub fn into_keeper(self, reactor: &Reactor) -> Keeper {
        self.keeper.into_keeper(reactor)
    }
}

fn own_program(error: &io::Error) -> SpawnError {
    SpawnError { step: SpawnStep::Find, what: "wireup's own program".into(), errno: error.raw_os_error().unwrap_or(0) }
}
