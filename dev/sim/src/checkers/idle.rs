//! A session that outlives its jobs: when the clock holds no future event, agents keep no state of a job and have no
//! deadline, and the root knows which agents are up.

use crate::agents::ProcessState;
use crate::world::World;
use wireup_proto::Holds;
use wireup_wire::session::{NodeState, Presence};

/// Maximum bytes that an agent may store for each other agent between jobs: some small frames that were not
/// acknowledged.
const KEPT_BYTES_MAX: usize = 8 << 10;

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
