//! Something about a host that a person should know.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// A run would fail there, or ranks would.
    Problem,
    /// A run starts, more slowly or differently than people expect.
    Remark,
    /// Worth knowing; the host is ok.
    Note,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub level: Level,
    /// Holds no host's name, so that hosts with one finding are told together.
    pub text: String,
    /// More exact, where one host alone has it.
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

    /// There is nothing to do about it.
    pub fn note(text: impl Into<String>) -> Finding {
        Finding { level: Level::Note, text: text.into(), single: None, cure: None }
    }
}

/// A number of bytes for people.
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

/// A limit for people.
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
    fn bytes_are_short() {
        let shown: Vec<String> = [0, 1023, 64 << 10, 15 << 20, (3 << 30) + (1 << 29)].map(bytes).to_vec();
        assert_eq!(shown, ["0 B", "1023 B", "64 KiB", "15 MiB", "3.5 GiB"]);
        assert_eq!(limit(None, plain), "no limit");
    }
}
