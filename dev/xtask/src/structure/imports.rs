//! No file of `proto` imports, directly or indirectly, from a file that imports from it.

use super::Finding;
use super::modules::Modules;
use std::collections::{BTreeMap, BTreeSet};

/// Pairs of files, the importing one first, with the first line that imports.
type Imports<'m> = BTreeMap<(&'m str, &'m str), usize>;

pub fn check(proto: &Modules) -> Finding {
    Finding { rule: "proto: no import cycle".into(), broken: cycles(proto) }
}

/// The imports that are part of a cycle, one line each.
fn cycles(modules: &Modules) -> Vec<String> {
    let mut imports = Imports::new();
    for module in modules.0.values() {
        for mention in &module.mentions {
            imports.entry((&module.file, &modules.target(mention).file)).or_insert(mention.line);
        }
    }
    let reached: BTreeMap<&str, _> = modules.0.values().map(|to| (&*to.file, reach(&to.file, &imports))).collect();
    let leads_back = |&(&(from, to), _): &(&(&str, &str), _)| from != to && reached[to].contains(from);
    let name = |file: &str| file.trim_start_matches("crates/proto/src/").to_owned();
    let line = |(&(from, to), line): (&(&str, &str), _)| format!("{}:{line} imports from {}", name(from), name(to));
    imports.iter().filter(leads_back).map(line).collect()
}

/// All files that `from` imports from, directly or indirectly.
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
    use super::super::tree::Tree;
    use super::*;

    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        check(&Modules::of(&Tree::of(files), "crates/proto").expect("valid Rust")).broken
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
            ["a.rs:1 imports from b.rs", "b.rs:3 imports from c.rs", "c.rs:1 imports from a.rs"]
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
                "use super::View; pub struct Part; #[cfg(test)] mod tests { use super::super::tree::Tree;
    use super::*; use crate::agent::Agent; }",
            ),
        ];
        assert_eq!(broken(&files), [""; 0]);
    }

    #[test]
    fn a_part_may_not_import_what_its_parent_defines() {
        let files = [
            ("crates/proto/src/lib.rs", "mod agent;"),
            ("crates/proto/src/agent.rs", "mod part; pub struct Agent(part::Part);"),
            ("crates/proto/src/agent/part.rs", "use super::Agent; pub struct Part;"),
        ];
        assert_eq!(broken(&files), ["agent.rs:1 imports from agent/part.rs", "agent/part.rs:1 imports from agent.rs"]);
    }
}
