//! Walks the `key=value` pairs of one message.
//!
//! Tolerates extra separators, any order, and unknown keys. A word without `=` is a flag, returned as a pair with an
//! empty value; after `msg=` and `message=` such words belong to the text, because Hydra and many clients write texts
//! with blanks.

use super::Dialect;
use memchr::{memchr, memchr2};

/// How the pairs of a message are separated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Separator {
    /// PMI-1: blanks separate the pairs.
    Blank,
    /// PMI-2: a single `;` ends a pair; a doubled `;` is part of the value.
    Semicolon,
    /// PMI-1's spawn blocks: one pair per line.
    Line,
}

/// Iterator over `(key, value)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pairs<'a> {
    separator: Separator,
    rest: &'a [u8],
}

impl<'a> Pairs<'a> {
    pub(super) fn new(dialect: Dialect, message: &'a [u8]) -> Self {
        let separator = match dialect {
            Dialect::Pmi1 => Separator::Blank,
            Dialect::Pmi2 => Separator::Semicolon,
        };
        Pairs { separator, rest: message }
    }

    /// The pairs in a spawn block, each on a line between `mcmd=…` and `endcmd`.
    pub(super) fn of_lines(block: &'a [u8]) -> Self {
        Pairs { separator: Separator::Line, rest: block }
    }

    fn skip_separators(&mut self) {
        let byte = match self.separator {
            Separator::Blank => b' ',
            Separator::Semicolon => b';',
            Separator::Line => b'\n',
        };
        while let [first, rest @ ..] = self.rest
            && *first == byte
        {
            self.rest = rest;
        }
    }

    /// Length of the value at the start of `rest`, for the key before it.
    fn value_len(&self, key: &[u8], rest: &[u8]) -> usize {
        match self.separator {
            Separator::Blank if key == b"msg" || key == b"message" => text_len(rest),
            Separator::Blank => memchr(b' ', rest).unwrap_or(rest.len()),
            Separator::Semicolon => semicolon_len(rest),
            Separator::Line => memchr(b'\n', rest).unwrap_or(rest.len()),
        }
    }
}

/// The length up to the blank before the next `key=value`, or to the end.
fn text_len(rest: &[u8]) -> usize {
    let mut end = memchr(b' ', rest).unwrap_or(rest.len());
    while end < rest.len() {
        let word = &rest[end + 1..];
        let word_len = memchr(b' ', word).unwrap_or(word.len());
        if memchr(b'=', &word[..word_len]).is_some() {
            break;
        }
        end += 1 + word_len;
    }
    end
}

/// The length up to the first `;` that is not doubled.
fn semicolon_len(rest: &[u8]) -> usize {
    let mut end = 0;
    while let Some(found) = memchr(b';', &rest[end..]) {
        end += found;
        if rest.get(end + 1) != Some(&b';') {
            return end;
        }
        end += 2;
    }
    rest.len()
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.skip_separators();
        if self.rest.is_empty() {
            return None;
        }
        let stop = match self.separator {
            Separator::Blank => b' ',
            Separator::Semicolon => b';',
            Separator::Line => b'\n',
        };
        let Some(key_end) = memchr2(b'=', stop, self.rest) else {
            let flag = self.rest;
            self.rest = &[];
            return Some((flag, &[]));
        };
        let (key, rest) = self.rest.split_at(key_end);
        if rest[0] == stop {
            self.rest = rest;
            return Some((key, &[]));
        }
        let rest = &rest[1..];
        let (value, rest) = rest.split_at(self.value_len(key, rest));
        self.rest = rest;
        Some((key, value))
    }
}

/// One reply of a server, before its command is known: its name, and its fields by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyFields<'a> {
    dialect: Dialect,
    name: &'a [u8],
    pairs: Pairs<'a>,
}

impl<'a> ReplyFields<'a> {
    pub(super) fn new(dialect: Dialect, name: &'a [u8], pairs: Pairs<'a>) -> Self {
        ReplyFields { dialect, name, pairs }
    }

    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The name of the reply, which follows `cmd=`.
    pub fn name(&self) -> &'a [u8] {
        self.name
    }

    /// The value of the first field of that name.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        { self.pairs }.find(|(key, _)| *key == name.as_bytes()).map(|(_, value)| value)
    }

    pub(super) fn any_of(&self, names: &[&str]) -> Option<&'a [u8]> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Whether the server reports success; a reply without `rc` (old servers' `maxes`) counts as success.
    pub fn succeeded(&self) -> bool {
        self.get("rc").is_none_or(|rc| rc.trim_ascii() == b"0") && self.get("info").is_none_or(|info| info != b"fail")
    }

    /// The server's error message.
    pub fn message(&self) -> &'a str {
        let raw = self.any_of(&["msg", "errmsg", "reason"]).unwrap_or(b"no reason given");
        core::str::from_utf8(raw).unwrap_or("a reason that is no text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn all(pairs: Pairs<'_>) -> Vec<(&str, &str)> {
        let text = |bytes| core::str::from_utf8(bytes).expect("the tests use valid UTF-8");
        pairs.map(|(key, value)| (text(key), text(value))).collect()
    }

    #[test]
    fn blanks_flags_and_empty_values_are_parsed() {
        let pairs = all(Pairs::new(Dialect::Pmi1, b"  cmd=put  flag key=a=b value= "));
        assert_eq!(pairs, [("cmd", "put"), ("flag", ""), ("key", "a=b"), ("value", "")]);
    }

    #[test]
    fn text_values_keep_their_blanks() {
        let pairs = all(Pairs::new(Dialect::Pmi1, b"cmd=abort message=out of  luck exitcode=3"));
        assert_eq!(pairs, [("cmd", "abort"), ("message", "out of  luck"), ("exitcode", "3")]);
        assert_eq!(all(Pairs::new(Dialect::Pmi1, b"msg=a b ")), [("msg", "a b ")]);
    }

    #[test]
    fn doubled_semicolons_stay_in_the_value() {
        let pairs = all(Pairs::new(Dialect::Pmi2, b"cmd=kvs-put;key=k;value=a;;b = c;;;flag;x="));
        assert_eq!(pairs, [("cmd", "kvs-put"), ("key", "k"), ("value", "a;;b = c;;"), ("flag", ""), ("x", "")]);
    }

    #[test]
    fn values_on_lines_keep_all_characters() {
        assert_eq!(
            all(Pairs::of_lines(b"nprocs=2\narg1=a b=c;d\nflag\n")),
            [("nprocs", "2"), ("arg1", "a b=c;d"), ("flag", "")]
        );
    }
}
