//! Rust's words, as far as rules need them: without comments and texts, and without what only tests see.

use std::iter::Peekable;
use std::str::CharIndices;

/// A word: an identifier, a lifetime with its quote, `::`, or one other character. A text or number is an empty word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token<'s> {
    pub text: &'s str,
    pub line: usize,
}

/// The words of a source.
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { source, chars: source.char_indices().peekable(), line: 1 };
    let mut all = Vec::new();
    while let Some(token) = lexer.next_token() {
        all.push(token);
    }
    all
}

/// Without items under `#[cfg(test)]` and without other attributes.
pub fn without_tests<'s>(all: &[Token<'s>]) -> Vec<Token<'s>> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < all.len() {
        if all[at].text != "#" {
            kept.push(all[at]);
            at += 1;
            continue;
        }
        let (end, of_tests) = attribute(all, at);
        at = if of_tests { item_end(all, end) } else { end };
    }
    kept
}

/// Where an attribute ends, and whether it is `cfg(test)`.
fn attribute(all: &[Token<'_>], hash: usize) -> (usize, bool) {
    let open = hash + 1 + usize::from(text(all, hash + 1) == "!");
    let end = group_end(all, open);
    let words: Vec<&str> = all[open..end].iter().map(|token| token.text).collect();
    (end, words == ["[", "cfg", "(", "test", ")", "]"])
}

/// The end of the item that begins at `at`, further attributes first: its `;`, or its closing brace.
fn item_end(all: &[Token<'_>], mut at: usize) -> usize {
    while at < all.len() {
        match text(all, at) {
            ";" => return at + 1,
            "{" => return group_end(all, at),
            "(" | "[" => at = group_end(all, at),
            _ => at += 1,
        }
    }
    at
}

/// Behind the bracket that closes the one at `open`.
pub fn group_end(all: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in all.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    all.len()
}

/// The word there, or none.
pub fn text<'s>(all: &[Token<'s>], at: usize) -> &'s str {
    all.get(at).map_or("", |token| token.text)
}

pub fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

struct Lexer<'s> {
    source: &'s str,
    chars: Peekable<CharIndices<'s>>,
    line: usize,
}

impl<'s> Lexer<'s> {
    fn next_token(&mut self) -> Option<Token<'s>> {
        loop {
            let (at, first) = self.bump()?;
            let line = self.line;
            let text = match first {
                '/' if self.peek() == Some('/') => {
                    while self.peek().is_some_and(|next| next != '\n') {
                        self.bump();
                    }
                    continue;
                }
                '/' if self.peek() == Some('*') => {
                    self.skip_comment();
                    continue;
                }
                '"' => self.skip_to_quote(0, true),
                '\'' => self.quoted(at),
                ':' if self.peek() == Some(':') => {
                    self.bump();
                    "::"
                }
                _ if first.is_whitespace() => continue,
                _ if first.is_numeric() => self.number(),
                _ if is_name(first.encode_utf8(&mut [0; 4])) => self.word(at),
                _ => &self.source[at..at + first.len_utf8()],
            };
            return Some(Token { text, line });
        }
    }

    fn bump(&mut self) -> Option<(usize, char)> {
        let next = self.chars.next();
        self.line += usize::from(next.is_some_and(|(_, next)| next == '\n'));
        next
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.bump();
        }
    }

    fn peek(&mut self) -> Option<char> {
        self.chars.peek().map(|&(_, next)| next)
    }

    /// Where the next character is.
    fn position(&mut self) -> usize {
        self.chars.peek().map_or(self.source.len(), |&(at, _)| at)
    }

    fn skip_comment(&mut self) {
        let (mut depth, mut last) = (0usize, '/');
        while let Some((_, next)) = self.bump() {
            match (last, next) {
                ('/', '*') => (depth, last) = (depth + 1, ' '),
                ('*', '/') => (depth, last) = (depth - 1, ' '),
                _ => last = next,
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Behind the quote, with so many hashes, that closes an open text.
    fn skip_to_quote(&mut self, hashes: usize, escapes: bool) -> &'s str {
        while let Some((at, next)) = self.bump() {
            if next == '\\' && escapes {
                self.bump();
            } else if next == '"' && self.source[at + 1..].starts_with(&"#".repeat(hashes)) {
                self.skip(hashes);
                break;
            }
        }
        ""
    }

    /// A character or a lifetime.
    fn quoted(&mut self, at: usize) -> &'s str {
        let mut ahead = self.source[at + 1..].chars();
        let (first, second) = (ahead.next(), ahead.next());
        if first == Some('\\') || second == Some('\'') {
            while let Some((_, next)) = self.bump() {
                if next == '\\' {
                    self.bump();
                } else if next == '\'' {
                    break;
                }
            }
            return "";
        }
        self.word(at)
    }

    fn number(&mut self) -> &'s str {
        while self.peek().is_some_and(|next| next.is_alphanumeric() || next == '_') {
            self.bump();
        }
        ""
    }

    fn word(&mut self, at: usize) -> &'s str {
        while self.peek().is_some_and(|next| next.is_alphanumeric() || next == '_') {
            self.bump();
        }
        let end = self.position();
        let word = &self.source[at..end];
        self.text_with_prefix(word).unwrap_or(word)
    }

    /// `b".."`, `r#".."#`, `b'.'` and their like.
    fn text_with_prefix(&mut self, word: &str) -> Option<&'s str> {
        if !matches!(word, "b" | "c" | "r" | "br" | "cr") {
            return None;
        }
        let rest = &self.source[self.position()..];
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        let raw = word.ends_with('r');
        if rest[hashes..].starts_with('"') && (raw || hashes == 0) {
            self.skip(hashes + 1);
            return Some(self.skip_to_quote(hashes, !raw));
        }
        if word == "b" && rest.starts_with('\'') {
            let (at, _) = self.bump()?;
            return Some(self.quoted(at));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> String {
        tokens(source).iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_texts_hold_no_words() {
        assert_eq!(words("a // impl Agent {\nb /* x /* y */ z */ c"), "a b c");
        assert_eq!(
            words(r##"f("impl \" Agent", r#"a " b"#, b"x\"", br"\", c"y", '"', b'\'', '\u{7f}')"##),
            "f (  ,  ,  ,  ,  ,  ,  ,  )"
        );
        assert_eq!(
            words("&'a mut Agent<'_> crate::x 0..9 1.0f32 r#type"),
            "& 'a mut Agent < '_ > crate :: x  . .   .  r # type"
        );
    }

    #[test]
    fn lines_are_counted() {
        let source = "a\n\"two\nlines\" b\n/*\n*/ c";
        let lines: Vec<usize> = tokens(source).iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 3, 5]);
    }

    #[test]
    fn what_tests_see_is_left_out() {
        let source = "#![forbid(unsafe_code)] #[cfg(test)] mod tests; #[cfg(test)] #[allow(x)] impl Agent { fn f() {} } \
                      #[cfg(test)] fn g() -> [u8; 2] { [1; 2] } #[derive(Debug)] struct Kept;";
        let all = tokens(source);
        let kept: Vec<&str> = without_tests(&all).iter().map(|token| token.text).collect();
        assert_eq!(kept.join(" "), "struct Kept ;");
    }
}
