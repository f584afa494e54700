//! Parameters of Open MPI, PRRTE and OpenPMIx: those of the libraries become variables of the ranks, those of the
//! launcher (`open_mpi::PARAMETERS`) do what the corresponding flag does.

use super::files;
use super::made_values::{behind, made};
use super::open_mpi::PARAMETERS;
use super::row::{Effect, Make, Typed};
use super::translation::Translation;
use crate::flags::table as flag;
use std::path::Path;
use wireup_flags::Flag;

/// The prefix of variables that set parameters of Open MPI.
pub const PREFIX: &str = "OMPI_MCA_";

/// The parts of Open MPI and PRRTE that start processes: no library in a rank reads their other parameters.
const FRAMEWORKS: &str = " orte prte plm pls ras rds rmaps odls oob rml routed grpcomm iof errmgr filem state schizo \
                          regx rtc snapc sstore dfs propagate notifier ess ";

/// Why a parameter of the launcher without a corresponding flag has no effect.
pub const UNREAD: &str = "it concerns Open MPI's own launcher";

/// Sets a parameter of Open MPI for the ranks by this flag; a parameter of the launcher also does what its row says.
pub fn set(translation: &mut Translation, flag: &'static Flag, typed: &Typed) -> Result<(), String> {
    let (name, value) = pair(typed)?;
    translation.give(flag, typed, behind(&format!("{PREFIX}{name}="), value.as_ref()))?;
    match is_of_launcher(&name) {
        true => launcher(translation, typed),
        false => Ok(()),
    }
}

/// Carries out a parameter of the launcher, or says that it has no effect.
pub fn launcher(translation: &mut Translation, typed: &Typed) -> Result<(), String> {
    let (name, value) = pair(typed)?;
    let Some((flag, make)) = gives(&name) else {
        translation.note(typed, UNREAD);
        return Ok(());
    };
    match made(make, translation.vendor, &Typed::new(&typed.option, [value]))? {
        Some(word) => translation.give(flag, typed, word),
        None => Ok(()),
    }
}

/// The flag that a parameter amounts to.
pub fn gives(name: &str) -> Option<(&'static Flag, Make)> {
    match PARAMETERS.iter().find(|row| row.names.contains(&name))?.effect {
        Effect::Gives(flag, make) => Some((flag, make)),
        _ => None,
    }
}

/// Whether only a launcher reads a parameter.
pub fn is_of_launcher(name: &str) -> bool {
    let framework = name.split('_').next().unwrap_or_default();
    FRAMEWORKS.contains(&format!(" {framework} ")) || PARAMETERS.iter().any(|row| row.names.contains(&name))
}

fn pair(typed: &Typed) -> Result<(String, String), String> {
    let joined = typed.pair();
    let text = joined.to_string_lossy();
    let (name, value) = text.split_once('=').unwrap_or((&text, ""));
    match name.trim().is_empty() {
        true => Err(typed.value().refused("the name of the parameter is empty").into()),
        false => Ok((name.trim().to_owned(), value.trim().to_owned())),
    }
}

/// Reads a file of parameters, as `--tune` and `-am` take it.
pub fn read_file(translation: &mut Translation, file: &str) -> Result<(), String> {
    for (line, words) in files::lines(Path::new(file))? {
        let at = |problem: String| format!("{file}, line {line}: {problem}");
        let words: Vec<String> =
            words.map_err(at)?.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
        read_line(translation, &words).map_err(at)?;
    }
    Ok(())
}

fn read_line(translation: &mut Translation, words: &[String]) -> Result<(), String> {
    let mut rest = words;
    while let [first, others @ ..] = rest {
        rest = match (first.trim_start_matches('-'), others) {
            _ if !first.starts_with('-') => {
                let line = words.join(" ");
                if !line.contains('=') {
                    let expected = "write NAME = VALUE, -mca NAME VALUE or -x NAME=VALUE";
                    return Err(format!("{expected}, not {first}"));
                }
                set(translation, &flag::ENV, &Typed::new("-mca", [line]))?;
                &[]
            }
            ("mca" | "gmca", [name, value, rest @ ..]) => {
                set(translation, &flag::ENV, &Typed::new("-mca", [name, value]))?;
                rest
            }
            ("x", [word, rest @ ..]) => {
                translation.give(&flag::ENV, &Typed::new("-x", [word]), word.into())?;
                rest
            }
            _ => return Err(format!("{first}: write -mca NAME VALUE or -x NAME=VALUE")),
        };
    }
    Ok(())
}
