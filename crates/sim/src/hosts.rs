//! The driver's half of an agent: turns, ticks, links, the keeper's reports. Starts and exits are in `lives`.

use crate::clock::Event;
use crate::fifo::Fifo;
use crate::memory::JobMemory;
use crate::net::End;
use crate::ranks::Phase;
use crate::replay::Told;
use crate::servers::Server;
use crate::world::World;
use wireup_proto::io::{Input, LinkId, Output, SignalTarget, SpawnPlan, Stream};
use wireup_proto::{Agent, Instant};
use wireup_wire::frame::{Class, Frame};
use wireup_wire::ids::AgentId;

/// The longest time during which a driver collects inputs before it polls the agent.
const BATCH_NS_MAX: u64 = 30_000;

/// The most consecutive ticks after which another one is due at once: more means that the machine makes no progress.
const RESTLESS_MAX: u32 = 100;

/// One agent's process.
pub struct Host {
    pub agent: AgentId,
    pub life: Life,
    /// Its parent in the tree.
    pub parent: Option<u32>,
    /// The call that started it.
    pub call: Option<u32>,
    /// The step that started it, as an index into the list of steps.
    pub step: Option<u32>,
    /// The agent that it dials.
    pub dials: Option<u32>,
    /// How many calls its host has refused so far.
    pub refusals: u32,
    /// Whether the program was sent to its host.
    pub has_program: bool,
    /// Whether its host is gone for good.
    pub is_off: bool,
    /// How far its clock is ahead of the world's (ns).
    pub clock_ahead_ns: u64,
    /// Ranks of the job on this node, by local rank.
    pub ranks: Vec<u32>,
    pub keeper: Fifo<Input>,
    pub keeper_lives: bool,
    /// The PMIx server of its ranks.
    pub server: Option<Server>,
    /// Whether the driver reads standard output and error.
    pub reading: [bool; 2],
    pub job_is_gone: bool,
    /// The link towards the root is lost: this agent exits, and its keeper ends the ranks here.
    pub is_cut_off: bool,
    pub links: Vec<u32>,
    /// Whether other agents can dial it.
    pub listens: bool,
    /// The memory that it shares with its ranks.
    pub memory: JobMemory,
    tick_at: Option<Instant>,
    /// The number of consecutive ticks after which the agent wanted another one at once.
    restless: u32,
    turn_is_due: bool,
}

/// The state of an agent's process.
pub enum Life {
    /// Not started yet.
    Unborn,
    Alive(Box<Agent>),
    /// It exited by itself.
    Left,
    Killed,
}

impl Host {
    pub fn new(agent: AgentId, parent: Option<AgentId>, clock_ahead_ns: u64) -> Self {
        Host {
            agent,
            life: Life::Unborn,
            parent: parent.map(|parent| parent.0),
            call: None,
            step: None,
            dials: None,
            refusals: 0,
            has_program: false,
            is_off: false,
            clock_ahead_ns,
            ranks: Vec::new(),
            keeper: Fifo::default(),
            keeper_lives: true,
            server: None,
            reading: [true; 2],
            job_is_gone: false,
            is_cut_off: false,
            links: Vec::new(),
            listens: false,
            memory: JobMemory::default(),
            tick_at: None,
            restless: 0,
            turn_is_due: false,
        }
    }

    pub fn is_alive(&self) -> bool {
        matches!(self.life, Life::Alive(_))
    }

    /// Adds a link to the list of this host, whose index is `host`.
    pub fn new_end(&mut self, host: u32, link: u32) -> End {
        self.links.push(link);
        End::Agent(host, LinkId(self.links.len() as u32 - 1))
    }
}

impl World {
    /// The time on an agent's clock.
    pub(crate) fn local_now(&self, host: u32) -> Instant {
        self.clock.now() + self.hosts[host as usize].clock_ahead_ns
    }

    /// Gives an input to an agent, then polls it at once or after further inputs.
    pub(crate) fn tell_agent(&mut self, host: u32, input: Input) {
        let now = self.local_now(host);
        let Host { life: Life::Alive(machine), .. } = &mut self.hosts[host as usize] else { return };
        if let Some(recording) = self.recording.as_mut().filter(|recording| recording.config.agent.0 == host) {
            recording.on_told(Told::Input(now, input.clone()));
        }
        self.digest.number(u64::from(host) ^ now.0 << 16);
        self.digest.input(&input);
        if self.spec.trace {
            eprintln!("  agent {host} <- {input:?}");
        }
        let was_tick = input == Input::Tick;
        machine.handle(now, input);
        let is_restless = was_tick && machine.deadline().is_some_and(|deadline| deadline <= now);
        let restless = &mut self.hosts[host as usize].restless;
        *restless = if is_restless { *restless + 1 } else { *restless / 2 };
        if *restless > RESTLESS_MAX {
            return self.checks.problem(format!("agent {host} requests ticks without making progress"));
        }
        let turn_is_due = &mut self.hosts[host as usize].turn_is_due;
        if *turn_is_due {
            return;
        }
        if self.rng.chance(self.spec.timing.batch_permille) {
            *turn_is_due = true;
            let pause_ns = self.rng.below(BATCH_NS_MAX);
            self.clock.after(pause_ns, Event::AgentTurn(host));
        } else {
            self.on_agent_turn(host);
        }
    }

