//! The machines of a world: power, remote shells, walls between them.

use crate::fault_injection::NoStart;
use crate::world::World;
use wireup_proto::Instant;

/// The machine of one agent.
#[derive(Default)]
pub struct Host {
    /// Parent of the host's agent in the original tree.
    pub parent: Option<u32>,
    /// The processes that were started here, the oldest first.
    pub processes: Vec<u32>,
    /// Number of calls that the host has refused so far.
    pub refusals: u32,
    /// Whether the program was sent to the host.
    pub has_program: bool,
    /// Whether no remote shell can reach the host any more.
    pub is_gone: bool,
    /// Time until which the host has no power.
    pub off_until: Instant,
    /// How the host's agent fails to start; `None`: it starts.
    pub no_start: Option<NoStart>,
    /// Number of remote shells that break as soon as they have started the host's agent.
    pub broken_shells: u32,
}

/// A wall: dials from one host to another get no answer.
pub struct Wall {
    pub from: u32,
    pub to: u32,
    pub until: Instant,
}

impl World {
    pub(crate) fn is_off(&self, host: u32) -> bool {
        self.hosts[host as usize].off_until > self.cx.clock.now()
    }

    pub(crate) fn is_walled_off(&self, from: u32, to: u32) -> bool {
        let now = self.cx.clock.now();
        self.walls.iter().any(|wall| wall.from == from && wall.to == to && wall.until > now)
    }

    /// The running processes on a host, the oldest first.
    pub(crate) fn running_at(&self, host: u32) -> Vec<u32> {
        let processes = self.hosts[host as usize].processes.iter().copied();
        processes.filter(|agent| self.agents[*agent as usize].is_running()).collect()
    }

    /// The process on a host that was started last, if it runs.
    pub(crate) fn newest_at(&self, host: u32) -> Option<u32> {
        self.running_at(host).last().copied()
    }

    /// Whether a running agent of this host was ever linked to a parent.
    pub(crate) fn is_linked(&self, host: u32) -> bool {
        self.newest_at(host).is_some_and(|agent| self.agents[agent as usize].up.is_some())
    }
}
