//! Quiet: when nothing is in progress, agents keep nothing of completed collectives, apart from the table of where a
//! job's ranks listen.

use crate::agents::ProcessState;
use crate::jobs::Job;
use crate::world::World;

/// Time without an event after which nothing is in flight (ns): longer than any message, start or handshake takes.
pub const QUIET_NS: u64 = 150_000_000;

/// Called when nothing has happened for `QUIET_NS`. Returns true if no rank waited in a collective or barrier, so that
/// all agents were checked.
pub fn check_quiet(world: &World) -> Result<bool, String> {
    let is_quiet = |job: &Job| {
        let (collectives, barriers) = (&job.checks.collectives, &job.checks.group_barriers);
        let barriers_are_over = barriers.all_entered() && !barriers.is_waited_in();
        collectives.all_entered() && collectives.unfinished().is_none() && barriers_are_over
    };
    let mut active = world.jobs.all.iter().filter(|job| !job.checks.has_ended).peekable();
    if !world.cx.spec.faults.is_empty() || active.peek().is_none() || !active.all(is_quiet) {
        return Ok(false);
    }
    for (agent, process) in (0..).zip(&world.agents.all) {
        let ProcessState::Running(machine) = &process.state else { continue };
        let nodes = world.jobs.nodes_of(process.host, agent);
        let arrays: usize = nodes.into_iter().map(|node| arrays_beside_the_table(world, node)).sum();
        let open = machine.open_exchanges();
        if open + arrays > 0 {
            return Err(format!("agent {agent} holds {open} collectives that are over and {arrays} arrays"));
        }
    }
    Ok(true)
}

fn arrays_beside_the_table(world: &World, node: u32) -> usize {
    let has_table = world.jobs.job_at(node).plan.options.process.rank_ports.is_some();
    let arrays = world.jobs.nodes[node as usize].memory.array_count();
    arrays - usize::from(has_table && arrays > 0)
}
