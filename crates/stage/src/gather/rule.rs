//! `PATTERN=>FOLDER`: the files that are gathered from a node, and the folder that receives them.
//!
//! `{rank}` and `{node}` stand for the number of a rank and the name of its node, in both halves. A gathered file keeps
//! its names from the first part of the pattern on that is more than a plain name: `/tmp/job/*/log=>out` makes
//! `out/a/log`. A pattern without such a part keeps the last name.

use super::name::{ends_escape, escaped, is_pattern, plain};
use serde::{Deserialize, Serialize};

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
    /// # Errors
    /// `text` is not a rule.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
