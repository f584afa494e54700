//! One program of a suite: how it is built and run, and the result of its run.

use super::reference::Line;
use crate::layout;
use crate::step::{Result, run_quietly};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Maximum bytes of an entry's output that are read: no entry that passes prints as much.
const OUTPUT_MAX: u64 = 1 << 20;
/// Time limit of an entry that may also reach its limit under its own launcher (chosen): the entry starts, computes,
/// and is ended.
const LATE: Duration = Duration::from_secs(20);
/// Time that a launcher may take to end its ranks after the time limit (s).
const GRACE_S: u64 = 15;

#[derive(Clone)]
pub struct Entry {
    /// Name of the entry in the suite's reference file.
    pub name: String,
    pub ranks: u32,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Folder in which the entry runs.
    pub folder: PathBuf,
    pub environment: Vec<(String, String)>,
    /// Additional flags of `wireup run` for this entry.
    pub flags: Vec<String>,
    pub limit: Duration,
    /// Command that builds the program, if it does not exist.
    pub build: Vec<String>,
    /// A file in `folder` that the entry writes; its text is judged together with the output.
    pub results: Option<&'static str>,
    pub judge: fn(&Ended) -> String,
}

/// The results of a run, from which an entry is judged.
pub struct Ended {
    /// Exit code; `None`: killed by a signal, or by xtask at the time limit.
    pub code: Option<i32>,
    pub is_late: bool,
    /// Text of standard output and standard error, and of the file of results.
    pub said: String,
}

impl Ended {
    /// The verdict for a program that reports its result by its exit code.
    pub fn by_exit_code(&self) -> String {
        match self.code {
            _ if self.is_late => "time limit".into(),
            Some(0) => "pass".into(),
            Some(code) => format!("exit {code}"),
            None => "killed".into(),
        }
    }
}

/// The results of an entry's run, also as text for people.
pub struct EntryReport {
    pub verdict: String,
    pub said: String,
    pub length: Duration,
}

pub enum Launcher {
    /// Path of the product, and number of virtual nodes.
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
                // wireup ends the job at its own time limit, which is earlier, so that no process of an entry that
                // hangs is left.
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
    /// A new entry without arguments that should end within a minute and is judged by its exit code.
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

    /// Runs the entry.
    ///
    /// # Errors
    /// The program cannot be built, or the launcher cannot be started.
    pub fn run(&self, launcher: &Launcher) -> Result<EntryReport> {
        if let Some((make, args)) = self.build.split_first()
            && !self.program.exists()
        {
            run_quietly(Command::new(make).args(args))?;
        }
        if let Some(results) = self.results {
            // Errors are ignored: before the first run there is no file of results.
            let _ = fs::remove_file(self.folder.join(results));
        }
        // The output goes to a file: a pipe would be kept open by a process that the entry leaves behind.
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

    /// Runs the entry under wireup on `nodes` nodes and returns its results; a difference from the reference is an
    /// error.
    ///
    /// # Errors
    /// The entry cannot be run, has no line in the reference, or does not end as that line says.
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

/// The last lines of an output, which messages show.
fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(12)..].iter().map(|line| format!("    {line}\n")).collect()
}