    pub(crate) fn on_agent_turn(&mut self, host: u32) {
        self.hosts[host as usize].turn_is_due = false;
        while let Life::Alive(machine) = &mut self.hosts[host as usize].life {
            let Some(output) = machine.poll() else { break };
            self.on_agent_output(host, &output);
            self.do_for_agent(host, output);
        }
        if let Life::Alive(machine) = &self.hosts[host as usize].life {
            let ranks = self.hosts[host as usize].ranks.len();
            if let Err(problem) = self.checks.bounds.on_held(machine.held_output_bytes(), self.spec.fanout, ranks) {
                self.checks.problem(format!("agent {host} {problem}"));
            }
        }
        self.schedule_tick(host);
    }

    pub(crate) fn on_agent_output(&mut self, host: u32, output: &Output) {
        if self.spec.trace {
            eprintln!("  agent {host} -> {output:?}");
        }
        if let Some(recording) = self.recording.as_mut().filter(|recording| recording.config.agent.0 == host) {
            recording.report.on_output(output);
        }
    }

    fn schedule_tick(&mut self, host: u32) {
        let Host { life: Life::Alive(machine), tick_at, turn_is_due, clock_ahead_ns, .. } =
            &mut self.hosts[host as usize]
        else {
            return;
        };
        // A driver asks for the deadline when everything else is done.
        let Some(deadline) = machine.deadline().filter(|_| !*turn_is_due) else { return };
        let deadline = Instant(deadline.0.saturating_sub(*clock_ahead_ns));
        if tick_at.is_none_or(|at| deadline < at) {
            *tick_at = Some(deadline);
            self.clock.at(deadline, Event::AgentTick(host));
        }
    }

    pub(crate) fn on_agent_tick(&mut self, host: u32) {
        let (now, local_now) = (self.clock.now(), self.local_now(host));
        let Host { life: Life::Alive(machine), tick_at, .. } = &mut self.hosts[host as usize] else { return };
        if tick_at.is_some_and(|at| at <= now) {
            *tick_at = None;
        }
        if machine.deadline().is_some_and(|deadline| deadline <= local_now) {
            self.tell_agent(host, Input::Tick);
        }
        self.schedule_tick(host);
    }

    fn do_for_agent(&mut self, host: u32, output: Output) {
        match output {
            Output::StartAgent { shell, agent, how, bootstrap } => self.call_shell(host, shell, agent, how, bootstrap),
            Output::StartStep { shell, agents, how, bootstrap } => {
                self.call_step(host, shell, &agents, how, *bootstrap);
            }
            Output::StopShell { shell } => self.stop_shell(host, shell),
            Output::Listen => self.listen(host),
            Output::Dial { agent, addresses, point } => self.dial(host, agent, &addresses, point),
            Output::Rejoin { .. } => {
                self.checks.problem(format!("agent {host} looks for a new parent in a single run"))
            }
            Output::OpenTransport => self.open_transport(host),
            Output::Send { link, frame } => self.send_from_agent(host, link, frame),
            Output::CloseLink { link } => self.close_link(host, link),
            Output::StartPmix(plan) => self.start_server(host, &plan),
            Output::PmixSend { bytes, .. } => self.send_to_server(host, bytes),
            Output::StopPmix { .. } => self.stop_server(host),
            Output::Spawn(plan) => self.spawn(host, &plan),
            Output::Signal { target, signal, .. } => self.signal_ranks(host, target, signal),
            Output::Sweep { .. } => self.sweep(host),
            Output::Share { job, share, content } => {
                if self.hosts[host as usize].memory.share(share, &content) {
                    self.tell_agent(host, Input::Shared { job, share });
                }
            }
            Output::WriteSlot { share, slot, array, .. } => {
                let written = self.hosts[host as usize].memory.write(share, slot, &array);
                self.expect_memory(host, written);
            }
            Output::Unshare { share, .. } => {
                let given_up = self.hosts[host as usize].memory.unshare(share);
                self.expect_memory(host, given_up);
            }
            Output::Reply { local, bytes, shares, .. } => {
                let shares = self.hosts[host as usize].memory.for_reply(&shares);
                if let Some(shares) = self.expect_memory(host, shares) {
                    self.reply(host, local, bytes, shares);
                }
            }
            Output::CloseClient { local, .. } => self.close_client(host, local),
            Output::Write { local, bytes, .. } => self.write_stdin(host, local, bytes),
            Output::ReadStdio { stream, on, .. } => self.read_stdio(host, stream, on),
            Output::Resize { .. } => {}
            Output::JobGone { .. } => self.job_gone(host),
            Output::Exit => self.agent_leaves(host),
        }
    }

    fn expect_memory<T>(&mut self, host: u32, result: Result<T, String>) -> Option<T> {
        result.map_err(|problem| self.checks.problem(format!("agent {host} {problem}"))).ok()
    }

