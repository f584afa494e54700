//! How agents start and end: started by their parents, linked, exiting by themselves or killed.

use crate::hosts::{Host, Life};
use crate::net::Sort;
use crate::replay::{Recording, Told};
use crate::world::World;
use wireup_coll::tree::Tree;
use wireup_proto::{Agent, AgentConfig};
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;

impl World {
    /// Starts an agent's process, with the jobs of its bootstrap message.
    pub(crate) fn come_alive(&mut self, host: u32, config: AgentConfig, jobs: Vec<JobSpec>) {
        let now = self.local_now(host);
        let mut recording = (self.spec.record == Some(host)).then(|| Recording::new(config.clone()));
        let mut machine = Agent::new(config);
        for job in jobs {
            if let Some(recording) = &mut recording {
                recording.on_told(Told::Launch(now, Box::new(job.clone())));
            }
            machine.launch(now, job);
        }
        self.recording = recording.or(self.recording.take());
        let host_spec = &mut self.hosts[host as usize];
        host_spec.life = Life::Alive(Box::new(machine));
        if !Tree::new(self.spec.agent_count(), self.spec.fanout).children(AgentId(host)).is_empty() {
            self.on_agent_listens(host);
        }
    }

    pub(crate) fn on_agent_link(&mut self, host: u32) {
        let Host { life: Life::Alive(_), dials, parent, .. } = self.hosts[host as usize] else { return };
        if dials != parent {
            return self.checks.problem(format!("agent {host} dials {dials:?}, not its parent"));
        }
        let parent = parent.filter(|parent| self.hosts[*parent as usize].is_alive());
        // An agent that has no parent to link to exits at once.
        let Some(parent) = parent else {
            if self.hosts[host as usize].step.is_some() {
                // A step starts its tasks whatever happens to the others. The job may have ended by now without the output of this agent's
                // ranks.
                self.checks.output.expect_losses();
            }
            return self.kill_agent(host);
        };
        self.agent_call_links(host);
        let link = self.net.next_link();
        let ends = [self.hosts[parent as usize].new_end(parent, link), self.hosts[host as usize].new_end(host, link)];
        self.net.connect(&mut self.clock, ends, Sort::Tree);
    }

    pub(crate) fn agent_leaves(&mut self, host: u32) {
        if let Some(rank) = self.running_rank(host).filter(|_| !self.hosts[host as usize].is_cut_off) {
            self.checks.problem(format!("agent {host} exits while rank {rank} runs"));
        }
        self.hosts[host as usize].life = Life::Left;
        self.hosts[host as usize].memory.clear();
        for rank in self.hosts[host as usize].ranks.clone() {
            self.procs[rank as usize].vanish();
        }
        for link in self.hosts[host as usize].links.clone() {
            let from = self.end_of(link, host);
            self.net.close(&mut self.clock, link, from);
        }
        self.hosts[host as usize].server = None;
        self.agent_call_ends(host);
        if host == 0 {
            self.end_steps();
        }
    }

    /// `SIGKILL` for an agent: its ranks die with it.
    pub(crate) fn kill_agent(&mut self, host: u32) {
        // Outputs that were not carried out are also part of the recording.
        while let Life::Alive(machine) = &mut self.hosts[host as usize].life {
            let Some(output) = machine.poll() else { break };
            self.on_agent_output(host, &output);
        }
        self.hosts[host as usize].life = Life::Killed;
        self.hosts[host as usize].memory.clear();
        self.hosts[host as usize].server = None;
        for link in self.hosts[host as usize].links.clone() {
            let from = self.end_of(link, host);
            self.net.kill_end(&mut self.clock, link, from);
        }
        for rank in self.hosts[host as usize].ranks.clone() {
            self.procs[rank as usize].vanish();
        }
        self.agent_call_ends(host);
        if host == 0 {
            self.kill_steps();
        }
    }
}
