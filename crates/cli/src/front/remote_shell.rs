//! The remote shell, put together from options for its kind, its program and its arguments.

use super::row::{ShellPart, Typed};

/// The command for each kind of launcher; none: ranks run on this machine, or the batch system's nodes are reached by
/// ssh.
const KINDS: &[(&str, Option<&str>)] = &[
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

pub fn command(kind: &str) -> Option<&'static str> {
    KINDS.iter().find(|(name, _)| *name == kind)?.1
}

/// The remote shell, as far as the options read so far describe it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShellWords {
    kind: Option<(String, Typed)>,
    program: Option<(String, Typed)>,
    arguments: String,
}

impl ShellWords {
    /// # Errors
    /// The kind of remote shell is unknown, or an earlier option gave this part another value.
    pub fn set(&mut self, part: ShellPart, typed: &Typed) -> Result<(), String> {
        let word = typed.value().text()?;
        let field = match part {
            ShellPart::Launcher => {
                typed.value().choice(KINDS)?;
                &mut self.kind
            }
            ShellPart::Program => &mut self.program,
            ShellPart::Arguments => {
                self.arguments = word;
                return Ok(());
            }
        };
        match field.replace((word.clone(), typed.clone())) {
            Some((before, first)) if before != word => Err(first.contradiction(typed)),
            _ => Ok(()),
        }
    }

    /// The remote shell that the options amount to, with the option that chose it.
    pub fn command(&self) -> Option<(String, &str)> {
        let (command, by) = match (&self.program, &self.kind) {
            (Some((program, typed)), _) => (program.as_str(), typed.option.as_str()),
            (None, Some((kind, typed))) => (command(kind)?, typed.option.as_str()),
            (None, None) if !self.arguments.is_empty() => ("ssh", "-launcher"),
            (None, None) => return None,
        };
        Some((format!("{command} {}", self.arguments).trim().to_owned(), by))
    }

    /// The option that chose a kind of launcher without a command here, whose hosts wireup reaches by ssh.
    pub fn kind_by_ssh(&self) -> Option<&Typed> {
        let (kind, typed) = self.kind.as_ref().filter(|_| self.program.is_none())?;
        (command(kind).is_none() && kind != "fork").then_some(typed)
    }
}
