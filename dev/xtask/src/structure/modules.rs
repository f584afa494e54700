//! The modules of a crate, one file each, and the modules that the paths in them lead to.
//!
//! Only code that is compiled without `cfg(test)` counts. A name that a module has by `use` is followed to its
//! definition, so that a file which only re-exports names does not count as their origin. Modules within a file belong
//! to the file.

use super::Tree;
use super::source::{Path, Source};
use crate::step::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;
use syn::{Ident, Item, ItemConst, ItemEnum, ItemFn, ItemMod, ItemStatic, ItemStruct, ItemTrait, ItemType, ItemUnion};

/// Maximum number of `use` declarations through which a name is followed.
const HOPS_MAX: usize = 16;

pub struct Module {
    pub file: String,
    pub source: Source,
    /// Paths in this module that lead into its own crate, with names relative to the crate's root.
    pub mentions: Vec<Path>,
    items: BTreeSet<String>,
}

/// Modules by their paths, such as `["agent", "standing"]`; the crate's root has an empty path.
pub struct Modules(pub BTreeMap<Vec<String>, Module>);

impl Modules {
    /// The modules of the crate whose root file is `root`.
    ///
    /// # Errors
    /// A file is not valid Rust.
    pub fn from_root(tree: &Tree, root: &str) -> Result<Modules> {
        let (mut modules, mut elsewhere) = (BTreeMap::new(), BTreeSet::new());
        let mut next = vec![(Vec::new(), root.to_owned())];
        while let Some((path, file)) = next.pop() {
            let source = Source::parse(tree.get(&file).unwrap_or(""))
                .map_err(|e| format!("{file}:{}: {e}", e.span().start().line))?;
            let children: Vec<String> = source.file.items.iter().filter_map(declared).collect();
            for child in &children {
                let of_child = [&path[..], from_ref(child)].concat();
                match file_of(tree, &file, path.is_empty(), child) {
                    Some(file) => next.push((of_child, file)),
                    None => drop(elsewhere.insert(of_child)),
                }
            }
            let mentions = source.paths.iter().filter_map(|mention| from_crate(mention, &path, &children)).collect();
            let items = source.file.items.iter().filter_map(defined).map(Ident::to_string).collect();
            modules.insert(path, Module { file, source, mentions, items });
        }
        // Modules whose file is elsewhere (`#[path]`) do not belong to this crate, so paths that lead to them are
        // dropped.
        let is_here = |mention: &Path| !(1..=mention.names.len()).any(|len| elsewhere.contains(&mention.names[..len]));
        modules.values_mut().for_each(|module: &mut Module| module.mentions.retain(is_here));
        Ok(Modules(modules))
    }

    /// The module that defines the name at the end of a path.
    pub fn target(&self, mention: &Path) -> &Module {
        self.follow(&mention.names, HOPS_MAX)
    }

    fn follow(&self, path: &[String], hops: usize) -> &Module {
        let length = (0..=path.len()).rev().find(|&length| self.0.contains_key(&path[..length])).unwrap_or(0);
        let module = &self.0[&path[..length]];
        match path[length..].split_first() {
            Some((name, rest)) if hops > 0 && name != "*" && !module.items.contains(name) => {
                self.follow_use(module, name, rest, hops - 1).unwrap_or(module)
            }
            Some(_) | None => module,
        }
    }

    /// The module from which `module` imports `name`, a name that it does not define itself.
    fn follow_use(&self, module: &Module, name: &String, rest: &[String], hops: usize) -> Option<&Module> {
        let mut uses = module.mentions.iter().filter(|mention| mention.in_use);
        let mut globs = uses.clone().filter_map(|mention| mention.names.strip_suffix(&["*".to_owned()]));
        if let Some(used) = uses.find(|mention| mention.alias.as_ref().or(mention.names.last()) == Some(name)) {
            return Some(self.follow(&[&used.names[..], rest].concat(), hops));
        }
        globs.find_map(|glob| {
            let target = self.follow(&[glob, from_ref(name), rest].concat(), hops);
            (target.file != module.file && target.items.contains(name)).then_some(target)
        })
    }
}

/// The path with names relative to the crate's root, if it begins with `crate`, `self`, `super`, or a child of its
/// module.
fn from_crate(path: &Path, module: &[String], children: &[String]) -> Option<Path> {
    let (first, rest) = path.names.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let mut names = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module[..module.len().saturating_sub(1)].to_vec(),
        _ if children.contains(first) => [module, from_ref(first)].concat(),
        _ => return None,
    };
    for name in rest {
        match name.as_str() {
            "super" => drop(names.pop()),
            "self" => {}
            _ => names.push(name.clone()),
        }
    }
    Some(Path { names, ..path.clone() })
}

/// The name of the module that an item declares by `mod name;`
fn declared(item: &Item) -> Option<String> {
    match item {
        Item::Mod(ItemMod { ident, content: None, .. }) => Some(ident.to_string()),
        _ => None,
    }
}

fn file_of(tree: &Tree, parent: &str, is_root: bool, name: &str) -> Option<String> {
    let (folder, file) = parent.rsplit_once('/')?;
    let folder = if is_root || file == "mod.rs" { folder } else { parent.trim_end_matches(".rs") };
    let places = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
    places.into_iter().find(|path| tree.get(path).is_some())
}

/// The name that an item of the file defines.
fn defined(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(ItemConst { ident, .. })
        | Item::Enum(ItemEnum { ident, .. })
        | Item::Static(ItemStatic { ident, .. })
        | Item::Struct(ItemStruct { ident, .. })
        | Item::Trait(ItemTrait { ident, .. })
        | Item::Type(ItemType { ident, .. })
        | Item::Union(ItemUnion { ident, .. }) => Some(ident),
        Item::Fn(ItemFn { sig, .. }) => Some(&sig.ident),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line `file -> file` for each path that leads to another file.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(path, text)| (format!("c/src/{path}"), *text)).collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (&path[..], *text)).collect();
        let tree = Tree::from_files(&files);
        let modules = Modules::from_root(&tree, "c/src/lib.rs").expect("valid Rust");
        let name = |module: &Module| module.file["c/src/".len()..].to_owned();
        let mut all = Vec::new();
        for from in modules.0.values() {
            let targets = from.mentions.iter().map(|mention| modules.target(mention));
            let others = targets.filter(|to| to.file != from.file);
            all.extend(others.map(|to| format!("{} -> {}", name(from), name(to))));
        }
        all
    }

    #[test]
    fn a_use_is_an_edge_to_each_of_its_files() {
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
    fn paths_without_a_use_count_as_imports() {
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
    fn reexported_names_count_for_their_original_file() {
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
