//! The modules of a crate, a file each, and what a path in one of them leads to.
//!
//! Only what is compiled without `cfg(test)` counts. A name that a module has by `use` is followed to where it is defined, so that
//! a file which only hands on the names of others is not taken for their origin. Modules within a file belong to the file.

use super::tokens::{Token, group_end, is_name, text, tokens, without_tests};
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// How many `use` a name is followed through.
const HOPS_MAX: usize = 16;

pub struct Module<'t> {
    pub file: String,
    pub tokens: Vec<Token<'t>>,
    /// `["agent", "standing"]`; none: the crate.
    path: Vec<String>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    /// By the name that they give; paths from the crate.
    uses: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

/// A path into the crate itself.
pub struct Mention {
    pub line: usize,
    /// From the crate; `*` may be its end.
    path: Vec<String>,
    alias: Option<String>,
    in_use: bool,
}

pub struct Modules<'t>(pub Vec<Module<'t>>);

impl<'t> Modules<'t> {
    /// Of the crate in a folder, as `crates/proto`.
    pub fn of(tree: &'t Tree, folder: &str) -> Modules<'t> {
        let mut modules = Modules(Vec::new());
        modules.add(tree, format!("{folder}/src/lib.rs"), Vec::new());
        for index in 0..modules.0.len() {
            let mentions = modules.mentions(index);
            let module = &mut modules.0[index];
            module.items = items(&module.tokens);
            for mention in mentions.into_iter().filter(|mention| mention.in_use) {
                match mention.path.split_last() {
                    Some((last, rest)) if last == "*" => module.globs.push(rest.to_vec()),
                    Some((last, _)) => {
                        module.uses.insert(mention.alias.unwrap_or(last.clone()), mention.path.clone());
                    }
                    None => {}
                }
            }
        }
        modules
    }

    fn add(&mut self, tree: &'t Tree, file: String, path: Vec<String>) -> usize {
        let tokens = without_tests(&tokens(tree.get(&file).unwrap_or("")));
        let index = self.0.len();
        let names = declared(&tokens);
        let (items, uses, globs) = Default::default();
        self.0.push(Module {
            file: file.clone(),
            tokens,
            path: path.clone(),
            children: BTreeMap::new(),
            items,
            uses,
            globs,
        });
        for name in names {
            let Some(file) = file_of(tree, &file, &name) else { continue };
            let path = path.iter().cloned().chain([name.clone()]).collect();
            let child = self.add(tree, file, path);
            self.0[index].children.insert(name, child);
        }
        index
    }

    /// The paths in a module that begin with `crate`, `self`, `super`, or the name of a module in it.
    pub fn mentions(&self, index: usize) -> Vec<Mention> {
        let module = &self.0[index];
        let all = &module.tokens;
        let mut found = Vec::new();
        let mut use_ends = 0;
        for at in 0..all.len() {
            if text(all, at) == "use" {
                use_ends = (at..all.len()).find(|&end| text(all, end) == ";").unwrap_or(all.len());
            }
            let before = if at == 0 { "" } else { text(all, at - 1) };
            // `pub(in crate::x)` imports nothing.
            let begins = !matches!(before, "::" | "." | "in") && text(all, at + 1) == "::";
            let Some(base) = module.base(text(all, at)).filter(|_| begins) else { continue };
            let mut reader = Reader { all, in_use: at < use_ends, found: &mut found };
            reader.path(at + 2, base);
        }
        found
    }

    /// The module where what a mention names is defined.
    pub fn target(&self, mention: &Mention) -> usize {
        self.follow(&mention.path, HOPS_MAX)
    }

    fn follow(&self, path: &[String], hops: usize) -> usize {
        let mut at = 0;
        for (index, name) in path.iter().enumerate() {
            let module = &self.0[at];
            match module.children.get(name) {
                Some(child) => at = *child,
                None if module.items.contains(name) || hops == 0 => return at,
                None => return self.follow_use(at, name, &path[index + 1..], hops),
            }
        }
        at
    }

    /// The module that a name comes from which `at` has not defined itself.
    fn follow_use(&self, at: usize, name: &str, rest: &[String], hops: usize) -> usize {
        let module = &self.0[at];
        if let Some(used) = module.uses.get(name) {
            return self.follow(&[used, rest].concat(), hops - 1);
        }
        let through = |glob: &Vec<String>| {
            let target = self.follow(&[&glob[..], &[name.to_owned()], rest].concat(), hops - 1);
            (target != at && self.0[target].items.contains(name)).then_some(target)
        };
        module.globs.iter().find_map(through).unwrap_or(at)
    }
}

impl Module<'_> {
    /// What a path that begins so begins with, from the crate.
    fn base(&self, first: &str) -> Option<Vec<String>> {
        match first {
            "crate" => Some(Vec::new()),
            "self" => Some(self.path.clone()),
            "super" => Some(self.path[..self.path.len().saturating_sub(1)].to_vec()),
            name if self.children.contains_key(name) => Some([&self.path[..], &[name.to_owned()]].concat()),
            _ => None,
        }
    }
}

struct Reader<'a, 't> {
    all: &'a [Token<'t>],
    in_use: bool,
    found: &'a mut Vec<Mention>,
}

