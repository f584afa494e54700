//! Reads host lists in the syntax of users and batch systems: `n[2-5,7],gpu[01-04]-ib`.
//!
//! Errors in host names, each with its remedy.
//!
//! Parses one host: `n[2-5]:8`, `gpu[01-04,07]-ib`, `user@n1`, `[fd00::1]:2`.
//!
//! Brackets have two uses, told apart by their content. With a colon it is an IPv6 address, which is the whole name
//! (possibly after a user). Otherwise it is a list of numbers and ranges; a name may contain any number of such lists.
//! A number is written with as many digits as the first of its range, so leading zeros are kept.
//!
//! Writes host names as short text, `n[2-5,7],gpu[01-04]-ib`, which `--hosts` accepts again.
//!
//! One pass: a name joins the previous one if they differ in only one number. The order is kept.

use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::net::Ipv6Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use thiserror::Error;

/// The words between commas outside of brackets.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i64;
    text.split(move |letter| {
        depth += i64::from(letter == '[') - i64::from(letter == ']');
        letter == ',' && depth <= 0
    })
}

/// All names of a list.
///
/// # Errors
/// A word does not name a host, or there are too many hosts.
pub fn expand(text: &str) -> Result<Vec<String>, HostProblem> {
    let mut names = Vec::new();
    for word in words(text) {
        let pattern = Pattern::parse(word)?;
        if (names.len() as u64).saturating_add(pattern.count()) > HOSTS_MAX {
            return Err(HostProblem::TooMany);
        }
        names.extend(pattern.names());
    }
    Ok(names)
}

/// Most hosts of one job. Chosen: more than any machine has, and few enough to expand while the command line is parsed.
#[cfg(not(fuzzing))]
pub const HOSTS_MAX: u64 = 1_000_000;
#[cfg(fuzzing)]
pub const HOSTS_MAX: u64 = 1_000;

/// A word or line that is not a valid host.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum HostProblem {
    #[error("a host name is missing; remove the extra comma, or name a host")]
    NoName,
    #[error("{name}: {letter:?} is not allowed in a host name; write names as n0,n1:8,n[2-5]")]
    Letter { name: String, letter: char },
    #[error("{name}: a host name must not begin with \"-\"; is the value of the previous flag missing?")]
    Dash { name: String },
    #[error("{name}: brackets do not match; write n[2-5], or [fd00::1] for an IPv6 address")]
    Brackets { name: String },
    #[error("[{text}] is not a range of numbers; write n[2-5] or n[01-04,07]")]
    Range { text: String },
    #[error("[{text}]: the first number of the range is larger than the second; swap them")]
    RangeDown { text: String },
    #[error("{text} is not an IPv6 address; write [fd00::1] or [fd00::1]:8")]
    Ipv6 { text: String },
    #[error("{name}: more than one colon; put an IPv6 address into brackets, as [fd00::1] or [fd00::1]:8")]
    Colons { name: String },
    #[error("{text} is not a valid number of slots; write n1:8 (at most {})", u32::MAX)]
    Slots { text: String },
    #[error("more than {HOSTS_MAX} hosts; check the ranges for an extra digit")]
    TooMany,
    #[error("unknown word {word}; {cure}")]
    Word { word: String, cure: String },
    #[error("{word}: the slots were already given on this line; give them once")]
    SlotsTwice { word: String },
    #[error("max_slots={max} is less than slots={slots}; raise max_slots or lower slots")]
    MaxBelowSlots { slots: u32, max: u32 },
    #[error("not valid UTF-8; write names in UTF-8")]
    NotUtf8,
}

/// Most digits of a number in a range, so that it fits into 64 bits.
const DIGITS_MAX: usize = 18;
/// Characters not allowed in host names, because they mean something to shells, to ssh's configuration or in this
/// syntax.
const FORBIDDEN: &str = "\"'`$&|;<>(){}*?!\\/#=,~^";

