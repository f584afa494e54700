//! A file of JSON lines as specified in `lab/SCHEMA.md`.

use crate::problem::Problem;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

const LAB_SCHEMA: u32 = 1;

/// The file; `None`: the user does not want one.
pub struct Lines {
    file: Option<(PathBuf, File)>,
    benchmark: &'static str,
}

impl Lines {
    /// # Errors
    /// The file cannot be written.
    pub fn begin(
        file: Option<(PathBuf, File)>,
        benchmark: &'static str,
        machine: &Value,
        words: &str,
    ) -> Result<Lines, Problem> {
        let mut lines = Lines { file, benchmark };
        lines.write(json!({
            "record": "run", "schema": LAB_SCHEMA, "version": env!("CARGO_PKG_VERSION"),
            "date": humantime::format_rfc3339_seconds(SystemTime::now()).to_string(), "machine": machine,
            "words": words.split(' ').collect::<Vec<_>>(), "command": format!("wireup simulate {words} --json=FILE"),
        }))?;
        Ok(lines)
    }

    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, record: Value) -> Result<(), Problem> {
        let record = joined(record, json!({ "benchmark": self.benchmark }));
        match &mut self.file {
            Some((path, file)) => Problem::of_file(path, writeln!(file, "{record}")),
            None => Ok(()),
        }
    }
}

/// One JSON object with the fields of both objects.
pub fn joined(mut one: Value, other: Value) -> Value {
    if let (Some(all), Value::Object(fields)) = (one.as_object_mut(), other) {
        all.extend(fields);
    }
    one
}
