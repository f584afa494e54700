//! What every benchmark needs: signal handlers, adoption of processes that commands leave behind, the test programs.
use std::path::Path;

use crate::error::{BenchError, io};
use crate::interrupt::Interrupt;
use crate::orphans;
use crate::programs::Scratch;

pub struct Ground {
    pub scratch: Scratch,
    pub interrupt: Interrupt,
}

impl Ground {
    /// For jobs on this machine, or across `hosts`, which must all see the folder `shared` (default: the current one).
    pub fn prepare(hosts: &[String], shared: Option<&Path>) -> Result<Ground, BenchError> {
        let interrupt = Interrupt::install().map_err(io("signal handlers"))?;
        orphans::adopt().map_err(|error| io("child subreaper")(error.into()))?;
        let scratch = match hosts.is_empty() {
            true => Scratch::create(),
            false => std::path::absolute(shared.unwrap_or(Path::new("."))).and_then(|dir| Scratch::create_in(&dir)),
        };
        Ok(Ground { scratch: scratch.map_err(io("test programs"))?, interrupt })
    }
}
