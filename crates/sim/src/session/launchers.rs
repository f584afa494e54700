//! Launchers that attach to the root: those of jobs, and helpers for other requests.

use super::spec::{Fault, JobPlan};
use super::world::{Plan, World};
use crate::net::{Arrival, End, Sort};
use bytes::Bytes;
use wireup_proto::io::{LinkId, Peer};
use wireup_proto::launcher_io::{LauncherInput, LauncherOutput, Notice};
use wireup_proto::{Launcher, LauncherConfig, control_frame};
use wireup_wire::frame::FrameReader;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::{AppSpec, Block, JobOptions, JobSpec, NodeSpec};
use wireup_wire::peer::{self, Control};
use wireup_wire::session::{Presence, Welcome};

pub struct LauncherHost {
    link: u32,
    reader: FrameReader,
    wants: Wants,
    welcome: Option<Welcome>,
    machine: Option<Launcher>,
    unwritten: u32,
    pub is_gone: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wants {
    Job(usize),
    Revive,
    EndJobs,
    /// Asks for the nodes, then ends the session.
    End,
}

impl World {
    /// A launcher attaches: a job's, or the one that ends the session.
    pub(super) fn on_launcher(&mut self, job: Option<usize>) {
        self.attach(job.map_or(Wants::End, Wants::Job));
    }

    pub(super) fn on_helper(&mut self, fault: Fault) {
        self.attach(if fault == Fault::Revive { Wants::Revive } else { Wants::EndJobs });
    }

    pub(super) fn attach_to_end(&mut self) {
        self.on_launcher(None);
    }

    fn attach(&mut self, wants: Wants) {
        let (link, number) = (self.net.next_link(), self.launchers.len() as u32);
        let ends = [self.new_end(0, link), End::Launcher(LinkId(number))];
        self.peers.push([Peer::Launcher; 2]);
        self.net.connect(&mut self.clock, ends, Sort::Tree);
        let (reader, machine) = (FrameReader::new(), None);
        self.launchers.push(LauncherHost { link, reader, wants, welcome: None, machine, unwritten: 0, is_gone: false });
    }

    pub(super) fn launcher_hears(&mut self, number: u32, arrival: Arrival) {
        let launcher = &mut self.launchers[number as usize];
        let link = LinkId(0);
        match (arrival, &mut launcher.machine) {
            (Arrival::Up, _) => {}
            (Arrival::Bytes(head, body), Some(machine)) => {
                for bytes in [head, body].into_iter().filter(|bytes| !bytes.is_empty()) {
                    machine.handle(self.clock.now(), LauncherInput::LinkBytes { link, bytes });
                }
                self.drain(number);
            }
            (Arrival::Bytes(head, body), None) => {
                for mut bytes in [head, body] {
                    self.hears_raw(number, &mut bytes);
                }
            }
            (Arrival::Down(problem), Some(machine)) => {
                machine.handle(self.clock.now(), LauncherInput::LinkDown { link, problem: problem.into() });
                self.drain(number);
            }
            (Arrival::Down(_), None) => launcher.is_gone = true,
        }
    }

    fn hears_raw(&mut self, number: u32, bytes: &mut Bytes) {
        while let Some(frame) = match self.launchers[number as usize].reader.next(bytes) {
            Ok(frame) => frame,
            Err(error) => return self.checks.problem(format!("launcher {number} reads: {error}")),
        } {
            match peer::decode(&frame.payload) {
                Ok(message) => self.on_message(number, message),
                Err(error) => self.checks.problem(format!("launcher {number} reads: {error}")),
            }
        }
    }

    fn on_message(&mut self, number: u32, message: Control) {
        let wants = self.launchers[number as usize].wants;
        match (wants, message) {
            (Wants::Job(job), Control::Welcome(welcome)) => {
                self.launchers[number as usize].welcome = Some(welcome);
                self.plan(self.spec.jobs[job].wait_ns, Plan::Launches { launcher: number });
            }
            (Wants::Revive, Control::Welcome(_)) => self.say(number, &Control::Revive),
            (Wants::Revive, Control::Nodes(nodes)) => {
                if nodes.iter().any(|node| node.presence == Presence::Starting) {
                    self.checks.problem("the answer to Revive contains nodes that are still starting".into());
                }
                self.leave(number);
            }
            (Wants::EndJobs, Control::Welcome(_)) => self.say(number, &Control::AskJobs),
            (Wants::EndJobs, Control::JobList(jobs)) => {
                for entry in jobs {
                    let is_due = self.checks.is_endless(&self.spec, entry.job);
                    if is_due {
                        self.checks.on_kill(entry.job);
                        self.say(number, &Control::KillJob { job: entry.job, signal: None, by: "helper".into() });
                    }
                }
                // Its requests are on their way; it needs no answers.
                self.leave(number);
            }
            (Wants::End, Control::Welcome(_)) => self.say(number, &Control::AskNodes),
            (Wants::End, Control::Nodes(nodes)) => {
                let living: Vec<usize> = (0..self.spec.agents).map(|host| self.going_on_at(host)).collect();
                self.checks.on_nodes(&nodes, &living);
                self.say(number, &Control::EndSession { kill: true });
            }
            (Wants::End, Control::JobList(_)) | (_, Control::Granted | Control::Note(_)) => {}
            (wants, message) => self.checks.problem(format!("a launcher that wants {wants:?} receives {message:?}")),
        }
    }

