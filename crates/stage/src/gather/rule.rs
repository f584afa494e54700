//! `PATTERN=>FOLDER`: the files that are gathered from a node, and the folder that receives them.
//!
//! `{rank}` and `{node}` stand for the number of a rank and the name of its node, in both halves. A gathered file keeps
//! its names from the first part of the pattern on that is more than a plain name: `/tmp/job/*/log=>out` makes
//! `out/a/log`. A pattern without such a part keeps the last name.
//!
//! A part of a pattern is matched with a name as in a shell, on bytes, since names need not be UTF-8. The C library
//! (`fnmatch`) decides: `*` any bytes, `?` one byte, `[a-z]` and `[!a-z]` one byte of a list, `\` the next byte as it
//! is. A leading dot is matched by a dot only.

use serde::{Deserialize, Serialize};
use std::ffi::CString;

const ARROW: &[u8] = b"=>";
const RANK: &[u8] = b"{rank}";
const NODE: &[u8] = b"{node}";
/// Linux's limit for the length of a path (`PATH_MAX`, bytes).
pub const PATH_LEN_MAX: usize = 4096;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rule {
    pub pattern: Vec<u8>,
    pub folder: Vec<u8>,
}

const NO_NAME: &str = "the pattern names a folder itself; end it with the names of files or folders, such as /*";

impl Rule {
    pub fn parse(text: &[u8]) -> Result<Rule, &'static str> {
        let at = text.windows(ARROW.len()).rposition(|two| two == ARROW).ok_or("write 'PATTERN=>FOLDER', in quotes")?;
        let (pattern, folder) = (&text[..at], &text[at + ARROW.len()..]);
        if pattern.is_empty() || folder.is_empty() {
            return Err("a pattern before => and a folder after it are needed");
        }
        if text.len() > PATH_LEN_MAX {
            return Err("it is longer than a path can be");
        }
        let parts = parts(pattern);
        if parts.iter().any(|part| ends_escape(part)) {
            let problem = "a name in the pattern ends with \\, which takes the next letter as it is; write \\\\ for \
                           the letter itself";
            return Err(problem);
        }
        let kept = kept_from(&parts);
        let leads_up = |part: &&[u8]| matches!(&plain(part)[..], b"." | b"..");
        match parts.get(kept..) {
            None | Some([]) => return Err(NO_NAME),
            Some([last]) if leads_up(last) => return Err(NO_NAME),
            Some(kept) if kept.iter().any(leads_up) => {
                return Err("a pattern cannot go up (..) behind its first * or ? or [");
            }
            Some(_) => {}
        }
        Ok(Rule { pattern: pattern.to_vec(), folder: folder.to_vec() })
    }

    /// Whether each rank has a pattern or a folder of its own.
    pub fn is_per_rank(&self) -> bool {
        [&self.pattern, &self.folder].iter().any(|half| half.windows(RANK.len()).any(|part| part == RANK))
    }

    /// The pattern of a rank.
    pub fn pattern_of(&self, rank: u32, node: &str) -> Vec<u8> {
        filled(&self.pattern, rank, &escaped(node.as_bytes()))
    }

    /// The target folder for the files of a rank.
    pub fn folder_of(&self, rank: u32, node: &str) -> Vec<u8> {
        filled(&self.folder, rank, node.as_bytes())
    }
}

/// The parts of a path, without empty ones and single dots.
pub fn parts(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect()
}

/// The index of the first part of a pattern from which on the names are kept below the target folder.
pub fn kept_from(parts: &[&[u8]]) -> usize {
    parts.iter().position(|part| is_pattern(part)).unwrap_or(parts.len().saturating_sub(1))
}

fn filled(text: &[u8], rank: u32, node: &[u8]) -> Vec<u8> {
    let rank = rank.to_string();
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(RANK) {
            out.extend_from_slice(rank.as_bytes());
            rest = after;
        } else if let Some(after) = rest.strip_prefix(NODE) {
            out.extend_from_slice(node);
            rest = after;
        } else {
            out.push(*first);
            rest = after;
        }
    }
    out
}

/// Whether a part of a path is more than a plain name.
pub fn is_pattern(part: &[u8]) -> bool {
    let mut bytes = part.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'*' | b'?' | b'[' => return true,
            _ => {}
        }
    }
    false
}

