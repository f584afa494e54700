//! A Rust file as the rules of `cargo xtask check` read it: its items and every path in it, without code for tests.
//!
//! `syn` parses the items. Paths are read from the tokens, because `syn` does not look into macros.

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, Group, Ident, Punct, Spacing, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::iter::Peekable;
use std::slice::from_ref;

pub struct Source {
    pub file: syn::File,
    pub paths: Vec<Path>,
    pub calls: Vec<Call>,
    /// Identifiers outside `use` declarations, without the names after `mod`.
    pub words: BTreeSet<String>,
}

/// A call: a name with parentheses after it.
pub struct Call {
    pub line: usize,
    pub name: String,
    /// The text of the last argument, without blanks.
    pub last: String,
}

/// A path of two or more names.
#[derive(Clone)]
pub struct Path {
    pub line: usize,
    /// The names of the path in order; the last one may be `*`.
    pub names: Vec<String>,
    /// The new name after `as`.
    pub alias: Option<String>,
    pub in_use: bool,
    /// Whether the path is in a `use` that re-exports the name: `pub use`, `pub(crate) use`.
    pub is_handed_on: bool,
}

impl Source {
    /// # Errors
    /// The text is not valid Rust.
    pub fn parse(text: &str) -> syn::Result<Source> {
        let tokens = without_tests(text.parse()?);
        let (mut paths, mut words) = (Vec::new(), BTreeSet::new());
        read_paths(tokens.clone(), &[], Declaration::Other, &mut paths);
        read_words(tokens.clone(), &mut words);
        let mut calls = Vec::new();
        read_calls(tokens.clone(), &mut calls);
        Ok(Source { file: syn::parse2(tokens)?, paths, calls, words })
    }
}

/// Removes items under `#[cfg(test)]`, and all attributes, which include documentation.
fn without_tests(tokens: TokenStream) -> TokenStream {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(hash) if hash.as_char() == '#' => {
                let attribute = tokens.find(|token| matches!(token, TokenTree::Group(_)));
                if attribute.is_some_and(|attribute| attribute.to_string().replace(' ', "") == "[cfg(test)]") {
                    skip_item(&mut tokens);
                }
            }
            TokenTree::Group(group) => kept.push(Group::new(group.delimiter(), without_tests(group.stream())).into()),
            token => kept.push(token),
        }
    }
    kept.into_iter().collect()
}

/// Skips to the end of an item: its `;` or the end of its braces. A `use` or a constant may have both.
fn skip_item(tokens: &mut Peekable<IntoIter>) {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    };
    tokens.find(is_end);
    tokens.next_if(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';'));
}

fn read_calls(tokens: TokenStream, found: &mut Vec<Call>) {
    let mut before: Option<Ident> = None;
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            if let Some(name) = before.filter(|_| group.delimiter() == Delimiter::Parenthesis) {
                let arguments: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ',');
                let last = arguments.split(is_comma).rfind(|argument| !argument.is_empty()).unwrap_or_default();
                let last: String = last.iter().map(TokenTree::to_string).collect();
                found.push(Call { line: name.span().start().line, name: name.to_string(), last });
            }
            read_calls(group.stream(), found);
        }
        before = if let TokenTree::Ident(name) = token { Some(name) } else { None };
    }
}

fn read_words(tokens: TokenStream, found: &mut BTreeSet<String>) {
    let (mut tokens, mut in_use) = (tokens.into_iter().peekable(), false);
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) if !in_use => read_words(group.stream(), found),
            TokenTree::Ident(word) if word == "use" => in_use = true,
            TokenTree::Ident(word) if word == "mod" => drop(tokens.next_if(|name| matches!(name, TokenTree::Ident(_)))),
            TokenTree::Ident(word) if !in_use => drop(found.insert(word.to_string())),
            TokenTree::Punct(punct) => in_use &= punct.as_char() != ';',
            TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The kind of declaration that a path is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Declaration {
    Other,
    Use,
    /// `pub use`
    PublicUse,
}

