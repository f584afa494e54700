//! The ranks whose files are collected: their program, variables and working directory.

use super::super::{path, variable};
use super::need::Error;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wireup_wire::job::AppSpec;

pub struct Ranks<'a> {
    app: &'a AppSpec,
    /// The job's variables.
    env: &'a [Vec<u8>],
    /// The working directory.
    pub cwd: &'a Path,
    /// The working directory without symbolic links.
    real_cwd: PathBuf,
}

impl<'a> Ranks<'a> {
    pub fn new(app: &'a AppSpec, env: &'a [Vec<u8>]) -> Ranks<'a> {
        let cwd = Path::new(OsStr::from_bytes(&app.cwd));
        Ranks { app, env, cwd, real_cwd: cwd.canonicalize().unwrap_or_else(|_| cwd.to_path_buf()) }
    }

    pub fn variable(&self, name: &str) -> Option<&'a [u8]> {
        variable(name, self.app, self.env)
    }

    /// The absolute path in a variable; `None`: the variable is not set, or empty.
    pub fn path_in(&self, name: &str) -> Option<PathBuf> {
        let value = self.variable(name).filter(|value| !value.is_empty())?;
        Some(self.cwd.join(OsStr::from_bytes(value)))
    }

    /// A program as the ranks would find it by this name.
    pub fn program_named(&self, name: &[u8]) -> Option<PathBuf> {
        let app = AppSpec { argv: vec![name.to_vec()], ..self.app.clone() };
        path(&app, self.env).filter(|path| path.is_file())
    }

    /// Whether the working directory is `folder` or lies below it.
    pub fn start_in(&self, folder: &Path) -> bool {
        folder.canonicalize().is_ok_and(|folder| self.real_cwd.starts_with(folder))
    }

    /// The files that the user named by a path or pattern.
    pub fn matches(&self, pattern: &Path) -> Result<Vec<PathBuf>, Error> {
        let path = self.cwd.join(pattern);
        if path.symlink_metadata().is_ok() {
            return Ok(vec![path]);
        }
        let text = || pattern.display().to_string();
        let cwd = glob::Pattern::escape(&self.cwd.to_string_lossy());
        let whole = Path::new(&cwd).join(pattern);
        let reason = |reason: String| Error::Pattern { pattern: text(), reason };
        let whole = whole.to_str().ok_or_else(|| reason("a pattern must be UTF-8".to_owned()))?;
        let found = glob::glob(whole).map_err(|error| reason(error.to_string()))?;
        let found: Vec<PathBuf> = found.flatten().collect();
        if found.is_empty() { Err(Error::NoMatch(text())) } else { Ok(found) }
    }
}
