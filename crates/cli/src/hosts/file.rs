//! Mentions of hosts, in `--hosts` and in host files, which may be in the dialects of other launchers.
//!
//! A line of a file is a host or a range of hosts, then its slots: `n0`, `n0:4`, `n0 slots=4 max_slots=8` (Open MPI),
//! `n0 ppn=4`, `n0 4` (batch systems). `#` begins a comment; blanks around `=`, empty lines and Windows line ends are
//! ignored.

use crate::bounded_file;
use std::path::Path;
use wireup_flags::nearest;
use wireup_node::hosts::{HOSTS_MAX, HostProblem, Pattern, words};

/// Longest host file. Chosen: a million hosts with names of ordinary length.
const FILE_BYTES_MAX: u64 = 32 << 20;

const SLOTS: [&str; 5] = ["slots", "ppn", "cpu", "cpus", "count"];
const SLOTS_MAX: [&str; 2] = ["max_slots", "max-slots"];

/// One mention of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The name that is passed to the remote shell; it may begin with `user@`.
    pub name: String,
    pub slots: Option<u32>,
    pub slots_max: Option<u32>,
}

/// Reads a list of hosts such as `n0,n1:8,n[2-5]`.
pub fn list(text: &str) -> Result<Vec<Entry>, HostProblem> {
    let mut entries = Vec::new();
    for word in words(text) {
        let pattern = Pattern::parse(word)?;
        expand(&mut entries, &pattern, pattern.slots, None)?;
    }
    Ok(entries)
}

/// The hosts of `--hosts`, which may be repeated.
pub fn list_of_flags(flags: &[String]) -> Result<Vec<Entry>, String> {
    list(&flags.join(",")).map_err(|problem| format!("--hosts {problem}"))
}

/// Adds all hosts of a pattern.
fn expand(
    entries: &mut Vec<Entry>,
    pattern: &Pattern,
    slots: Option<u32>,
    slots_max: Option<u32>,
) -> Result<(), HostProblem> {
    if (entries.len() as u64).saturating_add(pattern.count()) > HOSTS_MAX {
        return Err(HostProblem::TooMany);
    }
    entries.extend(pattern.names().into_iter().map(|name| Entry { name, slots, slots_max }));
    Ok(())
}

pub fn read_file(path: &Path) -> Result<Vec<Entry>, String> {
    let file = path.display().to_string();
    let unreadable = |problem| format!("host file {file}: {problem}; give a file with one host per line");
    parse(&file, &bounded_file::read(path, FILE_BYTES_MAX).map_err(unreadable)?)
}

pub fn parse(file: &str, bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut entries = Vec::new();
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let read = std::str::from_utf8(line).map_err(|_| HostProblem::NotUtf8);
        let at = |problem| format!("{file}, line {}: {problem}", index + 1);
        read.and_then(|line| parse_line(&mut entries, line)).map_err(at)?;
    }
    let empty = || format!("{file} contains no host; write one per line, for example: n0 slots=8");
    if entries.is_empty() { Err(empty()) } else { Ok(entries) }
}

fn parse_line(entries: &mut Vec<Entry>, line: &str) -> Result<(), HostProblem> {
    let line = line.split('#').next().unwrap_or_default();
    let (mut slots, mut slots_max) = (None, None);
    let tokens = tokens(line);
    let Some((hosts, room)) = tokens.split_first() else { return Ok(()) };
    for word in room {
        let (place, number) = room_of(word, &mut slots, &mut slots_max)?;
        if place.replace(number).is_some() {
            return Err(HostProblem::SlotsTwice { word: word.clone() });
        }
    }
    for host in words(hosts) {
        let pattern = Pattern::parse(host)?;
        if pattern.slots.is_some() && slots.is_some() {
            return Err(HostProblem::SlotsTwice { word: host.to_owned() });
        }
        let slots = slots.or(pattern.slots);
        if let (Some(slots), Some(max)) = (slots, slots_max)
            && max < slots
        {
            return Err(HostProblem::MaxBelowSlots { slots, max });
        }
        expand(entries, &pattern, slots, slots_max)?;
    }
    Ok(())
}

/// The words of a line; blanks around `=` do not separate words.
fn tokens(line: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        match tokens.last_mut() {
            Some(last) if last.ends_with('=') || word.starts_with('=') => last.push_str(word),
            _ => tokens.push(word.to_owned()),
        }
    }
    tokens
}

