//! The flags of `wireup run` that a command line of `mpiexec` amounts to.

use super::row::{ShellPart, Typed};
use super::vendor::Vendor;
use crate::flags::table as flag;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use wireup_flags::{Flag, Given, Line, Value};

/// Flags that may occur several times, each with a value that applies.
const REPEATED: &[Flag] = &[flag::ENV, flag::GENV, flag::ENV_FILE, flag::HOSTS, flag::HOST_FILE];
/// Flags that belong to one program.
pub const OF_PROGRAM: &[Flag] = &[flag::RANKS, flag::WDIR, flag::ENV_LIST];
/// Flags whose values are a word with properties (`core:overload-allowed`), which may be given apart
/// (`:overload-allowed`).
const IN_PARTS: &[Flag] = &[flag::MAP_BY, flag::BIND_TO];

/// The command for each kind of launcher; none: ranks run on this machine, or the batch system's nodes are reached by
/// ssh.
const SHELLS: &[(&str, Option<&str>)] = &[
    ("ssh", Some("ssh")),
    ("rsh", Some("rsh")),
    ("fork", None),
    ("slurm", Some("srun")),
    ("srun", Some("srun")),
    ("lsf", Some("blaunch")),
    ("blaunch", Some("blaunch")),
    ("sge", Some("qrsh -inherit -V")),
    ("qrsh", Some("qrsh -inherit -V")),
    ("pbs", None),
    ("pbsdsh", None),
    ("ll", None),
];

pub fn shell_command(kind: &str) -> Option<&'static str> {
    SHELLS.iter().find(|(name, _)| *name == kind)?.1
}

/// What a command line asks for.
#[derive(Default)]
pub struct Translation {
    pub vendor: Vendor,
    /// The programs so far, in the words of `wireup run`.
    pub programs: Vec<Line>,
    pub line: Line,
    /// The options that set the flags of `line` and of the programs before it.
    pub set_by: Vec<SetFlag>,
    /// Notes for the user: options that have no effect, with the reasons.
    pub notes: Vec<String>,
    pub quiet: bool,
    /// The remote shell, which may be put together from several options.
    pub shell: ShellWords,
    /// Folders in which the program is looked up.
    pub path: Option<OsString>,
    /// What to print instead of running anything.
    pub shows: Option<Shows>,
    /// The number of files of options that are being read, each named in the one before.
    pub depth: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shows {
    /// The whole help text, or the help on the option of this name.
    Help(Option<String>),
    Version,
}

pub struct SetFlag {
    flag: Flag,
    /// The index of the program that the option applies to; `None`: it was given together with a file of programs.
    pub program: Option<usize>,
    word: OsString,
    typed: Typed,
}

impl Translation {
    pub fn new(vendor: Vendor) -> Translation {
        Translation { vendor, ..Translation::default() }
    }

