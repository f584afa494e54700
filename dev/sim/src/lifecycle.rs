//! How agents start and end: started by others, exiting by themselves, killed, or without power.

use crate::agents::{AgentProcess, ProcessState};
use crate::world::World;
use std::sync::Arc;
use wireup_coll::tree::Tree;
use wireup_proto::io::ExitStatus;
use wireup_proto::replay::{Recorded, Recording};
use wireup_proto::{Agent, AgentConfig};
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;

/// The exit status of `ssh` when `ssh` itself fails.
const SSH_FAILED: ExitStatus = ExitStatus::Exited(255);

impl World {
    /// Starts an agent's process, with the jobs of its bootstrap message; returns its number.
    pub(crate) fn start_agent(&mut self, config: AgentConfig, jobs: Vec<Arc<JobSpec>>) -> u32 {
        let host = config.agent.0;
        let now = self.cx.local_now(host);
        let is_first = self.agents.hosts[host as usize].processes.is_empty();
        let mut recording = (self.cx.spec.record == Some(host) && is_first).then(|| Recording::new(config.clone()));
        let incarnation = config.snapshot.place(config.agent).map_or(0, |place| place.incarnation);
        let mut machine = Agent::new(config);
        if self.cx.spec.is_standing {
            if let Some(recording) = &mut recording {
                recording.push(Recorded::Begin(now));
            }
            machine.begin(now);
        }
        for job in jobs {
            if let Some(recording) = &mut recording {
                recording.push(Recorded::Launch(now, Box::new(JobSpec::clone(&job))));
            }
            machine.launch(now, job);
        }
        self.recording = recording.or(self.recording.take());
        let agent = self.agents.all.len() as u32;
        self.agents.hosts[host as usize].processes.push(agent);
        let start = self.agents.hosts[host as usize].processes.len() as u32;
        self.agents.all.push(AgentProcess::new(host, start, incarnation, machine));
        self.cx.checks.copies_most = self.cx.checks.copies_most.max(self.agents.running_at(host).len());
        if !Tree::new(self.cx.spec.agents, self.cx.spec.fanout).children(AgentId(host)).is_empty() {
            self.on_agent_listens(agent);
        }
        agent
    }

    /// An agent exits by itself; its ranks end with it.
    pub(crate) fn agent_leaves(&mut self, agent: u32) {
        if self.cx.spec.is_standing {
            self.membership.check_leaves(&mut self.cx, &self.agents, &self.net, agent);
        } else if !self.agents[agent].is_cut_off {
            let running = self.jobs_parts(agent).into_iter().find_map(|node| self.jobs.running_rank(node));
            if let Some(rank) = running {
                self.cx.problem(format!("{} exits while rank {rank} runs", self.agents.name(agent)));
            }
        }
        self.agents[agent].state = ProcessState::Left;
        self.jobs.agent_ends(self.agents[agent].host, agent);
        for link in self.agents[agent].links.clone() {
            let from = self.net.end_of(link, agent);
            self.net.close(&mut self.cx.clock, link, from);
        }
        self.membership.on_gone(agent);
        self.agent_call_ends(agent);
        if agent == 0 {
            self.end_steps();
        }
    }

    /// Kills an agent by `SIGKILL`: its ranks die with it.
    pub(crate) fn kill_agent(&mut self, agent: u32) {
        self.agent_dies(agent);
        for link in self.agents[agent].links.clone() {
            let from = self.net.end_of(link, agent);
            self.net.kill_end(&mut self.cx.clock, link, from);
        }
        self.jobs.agent_ends(self.agents[agent].host, agent);
        self.agent_call_ends(agent);
        if agent == 0 {
            self.kill_steps();
        }
    }

    /// The host of an agent has lost power: nothing more is received from it.
    pub(crate) fn vanish(&mut self, agent: u32) {
        self.agent_dies(agent);
        for link in self.agents[agent].links.clone() {
            self.membership.on_broken(link);
            self.net.silence(&mut self.cx.clock, link, self.cx.spec.node_timeout_ns);
        }
        self.jobs.agent_ends(self.agents[agent].host, agent);
        let timeout_ns = self.cx.spec.node_timeout_ns;
        self.agent_call_lost(agent, timeout_ns, SSH_FAILED, "Timeout, server not responding");
    }

    /// A fault affects an agent at this moment, so that others may lose it.
    pub(crate) fn strike_now(&mut self, host: u32) {
        let now = self.cx.clock.now();
        self.membership.strike(&mut self.cx, &mut self.jobs, host, now);
    }

    fn agent_dies(&mut self, agent: u32) {
        // Outputs that were not carried out are also part of the recording.
        while let ProcessState::Running(machine) = &mut self.agents[agent].state {
            let Some(output) = machine.poll() else { break };
            self.on_agent_output(agent, &output);
        }
        self.agents[agent].state = ProcessState::Killed;
        self.membership.on_gone(agent);
    }
}
