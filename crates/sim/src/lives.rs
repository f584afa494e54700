//! How agents come and go: started by their parents, linked, leaving by themselves or killed.

use crate::birth;
use crate::clock::Event;
use crate::faults::{Culprit, NoStart};
use crate::hosts::{Host, Life};
use crate::replay::{Recording, Told};
use crate::world::World;
use wireup_proto::io::{ExitStatus, Input, ShellId};
use wireup_proto::{Agent, AgentConfig};
use wireup_wire::ids::AgentId;
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Bootstrap, SpawnError, SpawnStep};

impl World {
    pub(crate) fn start_agent(&mut self, parent: u32, shell: ShellId, agent: AgentId, bootstrap: Box<Bootstrap>) {
        let host = agent.0;
        let delay_ns = self.spec.timing.agent_start.draw(&mut self.rng);
        let child = &mut self.hosts[host as usize];
        if !matches!(child.life, Life::Unborn) || bootstrap.agent != agent {
            return self.checks.problem(format!("agent {parent} starts agent {agent} a second time, or as another"));
        }
        child.parent = Some(parent);
        child.shell = shell;
        match self.no_start.get(&host) {
            Some(how) => {
                child.life = Life::NeverStarts(*how);
                self.checks.blame(Culprit::Agent(host), true);
                if *how != NoStart::Silence {
                    self.clock.after(delay_ns, Event::AgentStartFails(host));
                }
            }
            None => {
                child.life = Life::Starting(bootstrap);
                self.clock.after(delay_ns, Event::AgentStart(host));
            }
        }
    }

    pub(crate) fn on_agent_start_fails(&mut self, host: u32) {
        let Host { life: Life::NeverStarts(how), parent: Some(parent), shell, .. } = self.hosts[host as usize] else {
            return;
        };
        let input = match how {
            NoStart::NoShell => {
                let error = SpawnError { step: SpawnStep::Find, what: "remote-shell".into(), errno: 2 };
                Input::ShellFailed { shell, error }
            }
            NoStart::ShellFails { code } => {
                Input::ShellExited { shell, status: ExitStatus::Exited(code), stderr: "no route to host".into() }
            }
            NoStart::Silence => return,
        };
        self.tell_agent(parent, input);
    }

    pub(crate) fn on_agent_start(&mut self, host: u32) {
        let parent_lives = self.parent_is_alive(host);
        let life = &mut self.hosts[host as usize].life;
        // A remote shell dies with the agent that started it.
        let Life::Starting(bootstrap) = std::mem::replace(life, Life::Killed) else { return };
        if parent_lives {
            let (config, jobs) = birth::child(*bootstrap, self.clock.now());
            self.come_alive(host, config, jobs);
            let handshake_ns = self.spec.timing.handshake.draw(&mut self.rng);
            self.clock.after(handshake_ns, Event::AgentLink(host));
            self.on_agent_turn(host);
        }
    }

    /// An agent's process begins, with the jobs of its bootstrap message.
    pub(crate) fn come_alive(&mut self, host: u32, config: AgentConfig, jobs: Vec<JobSpec>) {
        let now = self.clock.now();
        let mut recording = (self.spec.record == Some(host)).then(|| Recording::new(config.clone()));
        let mut machine = Agent::new(config);
        for job in jobs {
            if let Some(recording) = &mut recording {
                recording.on_told(Told::Launch(now, job.clone()));
            }
            machine.launch(now, job);
        }
        self.recording = recording.or(self.recording.take());
        self.hosts[host as usize].life = Life::Alive(Box::new(machine));
    }

    pub(crate) fn on_agent_link(&mut self, host: u32) {
        if !self.hosts[host as usize].is_alive() {
            return;
        }
        let parent = self.hosts[host as usize].parent.filter(|parent| self.hosts[*parent as usize].is_alive());
        // An agent that finds nobody to link to leaves at once.
        let Some(parent) = parent else { return self.kill_agent(host) };
        let link = self.net.next_link();
        let ends = [self.hosts[parent as usize].new_end(parent, link), self.hosts[host as usize].new_end(host, link)];
        self.net.connect(&mut self.clock, ends, false);
    }

    fn parent_is_alive(&self, host: u32) -> bool {
        self.hosts[host as usize].parent.is_some_and(|parent| self.hosts[parent as usize].is_alive())
    }

    pub(crate) fn agent_leaves(&mut self, host: u32) {
        if let Some(rank) = self.running_rank(host).filter(|_| !self.hosts[host as usize].is_cut_off) {
            self.checks.problem(format!("agent {host} leaves while rank {rank} runs"));
        }
        self.hosts[host as usize].life = Life::Left;
        for rank in self.hosts[host as usize].ranks.clone() {
            self.procs[rank as usize].vanish();
        }
        for link in self.hosts[host as usize].links.clone() {
            let from = self.end_of(link, host);
            self.net.close(&mut self.clock, link, from);
        }
        self.shell_ends(host);
    }

    /// `SIGKILL` for an agent: its ranks vanish with it.
    pub(crate) fn kill_agent(&mut self, host: u32) {
        // What it wanted and nobody did is part of what it was told.
        while let Life::Alive(machine) = &mut self.hosts[host as usize].life {
            let Some(output) = machine.poll() else { break };
            self.on_agent_output(host, &output);
        }
        self.hosts[host as usize].life = Life::Killed;
        for link in self.hosts[host as usize].links.clone() {
            let from = self.end_of(link, host);
            self.net.kill_end(&mut self.clock, link, from);
        }
        for rank in self.hosts[host as usize].ranks.clone() {
            self.procs[rank as usize].vanish();
        }
        self.shell_ends(host);
    }

    /// A parent does not wait for a child any more: the shell is killed, and here the agent is the shell's process.
    pub(crate) fn stop_shell(&mut self, parent: u32, shell: ShellId) {
        let called = |host: &Host| host.parent == Some(parent) && host.shell == shell;
        let Some(child) = self.hosts.iter().position(called) else {
            return self.checks.problem(format!("agent {parent} ends a remote shell that it never called"));
        };
        match self.hosts[child].life {
            Life::Alive(_) => self.kill_agent(child as u32),
            Life::Starting(_) => self.hosts[child].life = Life::Killed,
            Life::Unborn | Life::NeverStarts(_) | Life::Left | Life::Killed => {}
        }
    }

    fn shell_ends(&mut self, host: u32) {
        let delay_ns = self.spec.timing.report.draw(&mut self.rng);
        self.clock.after(delay_ns, Event::AgentExited(host));
    }

    pub(crate) fn on_agent_exited(&mut self, host: u32) {
        let Host { shell, parent: Some(parent), .. } = self.hosts[host as usize] else { return };
        let status = match self.hosts[host as usize].life {
            Life::Killed => ExitStatus::Signalled { signal: 9, core_dumped: false },
            _ => ExitStatus::Exited(0),
        };
        self.tell_agent(parent, Input::ShellExited { shell, status, stderr: String::new() });
    }
}
