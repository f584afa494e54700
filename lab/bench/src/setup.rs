//! What every benchmark needs: signal handlers, adoption of processes that commands leave behind, the test programs.
use std::path::Path;

use crate::error::{BenchError, io};
use crate::interrupt::Interrupt;
use crate::leftovers;
use crate::programs::Scratch;

pub struct Setup {
    pub scratch: Scratch,
    pub interrupt: Interrupt,
}

impl Setup {
    /// For jobs on this machine, or across `hosts`, which must all see the folder `shared` (default: the current one).
    pub fn prepare(hosts: &[String], shared: Option<&Path>) -> Result<Setup, BenchError> {
        match hosts.is_empty() {
            true => Setup::prepare_in(None),
            false => Setup::prepare_in(Some(shared.unwrap_or(Path::new(".")))),
        }
    }

    /// With files in this folder, or in the one for temporary files.
    pub fn prepare_in(folder: Option<&Path>) -> Result<Setup, BenchError> {
        let interrupt = Interrupt::install().map_err(io("signal handlers"))?;
        leftovers::adopt().map_err(|error| io("child subreaper")(error.into()))?;
        let scratch = match folder {
            None => Scratch::create(),
            Some(folder) => std::path::absolute(folder).and_then(|dir| Scratch::create_in(&dir)),
        };
        Ok(Setup { scratch: scratch.map_err(io("test programs"))?, interrupt })
    }
}
