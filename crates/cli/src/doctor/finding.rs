//! One finding about a host: its severity, its text, how to fix it.

use serde_json::{Value, json};
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// The severity of what would make a run or its ranks fail on this host.
    Problem,
    /// The severity of what makes a run slower, or different from what users expect.
    Remark,
    /// The severity of mere information: the host is ok.
    Note,
}

impl Level {
    /// The severity as a word for a column, padded with blanks.
    pub fn word(self) -> &'static str {
        match self {
            Level::Problem => "problem",
            Level::Remark => "remark ",
            Level::Note => "note   ",
        }
    }
}

/// The word in the column of severities where nothing was found.
pub const OK: &str = "ok     ";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub level: Level,
    /// Contains no host name, so that hosts with the same finding can be reported together.
    pub text: String,
    /// A more exact text, used if only one host has the finding.
    pub single: Option<String>,
    pub cure: Option<String>,
}

impl Finding {
    pub fn problem(text: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding { level: Level::Problem, text: text.into(), single: None, cure: Some(cure.into()) }
    }

    pub fn remark(text: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding { level: Level::Remark, ..Finding::problem(text, cure) }
    }

    pub fn single(self, text: impl Into<String>) -> Finding {
        Finding { single: Some(text.into()), ..self }
    }

    /// A finding without a cure.
    pub fn note(text: impl Into<String>) -> Finding {
        Finding { level: Level::Note, text: text.into(), single: None, cure: None }
    }
}

/// A JSON object about hosts: a finding, or a subject that is in order. `level`: a word for a column.
pub fn row(hosts: &[&str], subject: &str, level: &str, text: &str, fix: Option<&str>) -> Value {
    json!({ "hosts": hosts, "subject": subject, "level": level.trim_end(), "text": text, "fix": fix })
}

/// A number of bytes, formatted for display.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.iter().find(|(shift, _)| self.0 >> shift > 0) {
            Some((shift, unit)) => {
                let value = self.0 as f64 / (1u64 << shift) as f64;
                write!(f, "{value:.*} {unit}", usize::from(value < 10.0))
            }
            None => write!(f, "{} B", self.0),
        }
    }
}

/// A limit, formatted for display.
pub fn limit(value: Option<u64>, unit: fn(u64) -> String) -> String {
    value.map_or_else(|| "no limit".to_owned(), unit)
}

pub fn plain(value: u64) -> String {
    value.to_string()
}

pub fn bytes(value: u64) -> String {
    Bytes(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_are_shown_in_short_units() {
        let shown: Vec<String> = [0, 1023, 64 << 10, 15 << 20, (3 << 30) + (1 << 29)].map(bytes).to_vec();
        assert_eq!(shown, ["0 B", "1023 B", "64 KiB", "15 MiB", "3.5 GiB"]);
        assert_eq!(limit(None, plain), "no limit");
    }
}