/// One word that stands for one host or several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    parts: Vec<NameSegment>,
    /// The number of slots, after the last colon.
    pub slots: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum NameSegment {
    Text(String),
    Numbers(Vec<Range>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    first: u64,
    last: u64,
    digits: usize,
}

impl Pattern {
    /// Parses one word.
    pub fn parse(word: &str) -> Result<Pattern, HostProblem> {
        let (name, slots) = cut_slots(word)?;
        if name.is_empty() || name.ends_with('@') {
            return Err(HostProblem::NoName);
        }
        Ok(Pattern { parts: parts(name)?, slots })
    }

    /// The number of names that the pattern stands for.
    pub fn count(&self) -> u64 {
        self.parts.iter().fold(1, |count, part| match part {
            NameSegment::Text(_) => count,
            NameSegment::Numbers(ranges) => count.saturating_mul(
                ranges.iter().fold(0, |sum: u64, range| sum.saturating_add(range.last - range.first + 1)),
            ),
        })
    }

    /// All names that the pattern stands for; the numbers of the last bracket vary fastest. The caller must check
    /// [`Pattern::count`] first.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec![String::new()];
        for part in &self.parts {
            match part {
                NameSegment::Text(text) => names.iter_mut().for_each(|name| name.push_str(text)),
                NameSegment::Numbers(ranges) => {
                    names = names.iter().flat_map(|name| ranges.iter().flat_map(|range| range.names(name))).collect();
                }
            }
        }
        names
    }
}

/// A number in a range, which has digits only.
pub(super) fn number(digits: &str) -> Option<u64> {
    let plain = (1..=DIGITS_MAX).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

impl Range {
    fn parse(text: &str) -> Result<Range, HostProblem> {
        let refused = || HostProblem::Range { text: text.to_owned() };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |digits| number(digits).ok_or_else(refused);
        let range = Range { first: number(first)?, last: number(last)?, digits: first.len() };
        if range.last < range.first {
            return Err(HostProblem::RangeDown { text: text.to_owned() });
        }
        Ok(range)
    }

    fn names<'a>(&self, before: &'a str) -> impl Iterator<Item = String> + use<'a> {
        let digits = self.digits;
        (self.first..=self.last).map(move |number| format!("{before}{number:0digits$}"))
    }
}

/// The name, and the slots after its last colon outside brackets.
fn cut_slots(word: &str) -> Result<(&str, Option<u32>), HostProblem> {
    let (mut depth, mut colon) = (0, None);
    for (at, letter) in word.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ':' if depth == 0 && colon.is_some() => return Err(HostProblem::Colons { name: word.to_owned() }),
            ':' if depth == 0 => colon = Some(at),
            _ => {}
        }
    }
    let Some(at) = colon else { return Ok((word, None)) };
    let text = &word[at + 1..];
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse().ok().filter(|_| digits) {
        Some(slots) => Ok((&word[..at], Some(slots))),
        None => Err(HostProblem::Slots { text: word.to_owned() }),
    }
}

fn parts(name: &str) -> Result<Vec<NameSegment>, HostProblem> {
    let unmatched = || HostProblem::Brackets { name: name.to_owned() };
    let (mut parts, mut rest) = (Vec::new(), name);
    while let Some((text, behind)) = rest.split_once('[') {
        let (inner, behind) = behind.split_once(']').ok_or_else(unmatched)?;
        if inner.contains('[') || text.contains(']') {
            return Err(unmatched());
        }
        push_text(&mut parts, text, name)?;
        if inner.contains(':') {
            let alone = behind.is_empty() && parts.len() <= 1 && (text.is_empty() || text.ends_with('@'));
            parts.push(NameSegment::Text(ipv6(inner, alone)?));
        } else {
            parts.push(NameSegment::Numbers(inner.split(',').map(Range::parse).collect::<Result<_, _>>()?));
        }
        rest = behind;
    }
    if rest.contains(']') {
        return Err(unmatched());
    }
    push_text(&mut parts, rest, name)?;
    Ok(parts)
}

fn push_text(parts: &mut Vec<NameSegment>, text: &str, name: &str) -> Result<(), HostProblem> {
    let wrong = |letter: &char| letter.is_whitespace() || letter.is_control() || FORBIDDEN.contains(*letter);
    if let Some(letter) = text.chars().find(wrong) {
        return Err(HostProblem::Letter { name: name.to_owned(), letter });
    }
    // A remote shell would take a name that begins with a dash for an option.
    if parts.is_empty() && text.starts_with('-') {
        return Err(HostProblem::Dash { name: name.to_owned() });
    }
    if !text.is_empty() {
        parts.push(NameSegment::Text(text.to_owned()));
    }
    Ok(())
}

