//! A parsed command line, asked for the values of its flags.

use crate::command::{Flag, Takes};
use crate::error::Error;
use crate::value::Value;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Line {
    pub given: Vec<Given>,
    pub words: Vec<OsString>,
}

/// A flag with its value; the word of a flag that takes none is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    pub flag: &'static Flag,
    pub value: Value,
}

impl Given {
    pub fn is(&self, flag: Flag) -> bool {
        self.flag.name() == flag.name()
    }
}

impl Line {
    pub fn has(&self, flag: Flag) -> bool {
        self.given.iter().any(|given| given.is(flag))
    }

    /// Every value of the flag that was given, in order.
    pub fn all<T>(&self, flag: Flag, read: impl Fn(&Value) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        self.given.iter().filter(|given| given.is(flag)).map(|given| read(&given.value)).collect()
    }

    /// The last value of the flag that was given; the ones before must be valid too.
    pub fn last<T>(&self, flag: Flag, read: impl Fn(&Value) -> Result<T, Error>) -> Result<Option<T>, Error> {
        Ok(self.all(flag, read)?.pop())
    }

    /// The last value that was given, or the flag's default.
    ///
    /// # Panics
    /// The flag has no default.
    pub fn one<T>(&self, flag: Flag, read: impl Fn(&Value) -> Result<T, Error>) -> Result<T, Error> {
        if let Some(value) = self.last(flag, &read)? {
            return Ok(value);
        }
        let Some(default) = flag.default_value() else { panic!("{} has no default", flag.name()) };
        read(&default)
    }
}

/// `--json`, the same flag in every command that has it: JSON on standard output, or, with `=FILE`, in a file.
pub const JSON: Flag = Flag {
    takes: Takes::Attached("FILE"),
    ..Flag::switch(
        &["--json"],
        "Print JSON instead of text; --json=FILE writes the JSON to FILE and still prints the text.",
    )
};

/// Where a command writes its JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JsonTo {
    Stdout,
    File(PathBuf),
}

impl JsonTo {
    /// Reads a value of [`JSON`]; `-` stands for standard output.
    pub fn read(value: &Value) -> Result<JsonTo, Error> {
        match value.word.as_bytes() {
            b"" | b"-" => Ok(JsonTo::Stdout),
            _ => value.path().map(JsonTo::File),
        }
    }
}

/// Whether a word is the name of a file with JSON.
pub(crate) fn is_json_file(word: &OsStr) -> bool {
    Path::new(word).extension().is_some_and(|ending| ending == "json" || ending == "jsonl")
}
