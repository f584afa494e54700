//! Finds the launchers to be timed: the baselines, wireup in its variants, the other launchers of this machine.
use std::io;
use std::path::Path;

use crate::common_flags;
use crate::interrupt::Interrupt;
use crate::launch_flags::Flags;
use crate::launcher::{Kind, Launcher};
use crate::machine::Machine;
use crate::peers::{self, PeerKind};
use crate::programs::Scratch;

/// The wireup to time, for single jobs.
///
/// # Errors
/// There is no wireup.
pub fn wireup(flags: &Flags, scratch: &Scratch, interrupt: &Interrupt) -> io::Result<Launcher> {
    let path = flags.wireup.clone().map_or_else(common_flags::beside, Ok)?;
    Ok(Launcher {
        name: "wireup".into(),
        kind: Kind::Wireup,
        version: wireup_version(&path, scratch, interrupt),
        path,
        extra: flags.wireup_args.clone(),
        env: Vec::new(),
    })
}

/// All launchers to be timed, the baselines first, and what is missing.
pub fn launchers(
    flags: &Flags,
    wireup: Launcher,
    scratch: &Scratch,
    interrupt: &Interrupt,
) -> (Vec<Launcher>, Vec<String>) {
    let serial = Launcher { name: "serial".into(), kind: Kind::Serial, ..wireup.clone() };
    let session = Launcher { name: "session".into(), kind: Kind::Session, ..wireup.clone() };
    let launchers = Launcher {
        name: "baseline-launcher".into(),
        kind: Kind::LauncherBaseline,
        extra: Vec::new(),
        ..wireup.clone()
    };
    let found = peers::find(&flags.peers, scratch, interrupt);
    let mut missing = found.refused;
    for kind in PeerKind::ALL {
        if !found.peers.iter().any(|p| p.kind == Kind::Peer(kind)) {
            missing.push(format!("{}: not installed", kind.name()));
        }
    }
    let baselines = [Launcher::baseline(1), Launcher::baseline(2), Launcher::echo(), Launcher::bare(), launchers];
    let mut launchers: Vec<Launcher> = baselines.into_iter().chain([serial, session, wireup]).collect();
    launchers.extend(found.peers);
    launchers.retain(|c| !flags.without.contains(&c.name));
    (launchers, missing)
}

/// The version in the first line of `wireup --version`; empty if there is none.
fn wireup_version(path: &Path, scratch: &Scratch, interrupt: &Interrupt) -> String {
    let answer = peers::ask_version(path, scratch, interrupt).unwrap_or_default();
    answer.lines().next().and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default().to_owned()
}

/// Prints the machine, the launchers and what is missing.
pub fn show(machine: &Machine, launchers: &[Launcher], missing: &[String]) {
    println!("{}", machine.describe());
    for launcher in launchers.iter().filter(|c| !c.path.as_os_str().is_empty()) {
        println!("{}: {} {}", launcher.name, launcher.path.display(), launcher.version);
    }
    for what in missing {
        println!("missing: {what}");
    }
}
