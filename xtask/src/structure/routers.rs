//! `Agent` and `Job` of `proto` only route: each has one `impl` block, in the file that bears its name, and nobody else changes them.

use super::Finding;
use super::modules::{Module, Modules};
use super::tokens::{Token, group_end, is_name, text};
use super::tree::Tree;

const ROUTERS: [&str; 2] = ["Agent", "Job"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let modules = Modules::of(tree, "crates/proto");
    let blocks = ROUTERS.iter().flat_map(|router| blocks_elsewhere(&modules, router)).collect();
    let borrows = modules.0.iter().filter(|module| !is_router(module)).flat_map(borrows).collect();
    vec![
        Finding { rule: "proto: one impl Agent, one impl Job".into(), broken: blocks },
        Finding { rule: "proto: only the routers take &mut Agent, &mut Job".into(), broken: borrows },
    ]
}

fn is_router(module: &Module<'_>) -> bool {
    let places = ["agent.rs", "agent/mod.rs", "job.rs", "job/mod.rs"];
    places.iter().any(|place| module.file == format!("crates/proto/src/{place}"))
}

/// Blocks beyond the one that there is to be.
fn blocks_elsewhere(modules: &Modules<'_>, router: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    for module in &modules.0 {
        let own = impls(&module.tokens).into_iter().filter(|block| block.of == router && !block.of_trait);
        blocks.extend(own.map(|block| (is_router(module), format!("{}:{}: impl {router}", module.file, block.line))));
    }
    match blocks.iter().position(|(in_router, _)| *in_router) {
        Some(first) => drop(blocks.remove(first)),
        None => blocks.push((false, format!("impl {router} is not in its file"))),
    }
    blocks.into_iter().map(|(_, line)| line).collect()
}

/// Where a file borrows a router to change it.
fn borrows(module: &Module<'_>) -> Vec<String> {
    let all = &module.tokens;
    let mut broken = Vec::new();
    for at in 0..all.len() {
        if let Some(router) = borrowed(all, at).filter(|name| ROUTERS.contains(name)) {
            broken.push(format!("{}:{}: &mut {router}", module.file, all[at].line));
        }
    }
    for block in impls(all).into_iter().filter(|block| block.of_trait && ROUTERS.contains(&block.of)) {
        let body = &all[block.open..group_end(all, block.open)];
        let changes = (0..body.len()).any(|at| borrowed(body, at) == Some("self"));
        broken
            .extend(changes.then(|| format!("{}:{}: a trait of {} with &mut self", module.file, block.line, block.of)));
    }
    broken
}

/// The last name of the path in `&'a mut path`.
fn borrowed<'s>(all: &[Token<'s>], at: usize) -> Option<&'s str> {
    if text(all, at) != "&" {
        return None;
    }
    let at = at + 1 + usize::from(text(all, at + 1).starts_with('\''));
    (text(all, at) == "mut").then(|| last_of_path(all, at + 1))
}

fn last_of_path<'s>(all: &[Token<'s>], mut at: usize) -> &'s str {
    while text(all, at + 1) == "::" && is_name(text(all, at + 2)) {
        at += 2;
    }
    text(all, at)
}

struct Impl<'s> {
    /// The last name of the type.
    of: &'s str,
    of_trait: bool,
    line: usize,
    open: usize,
}

/// All `impl` blocks; not types like `-> impl Iterator`.
fn impls<'s>(all: &[Token<'s>]) -> Vec<Impl<'s>> {
    let is_block = |at: &usize| {
        let before = if *at == 0 { "" } else { text(all, at - 1) };
        text(all, *at) == "impl" && matches!(before, "" | "}" | ";" | "{" | "unsafe")
    };
    let block = |at: usize| {
        let mut after = at + 1;
        if text(all, after) == "<" {
            after = generics_end(all, after);
        }
        let open = (after..all.len()).find(|&at| text(all, at) == "{").unwrap_or(all.len());
        // `for<'a>` is no `for`.
        let of = (after..open).find(|&at| text(all, at) == "for" && text(all, at + 1) != "<");
        let of_type = of.map_or(after, |at| at + 1);
        Impl { of: last_of_path(all, of_type), of_trait: of.is_some(), line: all[at].line, open }
    };
    (0..all.len()).filter(is_block).map(block).collect()
}

fn generics_end(all: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0;
    for at in open..all.len() {
        match text(all, at) {
            "<" => depth += 1,
            // Not that of `->`.
            ">" if text(all, at - 1) != "-" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    all.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str = "pub struct Agent; mod part; impl Agent { fn f(&mut self) -> impl Iterator<Item = u8> { x() } }
        impl fmt::Debug for Agent {} fn g(agent: &mut Agent) {}";
    const JOB: &str = "pub struct Job; impl<F: Fn() -> u8> Job<F> {} #[cfg(test)] impl Job { }";

    fn broken(part: &str) -> [Vec<String>; 2] {
        let tree = Tree::of(&[
            ("crates/proto/src/lib.rs", "pub mod agent; pub mod job;"),
            ("crates/proto/src/agent.rs", AGENT),
            ("crates/proto/src/agent/part.rs", part),
            ("crates/proto/src/job/mod.rs", JOB),
        ]);
        let findings: Vec<_> = check(&tree).into_iter().map(|finding| finding.broken).collect();
        findings.try_into().expect("two rules")
    }

    #[test]
    fn parts_of_their_own_break_nothing() {
        let part = "pub struct Part; impl Part { fn on_x(&mut self, agent: &Agent, jobs: &mut JobMap) {} }
            impl fmt::Debug for Agent { fn fmt(&self, f: &mut F) {} }
            #[cfg(test)] mod tests { fn f(agent: &mut Agent) {} }";
        assert_eq!(broken(part), [vec![], Vec::<String>::new()]);
    }

    #[test]
    fn a_second_block_is_found() {
        for block in ["impl Agent {}", "impl super::Agent {}", "impl<'a> Agent<'a> where X: Y {}"] {
            assert_eq!(broken(block)[0], ["crates/proto/src/agent/part.rs:1: impl Agent"]);
        }
        assert_eq!(broken("\nimpl crate::job::Job {}")[0], ["crates/proto/src/agent/part.rs:2: impl Job"]);
    }

    #[test]
    fn a_router_without_a_block_is_found() {
        let tree = Tree::of(&[("crates/proto/src/lib.rs", "mod x;"), ("crates/proto/src/x.rs", "impl Agent {}")]);
        let wanted =
            ["crates/proto/src/x.rs:1: impl Agent", "impl Agent is not in its file", "impl Job is not in its file"];
        assert_eq!(check(&tree)[0].broken, wanted);
    }

    #[test]
    fn borrows_are_found_wherever_they_are() {
        for (part, what) in [
            ("fn f(agent: &mut Agent) {}", "&mut Agent"),
            ("fn f<'a>(job: &'a mut crate::job::Job<'_>) {}", "&mut Job"),
            ("struct Context<'a> { agent: &'a mut super::Agent }", "&mut Agent"),
            ("impl Extend for Job { fn extend(&mut self) {} }", "a trait of Job with &mut self"),
        ] {
            assert_eq!(broken(part)[1], [format!("crates/proto/src/agent/part.rs:1: {what}")]);
        }
    }
}
