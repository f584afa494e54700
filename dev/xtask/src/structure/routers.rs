//! `Agent` and `Job` of `proto` only route: each has one `impl` block, in the file with its name, and no other code
//! modifies them.

use super::Finding;
use super::modules::{Module, Modules};
use syn::visit::{self, Visit};
use syn::{ImplItem, ItemImpl, Receiver, ReceiverKind, Type};

const ROUTERS: [&str; 2] = ["Agent", "Job"];

pub fn check(proto: &Modules) -> Vec<Finding> {
    let blocks = ROUTERS.iter().flat_map(|router| blocks_elsewhere(proto, router)).collect();
    let borrows = proto.0.values().filter(|module| !is_router(module)).flat_map(borrows).collect();
    vec![
        Finding { rule: "proto: one impl Agent, one impl Job".into(), broken: blocks },
        Finding { rule: "proto: only the routers take &mut Agent, &mut Job".into(), broken: borrows },
    ]
}

fn is_router(module: &Module) -> bool {
    let places = ["agent.rs", "agent/mod.rs", "job.rs", "job/mod.rs"];
    places.iter().any(|place| module.file == format!("crates/proto/src/{place}"))
}

/// `impl` blocks other than the one that is allowed.
fn blocks_elsewhere(modules: &Modules, router: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    for module in modules.0.values() {
        let own = impls(module).into_iter().filter(|block| is_of(block, router) && block.trait_.is_none());
        blocks.extend(own.map(|block| (is_router(module), format!("{}: impl {router}", place(module, block)))));
    }
    match blocks.iter().position(|(in_router, _)| *in_router) {
        Some(first) => drop(blocks.remove(first)),
        None => blocks.push((false, format!("impl {router} is not in its file"))),
    }
    blocks.into_iter().map(|(_, line)| line).collect()
}

/// Places where a file borrows a router mutably.
fn borrows(module: &Module) -> Vec<String> {
    let mut broken = Vec::new();
    for router in ROUTERS {
        let borrows = module.source.paths.iter().filter(|path| path.is_mut && path.names.ends_with(&[router.into()]));
        broken.extend(borrows.map(|path| format!("{}:{}: &mut {router}", module.file, path.line)));
        let traits = impls(module).into_iter().filter(|block| block.trait_.is_some() && is_of(block, router));
        let changing = traits.filter(|block| block.items.iter().any(changes));
        broken.extend(changing.map(|block| format!("{}: a trait of {router} with &mut self", place(module, block))));
    }
    broken
}

fn place(module: &Module, block: &ItemImpl) -> String {
    format!("{}:{}", module.file, block.impl_token.span.start().line)
}

fn is_of(block: &ItemImpl, router: &str) -> bool {
    matches!(&*block.self_ty, Type::Path(of) if of.path.segments.last().is_some_and(|name| name.ident == router))
}

/// Whether it is a method with `&mut self`.
fn changes(item: &ImplItem) -> bool {
    let ImplItem::Fn(method) = item else { return false };
    matches!(method.sig.receiver(), Some(Receiver { kind: ReceiverKind::Reference(_, _, Some(_)), .. }))
}

fn impls(module: &Module) -> Vec<&ItemImpl> {
    struct Impls<'m>(Vec<&'m ItemImpl>);
    impl<'m> Visit<'m> for Impls<'m> {
        fn visit_item_impl(&mut self, block: &'m ItemImpl) {
            self.0.push(block);
            visit::visit_item_impl(self, block);
        }
    }
    let mut impls = Impls(Vec::new());
    impls.visit_file(&module.source.file);
    impls.0
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    const AGENT: &str = "pub struct Agent; mod part; impl Agent { fn f(&mut self) -> impl Iterator<Item = u8> { x() } }
        impl fmt::Debug for Agent {} fn g(agent: &mut Agent) {}";
    const JOB: &str = "pub struct Job; impl<F: Fn() -> u8> Job<F> {} #[cfg(test)] impl Job { }";

    fn findings(tree: &Tree) -> Vec<Finding> {
        check(&Modules::of(tree, "crates/proto").expect("valid Rust"))
    }

    fn broken(part: &str) -> [Vec<String>; 2] {
        let tree = Tree::of(&[
            ("crates/proto/src/lib.rs", "pub mod agent; pub mod job;"),
            ("crates/proto/src/agent.rs", AGENT),
            ("crates/proto/src/agent/part.rs", part),
            ("crates/proto/src/job/mod.rs", JOB),
        ]);
        let findings: Vec<_> = findings(&tree).into_iter().map(|finding| finding.broken).collect();
        findings.try_into().expect("two rules")
    }

    #[test]
    fn parts_with_their_own_types_break_no_rule() {
        let part = "pub struct Part; impl Part { fn on_x(&mut self, agent: &Agent, jobs: &mut JobMap) {} }
            impl fmt::Debug for Agent { fn fmt(&self, f: &mut F) {} }
            #[cfg(test)] mod tests { fn f(agent: &mut Agent) {} }";
        assert_eq!(broken(part), [vec![], Vec::<String>::new()]);
    }

    #[test]
    fn a_second_impl_block_is_found() {
        for block in ["impl Agent {}", "impl super::Agent {}", "impl<'a> Agent<'a> where X: Y {}"] {
            assert_eq!(broken(block)[0], ["crates/proto/src/agent/part.rs:1: impl Agent"]);
        }
        assert_eq!(broken("\nimpl crate::job::Job {}")[0], ["crates/proto/src/agent/part.rs:2: impl Job"]);
    }

    #[test]
    fn a_router_without_its_impl_block_is_found() {
        let tree = Tree::of(&[("crates/proto/src/lib.rs", "mod x;"), ("crates/proto/src/x.rs", "impl Agent {}")]);
        let wanted =
            ["crates/proto/src/x.rs:1: impl Agent", "impl Agent is not in its file", "impl Job is not in its file"];
        assert_eq!(findings(&tree)[0].broken, wanted);
    }

    #[test]
    fn mutable_borrows_of_routers_are_found_everywhere() {
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
