//! No file of `proto` imports from one that imports from it, however many lie between.

use super::Finding;
use super::modules::Modules;
use super::tree::Tree;
use std::collections::BTreeMap;

pub fn check(tree: &Tree) -> Finding {
    Finding { rule: "proto: no import cycle".into(), broken: cycles(&Modules::of(tree, "crates/proto")) }
}

/// The imports among files that lead back, a line each.
fn cycles(modules: &Modules<'_>) -> Vec<String> {
    let count = modules.0.len();
    // The first line of `from` that imports from `to`.
    let mut lines = BTreeMap::new();
    for from in 0..count {
        for mention in modules.mentions(from) {
            lines.entry((from, modules.target(&mention))).or_insert(mention.line);
        }
    }
    let reached: Vec<Vec<bool>> = (0..count).map(|from| reach(from, count, &lines)).collect();
    let leads_back = |&(&(from, to), _): &(&(usize, usize), &usize)| from != to && reached[to][from];
    let name = |index: usize| modules.0[index].file.trim_start_matches("crates/proto/src/");
    let line = |(&(from, to), line): (_, &usize)| format!("{}:{line} imports from {}", name(from), name(to));
    lines.iter().filter(leads_back).map(line).collect()
}

/// Which files are imported from, at first or any other hand.
fn reach(from: usize, count: usize, edges: &BTreeMap<(usize, usize), usize>) -> Vec<bool> {
    let mut reached = vec![false; count];
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        for (&(_, to), _) in edges.range((at, 0)..(at + 1, 0)) {
            if !reached[to] {
                reached[to] = true;
                next.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).broken
    }

    #[test]
    fn a_cycle_is_named_import_by_import() {
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
    fn parents_may_use_their_parts_and_tests_all() {
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
    fn a_part_may_not_use_what_its_parent_defines() {
        let files = [
            ("crates/proto/src/lib.rs", "mod agent;"),
            ("crates/proto/src/agent.rs", "mod part; pub struct Agent(part::Part);"),
            ("crates/proto/src/agent/part.rs", "use super::Agent; pub struct Part;"),
        ];
        assert_eq!(broken(&files), ["agent.rs:1 imports from agent/part.rs", "agent/part.rs:1 imports from agent.rs"]);
    }
}
