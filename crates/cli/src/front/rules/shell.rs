//! Options that choose the remote shell. The kind and the program may be given apart.

use crate::flags::table as flag;
use crate::front::error::FrontError;
use crate::front::row::{Rule, Typed};
use crate::front::translation::Translation;

pub static KIND: Rule = Rule {
    says: "`ssh`, `rsh`, `slurm` (`srun`), `lsf` (`blaunch`), `sge` (`qrsh`): the remote shell; `fork`: this machine only",
    example: ("mpiexec.hydra -launcher ssh ./a", "--remote-shell ssh ./a"),
    act: |translation, typed| {
        let value = typed.value();
        value.choice(KINDS)?;
        set(translation, typed, |shell| &mut shell.kind)
    },
};

pub static PROGRAM: Rule = Rule {
    says: "as `--remote-shell PROGRAM`",
    example: ("mpiexec.hydra -launcher ssh -launcher-exec /usr/bin/ssh ./a", "--remote-shell /usr/bin/ssh ./a"),
    act: |translation, typed| set(translation, typed, |shell| &mut shell.program),
};

pub static ARGUMENTS: Rule = Rule {
    says: "puts these words behind the remote shell",
    example: ("mpiexec.hydra -launcher ssh -bootstrap-exec-args \"-p 2222\" ./a", "--remote-shell \"ssh -p 2222\" ./a"),
    act: |translation, typed| {
        translation.shell.arguments = typed.value().text()?;
        Ok(())
    },
};

/// The command for each kind; none: ranks run on this machine, or the batch system's nodes are reached by ssh.
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

/// The command for a kind of launcher.
pub fn command(kind: &str) -> Option<&'static str> {
    KINDS.iter().find(|(name, _)| *name == kind)?.1
}

fn set(
    translation: &mut Translation,
    typed: &Typed,
    field: fn(&mut crate::front::translation::Shell) -> &mut Option<(String, Typed)>,
) -> Result<(), FrontError> {
    let word = typed.value().text()?;
    match field(&mut translation.shell).replace((word.clone(), typed.clone())) {
        Some((before, first)) if before != word => {
            Err(FrontError::Contradiction { first: first.shown(), second: typed.shown() })
        }
        _ => Ok(()),
    }
}

/// Gives the remote shell that the options amount to.
pub fn finish(translation: &mut Translation) -> Result<(), FrontError> {
    let shell = std::mem::take(&mut translation.shell);
    let by = shell.program.as_ref().or(shell.kind.as_ref()).map(|(_, typed)| typed.option.clone());
    let command = match (&shell.program, &shell.kind) {
        (Some((program, _)), _) => Some(program.clone()),
        (None, Some((kind, typed))) => {
            let value = typed.value().part(kind);
            let command = value.choice(KINDS)?;
            if command.is_none() && kind != "fork" {
                translation.note(typed, "the hosts of this batch system are reached by ssh");
            }
            command.map(str::to_owned)
        }
        (None, None) if !shell.arguments.is_empty() => Some("ssh".to_owned()),
        (None, None) => None,
    };
    if let Some(command) = command {
        let words = format!("{command} {}", shell.arguments);
        translation.give_job(&flag::REMOTE_SHELL, by.as_deref().unwrap_or("-launcher"), words.trim().into());
    }
    Ok(())
}
