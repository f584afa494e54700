//! The root's end of its steps: their commands, their input and their output.

use super::{BatchSystem, Complaint, Lines, Said, at};
use crate::agent::start_methods;
use crate::agent::tail::Stream;
use crate::agent::token::Token;
use crate::agent::turn::Turn;
use crate::keeper::{Process, ProcessFds, Program, StdinKind};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::{How, Input, ShellId};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{ProblemKind, SessionSpec};

#[derive(Default)]
pub struct Steps {
    running: BTreeMap<ShellId, Step>,
    /// The addresses of agents with children, as lines that go to all tasks.
    known: BTreeMap<AgentId, String>,
}

struct Step {
    system: &'static dyn BatchSystem,
    /// Agents of the step, by the name of their node.
    agents: BTreeMap<String, AgentId>,
    stdin: Option<OwnedFd>,
    /// Bytes that are still to be written to the step's standard input.
    unsent: Vec<u8>,
    stdout: Stream,
    said: Lines,
    complaints: Lines,
    cancelled: Option<String>,
    /// Whether some task could not be launched: later messages about other tasks are consequences of that.
    is_given_up: bool,
}

impl Steps {
    /// Adds a step. Returns the process that starts it, and its program; the step executes `command` on the hosts of
    /// these agents. `bootstrap`: the message that all of the agents read.
    ///
    /// # Panics
    /// If the session's agents are not started by steps.
    pub fn call(
        &mut self,
        shell: ShellId,
        agents: &[AgentId],
        how: How,
        command: Vec<Vec<u8>>,
        session: &SessionSpec,
        bootstrap: Vec<u8>,
    ) -> (Process, Program) {
        // The state machine requests steps only in sessions whose start method has them; a test compares the
        // tables.
        let system = start_methods::batch_system(&session.remote_shell).expect("steps need a batch system");
        let host = |agent: &AgentId| session.agents[agent.index()].host.clone();
        for agent in agents {
            // Addresses of an earlier incarnation are not valid any more.
            self.known.remove(agent);
        }
        let unsent = match how {
            How::Send => Vec::new(),
            How::Plain | How::Look => {
                let known = self.known.values().flat_map(|line| line.bytes());
                bootstrap.into_iter().chain(known).collect()
            }
        };
        let step = Step {
            system,
            agents: agents.iter().map(|agent| (host(agent), *agent)).collect(),
            stdin: None,
            unsent,
            stdout: Stream::default(),
            said: Lines::default(),
            complaints: Lines::default(),
            cancelled: None,
            is_given_up: false,
        };
        self.running.insert(shell, step);
        let hosts: Vec<String> = agents.iter().map(host).collect();
        let program = start_methods::step_program(system, session.remote_shell.words(), &hosts, command);
        let stdin = if how == How::Send && !session.installed_only { StdinKind::Program } else { StdinKind::Pipe };
        (Process { stdin, ..Process::new(shell.0) }, program)
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub fn shells(&self) -> Vec<ShellId> {
        self.running.keys().copied().collect()
    }

    /// A process that starts a step, or another remote shell, is running. Takes over its descriptors if it starts a
    /// step.
    pub fn on_started(&mut self, shell: ShellId, fds: &mut ProcessFds, reactor: &Reactor) {
        let Some(step) = self.running.get_mut(&shell) else { return };
        step.stdin = fds.stdin.take();
        // If a descriptor cannot be watched, the step's agents are reported as missing when the start timeout expires.
        if let Some(fd) = &step.stdin {
            let _ = reactor.add(fd, Token::StepIn(shell).pack(), Interest::BOTH);
        }
        step.stdout = Stream::watched(fds.stdout.take(), Token::StepOut(shell).pack(), reactor);
    }

    /// There is room in a step's standard input, or the input is closed.
    pub fn on_input(&mut self, shell: ShellId, reactor: &Reactor) {
        if let Some(step) = self.running.get_mut(&shell) {
            step.write(shell, reactor);
        }
    }

    /// A step has written to its standard output.
    pub fn on_output(&mut self, shell: ShellId, turn: &mut Turn<'_>) {
        let mut told = Vec::new();
        if let Some(step) = self.running.get_mut(&shell) {
            told = step.read(turn.reactor);
        }
        for said in told {
            self.on_said(shell, said, turn);
        }
    }

    fn on_said(&mut self, shell: ShellId, said: Said, turn: &mut Turn<'_>) {
        let is_ours =
            |agent| self.running.get(&shell).is_some_and(|step| step.agents.values().any(|own| *own == agent));
        match said {
            Said::Begun { agent, addresses } if is_ours(agent) => {
                turn.inputs.push(Input::StepTold { shell, agent, problem: None });
                if !addresses.is_empty() {
                    let line = at(agent, &addresses) + "\n";
                    for (shell, step) in &mut self.running {
                        step.unsent.extend_from_slice(line.as_bytes());
                        step.write(*shell, turn.reactor);
                    }
                    self.known.insert(agent, line);
                }
            }
            Said::Cannot { node, problem } => {
                let agent = self.running.get(&shell).and_then(|step| step.agents.get(&node));
                let problem = Some(ProblemKind::Advised.with(problem));
                turn.inputs.extend(agent.map(|&agent| Input::StepTold { shell, agent, problem }));
            }
            Said::Begun { .. } => {}
        }
    }

    /// A step has written to its standard error.
    pub fn on_error_text(&mut self, shell: ShellId, bytes: &[u8], inputs: &mut Vec<Input>) {
        let Some(step) = self.running.get_mut(&shell) else {
            return;
        };
        for line in step.complaints.push(bytes) {
            match step.system.complaint(&line) {
                Some(Complaint::Cancelled(words)) => step.cancelled = Some(words),
                Some(Complaint::GivenUp) => step.is_given_up = true,
                Some(Complaint::About { .. }) if step.is_given_up => {}
                Some(Complaint::About { nodes, problem }) => {
                    let cancelled = step.cancelled.as_ref().map(|words| ProblemKind::StepCancelled.with(words.clone()));
                    let problem = cancelled.unwrap_or(problem);
                    let agents = nodes.iter().filter_map(|node| step.agents.get(node));
                    let told =
                        |agent: &AgentId| Input::StepTold { shell, agent: *agent, problem: Some(problem.clone()) };
                    inputs.extend(agents.map(told));
                }
                None => {}
            }
        }
    }

    /// A step has exited.
    pub fn on_exited(&mut self, shell: ShellId, turn: &mut Turn<'_>) {
        self.on_output(shell, turn);
        if let Some(mut step) = self.running.remove(&shell) {
            step.stdout.close(turn.reactor);
            if let Some(fd) = &step.stdin {
                let _ = turn.reactor.remove(fd);
            }
        }
    }
}

impl Step {
    fn write(&mut self, shell: ShellId, reactor: &Reactor) {
        let Some(fd) = &self.stdin else { return };
        while !self.unsent.is_empty() {
            match rustix::io::write(fd, &self.unsent) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => {
                    // The step does not read its input any more; its exit will show the reason.
                    let _ = reactor.remove(fd);
                    self.stdin = None;
                    return;
                }
            }
        }
        let interest = if self.unsent.is_empty() { Interest::NONE } else { Interest::BOTH };
        let _ = reactor.modify(fd, Token::StepIn(shell).pack(), interest);
    }

    fn read(&mut self, reactor: &Reactor) -> Vec<Said> {
        let (mut said, lines) = (Vec::new(), &mut self.said);
        self.stdout.read(reactor, |piece| said.extend(lines.push(piece).iter().filter_map(|line| Said::read(line))));
        said
    }
}
