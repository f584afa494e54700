//! A batch system: the steps that the root starts, and the state of each of their tasks.
//!
//! The batch system behaves like Slurm. A task that cannot be launched is reported, and when all such tasks are
//! reported the step is given up. A task that exits with a code or is killed is reported. `srun` ends when no task is
//! left, with the highest exit code.

use crate::agents::{AgentProcess, ProcessState, Starter};
use crate::clock::Event;
use crate::clock::Fifo;
use crate::cx::Cx;
use crate::fault_injection::NoStart;
use crate::hosts::Agents;
use crate::jobs::Jobs;
use crate::membership::Membership;
use crate::remote::{Pace, Program, Reach, Remote};
use std::collections::{BTreeMap, BTreeSet};
use wireup_proto::io::{ExitStatus, How, Input, ShellId};
use wireup_proto::{NEEDED, NEEDED_WORDS};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Bootstrap, SpawnError, SpawnStep};
use wireup_wire::signal::SIGTERM;

/// Exit code of a task that is killed.
const KILLED: u8 = 137;
/// Exit code of a task that is not launched.
const GIVEN_UP: u8 = 233;
/// Exit code of a task whose program cannot be executed.
const NO_EXEC: u8 = 2;
/// Exit code of an agent that fails to start.
const CANNOT: u8 = 125;
/// Time from SIGTERM to SIGKILL for a cancelled step (ns), as in Slurm (`KillWait`).
const KILL_WAIT_NS: u64 = 30_000_000_000;
/// Time for which the steps of a root that has exited continue before they are killed (ns).
const STEP_END_NS: u64 = 2_000_000_000;

/// The step (`srun`) that an agent asks its driver to start.
pub struct Request {
    /// The agent process that asks for the step.
    pub caller: u32,
    pub shell: ShellId,
    pub agents: Vec<AgentId>,
    pub how: How,
    pub bootstrap: Bootstrap,
}

/// All steps of a world.
#[derive(Default)]
pub struct Batch {
    steps: Vec<Step>,
    shells: BTreeSet<ShellId>,
    /// Agents with children whose listening address the root knows.
    known: BTreeSet<u32>,
}

struct Step {
    shell: ShellId,
    tasks: BTreeMap<u32, Task>,
    how: How,
    bootstrap: Bootstrap,
    says: Fifo<Said>,
    /// Tasks that cannot be launched and have not been reported yet.
    unreachable: BTreeSet<u32>,
    state: State,
    code: u8,
    stderr: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    Launched,
    /// The agent of the task was started.
    Begun,
    Gone,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Running,
    /// The tasks are killed, without a report for each task.
    GivenUp,
    /// The step was cancelled; the text is reported for each task from now on.
    Cancelled(String),
    Over,
}

enum Said {
    Begun {
        agent: u32,
        listens: bool,
    },
    Problem {
        agent: u32,
        problem: String,
    },
    /// The step is given up: the other tasks are killed next.
    GivenUp,
    CannotCall,
    Exited(ExitStatus),
}

impl Batch {
    /// Whether a step that starts this agent was ever requested.
    pub fn was_called(&self, agent: u32) -> bool {
        self.steps.iter().any(|step| step.tasks.contains_key(&agent))
    }

    fn running(&self) -> Vec<u32> {
        (0..self.steps.len() as u32).filter(|at| self.steps[*at as usize].state != State::Over).collect()
    }
}

impl Step {
    fn left(&self) -> Vec<u32> {
        self.tasks.iter().filter(|(_, task)| **task != Task::Gone).map(|(agent, _)| *agent).collect()
    }
}

