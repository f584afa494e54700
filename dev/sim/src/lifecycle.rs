//! How agents start and end: started by other processes, exiting by themselves, killed, or without power.

use crate::agents::{ProcessState, Starter};
use crate::calls::Outcome;
use crate::clock::Event;
use crate::configs;
use crate::world::World;
use std::sync::Arc;
use wireup_coll::tree::Tree;
use wireup_proto::AgentConfig;
use wireup_proto::io::ShellId;
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;

impl World {
    /// Starts an agent's process, with the jobs of its bootstrap message; returns its number.
    pub(crate) fn start_agent(&mut self, config: AgentConfig, jobs: Vec<Arc<JobSpec>>) -> u32 {
        let host = config.agent;
        let agent = self.agents.start(&mut self.cx, config, jobs);
        if !Tree::new(self.cx.spec.agents, self.cx.spec.fanout).children(host).is_empty() {
            self.on_agent_listens(agent);
        }
        agent
    }

    pub(crate) fn on_agent_listens(&mut self, agent: u32) {
        if let Some(input) = self.agents.on_listens(agent) {
            self.tell_agent(agent, input);
        }
    }

    /// Carries out the consequences of an event of a remote shell.
    pub(crate) fn on_call_outcome(&mut self, index: u32, outcome: Outcome) {
        match outcome {
            Outcome::Waits => {}
            Outcome::Tells(caller, input) => self.tell_agent(caller, input),
            Outcome::TimesOut(host) => self.strike_now(host),
            Outcome::Starts { bootstrap, dials, handshake_ns } => {
                let host = bootstrap.agent.0;
                let (config, jobs) = configs::child(*bootstrap, self.cx.local_now(host));
                let agent = self.start_agent(config, jobs);
                self.agents[agent].starter = Some(Starter::Call(index));
                self.agents[agent].dials = dials;
                self.cx.clock.after(handshake_ns, Event::AgentLink(agent));
                if self.calls.on_started(&mut self.cx, &mut self.agents, index, handshake_ns) {
                    self.strike_now(host);
                }
                self.on_agent_turn(agent);
            }
        }
    }

    pub(crate) fn stop_shell(&mut self, caller: u32, shell: ShellId) {
        let Some((index, dies)) = self.calls.stop(&mut self.cx, &self.agents, caller, shell) else { return };
        self.kill_agents(dies);
        self.calls.on_stopped(&mut self.cx, index);
    }

    /// A task of a step is launched, and its agent started.
    pub(crate) fn on_task(&mut self, index: u32, host: u32) {
        if let Some(bootstrap) = self.batch.on_task(&mut self.cx, &mut self.agents, index, host) {
            let (config, jobs) = configs::task(bootstrap, AgentId(host), self.cx.local_now(host));
            let agent = self.start_agent(config, jobs);
            self.batch.on_started(&mut self.cx, &mut self.agents, index, agent);
            self.on_agent_turn(agent);
        }
    }

    /// A new agent dials its parent. If it has no parent to link to, it exits at once.
    pub(crate) fn on_agent_link(&mut self, agent: u32) {
        let World { cx, agents, net, calls, .. } = self;
        if agents[agent].is_running() && !agents.on_dials_parent(cx, net, calls, agent) {
            if agents[agent].step().is_some() {
                // A step starts each of its tasks whatever happens to its other tasks. The job may have ended already,
                // without the output of this agent's ranks.
                self.jobs.expect_losses(&self.cx);
            }
            self.kill_agent(agent);
        }
    }

    /// An agent exits by itself; its ranks end with it.
    pub(crate) fn agent_leaves(&mut self, agent: u32) {
        let host = self.agents[agent].host;
        if self.cx.spec.is_standing {
            self.membership.check_leaves(&mut self.cx, &self.agents, &self.net, agent);
        } else if !self.agents[agent].is_cut_off {
            let nodes = self.jobs.nodes_of(host, agent);
            if let Some(rank) = nodes.into_iter().find_map(|node| self.jobs.running_rank(node)) {
                self.cx.problem(format!("{} exits while rank {rank} runs", self.agents.name(agent)));
            }
        }
        self.agents[agent].state = ProcessState::Left;
        self.jobs.agent_ends(host, agent);
        for link in &self.agents[agent].links {
            let from = self.net.end_of(*link, agent);
            self.net.close(&mut self.cx.clock, *link, from);
        }
        self.membership.on_gone(agent);
        self.batch.on_agent_ended(&mut self.cx, &self.agents[agent]);
        self.calls.on_agent_ended(&mut self.cx, &self.agents[agent]);
        if agent == 0 {
            self.batch.on_root_left(&mut self.cx);
        }
    }

    /// Kills agents with whose death output may be lost.
    pub(crate) fn kill_agents(&mut self, agents: impl IntoIterator<Item = u32>) {
        for agent in agents {
            self.jobs.expect_losses(&self.cx);
            self.kill_agent(agent);
        }
    }

    /// Kills an agent by `SIGKILL`: its ranks die with it.
    pub(crate) fn kill_agent(&mut self, agent: u32) {
        self.agents.kill(&self.cx, agent);
        self.membership.on_gone(agent);
        for link in &self.agents[agent].links {
            let from = self.net.end_of(*link, agent);
            self.net.kill_end(&mut self.cx.clock, *link, from);
        }
        self.jobs.agent_ends(self.agents[agent].host, agent);
        self.batch.on_agent_ended(&mut self.cx, &self.agents[agent]);
        self.calls.on_agent_ended(&mut self.cx, &self.agents[agent]);
        if agent == 0 {
            self.kill_steps();
        }
    }

    /// The `srun` processes of all steps die.
    pub(crate) fn kill_steps(&mut self) {
        let World { cx, agents, membership, jobs, .. } = self;
        let dying = self.batch.kill(cx, agents, membership, jobs);
        self.kill_agents(dying);
    }

    /// The host of an agent has lost power: nothing more is received from it.
    pub(crate) fn vanish(&mut self, agent: u32) {
        self.agents.kill(&self.cx, agent);
        self.membership.on_gone(agent);
        for link in &self.agents[agent].links {
            self.membership.on_broken(*link);
            self.net.silence(&mut self.cx.clock, *link, self.cx.spec.node_timeout_ns);
        }
        self.jobs.agent_ends(self.agents[agent].host, agent);
        self.calls.on_agent_vanished(&mut self.cx, &self.agents[agent]);
    }

    /// A fault affects an agent at this moment, so that other agents may declare it lost.
    pub(crate) fn strike_now(&mut self, host: u32) {
        let now = self.cx.clock.now();
        self.membership.strike(&mut self.cx, &mut self.jobs, host, now);
    }
}
