//! A session that outlives its jobs: when nothing is planned any more, agents keep nothing of a job and have no
//! deadline, and the root knows which agents are up.

use crate::agents::ProcessState;
use crate::world::World;
use wireup_wire::session::{NodeState, Presence};

/// Most bytes that an agent may keep for each other agent between jobs: some small frames that were not acknowledged.
const KEPT_BYTES_MAX: usize = 8 << 10;

impl World {
    /// Checks the state of all agents when nothing is planned any more.
    pub(crate) fn check_idle(&mut self) {
        for agent in 0..self.agents.len() as u32 {
            self.check_idle_agent(agent);
        }
    }

    fn check_idle_agent(&mut self, agent: u32) {
        let process = &self.agents[agent as usize];
        let ProcessState::Running(machine) = &process.state else { return };
        if process.is_stopped() {
            return;
        }
        let (holds, deadline) = (machine.holds(), machine.deadline());
        let running =
            self.jobs_parts(agent).into_iter().filter(|node| !self.jobs.nodes[*node as usize].job_is_gone).count();
        let kept_max = KEPT_BYTES_MAX * self.hosts.len();
        if holds.jobs + holds.early_frames + holds.direct_jobs + running > 0 || holds.direct_bytes > kept_max {
            self.cx.problem(format!("{} still holds {holds:?}, and runs {running} jobs", self.name(agent)));
        }
        if let Some(deadline) = deadline {
            self.cx.problem(format!("{} is idle and has a deadline at {deadline:?}", self.name(agent)));
        }
        self.cx.checks.holds.push(holds);
    }

    /// Checks the root's answer about its nodes, at the end.
    pub(crate) fn check_nodes(&mut self, nodes: &[NodeState]) {
        let (mut up, mut lost) = (0, 0);
        for (host, node) in (0..).zip(nodes) {
            let active = |agent: &u32| !self.agents[*agent as usize].is_stopped();
            let processes = self.running_at(host).into_iter().filter(active).count();
            let problem = match &node.presence {
                Presence::Starting => "is neither up nor lost".to_owned(),
                Presence::Up if processes == 0 => "has no process and is not lost".into(),
                Presence::Up if processes > 1 => format!("has {processes} processes"),
                Presence::Lost { problem } if processes > 0 => format!("has a process and is lost: {problem}"),
                Presence::Lost { problem } if !self.membership.is_struck(host) => {
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
            self.cx.problem(format!("agent {host} {problem}"));
        }
        for host in nodes.len() as u32..self.hosts.len() as u32 {
            if self.running_at(host).iter().any(|agent| !self.agents[*agent as usize].is_stopped()) {
                self.cx.problem(format!("agent {host} runs, and the job that it was added for is over"));
            }
        }
        self.cx.checks.nodes = Some((up, lost));
    }
}