/// The address without brackets, as remote shells accept it. It may end in a zone: `fe80::1%eth0`.
fn ipv6(text: &str, alone: bool) -> Result<String, HostProblem> {
    let (address, zone) = text.split_once('%').unwrap_or((text, "0"));
    let zone_fits =
        !zone.is_empty() && zone.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
    match address.parse::<Ipv6Addr>() {
        Ok(_) if alone && zone_fits => Ok(text.to_owned()),
        Ok(_) | Err(_) => Err(HostProblem::Ipv6 { text: format!("[{text}]") }),
    }
}

/// Number of groups that are shown before the rest is only counted.
const GROUPS_SHOWN: usize = 8;

/// Consecutive names that differ in only one number.
struct Group<'a> {
    /// The first name of the group, and the position of the number in it, known once there is a second name.
    first: &'a str,
    number: Option<(usize, usize)>,
    /// Runs of numbers: the digits of the first number, the first number, the last number.
    runs: Vec<(&'a str, u64, u64)>,
}

/// Text for all names.
pub fn collapse<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let groups: Vec<String> = groups(names).iter().map(Group::shown).collect();
    groups.join(",")
}

/// Text for the first groups of names, then the total count.
pub fn collapse_short<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut count = 0;
    let groups = groups(names.into_iter().inspect(|_| count += 1));
    let mut text: Vec<String> = groups.iter().take(GROUPS_SHOWN).map(Group::shown).collect();
    if groups.len() > GROUPS_SHOWN {
        text.push(format!("... ({count} in all)"));
    }
    text.join(",")
}

fn groups<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for name in names {
        let joined = groups.last_mut().is_some_and(|group| group.add_if_alike(name));
        if !joined {
            groups.push(Group { first: name, number: None, runs: Vec::new() });
        }
    }
    groups
}

impl<'a> Group<'a> {
    /// Adds `name` if it belongs to the group; returns whether it does.
    fn add_if_alike(&mut self, name: &'a str) -> bool {
        let Some((start, end)) = self.number.or_else(|| place_of_difference(self.first, name)) else { return false };
        let (before, behind) = (&self.first[..start], &self.first[end..]);
        let middle = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(behind));
        let Some((digits, value)) = middle.and_then(|text| Some((text, number(text)?))) else { return false };
        if self.runs.is_empty() {
            let Some(first) = number(&self.first[start..end]) else { return false };
            self.number = Some((start, end));
            self.runs.push((&self.first[start..end], first, first));
        }
        match self.runs.last_mut() {
            Some((first, _, last)) if *last + 1 == value && written(value, first.len()) == digits => *last = value,
            _ => self.runs.push((digits, value, value)),
        }
        true
    }

    fn shown(&self) -> String {
        let Some((start, end)) = self.number else { return alone(self.first) };
        let runs: Vec<String> = self.runs.iter().map(shown_run).collect();
        format!("{}[{}]{}", &self.first[..start], runs.join(","), &self.first[end..])
    }
}

fn shown_run((digits, first, last): &(&str, u64, u64)) -> String {
    if first == last { (*digits).to_owned() } else { format!("{digits}-{}", written(*last, digits.len())) }
}

/// Text for a single name. An IPv6 address gets its brackets back.
fn alone(name: &str) -> String {
    match name.rsplit_once('@') {
        _ if !name.contains(':') => name.to_owned(),
        Some((user, address)) => format!("{user}@[{address}]"),
        None => format!("[{name}]"),
    }
}

