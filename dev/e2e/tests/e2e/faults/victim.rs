//! The process that a fault affects, found among the processes of hub and nodes.

use super::Dice;
use wireup_e2e::faults::{FaultSite, Started, is_sshd, parent_of, short_name};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    Launcher,
    Agent,
    /// A keeper, whether of ranks or of remote shells.
    Keeper,
    /// The client of a remote shell (`ssh`), on the hub or on a node with children.
    Shell,
    /// The server process of a remote shell, if the server has one for each connection.
    Session,
    Rank,
}

/// The chosen process.
#[derive(Debug)]
pub struct Found {
    pub pid: u32,
    /// The node on which the process runs; `None` for the hub.
    pub node: Option<u16>,
    pub command: String,
}

/// A random process of the kind `victim`, if one exists now.
pub fn find(victim: Victim, site: &FaultSite, job: &Started, dice: &mut Dice) -> Option<Found> {
    if victim == Victim::Launcher {
        return Some(Found { pid: job.pid(), node: None, command: "launcher".into() });
    }
    let mut found: Vec<Found> = Vec::new();
    for (i, processes) in (0..).zip(site.testbed.all_processes()) {
        let on_node =
            processes.into_iter().filter(|process| is(victim, process.pid, &process.command, is_sshd(process)));
        found.extend(on_node.map(|process| Found { pid: process.pid, node: Some(i), command: process.command }));
    }
    if matches!(victim, Victim::Keeper | Victim::Shell) {
        let on_hub = job.on_hub(site).into_iter().map(|process| {
            let pid = process.pid.as_raw_nonzero().get().cast_unsigned();
            Found { pid, node: None, command: process.command }
        });
        found.extend(on_hub.filter(|found| is(victim, found.pid, &found.command, false)));
    }
    (!found.is_empty()).then(|| found.swap_remove(dice.below(found.len() as u64) as usize))
}

fn is(victim: Victim, pid: u32, command: &str, sshd: bool) -> bool {
    let name = short_name(pid);
    let keeper = name == "wireup-keeper";
    match victim {
        Victim::Launcher => false,
        Victim::Keeper => keeper,
        Victim::Agent => name == "wireup" && command.contains("wireup agent "),
        Victim::Shell => name == "ssh",
        Victim::Session => sshd,
        Victim::Rank => {
            let of_keeper = parent_of(pid).is_some_and(|parent| short_name(parent) == "wireup-keeper");
            of_keeper && !keeper && name != "ssh"
        }
    }
}
