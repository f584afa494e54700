//! The programs of a job: their arguments, directories, variables, and the PMI that they are offered.

use super::parsed::{EnvList, Parsed, Program};
use crate::env_file;
use crate::environment::{self, Pair};
use crate::program::flavour::{self, Choice, Context};
use crate::surroundings::Surroundings;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use wireup_wire::job::{AppSpec, PmiFlavour};

/// The programs of a job with everything that each is started with, and warnings for the user.
pub fn apps(
    programs: &[Program],
    ranks: &[u32],
    surroundings: &Surroundings,
    local: bool,
) -> Result<(Vec<AppSpec>, Vec<String>), String> {
    if programs.len() > usize::from(u16::MAX) {
        return Err(format!(
            "too many programs on one command line ({}); use one script that chooses the program by WIREUP_RANK",
            programs.len()
        ));
    }
    let (mut apps, mut warnings) = (Vec::with_capacity(programs.len()), Vec::new());
    let lookup = |name: &OsStr| surroundings.env.iter().find(|(known, _)| known == name).map(|(_, v)| v.clone());
    for (program, &ranks) in programs.iter().zip(ranks) {
        let (env, missing) = environment::app_env(&program.flags.env, lookup);
        warnings.extend(missing.iter().map(|name| {
            format!(
                "--env {}: not set in this environment, so the ranks will not have it; to set it, use --env NAME=VALUE",
                name.display()
            )
        }));
        let cwd = working_directory(program.flags.wdir.as_deref(), surroundings, local)?;
        let argv = program.argv.iter().cloned().map(OsString::into_vec).collect();
        apps.push(AppSpec { ranks, argv, cwd: cwd.into_os_string().into_vec(), env });
    }
    Ok((apps, warnings))
}

/// The variables of the job. If programs inherit different variables, the inherited ones are set for each program
/// instead.
pub fn environment(flags: &Parsed, apps: &mut [AppSpec], inherited: &[&Pair]) -> Result<Vec<Vec<u8>>, String> {
    let mut set = Vec::new();
    for file in &flags.env_files {
        set.extend(env_file::read_file(file)?);
    }
    set.extend(flags.genv.iter().cloned());
    let of_job = flags.genv_list.as_ref().unwrap_or(&EnvList::All);
    if flags.programs.iter().all(|program| program.flags.env_list.is_none()) {
        return Ok(environment::job_env(inherited, of_job, &set));
    }
    let env = environment::job_env(inherited, &EnvList::None, &set);
    for (app, program) in apps.iter_mut().zip(&flags.programs) {
        let list = program.flags.env_list.as_ref().unwrap_or(of_job);
        app.env = environment::program_env(inherited, list, &env, std::mem::take(&mut app.env));
    }
    Ok(env)
}

/// The PMI that the user chose, else the one that the programs need.
pub fn pmi(wish: Option<PmiFlavour>, apps: &[AppSpec], context: &Context) -> Result<Choice, String> {
    Ok(match wish {
        None => match flavour::choose(apps, context) {
            Choice { mixed: Some(programs), .. } => {
                return Err(format!(
                    "{programs}: ranks of different MPI libraries cannot form one job, MPI_Init would not return; \
                     build the programs with the same MPI, or start each in its own job (to start them \
                     anyway: --pmi both)"
                ));
            }
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
pub fn pmix_library(path: &Path, surroundings: &Surroundings, local: bool) -> Result<String, String> {
    let shown = path.display().to_string();
    let path = surroundings.absolute(shown.clone());
    match local && !Path::new(&path).is_file() {
        true => Err(format!(
            "--pmix-library {shown}: file not found; give the path of a PMIx library, such as \
             /opt/openmpi/lib/libpmix.so.2"
        )),
        false => Ok(path),
    }
}

/// The absolute path of a working directory. It is checked only if the ranks see the same file system.
fn working_directory(wdir: Option<&Path>, surroundings: &Surroundings, local: bool) -> Result<PathBuf, String> {
    let current = || match &surroundings.cwd {
        Ok(cwd) => Ok(cwd.clone()),
        Err(problem) => Err(format!(
            "the current directory no longer exists ({problem}); cd to an existing one, or give --wdir DIR"
        )),
    };
    match wdir {
        None => current(),
        Some(wdir) => {
            let path = if wdir.is_absolute() { wdir.to_owned() } else { current()?.join(wdir) };
            if !local {
                return Ok(path);
            }
            let problem = match std::fs::metadata(&path) {
                Ok(meta) if meta.is_dir() => return Ok(path),
                Ok(_) => "is not a directory".to_owned(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist".to_owned(),
                Err(error) => error.to_string(),
            };
            Err(format!("working directory {}: {problem}; create it or name another with --wdir", path.display()))
        }
    }
}
