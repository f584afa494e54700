//! Turns a command line of `mpiexec` into the lines that `wireup run` would have been given.
//!
//! Options end at the first word without a dash, the program; a lone `:` begins the next program. Each option is looked
//! up in the tables of [`Family::tables`], then among the flags of `wireup run`.

use super::error::FrontError;
use super::family::Family;
use super::files;
use super::row::{Effect, Row, Takes, Typed};
use crate::flags::parsed::Parsed;
use crate::flags::table as flag;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use wireup_flags::{Flag, Given, Line, Value};

/// Flags of which every value counts.
const REPEATED: &[Flag] = &[flag::ENV, flag::EXPORT, flag::GENV, flag::ENV_FILE, flag::HOSTS, flag::HOST_FILE];
/// Flags that belong to one program.
const OF_PROGRAM: &[Flag] = &[flag::RANKS, flag::WDIR, flag::ENV_LIST];
/// Flags that belong to one program, and of which every value counts.
const ADDED_TO_PROGRAM: &[Flag] = &[flag::ENV, flag::EXPORT];
/// Flags whose values are a word with properties (`core:overload-allowed`), which may be given apart
/// (`:overload-allowed`).
const IN_PARTS: &[Flag] = &[flag::MAP_BY, flag::BIND_TO];

/// What a command line asks for.
#[derive(Default)]
pub struct Translation {
    pub family: Family,
    /// The programs so far, in the words of `wireup run`.
    pub programs: Vec<Line>,
    /// The program that is being read.
    line: Line,
    /// What set each flag of `line.given`, and those of the programs before.
    set_by: Vec<Set>,
    /// Options that change nothing here, and why.
    pub notes: Vec<String>,
    pub quiet: bool,
    /// The remote shell, which may be put together from several options.
    pub shell: Shell,
    /// Folders in which the program is looked up.
    pub path: Option<OsString>,
    /// What to print instead of running anything.
    pub shows: Option<Shows>,
    depth: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shows {
    /// On an option, if there is one of this name.
    Help(Option<String>),
    Version,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shell {
    /// What kind of launcher was asked for (`ssh`, `slurm`), and by which option.
    pub kind: Option<(String, Typed)>,
    /// Its program.
    pub program: Option<(String, Typed)>,
    /// Arguments of the program.
    pub arguments: String,
}

struct Set {
    flag: Flag,
    /// The program whose options it stands among; `None`: those beside a file of programs.
    program: Option<usize>,
    word: OsString,
    typed: Typed,
}

/// Files of options that name further files.
const DEPTH_MAX: u32 = 8;

impl Translation {
    pub fn new(family: Family) -> Translation {
        Translation { family, ..Translation::default() }
    }

    /// Reads a whole command line; stops at a request for help.
    pub fn read(&mut self, words: Vec<OsString>) -> Result<(), FrontError> {
        let mut parts = words.split(|word| word == ":").peekable();
        while let Some(words) = parts.next() {
            let files_before = self.programs.len();
            self.read_program(words)?;
            if self.shows.is_some() {
                return Ok(());
            }
            let is_whole_of_file = self.line.words.is_empty() && self.programs.len() > files_before;
            if !is_whole_of_file || parts.peek().is_some() {
                self.end_program();
            } else {
                self.add_to_all(files_before);
            }
        }
        Ok(())
    }

    /// Reads the options and the program of one section.
    fn read_program(&mut self, words: &[OsString]) -> Result<(), FrontError> {
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

    /// Gives the options beside a file of programs to those programs: `first` and the following ones. A program's own
    /// options are preferred.
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

    fn end_program(&mut self) {
        self.programs.push(std::mem::take(&mut self.line));
    }

    fn read_option(&mut self, word: &OsStr, rest: &mut std::slice::Iter<'_, OsString>) -> Result<(), FrontError> {
        let (option, attached) = split(word);
        if is_help(&option) {
            self.shows = Some(Shows::Help(rest.next().map(|word| word.to_string_lossy().into_owned())));
            return Ok(());
        }
        if let Some(row) = self.family.find(&option) {
            let typed = take(row, option, attached, rest)?;
            return self.carry_out(row, &typed);
        }
        // `-n4`
        if let (None, Some((letter, digits))) = (&attached, option.split_at_checked(2))
            && !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && let Some(row) = self.family.find(letter).filter(|row| matches!(row.takes, Takes::One(_)))
        {
            return self.carry_out(row, &Typed { option: letter.to_owned(), words: vec![digits.into()] });
        }
        self.read_own(word, &option, rest)
    }

    /// A flag of `wireup run` that no other launcher has.
    fn read_own(
        &mut self,
        word: &OsStr,
        option: &str,
        rest: &mut std::slice::Iter<'_, OsString>,
    ) -> Result<(), FrontError> {
        if !flag::RUN.flags().any(|flag| flag.names.contains(&option)) {
            return Err(FrontError::Unknown { option: option.to_owned(), nearest: self.family.nearest(option) });
        }
        let mut words = rest.clone().cloned().peekable();
        let Some(given) = flag::RUN.flag(word, &mut words)? else { return Ok(()) };
        let used = rest.len() - words.count();
        *rest = rest.as_slice()[used..].iter();
        let typed = Typed { option: given.value.flag.clone(), words: vec![given.value.word.clone()] };
        self.give(given.flag, &typed, given.value.word)
    }

    fn carry_out(&mut self, row: &Row, typed: &Typed) -> Result<(), FrontError> {
        match row.effect {
            Effect::Same(flag) => self.give(flag, typed, typed.pair()),
            Effect::As(flag, value) => self.give(flag, typed, value.into()),
            Effect::Does(rule) => (rule.act)(self, typed),
            Effect::Always(_) => Ok(()),
            Effect::Nothing(why) => {
                self.note(typed, why);
                Ok(())
            }
            Effect::Refused(instead) => Err(FrontError::Refused { option: typed.option.clone(), instead }),
        }
    }

    /// Says that an option changes nothing here.
    pub fn note(&mut self, typed: &Typed, why: &str) {
        let note = format!("{} has no effect here: {why}", typed.shown());
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Gives a flag of `wireup run`.
    ///
    /// # Errors
    /// It was given before with another value.
    pub fn give(&mut self, flag: &'static Flag, typed: &Typed, word: OsString) -> Result<(), FrontError> {
        let program = Some(self.programs.len());
        let of_program = OF_PROGRAM.contains(flag);
        let known = self.set_by.iter_mut().find(|set| set.flag == *flag && (!of_program || set.program == program));
        let word = match known {
            Some(set) if set.word != word && !REPEATED.contains(flag) => {
                let joined = IN_PARTS.contains(flag).then(|| joined(&set.word, &word)).flatten();
                let contradiction = || FrontError::Contradiction { first: set.typed.shown(), second: typed.shown() };
                let word = joined.ok_or_else(contradiction)?;
                set.word.clone_from(&word);
                word
            }
            Some(_) => word,
            None => {
                self.set_by.push(Set { flag: *flag, program, word: word.clone(), typed: typed.clone() });
                word
            }
        };
        self.line.given.push(Given { flag, value: Value { flag: typed.option.clone(), word } });
        Ok(())
    }

    /// Whether a flag of `wireup run` was given, for any program.
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

    /// Reads a file with the options and the program of a section on each line.
    pub fn read_file(&mut self, typed: &Typed) -> Result<(), FrontError> {
        let path = typed.words.first().cloned().unwrap_or_default();
        let file = Path::new(&path).display().to_string();
        if self.depth == DEPTH_MAX {
            return Err(FrontError::Words(format!(
                "{file}: files of options that name each other; leave one of them out"
            )));
        }
        self.depth += 1;
        let options_before = std::mem::take(&mut self.line);
        // A program of the file may have a value of its own.
        let of_next = self.set_by.iter_mut().filter(|set| set.program == Some(self.programs.len()));
        of_next.for_each(|set| set.program = None);
        for (line, words) in files::lines(Path::new(&path))? {
            let at = |problem: FrontError| FrontError::Line { file: file.clone(), line, problem: Box::new(problem) };
            let words = words.map_err(at)?;
            let first = self.programs.len();
            self.read(words).map_err(at)?;
            if self.shows.is_some() {
                return Ok(());
            }
            // Values are read here so that messages can name the line.
            Parsed::of_lines(self.programs[first..].to_vec()).map_err(|error| at(error.into()))?;
        }
        self.depth -= 1;
        if self.programs.is_empty() {
            return Err(FrontError::Words(format!(
                "{file} has no line with a program; write one on each line, as behind mpiexec"
            )));
        }
        self.line = options_before;
        Ok(())
    }
}

/// A value in parts put together: only one of them has the word before the first colon, or both have the same.
fn joined(before: &OsStr, after: &OsStr) -> Option<OsString> {
    let (before, after) = (before.to_str()?, after.to_str()?);
    match (before.strip_prefix(':'), after.strip_prefix(':')) {
        (_, Some(_)) => Some(format!("{before}{after}").into()),
        (Some(_), None) => Some(format!("{after}{before}").into()),
        (None, None) => None,
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

/// The words of an option.
fn take(
    row: &Row,
    option: String,
    attached: Option<OsString>,
    rest: &mut std::slice::Iter<'_, OsString>,
) -> Result<Typed, FrontError> {
    let mut next = |wants: &str| {
        rest.next().cloned().ok_or_else(|| FrontError::MissingValue { option: option.clone(), wants: wants.to_owned() })
    };
    let words = match (row.takes, attached) {
        (Takes::Nothing, None) => Vec::new(),
        (Takes::Nothing, Some(value)) => {
            return Err(FrontError::UnexpectedValue { option, value: value.to_string_lossy().into_owned() });
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
