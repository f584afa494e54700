//! Parses one host: `n[2-5]:8`, `gpu[01-04,07]-ib`, `user@n1`, `[fd00::1]:2`.
//!
//! Brackets have two uses, told apart by their content. With a colon it is an IPv6 address, which is the whole name
//! (possibly after a user). Otherwise it is a list of numbers and ranges; a name may contain any number of such lists.
//! A number is written with as many digits as the first of its range, so leading zeros are kept.

use super::problem::HostProblem;
use std::net::Ipv6Addr;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
