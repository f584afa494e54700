//! Encrypts the bootstrap message of a step: munge runs as a process of the shells' keeper, so that it does not block
//! the agent's main loop.

use crate::agent::munge::{self, MessageKey};
use crate::agent::tail::Stream;
use crate::agent::token::Token;
use crate::keeper::{Process, ProcessFds, Program, StdinKind};
use std::io;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Reactor;
use wireup_proto::io::{ExitStatus, How, ShellId};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Bootstrap, SessionSpec, bootstrap_message};

pub struct Sealing {
    agents: Vec<AgentId>,
    how: How,
    bootstrap: Box<Bootstrap>,
    key: MessageKey,
    /// Output of munge so far.
    credential: Vec<u8>,
    output: Stream,
    /// Time at which munge is killed because it has not answered (ns); `u64::MAX`: it was killed for that.
    pub until_ns: u64,
    /// Whether the step was cancelled while munge encrypts its message: then the step is not started.
    pub is_stopped: bool,
}

/// A step whose bootstrap message is complete, so that it can be started.
pub struct Sealed {
    pub agents: Vec<AgentId>,
    pub how: How,
    pub session: SessionSpec,
    pub message: Vec<u8>,
    pub problem: Option<NotSealed>,
}

/// Why a message is not encrypted.
pub enum NotSealed {
    /// There is no munge on this machine.
    NoMunge(String),
    /// Munge has failed, perhaps because somebody keeps it from answering.
    Failed(String),
}

impl Sealing {
    /// Starts to encrypt a step's message. Also returns the process to start, and its program.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn start(
        shell: ShellId,
        agents: Vec<AgentId>,
        how: How,
        bootstrap: Box<Bootstrap>,
    ) -> io::Result<(Sealing, Process, Program)> {
        let key = MessageKey::random()?;
        let process = Process { stdin: StdinKind::Bytes(key.payload()), ..Process::new(shell.0) };
        let program = munge::program(bootstrap.session.start_timeout_ns / 1_000_000_000);
        let until_ns = monotonic_ns().saturating_add(munge::PATIENCE.as_nanos() as u64);
        let (credential, output) = (Vec::new(), Stream::default());
        Ok((Sealing { agents, how, bootstrap, key, credential, output, until_ns, is_stopped: false }, process, program))
    }

    pub fn on_started(&mut self, shell: ShellId, fds: &mut ProcessFds, reactor: &Reactor) {
        self.output = Stream::watched(fds.stdout.take(), Token::StepOut(shell).pack(), reactor);
    }

    pub fn on_output(&mut self, reactor: &Reactor) {
        let credential = &mut self.credential;
        self.output.read(reactor, |piece| {
            // An output that is too long is no credential.
            let room = (munge::ANSWER_LEN_MAX + 1).saturating_sub(credential.len());
            credential.extend_from_slice(&piece[..piece.len().min(room)]);
        });
    }

    /// Notes that munge has been killed because it took too long.
    pub fn on_late(&mut self) {
        self.until_ns = u64::MAX;
    }

    /// Munge has exited; `stderr`: its standard error. `None`: the step is not wanted any more.
    pub fn on_exited(mut self, status: ExitStatus, stderr: &str, reactor: &Reactor) -> Option<Sealed> {
        self.on_output(reactor);
        self.output.close(reactor);
        let problem = match status {
            ExitStatus::Exited(0) if (1..=munge::ANSWER_LEN_MAX).contains(&self.credential.len()) => None,
            ExitStatus::Exited(0) => {
                Some("munge: its answer is no credential (is it another program of that name?)".to_owned())
            }
            ExitStatus::Signalled { .. } if self.until_ns == u64::MAX => {
                Some(format!("munge: no answer in {} s; is munged running?", munge::PATIENCE.as_secs()))
            }
            ExitStatus::Exited(_) | ExitStatus::Signalled { .. } => Some(munge::failed("munge", stderr)),
        };
        self.finish(problem.map(NotSealed::Failed))
    }

    /// Makes the step's message, after munge has exited or could not be started. With a `problem` the message is not
    /// encrypted. Returns `None` if the step is not wanted any more.
    pub fn finish(self, problem: Option<NotSealed>) -> Option<Sealed> {
        let body = self.bootstrap.encode_body();
        let message = match &problem {
            None => bootstrap_message(self.credential.trim_ascii_end(), &self.key.seal(body)),
            Some(_) => bootstrap_message(&[], &body),
        };
        let Sealing { agents, how, bootstrap, is_stopped, .. } = self;
        (!is_stopped).then_some(Sealed { agents, how, session: bootstrap.session, message, problem })
    }
}
