//! The flags that the benchmarks of running jobs have in common, and the output of their results.
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::error::{BenchError, io};
use crate::startup::chart::Chart;
use crate::words::{at_least_one, host_names, word};

#[derive(Clone, Debug, PartialEq)]
pub struct CommonFlags {
    pub wireup: Option<PathBuf>,
    pub wireup_args: Vec<String>,
    /// For each job.
    pub limit: Duration,
    pub dry_run: bool,
    json: Option<PathBuf>,
    csv: Option<PathBuf>,
    svg: Option<PathBuf>,
}

impl CommonFlags {
    pub fn new(limit: Duration) -> CommonFlags {
        CommonFlags { wireup: None, wireup_args: Vec::new(), limit, dry_run: false, json: None, csv: None, svg: None }
    }

    /// Parses the flag of that name if it is one of these.
    pub fn take(&mut self, name: &str, parser: &mut lexopt::Parser) -> Result<bool, lexopt::Error> {
        match name {
            "wireup" => self.wireup = Some(parser.value()?.into()),
            "wireup-arg" => self.wireup_args.push(word(parser)?),
            "limit" => self.limit = Duration::from_secs(at_least_one(parser)?.into()),
            "dry-run" => self.dry_run = true,
            "json" => self.json = Some(parser.value()?.into()),
            "csv" => self.csv = Some(parser.value()?.into()),
            "svg" => self.svg = Some(parser.value()?.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The wireup to time.
    pub fn program(&self) -> Result<PathBuf, BenchError> {
        self.wireup.clone().map_or_else(|| beside().map_err(io("wireup")), Ok)
    }

    /// Writes the requested files.
    pub fn write(&self, json: &Value, csv: &str, charts: impl FnOnce() -> Vec<Chart>) -> Result<(), BenchError> {
        for (path, text) in [(&self.json, &*format!("{json:#}\n")), (&self.csv, csv)] {
            if let Some(path) = path {
                fs::write(path, text).map_err(io(path.display().to_string()))?;
            }
        }
        let Some(folder) = &self.svg else { return Ok(()) };
        fs::create_dir_all(folder).map_err(io(folder.display().to_string()))?;
        for chart in charts() {
            let Some(text) = chart.draw() else { continue };
            let path = folder.join(format!("{}.svg", chart.name));
            fs::write(&path, text).map_err(io(path.display().to_string()))?;
        }
        Ok(())
    }
}

/// The wireup beside this program, or on `PATH`.
///
/// # Errors
/// There is none.
pub fn beside() -> std::io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.parent().map(PathBuf::from).into_iter().chain(std::env::split_paths(&path));
    let missing = || std::io::Error::other("it is neither beside wireup-bench nor on PATH; name it with --wireup PATH");
    folders.map(|folder| folder.join("wireup")).find(|program| program.is_file()).ok_or_else(missing)
}

/// The hosts of jobs that do not run on this machine alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Across {
    /// Virtual nodes if empty.
    pub hosts: Vec<String>,
    pub remote_shell: String,
    pub shared: Option<PathBuf>,
}

impl Across {
    pub fn new(remote_shell: &str) -> Across {
        Across { hosts: Vec::new(), remote_shell: remote_shell.into(), shared: None }
    }

    /// Parses the flag of that name if it is one of these.
    pub fn take(&mut self, name: &str, parser: &mut lexopt::Parser) -> Result<bool, lexopt::Error> {
        match name {
            "hosts" => self.hosts = host_names(&word(parser)?)?,
            "remote-shell" => self.remote_shell = word(parser)?,
            "shared" => self.shared = Some(parser.value()?.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }
}
