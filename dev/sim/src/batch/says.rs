//! The messages from a step to the root, in order and with a delay.

use super::{Said, State, Task};
use crate::clock::Event;
use crate::world::World;
use wireup_proto::io::Input;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{SpawnError, SpawnStep};

impl World {
    pub(super) fn append_error(&mut self, index: u32, words: &str) {
        self.batch.steps[index as usize].stderr.push_str(words);
    }

    /// Nothing is reported about tasks once a step is given up.
    pub(super) fn say_problem(&mut self, index: u32, agent: u32, problem: &str) {
        match self.batch.steps[index as usize].state {
            State::Running | State::Cancelled(_) => {
                self.say(index, Said::Problem { agent, problem: problem.to_owned() });
            }
            State::GivenUp | State::Over => {}
        }
    }

    pub(super) fn say(&mut self, index: u32, said: Said) {
        let delay_ns = self.cx.draw(self.cx.spec.timing.report);
        self.batch.steps[index as usize].says.push(&mut self.cx.clock, delay_ns, said, Event::StepSays(index));
    }

    pub(crate) fn on_step_says(&mut self, index: u32) {
        let step = &mut self.batch.steps[index as usize];
        let shell = step.shell;
        let Some(said) = step.says.pop() else { return };
        if !self.agents[0].is_running() {
            return;
        }
        match said {
            Said::Begun { agent, listens } => {
                self.tell_agent(0, Input::StepTold { shell, agent: AgentId(agent), problem: None });
                if listens && self.batch.known.insert(agent) {
                    self.tell_tasks(agent);
                }
            }
            Said::Problem { agent, problem } => {
                self.tell_agent(0, Input::StepTold { shell, agent: AgentId(agent), problem: Some(problem.into()) });
            }
            Said::GivenUp => self.on_step_killed(index),
            Said::CannotCall => {
                let error = SpawnError { step: SpawnStep::Find, what: "srun".into(), errno: 2 };
                self.tell_agent(0, Input::ShellEnded { shell, end: Err(error) });
            }
            Said::Exited(status) => {
                let stderr = step.stderr.clone();
                self.tell_agent(0, Input::ShellEnded { shell, end: Ok((status, stderr)) });
            }
        }
    }

    /// The root tells all started tasks where an agent listens.
    fn tell_tasks(&mut self, at: u32) {
        for step in self.batch.running() {
            let step = &self.batch.steps[step as usize];
            let begun = step.tasks.iter().filter(|(_, task)| **task == Task::Begun).map(|(agent, _)| *agent);
            for host in begun.collect::<Vec<u32>>() {
                // A task that has begun has one process.
                self.tell_task(self.agents.hosts[host as usize].processes[0], at);
            }
        }
    }
}
