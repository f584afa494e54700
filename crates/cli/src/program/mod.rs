//! What a program needs, read from its file before it starts: which PMI, which PMIx library, which other files.
//!
//! `elf` reads one file, `closure` finds its libraries as the loader will (`ld_cache` is the system's list of them),
//! `library_family` recognizes MPI libraries by name, `flavour` decides what the ranks are offered, `needs` lists all
//! files that a program reads to start.

pub mod closure;
pub mod elf;
pub mod flavour;
#[cfg(test)]
mod fuzzing;
pub mod ld_cache;
pub mod library_family;
pub mod needs;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wireup_os::spawn::{candidates, is_program};
use wireup_wire::job::AppSpec;

/// The file of a program, found as the ranks find it.
pub fn path(app: &AppSpec, job_env: &[Vec<u8>]) -> Option<PathBuf> {
    let program = OsStr::from_bytes(app.argv.first()?);
    let cwd = Path::new(OsStr::from_bytes(&app.cwd));
    if program.as_bytes().contains(&b'/') {
        return Some(cwd.join(program));
    }
    let paths = || {
        let candidates = candidates(program.as_bytes(), variable("PATH", app, job_env));
        candidates.map(|path| cwd.join(OsStr::from_bytes(&path)))
    };
    // Without an executable file, one that cannot be executed is examined, so that a message can say what it is.
    paths().find(|path| is_program(path)).or_else(|| paths().find(|path| path.is_file()))
}

/// A variable as the ranks of a program will see it: the last one counts.
pub fn variable<'a>(name: &str, app: &'a AppSpec, job_env: &'a [Vec<u8>]) -> Option<&'a [u8]> {
    let value = |variable: &'a Vec<u8>| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=");
    job_env.iter().chain(&app.env).rev().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_ranks_find_them() {
        let app = |program: &str, cwd: &str, env: &[&str]| AppSpec {
            ranks: 1,
            argv: vec![program.into()],
            cwd: cwd.into(),
            env: env.iter().map(|variable| variable.as_bytes().to_vec()).collect(),
        };
        let job_env = [b"PATH=/nowhere:/bin".to_vec()];
        assert_eq!(path(&app("./a", "/w", &[]), &job_env), Some("/w/./a".into()));
        assert_eq!(path(&app("/x/a", "/w", &[]), &job_env), Some("/x/a".into()));
        assert_eq!(path(&app("sh", "/", &[]), &job_env), Some("/bin/sh".into()));
        assert_eq!(path(&app("sh", "/", &["PATH=/nowhere"]), &job_env), None);
        assert_eq!(path(&app("sh", "/", &["PATH=/nowhere", "PATH=/bin"]), &job_env), Some("/bin/sh".into()));
        assert_eq!(path(&app("sh", "/bin", &["PATH=/nowhere"]), &job_env), Some("/bin/./sh".into()));
        assert_eq!(path(&app("bin/../sh", "/", &[]), &[]), Some("/bin/../sh".into()));
    }
}
