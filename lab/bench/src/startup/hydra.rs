//! Put, fence and get-all by an unmodified client under Hydra, in turn with the same under wireup.
//!
//! There are as many Hydra proxies as virtual nodes of wireup: Hydra's remote shell is a script that runs the command
//! on this machine. Hydra's clients speak PMI-1 (`programs/pmi_exchange.c`); their time begins at the fence, so that it
//! does not include the put, and ends with the last get.
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::flags::{AUTO, Flags};
use super::job::with_job;
use super::report::{Cell, Key};
use super::scheme::{Step, named};
use super::surroundings::Surroundings;
use crate::cases::{Case, Place};
use crate::command::{Failure, Invocation};
use crate::launcher::{Kind, Launcher};
use crate::metric::Sample;
use crate::peers::{self, PeerKind, major};
use crate::programs::Program;
use crate::stamps;

/// The name of its figures.
pub const HYDRA: &str = "hydra-get-all";
/// Used in place of the route's name, so that these figures are kept apart from those of another job of the same size.
pub const BESIDE_HYDRA: &str = "beside Hydra";
/// The job of the comparison.
pub const PLACE: Place = Place { node_count: 16, ppn: 16 };
const SCHEMES: [&str; 2] = ["text-get-all", "fence-get-all"];
/// Rounds that count (chosen).
const ROUNDS: u32 = 5;
/// A remote shell that stays on this machine; its arguments are options, a host, a command.
const SHELL: &str = "#!/bin/sh\nwhile test \"${1#-}\" != \"$1\"; do shift; done\nshift\nexec /bin/sh -c \"$*\"\n";

pub fn run(flags: &Flags, surroundings: &Surroundings) -> Result<Vec<Cell>, Failure> {
    let hydra = find(flags, surroundings)?;
    let shell = surroundings.scratch.file("shell");
    fs::write(&shell, SHELL)
        .and_then(|()| fs::set_permissions(&shell, Permissions::from_mode(0o700)))
        .map_err(wrong)?;
    let launch = surroundings.launch(flags, PLACE, AUTO);
    let key =
        |scheme: &str| Key { place: PLACE, exchange: AUTO.into(), scheme: scheme.to_owned(), lengths: flags.lengths };
    let mut cells: Vec<Cell> = SCHEMES.iter().chain(&[HYDRA]).map(|scheme| Cell::new(key(scheme))).collect();
    with_job(&launch, &surroundings.scratch, &surroundings.interrupt, |job| {
        for _ in 0..=flags.rounds.unwrap_or(ROUNDS) {
            for (cell, scheme) in cells.iter_mut().zip(SCHEMES) {
                cell.runs.push(job.step(&Step::exchange(named(scheme), flags.lengths))?);
            }
            cells[SCHEMES.len()].runs.push(run_hydra(&hydra, &shell, surroundings)?);
        }
        Ok(())
    })?;
    Ok(cells)
}

/// The newest Hydra of version 5 or later, or the one given on the command line.
fn find(flags: &Flags, surroundings: &Surroundings) -> Result<Launcher, Failure> {
    let named: Vec<(String, PathBuf)> = flags.peer.iter().map(|path| ("peer".to_owned(), path.clone())).collect();
    let found = peers::find(&named, &surroundings.scratch, &surroundings.interrupt);
    let known = |c: &Launcher| c.kind == Kind::Peer(PeerKind::Hydra) && major(&c.version).unwrap_or(0) >= 5;
    let chosen = found.peers.into_iter().rfind(|c| c.name == "peer" || flags.peer.is_none() && known(c));
    chosen.ok_or_else(|| wrong("no Hydra 5 is installed"))
}

fn run_hydra(hydra: &Launcher, shell: &std::path::Path, surroundings: &Surroundings) -> Result<Sample, Failure> {
    let hosts: Vec<String> = (0..PLACE.node_count).map(|node| format!("v{node}")).collect();
    let case = Case::on_hosts("exchange-16x16", &hosts, &shell.to_string_lossy()).map_err(wrong)?;
    let stamps_file = surroundings.scratch.empty_file("stamps").map_err(wrong)?;
    let program = surroundings.scratch.program(Program::PmiExchange).into_os_string();
    let program = vec![program, PLACE.job_size().to_string().into(), "all".into(), stamps_file.clone().into()];
    let invocation = Invocation {
        argv: hydra.argv(&surroundings.scratch, &case, program),
        env: Vec::new(),
        stdout: None,
        stderr: surroundings.scratch.file("stderr-hydra"),
        limit: case.limit,
    };
    let mut sample = invocation.run(&surroundings.interrupt)?;
    let text = fs::read_to_string(stamps_file).map_err(wrong)?;
    sample.0.extend(stamps::evaluate(&text, PLACE.job_size()).map_err(wrong)?.0);
    Ok(sample)
}

fn wrong(what: impl ToString) -> Failure {
    Failure::Wrong(what.to_string())
}
