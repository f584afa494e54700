//! The tasks of a step: their agents start or fail to start, and end.

use super::{Batch, GIVEN_UP, KILLED, Said, State, Task};
use crate::agents::{AgentProcess, ProcessState, Starter};
use crate::clock::Event;
use crate::cx::Cx;
use crate::fault_injection::NoStart;
use crate::hosts::Agents;
use crate::remote::{Pace, Program};
use wireup_proto::io::{ExitStatus, How};
use wireup_proto::{NEEDED, NEEDED_WORDS};
use wireup_wire::peer::Bootstrap;

/// Exit code of a task whose program cannot be executed.
const NO_EXEC: u8 = 2;
/// Exit code of an agent that fails to start.
const CANNOT: u8 = 125;

pub(super) fn launch_task(cx: &mut Cx, agents: &Agents, step: u32, agent: u32) {
    let mut delay_ns = cx.draw(cx.spec.timing.agent_start);
    match cx.host_spec(agent).map_or(Pace::Prompt, |host| host.pace) {
        Pace::Slow { by_ns } => delay_ns += by_ns,
        // A file system hangs: the task exists, but its agent never starts.
        Pace::Never => return,
        Pace::Prompt => {}
    }
    if agents.hosts[agent as usize].no_start != Some(NoStart::Silence) {
        let at = cx.work(agent, cx.clock.now() + delay_ns, |costs| costs.agent_ns);
        cx.clock.at(at, Event::Task(step, agent));
    }
}

impl Batch {
    /// Launches a task as far as its host allows. If the task's agent starts, returns the bootstrap message.
    pub fn on_task(&mut self, cx: &mut Cx, agents: &mut Agents, index: u32, agent: u32) -> Option<Bootstrap> {
        let step = &mut self.steps[index as usize];
        if step.tasks.get(&agent) != Some(&Task::Launched) {
            return None;
        }
        if step.unreachable.remove(&agent) {
            let is_last = step.unreachable.is_empty();
            self.say_problem(cx, index, agent, "Communication connection failure");
            self.task_gone(cx, index, agent, GIVEN_UP);
            if is_last {
                self.give_up(cx, index);
            }
            return None;
        }
        let host = &mut agents.hosts[agent as usize];
        if let Some(NoStart::ShellFails { code }) = host.no_start {
            self.task_fails(cx, index, agent, code);
            return None;
        }
        let program = cx.host_spec(agent).map_or(Program::There, |host| host.program);
        match (self.steps[index as usize].how, program) {
            (How::Plain | How::Look, Program::There) => return Some(self.begin_task(index, agent)),
            (How::Plain, Program::Missing | Program::OtherArch) => {
                self.append_error(index, "slurmstepd: error: execve(): wireup: No such file or directory\n");
                self.task_fails(cx, index, agent, NO_EXEC);
            }
            (How::Look, Program::Missing) if host.has_program => return Some(self.begin_task(index, agent)),
            (How::Send, Program::There | Program::Missing) => {
                host.has_program = true;
                self.task_gone(cx, index, agent, 0);
            }
            (How::Look, Program::Missing) | (How::Look | How::Send, Program::OtherArch) => {
                self.append_error(index, &format!("{NEEDED_WORDS} s390x\n"));
                self.task_fails(cx, index, agent, NEEDED);
            }
        }
        None
    }

    fn begin_task(&mut self, index: u32, host: u32) -> Bootstrap {
        let step = &mut self.steps[index as usize];
        step.tasks.insert(host, Task::Begun);
        step.bootstrap.clone()
    }

    /// The agent of a task was started.
    pub fn on_started(&mut self, cx: &mut Cx, agents: &mut Agents, index: u32, agent: u32) {
        let AgentProcess { host, listens, .. } = agents[agent];
        agents[agent].starter = Some(Starter::Step(index));
        self.say(cx, index, Said::Begun { agent: host, listens });
        if agents.hosts[host as usize].parent == Some(0) {
            task_dials(cx, agents, agent, 0);
        } else {
            let start_timeout_ns = self.steps[index as usize].bootstrap.session.start_timeout_ns;
            cx.clock.after(start_timeout_ns, Event::TaskWaited(agent));
            for at in &self.known {
                cx.after(cx.spec.timing.report, Event::TaskReads(agent, *at));
            }
        }
    }

    /// The task has waited too long for the address of its parent. Returns true if the task's agent dies of this.
    pub fn on_task_waited(&mut self, cx: &mut Cx, agents: &Agents, agent: u32) -> bool {
        self.gives_up(cx, agents, agent, "cannot connect to the parent agent: its address did not arrive in time")
    }

    /// Whether an agent dies now because it still waits for the address of its parent.
    pub(super) fn gives_up(&mut self, cx: &mut Cx, agents: &Agents, agent: u32, problem: &str) -> bool {
        let process = &agents[agent];
        let Some(step) = process.step().filter(|_| process.is_running() && process.dials.is_none()) else {
            return false;
        };
        self.say_problem(cx, step, process.host, problem);
        self.steps[step as usize].code = self.steps[step as usize].code.max(CANNOT);
        true
    }

    /// An agent has ended; if a task runs this agent, the task ends.
    pub fn on_agent_ended(&mut self, cx: &mut Cx, process: &AgentProcess) {
        let (host, Some(step)) = (process.host, process.step()) else { return };
        match process.state {
            ProcessState::Killed => {
                let problem = match &self.steps[step as usize].state {
                    State::Cancelled(words) => words.clone(),
                    State::Running | State::GivenUp | State::Over => "Killed".to_owned(),
                };
                self.say_problem(cx, step, host, &problem);
                self.task_gone(cx, step, host, KILLED);
            }
            ProcessState::Running(_) | ProcessState::Left => self.task_gone(cx, step, host, 0),
        }
    }

    fn task_fails(&mut self, cx: &mut Cx, index: u32, agent: u32, code: u8) {
        self.say_problem(cx, index, agent, &format!("its task exited with code {code}"));
        self.task_gone(cx, index, agent, code);
    }

    pub(super) fn task_gone(&mut self, cx: &mut Cx, index: u32, agent: u32, code: u8) {
        let step = &mut self.steps[index as usize];
        step.tasks.insert(agent, Task::Gone);
        step.code = step.code.max(code);
        if step.left().is_empty() && step.state != State::Over {
            step.state = State::Over;
            let status = ExitStatus::Exited(step.code);
            self.say(cx, index, Said::Exited(status));
        }
    }
}

/// A task receives the listening address of agent `at`.
pub fn on_task_reads(cx: &mut Cx, agents: &mut Agents, agent: u32, at: u32) {
    let AgentProcess { host, ref dials, .. } = agents[agent];
    let is_its_parent = agents.hosts[host as usize].parent == Some(at);
    if agents[agent].is_running() && is_its_parent && dials.is_none() {
        task_dials(cx, agents, agent, at);
    }
}

fn task_dials(cx: &mut Cx, agents: &mut Agents, agent: u32, at: u32) {
    agents[agent].dials = Some(format!("agent {at}"));
    cx.after(cx.spec.timing.handshake, Event::AgentLink(agent));
}
