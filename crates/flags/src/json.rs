//! `--json`, the same flag in every command that has it: JSON on standard output, or, with `=FILE`, in a file.

use crate::command::{Flag, Takes};
use crate::error::Error;
use crate::value::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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
