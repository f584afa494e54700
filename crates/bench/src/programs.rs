//! The embedded test programs, unpacked into a private directory for the time of a benchmark.
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    True,
    PmiInit,
    PmiBare,
    PmiExchange,
    SpawnFloor,
    PmiEcho,
    Shells,
    TcpPingpong,
    Startup,
    PmixExchange,
    UcxInit,
    SpawnJobs,
    Misbehave,
    /// Shared objects.
    MpiShim,
    PrunShim,
}

use Program::*;

impl Program {
    const ALL: [Program; 15] = [
        True,
        PmiInit,
        PmiBare,
        PmiExchange,
        SpawnFloor,
        PmiEcho,
        Shells,
        TcpPingpong,
        Startup,
        PmixExchange,
        UcxInit,
        SpawnJobs,
        Misbehave,
        MpiShim,
        PrunShim,
    ];

    fn name(self) -> &'static str {
        match self {
            True => "true",
            PmiInit => "pmi-init",
            PmiBare => "pmi-bare",
            PmiExchange => "pmi-exchange",
            SpawnFloor => "spawn-floor",
            PmiEcho => "pmi-echo",
            Shells => "shells",
            TcpPingpong => "tcp-pingpong",
            Startup => "startup",
            PmixExchange => "pmix-exchange",
            UcxInit => "ucx-init",
            SpawnJobs => "spawn-jobs",
            Misbehave => "misbehave",
            MpiShim => "mpi-shim.so",
            PrunShim => "prun-shim.so",
        }
    }

    fn image(self) -> &'static [u8] {
        match self {
            True => include_bytes!(concat!(env!("OUT_DIR"), "/true")),
            PmiInit => include_bytes!(concat!(env!("OUT_DIR"), "/pmi_init")),
            PmiBare => include_bytes!(concat!(env!("OUT_DIR"), "/pmi_bare")),
            PmiExchange => include_bytes!(concat!(env!("OUT_DIR"), "/pmi_exchange")),
            SpawnFloor => include_bytes!(concat!(env!("OUT_DIR"), "/spawn_floor")),
            PmiEcho => include_bytes!(concat!(env!("OUT_DIR"), "/pmi_echo")),
            Shells => include_bytes!(concat!(env!("OUT_DIR"), "/shells")),
            TcpPingpong => include_bytes!(concat!(env!("OUT_DIR"), "/tcp_pingpong")),
            Startup => include_bytes!(concat!(env!("OUT_DIR"), "/startup")),
            UcxInit => include_bytes!(concat!(env!("OUT_DIR"), "/ucx_init")),
            PmixExchange => include_bytes!(concat!(env!("OUT_DIR"), "/pmix_exchange")),
            SpawnJobs => include_bytes!(concat!(env!("OUT_DIR"), "/spawn_jobs")),
            Misbehave => include_bytes!(concat!(env!("OUT_DIR"), "/misbehave")),
            MpiShim => include_bytes!(concat!(env!("OUT_DIR"), "/mpi_shim")),
            PrunShim => include_bytes!(concat!(env!("OUT_DIR"), "/prun_shim")),
        }
    }
}

/// A directory of mode 0700 with the programs and the files of the runs; removed when dropped.
pub struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    pub fn create() -> io::Result<Scratch> {
        Scratch::create_in(&std::env::temp_dir())
    }

    /// In a directory that other hosts see as well.
    pub fn create_in(parent: &Path) -> io::Result<Scratch> {
        let scratch = Scratch { dir: private_dir(parent)? };
        for program in Program::ALL {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o700).open(scratch.program(program))?;
            file.write_all(program.image())?;
        }
        Ok(scratch)
    }

    pub fn program(&self, program: Program) -> PathBuf {
        self.dir.join(program.name())
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// An empty file of this name, in place of one from an earlier run.
    pub fn empty_file(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.file(name);
        fs::write(&path, b"")?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; the directory's name says whose it was.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// mkdir refuses a name that exists, so the directory is ours alone; the number goes past leftovers.
fn private_dir(parent: &Path) -> io::Result<PathBuf> {
    let pid = std::process::id();
    let mut number = 0;
    loop {
        let dir = parent.join(format!("wireup-bench-{pid}-{number}"));
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
            Err(e) => return Err(io::Error::new(e.kind(), format!("mkdir {}: {e}", dir.display()))),
            Ok(()) => return Ok(dir),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_directory_is_private_and_goes_away() {
        let scratch = Scratch::create().unwrap();
        let dir = scratch.dir.clone();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        for program in Program::ALL {
            assert_eq!(&fs::read(scratch.program(program)).unwrap()[..4], b"\x7fELF");
        }
        drop(scratch);
        assert!(!dir.exists());
    }
}
