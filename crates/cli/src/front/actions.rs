//! Carries out what options do, except for those that read further options.

use super::made_values::{behind, made};
use super::row::{Action, Listed, Typed};
use super::translation::{Shows, Translation};
use super::variables;
use crate::flags::table as flag;
use crate::out;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use wireup_os::output_file::{self, Existing};

/// # Errors
/// The option does not accept the value, or the value contradicts another option.
pub fn act(translation: &mut Translation, action: Action, typed: &Typed) -> Result<(), String> {
    match action {
        Action::Gives(flag, make) => {
            made(make, translation.vendor, typed)?.map_or(Ok(()), |word| translation.give(flag, typed, word))
        }
        Action::Joins { first } => join(translation, typed, first),
        Action::Parameter(flag) => variables::set_parameter(translation, flag, typed),
        Action::LauncherParameter => variables::set_launcher_parameter(translation, typed),
        Action::ParameterFiles => {
            typed.value().text()?.split(',').try_for_each(|file| variables::read_parameters(translation, file))
        }
        Action::List(words, advice) => list(translation, typed, words, advice),
        Action::OutputFolder => output_folder(translation, typed),
        Action::RemoteShell(part) => translation.shell.set(part, typed),
        Action::ProgramFile => {
            translation.program_file = Some(typed.clone());
            Ok(())
        }
        Action::ProgramPath => {
            translation.path = Some(typed.pair());
            Ok(())
        }
        Action::Version => {
            translation.shows = Some(Shows::Version);
            Ok(())
        }
        Action::Quiet => {
            translation.quiet = true;
            Ok(())
        }
        Action::ReportPid => report_pid(&typed.value().text()?),
    }
}

/// Joins a value with this process's value of a variable (`first`: puts it before that value), and sets the result for
/// the ranks of one program.
fn join(translation: &mut Translation, typed: &Typed, first: bool) -> Result<(), String> {
    let word = typed.value().text()?;
    let (name, separator) =
        word.split_once('[').and_then(|(name, rest)| Some((name, rest.strip_suffix(']')?))).ok_or_else(|| {
            typed.value().refused("write NAME[c], with the character that separates the values, as PATH[:]")
        })?;
    let added = typed.words.get(1).cloned().unwrap_or_default();
    let value = match std::env::var_os(name).filter(|value| !value.is_empty()) {
        None => added,
        Some(old) => {
            let (mut value, last) = if first { (added, old) } else { (old, added) };
            value.push(separator);
            value.push(last);
            value
        }
    };
    translation.give(&flag::ENV, typed, behind(&format!("{name}="), &value))
}

fn list(
    translation: &mut Translation,
    typed: &Typed,
    meanings: &[(&[&str], Listed)],
    advice: &'static str,
) -> Result<(), String> {
    let text = typed.value().text()?;
    let parts = || text.split([',', ':']).filter(|part| !part.is_empty());
    let copies = !parts().any(|word| word.eq_ignore_ascii_case("nocopy"));
    for part in parts() {
        let (word, value) = part.split_once('=').unwrap_or((part, ""));
        let word = word.to_ascii_lowercase();
        match meanings.iter().find(|(words, _)| words.contains(&&*word)).map(|(_, meaning)| meaning) {
            Some(Listed::Flag(flag)) => translation.give(flag, typed, OsString::new())?,
            Some(Listed::OutputFolder) => files_in(translation, typed, value, copies)?,
            Some(Listed::OutputFiles) => {
                let name = escaped(value);
                give_files(translation, typed, [format!("{name}.%r.out"), format!("{name}.%r.err")], copies)?;
            }
            Some(Listed::Accepted) => {}
            Some(Listed::Nothing(why)) => translation.note(typed, why),
            None => return Err(typed.value().part(part).refused(advice).into()),
        }
    }
    Ok(())
}

fn output_folder(translation: &mut Translation, typed: &Typed) -> Result<(), String> {
    let text = typed.value().text()?;
    let mut words = text.split(':');
    let folder = words.next().unwrap_or_default();
    let mut copies = true;
    for word in words {
        match word.to_ascii_lowercase().as_str() {
            "nocopy" => copies = false,
            "copy" => copies = true,
            _ => return Err(typed.value().part(word).refused("write copy or nocopy after the colon").into()),
        }
    }
    files_in(translation, typed, folder, copies)
}

fn files_in(translation: &mut Translation, typed: &Typed, folder: &str, copies: bool) -> Result<(), String> {
    let file = |stream: &str| format!("{}/1/rank.%0r/{stream}", escaped(folder));
    give_files(translation, typed, [file("stdout"), file("stderr")], copies)
}

/// Files for standard output and standard error; `copies`: the output is shown, too.
fn give_files(
    translation: &mut Translation,
    typed: &Typed,
    [output, error]: [String; 2],
    copies: bool,
) -> Result<(), String> {
    translation.give(&flag::OUTPUT_FILES, typed, output.into())?;
    translation.give(&flag::ERROR_FILES, typed, error.into())?;
    if copies { translation.give(&flag::TEE, typed, OsString::new()) } else { Ok(()) }
}

/// The path with each `%` doubled, so that the path is not taken for a pattern.
fn escaped(path: &str) -> String {
    path.replace('%', "%%")
}

fn report_pid(place: &str) -> Result<(), String> {
    let pid = format!("{}\n", std::process::id());
    match place {
        "-" => out::print(&pid),
        "+" => out::print_err(&pid),
        path => {
            let file = output_file::open(Path::new(path), Existing::Empty, 0o666);
            let written = file.and_then(|mut file| file.write_all(pid.as_bytes()));
            written.map_err(|error| format!("{path}: cannot be written: {error}; name another file"))?;
        }
    }
    Ok(())
}
