//! Records of past runs: each line has a kind, a range of numbers (such as seeds), a commit, and the numbers that
//! failed. The file is committed, so that the next run continues after the last number.

use crate::layout;
use crate::step::Result;
use std::fmt;
use std::fs;
use std::path::PathBuf;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    pub kind: String,
    pub first: u64,
    pub end: u64,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind, self.first, self.end)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub range: Range,
    pub commit: String,
    pub broken: Vec<u64>,
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        let mut words = text.split_whitespace();
        let kind = words.next()?.to_owned();
        let range = Range { kind, first: words.next()?.parse().ok()?, end: words.next()?.parse().ok()? };
        let commit = words.next()?.to_owned();
        let broken = match words.next()? {
            "clean" => Vec::new(),
            "broken" => words.map(|seed| seed.parse().ok()).collect::<Option<_>>()?,
            _ => return None,
        };
        Some(Line { range, commit, broken })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.range, self.commit)?;
        if self.broken.is_empty() {
            return f.write_str(" clean");
        }
        f.write_str(" broken")?;
        self.broken.iter().try_for_each(|seed| write!(f, " {seed}"))
    }
}

/// One file of `proof/`.
pub struct Ledger {
    name: &'static str,
    head: &'static str,
    lines: Vec<Line>,
}

impl Ledger {
    /// Reads a ledger. `head`: its first lines, which explain it.
    ///
    /// # Errors
    /// The file cannot be read, or a line does not have the format of a ledger.
    pub fn read(name: &'static str, head: &'static str) -> Result<Ledger> {
        let text = match fs::read_to_string(Ledger::path(name)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.map_err(|error| format!("read {}: {error}", Ledger::path(name).display()))?,
        };
        Ledger::parse(name, head, &text)
    }

    fn path(name: &str) -> PathBuf {
        layout::root().join("proof").join(name)
    }

    fn parse(name: &'static str, head: &'static str, text: &str) -> Result<Ledger> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let line = |text: &str| Line::parse(text).ok_or_else(|| format!("proof/{name}: {text:?} is no line of it"));
        Ok(Ledger { name, head, lines: lines.map(line).collect::<Result<_>>()? })
    }

    /// # Errors
    /// The file cannot be written.
    pub fn write(&self) -> Result {
        let path = Ledger::path(self.name);
        let failed = |error: std::io::Error| format!("write {}: {error}", path.display());
        fs::create_dir_all(path.with_file_name("")).map_err(failed)?;
        fs::write(&path, self.to_string()).map_err(failed)
    }

    /// The first number of this kind that has not been run yet.
    pub fn next(&self, kind: &str) -> u64 {
        self.lines.iter().filter(|line| line.range.kind == kind).map(|line| line.range.end).max().unwrap_or(0)
    }

    /// Adds a line, merged with the line whose range it continues, if there is one.
    pub fn add(&mut self, new: Line) {
        let continues = |old: &&mut Line| {
            old.range.kind == new.range.kind && old.range.end == new.range.first && old.commit == new.commit
        };
        match self.lines.iter_mut().find(continues) {
            Some(old) => {
                old.range.end = new.range.end;
                old.broken.extend(new.broken);
            }
            None => self.lines.push(new),
        }
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.head)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: &str, first: u64, commit: &str, broken: &[u64]) -> Line {
        let range = Range { kind: kind.into(), first, end: first + 10 };
        Line { range, commit: commit.into(), broken: broken.to_vec() }
    }

    #[test]
    fn the_next_seeds_follow_those_already_run() {
        let parse = |text| Ledger::parse("seeds.txt", "# They.\n", text);
        let mut ledger = parse("").unwrap();
        for next in [line("wild", 0, "a", &[]), line("fierce", 0, "a", &[3]), line("wild", 10, "a", &[12, 15])] {
            ledger.add(next);
        }
        ledger.add(line("wild", 20, "b", &[]));
        assert_eq!((ledger.next("wild"), ledger.next("fierce"), ledger.next("calm")), (30, 10, 0));
        let text = ledger.to_string();
        assert!(text.ends_with("wild 0 20 a broken 12 15\nfierce 0 10 a broken 3\nwild 20 30 b clean\n"), "{text}");
        assert_eq!(parse(&text).map(|again| again.to_string()), Ok(text));
    }

    #[test]
    fn malformed_ledger_lines_are_named() {
        for text in ["wild 0 10 a", "wild 0 x a clean", "wild 0 10 a broken x", "wild 0 10 a fine"] {
            assert!(Ledger::parse("seeds.txt", "", text).is_err_and(|problem| problem.contains(text)), "{text}");
        }
    }
}