impl Batch {
    pub fn call(
        &mut self,
        cx: &mut Cx,
        agents: &mut Agents,
        membership: &mut Membership,
        jobs: &mut Jobs,
        request: Request,
    ) {
        let Request { caller, shell, agents: called, how, bootstrap } = request;
        if let Some(problem) = self.bad_step(cx, agents, caller, shell, &called) {
            return cx.problem(format!("agent {caller} calls a step for {called:?}: {problem}"));
        }
        // The driver adds the root's listening address to the bootstrap message.
        let bootstrap = Bootstrap { parent: vec![format!("agent {caller}")], ..bootstrap };
        let index = self.steps.len() as u32;
        let tasks: BTreeMap<u32, Task> = called.iter().map(|agent| (agent.0, Task::Launched)).collect();
        let reaches_nobody = |agent: &u32| cx.host_spec(*agent).is_some_and(|host| host.reach == Reach::Nobody);
        let unreachable = tasks.keys().copied().filter(reaches_nobody).collect();
        self.shells.insert(shell);
        let called: Vec<u32> = tasks.keys().copied().collect();
        let (says, code, stderr, state) = (Fifo::default(), 0, String::new(), State::Running);
        self.steps.push(Step { shell, tasks, how, bootstrap, says, unreachable, state, code, stderr });
        if called.iter().any(|agent| agents.hosts[*agent as usize].no_start == Some(NoStart::NoShell)) {
            self.blame(cx, membership, jobs, index, true);
            self.steps[index as usize].state = State::Over;
            return self.say(cx, index, Said::CannotCall);
        }
        for agent in called {
            if agents.hosts[agent as usize].no_start.is_some() {
                if self.sends_program(cx, index) {
                    self.blame(cx, membership, jobs, index, false);
                }
                membership.blame_agent(cx, jobs, agent, true);
            }
            launch_task(cx, agents, index, agent);
        }
    }

    fn bad_step(
        &self,
        cx: &Cx,
        agents: &Agents,
        caller: u32,
        shell: ShellId,
        called: &[AgentId],
    ) -> Option<&'static str> {
        let is_running = |agent: &AgentId| {
            let mut steps = self.steps.iter().filter(|step| step.state != State::Over);
            steps.any(|step| step.tasks.contains_key(&agent.0))
        };
        if caller != 0 {
            Some("it is not the root")
        } else if !cx.spec.remote.as_ref().is_some_and(Remote::by_step) {
            Some("there is no batch system")
        } else if self.shells.contains(&shell) {
            Some("the shell number was used before")
        } else if called.is_empty() || called.contains(&AgentId(0)) {
            Some("the list is empty or contains the root")
        } else if called.iter().any(|agent| !agents.hosts[agent.index()].processes.is_empty()) {
            Some("one of them was started before")
        } else if called.iter().any(is_running) {
            Some("another step is starting one of them")
        } else {
            None
        }
    }

    /// Whether the program is missing on a host of the step. If so, a task that fails or never ends keeps the other
    /// tasks from receiving the program.
    fn sends_program(&self, cx: &Cx, index: u32) -> bool {
        let mut hosts = self.steps[index as usize].tasks.keys().filter_map(|agent| cx.host_spec(*agent));
        hosts.any(|host| host.program == Program::Missing)
    }

    fn blame(&self, cx: &mut Cx, membership: &mut Membership, jobs: &mut Jobs, index: u32, must: bool) {
        for agent in self.steps[index as usize].tasks.keys() {
            let must = must && jobs.has_ranks(*agent);
            membership.blame_agent(cx, jobs, *agent, must);
        }
    }
}

