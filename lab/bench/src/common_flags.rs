//! The flags that benchmarks have in common, and the output of their results.
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;
use wireup_flags::{Error, Flag, Line, Section, Value};

use crate::error::{BenchError, io};
use crate::startup::chart::Chart;

pub const WIREUP: Flag =
    Flag::value(&["--wireup"], "PATH", "The wireup to time. Default: beside wireup-bench, else on PATH.");
pub const LIBRARY: Flag =
    Flag::value(&["--library"], "PATH", "libpmi2.so.0. Default: beside this program, or in ../lib.");
pub const WIREUP_ARG: Flag = Flag::value(&["--wireup-arg"], "ARG", "A further argument of wireup run (repeatable).");
/// Each benchmark has its own default.
pub const LIMIT: Flag = Flag::value(&["--limit"], "SECONDS", "Bound on each job.");
pub const DRY_RUN: Flag = Flag::switch(&["--dry-run"], "Show what would be run.");
pub const JSON: Flag = Flag::value(&["--json"], "FILE", "Write everything that was measured.");
pub const CSV: Flag = Flag::value(&["--csv"], "FILE", "Write every sample as a line.");
pub const SVG: Flag = Flag::value(&["--svg"], "DIR", "Write figures.");
pub const RESULTS: Section = Section { title: "Results", flags: &[DRY_RUN, JSON, CSV, SVG] };
pub const STRICT: Flag = Flag::switch(&["--strict"], "Exit with 1 if a target is missed.");

pub const HOSTS: Flag = Flag::value(&["--hosts"], "A,B,..", "Run across these hosts.");
/// Each benchmark has its own default.
pub const REMOTE_SHELL: Flag = Flag::value(&["--remote-shell"], "CMD", "Called as CMD HOST COMMAND.");
pub const SHARED: Flag =
    Flag::value(&["--shared"], "DIR", "Where all hosts see the test programs. Default: the current directory.");

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
    /// `limit` has the benchmark's default.
    pub fn read(line: &Line, limit: Flag) -> Result<CommonFlags, Error> {
        Ok(CommonFlags {
            wireup: line.last(WIREUP, Value::path)?,
            wireup_args: line.all(WIREUP_ARG, Value::text)?,
            limit: Duration::from_secs(line.one(limit, Value::at_least_one)?.into()),
            dry_run: line.has(DRY_RUN),
            json: line.last(JSON, Value::path)?,
            csv: line.last(CSV, Value::path)?,
            svg: line.last(SVG, Value::path)?,
        })
    }

    /// The wireup to time.
    pub fn program(&self) -> Result<PathBuf, BenchError> {
        self.wireup.clone().map_or_else(|| beside().map_err(io("wireup")), Ok)
    }

    /// Writes the requested files.
    pub fn write(&self, json: &Json, csv: &str, charts: impl FnOnce() -> Vec<Chart>) -> Result<(), BenchError> {
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
    /// `remote_shell` has the benchmark's default.
    pub fn read(line: &Line, remote_shell: Flag) -> Result<Across, Error> {
        Ok(Across {
            hosts: line.last(HOSTS, host_names)?.unwrap_or_default(),
            remote_shell: line.one(remote_shell, Value::text)?,
            shared: line.last(SHARED, Value::path)?,
        })
    }
}

/// Only plain names: peers differ in how they write ranges.
pub fn host_names(value: &Value) -> Result<Vec<String>, Error> {
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._@".contains(c));
    value.list(|name| {
        name.text().and_then(|text| match is_name(&text) {
            true => Ok(text),
            false => Err(name.refused("not a plain host name; expected A,B,..")),
        })
    })
}

/// `NAME=VALUE`, neither of them empty.
pub fn pair(value: &Value) -> Result<(String, String), Error> {
    match value.text()?.split_once('=') {
        Some((name, rest)) if !name.is_empty() && !rest.is_empty() => Ok((name.to_owned(), rest.to_owned())),
        _ => Err(value.refused("expected NAME=VALUE")),
    }
}

/// The line of a test.
#[cfg(test)]
pub fn line(command: &wireup_flags::Command, words: &str) -> Result<Line, Error> {
    Ok(command.parse(words.split_whitespace().map(Into::into))?.expect("no help"))
}
