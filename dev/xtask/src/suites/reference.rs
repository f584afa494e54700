//! The expected verdicts of a suite's entries: `dev/suites/SUITE.txt`, one line `ENTRY | VERDICT | NOTE` for each
//! entry.
//!
//! `ENTRY on 2 nodes` is a line for that number of virtual nodes only. The verdict is that of a run under the suite's
//! own launcher, or follows from the program's source if there is no such launcher. Every verdict other than a pass has
//! a note that explains it.

use crate::layout;
use crate::step::Result;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

/// Text that begins the note of an entry that needs a feature which wireup does not offer: under wireup the entry must
/// not give the verdict of its line.
const NOT_OFFERED: &str = "not offered: ";
/// Text that begins the note of an entry that passes in some runs and in others gives this verdict, or one of several
/// (`A or B`), even under the suite's own launcher.
const VARIES: &str = "varies: ";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub name: String,
    pub verdict: String,
    pub note: String,
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        let mut fields = text.split(" | ").map(|field| field.trim().to_owned());
        let line = Line { name: fields.next()?, verdict: fields.next()?, note: fields.next().unwrap_or_default() };
        let is_explained = is_plain(&line.verdict) || !line.note.is_empty();
        (is_explained && fields.next().is_none()).then_some(line)
    }

    /// Whether the entry may reach its time limit even under the suite's own launcher.
    pub fn is_late(&self) -> bool {
        self.verdict.split(" or ").any(|one| one == "time limit")
    }

    /// Whether a verdict under wireup is the one that this line requires.
    pub fn agrees(&self, verdict: &str) -> bool {
        if self.note.starts_with(NOT_OFFERED) {
            return verdict != self.verdict;
        }
        let is_one_of = || is_plain(verdict) || self.verdict.split(" or ").any(|one| one == verdict);
        verdict == self.verdict || (self.note.starts_with(VARIES) && is_one_of())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {}", self.name, self.verdict)?;
        if self.note.is_empty() { Ok(()) } else { write!(f, " | {}", self.note) }
    }
}

#[derive(PartialEq, Eq, Debug)]
pub struct Reference {
    head: String,
    lines: BTreeMap<String, Line>,
}

impl Reference {
    /// # Errors
    /// The file cannot be read, or has a line of another format.
    pub fn read(suite: &str) -> Result<Reference> {
        let path = path(suite);
        let text = fs::read_to_string(&path).map_err(|error| format!("read {}: {error}", path.display()))?;
        Reference::parse(&text).map_err(|line| format!("{}: {line:?} is no line of it", path.display()))
    }

    fn parse(text: &str) -> Result<Reference> {
        let (head, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
        let lines = lines.into_iter().map(|line| Line::parse(line).ok_or_else(|| line.to_owned()));
        let lines: Vec<Line> = lines.collect::<Result<_>>()?;
        let head = head.iter().map(|line| format!("{line}\n")).collect();
        Ok(Reference { head, lines: lines.into_iter().map(|line| (line.name.clone(), line)).collect() })
    }

    /// The line of an entry: the one for this number of nodes (`ENTRY on 2 nodes`), otherwise the one for any number.
    pub fn line(&self, name: &str, nodes: u32) -> Option<&Line> {
        self.lines.get(&format!("{name} on {nodes} nodes")).or_else(|| self.lines.get(name))
    }

    /// Adds a line with the verdict of an entry that has none yet; if the verdict is not a pass, its note asks for an
    /// explanation.
    pub fn add(&mut self, name: &str, verdict: &str) {
        let note = if is_plain(verdict) { "" } else { "NOT EXPLAINED YET" };
        let line = Line { name: name.to_owned(), verdict: verdict.to_owned(), note: note.to_owned() };
        self.lines.insert(line.name.clone(), line);
    }

    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, suite: &str) -> Result {
        let path = path(suite);
        fs::write(&path, self.to_string()).map_err(|error| format!("write {}: {error}", path.display()))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.head)?;
        self.lines.values().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Whether a verdict needs no explanation.
fn is_plain(verdict: &str) -> bool {
    verdict == "pass" || verdict.starts_with("OK")
}

fn path(suite: &str) -> PathBuf {
    layout::root().join("dev/suites").join(suite).with_extension("txt")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::ALL;

    #[test]
    fn verdicts_agree_as_the_note_says() {
        let line = |verdict: &str, note: &str| Line { name: "a 2".into(), verdict: verdict.into(), note: note.into() };
        let agree = |line: Line| ["pass", "fail", "killed"].map(|verdict| line.agrees(verdict));
        assert_eq!(agree(line("pass", "")), [true, false, false]);
        assert_eq!(agree(line("pass", "not offered: it")), [false, true, true]);
        assert_eq!(agree(line("fail", "varies: it")), [true, true, false]);
        assert_eq!(agree(line("late or killed", "varies: it")), [true, false, true]);
    }

    #[test]
    fn what_does_not_pass_needs_a_note() {
        let parse = Line::parse;
        assert!(parse("a 2 | fail").is_none() && parse("a 2").is_none() && parse("a 2 | fail | why | more").is_none());
        assert!(parse("a 2 | fail | it needs a device").is_some() && parse("a 2 | pass").is_some());
    }

    #[test]
    fn new_verdicts_ask_for_an_explanation() {
        let mut reference = Reference::parse("# They.\na 2 | fail | why\n").unwrap();
        reference.add("b 2", "pass");
        reference.add("c 2", "fail");
        assert_eq!(reference.to_string(), "# They.\na 2 | fail | why\nb 2 | pass\nc 2 | fail | NOT EXPLAINED YET\n");
    }

    #[test]
    fn an_entry_may_have_a_line_for_a_number_of_nodes() {
        let reference = Reference::parse("a 2 | pass\na 2 on 2 nodes | fail | it counts on one node\n").unwrap();
        let verdict = |nodes| reference.line("a 2", nodes).map(|line| line.verdict.as_str());
        assert_eq!((verdict(1), verdict(2), reference.line("b 2", 1)), (Some("pass"), Some("fail"), None));
    }

    #[test]
    fn the_committed_files_explain_every_verdict() {
        for suite in &ALL {
            let reference = Reference::read(suite.name).unwrap();
            let open = reference.lines.values().find(|line| line.note.contains("NOT EXPLAINED"));
            assert_eq!((open, reference.lines.is_empty()), (None, false), "{}", suite.name);
        }
    }
}
