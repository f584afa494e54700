//! The tasks of a step: their agents start or fail to start, and end.

use super::{GIVEN_UP, KILLED, Said, State, Task};
use crate::agents::{AgentProcess, ProcessState};
use crate::clock::Event;
use crate::configs;
use crate::fault_injection::NoStart;
use crate::remote::{Pace, Program};
use crate::world::World;
use wireup_proto::io::{ExitStatus, How};
use wireup_proto::{NEEDED, NEEDED_WORDS};
use wireup_wire::ids::AgentId;

/// Exit code of a task whose program cannot be executed.
const NO_EXEC: u8 = 2;
/// Exit code of an agent that cannot start.
const CANNOT: u8 = 125;

impl World {
    pub(super) fn launch_task(&mut self, step: u32, agent: u32) {
        let no_start = self.agents.hosts[agent as usize].no_start;
        if no_start.is_some() {
            // Where the program is missing, a step that fails or never ends keeps the other tasks from receiving the
            // program.
            let tasks = self.batch.steps[step as usize].tasks.keys();
            let mut hosts = tasks.filter_map(|agent| self.host_spec(*agent));
            if hosts.any(|host| host.program == Program::Missing) {
                self.blame_step(step, false);
            }
            self.membership.blame_agent(&mut self.cx, &mut self.jobs, agent, true);
        }
        let pace = self.host_spec(agent).map_or(Pace::Prompt, |host| host.pace);
        let mut delay_ns = self.cx.draw(self.cx.spec.timing.agent_start);
        match pace {
            Pace::Slow { by_ns } => delay_ns += by_ns,
            // A file system hangs: the task exists, but its agent never starts.
            Pace::Never => return,
            Pace::Prompt => {}
        }
        if no_start != Some(NoStart::Silence) {
            self.cx.clock.after(delay_ns, Event::Task(step, agent));
        }
    }

    /// Launches a task as far as possible.
    pub(crate) fn on_task(&mut self, index: u32, agent: u32) {
        let step = &mut self.batch.steps[index as usize];
        if step.tasks.get(&agent) != Some(&Task::Launched) {
            return;
        }
        if step.unreachable.remove(&agent) {
            let is_last = step.unreachable.is_empty();
            self.say_problem(index, agent, "Communication connection failure");
            self.task_gone(index, agent, GIVEN_UP);
            if is_last {
                self.give_up_step(index);
            }
            return;
        }
        if let Some(NoStart::ShellFails { code }) = self.agents.hosts[agent as usize].no_start {
            return self.task_fails(index, agent, code);
        }
        let program = self.host_spec(agent).map_or(Program::There, |host| host.program);
        let is_stored = self.agents.hosts[agent as usize].has_program;
        match (self.batch.steps[index as usize].how, program) {
            (How::Plain | How::Look, Program::There) => self.on_task_begins(index, agent),
            (How::Plain, Program::Missing | Program::OtherArch) => {
                self.append_error(index, "slurmstepd: error: execve(): wireup: No such file or directory\n");
                self.task_fails(index, agent, NO_EXEC);
            }
            (How::Look, Program::Missing) if is_stored => self.on_task_begins(index, agent),
            (How::Send, Program::There | Program::Missing) => {
                self.agents.hosts[agent as usize].has_program = true;
                self.task_gone(index, agent, 0);
            }
            (How::Look, Program::Missing) | (How::Look | How::Send, Program::OtherArch) => {
                self.append_error(index, &format!("{NEEDED_WORDS} s390x\n"));
                self.task_fails(index, agent, NEEDED);
            }
        }
    }

    fn on_task_begins(&mut self, index: u32, host: u32) {
        let step = &mut self.batch.steps[index as usize];
        step.tasks.insert(host, Task::Begun);
        let bootstrap = step.bootstrap.clone();
        let start_timeout_ns = bootstrap.session.start_timeout_ns;
        let (config, jobs) = configs::task(bootstrap, AgentId(host), self.cx.local_now(host));
        let agent = self.start_agent(config, jobs);
        self.agents[agent].step = Some(index);
        let listens = self.agents[agent].listens;
        self.say(index, Said::Begun { agent: host, listens });
        if self.agents.hosts[host as usize].parent == Some(0) {
            self.task_dials(agent, 0);
        } else {
            self.cx.clock.after(start_timeout_ns, Event::TaskWaited(agent));
            for at in self.batch.known.clone() {
                self.tell_task(agent, at);
            }
        }
        self.on_agent_turn(agent);
    }

    fn task_dials(&mut self, agent: u32, at: u32) {
        self.agents[agent].dials = Some(format!("agent {at}"));
        self.cx.after(self.cx.spec.timing.handshake, Event::AgentLink(agent));
    }

    pub(super) fn tell_task(&mut self, agent: u32, at: u32) {
        self.cx.after(self.cx.spec.timing.report, Event::TaskReads(agent, at));
    }

    /// A task reads that agent `at` listens.
    pub(crate) fn on_task_reads(&mut self, agent: u32, at: u32) {
        let AgentProcess { host, ref dials, .. } = self.agents[agent];
        let is_its_parent = self.agents.hosts[host as usize].parent == Some(at);
        if self.agents[agent].is_running() && is_its_parent && dials.is_none() {
            self.task_dials(agent, at);
        }
    }

    /// The task has waited too long for the address of its parent.
    pub(crate) fn on_task_waited(&mut self, agent: u32) {
        self.give_up_waiting(agent, "cannot connect to the parent agent: its address did not arrive in time");
    }

    pub(super) fn give_up_waiting(&mut self, agent: u32, problem: &str) {
        let process = &self.agents[agent];
        let Some(step) = process.step.filter(|_| process.is_running() && process.dials.is_none()) else { return };
        let host = process.host;
        self.jobs.expect_losses(&self.cx);
        self.say_problem(step, host, problem);
        self.batch.steps[step as usize].code = self.batch.steps[step as usize].code.max(CANNOT);
        self.kill_agent(agent);
    }

    /// An agent that was started by a step has ended.
    pub(crate) fn task_ends(&mut self, agent: u32) {
        let AgentProcess { host, step: Some(step), ref state, .. } = self.agents[agent] else { return };
        match state {
            ProcessState::Killed => {
                let problem = match &self.batch.steps[step as usize].state {
                    State::Cancelled(words) => words.clone(),
                    State::Running | State::GivenUp | State::Over => "Killed".to_owned(),
                };
                self.say_problem(step, host, &problem);
                self.task_gone(step, host, KILLED);
            }
            ProcessState::Running(_) | ProcessState::Left => self.task_gone(step, host, 0),
        }
    }

    fn task_fails(&mut self, index: u32, agent: u32, code: u8) {
        self.say_problem(index, agent, &format!("its task exited with code {code}"));
        self.task_gone(index, agent, code);
    }

    pub(super) fn task_gone(&mut self, index: u32, agent: u32, code: u8) {
        let step = &mut self.batch.steps[index as usize];
        step.tasks.insert(agent, Task::Gone);
        step.code = step.code.max(code);
        if step.left().is_empty() && step.state != State::Over {
            step.state = State::Over;
            let status = ExitStatus::Exited(step.code);
            self.say(index, Said::Exited(status));
        }
    }
}
