//! Checks that no file of a crate of the product imports, directly or indirectly, from a file that imports from it.

use super::Finding;
use super::Tree;
use super::modules::{Module, Modules};
use super::source::Path;
use crate::step::Result;
use std::collections::{BTreeMap, BTreeSet};

/// Pairs of files that import, each the importing one first, with the number of the first line that imports.
type Imports<'m> = BTreeMap<(&'m str, &'m str), usize>;

/// # Errors
/// A file is not valid Rust.
pub fn check(tree: &Tree) -> Result<Finding> {
    let mut broken = Vec::new();
    for root in roots(tree, "crates/") {
        broken.extend(circles(&Modules::from_root(tree, root)?));
    }
    Ok(Finding { rule: "no circle between the files of a crate".into(), broken })
}

/// The root files of all crates and programs in a folder.
pub fn roots<'t>(tree: &'t Tree, folder: &str) -> impl Iterator<Item = &'t str> {
    let is_root = move |path: &&str| {
        let is_of_crate = path.split('/').count() == 4 && path.split('/').nth(2) == Some("src");
        path.starts_with(folder)
            && (is_of_crate && (path.ends_with("/lib.rs") || path.ends_with("/main.rs"))
                || path.ends_with("/shim/shim.rs"))
    };
    tree.ending(".rs").filter(is_root)
}

/// The imports that are part of a circle, as one line each.
fn circles(modules: &Modules) -> Vec<String> {
    let mut imports = Imports::new();
    for module in modules.0.values() {
        for mention in module.mentions.iter().filter(|mention| is_import(module, mention)) {
            imports.entry((&module.file, &modules.target(mention).file)).or_insert(mention.line);
        }
    }
    let reached: BTreeMap<&str, _> = modules.0.values().map(|to| (&*to.file, reach(&to.file, &imports))).collect();
    let leads_back = |&(&(from, to), _): &(&(&str, &str), _)| from != to && reached[to].contains(from);
    let line = |(&(from, to), line): (&(&str, &str), _)| format!("{from}:{line} imports from {to}");
    imports.iter().filter(leads_back).map(line).collect()
}

/// Whether a mention is an import. A name that a file only re-exports (`pub use`) and does not use itself is none.
fn is_import(module: &Module, mention: &Path) -> bool {
    let name = mention.alias.as_ref().or(mention.names.last());
    !mention.is_handed_on || name.is_some_and(|name| module.source.words.contains(name))
}

/// All files that the file `from` imports from, directly or indirectly.
fn reach<'m>(from: &'m str, imports: &Imports<'m>) -> BTreeSet<&'m str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        let direct = imports.keys().filter(|(from, _)| *from == at).map(|(_, to)| *to);
        next.extend(direct.filter(|to| reached.insert(*to)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::*;

    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::from_files(files)).expect("valid Rust").broken
    }

    #[test]
    fn a_program_that_lies_beside_a_crate_is_one_of_its_own() {
        let files = [
            ("crates/a/src/lib.rs", ""),
            ("crates/a/shim/shim.rs", "mod one; pub struct Two;"),
            ("crates/a/shim/one.rs", "use crate::Two;"),
            ("crates/a/tests/lib.rs", "mod gone;"),
        ];
        assert_eq!(broken(&files), [""; 0]);
        let files = [files[0], ("crates/a/shim/shim.rs", "mod one; use one::One; pub struct Two;"), files[2]];
        assert_eq!(broken(&files).len(), 2);
    }

    #[test]
    fn an_import_cycle_is_listed_import_by_import() {
        let files = [
            ("crates/proto/src/lib.rs", "mod a; mod b; mod c; mod d;"),
            ("crates/proto/src/a.rs", "use crate::b::B;\npub struct A;"),
            ("crates/proto/src/b.rs", "pub struct B;\n\nfn f() { crate::c::g() }"),
            ("crates/proto/src/c.rs", "use super::a::A;\npub fn g() {}"),
            ("crates/proto/src/d.rs", "use crate::a::A;"),
        ];
        assert_eq!(
            broken(&files),
            [("a", 1, "b"), ("b", 3, "c"), ("c", 1, "a")].map(|(from, line, to)| format!(
                "crates/proto/src/{from}.rs:{line} imports from crates/proto/src/{to}.rs"
            ))
        );
    }

    #[test]
    fn parents_may_import_their_parts_and_tests_may_import_all() {
        let files = [
            ("crates/proto/src/lib.rs", "mod agent; pub use agent::Agent;"),
            (
                "crates/proto/src/agent.rs",
                "mod part; mod view; use part::Part; pub struct Agent(Part); pub use view::View;",
            ),
            ("crates/proto/src/agent/view.rs", "pub struct View;"),
            (
                "crates/proto/src/agent/part.rs",
                "use super::View; pub struct Part; #[cfg(test)] mod tests { use super::*; use crate::agent::Agent; }",
            ),
        ];
        assert_eq!(broken(&files), [""; 0]);
    }

    #[test]
    fn a_parent_that_only_hands_names_on_does_not_import_them() {
        let part = ("crates/a/src/part.rs", "use crate::Own; pub struct Part; pub fn part() {}");
        let handed = ("crates/a/src/lib.rs", "mod part; pub use part::{Part, part, *}; pub struct Own;");
        assert_eq!(broken(&[handed, part]), [""; 0]);
        let used = ("crates/a/src/lib.rs", "mod part; pub(crate) use part::Part; pub struct Own(Part);");
        assert_eq!(broken(&[used, part]).len(), 2);
    }

    #[test]
    fn a_part_may_not_import_what_its_parent_defines() {
        let files = [
            ("crates/proto/src/lib.rs", "mod agent;"),
            ("crates/proto/src/agent.rs", "mod part; pub struct Agent(part::Part);"),
            ("crates/proto/src/agent/part.rs", "use super::Agent; pub struct Part;"),
        ];
        let (agent, part) = ("crates/proto/src/agent.rs", "crates/proto/src/agent/part.rs");
        let lines = [format!("{agent}:1 imports from {part}"), format!("{part}:1 imports from {agent}")];
        assert_eq!(broken(&files), lines);
    }
}
