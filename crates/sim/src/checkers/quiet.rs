//! Quiet: when nothing is in progress, agents keep nothing of completed collectives.

use crate::hosts::Life;
use crate::launch::LauncherLife;
use crate::world::World;

/// Longer than any message, start or handshake takes: if nothing happens for this long, nothing is in flight.
pub const QUIET_NS: u64 = 150_000_000;

impl World {
    /// Nothing has happened for a while, and no rank waits.
    pub(crate) fn check_quiet(&mut self) {
        let collectives = &self.checks.collectives;
        let teams_are_over = self.checks.teams.all_entered() && !self.checks.teams.is_waited_in();
        let is_over = collectives.all_entered() && collectives.unfinished().is_none() && teams_are_over;
        if !is_over || !self.spec.faults.is_empty() || self.launcher.life != LauncherLife::Alive {
            return;
        }
        for host in &self.hosts {
            let Life::Alive(machine) = &host.life else { continue };
            let (open, arrays) = (machine.open_exchanges(), host.memory.array_count());
            if open + arrays > 0 {
                let agent = host.agent;
                let problem = format!("agent {agent} holds {open} collectives that are over and {arrays} arrays");
                return self.checks.problem(problem);
            }
        }
        self.checks.quiet += 1;
    }
}