/// Whether a part ends with a `\` that no byte follows: such a part matches nothing.
pub fn ends_escape(part: &[u8]) -> bool {
    part.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The name that a part without a pattern stands for.
pub fn plain(part: &[u8]) -> Vec<u8> {
    let (mut out, mut bytes) = (Vec::with_capacity(part.len()), part.iter());
    while let Some(byte) = bytes.next() {
        let byte = if *byte == b'\\' { bytes.next().unwrap_or(byte) } else { byte };
        out.push(*byte);
    }
    out
}

/// Writes a name so that it matches itself only.
pub fn escaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        if b"*?[]\\".contains(byte) {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out
}

/// Whether a name matches a pattern; a text with a zero byte never does.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (CString::new(pattern), CString::new(name)) {
        (Ok(pattern), Ok(name)) => wireup_os::c_library::matches(&pattern, &name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn a_rule_has_two_halves() {
        let rule = Rule::parse(b"/tmp/out.{rank}=>results/{node}").unwrap();
        assert_eq!(rule.pattern_of(3, "n1"), b"/tmp/out.3");
        assert_eq!(rule.folder_of(3, "n1"), b"results/n1");
        assert!(rule.is_per_rank());
        assert!(!Rule::parse(b"a/{node}=>{node}").unwrap().is_per_rank());
        // The last arrow separates the halves, and braces around other words are literal.
        let rule = Rule::parse(b"a=>b{x}=>c").unwrap();
        assert_eq!((rule.pattern_of(0, ""), rule.folder_of(0, "")), (b"a=>b{x}".to_vec(), b"c".to_vec()));
        // Special characters in the name of a node are literal.
        assert_eq!(Rule::parse(b"{node}=>x").unwrap().pattern_of(0, "a*"), b"a\\*");
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for (text, problem) in [
            ("out", "write 'PATTERN=>FOLDER', in "),
            ("=>out", "a pattern before"),
            ("a=>", "a pattern before"),
            ("/=>out", NO_NAME),
            (".=>out", NO_NAME),
            ("a/..=>out", NO_NAME),
            ("*/../a=>out", "a pattern cannot go up (..) "),
            ("/tmp/a\\=>out", "a name in the pattern ends with"),
            ("/tmp/*\\/b=>out", "a name in the pattern ends with"),
            ("a\\\\\\=>out", "a name in the pattern ends with"),
        ] {
            assert!(Rule::parse(text.as_bytes()).is_err_and(|said| said.starts_with(problem)), "{text}");
        }
        assert!(Rule::parse(b"../a/*=>out").is_ok());
        assert!(Rule::parse(b"a\\\\=>out").is_ok());
    }

    #[test]
    fn names_match_as_in_a_shell() {
        let yes = [(&b"out.*.dat"[..], &b"out.17.dat"[..]), (b"[!a-c]x", b"dx"), (b".*", b".hidden"), (b"\\*", b"*")];
        let no = [(&b"*"[..], &b".hidden"[..]), (b"[a-c]x", b"dx"), (b"?", b"xy"), (b"\\*", b"a"), (b"*", b"a\0b")];
        // A byte that is not valid UTF-8 is treated as any other byte.
        let bytes = [(&b"*\xff*"[..], &b"a\xffb"[..]), (b"?", b"\xff"), (b"[\xf0-\xff]", b"\xfe")];
        for (pattern, name) in yes.into_iter().chain(bytes) {
            assert!(matches(pattern, name), "{} {}", pattern.escape_ascii(), name.escape_ascii());
        }
        for (pattern, name) in no {
            assert!(!matches(pattern, name), "{} {}", pattern.escape_ascii(), name.escape_ascii());
        }
    }

    #[test]
    fn patterns_are_told_from_plain_names() {
        for part in [&b"a*"[..], b"?", b"[x]"] {
            assert!(is_pattern(part));
        }
        assert!(!is_pattern(b"a\\*b") && !is_pattern(b"plain"));
        assert_eq!(plain(b"a\\*b\\"), b"a*b\\");
    }

    proptest! {
        #[test]
        fn an_escaped_name_matches_itself_only(name in vec(1u8.., 1..12), other in vec(1u8.., 1..12)) {
            let pattern = escaped(&name);
            prop_assert!(matches(&pattern, &name) && !is_pattern(&pattern));
            prop_assert_eq!(plain(&pattern), name.clone());
            prop_assert_eq!(matches(&pattern, &other), name == other);
        }
    }
}
