//! Quiet: when nothing is in progress, agents keep nothing of completed collectives, apart from the table of where a
//! job's ranks listen.

use crate::agents::ProcessState;
use crate::jobs::Job;
use crate::world::World;

/// Longer than any message, start or handshake takes: if nothing happens for this long, nothing is in flight.
pub const QUIET_NS: u64 = 150_000_000;

impl World {
    /// Nothing has happened for a while, and no rank waits.
    pub(crate) fn check_quiet(&mut self) {
        let is_quiet = |job: &Job| {
            let (collectives, barriers) = (&job.checks.collectives, &job.checks.group_barriers);
            let barriers_are_over = barriers.all_entered() && !barriers.is_waited_in();
            collectives.all_entered() && collectives.unfinished().is_none() && barriers_are_over
        };
        let mut active = self.jobs.iter().filter(|job| !job.checks.is_over()).peekable();
        if !self.spec.faults.is_empty() || active.peek().is_none() || !active.all(is_quiet) {
            return;
        }
        for agent in 0..self.agents.len() as u32 {
            let ProcessState::Running(machine) = &self.agents[agent as usize].state else { continue };
            let nodes = self.nodes_of(agent);
            let arrays: usize = nodes.iter().map(|node| self.arrays_beside_the_table(*node)).sum();
            let open = machine.open_exchanges();
            if open + arrays > 0 {
                let problem = format!("agent {agent} holds {open} collectives that are over and {arrays} arrays");
                return self.checks.problem(problem);
            }
        }
        self.checks.quiet += 1;
    }

    fn arrays_beside_the_table(&self, node: u32) -> usize {
        let node = &self.nodes[node as usize];
        let has_table = self.jobs[node.job as usize].plan.options.process.rank_ports.is_some();
        node.memory.array_count() - usize::from(has_table && node.memory.array_count() > 0)
    }
}