    fn send_from_agent(&mut self, host: u32, link: LinkId, frame: Frame) {
        let Some(link) = self.hosts[host as usize].links.get(link.0 as usize).copied() else {
            return self.checks.problem(format!("agent {host} sends on a link that it never had"));
        };
        let from = self.end_of(link, host);
        if let Err(problem) = self.checks.bounds.on_send(link, from, &frame) {
            return self.checks.problem(problem);
        }
        if frame.class == Class::Exchange {
            let at_ns = self.elapsed_ns();
            self.checks.on_exchange_frame(at_ns);
        }
        self.net.send(&mut self.clock, link, from, frame);
    }

    fn close_link(&mut self, host: u32, link: LinkId) {
        if let Some(link) = self.hosts[host as usize].links.get(link.0 as usize).copied() {
            let from = self.end_of(link, host);
            if from == 0 && self.spec.remote.is_some() && !self.net.is_direct(link) {
                // The agent refuses a child, and the output of the child's ranks is lost.
                self.checks.output.expect_losses();
            }
            self.net.close(&mut self.clock, link, from);
        }
    }

    pub(crate) fn end_of(&self, link: u32, host: u32) -> usize {
        usize::from(matches!(self.net.ends(link)[1], End::Agent(at, _) if at == host))
    }

    /// The link of an agent to its parent, if it ever came up.
    pub(crate) fn link_to_parent(&self, host: u32) -> Option<u32> {
        self.hosts[host as usize]
            .links
            .iter()
            .copied()
            .find(|link| self.end_of(*link, host) == 1 && !self.net.is_direct(*link))
    }

    fn spawn(&mut self, host: u32, plan: &SpawnPlan) {
        if !self.hosts[host as usize].keeper_lives {
            return;
        }
        for rank in &plan.ranks {
            self.spawn_rank(host, plan, rank);
        }
    }

    fn signal_ranks(&mut self, host: u32, target: SignalTarget, signal: i32) {
        let ranks = match target {
            SignalTarget::All => self.hosts[host as usize].ranks.clone(),
            SignalTarget::One(local) => {
                self.hosts[host as usize].ranks.get(local.index()).copied().into_iter().collect()
            }
        };
        for rank in ranks {
            let delay_ns = self.spec.timing.report.draw(&mut self.rng);
            self.clock.after(delay_ns, Event::Signal(rank, signal as u8));
        }
    }

    fn read_stdio(&mut self, host: u32, stream: Stream, on: bool) {
        let which = stream as usize - 1;
        if std::mem::replace(&mut self.hosts[host as usize].reading[which], on) == on {
            return;
        }
        for local in 0..self.hosts[host as usize].ranks.len() {
            let rank = self.hosts[host as usize].ranks[local];
            self.schedule_read(rank, stream as u8);
        }
    }

    pub(crate) fn on_keeper_report(&mut self, host: u32) {
        let Some(input) = self.hosts[host as usize].keeper.pop() else { return };
        if let Input::ChildStarted { local, .. } = &input {
            let rank = self.hosts[host as usize].ranks[local.index()];
            self.procs[rank as usize].start_is_known = true;
        }
        if matches!(input, Input::PmixGone { .. } | Input::ChildExited { .. }) {
            // The server's messages are delivered before its end, and before the end of the rank that they may concern.
            while self.hosts[host as usize].server.as_ref().is_some_and(|server| !server.to_agent.is_empty()) {
                self.on_server_speaks(host);
            }
        }
        if let Input::ChildExited { local, .. } = &input {
            // The driver reads what a dying rank has sent before it reports the rank's exit.
            let rank = self.hosts[host as usize].ranks[local.index()];
            while !self.procs[rank as usize].to_agent.is_empty() {
                self.on_client_arrive(rank);
            }
        }
        if !self.hosts[host as usize].job_is_gone || matches!(input, Input::KeeperLost { .. }) {
            self.tell_agent(host, input);
        }
    }

    pub(crate) fn running_rank(&self, host: u32) -> Option<u32> {
        let ranks = self.hosts[host as usize].ranks.iter().copied();
        ranks.into_iter().find(|rank| matches!(self.procs[*rank as usize].phase, Phase::Starting | Phase::Running))
    }

    fn sweep(&mut self, host: u32) {
        if let Some(rank) = self.running_rank(host) {
            self.checks.problem(format!("agent {host} sweeps while rank {rank} runs"));
        }
        if self.hosts[host as usize].server.as_ref().is_some_and(|server| server.lives) {
            self.checks.problem(format!("agent {host} sweeps while its server runs"));
        }
    }

    fn job_gone(&mut self, host: u32) {
        if let Some(rank) = self.running_rank(host) {
            self.checks.problem(format!("agent {host} calls the job gone while rank {rank} runs"));
        }
        let server = self.hosts[host as usize].server.take();
        if server.is_some_and(|server| server.lives) && self.hosts[host as usize].keeper_lives {
            self.checks.problem(format!("agent {host} calls the job gone while its server runs"));
        }
        if std::mem::replace(&mut self.hosts[host as usize].job_is_gone, true) {
            self.checks.problem(format!("agent {host} calls the job gone twice"));
        }
        self.hosts[host as usize].memory.clear();
    }
}
