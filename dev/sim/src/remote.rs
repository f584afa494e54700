//! The hosts of a world whose agents are on separate machines: how each answers a remote shell, and which of them can
//! never start an agent.

use crate::rng::Rng;
use wireup_coll::tree::Tree;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::RemoteShell;

/// All hosts of a world, by agent; the root's host is the launcher's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The remote shell that starts agents.
    pub shell: RemoteShell,
    pub shells_max: u32,
    pub hosts: Vec<HostSpec>,
}

/// The remote shell `ssh`; like the two below, it starts agents on other hosts.
pub fn ssh() -> RemoteShell {
    RemoteShell::Ssh(vec!["ssh".into()])
}

pub fn rsh() -> RemoteShell {
    RemoteShell::Command(vec!["rsh".into()])
}

pub fn srun() -> RemoteShell {
    RemoteShell::Srun(vec!["srun".into()])
}

/// The behaviour of one host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostSpec {
    pub program: Program,
    pub reach: Reach,
    pub pace: Pace,
    /// Number of calls that are refused before one succeeds.
    pub busy: u32,
    /// Whether agents on this host may start remote shells to other hosts.
    pub onward: bool,
    /// Whether the first shell that starts the agent ends before the agent has linked.
    pub shell_dies: bool,
    /// Time by which the host's clock is ahead of the world's (ns).
    pub clock_ahead_ns: u64,
}

/// Whether the host has the agent's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    There,
    Missing,
    /// The program is missing, and the launcher's program would not run there.
    OtherArch,
}

/// The hosts that can connect to a simulated host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    All,
    Nobody,
    /// Only this agent can reach the host.
    From(u32),
}

/// How fast the host answers a remote shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    Prompt,
    Slow { by_ns: u64 },
    Never,
}

/// The outcome of a remote shell that was started for a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Never,
    /// The shell exits with this code and this message.
    Ends(u8, String),
    /// The program is stored on the host, and the shell ends.
    Stores,
    /// The agent starts; a shell that only probes the host succeeds.
    Begins,
}

impl Default for HostSpec {
    fn default() -> Self {
        HostSpec {
            program: Program::There,
            reach: Reach::All,
            pace: Pace::Prompt,
            busy: 0,
            onward: true,
            shell_dies: false,
            clock_ahead_ns: 0,
        }
    }
}

impl HostSpec {
    /// Whether no remote shell or step can ever start the host's agent.
    pub fn is_out(&self) -> bool {
        self.reach == Reach::Nobody || self.pace == Pace::Never || self.program == Program::OtherArch
    }

    /// Longest time by which the host is slower than other hosts (ns).
    fn late_ns(&self) -> u64 {
        let slow_ns = if let Pace::Slow { by_ns } = self.pace { by_ns } else { 0 };
        // After each refusal the shell is started again after a pause, which is 0.2 s at first and doubles each time.
        slow_ns + (200_000_000 << self.busy) - 200_000_000
    }
}

impl Remote {
    /// Hosts without problems, `agents` of them.
    pub fn prompt(agents: u32, shell: RemoteShell) -> Self {
        Remote { shell, shells_max: 64, hosts: vec![HostSpec::default(); agents as usize] }
    }

    /// Whether a batch system starts all agents by one step.
    pub fn by_step(&self) -> bool {
        self.shell.start_method().by_step()
    }

    /// Random hosts; `timeout_ns` is the time within which agents must start.
    pub fn draw(rng: &mut Rng, agents: u32, fanout: u32, timeout_ns: u64) -> Self {
        let tree = Tree::new(agents, fanout);
        let mut remote = Remote::prompt(agents, if rng.chance(700) { ssh() } else { rsh() });
        remote.shells_max = if rng.chance(700) { 64 } else { rng.between(1, 4) as u32 };
        // Number of hosts in a thousand that have a problem.
        let trouble = *rng.pick(&[0, 50, 150, 400]);
        let closed = rng.chance(150);
        for agent in 0..agents {
            let magnitude = rng.between(1, 50);
            let mut host =
                if rng.chance(trouble) { trouble_of(rng, &tree, agent, timeout_ns) } else { HostSpec::default() };
            host.clock_ahead_ns = rng.below(1 << magnitude);
            // A site that forbids remote shells from one node to the next forbids them on all hosts.
            host.onward = agent == 0 || !(closed || rng.chance(trouble / 4));
            remote.hosts[agent as usize] = host;
        }
        remote
    }

