//! The programs of a job: their arguments, directories, variables, and the PMI that they are offered.

use super::error::FlagError;
use super::parsed::Section;
use crate::environment;
use crate::program::flavour::{self, Choice, Context};
use crate::surroundings::Surroundings;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use wireup_wire::job::{AppSpec, PmiFlavour};

/// The programs with everything that each is started with; and warnings.
pub fn apps(
    sections: Vec<Section>,
    ranks: &[u32],
    surroundings: &Surroundings,
    local: bool,
) -> Result<(Vec<AppSpec>, Vec<String>), FlagError> {
    if sections.len() > usize::from(u16::MAX) {
        return Err(FlagError::TooManyPrograms(sections.len()));
    }
    let (mut apps, mut warnings) = (Vec::with_capacity(sections.len()), Vec::new());
    let lookup = |name: &OsStr| surroundings.env.iter().find(|(known, _)| known == name).map(|(_, v)| v.clone());
    for (section, &ranks) in sections.into_iter().zip(ranks) {
        let (env, missing) = environment::app_env(&section.env, lookup);
        warnings.extend(missing.iter().map(|name| {
            format!(
                "-x {}: not set in this environment, so the ranks will not have it; to set it, write -x NAME=VALUE",
                name.display()
            )
        }));
        let cwd = working_directory(section.wdir, surroundings, local)?;
        let argv = section.argv.into_iter().map(OsString::into_vec).collect();
        apps.push(AppSpec { ranks, argv, cwd: cwd.into_os_string().into_vec(), env });
    }
    Ok((apps, warnings))
}

/// The PMI that the user chose, else the one that the programs need.
pub fn pmi(wish: Option<PmiFlavour>, apps: &[AppSpec], context: &Context) -> Result<Choice, FlagError> {
    Ok(match wish {
        None => match flavour::choose(apps, context) {
            Choice { mixed: Some(programs), .. } => return Err(FlagError::MixedLibraries { programs }),
            choice => choice,
        },
        // If the user asks for PMIx, which library the program will load still matters.
        Some(wish) if wish.has_pmix() => {
            Choice { flavour: wish, why: "--pmi".into(), ..flavour::choose(apps, context) }
        }
        Some(wish) => Choice { flavour: wish, why: "--pmi".into(), library: None, prefix: None, mixed: None },
    })
}

/// The absolute path of a PMIx library, since nodes work in other directories. Its existence is checked only if all
/// ranks run on this machine.
pub fn pmix_library(path: &Path, surroundings: &Surroundings, local: bool) -> Result<String, FlagError> {
    let shown = path.display().to_string();
    let path = surroundings.absolute(shown.clone());
    match local && !Path::new(&path).is_file() {
        true => Err(FlagError::PmixLibrary { path: shown }),
        false => Ok(path),
    }
}

/// The absolute path of a working directory. It is checked only if the ranks see the same file system.
fn working_directory(wdir: Option<PathBuf>, surroundings: &Surroundings, local: bool) -> Result<PathBuf, FlagError> {
    let current = || match &surroundings.cwd {
        Ok(cwd) => Ok(cwd.clone()),
        Err(problem) => Err(FlagError::CurrentDirectory { problem: problem.clone() }),
    };
    match wdir {
        None => current(),
        Some(wdir) => {
            let path = if wdir.is_absolute() { wdir } else { current()?.join(wdir) };
            if local {
                check_directory(&path)?;
            }
            Ok(path)
        }
    }
}

fn check_directory(path: &Path) -> Result<(), FlagError> {
    let problem = match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Ok(()),
        Ok(_) => "is not a directory".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(FlagError::WorkingDirectory { path: path.display().to_string(), problem })
}
