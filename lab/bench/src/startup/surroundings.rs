//! What the startup benchmarks need: the programs, the library, the signal handlers.
use std::path::{Path, PathBuf};

use super::flags::Flags;
use super::job::{Client, Launch};
use crate::cases::Place;
use crate::common_flags;
use crate::error::{BenchError, io};
use crate::interrupt::Interrupt;
use crate::programs::Scratch;
use crate::setup::Setup;

/// The file name of the library that the clients load.
const LIBRARY: &str = "libpmi2.so.0.0.0";
/// The one that ranks with groups load, beside the other.
const GROUPS_LIBRARY: &str = "libwireup.so.0.0.0";

pub struct Surroundings {
    pub scratch: Scratch,
    pub interrupt: Interrupt,
    pub wireup: PathBuf,
    pub library: PathBuf,
    /// This program, at a path without blanks.
    own: PathBuf,
}

impl Surroundings {
    pub fn prepare(flags: &Flags) -> Result<Surroundings, BenchError> {
        let Setup { scratch, interrupt } = Setup::prepare(&[], None)?;
        let wireup = flags.common_flags.program()?;
        let library = library(flags.library.as_deref(), &wireup)?;
        let own = std::env::current_exe().and_then(|own| scratch.copy_of(&own)).map_err(io("this program"))?;
        Ok(Surroundings { scratch, interrupt, wireup, library, own })
    }

    /// A job on `place` whose ranks exchange by libwireup, with this engine.
    pub fn launch_groups(&self, flags: &Flags, place: Place, engine: &'static str) -> Launch {
        let client = Client::Groups { library: self.groups_library(), engine };
        Launch { client, ..self.launch(flags, place, super::flags::AUTO) }
    }

    pub fn groups_library(&self) -> PathBuf {
        self.library.with_file_name(GROUPS_LIBRARY)
    }

    /// A job on `place` with this exchange.
    pub fn launch(&self, flags: &Flags, place: Place, exchange: &str) -> Launch {
        let mut extra = flags.common_flags.wireup_args.clone();
        if exchange != super::flags::AUTO {
            extra.push(format!("--exchange={exchange}"));
        }
        let (wireup, client) = (self.wireup.clone(), Client::Startup { library: self.library.clone() });
        let (own, limit) = (self.own.clone(), flags.common_flags.limit);
        Launch { wireup, client, own, place, link_delay: None, extra, limit }
    }
}

/// The library that clients load: the one that the user names, or the one beside the launcher or beside this program.
///
/// # Errors
/// There is none.
pub fn library(named: Option<&Path>, wireup: &Path) -> Result<PathBuf, BenchError> {
    let found = match named {
        Some(path) => path.to_owned(),
        None => {
            let nowhere = || BenchError::NoLibrary { library: LIBRARY, wireup: wireup.to_owned() };
            library_near(wireup).or_else(|| library_near(&common_flags::beside().ok()?)).ok_or_else(nowhere)?
        }
    };
    std::path::absolute(found).map_err(io("--library"))
}

fn library_near(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?;
    [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)].into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_beside_the_program_or_in_lib() {
        let scratch = Scratch::create().unwrap();
        let (bin, lib) = (scratch.file("bin"), scratch.file("lib"));
        std::fs::create_dir(&bin).unwrap();
        std::fs::create_dir(&lib).unwrap();
        assert_eq!(library_near(&bin.join("wireup")), None);
        std::fs::write(lib.join(LIBRARY), b"").unwrap();
        assert_eq!(library_near(&bin.join("wireup")), Some(bin.join("../lib").join(LIBRARY)));
        std::fs::write(bin.join(LIBRARY), b"").unwrap();
        assert_eq!(library_near(&bin.join("wireup")), Some(bin.join(LIBRARY)));
    }
}
