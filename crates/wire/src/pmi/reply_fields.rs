//! One reply of a server, before its command is known.

use super::Dialect;
use super::pairs::Pairs;

/// One reply: its name, and its fields by name.
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
