//! A batch system: the steps that the root starts, and the state of each of their tasks.
//!
//! The batch system behaves like Slurm. A task that cannot be launched is reported, and when all such tasks are
//! reported the step is given up. A task that exits with a code or is killed is reported. `srun` ends when no task is
//! left, with the highest exit code. `tasks` handles each task, `says` the messages of a step, `ends` the end of a
//! step.

mod ends;
mod says;
mod tasks;

use crate::cx::Cx;
use crate::fault_injection::NoStart;
use crate::fifo::Fifo;
use crate::hosts::Agents;
use crate::jobs::Jobs;
use crate::membership::Membership;
use crate::remote::{Program, Reach, Remote};
use std::collections::{BTreeMap, BTreeSet};
use tasks::launch_task;
pub use tasks::on_task_reads;
use wireup_proto::io::{ExitStatus, How, ShellId};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Bootstrap;

/// Exit code of a task that is killed.
const KILLED: u8 = 137;
/// Exit code of a task that is not launched.
const GIVEN_UP: u8 = 233;

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