    /// How many copies on a host run and are not stopped.
    fn going_on_at(&self, host: u32) -> usize {
        let goes_on = |copy: &u32| self.living(*copy).is_some_and(|living| !living.is_stopped());
        self.living_at(host).iter().filter(|copy| goes_on(copy)).count()
    }

    fn say(&mut self, number: u32, message: &Control) {
        let link = self.launchers[number as usize].link;
        self.net.send(&mut self.clock, link, 1, control_frame(JobId(0), message));
    }

    fn leave(&mut self, number: u32) {
        let launcher = &mut self.launchers[number as usize];
        launcher.is_gone = true;
        self.net.close(&mut self.clock, launcher.link, 1);
    }

    /// Launches a job on those of its nodes that are not lost.
    pub(super) fn on_launches(&mut self, number: u32) {
        let launcher = &mut self.launchers[number as usize];
        let (Wants::Job(of), Some(welcome)) = (launcher.wants, launcher.welcome.take()) else { return };
        if launcher.is_gone {
            return;
        }
        let plan = self.spec.jobs[of].clone();
        let is_lost = |agent: &u32| matches!(welcome.nodes[*agent as usize].presence, Presence::Lost { .. });
        let agents: Vec<u32> = plan.agents.iter().copied().filter(|agent| !is_lost(agent)).collect();
        if agents.is_empty() {
            return self.leave(number);
        }
        let job = job_spec(of, &plan, welcome.job, &agents);
        self.checks.on_launch(of, welcome.job, agents, job.job_size());
        self.trace(|| format!("launcher {number} launches job {} on {:?}", job.job, job.nodes));
        let config = LauncherConfig { job, timeout_ns: None, one_shot: false, relay_stdin: false };
        let mut machine = Launcher::new(config, self.clock.now());
        machine.handle(self.clock.now(), LauncherInput::LinkUp { link: LinkId(0) });
        self.launchers[number as usize].machine = Some(machine);
        if let Some(after_ns) = plan.launcher_dies_ns {
            self.plan(after_ns, Plan::LauncherDies { launcher: number });
        }
        self.drain(number);
    }

    fn drain(&mut self, number: u32) {
        let at = number as usize;
        let Wants::Job(of) = self.launchers[at].wants else { return };
        while let Some(output) = self.launchers[at].machine.as_mut().and_then(Launcher::poll) {
            let link = self.launchers[at].link;
            match output {
                LauncherOutput::Send { frame, .. } => self.net.send(&mut self.clock, link, 1, frame),
                LauncherOutput::Write { bytes, .. } => {
                    self.checks.on_output(of, &bytes);
                    if self.spec.jobs[of].reads {
                        self.launchers[at].unwritten += bytes.len() as u32;
                        let delay_ns = self.spec.timing.terminal.draw(&mut self.rng);
                        self.plan(delay_ns, Plan::LauncherWrites { launcher: number });
                    }
                }
                LauncherOutput::Notice(Notice::Ended(ended)) => self.checks.on_ended(of, ended),
                LauncherOutput::Notice(_) | LauncherOutput::ReadStdin { .. } | LauncherOutput::Suspend => {}
                LauncherOutput::Exit { .. } => self.leave(number),
            }
        }
    }

    pub(super) fn on_launcher_writes(&mut self, number: u32) {
        let launcher = &mut self.launchers[number as usize];
        let bytes = std::mem::take(&mut launcher.unwritten);
        if let Some(machine) = &mut launcher.machine {
            let stream = wireup_proto::io::Stream::Out;
            machine.handle(self.clock.now(), LauncherInput::Written { stream, bytes });
            self.drain(number);
        }
    }

    pub(super) fn on_launcher_dies(&mut self, number: u32) {
        let launcher = &mut self.launchers[number as usize];
        if !std::mem::replace(&mut launcher.is_gone, true) {
            launcher.machine = None;
            if let Wants::Job(of) = launcher.wants {
                self.checks.on_launcher_dies(of);
            }
            self.net.kill_end(&mut self.clock, launcher.link, 1);
        }
    }
}

fn job_spec(of: usize, plan: &JobPlan, job: JobId, agents: &[u32]) -> JobSpec {
    let ranks = plan.ppn * agents.len() as u32;
    let node = |agent: &u32| NodeSpec { agent: AgentId(*agent), name: format!("node{agent}"), shared: true };
    let argv = [b"./app".to_vec(), of.to_string().into_bytes(), ranks.to_string().into_bytes()];
    JobSpec {
        job,
        nspace: format!("sim-{job}"),
        nodes: agents.iter().map(node).collect(),
        blocks: vec![Block { first_node: 0, nodes: agents.len() as u32, ppn: plan.ppn }],
        apps: vec![AppSpec { ranks, argv: argv.into(), cwd: b"/".to_vec(), env: Vec::new() }],
        env: Vec::new(),
        options: JobOptions { kill_grace_ns: 500_000_000, ..JobOptions::default() },
    }
}