    /// Notes for the user that an option has no effect under wireup.
    pub fn note(&mut self, typed: &Typed, why: &str) {
        let note = format!("{} has no effect here: {why}", typed.shown());
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Gives a flag of `wireup run`.
    ///
    /// # Errors
    /// The flag was given before with another value.
    pub fn give(&mut self, flag: &'static Flag, typed: &Typed, word: OsString) -> Result<(), String> {
        let program = Some(self.programs.len());
        let of_program = OF_PROGRAM.contains(flag);
        let known = self.set_by.iter_mut().find(|set| set.flag == *flag && (!of_program || set.program == program));
        let word = match known {
            Some(set) if set.word != word && !REPEATED.contains(flag) => {
                let joined = IN_PARTS.contains(flag).then(|| joined(&set.word, &word)).flatten();
                let contradiction = || set.typed.contradiction(typed);
                let word = joined.ok_or_else(contradiction)?;
                set.word.clone_from(&word);
                word
            }
            Some(_) => word,
            None => {
                self.set_by.push(SetFlag { flag: *flag, program, word: word.clone(), typed: typed.clone() });
                word
            }
        };
        self.line.given.push(Given { flag, value: Value { flag: typed.option.clone(), word } });
        Ok(())
    }

    pub fn has(&self, flag: &Flag) -> bool {
        self.set_by.iter().any(|set| set.flag == *flag)
    }

    /// Whether a number of ranks on each node is given.
    pub fn maps_per_node(&self) -> bool {
        self.set_by.iter().any(|set| set.flag == flag::MAP_BY && set.word.as_bytes().starts_with(b"ppr:"))
    }

    /// Whether a flag was given for the whole job after all programs were read.
    pub fn gives_job(&self, flag: &Flag) -> bool {
        self.programs.first().is_some_and(|line| line.has(*flag))
    }

    /// Gives a flag for the whole job, after all programs were read.
    pub fn give_job(&mut self, flag: &'static Flag, by: &str, word: OsString) {
        if let Some(first) = self.programs.first_mut() {
            first.given.push(Given { flag, value: Value { flag: by.to_owned(), word } });
        }
    }

    /// Gives the remote shell that the options amount to, and replaces the names of programs that are found in the
    /// folders of `-path` by their paths.
    pub fn finish(&mut self) {
        let shell = std::mem::take(&mut self.shell);
        if let Some(typed) = shell.kind_by_ssh() {
            self.note(typed, "the hosts of this batch system are reached by ssh");
        }
        if let Some((command, by)) = shell.command() {
            self.give_job(&flag::REMOTE_SHELL, by, command.into());
        }
        let Some(path) = self.path.take() else { return };
        for line in &mut self.programs {
            let Some(program) = line.words.first_mut().filter(|word| !word.as_bytes().contains(&b'/')) else {
                continue;
            };
            let found = std::env::split_paths(&path).map(|folder| folder.join(&*program)).find(|path| path.is_file());
            if let Some(found) = found {
                *program = std::path::absolute(&found).unwrap_or(found).into_os_string();
            }
        }
    }
}

/// The remote shell, as far as the options read so far describe it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShellWords {
    kind: Option<Typed>,
    program: Option<Typed>,
    arguments: String,
}

impl ShellWords {
    /// # Errors
    /// The kind of remote shell is unknown, or an earlier option gave this part another value.
    pub fn set(&mut self, part: ShellPart, typed: &Typed) -> Result<(), String> {
        let word = typed.value().text()?;
        let field = match part {
            ShellPart::Launcher => {
                typed.value().choice(SHELLS)?;
                &mut self.kind
            }
            ShellPart::Program => &mut self.program,
            ShellPart::Arguments => {
                self.arguments = word;
                return Ok(());
            }
        };
        match field.replace(typed.clone()) {
            Some(first) if first.words != typed.words => Err(first.contradiction(typed)),
            _ => Ok(()),
        }
    }

    /// The remote shell that the options amount to, with the option that chose it.
    pub fn command(&self) -> Option<(String, &str)> {
        let (command, by) = match (&self.program, &self.kind) {
            (Some(program), _) => (program.value().shown().into_owned(), program.option.as_str()),
            (None, Some(kind)) => (shell_command(&kind.value().shown())?.to_owned(), kind.option.as_str()),
            (None, None) if !self.arguments.is_empty() => ("ssh".to_owned(), "-launcher"),
            (None, None) => return None,
        };
        Some((format!("{command} {}", self.arguments).trim().to_owned(), by))
    }

    /// The option that chose a kind of launcher without a command here, whose hosts wireup reaches by ssh.
    pub fn kind_by_ssh(&self) -> Option<&Typed> {
        let kind = self.kind.as_ref().filter(|_| self.program.is_none())?;
        let word = kind.value().word;
        (shell_command(&word.to_string_lossy()).is_none() && word != "fork").then_some(kind)
    }
}

/// Joins two parts of a value, at least one of which must have no word before its first colon.
fn joined(before: &OsStr, after: &OsStr) -> Option<OsString> {
    let (before, after) = (before.to_str()?, after.to_str()?);
    match (before.strip_prefix(':'), after.strip_prefix(':')) {
        (_, Some(_)) => Some(format!("{before}{after}").into()),
        (Some(_), None) => Some(format!("{after}{before}").into()),
        (None, None) => None,
    }
}
