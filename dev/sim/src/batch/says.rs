//! The messages that `srun` writes to the root about a step and its tasks, in order and each after a delay.

use super::{Batch, Said, State, Task};
use crate::clock::Event;
use crate::cx::Cx;
use crate::hosts::Agents;
use wireup_proto::io::Input;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{SpawnError, SpawnStep};

impl Batch {
    pub(super) fn append_error(&mut self, index: u32, words: &str) {
        self.steps[index as usize].stderr.push_str(words);
    }

    /// Reports a problem of one task to the root, unless the step is given up or has ended.
    pub(super) fn say_problem(&mut self, cx: &mut Cx, index: u32, agent: u32, problem: &str) {
        match self.steps[index as usize].state {
            State::Running | State::Cancelled(_) => {
                self.say(cx, index, Said::Problem { agent, problem: problem.to_owned() });
            }
            State::GivenUp | State::Over => {}
        }
    }

    pub(super) fn say(&mut self, cx: &mut Cx, index: u32, said: Said) {
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
