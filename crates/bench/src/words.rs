//! Parses words of a command line.
use std::ffi::OsString;

use lexopt::prelude::*;

/// The name of the next flag, without its dashes; `-h` is `help`.
pub fn flag(parser: &mut lexopt::Parser) -> Result<Option<String>, lexopt::Error> {
    match parser.next()? {
        None => Ok(None),
        Some(Long(name)) => Ok(Some(name.to_owned())),
        Some(Short('h')) => Ok(Some("help".to_owned())),
        Some(other) => Err(other.unexpected()),
    }
}

/// The error for an unknown flag.
pub fn unknown(name: &str) -> lexopt::Error {
    lexopt::Error::UnexpectedOption(format!("--{name}"))
}

pub fn word(parser: &mut lexopt::Parser) -> Result<String, lexopt::Error> {
    parser.value().map(OsString::into_string)?.map_err(|word| format!("{}: not a text", word.display()).into())
}

pub fn at_least_one(parser: &mut lexopt::Parser) -> Result<u32, lexopt::Error> {
    let number = parser.value()?.parse()?;
    if number == 0 { Err("0 is too small; give at least 1".into()) } else { Ok(number) }
}

/// Parses `A,B,..`; the error of `read` names what was expected.
pub fn list<T>(text: &str, read: impl Fn(&str) -> Result<T, &'static str>) -> Result<Vec<T>, lexopt::Error> {
    let read = |part: &str| read(part).map_err(|what| lexopt::Error::from(format!("no {what} {part}; see --help")));
    text.split(',').map(read).collect()
}

/// Only plain names: peers differ in how they write ranges.
pub fn host_names(text: &str) -> Result<Vec<String>, lexopt::Error> {
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._@".contains(c));
    match text.split(',').find(|name| !is_name(name)) {
        Some(name) => Err(format!("--hosts: {name:?} is not a plain host name; expected A,B,..").into()),
        None => Ok(text.split(',').map(str::to_owned).collect()),
    }
}
