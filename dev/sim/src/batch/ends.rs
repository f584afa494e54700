//! Steps that end before their tasks: given up or cancelled by the batch system, or ended by the death of `srun`, which
//! the root has started for the step.

use super::{Batch, KILLED, Said, State};
use crate::clock::Event;
use crate::cx::Cx;
use crate::hosts::Agents;
use crate::jobs::Jobs;
use crate::membership::Membership;
use wireup_proto::io::ExitStatus;
use wireup_wire::signal::SIGTERM;

/// Time from SIGTERM to SIGKILL for a cancelled step (ns), as in Slurm (`KillWait`).
const KILL_WAIT_NS: u64 = 30_000_000_000;
/// Time for which the steps of a root that has exited continue before they are killed (ns).
const STEP_END_NS: u64 = 2_000_000_000;

impl Batch {
    /// Gives up a step. As with Slurm, the report reaches the root's pipe before the other tasks are killed.
    pub(super) fn give_up(&mut self, cx: &mut Cx, index: u32) {
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
