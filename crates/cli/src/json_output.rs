//! `--json` of this program's commands: writes a result as JSON to standard output or to a file.

use crate::out;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use wireup_flags::{JSON, JsonTo, Line};
use wireup_os::output_file::{self, Existing};

/// The place for a result as JSON. It is opened before the work, so that a file that cannot be written is reported at
/// once.
pub enum JsonOutput {
    Stdout,
    File(File, PathBuf),
}

impl JsonOutput {
    pub fn open(to: &JsonTo) -> Result<JsonOutput, String> {
        let JsonTo::File(path) = to else { return Ok(JsonOutput::Stdout) };
        let file = output_file::open(path, Existing::Empty, 0o666).map_err(|error| out::unwritable(path, &error))?;
        Ok(JsonOutput::File(file, path.clone()))
    }

    /// Writes a result: on one line of standard output, or indented in a file.
    ///
    /// # Errors
    /// The file cannot be written. If standard output cannot be, [`out::finish`] reports that.
    pub fn write(self, result: &Value) -> Result<(), String> {
        match self {
            JsonOutput::Stdout => out::print(&format!("{result}\n")),
            JsonOutput::File(mut file, path) => {
                writeln!(file, "{result:#}").map_err(|error| out::unwritable(&path, &error))?;
            }
        }
        Ok(())
    }
}

/// Prints the result of a command: `text`, or `json` if the line has `--json`. With `--json=FILE`, `json` is written to
/// the file, and `text` is printed.
pub fn print(
    line: &Line,
    json: impl FnOnce() -> Result<Value, String>,
    text: impl FnOnce() -> String,
) -> Result<(), String> {
    let to = line.last(JSON, JsonTo::read)?;
    if let Some(to) = &to {
        // Without a result, the file of an earlier one is kept.
        let result = json()?;
        JsonOutput::open(to)?.write(&result)?;
    }
    if to != Some(JsonTo::Stdout) {
        out::print(&text());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_by_the_result() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("result.json");
        std::fs::write(&path, "of an earlier run, and longer than the new result").expect("a file");
        let output = JsonOutput::open(&JsonTo::File(path.clone())).expect("it can be opened");
        output.write(&serde_json::json!([1])).expect("it can be written");
        assert_eq!(std::fs::read_to_string(&path).expect("text"), "[\n  1\n]\n");
        let problem = JsonOutput::open(&JsonTo::File(path.join("below"))).err().expect("its parent is a file");
        assert!(problem.ends_with("choose a file that can be written"), "{problem}");
    }
}