fn launch_task(cx: &mut Cx, agents: &Agents, step: u32, agent: u32) {
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

/// The tasks of a step: their agents start or fail to start, and end.
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
    fn gives_up(&mut self, cx: &mut Cx, agents: &Agents, agent: u32, problem: &str) -> bool {
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

    fn task_gone(&mut self, cx: &mut Cx, index: u32, agent: u32, code: u8) {
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

/// The messages that `srun` writes to the root about a step and its tasks, in order and each after a delay.
impl Batch {
    fn append_error(&mut self, index: u32, words: &str) {
        self.steps[index as usize].stderr.push_str(words);
    }

    /// Reports a problem of one task to the root, unless the step is given up or has ended.
    fn say_problem(&mut self, cx: &mut Cx, index: u32, agent: u32, problem: &str) {
        match self.steps[index as usize].state {
            State::Running | State::Cancelled(_) => {
                self.say(cx, index, Said::Problem { agent, problem: problem.to_owned() });
            }
            State::GivenUp | State::Over => {}
        }
    }

    fn say(&mut self, cx: &mut Cx, index: u32, said: Said) {
        let delay_ns = cx.draw(cx.spec.timing.report);
        self.steps[index as usize].says.push(&mut cx.clock, delay_ns, said, Event::StepSays(index));
    }

    /// The root receives the next message of a step; `None`: the message is not for the root.
    pub fn on_says(&mut self, cx: &mut Cx, agents: &Agents, index: u32) -> Option<Input> {
        let step = &mut self.steps[index as usize];
        let shell = step.shell;
        let told = |agent, problem| Input::StepTold { shell, agent: AgentId(agent), problem };
        let said = step.says.pop()?;
        if !agents[0].is_running() {
            return None;
        }
        Some(match said {
            Said::Begun { agent, listens } => {
                if listens && self.known.insert(agent) {
                    self.tell_tasks(cx, agents, agent);
                }
                told(agent, None)
            }
            Said::Problem { agent, problem } => told(agent, Some(problem.into())),
            Said::GivenUp => {
                cx.clock.after(0, Event::StepKilled(index));
                return None;
            }
            Said::CannotCall => {
                let error = SpawnError { step: SpawnStep::Find, what: "srun".into(), errno: 2 };
                Input::ShellEnded { shell, end: Err(error) }
            }
            Said::Exited(status) => Input::ShellEnded { shell, end: Ok((status, step.stderr.clone())) },
        })
    }

    /// The root sends the listening address of agent `at` to all started tasks.
    fn tell_tasks(&self, cx: &mut Cx, agents: &Agents, at: u32) {
        for step in self.running() {
            let tasks = &self.steps[step as usize].tasks;
            for (host, _) in tasks.iter().filter(|(_, task)| **task == Task::Begun) {
                // The host of a task that has begun has exactly one agent process.
                let agent = agents.hosts[*host as usize].processes[0];
                cx.after(cx.spec.timing.report, Event::TaskReads(agent, at));
            }
        }
    }
}

/// Steps that end before their tasks: given up or cancelled by the batch system, or ended by the death of `srun`, which
/// the root has started for the step.
impl Batch {
    /// Gives up a step. As with Slurm, the report reaches the root's pipe before the other tasks are killed.
    fn give_up(&mut self, cx: &mut Cx, index: u32) {
        self.append_error(index, "srun: error: Application launch failed: Communication connection failure\n");
        let step = &mut self.steps[index as usize];
        if step.state != State::Over {
            step.state = State::GivenUp;
            self.say(cx, index, Said::GivenUp);
        }
    }

    /// All remaining tasks of a step are killed; returns the running agents of these tasks, which die with their tasks.
    pub fn on_killed(&mut self, cx: &mut Cx, agents: &Agents, index: u32) -> Vec<u32> {
        self.end_tasks(cx, agents, index, KILLED)
    }

    /// Ends the tasks whose agents do not run, with exit code `code`; returns the agents of the other tasks.
    fn end_tasks(&mut self, cx: &mut Cx, agents: &Agents, index: u32, code: u8) -> Vec<u32> {
        let mut running = Vec::new();
        for agent in self.steps[index as usize].left() {
            match agents.newest_at(agent) {
                Some(process) => running.push(process),
                None => self.task_gone(cx, index, agent, code),
            }
        }
        running
    }

    /// The batch system cancels the running steps; returns the agents that receive SIGTERM.
    pub fn cancel(&mut self, cx: &mut Cx, agents: &Agents, membership: &mut Membership, jobs: &mut Jobs) -> Vec<u32> {
        let mut told = Vec::new();
        for index in self.running() {
            self.blame(cx, membership, jobs, index, false);
            let step = &mut self.steps[index as usize];
            if step.state != State::Running {
                continue;
            }
            let words = format!("STEP 1.{index} ON node1 CANCELLED AT 2026-01-01T00:00:00");
            step.stderr.push_str(&format!("slurmstepd: error: *** {words} ***\n"));
            step.state = State::Cancelled(words);
            told.extend(self.end_tasks(cx, agents, index, 128 + SIGTERM as u8));
            cx.clock.after(KILL_WAIT_NS, Event::StepKilled(index));
        }
        told
    }

    /// The `srun` processes of the steps die: tasks receive no more input, and tasks that have not started do not
    /// start. Returns the agents that wait for the address of their parent in vain.
    pub fn kill(&mut self, cx: &mut Cx, agents: &Agents, membership: &mut Membership, jobs: &mut Jobs) -> Vec<u32> {
        let mut waiting = Vec::new();
        for index in self.running() {
            self.blame(cx, membership, jobs, index, false);
            self.steps[index as usize].state = State::Over;
            let running = self.end_tasks(cx, agents, index, KILLED);
            waiting.extend(running.into_iter().filter(|process| self.gives_up(cx, agents, *process, "")));
            self.say(cx, index, Said::Exited(ExitStatus::Signalled { signal: 9, core_dumped: false }));
        }
        waiting
    }

    /// The root has exited: its steps that have not ended after `STEP_END_NS` are killed.
    pub fn on_root_left(&self, cx: &mut Cx) {
        for index in self.running() {
            cx.clock.after(STEP_END_NS, Event::StepKilled(index));
        }
    }
}
