//! Who starts what: an MPI's program under wireup and under the launcher of that MPI.
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::flags::Flags;
use crate::cases::Pmi;
use crate::command::Invocation;
use crate::launcher::{Kind, Launcher};
use crate::peers::{self, PeerKind, major};
use crate::programs::Program;
use crate::setup::Setup;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    Mpich,
    OpenMpi,
}

impl Mpi {
    pub const ALL: [Mpi; 2] = [Mpi::Mpich, Mpi::OpenMpi];

    pub fn name(self) -> &'static str {
        match self {
            Mpi::Mpich => "mpich",
            Mpi::OpenMpi => "open-mpi",
        }
    }

    /// The program that the workspace's set-up makes.
    pub fn program(self) -> &'static str {
        match self {
            Mpi::Mpich => "target/programs/mpich5/spawning",
            Mpi::OpenMpi => "target/programs/openmpi5/spawning",
        }
    }

    /// The kind of its own launcher. Both are compared from version 5 on, whose programs the set-up makes.
    fn peer(self) -> PeerKind {
        match self {
            Mpi::Mpich => PeerKind::Hydra,
            Mpi::OpenMpi => PeerKind::OpenMpi,
        }
    }

    fn pmi(self) -> Pmi {
        match self {
            Mpi::Mpich => Pmi::Simple,
            Mpi::OpenMpi => Pmi::Pmix,
        }
    }
}

/// Two launchers that start the same program.
pub struct Contest {
    pub mpi: Mpi,
    pub program: PathBuf,
    /// Wireup first.
    pub launchers: [Launcher; 2],
}

/// What a job does.
#[derive(Clone, Copy)]
pub struct Job {
    pub parents: u32,
    pub children: u32,
    pub calls: u32,
    /// Before each call (ms).
    pub pause_ms: u32,
}

/// All contests for which everything is there, and why the others cannot take place.
pub fn all(flags: &Flags, wireup: &Path, setup: &Setup) -> (Vec<Contest>, Vec<String>) {
    let found = peers::find(&[], &setup.scratch, &setup.interrupt).peers;
    let mut obstacles = Vec::new();
    let contest = |mpi: &Mpi| {
        let program = flags.program(*mpi);
        let program = std::path::absolute(&program)
            .ok()
            .filter(|path| path.is_file())
            .ok_or_else(|| format!("{}: no {}; cargo xtask setup makes it", mpi.name(), program.display()))?;
        let is_its = |peer: &&Launcher| {
            peer.kind == Kind::Peer(mpi.peer()) && major(&peer.version).is_some_and(|major| major >= 5)
        };
        let peer = found.iter().find(is_its).cloned();
        let peer = peer.ok_or_else(|| format!("{}: no {} 5 is installed", mpi.name(), mpi.peer().name()))?;
        let ours = Launcher {
            name: "wireup".into(),
            kind: Kind::Wireup,
            path: wireup.to_owned(),
            extra: flags.common_flags.wireup_args.clone(),
            ..Launcher::echo()
        };
        Ok(Contest { mpi: *mpi, program, launchers: [ours, peer] })
    };
    let contests = flags
        .mpis
        .iter()
        .map(contest)
        .filter_map(|made: Result<_, String>| made.map_err(|why| obstacles.push(why)).ok());
    (contests.collect(), obstacles)
}

/// A job's command. Its output goes nowhere.
pub fn invocation(argv: Vec<OsString>, job: Job, flags: &Flags, setup: &Setup) -> Invocation {
    let pauses = Duration::from_millis(job.pause_ms.into()) * job.calls;
    Invocation {
        argv,
        env: Vec::new(),
        stdout: None,
        stderr: setup.scratch.file("stderr"),
        limit: flags.common_flags.limit + pauses,
    }
}

impl Contest {
    /// The command by which a launcher starts the job, whose rank 0 writes the times of its calls to `stamps`.
    pub fn invocation(&self, who: usize, job: Job, stamps: &Path, flags: &Flags, setup: &Setup) -> Invocation {
        let launcher = &self.launchers[who];
        let options = match launcher.kind {
            Kind::Peer(peer) => peer.options(&launcher.version, job.parents, self.mpi.pmi()),
            _ => ["run", "-n", &job.parents.to_string()].map(str::to_owned).into(),
        };
        let mut argv: Vec<OsString> = vec![launcher.path.clone().into()];
        argv.extend(options.into_iter().chain(launcher.extra.iter().cloned()).map(OsString::from));
        argv.push(self.program.clone().into());
        argv.extend([job.calls, job.children, job.pause_ms].map(|number| number.to_string().into()));
        argv.extend([stamps.into(), setup.scratch.program(Program::FromExec).into()]);
        invocation(argv, job, flags, setup)
    }

    /// The launcher's name beside its MPI's.
    pub fn name(&self, who: usize) -> String {
        format!("{}, {}", self.mpi.name(), self.launchers[who].name)
    }
}
