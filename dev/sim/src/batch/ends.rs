//! Steps that end before their tasks: given up, cancelled, or ended by the death of their call.

use super::{KILLED, Said, State};
use crate::clock::Event;
use crate::world::World;
use wireup_proto::io::{ExitStatus, Input};
use wireup_wire::signal::SIGTERM;

/// Time from SIGTERM to SIGKILL for a cancelled step (ns), as in Slurm (`KillWait`).
const KILL_WAIT_NS: u64 = 30_000_000_000;
/// Time for which a root that has left lets its steps run before they are killed (ns).
const STEP_END_NS: u64 = 2_000_000_000;

impl World {
    /// Gives up a step. As with Slurm, the report is in the root's pipe before the other tasks are killed.
    pub(super) fn give_up_step(&mut self, index: u32) {
        self.append_error(index, "srun: error: Application launch failed: Communication connection failure\n");
        let step = &mut self.batch.steps[index as usize];
        if step.state == State::Over {
            return;
        }
        step.state = State::GivenUp;
        self.say(index, Said::GivenUp);
    }

    /// Kills all remaining tasks of a step.
    pub(crate) fn on_step_killed(&mut self, index: u32) {
        for agent in self.batch.steps[index as usize].left() {
            if let Some(process) = self.agents.newest_at(agent) {
                self.jobs.expect_losses(&self.cx);
                self.kill_agent(process);
            } else {
                self.task_gone(index, agent, KILLED);
            }
        }
    }

    pub(super) fn blame_step(&mut self, index: u32, must: bool) {
        let tasks: Vec<u32> = self.batch.steps[index as usize].tasks.keys().copied().collect();
        for agent in tasks {
            let must = must && self.jobs.has_ranks(agent);
            self.membership.blame_agent(&mut self.cx, &mut self.jobs, agent, must);
        }
    }

    pub(crate) fn cancel_steps(&mut self) {
        for index in self.batch.running() {
            self.blame_step(index, false);
            let step = &mut self.batch.steps[index as usize];
            if step.state != State::Running {
                continue;
            }
            let words = format!("STEP 1.{index} ON node1 CANCELLED AT 2026-01-01T00:00:00");
            step.stderr.push_str(&format!("slurmstepd: error: *** {words} ***\n"));
            step.state = State::Cancelled(words);
            for agent in step.left() {
                if let Some(process) = self.agents.newest_at(agent) {
                    self.jobs.expect_losses(&self.cx);
                    self.tell_agent(process, Input::ToldToEnd { signal: SIGTERM });
                } else {
                    self.task_gone(index, agent, 128 + SIGTERM as u8);
                }
            }
            self.cx.clock.after(KILL_WAIT_NS, Event::StepKilled(index));
        }
    }

    /// The calls die: their tasks receive no more input, and tasks that have not started do not start.
    pub(crate) fn kill_steps(&mut self) {
        for index in self.batch.running() {
            self.blame_step(index, false);
            self.batch.steps[index as usize].state = State::Over;
            for agent in self.batch.steps[index as usize].left() {
                if let Some(process) = self.agents.newest_at(agent) {
                    self.give_up_waiting(process, "");
                }
                if self.agents.newest_at(agent).is_none() {
                    self.task_gone(index, agent, KILLED);
                }
            }
            self.say(index, Said::Exited(ExitStatus::Signalled { signal: 9, core_dumped: false }));
        }
    }

    /// The root has left: its steps end on their own, or are killed.
    pub(crate) fn end_steps(&mut self) {
        for index in self.batch.running() {
            self.cx.clock.after(STEP_END_NS, Event::StepKilled(index));
        }
    }
}