/// The number of slots that a word states, with the field that it belongs to.
fn room_of<'a>(
    word: &str,
    slots: &'a mut Option<u32>,
    slots_max: &'a mut Option<u32>,
) -> Result<(&'a mut Option<u32>, u32), HostProblem> {
    let (name, value) = word.split_once('=').unwrap_or(("slots", word));
    let place = match name {
        _ if SLOTS.contains(&name) => slots,
        _ if SLOTS_MAX.contains(&name) => slots_max,
        _ => return Err(unknown(word, name)),
    };
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse().ok().filter(|_| digits) {
        Some(number) => Ok((place, number)),
        None if word.contains('=') => Err(HostProblem::Slots { text: word.to_owned() }),
        None => Err(unknown(word, word)),
    }
}

fn unknown(word: &str, name: &str) -> HostProblem {
    let cure = match name {
        "user" | "username" => "write user@host".to_owned(),
        "port" => "set Port for that host in ~/.ssh/config".to_owned(),
        _ => match nearest(name, SLOTS.into_iter().chain(SLOTS_MAX)) {
            Some(known) => format!("did you mean {known}=N?"),
            None => "a line is HOST, HOST:SLOTS or HOST slots=N max_slots=M".to_owned(),
        },
    };
    HostProblem::Word { word: word.to_owned(), cure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(String, Option<u32>, Option<u32>)> {
        let entries = parse("hosts", text.as_bytes()).expect(text);
        entries.into_iter().map(|entry| (entry.name, entry.slots, entry.slots_max)).collect()
    }

    fn refused(text: &str) -> String {
        parse("hosts", text.as_bytes()).expect_err(text).to_string()
    }

    #[test]
    fn common_host_file_dialects_are_read() {
        let text = "\u{feff}# all\r\n\r\nn0\r\nn1:4   # head\nn2 slots=4 max_slots=8\n  n3\tslots = 2\nn4 ppn=3\nn5 6\n\
                    n[6-7]:2\nn8 max-slots=9\nroot@[fd00::1]:2 \nn9";
        let expected: [(&str, Option<u32>, Option<u32>); 11] = [
            ("n0", None, None),
            ("n1", Some(4), None),
            ("n2", Some(4), Some(8)),
            ("n3", Some(2), None),
            ("n4", Some(3), None),
            ("n5", Some(6), None),
            ("n6", Some(2), None),
            ("n7", Some(2), None),
            ("n8", None, Some(9)),
            ("root@fd00::1", Some(2), None),
            ("n9", None, None),
        ];
        let expected: Vec<_> = expected.iter().map(|&(name, slots, max)| (name.to_owned(), slots, max)).collect();
        assert_eq!(parsed(text), expected);
    }

    #[test]
    fn host_file_errors_name_file_line_word_and_fix() {
        assert_eq!(refused("n0\nn1 slot=4\n"), "hosts, line 2: unknown word slot=4; did you mean slots=N?");
        assert_eq!(
            refused("n0 binding=user\n"),
            "hosts, line 1: unknown word binding=user; a line is HOST, HOST:SLOTS or HOST slots=N max_slots=M"
        );
        assert_eq!(
            refused("10.0.0.1 n1"),
            "hosts, line 1: unknown word n1; a line is HOST, HOST:SLOTS or HOST slots=N max_slots=M"
        );
        assert!(refused("n0 user=root").ends_with("write user@host"));
        assert!(refused("n0 slots=four").contains("line 1: slots=four is not a valid number of slots"));
        assert!(refused("n0:4 slots=4").contains("n0:4: the slots were already given"));
        assert!(refused("n0 slots=4 ppn=4").contains("ppn=4: the slots were already given"));
        assert!(refused("n0 slots=4 max_slots=2").contains("max_slots=2 is less than slots=4"));
        assert!(refused("# nothing\n").starts_with("hosts contains no host"));
        assert!(refused("n0\n\nn[1-").starts_with("hosts, line 3: n[1-: brackets do not match"));
        assert!(parse("h", b"n\xff").expect_err("no text").to_string().contains("line 1: not valid UTF-8"));
        assert!(read_file(Path::new("/no/such")).expect_err("no file").to_string().starts_with("host file /no/such: "));
        assert!(read_file(Path::new("/dev/zero")).expect_err("endless").to_string().contains("longer than 32 MiB"));
    }
}
