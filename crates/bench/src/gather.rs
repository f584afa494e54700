//! Finds the launchers to be timed: the baselines, wireup in its variants, the other launchers of this machine.
use std::io;
use std::path::Path;

use crate::contestant::{Contestant, Kind};
use crate::interrupt::Interrupt;
use crate::launch_flags::Flags;
use crate::machine::Machine;
use crate::peers::{self, PeerKind};
use crate::programs::Scratch;
use crate::usual;

/// The wireup to time, for single jobs.
///
/// # Errors
/// There is no wireup.
pub fn wireup(flags: &Flags, scratch: &Scratch, interrupt: &Interrupt) -> io::Result<Contestant> {
    let path = flags.wireup.clone().map_or_else(usual::beside, Ok)?;
    Ok(Contestant {
        name: "wireup".into(),
        kind: Kind::Wireup,
        version: wireup_version(&path, scratch, interrupt),
        path,
        extra: flags.wireup_args.clone(),
        env: Vec::new(),
    })
}

/// All launchers to be timed, the baselines first, and what is missing.
pub fn contestants(
    flags: &Flags,
    wireup: Contestant,
    scratch: &Scratch,
    interrupt: &Interrupt,
) -> (Vec<Contestant>, Vec<String>) {
    let serial = Contestant { name: "serial".into(), kind: Kind::Serial, ..wireup.clone() };
    let session = Contestant { name: "session".into(), kind: Kind::Session, ..wireup.clone() };
    let launchers =
        Contestant { name: "floor-launcher".into(), kind: Kind::LauncherFloor, extra: Vec::new(), ..wireup.clone() };
    let found = peers::find(&flags.peers, scratch, interrupt);
    let mut missing = found.refused;
    for kind in PeerKind::ALL {
        if !found.peers.iter().any(|p| p.kind == Kind::Peer(kind)) {
            missing.push(format!("{}: not installed", kind.name()));
        }
    }
    let floors = [Contestant::floor(1), Contestant::floor(2), Contestant::echo(), Contestant::bare(), launchers];
    let mut contestants: Vec<Contestant> = floors.into_iter().chain([serial, session, wireup]).collect();
    contestants.extend(found.peers);
    contestants.retain(|c| !flags.without.contains(&c.name));
    (contestants, missing)
}

/// The version in the first line of `wireup --version`; empty if there is none.
fn wireup_version(path: &Path, scratch: &Scratch, interrupt: &Interrupt) -> String {
    let answer = peers::ask_version(path, scratch, interrupt).unwrap_or_default();
    answer.lines().next().and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default().to_owned()
}

/// Prints the machine, the launchers and what is missing.
pub fn show(machine: &Machine, contestants: &[Contestant], missing: &[String]) {
    println!("{}", machine.describe());
    for contestant in contestants.iter().filter(|c| !c.path.as_os_str().is_empty()) {
        println!("{}: {} {}", contestant.name, contestant.path.display(), contestant.version);
    }
    for what in missing {
        println!("missing: {what}");
    }
}
