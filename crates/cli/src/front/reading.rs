//! Reads a command line of `mpiexec` into a [`Translation`], and carries out what its options do.
//!
//! Options end at the first word without a dash, the program; a lone `:` begins the next program. Each option is looked
//! up in the tables of [`Vendor::tables`](super::vendor::Vendor::tables), then among the flags of `wireup run`.

use super::files;
use super::made_values::{behind, made};
use super::row::{Effect, Listed, Row, Takes, Typed};
use super::translation::{OF_PROGRAM, Shows, Translation};
use super::variables;
use crate::flags::parsed::Parsed;
use crate::flags::table as flag;
use crate::out;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use wireup_flags::Flag;
use wireup_os::output_file::{self, Existing};

/// Flags of one program that may occur several times, each with a value that applies.
const ADDED_TO_PROGRAM: &[Flag] = &[flag::ENV];
/// Deepest nesting of files of options that name further such files.
const DEPTH_MAX: u32 = 8;

impl Translation {
    /// Reads a whole command line; stops at a request for help.
    pub fn read(&mut self, words: Vec<OsString>) -> Result<(), String> {
        let mut parts = words.split(|word| word == ":").peekable();
        while let Some(words) = parts.next() {
            let files_before = self.programs.len();
            self.read_program(words)?;
            if self.shows.is_some() {
                return Ok(());
            }
            let is_whole_of_file = self.line.words.is_empty() && self.programs.len() > files_before;
            if !is_whole_of_file || parts.peek().is_some() {
                self.programs.push(std::mem::take(&mut self.line));
            } else {
                self.add_to_all(files_before);
            }
        }
        Ok(())
    }

    /// Reads the options and the program of one section.
    fn read_program(&mut self, words: &[OsString]) -> Result<(), String> {
        let mut rest = words.iter();
        while let Some(word) = rest.clone().next() {
            if word == "--" {
                rest.next();
                break;
            }
            if word.as_bytes().first() != Some(&b'-') || word == "-" {
                break;
            }
            rest.next();
            self.read_option(word, &mut rest)?;
            if self.shows.is_some() {
                return Ok(());
            }
        }
        self.line.words = rest.cloned().collect();
        Ok(())
    }

    /// Adds the options that were given together with a file of programs to the programs of that file: `first` and the
    /// following ones. An option of the program itself has precedence.
    fn add_to_all(&mut self, first: usize) {
        for given in std::mem::take(&mut self.line).given.into_iter().rev() {
            let programs = &mut self.programs[first..];
            if ADDED_TO_PROGRAM.contains(given.flag) {
                programs.iter_mut().for_each(|line| line.given.insert(0, given.clone()));
            } else if OF_PROGRAM.contains(given.flag) {
                let without = programs.iter_mut().filter(|line| !line.has(*given.flag));
                without.for_each(|line| line.given.insert(0, given.clone()));
            } else {
                programs[0].given.insert(0, given);
            }
        }
    }

    fn read_option(&mut self, word: &OsStr, rest: &mut std::slice::Iter<'_, OsString>) -> Result<(), String> {
        let (option, attached) = split(word);
        if is_help(&option) {
            self.shows = Some(Shows::Help(rest.next().map(|word| word.to_string_lossy().into_owned())));
            return Ok(());
        }
        if let Some(row) = self.vendor.find(&option) {
            let typed = words_of(row, option, attached, rest)?;
            return act(self, row.effect, &typed);
        }
        // An option with its number attached, as in `-n4`.
        if let (None, Some((letter, digits))) = (&attached, option.split_at_checked(2))
            && !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && let Some(row) = self.vendor.find(letter).filter(|row| matches!(row.takes, Takes::One(_)))
        {
            return act(self, row.effect, &Typed::new(letter, [digits]));
        }
        self.read_own(word, &option, rest)
    }

    /// Reads a flag of `wireup run` that no other launcher has.
    fn read_own(
        &mut self,
        word: &OsStr,
        option: &str,
        rest: &mut std::slice::Iter<'_, OsString>,
    ) -> Result<(), String> {
        if !flag::RUN.flags().any(|flag| flag.names.contains(&option)) {
            let advice = match self.vendor.nearest(option) {
                Some(name) => format!("did you mean -{name}?"),
                None => "see mpiexec --help for the options".to_owned(),
            };
            return Err(format!("unknown option {option}; {advice}"));
        }
        let mut words = rest.clone().cloned().peekable();
        let Ok(given) = flag::RUN.flag(word, &mut words)? else { return Ok(()) };
        let used = rest.len() - words.count();
        *rest = rest.as_slice()[used..].iter();
        let typed = Typed { option: given.value.flag.clone(), words: vec![given.value.word.clone()] };
        self.give(given.flag, &typed, given.value.word)
    }