impl Reader<'_, '_> {
    /// Reads what follows `base::`.
    fn path(&mut self, mut at: usize, mut path: Vec<String>) {
        loop {
            match text(self.all, at) {
                "{" => return self.group(at, &path),
                "*" => {
                    path.push("*".into());
                    return self.push(at, path, None);
                }
                "super" => drop(path.pop()),
                "self" => {}
                name if is_name(name) => path.push(name.into()),
                _ => return self.push(at, path, None),
            }
            if text(self.all, at + 1) != "::" {
                let alias = (text(self.all, at + 1) == "as").then(|| text(self.all, at + 2).to_owned());
                return self.push(at, path, alias);
            }
            at += 2;
        }
    }

    fn group(&mut self, open: usize, path: &[String]) {
        let close = group_end(self.all, open) - 1;
        let mut at = open + 1;
        while at < close {
            self.path(at, path.to_vec());
            // Behind the comma of this part.
            while at < close && text(self.all, at) != "," {
                at = if text(self.all, at) == "{" { group_end(self.all, at) } else { at + 1 };
            }
            at += 1;
        }
    }

    fn push(&mut self, at: usize, path: Vec<String>, alias: Option<String>) {
        let line = self.all.get(at).map_or(0, |token| token.line);
        self.found.push(Mention { line, path, alias, in_use: self.in_use });
    }
}

/// Names in `mod name;`
fn declared(all: &[Token<'_>]) -> Vec<String> {
    let is_one = |at: &usize| text(all, *at) == "mod" && text(all, at + 2) == ";";
    (0..all.len()).filter(is_one).map(|at| text(all, at + 1).to_owned()).collect()
}

fn file_of(tree: &Tree, parent: &str, name: &str) -> Option<String> {
    let (folder, file) = parent.rsplit_once('/')?;
    let folder = match file {
        "lib.rs" | "mod.rs" => folder.to_owned(),
        _ => parent.trim_end_matches(".rs").to_owned(),
    };
    let places = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
    places.into_iter().find(|path| tree.get(path).is_some())
}

const KEYWORDS: [&str; 8] = ["struct", "enum", "union", "trait", "type", "fn", "const", "static"];

/// What a file defines outside of all braces.
fn items(all: &[Token<'_>]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut at = 0;
    while at < all.len() {
        if text(all, at) == "{" {
            at = group_end(all, at);
            continue;
        }
        let name = text(all, at + 1);
        if KEYWORDS.contains(&text(all, at)) && is_name(name) {
            found.insert(name.to_owned());
        }
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `file -> file` for each mention that leads out of its file.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(path, text)| (format!("c/src/{path}"), *text)).collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (&path[..], *text)).collect();
        let tree = Tree::of(&files);
        let modules = Modules::of(&tree, "c");
        let name = |index: usize| modules.0[index].file["c/src/".len()..].to_owned();
        let mut all = Vec::new();
        for from in 0..modules.0.len() {
            let targets = modules.mentions(from).into_iter().map(|mention| modules.target(&mention));
            all.extend(targets.filter(|to| *to != from).map(|to| format!("{} -> {}", name(from), name(to))));
        }
        all
    }

    #[test]
    fn a_use_leads_to_each_of_its_files() {
        let files = [
            ("lib.rs", "mod a; mod b; mod gone; #[cfg(test)] mod tests;"),
            ("a.rs", "use crate::{b::{self, c::{One, Two as Other}}, b::f};"),
            ("b/mod.rs", "pub mod c; pub fn f() {}"),
            ("b/c.rs", "pub struct One; pub struct Two;"),
            ("tests.rs", "use crate::a;"),
        ];
        assert_eq!(edges(&files), ["a.rs -> b/mod.rs", "a.rs -> b/c.rs", "a.rs -> b/c.rs", "a.rs -> b/mod.rs"]);
    }

    #[test]
    fn paths_without_use_and_from_below_count() {
        let files = [
            ("lib.rs", "mod a; pub(in crate::a) fn x() { self::a::b::g(); y.a::<u8>(); }"),
            ("a.rs", "mod b; fn f() -> super::Z { b::g() }"),
            ("a/b.rs", "fn g(_: super::super::a::A) {} fn h() { let f = super::f; }"),
        ];
        assert_eq!(
            edges(&files),
            ["lib.rs -> a/b.rs", "a.rs -> lib.rs", "a.rs -> a/b.rs", "a/b.rs -> a.rs", "a/b.rs -> a.rs"]
        );
    }

    #[test]
    fn names_that_a_file_hands_on_are_those_of_their_origin() {
        let files = [
            ("lib.rs", "mod a; mod u; pub use a::Deep;"),
            ("a.rs", "mod b; mod c; pub use b::{First, Second as Last}; pub use self::c::*; pub struct Own;"),
            ("a/b.rs", "pub struct First; pub enum Second {}"),
            ("a/c.rs", "pub const THIRD: u8 = 3; pub struct Deep;"),
            ("u.rs", "use crate::a::{First, Last, THIRD, Own}; use crate::Deep;"),
        ];
        let of_u: Vec<String> = edges(&files).into_iter().filter(|edge| edge.starts_with("u.rs")).collect();
        let wanted = ["a/b.rs", "a/b.rs", "a/c.rs", "a.rs", "a/c.rs"].map(|to| format!("u.rs -> {to}"));
        assert_eq!(of_u, wanted);
    }
}
