//! Writes host names as short text, `n[2-5,7],gpu[01-04]-ib`, which `--hosts` accepts again.
//!
//! One pass: a name joins the previous one if they differ in only one number. The order is kept.

use super::pattern;

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
        let Some((digits, number)) = middle.and_then(|text| Some((text, pattern::number(text)?))) else { return false };
        if self.runs.is_empty() {
            let Some(first) = pattern::number(&self.first[start..end]) else { return false };
            self.number = Some((start, end));
            self.runs.push((&self.first[start..end], first, first));
        }
        match self.runs.last_mut() {
            Some((first, _, last)) if *last + 1 == number && written(number, first.len()) == digits => *last = number,
            _ => self.runs.push((digits, number, number)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::expand;
    use proptest::prelude::*;

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
}