    /// Reads a file with the options and the program of a section on each line.
    fn read_file(&mut self, typed: &Typed) -> Result<(), String> {
        let path = typed.words.first().cloned().unwrap_or_default();
        let file = Path::new(&path).display().to_string();
        if self.depth == DEPTH_MAX {
            return Err(format!("{file}: files of options that name each other; leave one of them out"));
        }
        self.depth += 1;
        let options_before = std::mem::take(&mut self.line);
        // An option given together with the file may have another value for a program in the file without
        // contradiction.
        let of_next = self.set_by.iter_mut().filter(|set| set.program == Some(self.programs.len()));
        of_next.for_each(|set| set.program = None);
        for (line, words) in files::lines(Path::new(&path))? {
            let at = |problem: String| format!("{file}, line {line}: {problem}");
            let words = words.map_err(at)?;
            let first = self.programs.len();
            self.read(words).map_err(at)?;
            if self.shows.is_some() {
                return Ok(());
            }
            // Values are read here so that messages can name the line.
            Parsed::of_lines(self.programs[first..].to_vec(), &[], "mpiexec").map_err(at)?;
        }
        self.depth -= 1;
        if self.programs.is_empty() {
            return Err(format!("{file} has no line with a program; write one on each line, as after mpiexec"));
        }
        self.line = options_before;
        Ok(())
    }
}

/// The option and the value behind `=`.
fn split(word: &OsStr) -> (String, Option<OsString>) {
    let bytes = word.as_bytes();
    let (option, value) = match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) => (&bytes[..at], Some(OsString::from_vec(bytes[at + 1..].to_vec()))),
        None => (bytes, None),
    };
    (String::from_utf8_lossy(option).into_owned(), value)
}

fn is_help(option: &str) -> bool {
    matches!(option.trim_start_matches('-'), "help" | "h") && option.len() <= 6
}

fn words_of(
    row: &Row,
    option: String,
    attached: Option<OsString>,
    rest: &mut std::slice::Iter<'_, OsString>,
) -> Result<Typed, String> {
    let mut next = |wants: &str| rest.next().cloned().ok_or_else(|| format!("{option} needs {wants}"));
    let words = match (row.takes, attached) {
        (Takes::Nothing, None) => Vec::new(),
        (Takes::Nothing, Some(value)) => {
            return Err(format!("{option} takes no value, remove \"={}\"", value.to_string_lossy()));
        }
        (Takes::One(_) | Takes::Attached(_), Some(value)) => vec![value],
        (Takes::Attached(_), None) => Vec::new(),
        (Takes::One(wants), None) => vec![next(&format!("a value: {wants}"))?],
        (Takes::Two(name, value), attached) => {
            let wants = format!("two words: {name} {value}");
            let first = match attached {
                Some(value) => value,
                None => next(&wants)?,
            };
            match first.as_bytes().contains(&b'=') {
                true => vec![first],
                false => vec![first, next(&wants)?],
            }
        }
    };
    Ok(Typed { option, words })
}

fn act(translation: &mut Translation, effect: Effect, typed: &Typed) -> Result<(), String> {
    match effect {
        Effect::Gives(flag, make) => {
            made(make, translation.vendor, typed)?.map_or(Ok(()), |word| translation.give(flag, typed, word))
        }
        Effect::Joins { first } => join(translation, typed, first),
        Effect::Parameter(flag) => variables::set_parameter(translation, flag, typed),
        Effect::LauncherParameter => variables::set_launcher_parameter(translation, typed),
        Effect::ParameterFiles => {
            typed.value().text()?.split(',').try_for_each(|file| variables::read_parameters(translation, file))
        }
        Effect::List(words, advice) => list(translation, typed, words, advice),
        Effect::OutputFolder => output_folder(translation, typed),
        Effect::RemoteShell(part) => translation.shell.set(part, typed),
        Effect::ProgramFile => translation.read_file(typed),
        Effect::ProgramPath => {
            translation.path = Some(typed.pair());
            Ok(())
        }
        Effect::Version => {
            translation.shows = Some(Shows::Version);
            Ok(())
        }
        Effect::Quiet => {
            translation.quiet = true;
            Ok(())
        }
        Effect::ReportPid => report_pid(&typed.value().text()?),
        Effect::Always(_) => Ok(()),
        Effect::Nothing(why) => {
            translation.note(typed, why);
            Ok(())
        }
        Effect::Refused(instead) => Err(format!("{} is not offered: {instead}", typed.option)),
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
