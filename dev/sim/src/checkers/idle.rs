//! Quiet: when nothing is in progress, agents keep nothing of completed collectives, apart from the table of where a
//! job's ranks listen. Idle: when the clock of a session that outlives its jobs holds no future event, agents keep no
//! state of a job and have no deadline, and the root knows which agents are up.

use crate::agents::ProcessState;
use crate::jobs::Job;
use crate::world::World;
use wireup_proto::Holds;
use wireup_wire::session::{NodeState, Presence};

/// Maximum bytes that an agent may store for each other agent between jobs: some small frames that were not
/// acknowledged.
const KEPT_BYTES_MAX: usize = 8 << 10;
/// Time without an event after which nothing is in flight (ns): longer than any message, start or handshake takes.
pub const QUIET_NS: u64 = 150_000_000;

/// The rules that agents have broken when no future event is left, and the state that each agent still holds.
pub fn check_idle(world: &World) -> (Vec<String>, Vec<Holds>) {
    let (mut problems, mut all) = (Vec::new(), Vec::new());
    for (agent, process) in (0..).zip(&world.agents.all) {
        let ProcessState::Running(machine) = &process.state else { continue };
        if process.is_stopped() {
            continue;
        }
        let (holds, deadline, name) = (machine.holds(), machine.deadline(), world.agents.name(agent));
        let nodes = world.jobs.nodes_of(process.host, agent);
        let running = nodes.into_iter().filter(|node| !world.jobs.nodes[*node as usize].job_is_gone).count();
        let kept_max = KEPT_BYTES_MAX * world.agents.hosts.len();
        if holds.jobs + holds.early_frames + holds.direct_jobs + running > 0 || holds.direct_bytes > kept_max {
            problems.push(format!("{name} still holds {holds:?}, and runs {running} jobs"));
        }
        if let Some(deadline) = deadline {
            problems.push(format!("{name} is idle and has a deadline at {deadline:?}"));
        }
        all.push(holds);
    }
    (problems, all)
}

/// Errors in the root's answer about its nodes at the end of the session; then the number of nodes that are up, and the
/// number of lost nodes.
pub fn check_nodes(world: &World, nodes: &[NodeState]) -> (Vec<String>, (usize, usize)) {
    let (mut problems, mut up, mut lost) = (Vec::new(), 0, 0);
    let active = |host: u32| {
        let processes = world.agents.running_at(host).into_iter();
        processes.filter(|agent| !world.agents[*agent].is_stopped()).count()
    };
    for (host, node) in (0..).zip(nodes) {
        let processes = active(host);
        let problem = match &node.presence {
            Presence::Starting => "is neither up nor lost".to_owned(),
            Presence::Up if processes == 0 => "has no process and is not lost".into(),
            Presence::Up if processes > 1 => format!("has {processes} processes"),
            Presence::Lost { problem } if processes > 0 => format!("has a process and is lost: {problem}"),
            Presence::Lost { problem } if !world.membership.is_struck(host) => {
                format!("is lost without a fault: {problem}")
            }
            Presence::Lost { .. } => {
                lost += 1;
                continue;
            }
            Presence::Up => {
                up += 1;
                continue;
            }
        };
        problems.push(format!("agent {host} {problem}"));
    }
    for host in (nodes.len() as u32..world.agents.hosts.len() as u32).filter(|host| active(*host) > 0) {
        problems.push(format!("agent {host} runs, and the job that it was added for is over"));
    }
    (problems, (up, lost))
}

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
