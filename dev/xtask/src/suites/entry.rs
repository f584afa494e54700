//! One program of a suite: how it is built and run, and what came out.

use super::reference::Line;
use crate::layout;
use crate::step::{Result, run_quietly};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bytes that are read of longer outputs: no entry that passes prints as much.
const OUTPUT_MAX: u64 = 1 << 20;
/// Time limit of an entry that may also reach its limit under its own launcher (chosen): the entry starts, computes,
/// and is ended.
const LATE: Duration = Duration::from_secs(20);
/// Time that a launcher may take to end its ranks after the time limit (s).
const GRACE_S: u64 = 15;

#[derive(Clone)]
pub struct Entry {
    /// Name of the entry in the reference file.
    pub name: String,
    pub ranks: u32,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Folder in which the entry runs.
    pub folder: PathBuf,
    pub environment: Vec<(String, String)>,
    /// Further flags of `wireup run`.
    pub flags: Vec<String>,
    pub limit: Duration,
    /// Command that builds the program, if it does not exist.
    pub build: Vec<String>,
    /// A file of `folder` that the entry writes, and that is judged with its output.
    pub results: Option<&'static str>,
    pub judge: fn(&Ended) -> String,
}

/// The results of an entry that judges look at.
pub struct Ended {
    /// Exit code; `None`: killed by a signal, or by xtask at the time limit.
    pub code: Option<i32>,
    pub is_late: bool,
    /// Text of both streams, and of the file of results.
    pub said: String,
}

impl Ended {
    /// The verdict of a program that says by its exit code how it went.
    pub fn by_exit_code(&self) -> String {
        match self.code {
            _ if self.is_late => "time limit".into(),
            Some(0) => "pass".into(),
            Some(code) => format!("exit {code}"),
            None => "killed".into(),
        }
    }
}

/// The results of an entry, also as text for people.
pub struct EntryReport {
    pub verdict: String,
    pub said: String,
    pub length: Duration,
}

pub enum Launcher {
    /// The product, and on how many virtual nodes.
    Wireup(PathBuf, u32),
    /// A command that ends with the option for the number of ranks.
    Own(Vec<String>),
}

impl Launcher {
    fn command(&self, entry: &Entry) -> Command {
        let mut timeout = Command::new("timeout");
        timeout.args(["--kill-after", &GRACE_S.to_string()]);
        let limit = entry.limit.as_secs();
        match self {
            Launcher::Wireup(path, nodes) => {
                // wireup ends the job at its own time limit, so nothing is left of an entry that hangs.
                timeout.arg((limit + GRACE_S).to_string()).arg(path).args(["run", "--timeout", &limit.to_string()]);
                timeout.arg("-n").arg(entry.ranks.to_string());
                if *nodes > 1 {
                    timeout.args(["--virtual-nodes", &nodes.to_string()]);
                }
                timeout.args(&entry.flags);
            }
            Launcher::Own(words) => {
                timeout.arg(limit.to_string()).args(words).arg(entry.ranks.to_string());
            }
        }
        timeout.arg(&entry.program).args(&entry.arguments);
        timeout
    }
}

impl Entry {
    /// An entry without arguments that ends within a minute, judged by its exit code.
    pub fn new(name: impl Into<String>, ranks: u32, program: PathBuf, folder: &Path) -> Entry {
        Entry {
            name: name.into(),
            ranks,
            program,
            arguments: Vec::new(),
            folder: folder.to_owned(),
            environment: Vec::new(),
            flags: Vec::new(),
            limit: Duration::from_secs(60),
            build: Vec::new(),
            results: None,
            judge: Ended::by_exit_code,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// It cannot be built, or the launcher cannot be started.
    pub fn run(&self, launcher: &Launcher) -> Result<EntryReport> {
        if let Some((make, args)) = self.build.split_first()
            && !self.program.exists()
        {
            run_quietly(Command::new(make).args(args))?;
        }
        if let Some(results) = self.results {
            // There are no results before the first run.
            let _ = fs::remove_file(self.folder.join(results));
        }
        // The output is not a pipe, which a process that is left behind would keep open.
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!("output-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let path = layout::target().join("suites").join(name);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let output = File::create(&path).map_err(failed)?;
        let mut command = launcher.command(self);
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).current_dir(&self.folder);
        command.env("WIREUP_RUNTIME_DIR", layout::target().join("no-session")).stdin(Stdio::null());
        command.stdout(output.try_clone().map_err(failed)?).stderr(output);
        let start = Instant::now();
        let status = command.status().map_err(|error| format!("{}: {error}", self.name))?;
        let length = start.elapsed();
        let mut said = read(&path).map_err(failed)?;
        fs::remove_file(&path).map_err(failed)?;
        if let Some(results) = self.results {
            said += &read(&self.folder.join(results)).unwrap_or_default();
        }
        let ended = Ended { code: status.code(), is_late: length >= self.limit, said };
        Ok(EntryReport { verdict: (self.judge)(&ended), said: ended.said, length })
    }

    /// Runs it under wireup on `nodes` nodes and says what came out; the error is a difference from the reference.
    ///
    /// # Errors
    /// It cannot be run, it has no line in the reference, or it does not end as that line says.
    pub fn compare(&self, wireup: &Path, nodes: u32, reference: Option<&Line>) -> Result<EntryReport> {
        let line = reference.ok_or_else(|| format!("{}: not in the reference file", self.name))?;
        let mut entry = self.clone();
        if line.is_late() {
            entry.limit = entry.limit.min(LATE);
        }
        let report = entry.run(&Launcher::Wireup(wireup.to_owned(), nodes))?;
        if line.agrees(&report.verdict) {
            return Ok(report);
        }
        let (verdict, said) = (&report.verdict, last_lines(&report.said));
        Err(format!("{} on {nodes} node(s): {verdict}; reference: {line}\n{said}", self.name))
    }
}

pub(super) fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(OUTPUT_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a message shows of an output.
fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(12)..].iter().map(|line| format!("    {line}\n")).collect()
}
