//! The command line of `wireup run`, as typed.
//!
//! Flags end at the first word without a dash, the program; everything after it belongs to the program, up to a lone
//! `:`, where the flags of the next program begin.

use super::error::FlagError;
use super::table::{HOST_FILE, RUN};
pub use super::table::{Parsed, Program};
pub use super::values::{EnvList, Stage, Start, Stdin, Variable};
use std::ffi::OsString;
use wireup_flags::Line;

/// Parses the words after `wireup run`; `None`: they ask for help.
///
/// # Errors
/// The words are no command line of `wireup run`.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Option<Parsed>, FlagError> {
    let all: Vec<OsString> = args.into_iter().collect();
    let mut words = all.iter().cloned().peekable();
    let mut lines = Vec::new();
    loop {
        let Some(line) = RUN.parse_program(&mut words)? else { return Ok(None) };
        lines.push(line);
        if words.next().is_none() {
            return Parsed::of_lines(lines).map(Some).map_err(|error| error.with_words(&all));
        }
    }
}

impl Parsed {
    /// A line for each program.
    ///
    /// # Errors
    /// A value is wrong, a program is missing, or a flag stands where it cannot apply.
    pub fn of_lines(lines: Vec<Line>) -> Result<Parsed, FlagError> {
        let alone = lines.len() == 1;
        let (mut programs, mut whole) = (Vec::with_capacity(lines.len()), Line::default());
        for (index, line) in lines.into_iter().enumerate() {
            if line.words.is_empty() {
                let missing = FlagError::NoSectionProgram { section: index + 1 };
                return Err(if alone { FlagError::NoProgram { taken: String::new() } } else { missing });
            }
            if let Some(given) = line.given.iter().find(|given| given.is(HOST_FILE)).filter(|_| index > 0) {
                return Err(FlagError::HostsOfOneProgram { flag: given.value.flag.clone() });
            }
            whole.given.extend_from_slice(&line.given);
            programs.push(Program { flags: Parsed::read(&line)?, argv: line.words });
        }
        Ok(Parsed { programs, ..Parsed::read(&whole)? })
    }
}

/// The command line of a test, which is valid.
#[cfg(test)]
pub fn parsed_words<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Parsed {
    parse(words.into_iter().map(Into::into)).expect("a valid command line").expect("no request for help")
}

#[cfg(test)]
mod tests;
