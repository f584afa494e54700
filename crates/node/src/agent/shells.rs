//! The remote shells that started this agent's children, and the keeper that holds them.

use super::keeper_link::KeeperLink;
use super::token::Token;
use super::turn::Turn;
use crate::keeper::{Batch, Keeper, KeeperEvent, OutKind, Process, Program, Request, StdinKind};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::{ExitStatus, Input};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Bootstrap, RemoteShell, SpawnError, SpawnStep};

/// How much of a remote shell's standard error is kept for a message: its last lines.
const ERROR_BYTES_MAX: usize = 2048;

/// What an agent writes (recordings) is its owner's alone.
const AGENT_UMASK: u32 = 0o077;

pub struct Shells {
    keeper: KeeperLink,
    errors: BTreeMap<AgentId, ErrorText>,
}

#[derive(Default)]
struct ErrorText {
    fd: Option<OwnedFd>,
    tail: Vec<u8>,
}

impl Shells {
    pub fn fork(reactor: &Reactor) -> io::Result<Shells> {
        Ok(Shells { keeper: KeeperLink::begin(None, Token::Shells, reactor)?, errors: BTreeMap::new() })
    }

    /// Starts a child agent by the session's remote shell, with its bootstrap on standard input.
    pub fn start(&mut self, agent: AgentId, bootstrap: &Bootstrap) -> Result<(), SpawnError> {
        if self.keeper.lost().is_some() {
            return Err(SpawnError {
                step: SpawnStep::Fork,
                what: "the remote shells' keeper was killed".into(),
                errno: 3,
            });
        }
        let program = std::env::current_exe().map_err(|error| SpawnError {
            step: SpawnStep::Find,
            what: "wireup's own program".into(),
            errno: error.raw_os_error().unwrap_or(0),
        })?;
        let program = program.into_os_string().into_vec();
        let host = bootstrap.session.agents[agent.index()].host.clone().into_bytes();
        let mut argv: Vec<Vec<u8>> = match &bootstrap.session.remote_shell {
            RemoteShell::Local => Vec::new(),
            RemoteShell::Command(words) => words.iter().map(|word| word.clone().into_bytes()).chain([host]).collect(),
        };
        argv.extend([program, b"agent".to_vec()]);
        let env = std::env::vars_os().map(|(name, value)| {
            let mut variable = name.into_vec();
            variable.push(b'=');
            variable.extend(value.into_vec());
            variable
        });
        let process =
            Process { stdin: StdinKind::Bytes(bootstrap.encode()), stdout: OutKind::Null, ..Process::new(agent.0) };
        self.keeper.request(&Request::Spawn(Batch {
            programs: vec![Program { argv, cwd: b"/".to_vec(), env: env.collect() }],
            processes: vec![process],
            umask: AGENT_UMASK,
            nofile_soft: wireup_os::process::raise_open_files().map_or(1024, |limits| limits.soft_now),
        }));
        self.errors.insert(agent, ErrorText::default());
        Ok(())
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
                KeeperEvent::Started { slot, fds, .. } => {
                    let agent = AgentId(slot);
                    if let Some(fd) = fds.stderr
                        && turn.reactor.add(&fd, Token::ShellError(agent).pack(), Interest::READABLE).is_ok()
                    {
                        self.errors.entry(agent).or_default().fd = Some(fd);
                    }
                }
                KeeperEvent::StartFailed { slot, error } => {
                    turn.inputs.push(Input::AgentStartFailed { agent: AgentId(slot), error });
                }
                KeeperEvent::Exited { slot, status } => {
                    let agent = AgentId(slot);
                    self.on_error_text(agent, turn.reactor);
                    let text = self.errors.get(&agent).map(|text| String::from_utf8_lossy(&text.tail).into_owned());
                    turn.inputs.push(Input::AgentExited { agent, status, stderr: text.unwrap_or_default() });
                }
                KeeperEvent::Swept => {}
            }
        }
        if !alive {
            self.on_keeper_lost(turn.inputs);
        }
    }

    /// The shells die with their keeper. Agents that had linked are missed there; those on their way are missed here.
    fn on_keeper_lost(&self, inputs: &mut Vec<Input>) {
        let status = ExitStatus::Signalled { signal: 9, core_dumped: false };
        inputs.extend(self.errors.keys().map(|&agent| Input::AgentExited {
            agent,
            status,
            stderr: "the process that held it was killed".into(),
        }));
    }

    /// A remote shell wrote to its standard error.
    pub fn on_error_text(&mut self, agent: AgentId, reactor: &Reactor) {
        let Some(text) = self.errors.get_mut(&agent) else {
            return;
        };
        let mut buffer = [0; 4096];
        while let Some(fd) = &text.fd {
            match rustix::io::read(fd, &mut buffer) {
                Ok(length @ 1..) => {
                    text.tail.extend_from_slice(&buffer[..length]);
                    let excess = text.tail.len().saturating_sub(ERROR_BYTES_MAX);
                    text.tail.drain(..excess);
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
                Ok(0) | Err(_) => {
                    let _ = reactor.remove(fd);
                    text.fd = None;
                }
            }
        }
    }

    pub fn into_keeper(self, reactor: &Reactor) -> Keeper {
        self.keeper.into_keeper(reactor)
    }
}