/// Reads the paths in the tokens of a file or of a group; for a group in a `use`, `prefix` is the path before the
/// group.
fn read_paths(tokens: TokenStream, prefix: &[String], mut within: Declaration, found: &mut Vec<Path>) {
    let mut tokens = tokens.into_iter().peekable();
    let (mut last, mut is_pub) = (String::new(), false);
    while let Some(token) = tokens.next() {
        let word = match &token {
            TokenTree::Ident(name) => name.to_string(),
            TokenTree::Punct(star) if star.as_char() == '*' && !prefix.is_empty() => "*".into(),
            _ => String::new(),
        };
        match token {
            // The path in `pub(in crate::x)` does not import anything.
            TokenTree::Group(_) if last == "pub" => {}
            TokenTree::Group(group) => read_paths(group.stream(), &[], Declaration::Other, found),
            TokenTree::Ident(_) | TokenTree::Punct(_) if !word.is_empty() => {
                match word.as_str() {
                    "use" => within = if is_pub { Declaration::PublicUse } else { Declaration::Use },
                    word => is_pub = word == "pub",
                }
                let (line, names) = (token.span().start().line, [prefix, from_ref(&word)].concat());
                let (in_use, is_handed_on) = (within != Declaration::Other, within == Declaration::PublicUse);
                read_path(Path { line, names, alias: None, in_use, is_handed_on }, &mut tokens, found);
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => within = Declaration::Other,
            TokenTree::Punct(_) | TokenTree::Ident(_) | TokenTree::Literal(_) => {}
        }
        last = word;
    }
}

/// Reads the rest of a path after its first name.
fn read_path(mut path: Path, tokens: &mut Peekable<IntoIter>, found: &mut Vec<Path>) {
    let within = match (path.in_use, path.is_handed_on) {
        (_, true) => Declaration::PublicUse,
        (true, false) => Declaration::Use,
        (false, false) => Declaration::Other,
    };
    let is_colon = |punct: &Punct| punct.as_char() == ':' && punct.spacing() == Spacing::Joint;
    while tokens.next_if(|token| matches!(token, TokenTree::Punct(punct) if is_colon(punct))).is_some() {
        tokens.next(); // The other colon.
        match tokens.next() {
            Some(TokenTree::Ident(name)) => path.names.push(name.to_string()),
            Some(TokenTree::Punct(star)) if star.as_char() == '*' => path.names.push("*".into()),
            Some(TokenTree::Group(group)) => return read_paths(group.stream(), &path.names, within, found),
            // `::<`
            Some(TokenTree::Punct(_) | TokenTree::Literal(_)) | None => break,
        }
    }
    if path.in_use && tokens.next_if(|token| matches!(token, TokenTree::Ident(word) if word == "as")).is_some() {
        path.alias = tokens.next().map(|name| name.to_string());
    }
    if path.names.len() > 1 {
        found.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let source = Source::parse(text).expect("valid Rust");
        source.paths.into_iter().map(|path| format!("{} {}", path.line, path.names.join("::"))).collect()
    }

    #[test]
    fn paths_are_read_from_macros_but_not_comments_or_strings() {
        let text = "/// a::b\nfn f() { /* a::b */ let x = r#\"a::b\"#;\nassert!(matches!(x, c::D { .. }), \"a::b\"); }";
        assert_eq!(paths(text), ["3 c::D"]);
    }

    #[test]
    fn groups_globs_and_turbofish_are_read() {
        assert_eq!(paths("use a::{self, b::{C as D, *},\ne};"), ["1 a::self", "1 a::b::C", "1 a::b::*", "2 a::e"]);
        assert_eq!(paths("fn f(x: &'a mut T) { for y in b::c::<d::E>(x) {} }"), ["1 b::c", "1 d::E"]);
    }

    #[test]
    fn test_only_code_is_left_out() {
        let text = "#![forbid(unsafe_code)] #[cfg(test)] mod tests; #[cfg(test)] #[allow(x)] impl Agent { fn f() {} }
            #[cfg(test)] fn g() -> [u8; 2] { [1; 2] } #[cfg(test)] use a::{b, c}; #[derive(Debug)] struct Kept;
            impl Kept { #[cfg(test)] fn f() { a::b() } }";
        let source = Source::parse(text).expect("valid Rust");
        assert_eq!(source.file.items.len(), 2);
        assert!(source.paths.is_empty());
    }
}