/// The position, in the first name, of the first number in which the two names differ; `None`: there is no such number,
/// or a name has a colon and so is an address.
fn place_of_difference(left: &str, right: &str) -> Option<(usize, usize)> {
    if left.contains(':') || right.contains(':') {
        return None;
    }
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let same = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    let digits_before = left[..same].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let start = same - digits_before;
    let end = start + left[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    (end > start).then_some((start, end))
}

fn written(number: u64, digits: usize) -> String {
    format!("{number:0digits$}")
}

/// Most bytes of a file that are read. Chosen: some ten thousand names.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The names in a host file that ranks pass when they spawn processes: the first word of each line, followed by a colon
/// and the number of `slots=` if the line has one. A `#` begins a comment.
///
/// # Errors
/// The file cannot be read, is not text, or has a `slots=` that is not a number.
pub fn names_in_file(path: &Path) -> io::Result<Vec<String>> {
    // Without `O_NONBLOCK`, opening a named pipe would wait for a writer.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    let mut names = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(name) = words.next() else { continue };
        match words.find_map(|word| word.strip_prefix("slots=")) {
            None => names.push(name.to_owned()),
            Some(slots) if slots.parse::<u32>().is_ok() => names.push(format!("{name}:{slots}")),
            Some(slots) => return Err(io::Error::other(format!("line {number}: slots={slots} is not a number"))),
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::{expand, *};
    use proptest::prelude::*;

    #[test]
    fn too_long_host_lists_are_refused_before_expansion() {
        assert_eq!(
            expand("n[1-3,07-09],gpu5"),
            Ok(["n1", "n2", "n3", "n07", "n08", "n09", "gpu5"].map(Into::into).to_vec())
        );
        assert_eq!(expand("n[1-999999],m[1-2]"), Err(HostProblem::TooMany));
        assert_eq!(expand("n[1-99999999][1-99999999]"), Err(HostProblem::TooMany));
    }

    fn names(word: &str) -> Vec<String> {
        let pattern = Pattern::parse(word).expect(word);
        let names = pattern.names();
        assert_eq!(pattern.count(), names.len() as u64);
        names
    }

    fn refused(word: &str) -> String {
        Pattern::parse(word).expect_err(word).to_string()
    }

    #[test]
    fn ranges_keep_leading_zeros_and_brackets_multiply() {
        assert_eq!(names("n0"), ["n0"]);
        assert_eq!(names("n[2-5]"), ["n2", "n3", "n4", "n5"]);
        assert_eq!(names("n[8-11]"), ["n8", "n9", "n10", "n11"]);
        assert_eq!(names("gpu[01-03,07]-ib"), ["gpu01-ib", "gpu02-ib", "gpu03-ib", "gpu07-ib"]);
        assert_eq!(names("r[1-2]n[1-2]"), ["r1n1", "r1n2", "r2n1", "r2n2"]);
        assert_eq!(names("[1-2]"), ["1", "2"]);
        assert_eq!(names("user@n[1-2].site"), ["user@n1.site", "user@n2.site"]);
    }

    #[test]
    fn slots_follow_a_colon() {
        let slots = |word: &str| Pattern::parse(word).expect(word).slots;
        assert_eq!(slots("n1:8"), Some(8));
        assert_eq!(slots("n[1-2]:0"), Some(0));
        assert_eq!(slots("n1"), None);
        assert_eq!(slots("[fd00::1]:3"), Some(3));
        assert_eq!(slots("[fd00::1]"), None);
        assert!(refused("n1:x").starts_with("n1:x is not a valid number of slots"));
        assert!(refused("n1:").contains("is not a valid number of slots"));
        assert!(refused("n1:+4").contains("is not a valid number of slots"));
        assert!(refused("n1:4294967296").contains("is not a valid number of slots"));
    }

    #[test]
    fn brackets_of_ranges_and_of_ipv6_addresses_are_distinguished() {
        assert_eq!(names("[fd00::1]"), ["fd00::1"]);
        assert_eq!(names("root@[fe80::1%eth0]:2"), ["root@fe80::1%eth0"]);
        assert!(refused("fd00::1").contains("put an IPv6 address into brackets"));
        assert!(refused("n[fd00::1]").starts_with("[fd00::1] is not an IPv6 address"));
        assert!(refused("[fd00::1]n").starts_with("[fd00::1] is not an IPv6 address"));
        assert!(refused("[fd00::zz]").starts_with("[fd00::zz] is not an IPv6 address"));
        assert!(refused("[fd00::1%]").starts_with("[fd00::1%] is not an IPv6 address"));
    }

    #[test]
    fn malformed_host_patterns_are_refused_with_the_reason() {
        assert!(refused("").contains("a host name is missing"));
        assert!(refused(":4").contains("a host name is missing"));
        assert!(refused("root@:4").contains("a host name is missing"));
        assert!(refused("n[1-2").starts_with("n[1-2: brackets do not match"));
        assert!(refused("n1-2]").starts_with("n1-2]: brackets do not match"));
        assert!(refused("n[[1]]").contains("brackets do not match"));
        assert!(refused("n]1[").contains("brackets do not match"));
        assert!(refused("n[5-2]").starts_with("[5-2]: the first number"));
        assert!(refused("n[]").starts_with("[] is not a range of numbers"));
        assert!(refused("n[1,]").starts_with("[] is not a range of numbers"));
        assert!(refused("n[a-c]").starts_with("[a-c] is not a range of numbers"));
        assert!(refused("n[1-2-3]").contains("is not a range of numbers"));
        assert!(refused("n[1234567890123456789]").contains("is not a range of numbers"));
        assert!(refused("-oProxyCommand=x").contains("'=' is not allowed"));
        assert!(refused("-n1").starts_with("-n1: a host name must not begin with \"-\""));
        assert!(refused("n 1").contains("' ' is not allowed"));
        assert!(refused("n1;ls").contains("';' is not allowed"));
    }

    #[test]
    fn counting_hosts_does_not_expand_the_pattern() {
        let pattern = Pattern::parse("n[1-999999999999999999][1-999999999999999999]").expect("a pattern");
        assert_eq!(pattern.count(), u64::MAX);
    }

    fn collapsed(names: &str) -> String {
        collapse(names.split(' '))
    }

    #[test]
    fn consecutive_host_names_collapse_to_ranges() {
        assert_eq!(collapsed("n2 n3 n4 n5"), "n[2-5]");
        assert_eq!(collapsed("n3 n4 n5 n7"), "n[3-5,7]");
        assert_eq!(collapsed("n8 n9 n10"), "n[8-10]");
        assert_eq!(collapsed("n08 n09 n10"), "n[08-10]");
        assert_eq!(collapsed("n0 n1-ib0 n2-ib0 gpu"), "n0,n[1-2]-ib0,gpu");
        assert_eq!(collapsed("r1n1 r1n2 r2n1 r2n2"), "r1n[1-2],r2n[1-2]");
        assert_eq!(collapsed("10.0.0.1 10.0.0.2"), "10.0.0.[1-2]");
        assert_eq!(collapsed("a"), "a");
        assert_eq!(collapsed("fd00::1 root@fd00::2"), "[fd00::1],root@[fd00::2]");
        assert_eq!(collapse([]), "");
    }

    #[test]
    fn long_host_lists_are_cut_short() {
        let names: Vec<String> = (0..12).map(|index| format!("host{}", "x".repeat(index))).collect();
        let text = collapse_short(names.iter().map(String::as_str));
        assert!(text.ends_with("... (12 in all)") && text.split(',').count() == 9, "{text}");
    }

    proptest! {
        #[test]
        fn collapsed_names_expand_to_the_same_names(
            names in proptest::collection::vec("[a-c]{0,2}[0-2]{0,3}[a-b-]{0,1}[0-1]{0,2}x", 1..30),
        ) {
            prop_assume!(names.iter().all(|name| !name.starts_with('-')));
            let text = collapse(names.iter().map(String::as_str));
            let expanded = expand(&text).expect("own text is valid");
            prop_assert_eq!(expanded, names, "{}", text);
        }
    }

    #[test]
    fn each_line_names_a_host() {
        let path = std::env::temp_dir().join(format!("wireup-host-file-{}", std::process::id()));
        std::fs::write(&path, "n0 slots=4\n# n1\n\n  n2:3 # the last one\n").unwrap();
        let found = names_in_file(&path);
        std::fs::write(&path, "n0\nn1 slots=x\n").unwrap();
        let refused = names_in_file(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found.unwrap(), ["n0:4", "n2:3"]);
        assert_eq!(refused.unwrap_err().to_string(), "line 2: slots=x is not a number");
        assert!(names_in_file(&path).is_err());
    }
}
