//! The embedded test programs, unpacked into a private directory for the duration of a benchmark.
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The programs: their names after unpacking, and the names that the build script gave them.
macro_rules! programs {
    ($($(#[$attribute:meta])* $program:ident: $name:literal from $image:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Program {
            $($(#[$attribute])* $program,)*
        }

        impl Program {
            const ALL: &[Program] = &[$(Program::$program,)*];

            fn name(self) -> &'static str {
                match self {
                    $(Program::$program => $name,)*
                }
            }

            fn image(self) -> &'static [u8] {
                match self {
                    $(Program::$program => include_bytes!(concat!(env!("OUT_DIR"), "/", $image)),)*
                }
            }
        }
    };
}

programs! {
    True: "true" from "true",
    PmiInit: "pmi-init" from "pmi_init",
    PmiBare: "pmi-bare" from "pmi_bare",
    PmiExchange: "pmi-exchange" from "pmi_exchange",
    SpawnBaseline: "spawn-baseline" from "spawn_baseline",
    PmiEcho: "pmi-echo" from "pmi_echo",
    Shells: "shells" from "shells",
    TcpPingpong: "tcp-pingpong" from "tcp_pingpong",
    Relay: "relay" from "relay",
    Startup: "startup" from "startup",
    Groups: "groups" from "groups",
    FromExec: "from-exec" from "from_exec",
    FirstUse: "first-use" from "first_use",
    Spinning: "spinning" from "spinning",
    PmixExchange: "pmix-exchange" from "pmix_exchange",
    Pmi2Allgather: "pmi2-allgather" from "pmi2_allgather",
    UcxInit: "ucx-init" from "ucx_init",
    SpawnJobs: "spawn-jobs" from "spawn_jobs",
    Misbehave: "misbehave" from "misbehave",
    Polling: "polling" from "polling",
    BesidePolling: "beside-polling" from "beside_polling",
    /// Shared objects.
    MpiShim: "mpi-shim.so" from "mpi_shim",
    PrunShim: "prun-shim.so" from "prun_shim",
}

/// Folder inside a `Scratch` in which wireup keeps the benchmark's sessions.
const SESSIONS: &str = "sessions";

/// A directory of mode 0700 with the programs and the files of the runs; removed when dropped.
pub struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    /// In a folder; other hosts may have to see it as well.
    pub fn create_in(parent: &Path) -> io::Result<Scratch> {
        let scratch = Scratch { dir: private_dir(parent)? };
        DirBuilder::new().mode(0o700).create(scratch.file(SESSIONS))?;
        for &program in Program::ALL {
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

    /// A copy of this file, at the same path for all who see the directory.
    pub fn copy_of(&self, file: &Path) -> io::Result<PathBuf> {
        let copy = self.file(&file.file_name().unwrap_or_default().to_string_lossy());
        if fs::hard_link(file, &copy).is_err() {
            fs::copy(file, &copy)?;
        }
        Ok(copy)
    }

    /// An empty file of this name, replacing one from an earlier run.
    pub fn empty_file(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.file(name);
        fs::write(&path, b"")?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failure cannot be handled here; the directory's name shows which process made it.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The sessions' folder, from the path of any file of a `Scratch`.
pub fn sessions_beside(file: &Path) -> PathBuf {
    file.with_file_name(SESSIONS)
}

/// mkdir refuses an existing name, so the directory is ours alone; the number skips leftovers.
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
    fn the_scratch_directory_is_private_and_removed() {
        let scratch = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let dir = scratch.dir.clone();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        for &program in Program::ALL {
            assert_eq!(&fs::read(scratch.program(program)).unwrap()[..4], b"\x7fELF");
        }
        drop(scratch);
        assert!(!dir.exists());
    }
}
