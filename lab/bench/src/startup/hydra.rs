//! Put, fence and get-all by an unmodified client under Hydra, in turn with the same under wireup.
//!
//! There are as many Hydra proxies as virtual nodes of wireup: Hydra's remote shell is a script that runs the command
//! on this machine. Hydra's clients speak PMI-1 (`programs/pmi_exchange.c`); their time begins at the fence, so that it
//! does not include the put, and ends with the last get.
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::choice::case;
use super::job::{Launch, with_job};
use super::scheme::{Lengths, Step, named};
use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, wrong};
use crate::launch::peers::{self, PeerKind, major};
use crate::launch::{Case, Kind, Launcher};
use crate::layout::Layout;
use crate::programs::Program;
use crate::samples::Measures;
use crate::stamps;

/// The job of the comparison.
const LAYOUT: Layout = Layout { node_count: 16, ppn: 16 };
/// Rounds that count (chosen).
const ROUNDS: u32 = 5;
/// A remote shell that stays on this machine; its arguments are options, a host, a command.
const SHELL: &str = "#!/bin/sh\nwhile test \"${1#-}\" != \"$1\"; do shift; done\nshift\nexec /bin/sh -c \"$*\"\n";

/// `peer` is the Hydra that the user names.
pub fn run(bench: &Bench, peer: Option<PathBuf>, lengths: Lengths) -> Result<(), Problem> {
    let case = case("peer", LAYOUT, lengths);
    let turn = |contestant: &str, what| Turn {
        contestant: contestant.to_owned(),
        case: case.clone(),
        rounds: bench.rounds.unwrap_or(ROUNDS),
        what,
    };
    let turns = [
        turn("text-get-all", Some(named("text-get-all"))),
        turn("fence-get-all", Some(named("fence-get-all"))),
        turn("hydra", None),
    ];
    if bench.lists(&turns) || bench.interrupt.is_set() {
        return Ok(());
    }
    // The newest Hydra of version 5 or later, or the one given on the command line.
    let named: Vec<(String, PathBuf)> = peer.iter().map(|path| ("peer".to_owned(), path.clone())).collect();
    let is_known = |c: &Launcher| c.kind == Kind::Peer(PeerKind::Hydra) && major(&c.version) >= Some(5);
    let is_wanted = |c: &Launcher| c.name == "peer" || peer.is_none() && is_known(c);
    let Some(hydra) = peers::find(&named, bench).into_iter().rfind(is_wanted) else {
        bench.absent("hydra", "no Hydra 5 is installed");
        return Ok(());
    };
    let shell = bench.scratch.file("shell");
    fs::write(&shell, SHELL)?;
    fs::set_permissions(&shell, Permissions::from_mode(0o700))?;
    let launch = Launch::new(bench, LAYOUT)?;
    let ran = with_job(bench, &launch, |job| {
        bench.turns(&turns, |scheme, _| match scheme {
            Some(scheme) => job.step(&Step::exchange(*scheme, lengths)),
            None => under_hydra(bench, &hydra, &shell.to_string_lossy()),
        });
        Ok(())
    });
    if let Err(failure) = ran {
        bench.fail_all(&turns, &failure);
    }
    Ok(())
}

fn under_hydra(bench: &Bench, hydra: &Launcher, shell: &str) -> Result<Measures, Failure> {
    let hosts: Vec<String> = (0..LAYOUT.node_count).map(|node| format!("v{node}")).collect();
    let case = Case::named(&format!("exchange-{LAYOUT}"), &hosts, shell).map_err(wrong)?;
    let file = bench.scratch.empty_file("stamps").map_err(wrong)?;
    let program = bench.scratch.program(Program::PmiExchange).into_os_string();
    let program = vec![program, LAYOUT.job_size().to_string().into(), "all".into(), file.clone().into()];
    let (mut measures, _) = bench.run(hydra.argv(&bench.scratch, &case, program), bench.limit.unwrap_or(case.limit))?;
    measures.extend(stamps::evaluate(&fs::read_to_string(file).map_err(wrong)?, LAYOUT.job_size())?);
    Ok(measures)
}