    /// Random hosts of an allocation. Either all have the program, or none.
    pub fn draw_allocation(rng: &mut Rng, agents: u32, timeout_ns: u64) -> Self {
        let mut remote = Remote::prompt(agents, srun());
        let trouble = *rng.pick(&[0, 50, 150, 400]);
        let program = if rng.chance(250) { Program::Missing } else { Program::There };
        for agent in 0..agents {
            let fine = HostSpec { program, ..HostSpec::default() };
            let mut host = match rng.below(5) {
                _ if agent == 0 || !rng.chance(trouble) => fine,
                0 => HostSpec { program: Program::OtherArch, ..fine },
                1 => HostSpec { reach: Reach::Nobody, ..fine },
                2 => HostSpec { pace: Pace::Never, ..fine },
                _ => HostSpec { pace: Pace::Slow { by_ns: timeout_ns / 10 * rng.between(1, 7) }, ..fine },
            };
            let magnitude = rng.between(1, 50);
            host.clock_ahead_ns = rng.below(1 << magnitude);
            remote.hosts[agent as usize] = host;
        }
        remote
    }

    /// Agents whose hosts can never start them.
    pub fn out(&self) -> impl Iterator<Item = u32> + '_ {
        (1..self.hosts.len() as u32).filter(|agent| self.hosts[*agent as usize].is_out())
    }

    /// Whether this agent may be reported as missing although its host can start it: its shell ends early, or the agent
    /// and its ancestors need much of the start timeout.
    pub fn may_be_missed(&self, agent: u32, tree: &Tree, timeout_ns: u64) -> bool {
        if self.by_step() {
            // In an allocation, no host is so slow that it misses the start timeout.
            return self.may_not_be_sent();
        }
        let host = &self.hosts[agent as usize];
        let above = || std::iter::successors(Some(AgentId(agent)), |at| tree.parent(*at));
        let late_ns: u64 = above().map(|at| self.hosts[at.index()].late_ns()).sum();
        let only_way_is_shut = match host.reach {
            Reach::From(only) => {
                let way = std::iter::successors(Some(AgentId(only)), |at| tree.parent(*at)).map(|at| at.0);
                let is_shut = |at| self.hosts[at as usize].is_out() || self.may_be_missed(at, tree, timeout_ns);
                !self.hosts[only as usize].onward || way.take_while(|at| *at != 0).any(is_shut)
            }
            Reach::All | Reach::Nobody => false,
        };
        // Agents below a missing agent are probed in the second half of the time that remained to start the missing
        // one.
        let time_to_answer_ns = (timeout_ns * 9 / 10).saturating_sub(late_ns - host.late_ns()) / 2;
        host.shell_dies || only_way_is_shut || host.late_ns() > time_to_answer_ns || late_ns > timeout_ns * 8 / 10
    }

    /// Whether a step that finds no program may last too long, or be given up, before another step could send the
    /// program. The result of a step is known only when it has ended.
    fn may_not_be_sent(&self) -> bool {
        let disturbs = |host: &HostSpec| host.pace != Pace::Prompt || host.reach == Reach::Nobody;
        self.hosts.iter().any(|host| host.program == Program::Missing) && self.hosts.iter().any(disturbs)
    }

    /// Whether this agent, whose host can never start it, may be left out of a report about other missing agents.
    pub fn may_be_unnamed(&self, agent: u32) -> bool {
        let is_reached = |host: &HostSpec| host.reach != Reach::Nobody;
        // A step that does not reach some node kills its other tasks, so it is unknown whether the other tasks would
        // have started.
        let is_given_up = !self.hosts.iter().all(is_reached) && is_reached(&self.hosts[agent as usize]);
        self.by_step() && (is_given_up || self.may_not_be_sent())
    }

    /// Whether slow hosts may keep other agents from being started at all.
    pub fn may_starve(&self) -> bool {
        if self.by_step() {
            // One step starts all agents, so that none waits for another.
            return false;
        }
        let slow = |host: &&HostSpec| host.late_ns() > 0 || host.pace == Pace::Never;
        self.hosts.iter().filter(slow).count() >= self.shells_max as usize
    }
}

fn trouble_of(rng: &mut Rng, tree: &Tree, agent: u32, timeout_ns: u64) -> HostSpec {
    let fine = HostSpec::default();
    match rng.below(9) {
        0 | 1 => HostSpec { program: Program::Missing, ..fine },
        2 => HostSpec { program: Program::OtherArch, ..fine },
        3 => HostSpec { busy: rng.between(1, 4) as u32, ..fine },
        4 => HostSpec { reach: Reach::Nobody, ..fine },
        5 => HostSpec { reach: Reach::From(ancestor(rng, tree, agent)), ..fine },
        6 => HostSpec { pace: Pace::Never, ..fine },
        7 => {
            let by_ns = timeout_ns / 10 * rng.between(3, 7);
            HostSpec { pace: Pace::Slow { by_ns }, ..fine }
        }
        _ => HostSpec { shell_dies: true, ..fine },
    }
}

/// A random ancestor of `agent`; if `agent` is the root, the root itself.
fn ancestor(rng: &mut Rng, tree: &Tree, agent: u32) -> u32 {
    let mut at = AgentId(agent);
    while let Some(parent) = tree.parent(at) {
        at = parent;
        if rng.chance(400) {
            break;
        }
    }
    at.0
}
